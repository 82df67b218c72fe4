"""WriteTxnMarkers: each partition's result, what waits, and the group coordinator's notice."""

from __future__ import annotations

from typing import Any

import pytest

from kbroker.errors import ErrorCode
from kbroker.metadata.image import OFFSETS_TOPIC
from kbroker.protocol import messages
from kbroker.types import ApiKey
from tests.unit.handlers.support import (
    FakeBroker,
    FakeLog,
    answer_of,
    part_of,
    request_of,
)

VERSIONS = (1, 2)
KEY = ApiKey.WRITE_TXN_MARKERS


@pytest.fixture
def broker() -> FakeBroker:
    broker = FakeBroker()
    broker.create("words", partitions=2)
    broker.create(OFFSETS_TOPIC)
    for topic, index in (("words", 0), ("words", 1), (OFFSETS_TOPIC, 0)):
        broker.replicas.logs[topic, index] = FakeLog()
    return broker


def marker(version: int, producer_id: int, *topics: tuple[str, list[int]], **fields: Any) -> Any:
    how = {
        "producer_epoch": 3,
        "transaction_result": True,
        "coordinator_epoch": 4,
        **({"transaction_version": 2} if version > 1 else {}),
    } | fields
    return part_of(
        KEY,
        version,
        "WritableTxnMarker",
        producer_id=producer_id,
        topics=tuple(
            part_of(
                KEY,
                version,
                "WritableTxnMarkerTopic",
                name=name,
                partition_indexes=tuple(indexes),
            )
            for name, indexes in topics
        ),
        **how,
    )


def ask(version: int, *markers: Any) -> Any:
    return request_of(KEY, version, markers=markers)


def codes(answer: Any) -> dict[int, dict[tuple[str, int], int]]:
    return {
        each.producer_id: {
            (topic.name, one.partition_index): one.error_code.value
            for topic in each.topics
            for one in topic.partitions
        }
        for each in answer.markers
    }


@pytest.mark.parametrize("version", VERSIONS)
def test_markers_are_written(broker: FakeBroker, version: int) -> None:
    both = marker(version, 7, ("words", [0, 1]), transaction_result=False)
    assert codes(broker.call(ask(version, both))) == {7: {("words", 0): 0, ("words", 1): 0}}
    now_ms = broker.services.clock.wall_ms()
    wanted = (7, 3, 4, False, 2 if version > 1 else 0, now_ms)
    assert broker.replicas.logs["words", 0].markers == [wanted]
    assert broker.replicas.logs["words", 1].markers == [wanted]


@pytest.mark.parametrize("version", VERSIONS)
def test_each_partition_has_its_error(broker: FakeBroker, version: int) -> None:
    broker.replicas.logs["words", 1].marker_error = ErrorCode.TRANSACTION_COORDINATOR_FENCED
    asked = ask(version, marker(version, 7, ("words", [0, 1, 2]), ("none", [0])))
    assert codes(broker.call(asked)) == {
        7: {("words", 0): 0, ("words", 1): 52, ("words", 2): 3, ("none", 0): 3}
    }


@pytest.mark.parametrize(("producer_id", "epoch"), [(-1, 0), (-5, 0), (7, -1)])
def test_a_marker_that_no_producer_can_have(
    broker: FakeBroker, producer_id: int, epoch: int
) -> None:
    """Asked of Apache Kafka 4.3.0, but for -5, of which it appends a batch without a producer."""
    wrong = marker(1, producer_id, ("words", [0]), producer_epoch=epoch)
    answer = broker.call(ask(1, wrong, marker(1, 8, ("words", [1]))))
    refused = ErrorCode.UNKNOWN_SERVER_ERROR.value
    assert codes(answer) == {producer_id: {("words", 0): refused}, 8: {("words", 1): 0}}
    assert broker.replicas.logs["words", 0].markers == []


def test_a_marker_of_an_unknown_transaction_version(broker: FakeBroker) -> None:
    answer = broker.call(ask(2, marker(2, 7, ("words", [0]), transaction_version=-1)))
    assert codes(answer) == {7: {("words", 0): ErrorCode.UNKNOWN_SERVER_ERROR.value}}


def test_two_markers_of_one_producer_are_one_entry(broker: FakeBroker) -> None:
    asked = ask(2, marker(2, 7, ("words", [0])), marker(2, 7, ("words", [1])), marker(2, 8))
    assert codes(broker.call(asked)) == {7: {("words", 0): 0, ("words", 1): 0}}


@pytest.mark.parametrize(
    ("said", "after_ms", "answered"),
    [
        (ErrorCode.NONE, 0, 0),
        (ErrorCode.NOT_COORDINATOR, 0, 6),
        (ErrorCode.COORDINATOR_NOT_AVAILABLE, 4_999, 20),
        (ErrorCode.COORDINATOR_NOT_AVAILABLE, 5_000, 7),
    ],
)
def test_the_answer_waits_for_the_followers(
    broker: FakeBroker, said: ErrorCode, after_ms: int, answered: int
) -> None:
    broker.replicas.logs["words", 1].led_since = 5
    request = broker.ask(ask(2, marker(2, 7, ("words", [1, 0]))))
    assert request.answer is None
    ((replica, offset, led_since, timeout_ms, done),) = broker.awaited
    assert replica is broker.replicas.logs["words", 1]
    assert (offset, led_since, timeout_ms) == (0, 5, 5_000)
    broker.clock.advance(after_ms)
    done(said)
    assert codes(answer_of(request)) == {7: {("words", 1): answered, ("words", 0): 0}}


def test_the_group_coordinator_is_notified(broker: FakeBroker) -> None:
    seen: list[tuple[int, int, bool, int]] = []
    broker.services.marker_written = lambda *notice: seen.append(notice)
    broker.call(ask(2, marker(2, 7, (OFFSETS_TOPIC, [0]), ("words", [0]))))
    broker.replicas.logs[OFFSETS_TOPIC, 0].marker_error = ErrorCode.INVALID_PRODUCER_EPOCH
    broker.call(ask(2, marker(2, 8, (OFFSETS_TOPIC, [0]))))
    assert seen == [(0, 7, True, 0)]


def test_a_late_copy_is_answered_as_the_one_that_was_written(broker: FakeBroker) -> None:
    """The group coordinator has applied that one. Its outcome comes by fields of our own."""
    seen: list[object] = []
    broker.services.marker_written = lambda *notice: seen.append(notice)
    log = broker.replicas.logs[OFFSETS_TOPIC, 0]
    log.marker_error = ErrorCode.DUPLICATE_SEQUENCE_NUMBER
    table = messages.write_txn_markers
    topics = [table.TopicRequest(name=OFFSETS_TOPIC, partition_indexes=[0])]
    late = table.Marker(
        producer_id=7, producer_epoch=3, transaction_result=True, topics=topics,
        coordinator_epoch=4, coordinator_run=9, outcome_number=2**40,
    )  # fmt: skip
    body = table.Request(markers=[late]).encode(1)
    answer = broker.send(KEY, 1, body).answer
    assert answer is not None
    response = table.Response.decode(answer, 1)
    assert [one.error_code for one in response.markers[0].topics[0].partitions] == [0]
    assert log.outcomes == [(9, 2**40)] and not seen


def test_nothing_is_asked_for(broker: FakeBroker) -> None:
    assert codes(broker.call(ask(2))) == {}
