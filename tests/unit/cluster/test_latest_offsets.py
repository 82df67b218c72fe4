"""The ends of partitions, asked of their leaders, which are this broker and others."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from concurrent.futures import Future
from typing import Any

import pytest

from kbroker.cluster.latest_offsets import LatestOffsets
from kbroker.errors import ErrorCode, KafkaError
from kbroker.failures import Failures
from kbroker.metadata.image import BrokerImage
from kbroker.peer.address import Address
from kbroker.protocol import messages
from kbroker.protocol.wire import Reader
from kbroker.types import ApiKey, TopicPartition
from tests.unit.handlers.support import NODE_ID, FakeBroker, KnownEpochs, changed

OTHER, GONE = 2, 3
PLACES = [TopicPartition("t", index) for index in range(5)]


class FakePeers:
    """Another broker."""

    def __init__(self) -> None:
        self.ends: dict[TopicPartition, int | ErrorCode] = {}
        self.asked: list[list[TopicPartition]] = []
        self.fails: Exception | None = None
        self.garbled = False

    async def wait_ready(
        self, address: Address, *, timeout_ms: int | None = None, fail_fast: bool = False
    ) -> None:
        if self.fails is not None:
            raise self.fails

    def version(self, address: Address, api_key: ApiKey, lowest: int, highest: int) -> int:
        assert api_key is ApiKey.LIST_OFFSETS
        return highest

    async def call(self, address: Address, api_key: ApiKey, version: int, body: bytes) -> Reader:
        if self.garbled:
            return Reader(b"\x7f", flexible=True)
        table = messages.list_offsets
        request = table.Request.decode(body, version)
        assert request.replica_id == -1
        topics = []
        for topic in request.topics:
            some = [TopicPartition(topic.name, each.partition_index) for each in topic.partitions]
            assert all(each.timestamp == -1 for each in topic.partitions)
            self.asked.append(some)
            partitions = []
            for place in some:
                end = self.ends.get(place, 0)
                is_error = isinstance(end, ErrorCode)
                partitions.append(
                    table.ListOffsetsPartitionResponse(
                        partition_index=place.partition, error_code=end if is_error else 0,
                        timestamp=-1, offset=-1 if is_error else end, leader_epoch=-1,
                    )
                )  # fmt: skip
            topics.append(table.ListOffsetsTopicResponse(name=topic.name, partitions=partitions))
        return Reader(table.Response(topics=topics).encode(version), flexible=True)


class Rig:
    """Partition 0 is this broker's, 1 and 2 another one's, 3 of one that is gone, 4 of none."""

    def __init__(self) -> None:
        self.broker = FakeBroker()
        self.broker.create("t", partitions=5)
        controller = self.broker.controller
        topic = controller.image.topic("t")
        assert topic is not None
        leaders = (NODE_ID, OTHER, OTHER, GONE, -1)
        partitions = [
            changed(each, leader=leader)
            for each, leader in zip(topic.partitions, leaders, strict=True)
        ]
        image = controller.image.with_topics([changed(topic, partitions=tuple(partitions))])
        brokers = [*image.brokers.values(), BrokerImage(OTHER, "other", 9093)]
        controller.publish(image.with_brokers(brokers))
        self.broker.replicas.logs["t", 0].high_watermark = 7
        self.peers = FakePeers()
        self.failures = Failures("share state")
        self.loop_ends = False
        self.asks = LatestOffsets(
            lambda: self.broker.services, self.submit, self.failures, lambda: self.peers
        )

    def submit(self, work: Coroutine[Any, Any, None]) -> Future[None]:
        if self.loop_ends:
            raise RuntimeError("the loop is closed")
        asyncio.run(work)
        return Future()

    def ask(self, *places: TopicPartition) -> dict[TopicPartition, Any]:
        found: list[Any] = []
        self.asks.ask(places, found.append)
        (ends,) = found
        assert set(ends) == set(places)
        return dict(ends)


@pytest.fixture
def rig() -> Rig:
    return Rig()


def test_each_leader_is_asked_once(rig: Rig) -> None:
    rig.peers.ends = {PLACES[1]: 20, PLACES[2]: ErrorCode.OFFSET_NOT_AVAILABLE}
    nowhere = TopicPartition("u", 0)
    away = ErrorCode.LEADER_NOT_AVAILABLE
    assert rig.ask(*PLACES, nowhere) == {
        PLACES[0]: 7, PLACES[1]: 20, PLACES[2]: ErrorCode.OFFSET_NOT_AVAILABLE,
        PLACES[3]: away, PLACES[4]: away, nowhere: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }  # fmt: skip
    assert rig.peers.asked == [[PLACES[1], PLACES[2]]]


def test_an_end_that_a_new_leader_does_not_know(rig: Rig) -> None:
    log = rig.broker.replicas.logs["t", 0]
    log.log_end_offset = 9
    log.leader_epoch, log.epochs = 1, KnownEpochs((0, 0), (1, 8))
    image = rig.broker.controller.image
    topic = image.topic("t")
    assert topic is not None
    led = (changed(topic.partitions[0], leader_epoch=1), *topic.partitions[1:])
    rig.broker.controller.publish(image.with_topics([changed(topic, partitions=led)]))
    assert rig.ask(PLACES[0]) == {PLACES[0]: ErrorCode.OFFSET_NOT_AVAILABLE}


@pytest.mark.parametrize(
    ("error", "code", "noted"),
    [
        (KafkaError(ErrorCode.REQUEST_TIMED_OUT, "no"), ErrorCode.REQUEST_TIMED_OUT, 0),
        (RuntimeError("no"), ErrorCode.NETWORK_EXCEPTION, 1),
    ],
)
def test_a_leader_that_does_not_answer(
    rig: Rig, error: Exception, code: ErrorCode, noted: int
) -> None:
    rig.peers.fails = error
    assert rig.ask(PLACES[0], PLACES[1]) == {PLACES[0]: 7, PLACES[1]: code}
    assert rig.failures.count == noted


def test_an_answer_that_is_none(rig: Rig) -> None:
    rig.peers.garbled = True
    assert rig.ask(PLACES[1]) == {PLACES[1]: ErrorCode.NETWORK_EXCEPTION}
    assert rig.failures.count == 1


def test_without_a_loop_there_is_an_error(rig: Rig) -> None:
    rig.loop_ends = True
    assert rig.ask(PLACES[1]) == {PLACES[1]: ErrorCode.UNKNOWN_SERVER_ERROR}


def test_of_nothing_nothing_is_known(rig: Rig) -> None:
    assert rig.ask() == {}
