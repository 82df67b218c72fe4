"""Readers of committed records: where they stop, which aborted transactions are in their answers,
and the events that wake them."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from typing import Any, Final

import pytest

from kbroker.errors import ErrorCode
from kbroker.log.opening.loader import Checkpointed
from kbroker.testing.file_faults import FOREVER, Fault, FileFaults
from tests.support.led_log import LedLog, open_led_log
from tests.support.record_batches import Record, build_batch
from tests.unit.engine.following import LONG_MS, follow, replicated
from tests.unit.engine.wire import (
    FETCH_VERSIONS,
    SESSION_VERSIONS,
    Ask,
    Fetched,
    fetch,
    fetch_frame,
    fetched_in,
)
from tests.unit.net.harness import NODE_ID, Client, Rig, Topic

TRANSACTIONAL: Final = 0x10
NO_GUARD: Final = -1
RECORD_MS: Final = Record().timestamp_ms  # no log rolls for its time
every_version = pytest.mark.parametrize("version", FETCH_VERSIONS)
PLAIN: Final = build_batch([b"plain"])
STOPPED_IN_ORDER: Final = Checkpointed(clean=True)


def write(log: LedLog, producer: int, *, epoch: int = 0, sequence: int = 0, size: int = 10) -> int:
    """Two records of a transaction; the offset of the first."""
    batch = build_batch(
        [b"v" * size] * 2, producer_id=producer, producer_epoch=epoch, base_sequence=sequence,
        attributes=TRANSACTIONAL,
    )  # fmt: skip
    return log.append(batch, acks=-1, guard=NO_GUARD).base_offset


def end(log: LedLog, producer: int, *, committed: bool, epoch: int = 0) -> None:
    log.append_marker(
        producer, epoch, 0, committed=committed, transaction_version=1, now_ms=RECORD_MS
    )


def aborted(fetched: Fetched) -> list[tuple[int, int]] | None:
    if fetched.aborted is None:
        return None
    listed: Any = fetched.aborted
    return [(each.producer_id, each.first_offset) for each in listed]


def ask(rig: Rig, topic: Topic, offset: int = 0, version: int = 12, **options: Any) -> Fetched:
    options = {"read_committed": True} | options
    return fetch(rig.client(), version, [Ask(topic, 0, offset)], **options).only


def parked(rig: Rig, topic: Topic, offset: int, *, count: int = 1, **options: Any) -> Client:
    options = {"read_committed": True, "max_wait_ms": LONG_MS} | options
    reader = rig.client()
    reader.send(fetch_frame(12, [Ask(topic, 0, offset)], **options))
    rig.wait_parked(count)
    return reader


# --- where it stops -------------------------------------------------------------------------------


@every_version
def test_an_open_transaction_is_where_it_stops(rig: Rig, version: int) -> None:
    topic = rig.create("t")
    (log,) = topic.logs
    log.append(PLAIN)
    assert write(log, 7) == 1
    log.append(PLAIN)
    got = ask(rig, topic, version=version)
    assert (got.error, got.high_watermark, got.last_stable_offset) == (0, 4, 1)
    assert got.records == log.read(0, 1 << 20)[: len(PLAIN)]
    assert aborted(got) == []
    for offset in (1, 2, 4):
        got = ask(rig, topic, offset, version)
        assert (got.error, got.records or b"", got.last_stable_offset) == (0, b"", 1)
        assert aborted(got) == []
    whole = ask(rig, topic, version=version, read_committed=False)
    assert (whole.last_stable_offset, aborted(whole)) == (1, None)
    assert whole.records == log.read(0, 1 << 20)
    end(log, 7, committed=True)
    got = ask(rig, topic, version=version)
    assert (got.last_stable_offset, got.high_watermark) == (5, 5)
    assert got.records == log.read(0, 1 << 20)
    assert aborted(got) == []


@every_version
def test_aborted_transactions_are_listed(rig: Rig, version: int) -> None:
    topic = rig.create("t")
    (log,) = topic.logs
    for producer in (7, 8, 9):
        write(log, producer)
    end(log, 8, committed=False)  # 2 to 6
    end(log, 7, committed=False)  # 0 to 7
    end(log, 9, committed=True)
    got = ask(rig, topic, version=version)
    assert sorted(aborted(got) or []) == [(7, 0), (8, 2)]
    assert got.records == log.read(0, 1 << 20)
    assert aborted(ask(rig, topic, 7, version)) == [(7, 0)]
    assert aborted(ask(rig, topic, 8, version)) == []
    assert aborted(ask(rig, topic, version=version, read_committed=False)) is None


def from_before_a_start(rig: Rig, topic: Topic) -> None:
    """The topic's log is opened again, as after a stop in order."""
    (log,) = topic.logs
    log.close()
    again = open_led_log(
        rig.directory / f"{topic.name}-0", topic.name, 0, topic.topic_id, {}, STOPPED_IN_ORDER
    )
    again.set_leadership(NODE_ID, True, 0, 1)
    topic.logs[0] = again
    rig.table.publish([(topic.name, topic.topic_id.bytes, False, [again])], [])


