"""ListOffsets: every question in every version, each partition with its own error."""

from __future__ import annotations

import datetime
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kbroker.errors import ErrorCode
from kbroker.types import ApiKey
from tests.unit.handlers.support import (
    FakeBroker,
    FakeLog,
    KnownEpochs,
    changed,
    part_of,
    request_of,
    written,
)

VERSIONS = range(1, 12)
FIRST_VERSION = {-1: 1, -2: 1, -3: 7, -4: 8, -5: 9, -6: 11}
Partition = tuple[int, int] | tuple[int, int, int]


def ask(
    version: int, *topics: tuple[str, list[Partition]], replica: int = -1, isolation: int = 0
) -> Any:
    fields: dict[str, Any] = {"replica_id": replica, "topics": tuple(map(_topic(version), topics))}
    if version >= 2:
        fields["isolation_level"] = isolation
    if version >= 10:
        fields["timeout"] = datetime.timedelta(seconds=1)
    return request_of(ApiKey.LIST_OFFSETS, version, **fields)


def _topic(version: int) -> Any:
    def make(topic: tuple[str, list[Partition]]) -> Any:
        partitions = []
        for index, timestamp, *epoch in topic[1]:
            known = {"current_leader_epoch": epoch[0] if epoch else -1} if version >= 4 else {}
            partitions.append(
                part_of(
                    ApiKey.LIST_OFFSETS,
                    version,
                    "ListOffsetsPartition",
                    partition_index=index,
                    timestamp=timestamp,
                    **known,
                )
            )
        return part_of(
            ApiKey.LIST_OFFSETS,
            version,
            "ListOffsetsTopic",
            name=topic[0],
            partitions=tuple(partitions),
        )

    return make


def broker_with_records() -> FakeBroker:
    broker = FakeBroker()
    broker.create("t", partitions=3)
    broker.replicas.logs["t", 0] = FakeLog(
        log_start_offset=2,
        high_watermark=7,
        log_end_offset=9,
        leader_epoch=4,
        epochs=KnownEpochs((1, 0), (2, 4), (4, 5)),
        records=[(2, 100, 1), (3, 140, 1), (4, 120, 2), (5, 130, 4), (6, 140, 4), (7, 150, 4)],
    )
    topic = broker.controller.image.topics["t"]
    partitions = (changed(topic.partitions[0], leader_epoch=4), *topic.partitions[1:])
    broker.controller.publish(
        broker.controller.image.with_topics([changed(topic, partitions=partitions)])
    )
    return broker


def one(broker: FakeBroker, version: int, *partition: int, **fields: Any) -> tuple[Any, ...]:
    """(code, offset, timestamp, leader epoch) for one partition of topic t."""
    answer = broker.call(ask(version, ("t", [partition]), **fields))  # type: ignore[list-item]
    (topic,) = answer.topics
    (got,) = topic.partitions
    assert (topic.name, got.partition_index) == ("t", partition[0])
    epoch = got.leader_epoch if version >= 4 else None
    return got.error_code.value, got.offset, got.timestamp, epoch


@pytest.mark.parametrize("version", VERSIONS)
def test_the_ends(version: int) -> None:
    broker, epoch = broker_with_records(), 4 if version >= 4 else None
    assert one(broker, version, 0, -1) == (0, 7, -1, epoch)
    assert one(broker, version, 0, -2) == (0, 2, -1, 1 if version >= 4 else None)


@pytest.mark.parametrize("version", VERSIONS)
def test_no_end_before_the_high_watermark_has_reached_the_leaders_epoch(version: int) -> None:
    """The leader before may have answered a larger one."""
    broker = broker_with_records()
    log = broker.replicas.logs["t", 0]
    log.high_watermark = 4
    code = ErrorCode.OFFSET_NOT_AVAILABLE if version >= 5 else ErrorCode.LEADER_NOT_AVAILABLE
    unknown = (code, -1, -1, -1 if version >= 4 else None)
    assert one(broker, version, 0, -1) == unknown
    assert one(broker, version, 0, 141) == unknown
    assert one(broker, version, 0, 100)[:2] == one(broker, version, 0, -2)[:2] == (0, 2)
    assert one(broker, version, 0, -1, replica=2)[:2] == (0, 9)
    log.high_watermark = 5
    assert one(broker, version, 0, -1)[:2] == (0, 5)


