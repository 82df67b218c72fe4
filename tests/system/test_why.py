"""`kbroker why`, with each cause caused at running brokers: it is named while it is there."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Protocol

import pytest

from kbroker.cli.main import main
from kbroker.peer.client import Client
from kbroker.peer.messages import NewTopic
from kbroker.testing import Broker, Cluster
from kbroker.testing.inspection import wait_until

confluent_kafka = pytest.importorskip("confluent_kafka")
pytestmark = pytest.mark.client

TIMEOUT_S = 30
KB = 1_000
FEW = "below-min-in-sync"
OF_A_BUSY_MACHINE = ("network-busy", "handlers-busy", "disk-slow", "followers-slow")


class Admin(Protocol):
    @property
    def admin(self) -> str: ...


Why = Callable[..., dict[str, Any]]


@pytest.fixture
def why(capsys: pytest.CaptureFixture[str]) -> Why:
    def ask(broker: Admin, *words: str) -> dict[str, Any]:
        capsys.readouterr()
        status = main(["why", *words, "--admin", broker.admin, "-o", "json"])
        found: dict[str, Any] = json.loads(capsys.readouterr().out)
        assert status == bool(found["causes"])
        return found

    return ask


def causes(answer: dict[str, Any]) -> list[dict[str, Any]]:
    """Without those of a machine that is full of other tests."""
    return [each for each in answer["causes"] if each["kind"] not in OF_A_BUSY_MACHINE]


def kinds(answer: dict[str, Any]) -> list[str]:
    return [each["kind"] for each in causes(answer)]


@pytest.fixture(scope="module")
def data_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("why") / "data"


@pytest.fixture(scope="module")
def broker(data_dir: Path) -> Iterator[Broker]:
    with Broker(data_dir=data_dir, topics={"orders": 2}) as made:
        yield made
        assert "Traceback" not in made.log_text()


def write(broker: Broker, size: int = 10, **settings: Any) -> None:
    producer = confluent_kafka.Producer({"bootstrap.servers": broker.bootstrap, **settings})
    producer.produce("orders", b"x" * size, partition=0)
    assert producer.flush(TIMEOUT_S) == 0


def consumer(broker: Broker, group: str, name: str = "") -> Any:
    settings = {"bootstrap.servers": broker.bootstrap, "group.id": group, "client.id": name}
    return confluent_kafka.Consumer(settings)


@pytest.mark.parametrize(
    "words", [("slow",), ("produce", "orders"), ("partition", "orders/1")], ids=lambda it: it[0]
)
def test_nothing_is_wrong(
    broker: Broker, why: Why, words: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    assert kinds(why(broker, *words)) == []
    main(["why", *words, "--admin", broker.admin])
    assert "\nseen: " in capsys.readouterr().out


def test_names_of_nothing(broker: Broker, why: Why) -> None:
    assert kinds(why(broker, "produce", "gone")) == ["no-topic"]
    assert kinds(why(broker, "partition", "orders/2")) == ["no-partition"]
    assert kinds(why(broker, "consumer", "gone")) == ["no-group"]


def test_a_batch_that_is_too_large(broker: Broker, why: Why) -> None:
    (cause,) = causes(why(broker, "produce", "orders", "--batch-bytes", "2000000"))
    assert cause["kind"] == "too-large" and "message.max.bytes" in cause["what"]
    assert kinds(why(broker, "produce", "orders", "--batch-bytes", "1000000")) == []


def test_a_group_without_members_whose_offset_is_out_of_range(broker: Broker, why: Why) -> None:
    offsets = [confluent_kafka.TopicPartition("orders", 1, 100)]
    client = consumer(broker, "away")
    client.commit(offsets=offsets, asynchronous=False)
    client.close()
    found = why(broker, "consumer", "away")
    assert kinds(found) == ["no-members", "offset-out-of-range"]
    assert found["causes"][1]["evidence"] == ["orders-1: committed 100, the log has 0 to 0"]


def test_a_rebalance_that_waits_for_a_member(broker: Broker, why: Why) -> None:
    one, two = consumer(broker, "shop", "one"), consumer(broker, "shop", "two")
    one.subscribe(["orders"])
    wait_until(lambda: one.poll(0.1) is not None or one.assignment(), "it is assigned")
    assert kinds(why(broker, "consumer", "shop")) == []
    two.subscribe(["orders"])
    wait_until(
        lambda: two.poll(0.1) or kinds(why(broker, "consumer", "shop")) == ["rebalance"],
        "the first does not poll, so that the second waits",
    )
    (cause,) = causes(why(broker, "consumer", "shop"))
    assert "of client one at " in cause["what"] and cause["since_ms"] is not None
    one.close()
    wait_until(lambda: two.poll(0.1) or two.assignment(), "it is assigned")
    assert kinds(why(broker, "consumer", "shop")) == []
    two.close()


def test_a_transaction_that_holds_consumers(broker: Broker, why: Why) -> None:
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": broker.bootstrap, "transactional.id": "pay"}
    )
    producer.init_transactions(TIMEOUT_S)
    producer.begin_transaction()
    producer.produce("orders", b"x", partition=0)
    assert producer.flush(TIMEOUT_S) == 0
    assert kinds(why(broker, "partition", "orders/0")) == []  # it is of this moment
    broker.clock.advance(seconds=20)
    (cause,) = causes(why(broker, "partition", "orders/0"))
    assert cause["kind"] == "transaction-open"
    assert "'pay'" in cause["what"] and cause["evidence"] == ["1 records wait"]
    producer.commit_transaction(TIMEOUT_S)
    assert kinds(why(broker, "partition", "orders/0")) == []


def test_a_quota_that_throttles(broker: Broker, why: Why) -> None:
    quota = ["--client-id", "bulk", "-b", broker.bootstrap]
    assert main(["quota", "set", "producer_byte_rate=1000", *quota]) == 0
    write(broker, 100 * KB, **{"client.id": "bulk"})
    (cause,) = causes(why(broker, "produce", "orders"))
    assert cause["kind"] == "throttled" and "client id bulk" in cause["what"]
    assert kinds(why(broker, "produce", "orders", "--client-id", "other")) == []
    assert main(["quota", "remove", "producer_byte_rate", *quota]) == 0
    assert kinds(why(broker, "produce", "orders")) == []


def test_a_write_that_hangs(broker: Broker, why: Why) -> None:
    producer = confluent_kafka.Producer({"bootstrap.servers": broker.bootstrap})
    broker.hang_files("/orders-1/", "write")
    producer.produce("orders", b"x", partition=1)
    producer.poll(0)
    wait_until(lambda: kinds(why(broker, "slow")) == ["disk-hangs"], "it is named")
    (cause,) = causes(why(broker, "produce", "orders"))
    assert cause["kind"] == "disk-hangs" and "orders-1 in " in cause["what"]
    assert kinds(why(broker, "partition", "orders/0")) == []
    broker.let_files_go()
    assert producer.flush(TIMEOUT_S) == 0
    assert kinds(why(broker, "slow")) == []


def test_a_write_of_groups_that_hangs(broker: Broker, why: Why) -> None:
    """The coordinator holds the group's lock meanwhile, which nothing else waits for."""
    reads = consumer(broker, "held")
    reads.subscribe(["orders"])
    wait_until(lambda: reads.poll(0.1) is not None or reads.assignment(), "it is assigned")
    broker.hang_files("/__consumer_offsets-", "write")
    places = [confluent_kafka.TopicPartition("orders", 0, 1)]
    reads.commit(offsets=places, asynchronous=True)
    wait_until(lambda: "disk-hangs" in kinds(why(broker, "slow")), "it is named")
    assert kinds(why(broker, "consumer", "held")) == ["disk-hangs"]
    broker.let_files_go()
    wait_until(lambda: kinds(why(broker, "slow")) == [], "it has ended")
    assert "disk-hangs" not in kinds(why(broker, "consumer", "held"))
    reads.close()


