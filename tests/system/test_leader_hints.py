"""A leader has moved, and the old one answers with the new one (KIP-951): three running brokers.

The answers of one broker, byte for byte, are in tests/unit/engine/test_leaders.py;
here a leader really moves, and each listener has addresses of its own.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from kbroker.errors import ErrorCode
from kbroker.peer.client import Client as Asking
from kbroker.testing import Cluster, ClusterBroker
from kbroker.testing.inspection import wait_until
from kbroker.types import ApiKey
from tests.support.record_batches import build_batch
from tests.unit.engine.wire import Ask, answer_in, fetch_frame, produce_frame
from tests.unit.net.harness import Client, Topic

pytestmark = [pytest.mark.client, pytest.mark.timeout(180)]

TOPIC = "orders"
CLIENT_ID = "hinted-by-the-leader"
WAIT_MS = 60_000
PRODUCE_TELLS = (10, 12, 13)
FETCH_TELLS = (16, 17, 18)


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


def next_after(cluster: Cluster, leader: ClusterBroker) -> ClusterBroker:
    return cluster.brokers[leader.broker_id % 3 + 1]


def epoch_of(broker: ClusterBroker) -> int:
    (partition,) = broker.partitions(TOPIC)
    return partition.leader_epoch


def port_of(address: str) -> int:
    return int(address.rpartition(":")[2])


def asked(client: Client, key: ApiKey, version: int, frame: bytes) -> Any:
    client.send(frame)
    return answer_in(key, version, client.receive())[1]


def hint_of(partition: Any) -> tuple[int, int, int]:
    leader = partition.current_leader
    return partition.error_code.value, leader.leader_id, leader.leader_epoch


def nodes(answer: Any) -> list[tuple[int, str, int, str | None]]:
    return [(each.node_id, each.host, each.port, each.rack) for each in answer.node_endpoints]


def test_the_old_leader_names_the_new_one_at_the_listener_that_is_used(
    cluster: Cluster, topic: Topic
) -> None:
    old = cluster.leader(TOPIC, 0)
    new = next_after(cluster, old)
    inner = old.inner_address()
    there = new.inner_address()
    assert inner is not None and there is not None
    outside, inside = Client(port_of(old.bootstrap)), Client(inner[1])
    # The old leader follows now, where consumers may read; not those who take it for the leader.
    at = Ask(topic, leader_epoch=epoch_of(old))
    sessions: dict[int, int] = {}
    for version in FETCH_TELLS:
        first = asked(
            outside, ApiKey.FETCH, version,
            fetch_frame(version, [at], session=(0, 0)),
        )  # fmt: skip
        assert (first.error_code.value, nodes(first)) == (0, [])
        sessions[version] = first.session_id
    cluster.move_leader(TOPIC, 0, new)
    expected = (ErrorCode.NOT_LEADER_OR_FOLLOWER, new.broker_id, epoch_of(new))
    fenced = (ErrorCode.FENCED_LEADER_EPOCH, *expected[1:])
    clients = [(new.broker_id, "127.0.0.1", port_of(new.bootstrap), None)]
    for client in (outside, inside):
        for version in PRODUCE_TELLS:
            frame = produce_frame(version, [(topic, {0: build_batch()})])
            answer = asked(client, ApiKey.PRODUCE, version, frame)
            assert hint_of(answer.responses[0].partition_responses[0]) == expected
            assert len(nodes(answer)) == 1 and (nodes(answer) == clients) == (client is outside)
        for version in FETCH_TELLS:
            answer = asked(client, ApiKey.FETCH, version, fetch_frame(version, [at]))
            assert hint_of(answer.responses[0].partitions[0]) == fenced
            assert len(nodes(answer)) == 1 and (nodes(answer) == clients) == (client is outside)
    # In the session that has gone on: nothing is named again, and it is answered each time.
    for version, session_id in sessions.items():
        for epoch in (1, 2):
            frame = fetch_frame(version, [], session=(session_id, epoch))
            answer = asked(outside, ApiKey.FETCH, version, frame)
            assert answer.error_code.value == 0
            assert hint_of(answer.responses[0].partitions[0]) == fenced
            assert nodes(answer) == clients
    # It answers where it says, and leads.
    direct = Client(nodes(answer)[0][2])
    answer = asked(direct, ApiKey.PRODUCE, 13, produce_frame(13, [(topic, {0: build_batch()})]))
    assert hint_of(answer.responses[0].partition_responses[0]) == (0, -1, -1)
    for each in (outside, inside, direct):
        each.socket.close()


@pytest.mark.parametrize("in_session", [False, True], ids=["alone", "in a session"])
def test_a_fetch_that_waits_is_answered_when_the_leader_moves(
    cluster: Cluster, topic: Topic, in_session: bool
) -> None:
    old = cluster.leader(TOPIC, 0)
    new = next_after(cluster, old)
    client = Client(port_of(old.bootstrap))
    at = Ask(topic, offset=_end(client, topic), leader_epoch=epoch_of(old))
    session = (0, -1)
    if in_session:
        first = asked(client, ApiKey.FETCH, 18, fetch_frame(18, [at], session=(0, 0)))
        session = (first.session_id, 1)
    asks = [] if in_session else [at]
    client.send(fetch_frame(18, asks, session=session, max_wait_ms=WAIT_MS, min_bytes=1 << 20))
    cluster.move_leader(TOPIC, 0, new)
    answer = answer_in(ApiKey.FETCH, 18, client.receive())[1]
    (partition,) = answer.responses[0].partitions
    assert hint_of(partition) == (ErrorCode.FENCED_LEADER_EPOCH, new.broker_id, epoch_of(new))
    assert nodes(answer) == [(new.broker_id, "127.0.0.1", port_of(new.bootstrap), None)]
    client.socket.close()


def _end(client: Client, topic: Topic) -> int:
    """The high watermark, which a fetch tells."""
    answer = asked(client, ApiKey.FETCH, 18, fetch_frame(18, [Ask(topic)]))
    high_watermark: int = answer.responses[0].partitions[0].high_watermark
    return high_watermark


def test_librdkafka_follows_the_hint_of_the_answer(cluster: Cluster) -> None:
    """It asks Metadata as well, a little later, and gets nothing of it here."""
    settings = {
        "bootstrap.servers": cluster.bootstrap,
        "client.id": CLIENT_ID,
        # Nothing else tells it: not by itself, nor while it looks for a broker.
        "topic.metadata.refresh.interval.ms": -1,
        "enable.sparse.connections": False,
    }
    producer = Producer({**settings, "acks": "all", "linger.ms": 0})
    consumer = Consumer({**settings, "group.id": "g"})
    consumer.assign([TopicPartition(TOPIC, 0, 0)])
    failures: list[Any] = []

    def produce(value: bytes) -> None:
        producer.produce(
            TOPIC, value, on_delivery=lambda error, _: failures.append(error) if error else None
        )
        assert producer.flush(60) == 0
        assert failures == []

    def consume(value: bytes) -> None:
        def found() -> bool:
            message = consumer.poll(0.1)
            return message is not None and message.error() is None and message.value() == value

        wait_until(found, f"{value!r} is read")

    produce(b"first")
    consume(b"first")
    for broker in cluster.brokers.values():
        broker.on(ApiKey.METADATA, error=ErrorCode.UNKNOWN_SERVER_ERROR, client_id=CLIENT_ID)
    cluster.move_leader(TOPIC, 0, next_after(cluster, cluster.leader(TOPIC, 0)))
    produce(b"second")
    consume(b"second")
    consumer.close()
    cluster.heal()