@pytest.mark.parametrize("nth", [1, 2, 3])
def test_records_that_are_not_in_memory_come_with_the_list(rig: Rig, nth: int) -> None:
    """Batches from before a start are looked at before they are sent. The look has to wait for the
    disk here, and the first reads of it do not."""
    topic = rig.create("t")
    for producer in range(3):
        write(topic.logs[0], producer, size=5000)
        end(topic.logs[0], producer, committed=False)
    from_before_a_start(rig, topic)
    cold = Fault(("read_now",), ".log", nth=nth, times=FOREVER, error=errno.EAGAIN)
    with FileFaults(cold):
        got = ask(rig, topic)
    assert aborted(got) == [(0, 0), (1, 3), (2, 6)]
    assert got.records == topic.logs[0].read(0, 1 << 20)


def test_an_entry_of_the_list_is_in_memory_by_half(rig: Rig) -> None:
    """A page of the index ends within an entry, and the next page is not in memory."""
    topic = rig.create("t")
    for producer in range(3):
        write(topic.logs[0], producer)
        end(topic.logs[0], producer, committed=False)
    half = Fault(("read_now",), ".txnindex", bytes_max=16)
    cold = Fault(("read_now",), ".txnindex", times=FOREVER, error=errno.EAGAIN)
    with FileFaults(half, cold):
        got = ask(rig, topic)
    assert aborted(got) == [(0, 0), (1, 3), (2, 6)]


def test_without_its_entries_no_record_is_sent(rig: Rig) -> None:
    topic = rig.create("t")
    write(topic.logs[0], 7)
    end(topic.logs[0], 7, committed=False)
    os.truncate(rig.directory / "t-0" / f"{0:020d}.txnindex", 0)
    got = ask(rig, topic)
    assert (got.error, got.records or b"") == (ErrorCode.KAFKA_STORAGE_ERROR, b"")


