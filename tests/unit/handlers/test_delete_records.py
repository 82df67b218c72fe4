"""DeleteRecords: every version, every refusal, each partition by itself."""

from __future__ import annotations

import datetime
from collections.abc import Callable
from typing import Any

import pytest

from kbroker.errors import ErrorCode
from kbroker.limits import DELETE_RECORDS_WAIT_MS_MAX
from kbroker.types import ApiKey
from tests.unit.handlers.support import (
    FakeBroker,
    FakeLog,
    answer_of,
    changed,
    part_of,
    request_of,
    written,
)

VERSIONS = range(3)


def trim(version: int, *topics: tuple[str, dict[int, int]], timeout_ms: int = 30_000) -> Any:
    def part(structure: str, **fields: Any) -> Any:
        return part_of(ApiKey.DELETE_RECORDS, version, structure, **fields)

    return request_of(
        ApiKey.DELETE_RECORDS,
        version,
        timeout=datetime.timedelta(milliseconds=timeout_ms),
        topics=tuple(
            part(
                "DeleteRecordsTopic",
                name=name,
                partitions=tuple(
                    part("DeleteRecordsPartition", partition_index=index, offset=offset)
                    for index, offset in offsets.items()
                ),
            )
            for name, offsets in topics
        ),
    )


def outcome(answer: Any) -> list[tuple[str, int, int, int]]:
    return [
        (topic.name, each.partition_index, each.low_watermark, each.error_code.value)
        for topic in answer.topics
        for each in topic.partitions
    ]


def broker_with_records(name: str = "a", records: int = 10, **configs: str) -> FakeBroker:
    broker = FakeBroker()
    broker.create(name, partitions=2, **configs)
    log = broker.replicas.logs[name, 0]
    log.high_watermark = log.log_end_offset = records
    return broker


@pytest.mark.parametrize("version", VERSIONS)
def test_the_low_watermark_is_where_the_log_begins_now(version: int) -> None:
    broker = broker_with_records()
    for offset, start in ((4, 4), (2, 4), (0, 4), (-1, 10), (10, 10)):
        answer = broker.call(trim(version, ("a", {0: offset, 1: -1})))
        assert outcome(answer) == [("a", 0, start, 0), ("a", 1, 0, 0)]
    assert broker.replicas.logs["a", 0].log_start_offset == 10


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("timeout_ms", [30_000, 0, -1])
def test_every_partition_has_its_own_error(version: int, timeout_ms: int) -> None:
    broker = broker_with_records()
    asked = trim(
        version,
        ("a", {7: 0, 0: 11, -1: 0, 1: 0}),
        ("none", {0: 0}),
        ("a", {3: -1}),
        timeout_ms=timeout_ms,
    )
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert outcome(broker.call(asked)) == [
        ("a", 7, -1, unknown),
        ("a", 0, -1, ErrorCode.OFFSET_OUT_OF_RANGE),
        ("a", -1, -1, unknown),
        ("a", 1, 0, 0),
        ("a", 3, -1, unknown),
        ("none", 0, -1, unknown),
    ]
    assert broker.replicas.logs["a", 0].log_start_offset == 0


@pytest.mark.parametrize("offset", [-2, 11, -(2**63), 2**63 - 1])
def test_offsets_out_of_range(offset: int) -> None:
    answer = broker_with_records().call(trim(2, ("a", {0: offset})))
    assert outcome(answer) == [("a", 0, -1, ErrorCode.OFFSET_OUT_OF_RANGE)]


