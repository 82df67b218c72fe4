"""Requests on the brokers' own listener that are no broker's: refused, and all brokers serve on.

Three brokers that run. Codes and rules of each answer stand in tests/unit; here the frames come by
the way that brokers have for each other.
"""

from __future__ import annotations

import json
import signal
import struct
from collections.abc import Iterator
from typing import Any

import confluent_kafka
import pytest

from kbroker.errors import ErrorCode
from kbroker.metadata.controller.image_updates import (
    IN_SYNC_KEY,
    IN_SYNC_VERSION,
    SHUTDOWN_KEY,
    SHUTDOWN_VERSION,
    UPDATE_KEY,
    UPDATE_VERSION,
)
from kbroker.metadata.controller.in_sync_messages import request_of
from kbroker.metadata.controller.partition_states import InSyncChange
from kbroker.metadata.store.zookeeper import ZooKeeperStore
from kbroker.metadata.store.zookeeper_settings import ZooKeeperSettings
from kbroker.peer.client import Client as Asking
from kbroker.protocol.messages import alter_partition
from kbroker.testing import Cluster, ClusterBroker
from kbroker.testing.inspection import wait_until
from kbroker.types import ApiKey
from tests.support import ended_sessions
from tests.unit.engine.wire import Ask, answer_in, fetch_frame
from tests.unit.net.harness import Client, Topic, framed, header

pytestmark = [pytest.mark.client, pytest.mark.timeout(180)]

TOPIC = "orders"
BETWEEN = {
    "UpdateMetadata": (UPDATE_KEY, UPDATE_VERSION),
    "AlterPartition": (IN_SYNC_KEY, IN_SYNC_VERSION),
    "ControlledShutdown": (SHUTDOWN_KEY, SHUTDOWN_VERSION),
}
STRANGER = 77
STATE = f"/brokers/topics/{TOPIC}/partitions/0/state"


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    # No session ends, and no follower lags, because the machine is busy.
    settings = {
        "auto.leader.rebalance.enable": False,
        "zookeeper.session.timeout.ms": 6_000,
        "replica.lag.time.max.ms": 10_000,
    }
    with Cluster(3, settings, topics={TOPIC: 1}) as made:
        yield made


@pytest.fixture
def topic(cluster: Cluster) -> Topic:
    with Asking(cluster.bootstrap) as client:
        topic_id = client.metadata([TOPIC]).topics[TOPIC].topic_id
    assert topic_id is not None
    return Topic(TOPIC, topic_id, [])


@pytest.fixture
def tree(cluster: Cluster) -> Iterator[ZooKeeperStore]:
    made = ZooKeeperStore.open(ZooKeeperSettings((cluster.zookeeper.connect,), "", 10_000, 30_000))
    yield made
    made.close()


def inside(broker: ClusterBroker) -> Client:
    address = broker.inner_address()
    assert address is not None
    return Client(address[1])


def serves(cluster: Cluster) -> None:
    """Every broker runs, every replica is in sync, and all of them take a record."""
    cluster.wait_in_sync(TOPIC)
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": cluster.bootstrap, "acks": "all", "message.timeout.ms": 60_000}
    )
    failures: list[Any] = []
    producer.produce(TOPIC, b"x", on_delivery=lambda error, _: failures.append(error))
    assert producer.flush(60) == 0
    assert failures == [None]
    assert all(broker.alive for broker in cluster.brokers.values())


@pytest.mark.parametrize("name", BETWEEN)
@pytest.mark.parametrize("body", [b"", b"\x00", bytes(9), b"\xff" * 40, b"\x7f" * 4_000])
def test_bytes_that_do_not_parse_end_their_connection_alone(
    cluster: Cluster, name: str, body: bytes
) -> None:
    key, version = BETWEEN[name]
    broker = cluster.controller()
    bad, beside = inside(broker), inside(broker)
    bad.send(framed(header(key, version) + body))
    assert bad.ended()
    beside.send(framed(header(ApiKey.API_VERSIONS, 0)))
    assert len(beside.receive()) > 100
    for each in (bad, beside):
        each.socket.close()


