"""OffsetForLeaderEpoch: where each epoch ended, each partition with its own error."""

from __future__ import annotations

from typing import Any

import pytest

from kbroker.types import ApiKey
from tests.unit.handlers.support import (
    FakeBroker,
    FakeLog,
    KnownEpochs,
    changed,
    part_of,
    request_of,
)

VERSIONS = range(2, 5)


def ask(version: int, *topics: tuple[str, list[tuple[int, int, int]]]) -> Any:
    """Per topic: (partition, current leader epoch, epoch asked for)."""
    replica = {"replica_id": -1} if version >= 3 else {}
    return request_of(
        ApiKey.OFFSET_FOR_LEADER_EPOCH,
        version,
        topics=tuple(_topic(version, *topic) for topic in topics),
        **replica,
    )


def _topic(version: int, name: str, partitions: list[tuple[int, int, int]]) -> Any:
    return part_of(
        ApiKey.OFFSET_FOR_LEADER_EPOCH,
        version,
        "OffsetForLeaderTopic",
        topic=name,
        partitions=tuple(
            part_of(
                ApiKey.OFFSET_FOR_LEADER_EPOCH,
                version,
                "OffsetForLeaderPartition",
                partition=index,
                current_leader_epoch=current,
                leader_epoch=epoch,
            )
            for index, current, epoch in partitions
        ),
    )


@pytest.fixture
def broker() -> FakeBroker:
    broker = FakeBroker()
    broker.create("t", partitions=3)
    broker.replicas.logs["t", 0] = FakeLog(
        log_start_offset=2,
        high_watermark=7,
        log_end_offset=9,
        leader_epoch=4,
        epochs=KnownEpochs((1, 2), (2, 4), (4, 5)),
    )
    topic = broker.controller.image.topics["t"]
    led, elsewhere, offline = topic.partitions
    partitions = (changed(led, leader_epoch=4), changed(elsewhere, leader=77), offline)
    broker.controller.publish(
        broker.controller.image.with_topics([changed(topic, partitions=partitions)])
    )
    del broker.replicas.logs["t", 2]
    return broker


def answered(broker: FakeBroker, request: Any) -> list[tuple[str, list[tuple[int, ...]]]]:
    answer = broker.call(request)
    return [
        (
            topic.topic,
            [(p.partition, p.error_code.value, p.leader_epoch, p.end_offset)
             for p in topic.partitions],
        )
        for topic in answer.topics
    ]  # fmt: skip


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(
    ("asked", "epoch", "end"),
    [(-1, -1, -1), (0, 0, 2), (1, 1, 4), (2, 2, 5), (3, 2, 5), (4, 4, 9), (5, -1, -1)],
)
def test_where_an_epoch_ended(
    broker: FakeBroker, version: int, asked: int, epoch: int, end: int
) -> None:
    assert answered(broker, ask(version, ("t", [(0, -1, asked)]))) == [("t", [(0, 0, epoch, end)])]
    assert answered(broker, ask(version, ("t", [(0, 4, asked)]))) == [("t", [(0, 0, epoch, end)])]


@pytest.mark.parametrize("version", VERSIONS)
def test_each_partition_has_its_own_error(broker: FakeBroker, version: int) -> None:
    asked = [(0, 3, 1), (0, 5, 1), (1, -1, 0), (2, -1, 0), (3, -1, 0), (-1, -1, 0), (0, -1, 1)]
    errors = [(0, 74), (0, 75), (1, 6), (2, 56), (3, 3), (-1, 3)]
    expected = [(index, code, -1, -1) for index, code in errors] + [(0, 0, 1, 4)]
    assert answered(broker, ask(version, ("t", asked), ("none", [(0, -1, 0)]))) == [
        ("t", expected),
        ("none", [(0, 3, -1, -1)]),
    ]
    assert answered(broker, ask(version)) == []


def test_an_unexpected_failure_has_the_shape_of_the_answer(broker: FakeBroker) -> None:
    broker.replicas.logs["t", 0].epochs = None  # type: ignore[assignment]
    assert answered(broker, ask(4, ("t", [(0, -1, 0)]))) == [("t", [(0, -1, -1, -1)])]
