"""Partitions added to a topic: decided, written, opened, published; and cut short at every step."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from kbroker.errors import ErrorCode, KafkaError
from kbroker.metadata.controller import MorePartitions, NewTopic, TopicResult, records
from kbroker.metadata.controller.decisions import (
    CHANGED_PARTITIONS_MAX,
    new_topic_image,
    plan_partitions,
)
from kbroker.metadata.image import BrokerImage, ClusterImage, ImageDelta, TopicImage
from tests.unit.metadata.controller.harness import WAIT_S, OneBroker, codes
from tests.unit.metadata.controller.test_crashes import die_at_every_step, small_multis

__all__ = ["small_multis"]

OK = ErrorCode.NONE


def image(*brokers: int) -> ClusterImage:
    return (
        ClusterImage()
        .with_brokers(BrokerImage(node) for node in brokers)
        .with_topics(
            new_topic_image(name, UUID(int=number << 64), [(0,)] * count, {})
            for number, (name, count) in enumerate({"a": 2, "b": 1}.items(), start=1)
        )
    )


def plan(*wanted: MorePartitions, brokers: tuple[int, ...] = (0,)) -> list[Any]:
    return plan_partitions(image(*brokers), wanted, 0)


def code(planned: TopicImage | KafkaError) -> ErrorCode:
    return planned.code if isinstance(planned, KafkaError) else OK


# A running Apache Kafka 4.3.0 with one broker answers so.
REFUSALS = [
    (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, MorePartitions("none", 9)),
    (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, MorePartitions("", 9)),
    (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, MorePartitions("none", 0, [[7]])),
    (ErrorCode.INVALID_PARTITIONS, MorePartitions("a", 2)),
    (ErrorCode.INVALID_PARTITIONS, MorePartitions("a", 1)),
    (ErrorCode.INVALID_PARTITIONS, MorePartitions("a", 0)),
    (ErrorCode.INVALID_PARTITIONS, MorePartitions("a", -(2**31))),
    (ErrorCode.INVALID_PARTITIONS, MorePartitions("a", 1, [[0]])),
    (ErrorCode.INVALID_REPLICA_ASSIGNMENT, MorePartitions("a", 3, [])),
    (ErrorCode.INVALID_REPLICA_ASSIGNMENT, MorePartitions("a", 3, [[0], [0]])),
    (ErrorCode.INVALID_REPLICA_ASSIGNMENT, MorePartitions("a", 4, [[0]])),
    (ErrorCode.INVALID_REPLICA_ASSIGNMENT, MorePartitions("a", 3, [[9]])),
    (ErrorCode.INVALID_REPLICA_ASSIGNMENT, MorePartitions("a", 3, [[-1]])),
    (ErrorCode.INVALID_REPLICA_ASSIGNMENT, MorePartitions("a", 3, [[]])),
    (ErrorCode.INVALID_REPLICA_ASSIGNMENT, MorePartitions("a", 3, [[0, 0]])),
    (ErrorCode.UNKNOWN_SERVER_ERROR, MorePartitions("a", CHANGED_PARTITIONS_MAX + 3)),
    (ErrorCode.UNKNOWN_SERVER_ERROR, MorePartitions("a", 2**31 - 1)),
]


@pytest.mark.parametrize(("expected", "wanted"), REFUSALS)
def test_refusals(expected: ErrorCode, wanted: MorePartitions) -> None:
    refused, _ = plan(wanted, MorePartitions("b", 2))
    assert code(refused) is expected


def test_new_partitions_begin_at_epoch_0_and_old_ones_stay_as_they_are() -> None:
    (grown,) = plan(MorePartitions("a", 4))
    assert grown.partitions[:2] == image(0).topics["a"].partitions
    assert [(p.index, p.leader, p.leader_epoch, p.isr) for p in grown.partitions[2:]] == [
        (2, 0, 0, (0,)),
        (3, 0, 0, (0,)),
    ]


def test_assignments_are_of_the_new_partitions_only() -> None:
    (grown,) = plan(MorePartitions("a", 4, [[1], [0]]), brokers=(0, 1))
    assert [p.replicas for p in grown.partitions[2:]] == [(1,), (0,)]
    (refused,) = plan(MorePartitions("a", 4, [[1], [0, 1]]), brokers=(0, 1))
    assert code(refused) is ErrorCode.INVALID_REPLICA_ASSIGNMENT


def test_a_replication_factor_that_cannot_be_kept() -> None:
    (refused,) = plan_partitions(image(), [MorePartitions("a", 4)], 0)
    assert code(refused) is ErrorCode.INVALID_REPLICATION_FACTOR


def test_a_topic_named_twice_and_a_request_that_is_too_large() -> None:
    twice = [MorePartitions("a", 5), MorePartitions("b", 2), MorePartitions("a", 5)]
    assert [code(each) for each in plan(*twice)] == [
        ErrorCode.INVALID_REQUEST,
        OK,
        ErrorCode.INVALID_REQUEST,
    ]
    large = [MorePartitions("a", CHANGED_PARTITIONS_MAX), MorePartitions("b", 10)]
    assert [code(each) for each in plan(*large)] == [OK, ErrorCode.UNKNOWN_SERVER_ERROR]


def test_new_partitions_are_open_before_they_are_visible(broker: OneBroker) -> None:
    broker.create(NewTopic("t", 2, 1))
    before = broker.image.topics["t"]
    seen: list[tuple[ClusterImage, list[TopicResult]]] = []
    answered = threading.Event()

    def done(results: list[TopicResult]) -> None:
        seen.append((broker.image, results))
        answered.set()

    def opening(name: str) -> None:
        assert broker.image.topics["t"] is before

    broker.replicas.fail_on = opening
    broker.controller.create_partitions([MorePartitions("t", 5)], False, done)
    assert answered.wait(WAIT_S)
    ((after, (result,)),) = seen
    topic = after.topics["t"]
    assert (topic.topic_id, len(topic.partitions), topic.configs) == (
        before.topic_id,
        5,
        before.configs,
    )
    assert (result.error, result.partitions) == (OK, 5)
    assert broker.replicas.calls[-1] == ImageDelta(changed=(topic,))
    broker.replicas.fail_on = lambda name: None
    broker.restart()
    assert broker.image.topics["t"] == topic


def test_validate_only_says_the_same_and_does_nothing(broker: OneBroker) -> None:
    broker.create(NewTopic("t", 2, 1))
    before, writes = broker.image, broker.store.writes
    wanted = [MorePartitions("t", 5), MorePartitions("t2", 5)]
    assert codes(broker.grow(*wanted, validate_only=True)) == [
        OK,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ]
    assert broker.image is before and broker.store.writes == writes


def test_logs_that_cannot_be_opened_are_taken_back_and_the_rest_stays(broker: OneBroker) -> None:
    broker.create(NewTopic("t", 2, 1), NewTopic("u", 2, 1))
    broker.replicas.fail_on = lambda name: OSError(28, "disk full") if name == "t" else None
    assert codes(broker.grow(MorePartitions("t", 3), MorePartitions("u", 3))) == [
        ErrorCode.KAFKA_STORAGE_ERROR,
        OK,
    ]
    broker.replicas.fail_on = lambda name: None
    for _ in range(2):
        assert {n: len(t.partitions) for n, t in broker.image.topics.items()} == {"t": 2, "u": 3}
        assert broker.embedded.children(records.partitions_path("t")) == ["0", "1"]
        broker.restart()
    assert codes(broker.grow(MorePartitions("t", 3))) == [OK]


@pytest.mark.usefixtures("small_multis")
def test_growth_cut_anywhere_is_finished_or_has_not_begun(tmp_path: Path) -> None:
    def act(broker: OneBroker) -> None:
        broker.grow(MorePartitions("a", 9), MorePartitions("b", 3))

    def check(broker: OneBroker) -> None:
        topics = broker.image.topics
        assert len(topics["a"].partitions) in (4, 9)
        assert len(topics["b"].partitions) in (2, 3)
        assert dict(topics["a"].configs) == {"k": "1"}

    assert die_at_every_step(tmp_path, act, check) > 4


@pytest.mark.usefixtures("small_multis")
def test_a_rollback_cut_anywhere_leaves_whole_topics(tmp_path: Path) -> None:
    def act(broker: OneBroker) -> None:
        broker.replicas.fail_on = lambda name: RuntimeError("injected") if name == "a" else None
        broker.grow(MorePartitions("a", 7), MorePartitions("b", 3))
        broker.replicas.fail_on = lambda name: None

    def check(broker: OneBroker) -> None:
        assert len(broker.image.topics["a"].partitions) in (4, 7)

    assert die_at_every_step(tmp_path, act, check) > 4


def test_brokers_that_stop_get_no_added_replicas() -> None:
    (grown,) = plan_partitions(image(0, 1, 2), [MorePartitions("b", 4)], 0, {0, 2})
    assert isinstance(grown, TopicImage)
    assert [each.replicas for each in grown.partitions] == [(0,), (1,), (1,), (1,)]
