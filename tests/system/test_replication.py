"""Three brokers that have the same records: acknowledged records outlive their leader."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator

import confluent_kafka
import pytest
from confluent_kafka import ElectionType, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic, PartitionMetadata

from kbroker.coordinator.runtime._shard_table import partition_for
from kbroker.metadata.image import OFFSETS_TOPIC
from kbroker.testing.broker import Broker
from lab.ports import free_port
from tests.clients.agents.driver import eventually as until
from tests.support.zookeeper import ZooKeeper

pytestmark = [pytest.mark.client, pytest.mark.java, pytest.mark.timeout(300)]

NODES = (1, 2, 3)
TIMEOUT_S = 30
TOPIC = "kept"
GROUP = "readers"


@pytest.fixture
def brokers(zookeeper: ZooKeeper) -> Iterator[dict[int, Broker]]:
    connect = zookeeper.connect + zookeeper.chroot()
    made: dict[int, Broker] = {}
    try:
        for node_id in NODES:
            # No session ends, and no follower lags, because the machine is busy: a producer that
            # does not try again would be refused.
            settings = {
                "zookeeper.connect": connect,
                "zookeeper.session.timeout.ms": "6000",
                "node.id": str(node_id),
                "min.insync.replicas": "2",
                "replica.lag.time.max.ms": "10000",
            }
            made[node_id] = Broker(settings, port=free_port())
            made[node_id].start()
        yield made
    finally:
        for broker in made.values():
            broker.close()


def partition(broker: Broker) -> tuple[int, list[int]]:
    """The leader and who is in sync, as this broker tells it."""
    client = AdminClient({"bootstrap.servers": broker.bootstrap})
    found = client.list_topics(TOPIC, TIMEOUT_S).topics[TOPIC].partitions[0]
    return found.leader, sorted(found.isrs)


def knows(broker: Broker) -> bool:
    client = AdminClient({"bootstrap.servers": broker.bootstrap})
    return 0 in client.list_topics(TOPIC, TIMEOUT_S).topics[TOPIC].partitions


def create(brokers: dict[int, Broker]) -> None:
    """The topic, with three replicas: the controller answers, and the others get it later."""
    admin = AdminClient({"bootstrap.servers": brokers[1].bootstrap})
    admin.create_topics([NewTopic(TOPIC, 1, 3)])[TOPIC].result(TIMEOUT_S)
    until(lambda: all(map(knows, brokers.values())), "all brokers know the topic")


def write(brokers: dict[int, Broker], values: list[str]) -> None:
    producer = confluent_kafka.Producer(
        {
            "bootstrap.servers": ",".join(each.bootstrap for each in brokers.values()),
            "enable.idempotence": True,
            "acks": "all",
        }
    )
    failed: list[object] = []
    for value in values:
        producer.produce(TOPIC, value, on_delivery=lambda e, _: e and failed.append(e))
    assert producer.flush(TIMEOUT_S) == 0
    assert not failed


def written_while(brokers: dict[int, Broker], work: Callable[[], object]) -> list[str]:
    """What a producer that is busy all the time has written; no error reaches it."""
    producer = confluent_kafka.Producer(
        {
            "bootstrap.servers": ",".join(each.bootstrap for each in brokers.values()),
            "enable.idempotence": True,
            "acks": "all",
        }
    )
    values: list[str] = []
    failed: list[object] = []
    working = threading.Thread(target=work)
    working.start()
    while working.is_alive():
        values.append(f"meanwhile-{len(values)}")
        producer.produce(TOPIC, values[-1], on_delivery=lambda e, _: e and failed.append(e))
        producer.poll(0.01)
    working.join()
    assert producer.flush(TIMEOUT_S) == 0
    assert not failed
    return values


def refused(broker: Broker, value: str) -> str | None:
    """Why it was not written, or None: it was."""
    errors: list[confluent_kafka.KafkaError | None] = []
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": broker.bootstrap, "acks": "all", "retries": 0}
    )
    producer.produce(TOPIC, value, on_delivery=lambda error, _: errors.append(error))
    assert producer.flush(TIMEOUT_S) == 0
    (error,) = errors
    return None if error is None else error.name()


def test_with_too_few_in_sync_nothing_is_written(brokers: dict[int, Broker]) -> None:
    create(brokers)
    leader, _ = partition(brokers[1])
    others = [node for node in NODES if node != leader]
    assert refused(brokers[leader], "first") is None
    brokers[others[0]].kill9()
    until(lambda: len(partition(brokers[leader])[1]) == 2, "one is gone")
    assert refused(brokers[leader], "second") is None
    brokers[others[1]].kill9()
    until(lambda: partition(brokers[leader])[1] == [leader], "it is alone")
    assert refused(brokers[leader], "not written") == "NOT_ENOUGH_REPLICAS"
    brokers[others[0]].start()
    until(lambda: len(partition(brokers[leader])[1]) == 2, "one is back")
    assert refused(brokers[leader], "third") is None
    for node in (leader, others[0]):  # now all are gone
        brokers[node].kill9()
    for node in NODES:
        brokers[node].start()
    until(lambda: len(partition(brokers[leader])[1]) == 3, "all are back")
    assert refused(brokers[leader], "fourth") is None
    found = [each.value for each in brokers[leader].records(TOPIC)]
    assert found == [b"first", b"second", b"third", b"fourth"]


def home(broker: Broker) -> PartitionMetadata:
    """The group's partition, as this broker tells it; its leader is the coordinator."""
    client = AdminClient({"bootstrap.servers": broker.bootstrap})
    homes = client.list_topics(OFFSETS_TOPIC, TIMEOUT_S).topics[OFFSETS_TOPIC].partitions
    return homes[partition_for(GROUP, len(homes))]