def test_the_list_is_of_the_returned_records(rig: Rig) -> None:
    """A transaction that begins after the records of an answer may be left out, no other one."""
    topic = rig.create("t")
    (log,) = topic.logs
    for producer in range(100):
        write(log, producer, size=5000)
        end(log, producer, committed=False)
    for first in range(0, 300, 30):
        got = ask(rig, topic, first, max_bytes=40_000)
        assert got.records is not None
        read = len(got.records) * 300 // len(log.read(0, 8 << 20))
        listed = dict(aborted(got) or [])
        covered = {offset // 3 for offset in range(first, min(first + read + 1, 300))}
        assert set(listed) >= covered
        assert all(listed[producer] == 3 * producer for producer in listed)
        assert min(listed) >= first // 3


@pytest.mark.parametrize("version", SESSION_VERSIONS)
def test_in_a_session(rig: Rig, version: int) -> None:
    topic = rig.create("t")
    (log,) = topic.logs
    write(log, 7)
    client = rig.client()
    options: dict[str, Any] = {"read_committed": True, "max_wait_ms": 0}
    answer = fetch(client, version, [Ask(topic)], session=(0, 0), **options)
    assert answer.only.records in (b"", None)
    session = answer.session_id
    assert session > 0
    end(log, 7, committed=False)
    answer = fetch(client, version, [], session=(session, 1), **options)
    assert answer.only.records == log.read(0, 1 << 20)
    assert aborted(answer.only) == [(7, 0)]


def test_of_several_partitions_each_has_its_own(rig: Rig) -> None:
    topic = rig.create("t", 3)
    for index, log in enumerate(topic.logs):
        for producer in range(index):
            write(log, producer)
            end(log, producer, committed=False)
        log.append(PLAIN)
    answer = fetch(rig.client(), 12, [Ask(topic, index) for index in range(3)], read_committed=True)
    got = [aborted(each) for each in answer.partitions.values()]
    assert got == [[], [(0, 0)], [(0, 0), (1, 3)]]


@pytest.mark.parametrize("inline_bytes", [0, 1 << 20])
def test_by_sendfile_and_from_memory(make_rig: Callable[..., Rig], inline_bytes: int) -> None:
    rig = make_rig(hot={"inline_range_bytes": inline_bytes})
    topic = rig.create("t")
    (log,) = topic.logs
    write(log, 7, size=100_000)
    end(log, 7, committed=False)
    write(log, 8, size=100_000)
    got = ask(rig, topic)
    assert got.records == log.read(0, 8 << 20, read_committed=True)
    assert aborted(got) == [(7, 0)]


# --- a replica that follows -----------------------------------------------------------------------


def test_a_follower_serves_to_its_own_last_stable_offset(rig: Rig) -> None:
    source = rig.create("source")
    for producer, committed in ((7, False), (8, True)):
        write(source.logs[0], producer)
        end(source.logs[0], producer, committed=committed)
    write(source.logs[0], 9)
    topic = rig.create("t")
    (log,) = topic.logs
    log.set_leadership(2, False, 0, 1)
    log.append_as_follower(source.logs[0].read(0, 1 << 20), 0)
    log.follow_bounds(0, 4, 0)  # high watermark 4: the second transaction is not complete here
    got = ask(rig, topic, version=17)
    assert (got.high_watermark, got.last_stable_offset) == (4, 3)
    assert aborted(got) == [(7, 0)]
    log.follow_bounds(0, 8, 0)
    got = ask(rig, topic, version=17)
    assert (got.high_watermark, got.last_stable_offset) == (8, 6)


# --- what wakes -----------------------------------------------------------------------------------


def test_the_end_of_a_transaction_wakes_and_the_high_watermark_does_not(rig: Rig) -> None:
    topic = rig.create("t")
    (log,) = topic.logs
    write(log, 7)
    reader = parked(rig, topic, 0)
    write(log, 7, sequence=2)
    log.append(PLAIN)
    rig.hot.wake(log)
    assert rig.hot.statistics()["parked_now"] == 1
    end(log, 7, committed=True)
    rig.hot.wake(log)
    got = fetched_in(12, reader.receive()).only
    assert got.records == log.read(0, 1 << 20)


def test_a_marker_wakes_once_the_followers_have_it(rig: Rig) -> None:
    topic = replicated(rig)
    (log,) = topic.logs
    write(log, 7)
    follow(rig, log)
    reader = parked(rig, topic, 0)
    end(log, 7, committed=False)
    rig.hot.wake(log)
    assert rig.hot.statistics()["parked_now"] == 1
    follow(rig, log)
    got = fetched_in(12, reader.receive()).only
    assert (got.last_stable_offset, aborted(got)) == (3, [(7, 0)])


def test_a_fetch_at_the_last_stable_offset_does_not_spin_over_segments(rig: Rig) -> None:
    """The high watermark is in a later segment: a reader up to it would be answered at once."""
    topic = rig.create("t")
    (log,) = topic.logs
    write(log, 7)
    log.roll()
    log.append(PLAIN)
    reader = parked(rig, topic, 0)
    log.append(PLAIN)
    rig.hot.wake(log)
    assert rig.hot.statistics()["parked_now"] == 1
    end(log, 7, committed=True)
    rig.hot.wake(log)
    assert fetched_in(12, reader.receive()).only.records


def test_a_reader_of_everything_waits_for_no_transaction(rig: Rig) -> None:
    topic = rig.create("t")
    (log,) = topic.logs
    write(log, 7)
    reader = parked(rig, topic, 2, read_committed=False)
    log.append(PLAIN)
    rig.hot.wake(log)
    assert fetched_in(12, reader.receive()).only.records


def test_another_leader_ends_the_wait(rig: Rig) -> None:
    topic = rig.create("t")
    (log,) = topic.logs
    write(log, 7)
    reader = rig.client()
    asks = [Ask(topic, leader_epoch=0)]
    reader.send(fetch_frame(12, asks, read_committed=True, max_wait_ms=LONG_MS))
    rig.wait_parked(1)
    log.set_leadership(NODE_ID + 1, False, 1, 1)
    rig.hot.wake(log)
    assert fetched_in(12, reader.receive()).only.error == ErrorCode.FENCED_LEADER_EPOCH
