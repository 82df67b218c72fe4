"""Transactions as a running broker prints them: lists, one id's life, the one that holds a consumer
of committed records, health, figures, and the end of one that hangs."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Callable, Iterator
from typing import Any

import confluent_kafka
import pytest

from kbroker.cli.main import main
from kbroker.errors import ErrorCode
from kbroker.findings.last_stable import Held, held, stable_offsets
from kbroker.peer.client import Client
from kbroker.testing import Broker
from kbroker.testing.inspection import wait_until
from kbroker.types import ApiKey, TopicPartition
from tests.support import hanging

TOPIC = "orders"
CLIENT = {"id": "rdkafka", "address": "127.0.0.1"}
AGE = "kbroker_last_stable_age_seconds"
LATE = "kafka_server_ReplicaManager_PartitionsWithLateTransactionsCount"
ABORTED = "kbroker_transactions_hanging_aborted_total"
Run = Callable[..., tuple[int, Any]]


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker({hanging.VERIFIES: "false"}, topics={TOPIC: 2}) as running:
        yield running


@pytest.fixture
def run(broker: Broker, capsys: pytest.CaptureFixture[str]) -> Run:
    def kbroker(*words: str) -> tuple[int, Any]:
        status = main([*words, "-b", broker.bootstrap, "-o", "json"])
        return status, json.loads(capsys.readouterr().out)

    return kbroker


def producer_of(broker: Broker, name: str) -> confluent_kafka.Producer:
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": broker.bootstrap, "transactional.id": name}
    )
    producer.init_transactions(30)
    return producer


def write(producer: confluent_kafka.Producer, *partitions: int) -> None:
    producer.begin_transaction()
    for partition in partitions:
        producer.produce(TOPIC, b"one", partition=partition)
    producer.flush(30)


def write_without_a_coordinator(broker: Broker, partition: int, sequence: int = 0) -> None:
    """A transaction that no coordinator has, as a producer leaves it whose verification is off."""
    at = TopicPartition(TOPIC, partition)
    code = hanging.write(broker.bootstrap, at, broker.clock.now_ms(), sequence)
    assert code == ErrorCode.NONE


def test_lists_descriptions_and_a_life(
    broker: Broker, run: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("txn", "list") == (0, [])
    assert run("txn", "describe", "payments") == (1, [])
    assert main(["txn", "explain", "payments", "-b", broker.bootstrap]) == 1
    assert "TRANSACTIONAL_ID_NOT_FOUND" in capsys.readouterr().err
    one, other = producer_of(broker, "payments"), producer_of(broker, "other")
    write(one, 0, 1)
    one.commit_transaction(30)
    write(one, 1)
    one.abort_transaction(30)
    write(one, 0)
    write(other, 1)

    _, listed = run("txn", "list", "--state", "ongoing", "--pattern", "pay.*")
    (entry,) = listed
    assert (entry["transactional_id"], entry["state"]) == ("payments", "Ongoing")
    assert run("txn", "list", "--open-for", "1h")[1] == []
    status, (described,) = run("txn", "describe", "payments")
    assert status == 0 and described["partitions"] == [{"topic": TOPIC, "partition": 0}]
    assert described["producer_id"] == entry["producer_id"]
    assert described["client"] == CLIENT
    assert main(["txn", "describe", "payments", "-b", broker.bootstrap]) == 0
    assert "  client      id rdkafka, address 127.0.0.1\n" in capsys.readouterr().out
    assert 0 < described["time_left_ms"] <= described["timeout_ms"] == 60_000

    status, life = run("txn", "explain", "payments")
    assert status == 0 and life["state"] == "Ongoing"
    events = [(each["event"], each["partition"], each["offset"]) for each in life["events"]]
    added_first = {("partition added", 0, None), ("partition added", 1, None)}
    assert events[0] == ("epoch given", None, None)
    assert set(events[1:3]) == added_first
    assert events[3:] == [
        ("first batch", 0, 0), ("first batch", 1, 0), ("prepare commit", None, None),
        ("marker commit", 0, 1), ("marker commit", 1, 1), ("complete commit", None, None),
        ("partition added", 1, None), ("first batch", 1, 2), ("prepare abort", None, None),
        ("marker abort", 1, 3), ("complete abort", None, None),
        ("partition added", 0, None), ("first batch", 0, 2),
    ]  # fmt: skip
    assert all(each["time_ms"] > 0 for each in life["events"])
    _, shorter = run("txn", "explain", "payments", "--last", "1")
    assert shorter["events"] == life["events"][-2:]
    assert main(["txn", "explain", "payments", "-b", broker.bootstrap]) == 0
    page = capsys.readouterr().out
    assert "marker abort" in page and f"{TOPIC}/1 at 3" in page
    assert main(["txn", "list", "--state", "Gone", "-b", broker.bootstrap]) == 2


def test_why_a_consumer_of_committed_records_does_not_go_on(broker: Broker, run: Run) -> None:
    explain = ("explain", f"{TOPIC}/0", "--isolation", "read_committed")
    status, facts = run(*explain)
    assert status == 0 and "can read everything" in facts["verdict"]
    producer = producer_of(broker, "payments")
    write(producer, 0)
    status, facts = run(*explain)
    assert status == 1
    assert facts["log"] == {"last_stable": 0, "high_watermark": 1, "waiting": 1}
    assert facts["held_by"]["first_offset"] == 0
    assert facts["client"] == CLIENT
    assert facts["transaction"]["id"] == "payments"
    assert facts["transaction"]["state"] == "Ongoing"
    assert facts["verdict"].startswith("running: 'payments' has to commit or abort; ")
    _, health = run("health")
    (check,) = [each for each in health["checks"] if each["name"] == "transactions"]
    assert check["verdict"] == "ok" and check["seen"].startswith("open ones in 1 of ")
    producer.commit_transaction(30)
    assert run(*explain)[0] == 0


def figure(broker: Broker, name: str) -> float:
    with urllib.request.urlopen(broker.admin + "/metrics", timeout=30) as answer:
        lines = answer.read().decode().splitlines()
    (line,) = [each for each in lines if each.startswith(name + " ")]
    return float(line.rpartition(" ")[2])


def test_a_transaction_that_hangs_is_listed_and_then_ended(
    broker: Broker, run: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    producer_of(broker, "payments")  # so that there are coordinators
    write_without_a_coordinator(broker, 0)
    write_without_a_coordinator(broker, 1)
    explain = ("explain", f"{TOPIC}/0", "--isolation", "read_committed")
    status, facts = run(*explain)
    assert status == 1 and "transaction" not in facts and facts["client"] is None
    assert main([*explain, "-b", broker.bootstrap]) == 1
    assert "\n  client     unknown: " in capsys.readouterr().out
    assert facts["verdict"].startswith("hanging: no coordinator has a transaction of producer id 4")
    status, health = run("health")
    assert status == 1
    checks = [each for each in health["checks"] if each["name"] == "transactions"]
    assert [each["verdict"] for each in checks] == ["warning", "warning"]
    assert checks[0]["fix"] == f"kbroker explain {TOPIC}/0 --isolation read_committed"
    assert figure(broker, "kbroker_last_stable_lag_records") == 1

    broker.clock.advance(seconds=10)  # the look that finds them
    wait_until(lambda: figure(broker, AGE) > 0, "they are seen")
    broker.clock.advance(minutes=20)
    found = "consumers of committed records stand at offset 0 of orders-"
    wait_until(lambda: all(f"{found}{at}" in broker.log_text() for at in (0, 1)), "both are named")
    assert figure(broker, LATE) == 2
    # One goes on: it has not the last batch that was seen when the coordinators were asked.
    write_without_a_coordinator(broker, 1, sequence=1)
    broker.clock.advance(seconds=10)
    wait_until(lambda: figure(broker, ABORTED) >= 1, "one is aborted")
    status, facts = run(*explain)
    assert status == 0 and facts["log"] == {"last_stable": 2, "high_watermark": 2, "waiting": 0}
    assert run("explain", f"{TOPIC}/1", "--isolation", "read_committed")[0] == 1
    log = broker.log_text()
    assert "a hanging transaction of producer id 4000, epoch 0, was aborted in orders-0" in log
    assert "a hanging transaction of producer id 4000 in orders-1 was not aborted" in log
    assert [each.value for each in broker.records(TOPIC, 0)] == [hanging.VALUE]


def test_faults_between_the_steps_of_a_transaction(broker: Broker) -> None:
    """An answer to EndTxn that is lost, markers that are held back, a timeout."""
    producer = producer_of(broker, "payments")
    with broker.on(ApiKey.END_TXN, lose_answer=True, times=1) as rule:
        write(producer, 0)
        producer.commit_transaction(30)
        assert rule.hits == 1
    assert [each.state for each in broker.transactions()] == ["CompleteCommit"]

    broker.hold_markers()
    write(producer, 0, 1)
    producer.commit_transaction(30)
    (seen,) = broker.transactions()
    assert seen.state == "PrepareCommit" and len(seen.partitions) == broker.held_markers == 2
    facts = explained(broker, 0)
    assert "the commit of 'payments' is decided" in facts.verdict and not facts.is_trouble
    assert f"{TOPIC}/0, {TOPIC}/1 have none yet" in facts.verdict
    assert broker.let_markers_go() == 2
    wait_until(lambda: broker.transactions()[0].state == "CompleteCommit", "it is over")

    write(producer, 0)
    broker.clock.advance(minutes=2)
    wait_until(lambda: broker.transactions()[0].state == "CompleteAbort", "it is timed out")
    with pytest.raises(ValueError, match="an answer is lost"):
        broker.on(ApiKey.PRODUCE, lose_answer=True)


def explained(broker: Broker, partition: int) -> Held:
    with Client(broker.bootstrap) as client:
        offsets = stable_offsets(client, [TopicPartition(TOPIC, partition)])
        (found,) = held(client, offsets, broker.clock.now_ms())
    return found