def consumer(brokers: dict[int, Broker]) -> confluent_kafka.Consumer:
    return confluent_kafka.Consumer(
        {
            "bootstrap.servers": ",".join(each.bootstrap for each in brokers.values()),
            "group.id": GROUP,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )


def read_one(member: confluent_kafka.Consumer) -> bytes | None:
    found = member.poll(TIMEOUT_S)
    assert found is not None and found.error() is None
    return found.value()


def committed(brokers: dict[int, Broker]) -> int:
    """As a client without membership gets it."""
    asking = consumer(brokers)
    try:
        (found,) = asking.committed([TopicPartition(TOPIC, 0)], timeout=TIMEOUT_S)
        return found.offset
    finally:
        asking.close()


def test_acknowledged_commits_outlive_their_coordinator(brokers: dict[int, Broker]) -> None:
    create(brokers)
    write(brokers, ["first"])
    member, generations = consumer(brokers), list[object]()
    member.subscribe([TOPIC], on_assign=lambda _, assigned: generations.append(assigned))
    assert read_one(member) == b"first"
    for offset in range(1, 51):
        member.commit(offsets=[TopicPartition(TOPIC, 0, offset)], asynchronous=False)
    dead = home(brokers[1]).leader
    brokers[dead].kill9()
    left = {node: each for node, each in brokers.items() if node != dead}
    assert committed(left) == 50
    until(lambda: {home(each).leader for each in left.values()} < left.keys(), "both know it")
    write(left, ["second"])
    assert read_one(member) == b"second"
    member.commit(offsets=[TopicPartition(TOPIC, 0, 51)], asynchronous=False)
    assert committed(left) == 51
    # Back to the first one, while all three live: the one between gives its groups up.
    brokers[dead].start()
    alive = next(iter(left.values()))
    until(lambda: len(home(alive).isrs) == 3, "it is in sync")
    wanted = [TopicPartition(OFFSETS_TOPIC, home(alive).id)]
    asking = AdminClient({"bootstrap.servers": alive.bootstrap})
    asking.elect_leaders(ElectionType.PREFERRED, wanted).result(TIMEOUT_S)
    until(lambda: {home(each).leader for each in brokers.values()} == {dead}, "it leads again")
    member.commit(offsets=[TopicPartition(TOPIC, 0, 52)], asynchronous=False)
    assert committed(brokers) == 52
    write(brokers, ["third"])
    assert read_one(member) == b"third"
    assert len(generations) == 1  # of three coordinators none has formed the group anew
    member.close()


def test_acknowledged_records_outlive_their_leader(brokers: dict[int, Broker]) -> None:
    """It is killed, or is stopped for longer than its session: then it comes back by itself; or
    it stops, and before that others lead."""
    create(brokers)
    until(lambda: partition(brokers[1])[1] == [1, 2, 3], "all are in sync")
    expected: list[str] = []
    for turn in range(3):
        values = [f"{turn}-{number}" for number in range(100)]
        write(brokers, values)
        expected += values
        leader, _ = partition(brokers[1])
        stands_still = turn == 1
        if stands_still:
            brokers[leader].signal(signal.SIGSTOP)
        elif turn == 2:
            expected += written_while(brokers, brokers[leader].stop)
            assert "controlled shutdown: others lead" in brokers[leader].log_text()
        else:
            brokers[leader].kill9()
        left = {node: each for node, each in brokers.items() if node != leader}
        first = next(iter(left.values()))
        until(lambda: partition(first)[0] in left, "another one leads")  # noqa: B023
        values = [f"{turn}-without-{number}" for number in range(100)]
        write(left, values)
        expected += values
        if stands_still:
            brokers[leader].signal(signal.SIGCONT)
        else:
            brokers[leader].start()
        until(lambda: partition(first)[1] == [1, 2, 3], "it is back and in sync")  # noqa: B023
    found = [each.value for each in brokers[1].records(TOPIC)]
    assert found == [value.encode() for value in expected]