def test_too_many_bytes_end_their_connection_alone(cluster: Cluster) -> None:
    for broker in cluster.brokers.values():
        for size in (2**31 - 1, -1, 200 << 20):
            bad = inside(broker)
            bad.send(struct.pack(">i", size))
            assert bad.ended()
            bad.socket.close()
    serves(cluster)


def test_a_stopped_client_keeps_none_waiting(cluster: Cluster) -> None:
    """Nothing, a part of a frame, a request whose answer is not read: held open meanwhile."""
    silent = []
    for broker in cluster.brokers.values():
        for first in (b"", struct.pack(">i", 1 << 20) + b"abc", framed(header(18, 0)) * 20):
            client = inside(broker)
            client.send(first)
            silent.append(client)
    serves(cluster)
    for each in silent:
        each.socket.close()


def altered(cluster: Cluster, request: alter_partition.Request) -> ErrorCode:
    client = inside(cluster.controller())
    client.send(framed(header(IN_SYNC_KEY, IN_SYNC_VERSION) + request.encode(IN_SYNC_VERSION)))
    response = alter_partition.Response.decode(client.receive()[5:], IN_SYNC_VERSION)
    client.socket.close()
    return ErrorCode(response.error_code or response.topics[0].partitions[0].error_code)


def test_alter_partition_of_a_broker_that_may_not(
    cluster: Cluster, topic: Topic, tree: ZooKeeperStore
) -> None:
    leader = cluster.leader(TOPIC, 0).broker_id
    other = next(each for each in cluster.brokers if each != leader)
    epochs = {each: tree.get(f"/brokers/ids/{each}").created for each in cluster.brokers}
    before = tree.get(STATE)
    alone = InSyncChange(
        topic.topic_id,
        0,
        json.loads(before.data)["leader_epoch"],
        before.version,
        {leader: epochs[leader]},
    )

    def asks(node_id: int, epoch: int) -> ErrorCode:
        return altered(cluster, request_of(node_id, epoch, [alone]))

    assert asks(leader, epochs[leader] - 1) is ErrorCode.STALE_BROKER_EPOCH
    assert asks(STRANGER, 1) is ErrorCode.STALE_BROKER_EPOCH
    assert asks(other, epochs[other]) is ErrorCode.INVALID_REQUEST
    assert tree.get(STATE) == before
    serves(cluster)


@pytest.mark.parametrize("replica", [STRANGER, 2**31 - 1])
@pytest.mark.parametrize("version", [11, 17, 18])
def test_a_fetch_of_a_replica_that_was_not_assigned(
    cluster: Cluster, topic: Topic, replica: int, version: int
) -> None:
    leader = cluster.leader(TOPIC, 0)
    (known,) = leader.partitions(TOPIC)
    for epoch, code in (
        (-1, ErrorCode.NOT_LEADER_OR_FOLLOWER),
        (known.leader_epoch, ErrorCode.UNKNOWN_LEADER_EPOCH),
    ):
        client = inside(leader)
        client.send(fetch_frame(version, [Ask(topic, leader_epoch=epoch)], replica_id=replica))
        answer = answer_in(ApiKey.FETCH, version, client.receive())[1]
        (partition,) = answer.responses[0].partitions
        assert (partition.error_code.value, partition.records or b"") == (code, b"")
        client.socket.close()


@pytest.mark.parametrize("data", [b"no JSON", b'{"version":99}'])
def test_a_node_that_is_damaged_costs_its_topic_alone(
    cluster: Cluster, tree: ZooKeeperStore, data: bytes
) -> None:
    name = f"damaged-{len(data)}"
    cluster.create_topics({name: 1})
    cluster.wait_in_sync(name)
    path = f"/brokers/topics/{name}"
    intact = tree.get(path).data
    tree.set(path, data)
    old = cluster.controller()
    ended_sessions.kill(cluster, old)
    wait_until(lambda: cluster.controller() is not old, "another one is the controller")
    new = cluster.controller()
    line = f"topic '{name}' stays as it is, and nothing of it is changed: metadata node {path}"
    wait_until(lambda: line in new.log_text(), "it says so")
    wait_until(lambda: cluster.leader(TOPIC, 0) is not old, "the other topic is led")
    assert {name, TOPIC} <= new.metadata().keys()
    tree.set(path, intact)
    new.signal(signal.SIGHUP)
    cluster.heal()
    serves(cluster)