@pytest.mark.parametrize(
    ("policy", "code"),
    [
        ("compact", ErrorCode.POLICY_VIOLATION),
        ("compact,delete", ErrorCode.NONE),
        ("delete", ErrorCode.NONE),
        ("", ErrorCode.NONE),
    ],
)
def test_a_topic_that_is_only_compacted_keeps_its_records(policy: str, code: ErrorCode) -> None:
    broker = broker_with_records(cleanup_policy=policy)
    answer = broker.call(trim(2, ("a", {0: 5, 9: 5})))
    assert outcome(answer) == [
        ("a", 0, -1 if code else 5, code),
        ("a", 9, -1, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ]


def test_the_last_of_several_offsets_for_one_partition_counts() -> None:
    broker = broker_with_records()
    answer = broker.call(trim(2, ("a", {0: 99}), ("a", {0: 3})))
    assert outcome(answer) == [("a", 0, 3, 0)]


def test_a_broker_that_does_not_lead_refuses() -> None:
    broker = broker_with_records()
    topic = broker.controller.image.topics["a"]
    first, second = topic.partitions
    led = changed(topic, partitions=(changed(first, leader=2), second))
    broker.controller.image = broker.controller.image.with_topics([led])
    answer = broker.call(trim(2, ("a", {0: 5, 1: 0})))
    assert outcome(answer) == [("a", 0, -1, ErrorCode.NOT_LEADER_OR_FOLLOWER), ("a", 1, 0, 0)]


@pytest.mark.parametrize("version", VERSIONS)
def test_nothing_to_delete(version: int) -> None:
    broker = broker_with_records()
    assert outcome(broker.call(trim(version))) == []
    assert broker.call(trim(version, ("a", {}))).topics == ()


@pytest.mark.parametrize("version", VERSIONS)
def test_bytes_that_are_no_request_close_the_connection(version: int) -> None:
    whole = written(trim(version, ("a", {0: 1})))
    for size in range(len(whole)):
        request = broker_with_records().send(ApiKey.DELETE_RECORDS, version, whole[:size])
        assert request.closed is not None and request.answer is None


# --- followers ------------------------------------------------------------------------------------


def followed_broker() -> FakeBroker:
    broker = broker_with_records()
    broker.replicas.logs["a", 0].follower_start = 0
    return broker


@pytest.mark.parametrize("version", VERSIONS)
def test_the_answer_waits_for_the_live_followers(version: int) -> None:
    broker = followed_broker()
    log = broker.replicas.logs["a", 0]
    request = broker.ask(trim(version, ("a", {0: 6, 1: 0, 7: 0}), timeout_ms=77))
    ((replica, offset, timeout_ms, done),) = broker.awaited
    assert (replica, offset, request.answer) == (log, 6, None) and timeout_ms > 77
    assert log.log_start_offset == 6
    log.follower_start = 6
    done(ErrorCode.NONE)
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert outcome(answer_of(request)) == [("a", 0, 6, 0), ("a", 1, 0, 0), ("a", 7, -1, unknown)]


def test_an_offset_that_all_have_left_is_not_waited_for() -> None:
    broker = followed_broker()
    log = broker.replicas.logs["a", 0]
    log.log_start_offset, log.follower_start = 8, 5
    assert outcome(broker.call(trim(2, ("a", {0: 5})))) == [("a", 0, 5, 0)]
    broker.ask(trim(2, ("a", {0: -1})))
    assert [offset for _, offset, *_ in broker.awaited] == [10]


@pytest.mark.parametrize(
    ("code", "low_watermark"),
    [(ErrorCode.REQUEST_TIMED_OUT, 2), (ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)],
)
def test_other_ends_of_the_wait(code: ErrorCode, low_watermark: int) -> None:
    broker = followed_broker()
    other = broker.replicas.logs["a", 1]
    other.log_end_offset = other.high_watermark = 4
    other.follower_start = 0
    request = broker.ask(trim(2, ("a", {0: 6, 1: 4})))
    (log, *_, done), (*_, other_done) = broker.awaited
    log.follower_start = 2
    done(code)
    assert request.answer is None  # the other one waits on
    other.follower_start = 4
    other_done(ErrorCode.NONE)
    assert outcome(answer_of(request)) == [("a", 0, low_watermark, code), ("a", 1, 4, 0)]


@pytest.mark.parametrize(
    ("timeout_ms", "wait_ms"), [(77, 77), (2**31 - 1, DELETE_RECORDS_WAIT_MS_MAX)]
)
def test_the_wait_has_an_end(timeout_ms: int, wait_ms: int) -> None:
    broker = followed_broker()
    log = broker.replicas.logs["a", 0]
    request = broker.ask(trim(2, ("a", {0: 6, 1: 0, 7: 0}), timeout_ms=timeout_ms))
    broker.elapse(wait_ms - 1)
    assert request.answer is None and broker.purgatories.delete_records.delayed == 1
    log.follower_start = 2
    broker.elapse(1)
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    late = ("a", 0, 2, ErrorCode.REQUEST_TIMED_OUT)
    assert outcome(answer_of(request)) == [late, ("a", 1, 0, 0), ("a", 7, -1, unknown)]
    ((*_, done),) = broker.awaited
    done(ErrorCode.REQUEST_TIMED_OUT)  # the watch ends after its operation: no second answer
    figures = broker.purgatories.delete_records.statistics()
    assert (figures["delayed"], figures["watched"], figures["expired_total"]) == (0, 0, 1)


def test_the_time_is_over_for_the_partitions_that_still_wait() -> None:
    broker = followed_broker()
    other = broker.replicas.logs["a", 1]
    other.log_end_offset = other.high_watermark = 4
    other.follower_start = 0
    request = broker.ask(trim(2, ("a", {0: 6, 1: 4})))
    (*_, (*_, other_done)) = broker.awaited
    other.follower_start = 4
    other_done(ErrorCode.NONE)
    assert request.answer is None
    broker.elapse()
    late = ("a", 0, 0, ErrorCode.REQUEST_TIMED_OUT)
    assert outcome(answer_of(request)) == [late, ("a", 1, 4, 0)]


def test_a_watermark_that_has_moved_before_it_is_watched_is_seen() -> None:
    broker = followed_broker()

    def moved(replica: FakeLog, offset: int, _: int, done: Callable[[ErrorCode], object]) -> None:
        replica.follower_start = offset
        done(ErrorCode.NONE)

    broker.services.await_low_watermark = moved
    assert outcome(broker.call(trim(2, ("a", {0: 6})))) == [("a", 0, 6, 0)]
    assert broker.purgatories.delete_records.delayed == len(broker.timer) == 0


def test_two_deletions_of_one_partition_end_each_by_itself() -> None:
    broker = followed_broker()
    log = broker.replicas.logs["a", 0]
    near = broker.ask(trim(2, ("a", {0: 3})))
    far = broker.ask(trim(2, ("a", {0: 9})))
    (*_, near_done), (*_, far_done) = broker.awaited
    log.follower_start = 4
    near_done(ErrorCode.NONE)
    assert outcome(answer_of(near)) == [("a", 0, 4, 0)] and far.answer is None
    log.follower_start = 9
    far_done(ErrorCode.NONE)
    assert outcome(answer_of(far)) == [("a", 0, 9, 0)]


@pytest.mark.parametrize("timeout_ms", [0, -1, -(2**31)])
def test_without_time_nothing_is_waited_for(timeout_ms: int) -> None:
    broker = followed_broker()
    answer = broker.call(trim(2, ("a", {0: 6}), timeout_ms=timeout_ms))
    assert outcome(answer) == [("a", 0, 0, ErrorCode.REQUEST_TIMED_OUT)]
    assert broker.awaited == []