@pytest.mark.parametrize("version", VERSIONS)
def test_a_replica_sees_the_end_of_the_log(version: int) -> None:
    broker, epoch = broker_with_records(), 4 if version >= 4 else None
    for replica in (1, 0, -2):
        assert one(broker, version, 0, -1, replica=replica) == (0, 9, -1, epoch)


@pytest.mark.parametrize("version", range(2, 12))
def test_isolation_levels(version: int) -> None:
    broker = broker_with_records()
    assert one(broker, version, 0, -1, isolation=1)[:2] == (0, 7)
    assert one(broker, version, 0, -1, isolation=2)[0] == ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize("version", range(2, 12))
def test_committed_records_end_at_the_last_stable_offset(version: int) -> None:
    broker = broker_with_records()
    broker.replicas.logs["t", 0].open_transaction = 5
    assert one(broker, version, 0, -1, isolation=1)[:2] == (0, 5)
    assert one(broker, version, 0, -1)[:2] == (0, 7)
    assert one(broker, version, 0, -1, isolation=1, replica=2)[:2] == (0, 9)
    assert one(broker, version, 0, -2, isolation=1)[:2] == (0, 2)


@pytest.mark.parametrize("version", range(2, 12))
def test_a_moment_within_an_open_transaction_is_unknown(version: int) -> None:
    broker = broker_with_records()
    log = broker.replicas.logs["t", 0]
    log.open_transaction = 3
    assert one(broker, version, 0, 100, isolation=1)[:2] == (0, 2)
    assert one(broker, version, 0, 101, isolation=1)[:3] == (0, -1, -1)
    assert one(broker, version, 0, 101)[:2] == (0, 3)
    assert one(broker, version, 0, 101, isolation=1, replica=2)[:2] == (0, 3)
    log.open_transaction = 4
    assert one(broker, version, 0, 101, isolation=1)[:2] == (0, 3)


@pytest.mark.parametrize("version", range(7, 12))
def test_the_largest_timestamp_within_an_open_transaction_is_unknown(version: int) -> None:
    broker = broker_with_records()
    log = broker.replicas.logs["t", 0]
    log.high_watermark, log.open_transaction = 9, 7
    assert one(broker, version, 0, -3, isolation=1) == (0, -1, -1, -1)
    assert one(broker, version, 0, -3) == (0, 7, 150, 4)
    log.open_transaction = 8
    assert one(broker, version, 0, -3, isolation=1) == (0, 7, 150, 4)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(
    ("moment", "offset", "timestamp", "epoch"),
    [
        (0, 2, 100, 1),
        (100, 2, 100, 1),
        (101, 3, 140, 1),
        (140, 3, 140, 1),
        (141, -1, -1, -1),  # the record with 150 is not below the high watermark
        (2**63 - 1, -1, -1, -1),
    ],
)
def test_a_moment(version: int, moment: int, offset: int, timestamp: int, epoch: int) -> None:
    known = epoch if version >= 4 else None
    assert one(broker_with_records(), version, 0, moment) == (0, offset, timestamp, known)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("question", range(-9, 0))
def test_a_question_is_known_from_its_version_on(version: int, question: int) -> None:
    code = one(broker_with_records(), version, 0, question)[0]
    known = version >= FIRST_VERSION.get(question, 99)
    assert code == (ErrorCode.NONE if known else ErrorCode.UNSUPPORTED_VERSION)


@pytest.mark.parametrize("version", range(7, 12))
def test_the_largest_timestamp(version: int) -> None:
    broker = broker_with_records()
    assert one(broker, version, 0, -3) == (0, 7, 150, 4)
    assert one(broker, version, 1, -3) == (0, -1, -1, -1)


def test_tiered_storage_that_is_not_there() -> None:
    broker = broker_with_records()
    assert one(broker, 11, 0, -4) == (0, 2, -1, 1)
    assert one(broker, 11, 0, -5) == one(broker, 11, 0, -6) == (0, -1, -1, -1)


