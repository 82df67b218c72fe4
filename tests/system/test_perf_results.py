"""What perf measured, in the topic `kbroker.perf.results` of a real broker."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kbroker.errors import KafkaError
from kbroker.peer.client import Client
from kbroker.peer.messages import NewTopic
from kbroker.peer.producer import Producer
from kbroker.protocol.record_batch import Record
from kbroker.testing.plain import KEEPS_WHAT_IS_OLD, PlainBroker
from lab.ports import free_port
from perf import cli, network, results, results_table
from perf.cells import Block, Cell
from perf.histogram import Histogram, bucket_of
from perf.process import Guard
from perf.publishing import ResultsError
from perf.results import Results
from tests.support import reading

CELL = Cell("p-1k-4x5", "", "produce", 1000, 4, 5, acks=-1)
LATENCY = Histogram.of([5, 700, 700, 1_000_000])
BLOCK = Block(
    "p-1k-4x5", "kafka", 4, 40, 41_000, 1.5, 0.25, 0.5, LATENCY, Histogram.empty(), 4,
    Guard(0.01, 0.0), ended_ms=1_700_000_000_000,
)  # fmt: skip


@pytest.fixture(scope="module")
def broker() -> Iterator[PlainBroker]:
    with PlainBroker(KEEPS_WHAT_IS_OLD) as started:
        yield started


@pytest.fixture
def bootstrap(broker: PlainBroker) -> Iterator[str]:
    """With no results in it."""
    yield broker.bootstrap
    with Client(broker.bootstrap) as client:
        client.delete_topics([results_table.TOPIC])


def published(bootstrap: str) -> list[dict[str, Any]]:
    return [json.loads(one.value or b"") for one in reading.records(bootstrap, results_table.TOPIC)]


def test_blocks_verdicts_and_figures_arrive_once_and_in_order(bootstrap: str) -> None:
    said: list[str] = []
    with Results(bootstrap, "compare", said.append) as run:
        run.block(BLOCK, CELL, round=2)
        run.verdict("faster?", "yes", decided=True, evidence={"ratio": 0.5, "n": 3}, cell="c")
        run.figure("start, empty directory", 0.25, "s", broker="kbroker")
        assert said == []  # nothing was sent beside the measurement
    block, verdict, figure = published(bootstrap)
    assert [one["sequence"] for one in (block, verdict, figure)] == [0, 1, 2]
    assert {one["run_id"] for one in (block, verdict, figure)} == {run.run_id}
    wanted = {
        "kind": "block", "study": "compare", "cell": "p-1k-4x5", "work": "produce",
        "broker": "kafka", "round": 2, "acks": -1, "size_bytes": 1000, "in_flight": 5,
        "connections": 4, "partitions": 4, "requests": 4, "wall_s": 1.5, "quiet": True,
        "measure": "request", "min_ns": 5, "max_ns": 1_000_000, "sum_ns": 1_001_405,
        "event_time_ms": 1_700_000_000_000,
    }  # fmt: skip
    assert {name: block[name] for name in wanted} == wanted
    assert {bucket_of(int(one["le"])): one["count"] for one in block["buckets"]} == {
        bucket_of(5): 1, bucket_of(700): 2, bucket_of(1_000_000): 1,
    }  # fmt: skip
    assert json.loads(verdict["evidence"]) == {"ratio": 0.5, "n": 3}
    assert (figure["name"], figure["value"], figure["unit"]) == (
        "start, empty directory",
        0.25,
        "s",
    )
    assert len(said) == 1 and "3 records" in said[0]


def test_the_batches_are_idempotent_keyed_by_run_and_kept_a_week(bootstrap: str) -> None:
    with Results(bootstrap, "e2e", lambda _: None) as run:
        run.block(BLOCK)
        run.publish()
        run.block(BLOCK)
    found = reading.batches(bootstrap, results_table.TOPIC)
    assert all(batch.producer_id >= 0 for batch in found)
    assert {record.key for batch in found for record in batch.records} == {run.run_id.encode()}
    assert {record.timestamp_ms for batch in found for record in batch.records} == {BLOCK.ended_ms}
    with Client(bootstrap) as client:
        configs = {one.name: one.value for one in client.topic_configs(results_table.TOPIC)}
    assert configs["retention.ms"] == str(7 * 24 * 3_600_000)


def test_a_topic_that_forgets_early_is_said(bootstrap: str) -> None:
    with Client(bootstrap) as client:
        hour = {"retention.ms": "3600000"}
        client.create_topics([NewTopic(results_table.TOPIC, 1, 1, hour)])
    said: list[str] = []
    with Results(bootstrap, "e2e", said.append) as run:
        run.block(BLOCK)
    assert "keeps records for 1 h only" in said[0]
    assert len(published(bootstrap)) == 1


def test_results_that_cannot_be_published_are_kept_and_sent_later(
    bootstrap: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    said: list[str] = []
    with Results(f"127.0.0.1:{free_port()}", "tune", said.append, directory=tmp_path) as run:
        run.figure("one", 1, "s")
        assert not run.publish()
        run.figure("two", 2, "s")
    (kept,) = tmp_path.glob("*.json")
    assert run.failed == str(kept)
    assert all("not published" in line and "\n" not in line for line in said)
    assert cli.main(["publish", str(kept), "--results-bootstrap", bootstrap]) == 0
    assert "2 records published" in capsys.readouterr().out
    found = published(bootstrap)
    assert [(one["name"], one["sequence"]) for one in found] == [("one", 0), ("two", 1)]
    assert {one["run_id"] for one in found} == {run.run_id}


def test_results_leave_from_the_network_where_the_run_began(bootstrap: str) -> None:
    """A comparison moves its thread into a network of its own, which has no broker of ours."""
    outcome: list[object] = []

    def compare() -> None:
        with Results(bootstrap, "compare", lambda _: None) as run:
            where = network.enter()
            run.figure("one", 1, "s")
            outcome.extend([where, run.publish()])

    thread = threading.Thread(target=compare)
    thread.start()
    thread.join(60)
    assert outcome[1:] == [True]


def test_a_verb_publishes_its_output(bootstrap: str, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["produce", "-b", bootstrap, "--topic", "orders", "--num-records", "500"]
    arguments += ["--acks", "all", "--json", "--results-bootstrap", bootstrap]
    assert cli.main([*arguments, "--broker-name", "kbroker"]) == 0
    printed = json.loads(capsys.readouterr().out.splitlines()[1])
    (block,) = published(bootstrap)
    assert (block["study"], block["broker"], block["acks"]) == ("produce", "kbroker", -1)
    assert block["records"] == printed["records"] >= 500
    assert sum(one["count"] for one in block["buckets"]) == block["requests"] == printed["requests"]


def test_an_address_that_is_none_is_found_before_measuring(
    capsys: pytest.CaptureFixture[str],
) -> None:
    arguments = ["e2e", "--broker", "limit", "--results-bootstrap", "nowhere"]
    assert cli.main(arguments) == 2
    assert "HOST:PORT" in capsys.readouterr().err


def test_more_records_than_the_bound_are_counted_not_kept(bootstrap: str) -> None:
    said: list[str] = []
    with Results(bootstrap, "tune", said.append, records_max=2) as run:
        for number in range(5):
            run.figure("n", number, "s")
    assert len(published(bootstrap)) == 2
    assert "3 records over 2" in said[0]


def test_without_an_address_nothing_happens(tmp_path: Path) -> None:
    with Results(None, "tune", pytest.fail, directory=tmp_path) as run:
        run.block(BLOCK, CELL, nonsense=1)
        run.figure("n", 1, "s")
    assert not list(tmp_path.iterdir())


def test_a_field_that_the_table_lacks_is_an_error_at_once(tmp_path: Path) -> None:
    address = f"127.0.0.1:{free_port()}"
    with (
        Results(address, "tune", lambda _: None, directory=tmp_path) as run,
        pytest.raises(ValueError, match="no field 'nonsense'"),
    ):
        run.block(BLOCK, nonsense=1)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "is not JSON"),
        ("[" * 100_000, "is not JSON"),
        ("[]", "holds no results"),
        ('{"records": []}', "holds no results"),
        ('{"records": [1]}', "record 0: not an object"),
        ('{"records": [{"run_id": "r"}]}', "record 0: no sequence"),
        (
            '{"records": [{"run_id": "r", "sequence": 0, "event_time_ms": 1,'
            ' "schema_version": 9}]}',
            "schema_version 9, not 1",
        ),
        (
            '{"records": [{"run_id": "r", "sequence": "0", "event_time_ms": 1,'
            ' "schema_version": 1}]}',
            "sequence is no long",
        ),
    ],
)
def test_a_file_of_something_else_is_refused(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "kept.json"
    path.write_text(text)
    with pytest.raises(ResultsError, match=said):
        results.read_file(path)


@pytest.mark.parametrize("stamp", [-(2**62), -(2**63), 2**62])
def test_a_stamp_that_spark_cannot_read_does_not_enter(bootstrap: str, stamp: int) -> None:
    """Spark's Kafka source would fail on that record for ever."""
    with Results(bootstrap, "e2e", lambda _: None) as run:
        run.block(BLOCK)
    with Client(bootstrap) as client, pytest.raises(KafkaError, match="INVALID_TIMESTAMP"):
        Producer(client, results_table.TOPIC).send(
            [Record(key=None, value=b"{}", timestamp_ms=stamp)]
        )
    assert len(published(bootstrap)) == 1
