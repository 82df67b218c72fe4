"""After a kill -9 one log takes long to read: the others are served, and it comes when it is read.

The preloaded disk holds the reads of that log's files until it is released. The same file without a
recovery beside the served logs waits for ever for the broker to be ready.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from kbroker.cli.main import main
from kbroker.errors import ErrorCode
from kbroker.peer.client import Client
from kbroker.testing.plain import PlainBroker as Broker
from tests.support.disk import Disk
from tests.support.read_topic import read_topic
from tests.support.zookeeper import ZooKeeper
from tests.system.conftest import MakeBroker
from tests.system.test_admin import get
from tests.unit.net.harness import eventually

pytestmark = [pytest.mark.client, pytest.mark.timeout(180)]

WAIT_S = 60.0
QUIET = {"log_level": 0, "reconnect.backoff.ms": 20, "reconnect.backoff.max.ms": 200}
MARK = ".kafka_cleanshutdown"


def create(broker: Broker, *topics: NewTopic) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap, **QUIET})
    for made in admin.create_topics([*topics]).values():
        made.result(WAIT_S)


def write(broker: Broker, topic: str, values: list[str], partition: int = 0) -> None:
    failed: list[object] = []
    producer = Producer({"bootstrap.servers": broker.bootstrap, "acks": "all", **QUIET})
    for value in values:
        producer.produce(
            topic, value, partition=partition, on_delivery=lambda e, _: e and failed.append(e)
        )
    assert producer.flush(WAIT_S) == 0
    assert not failed


def values(broker: Broker, topic: str) -> list[str]:
    return [each.value.decode() for each in read_topic(broker.bootstrap, topic)]


def leaders(broker: Broker, topic: str) -> dict[int, tuple[int, ErrorCode]]:
    with Client(broker.bootstrap) as client:
        found = client.metadata([topic]).topics[topic].partitions
    return {each.index: (each.leader, ErrorCode(each.error)) for each in found}


def unacknowledged(broker: Broker, topic: str, partition: int) -> str:
    """Of a producer that does not try again, the error's name."""
    lines: list[str] = []
    producer = Producer(
        {"bootstrap.servers": broker.bootstrap, "retries": 0, "message.timeout.ms": 3_000, **QUIET}
    )
    producer.produce(
        topic, b"no", partition=partition,
        on_delivery=lambda error, _: lines.append("" if error is None else error.name()),
    )  # fmt: skip
    assert producer.flush(WAIT_S) == 0
    return lines[0]


OFFLINE = (-1, ErrorCode.LEADER_NOT_AVAILABLE)


def test_others_are_served_until_it_is_read(
    make_broker: MakeBroker, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    disk = Disk(tmp_path, files="/slow-0", operations="read")
    broker = make_broker(env=disk.environment()).start()
    create(broker, NewTopic("slow", 2, 1), NewTopic("quick", 1, 1))
    for topic in ("slow", "quick"):
        write(broker, topic, [f"{topic} {number}" for number in range(5)])
    broker.kill9()
    disk.be("hold")
    broker.start()
    try:
        disk.wait_held(1)
        # Beside it, as ever.
        write(broker, "quick", ["quick 5"])
        write(broker, "slow", ["another partition"], partition=1)
        assert values(broker, "quick") == [f"quick {number}" for number in range(6)]
        # What is not there yet says so with an error on which clients try again.
        assert leaders(broker, "slow") == {0: OFFLINE, 1: (broker.node_id, ErrorCode.NONE)}
        assert unacknowledged(broker, "slow", 0) in ("_MSG_TIMED_OUT", "LEADER_NOT_AVAILABLE")
        assert "slow-0" not in told_of_directories(broker, capsys)
        assert (get(broker, "/readyz").status, get(broker, "/healthz").status) == (200, 200)
        assert "online; 1 logs are being recovered\n" in get(broker, "/readyz?verbose").text
        create(broker, NewTopic("made-meanwhile", 2, 1))
        write(broker, "made-meanwhile", ["meanwhile"])
        producer = Producer({"bootstrap.servers": broker.bootstrap, **QUIET})
        producer.produce("slow", "slow 5", partition=0)
        producer.flush(0.5)
    finally:
        disk.be("ok")
    # By itself, with all that was acknowledged, and a waiting producer's records go in after it.
    assert producer.flush(WAIT_S) == 0
    assert values(broker, "slow") == [*(f"slow {number}" for number in range(6)),
                                      "another partition"]  # fmt: skip
    assert leaders(broker, "slow") == {
        index: (broker.node_id, ErrorCode.NONE) for index in range(2)
    }
    eventually(lambda: "being recovered" not in get(broker, "/readyz?verbose").text, "all are read")
    eventually(lambda: "recovered, and online: slow-0" in broker.log_text(), "a line after it")
    assert " ERROR " not in broker.log_text()
    assert broker.stop() == 0
    assert (broker.data_dir / MARK).exists()


def told_of_directories(broker: Broker, capsys: pytest.CaptureFixture[str]) -> str:
    capsys.readouterr()
    assert main(["logdirs", "-b", broker.bootstrap, "-o", "json"]) == 0
    return capsys.readouterr().out


def test_groups_wait_for_their_partition(make_broker: MakeBroker, tmp_path: Path) -> None:
    disk = Disk(tmp_path, files="/__consumer_offsets-", operations="read")
    broker = make_broker({"offsets.topic.num.partitions": 1}, env=disk.environment()).start()
    create(broker, NewTopic("quick", 1, 1))
    write(broker, "quick", ["a", "b", "c"])
    place = TopicPartition("quick", 0, 2)
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "g", **QUIET})
    consumer.commit(offsets=[place], asynchronous=False)
    consumer.close()
    broker.kill9()
    disk.be("hold")
    broker.start()
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "g", **QUIET})
    try:
        disk.wait_held(1)
        write(broker, "quick", ["d"])
        with pytest.raises(KafkaException):
            consumer.committed([place], timeout=1.0)
    finally:
        disk.be("ok")
    assert [each.offset for each in consumer.committed([place], timeout=WAIT_S)] == [2]
    consumer.close()


