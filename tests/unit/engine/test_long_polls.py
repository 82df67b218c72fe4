"""Fetches that wait: for bytes, for another client's append, for their deadline, for an end."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Callable
from typing import Any
from uuid import UUID

import pytest

from kbroker.core._live_objects import live_counts
from kbroker.engine._hot import HotPath
from kbroker.engine.waiting._parked import bucket_of
from kbroker.errors import ErrorCode
from kbroker.types import ApiKey
from tests.support.record_batches import build_batch
from tests.unit.engine.wire import (
    FETCH_VERSIONS,
    Ask,
    answer_in,
    fetch,
    fetch_frame,
    fetched_in,
    produce_frame,
    produce_one,
    produced_in,
)
from tests.unit.net.harness import DEADLINE_S, Client, Rig, Topic, cold_frame, eventually

LONG_MS = 600_000
BATCH = build_batch([b"x" * 100])
every_version = pytest.mark.parametrize("version", FETCH_VERSIONS)


@every_version
def test_an_append_on_another_connection_wakes(rig: Rig, version: int) -> None:
    topic = rig.create("t")
    reader, writer = rig.client(), rig.client()
    reader.send(fetch_frame(version, [Ask(topic)], max_wait_ms=LONG_MS, correlation_id=8))
    rig.wait_parked(1)
    assert produce_one(writer, topic, BATCH).error == 0
    answer = fetched_in(version, reader.receive())
    assert answer.correlation_id == 8
    assert answer.only.records is not None and len(answer.only.records) == len(BATCH)
    assert rig.hot.statistics()["parked_expired"] == 0


@every_version
def test_the_deadline_answers_with_the_records_that_are_there(rig: Rig, version: int) -> None:
    topic = rig.create("t")
    topic.logs[0].append(BATCH)
    reader = rig.client()
    reader.send(fetch_frame(version, [Ask(topic)], max_wait_ms=LONG_MS, min_bytes=10_000))
    rig.wait_parked(1)
    rig.expire_all(reader)
    answer = fetched_in(version, reader.receive())
    assert answer.only.error == 0
    assert answer.only.records is not None and len(answer.only.records) == len(BATCH)
    assert rig.hot.statistics()["parked_expired"] == 1


def test_too_few_bytes_do_not_wake(rig: Rig) -> None:
    topic = rig.create("t")
    reader, writer = rig.client(), rig.client()
    wanted = 3 * len(BATCH)
    reader.send(fetch_frame(12, [Ask(topic)], max_wait_ms=LONG_MS, min_bytes=wanted))
    rig.wait_parked(1)
    for _ in range(2):
        produce_one(writer, topic, BATCH)
        assert rig.hot.statistics()["parked_now"] == 1
        assert not reader.has_bytes()
    produce_one(writer, topic, BATCH)
    records = fetched_in(12, reader.receive()).only.records
    assert records is not None and len(records) == wanted


def test_bytes_of_several_partitions_add_up(rig: Rig) -> None:
    topics = [rig.create(name, partitions=2) for name in ("a", "b")]
    reader, writer = rig.client(), rig.client()
    asks = [Ask(topic, i) for topic in topics for i in (0, 1)]
    reader.send(fetch_frame(13, asks, max_wait_ms=LONG_MS, min_bytes=2 * len(BATCH)))
    rig.wait_parked(1)
    writer.send(produce_frame(9, [(topics[0], {1: BATCH})]))
    produced_in(9, writer.receive())
    assert rig.hot.statistics()["parked_now"] == 1
    writer.send(produce_frame(9, [(topics[1], {0: BATCH})]))
    produced_in(9, writer.receive())
    answer = fetched_in(13, reader.receive())
    assert [bool(f.records) for f in answer.partitions.values()] == [False, True, True, False]


def test_no_wait_where_none_is_asked_for(rig: Rig) -> None:
    topic = rig.create("t")
    for options in ({"max_wait_ms": 0}, {"max_wait_ms": LONG_MS, "min_bytes": 0}):
        assert fetch(rig.client(), 12, [Ask(topic)], **options).only.records == b""
    assert fetch(rig.client(), 12, [], max_wait_ms=LONG_MS).partitions == {}
    assert rig.hot.statistics()["parked_fetches"] == 0


def test_more_bytes_than_an_answer_may_hold_are_not_waited_for(rig: Rig) -> None:
    topic = rig.create("t")
    topic.logs[0].append(BATCH)
    answer = fetch(
        rig.client(), 12, [Ask(topic)], max_wait_ms=LONG_MS, min_bytes=1 << 30, max_bytes=50
    )
    assert answer.only.records is not None and len(answer.only.records) == len(BATCH)


def test_a_reader_of_an_older_segment_does_not_wait(rig: Rig) -> None:
    # Each append would have to look up in a file what is there for him, for each who waits so.
    topic = rig.create("t")
    for _ in range(3):
        topic.logs[0].append(BATCH)
    topic.logs[0].roll()
    topic.logs[0].append(BATCH)
    wanted: dict[str, Any] = {"max_wait_ms": LONG_MS, "min_bytes": 1 << 20}
    answer = fetch(rig.client(), 12, [Ask(topic, offset=1)], **wanted)
    assert answer.only.records is not None and len(answer.only.records) == 2 * len(BATCH)
    reader = rig.client()
    reader.send(fetch_frame(12, [Ask(topic, offset=3)], **wanted))
    rig.wait_parked(1)
    topic.logs[0].roll()  # without a wake
    rig.hot.wake(topic.logs[0])
    assert rig.hot.statistics()["parked_now"] == 1
    produce_one(rig.client(), topic, BATCH)
    answer = fetched_in(12, reader.receive())
    assert answer.only.records is not None and len(answer.only.records) == len(BATCH)


def test_one_append_wakes_many(make_rig: Callable[..., Rig]) -> None:
    rig = make_rig(handlers=3)
    topic = rig.create("t")
    readers = [rig.client() for _ in range(150)]
    for reader in readers:
        reader.send(fetch_frame(12, [Ask(topic)], max_wait_ms=LONG_MS))
    eventually(lambda: rig.hot.statistics()["parked_now"] == 150, "all are parked")
    produce_one(rig.client(), topic, BATCH)
    for reader in readers:
        assert fetched_in(12, reader.receive()).only.records


def test_deadlines_far_apart_share_a_bucket_and_not_an_end(rig: Rig) -> None:
    # The table has 2048 buckets of 4 ms: this is one turn of it, and some.
    topic = rig.create("t")
    readers = [rig.client() for _ in range(4)]
    waits = [LONG_MS + turn * 2048 * 4 for turn in range(4)]  # a whole number of their ticks
    for number, (reader, wait_ms) in enumerate(zip(readers, waits, strict=True), start=1):
        reader.send(fetch_frame(12, [Ask(topic)], max_wait_ms=wait_ms))
        rig.wait_parked(number)
    eventually(lambda: len(rig.ticks) == len(readers), "their deadlines are announced")
    ticks = sorted(rig.ticks)
    assert [HotPath.tick_deadline_ms(tick) for tick in ticks] == [tick * 4 for tick in ticks]
    for left, tick in zip((3, 2, 1, 0), ticks, strict=True):
        rig.hot.expire(tick)
        assert rig.hot.statistics()["parked_now"] == left
    for reader in readers:
        assert fetched_in(12, reader.receive()).only.error == 0


def test_deadlines_of_long_waits_share_ticks(rig: Rig) -> None:
    # Each tick is an entry of Python's, which stays until then: not one for each who was here.
    topic = rig.create("t")
    for wait_ms in range(24 * LONG_MS, 24 * LONG_MS + 100 * 4, 4):
        reader = rig.client()
        reader.send(fetch_frame(12, [Ask(topic)], max_wait_ms=wait_ms))
        rig.wait_parked(1)
        reader.close()
        eventually(lambda: rig.hot.statistics()["parked_now"] == 0, "it went with its connection")
    assert len(set(rig.ticks)) <= 2


@pytest.mark.parametrize("wait_ms", [600, 5_000, 30_000, LONG_MS, 2**31 - 1])
def test_a_deadline_is_not_early_and_hardly_late(rig: Rig, wait_ms: int) -> None:
    topic = rig.create("t")
    before_ms = time.monotonic_ns() // 1_000_000
    rig.client().send(fetch_frame(12, [Ask(topic)], max_wait_ms=wait_ms))
    rig.wait_parked(1)
    after_ms = time.monotonic_ns() // 1_000_000
    (deadline_ms,) = map(HotPath.tick_deadline_ms, rig.ticks)
    assert before_ms + wait_ms <= deadline_ms <= after_ms + wait_ms + 4 + wait_ms // 128


def test_a_deadline_that_has_come_is_announced_again_for_a_late_fetch(rig: Rig) -> None:
    topic = rig.create("t")
    first, second = rig.client(), rig.client()
    first.send(fetch_frame(12, [Ask(topic)], max_wait_ms=LONG_MS))
    rig.wait_parked(1)
    rig.expire_all(first)
    assert fetched_in(12, first.receive()).only.error == 0
    announced = len(rig.ticks)
    # The same tick or the next: either way one is announced.
    second.send(fetch_frame(12, [Ask(topic)], max_wait_ms=LONG_MS))
    eventually(lambda: rig.hot.statistics()["parked_now"] == 1, "parked")
    eventually(lambda: len(rig.ticks) > announced, "its deadline is announced")


@pytest.mark.parametrize(
    ("version", "error"),
    [(12, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION), (13, ErrorCode.UNKNOWN_TOPIC_ID)],
)
def test_a_deleted_topic_ends_the_wait(rig: Rig, version: int, error: int) -> None:
    gone, here = rig.create("gone"), rig.create("here")
    reader = rig.client()
    reader.send(fetch_frame(version, [Ask(here), Ask(gone)], max_wait_ms=LONG_MS))
    rig.wait_parked(1)
    rig.delete("gone")
    answer = fetched_in(version, reader.receive())
    assert [f.error for f in answer.partitions.values()] == [0, error]
    assert rig.hot.statistics()["parked_now"] == 0


def test_a_partition_led_elsewhere_ends_the_wait(rig: Rig) -> None:
    topic = rig.create("t")
    old, new = rig.client(), rig.client()
    old.send(fetch_frame(10, [Ask(topic)], max_wait_ms=LONG_MS))
    new.send(fetch_frame(12, [Ask(topic, leader_epoch=0)], max_wait_ms=LONG_MS))
    rig.wait_parked(2)
    topic.logs[0].set_leadership(2, False, 1, 1)
    rig.hot.wake(topic.logs[0])
    assert fetched_in(10, old.receive()).only.error == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert fetched_in(12, new.receive()).only.error == ErrorCode.FENCED_LEADER_EPOCH


def test_a_session_waits_and_wakes(rig: Rig) -> None:
    topic = rig.create("t", partitions=2)
    reader, writer = rig.client(), rig.client()
    session = fetch(reader, 13, [Ask(topic, 0), Ask(topic, 1)], session=(0, 0)).session_id
    for epoch in (1, 2):
        reader.send(fetch_frame(13, [], session=(session, epoch), max_wait_ms=LONG_MS))
        rig.wait_parked(1)
        writer.send(produce_frame(9, [(topic, {epoch - 1: BATCH})]))
        produced_in(9, writer.receive())
        answer = fetched_in(13, reader.receive())
        assert (answer.error, answer.session_id) == (0, session)
        assert [i for _, i in answer.partitions] == [epoch - 1]
        moved = [Ask(topic, epoch - 1, 1)]
        assert fetch(reader, 13, moved, session=(session, -1)).session_id == 0
        fresh = fetch(reader, 13, [Ask(topic, 0, 1), Ask(topic, 1, epoch - 1)], session=(0, 0))
        session = fresh.session_id
        reader.send(fetch_frame(13, [], session=(session, 1), max_wait_ms=0))
        fetched_in(13, reader.receive())


def test_a_full_fetch_that_waited_makes_its_session(rig: Rig) -> None:
    topic = rig.create("t")
    reader = rig.client()
    reader.send(fetch_frame(13, [Ask(topic)], session=(0, 0), max_wait_ms=LONG_MS))
    rig.wait_parked(1)
    rig.expire_all(reader)
    session = fetched_in(13, reader.receive()).session_id
    assert session > 0
    assert fetch(reader, 13, [], session=(session, 1)).error == 0


def test_a_session_closed_under_a_waiting_fetch(rig: Rig) -> None:
    topic = rig.create("t")
    reader, other = rig.client(), rig.client()
    session = fetch(reader, 13, [Ask(topic)], session=(0, 0)).session_id
    reader.send(fetch_frame(13, [], session=(session, 1), max_wait_ms=LONG_MS))
    rig.wait_parked(1)
    fetch(other, 13, [Ask(topic)], session=(session, -1))
    produce_one(other, topic, BATCH)
    answer = fetched_in(13, reader.receive())
    assert answer.error == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


def test_a_client_that_leaves_while_it_waits(rig: Rig) -> None:
    topic = rig.create("t")
    reader, writer = rig.client(), rig.client()
    reader.send(fetch_frame(12, [Ask(topic)], max_wait_ms=LONG_MS))
    rig.wait_parked(1)
    reader.reset()
    eventually(lambda: rig.total("connections") == 1, "it is gone")
    produce_one(writer, topic, BATCH)
    eventually(lambda: rig.hot.statistics()["parked_now"] == 0, "its fetch is gone")
    writer.send(cold_frame(b"alive"))
    assert writer.receive_cold() == (1, b"alive")


def test_the_end_of_the_broker_answers_waiting_fetches(make_rig: Callable[..., Rig]) -> None:
    rig = make_rig()
    topic = rig.create("t")
    readers = [rig.client() for _ in range(20)]
    for reader in readers:
        reader.send(fetch_frame(12, [Ask(topic)], max_wait_ms=LONG_MS))
    eventually(lambda: rig.hot.statistics()["parked_now"] == 20, "all are parked")
    rig.stop()
    for reader in readers:
        assert fetched_in(12, reader.receive()).only.error == 0
        assert reader.ended()


@pytest.mark.parametrize("handlers", [1, 4])
def test_no_wake_up_is_lost_between_readers_and_writers(
    make_rig: Callable[..., Rig], handlers: int
) -> None:
    # Each reader follows the log by long polls only; deadlines never come. A lost wake-up hangs.
    rig = make_rig(handlers=handlers)
    topic = rig.create("t", partitions=3)
    readers = [rig.client() for _ in range(8)]
    writers = [rig.client() for _ in range(3)]
    ends = [[0, 0, 0] for _ in readers]

    def ask(number: int) -> bytes:
        asks = [Ask(topic, i, ends[number][i]) for i in range(3)]
        return fetch_frame(12, asks, max_wait_ms=LONG_MS)

    for number, reader in enumerate(readers):
        reader.send(ask(number))
    rounds = 60
    for turn in range(rounds):
        for index, writer in enumerate(writers):
            writer.send(produce_frame(9, [(topic, {(turn + index) % 3: BATCH})]))
        for writer in writers:
            produced_in(9, writer.receive())
        # One of its answers at least: what it missed wakes it at once the next time.
        for number, reader in enumerate(readers):
            while sum(ends[number]) < 3 * (turn + 1):
                for (_, index), fetched in fetched_in(12, reader.receive()).partitions.items():
                    assert fetched.records is not None
                    ends[number][index] += len(fetched.records) // len(BATCH)
                reader.send(ask(number))
    assert all(end == [rounds] * 3 for end in ends)


@every_version
def test_records_deleted_under_a_long_poll_are_out_of_range(rig: Rig, version: int) -> None:
    topic = rig.create("t")
    (log,) = topic.logs
    for _ in range(4):
        log.append(BATCH)
    readers = {offset: rig.client() for offset in (1, 3)}
    for offset, reader in readers.items():
        reader.send(
            fetch_frame(version, [Ask(topic, offset=offset)], max_wait_ms=LONG_MS, min_bytes=10_000)
        )
    rig.wait_parked(2)
    log.delete_records(3)
    rig.hot.wake(log)
    answer = fetched_in(version, readers[1].receive()).only
    assert answer.error == ErrorCode.OFFSET_OUT_OF_RANGE
    assert rig.hot.statistics()["parked_now"] == 1  # the one at the start waits on
    rig.expire_all(readers[3])
    there = fetched_in(version, readers[3].receive()).only
    assert there.error == 0 and there.records is not None and len(there.records) == len(BATCH)


# --- what is not there ----------------------------------------------------------------------------


@pytest.mark.parametrize("known", [True, False], ids=["its topic is there", "no such topic"])
@every_version
def test_a_missing_partition_lets_a_fetch_wait(rig: Rig, version: int, known: bool) -> None:
    topic = rig.create("t")
    missing = Ask(topic, 7) if known else Ask(Topic("none", UUID(int=7), []))
    reader, writer = rig.client(), rig.client()
    reader.send(fetch_frame(version, [missing, Ask(topic)], max_wait_ms=LONG_MS))
    rig.wait_parked(1)
    produce_one(writer, topic, BATCH)
    there, not_there = fetched_in(version, reader.receive()).partitions.values()
    assert there.records and there.error == 0
    assert not_there.error != 0
    # Nothing at all of it is there: there is nothing to wait for.
    answer = fetch(rig.client(), version, [missing], max_wait_ms=LONG_MS)
    assert answer.only.error == not_there.error


def test_consumers_of_a_topic_that_was_deleted_do_not_spin(rig: Rig) -> None:
    gone, here = rig.create("gone"), rig.create("here")
    reader = rig.client()
    session = fetch(reader, 13, [Ask(here), Ask(gone)], session=(0, 0)).session_id
    rig.delete("gone")
    for epoch in (1, 2):
        reader.send(fetch_frame(13, [], session=(session, epoch), max_wait_ms=LONG_MS))
        rig.wait_parked(1)
        rig.expire_all(reader)
        answer = fetched_in(13, reader.receive())
        unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert answer.only.error == unknown, "answered each time, and no sooner"


# --- what is named twice --------------------------------------------------------------------------


@every_version
def test_a_partition_named_very_often_is_one_partition(rig: Rig, version: int) -> None:
    topic, other = rig.create("t", partitions=2), rig.create("other")
    watches = live_counts()["watches"]
    times = 4_000
    asks = [Ask(topic, 0), Ask(topic, 1), Ask(other)]
    asks += [Ask(topic, 0, turn % 3) for turn in range(times)]
    reader = rig.client()
    reader.send(fetch_frame(version, asks, max_wait_ms=LONG_MS))
    rig.wait_parked(1)
    assert live_counts()["watches"] == watches + 3
    produce_one(rig.client(), topic, BATCH)
    _, answer = answer_in(ApiKey.FETCH, version, reader.receive())
    answered = [p.partition_index for t in answer.responses for p in t.partitions]
    assert answered == [0, 1, 0]


@every_version
def test_the_last_mention_of_a_partition_counts(rig: Rig, version: int) -> None:
    topic = rig.create("t", partitions=2)
    for _ in range(3):
        topic.logs[0].append(BATCH)
    asks = [Ask(topic, 0, 0), Ask(topic, 1), Ask(topic, 0, 2)]
    answer = fetch(rig.client(), version, asks)
    first, second = answer.partitions.values()
    assert first.records is not None and len(first.records) == len(BATCH)
    assert second.records == b""


# --- connections that go --------------------------------------------------------------------------


def waiting() -> dict[str, int]:
    """What fetches that wait keep in memory."""
    counts = live_counts()
    return {kind: counts[kind] for kind in ("parked_requests", "watches", "frame_copies")}


def test_a_fetch_ends_with_its_connection(rig: Rig) -> None:
    # Neither an append nor a deadline comes: what waited is gone because its peer is.
    topic = rig.create("t", partitions=40)
    asks = [Ask(topic, index) for index in range(40)]
    before = waiting()
    for leave in (Client.reset, Client.close):
        reader = rig.client()
        reader.send(fetch_frame(12, asks, max_wait_ms=0x7FFFFFFF))
        rig.wait_parked(1)
        leave(reader)
        eventually(lambda: rig.hot.statistics()["parked_now"] == 0, "it still waits")
        eventually(lambda: rig.total("connections") == 0, "its connection is still there")
    eventually(lambda: waiting() == before, "something stays")
    figures = rig.hot.statistics()
    assert (figures["parked_bytes"], figures["parked_left"], figures["parked_expired"]) == (0, 2, 0)


def test_a_client_that_sends_no_more_gets_its_records_at_once(rig: Rig) -> None:
    topic = rig.create("t")
    topic.logs[0].append(BATCH)
    reader = rig.client()
    frame = fetch_frame(12, [Ask(topic)], max_wait_ms=LONG_MS, min_bytes=10_000)
    reader.send(frame)
    rig.wait_parked(1)
    reader.end_sending()
    records = fetched_in(12, reader.receive()).only.records
    assert records is not None and len(records) == len(BATCH)
    assert reader.ended()
    # And so do requests that came in front of the end of the stream.
    late = rig.client()
    late.send(frame * 3)
    late.end_sending()
    for _ in range(3):
        assert fetched_in(12, late.receive()).only.records == records
    assert late.ended()


def test_a_connection_that_goes_while_none_serves(make_rig: Callable[..., Rig]) -> None:
    # All handlers sleep: the Processor calls one.
    rig = make_rig(handlers=1)
    topic = rig.create("t")
    readers = [rig.client() for _ in range(30)]
    for reader in readers:
        reader.send(fetch_frame(12, [Ask(topic)], max_wait_ms=LONG_MS))
    rig.wait_parked(30)
    for reader in readers:
        reader.reset()
    eventually(lambda: rig.hot.statistics()["parked_now"] == 0, "they still wait")
    assert rig.hot.statistics()["parked_left"] == 30


@pytest.mark.parametrize("turn", range(4))
def test_a_connection_that_goes_as_the_broker_stops(rig: Rig, turn: int) -> None:
    """The handler that is called for its fetch may be slower than the end of the queue: here it
    shares a processor with this thread, which does not pause. Four turns, since it may be fast."""
    topic = rig.create("t")
    before = waiting()
    reader = rig.client()
    reader.send(fetch_frame(12, [Ask(topic)], max_wait_ms=LONG_MS))
    rig.wait_parked(1)
    (handler,) = (thread.native_id for thread in rig.pool.threads)
    assert handler is not None
    processors = os.sched_getaffinity(0)
    for thread in (0, handler):
        os.sched_setaffinity(thread, {min(processors)})
    try:
        reader.reset()
        until = time.monotonic() + DEADLINE_S
        while rig.hot.statistics()["parked_left"] == 0:
            assert time.monotonic() < until, "its end is not seen"
        rig.server.close_queue()
    finally:
        os.sched_setaffinity(0, processors)
    rig.stop()
    assert waiting() == before


# --- how much may wait ----------------------------------------------------------------------------


def test_memory_of_waiting_fetches_is_counted_and_given_back(rig: Rig) -> None:
    topic = rig.create("t", partitions=10)
    reader = rig.client()
    reader.send(fetch_frame(12, [Ask(topic, i) for i in range(10)], max_wait_ms=LONG_MS))
    rig.wait_parked(1)
    assert 10 * 50 < rig.hot.statistics()["parked_bytes"] < 10 * 100 + 1000
    rig.expire_all(reader)
    fetched_in(12, reader.receive())
    eventually(lambda: rig.hot.statistics()["parked_bytes"] == 0, "the rest is kept")


@pytest.mark.parametrize("hours", [0.01, 0.1, 1, 24, 500])
def test_deadlines_of_long_waits_are_spread_over_the_buckets(hours: float) -> None:
    """Of 100,000 that end in the same quarter of an hour no bucket has many."""
    wait_ms = int(hours * 3_600_000)
    width = 1
    while wait_ms >= width * 4 * 256:
        width *= 2
    ticks = {(10**9 + wait_ms + ms) // 4 // width * width for ms in range(0, 900_000, 9)}
    buckets = Counter(bucket_of(tick) for tick in ticks)
    assert max(buckets.values()) <= 1 + len(ticks) // 100


def test_a_frame_that_is_longer_than_it_needs_to_be_is_not_kept(rig: Rig) -> None:
    """A few of them would take the room of all clients that wait."""
    topic = rig.create("t")
    padded, plain = rig.client(), rig.client()
    before = rig.hot.statistics()["parked_bytes"]
    ask = [Ask(topic, 0, 0)]
    padded.send(fetch_frame(12, ask, max_wait_ms=600_000, rack="r" * 30_000))
    plain.send(fetch_frame(12, ask, max_wait_ms=600_000))
    eventually(lambda: rig.hot.statistics()["parked_now"] == 2, "both wait")
    long = rig.client()
    long.send(fetch_frame(12, ask, max_wait_ms=600_000, rack="r" * 300_000))
    long.receive()  # at once
    assert rig.hot.statistics()["parked_now"] == 2
    assert rig.hot.statistics()["parked_bytes"] < before + 64_000