@pytest.mark.parametrize("version", range(4, 12))
def test_the_leader_epoch_that_a_client_believes_in(version: int) -> None:
    broker = broker_with_records()
    assert one(broker, version, 0, -1, 4)[0] == ErrorCode.NONE
    assert one(broker, version, 0, -1, 3)[0] == ErrorCode.FENCED_LEADER_EPOCH
    assert one(broker, version, 0, -1, 5)[0] == ErrorCode.UNKNOWN_LEADER_EPOCH
    assert one(broker, version, 0, -1, -1)[0] == ErrorCode.NONE


@pytest.mark.parametrize("version", range(4, 12))
@pytest.mark.parametrize("answered", [3, 5])
def test_a_log_that_is_in_another_epoch_than_the_image_says_nothing(
    version: int, answered: int
) -> None:
    """It gets the image late, after a write that hangs, or has the next one already."""
    broker = broker_with_records()
    broker.replicas.logs["t", 0].leader_epoch = answered
    assert one(broker, version, 0, -1, 4)[:2] == (ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)


@pytest.mark.parametrize("version", VERSIONS)
def test_each_partition_has_its_own_error_in_the_order_asked(version: int) -> None:
    broker = broker_with_records()
    topic = broker.controller.image.topics["t"]
    away = changed(topic.partitions[1], leader=2)
    broker.controller.publish(
        broker.controller.image.with_topics(
            [changed(topic, partitions=(topic.partitions[0], away, topic.partitions[2]))]
        )
    )
    del broker.replicas.logs["t", 2]
    answer = broker.call(
        ask(
            version,
            ("none", [(0, -1)]),
            ("t", [(9, -1), (2, -1), (1, -1), (0, -2), (-1, -1)]),
            ("a b", [(0, -9)]),
        )
    )
    got = [
        (t.name, [(p.partition_index, p.error_code.value) for p in t.partitions])
        for t in answer.topics
    ]
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert got == [
        ("none", [(0, unknown)]),
        (
            "t",
            [
                (9, unknown),
                (2, ErrorCode.KAFKA_STORAGE_ERROR),
                (1, ErrorCode.NOT_LEADER_OR_FOLLOWER),
                (0, ErrorCode.NONE),
                (-1, unknown),
            ],
        ),
        ("a b", [(0, ErrorCode.UNSUPPORTED_VERSION)]),
    ]


@pytest.mark.parametrize("version", VERSIONS)
def test_a_partition_named_twice(version: int) -> None:
    answer = broker_with_records().call(
        ask(version, ("t", [(0, -1), (1, -1), (0, -2)]), ("t", [(2, -1)]))
    )
    codes = [[p.error_code.value for p in t.partitions] for t in answer.topics]
    assert codes == [[ErrorCode.INVALID_REQUEST, 0], [0]]


@pytest.mark.parametrize("version", VERSIONS)
def test_nothing_asked(version: int) -> None:
    assert FakeBroker().call(ask(version)).topics == ()


@pytest.mark.parametrize("version", VERSIONS)
def test_an_unexpected_error_reaches_every_partition(
    version: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(self: FakeLog, timestamp_ms: int) -> None:
        raise OSError("disk")

    monkeypatch.setattr(FakeLog, "offset_for_time", broken)
    answer = broker_with_records().call(ask(version, ("t", [(0, 5), (1, -1)])))
    codes = [p.error_code.value for p in answer.topics[0].partitions]
    assert codes == [ErrorCode.UNKNOWN_SERVER_ERROR] * 2


@pytest.mark.parametrize("version", VERSIONS)
def test_a_request_cut_anywhere_closes_the_connection(version: int) -> None:
    body = written(ask(version, ("t", [(0, -1), (1, 5)])))
    for size in range(len(body)):
        request = FakeBroker().send(ApiKey.LIST_OFFSETS, version, body[:size])
        assert request.answer is None
        assert request.closed is not None


@settings(deadline=None)
@given(version=st.sampled_from(VERSIONS), body=st.binary(max_size=80))
def test_any_bytes_are_answered_or_closed(version: int, body: bytes) -> None:
    request = FakeBroker().send(ApiKey.LIST_OFFSETS, version, body)
    assert (request.answer is None) != (request.closed is None)