def test_a_stop_in_the_midst_of_it_leaves_no_mark(make_broker: MakeBroker, tmp_path: Path) -> None:
    """What was read is closed in order, and the next start reads the rest."""
    disk = Disk(tmp_path, files="/slow-0", operations="read")
    broker = make_broker(env=disk.environment()).start()
    create(broker, NewTopic("slow", 1, 1), NewTopic("quick", 1, 1))
    for topic in ("slow", "quick"):
        write(broker, topic, [f"{topic} {number}" for number in range(5)])
    broker.kill9()
    disk.be("slow 1500")  # each read; there are several
    broker.start()
    write(broker, "quick", ["quick 5"])
    assert broker.stop() == 0
    disk.be("ok")
    log = broker.log_text()
    assert not (broker.data_dir / MARK).exists()
    assert "what a crash left in slow-0 could not be read" in log
    broker.start()
    for topic, count in (("slow", 5), ("quick", 6)):
        assert values(broker, topic) == [f"{topic} {number}" for number in range(count)]
    assert broker.stop() == 0
    assert (broker.data_dir / MARK).exists()


@pytest.mark.java
def test_in_a_cluster_no_broker_leads_a_log_that_it_has_not_read(
    zookeeper: ZooKeeper, make_broker: MakeBroker, tmp_path: Path
) -> None:
    """Broker 2 is killed, and reads its logs again: the controller is another."""
    disk = Disk(tmp_path, files="/slow-", operations="read")
    settings = {
        "zookeeper.connect": zookeeper.connect + zookeeper.chroot(),
        # No broker loses its session because the machine is busy.
        "zookeeper.session.timeout.ms": "6000",
    }
    one, two, three = (
        make_broker({**settings, "node.id": str(node_id)}, env=disk.environment()).start()
        for node_id in (1, 2, 3)
    )
    admin = AdminClient({"bootstrap.servers": one.bootstrap, **QUIET})
    for topic, replicas in (("slow-alone", [2]), ("slow-both", [2, 3]), ("quick", [2])):
        new = NewTopic(topic, 1, replica_assignment=[replicas])
        admin.create_topics([new])[topic].result(WAIT_S)
        write(one, topic, [str(number) for number in range(5)])
    two.kill9()
    disk.be(f"hold {two.data_dir}")
    two.start()
    try:
        disk.wait_held(1)
        write(one, "quick", ["5"])
        eventually(lambda: leaders(one, "slow-alone") == {0: OFFLINE}, "no broker has that log")
        eventually(lambda: leaders(one, "slow-both") == {0: (3, ErrorCode.NONE)}, "who has it")
        write(one, "slow-both", ["5"])
        assert in_sync(one, "slow-both") == {3}
    finally:
        disk.be("ok")
    eventually(lambda: leaders(one, "slow-alone") == {0: (2, ErrorCode.NONE)}, "it is read")
    eventually(lambda: in_sync(one, "slow-both") == {2, 3}, "it has caught up")
    for topic, count in (("slow-alone", 5), ("slow-both", 6), ("quick", 6)):
        assert values(one, topic) == [str(number) for number in range(count)]
    for broker in (three, two, one):
        assert broker.stop() == 0


def in_sync(broker: Broker, topic: str) -> set[int]:
    with Client(broker.bootstrap) as client:
        (found,) = client.metadata([topic]).topics[topic].partitions
    return {*found.isr}