def test_a_directory_that_is_gone(broker: Broker, why: Why, data_dir: Path) -> None:
    elsewhere = data_dir.with_name("elsewhere")
    data_dir.rename(elsewhere)
    try:
        (cause,) = causes(why(broker, "slow"))
    finally:
        elsewhere.rename(data_dir)
    assert cause["kind"] == "disk-failed" and str(data_dir) in cause["what"]
    assert kinds(why(broker, "slow")) == []


def test_a_right_that_is_missing(why: Why) -> None:
    with Broker(
        topics={"orders": 1}, users={"alice": "pw"}, acls=["alice Read topic:orders"]
    ) as broker:
        asked = ["produce", "orders", "--principal", "User:alice"]
        (cause,) = causes(why(broker, *asked))
        assert cause["kind"] == "denied" and "Write topic:orders" in cause["what"]
        assert kinds(why(broker, "partition", "orders/0", "--principal", "User:alice")) == [
            "denied"
        ]
        assert kinds(why(broker, "produce", "orders")) == []  # no client was refused
        write(broker, **broker.client_settings("alice"))
        (cause,) = causes(why(broker, "produce", "orders"))
        assert "User:alice from 127.0.0.1 was refused just now: Write" in cause["what"]
        assert cause["evidence"] == ["rule: DefaultDeny"]


def test_replicas_that_are_missing(why: Why) -> None:
    settings = {"min.insync.replicas": 2, "auto.leader.rebalance.enable": False}
    with Cluster(2, settings) as cluster:
        here, gone = cluster.brokers[1], cluster.brokers[2]
        with Client(cluster.bootstrap) as client:
            client.create_topics([NewTopic("orders", assignment=[[1, 2], [2, 1]])])
            client.create_topics([NewTopic("lone", assignment=[[2]])])
        for topic in ("orders", "lone"):
            wait_until(lambda topic=topic: kinds(why(here, "produce", topic)) == [], "it is there")
        gone.kill9()
        wait_until(lambda: kinds(why(here, "produce", "orders")) == [FEW], "two are left out")
        wait_until(lambda: kinds(why(here, "produce", "lone")) == ["no-leader"], "it has none")
        (few,) = causes(why(here, "produce", "orders"))
        assert few["what"].startswith("orders-0, orders-1 have fewer replicas in sync than")
        assert "broker 2 is not registered" in few["evidence"][0]
        (lone,) = causes(why(here, "partition", "lone/0"))
        for cause in (few, lone):
            assert cause["since_ms"] is not None and cause["next_step"] == "start broker 2"
        gone.start()
        for topic in ("orders", "lone"):
            wait_until(lambda topic=topic: kinds(why(here, "produce", topic)) == [], "all is well")
