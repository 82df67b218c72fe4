"""flush.messages, flush.ms and what of a log is on the disk; deleted files by the clock."""

from __future__ import annotations

import errno
import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from kbroker.clock import ManualClock
from kbroker.config.key import LONG_MAX
from kbroker.log.engine._flush_times import FlushTimes
from kbroker.log.engine.checkpoints import RECOVERY_POINT_FILE
from kbroker.log.upkeep._scrub import SegmentScrub
from kbroker.testing.file_faults import Fault, FileFaults
from tests.support.led_log import LedLog, LedLogManager
from tests.support.record_batches import build_batch
from tests.unit.log.conftest import OpenLog
from tests.unit.net.harness import eventually

TOPIC = uuid.UUID(int=1)
HOUR_MS = 3_600_000
SLOW_MS = 2000
THREE = build_batch([b"a", b"b", b"c"])


def counted(log: LedLog) -> Callable[[], int]:
    """How many flushes of this log there have been since."""
    times = FlushTimes()
    log.count_flushes(times)
    return lambda: times.read(())[0]


# --- By the number of records ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("messages", "points"),
    [
        (1, [3, 6, 9, 12]),
        (3, [3, 6, 9, 12]),
        (4, [0, 6, 6, 12]),
        (12, [0, 0, 0, 12]),
        (13, [0, 0, 0, 0]),
        (LONG_MAX, [0, 0, 0, 0]),
    ],
)
def test_the_append_that_reaches_the_number_flushes(
    open_log: OpenLog, messages: int, points: list[int]
) -> None:
    log = open_log(flush_messages=messages)
    flushes = counted(log)
    seen = []
    for end in (3, 6, 9, 12):
        log.append(THREE)
        seen.append(log.recovery_point)
        # Whether flushed or not: what is answered can be read.
        assert log.high_watermark == log.log_end_offset == end
    assert seen == points
    assert flushes() == len(set(points) - {0})


def test_a_changed_number_holds_from_the_next_append(open_log: OpenLog) -> None:
    log = open_log()
    log.append(THREE)
    log.configure(flush_messages=5)
    assert log.recovery_point == 0
    log.append(THREE)
    assert log.recovery_point == 6
    log.configure()
    log.append_group([THREE] * 10)
    assert log.recovery_point == 6


def test_a_group_is_one_flush(open_log: OpenLog) -> None:
    log = open_log(flush_messages=1, segment_bytes=len(THREE) * 2)
    flushes = counted(log)
    log.append_group([THREE] * 5)
    assert log.statistics()["rolls"] == 2
    assert (log.recovery_point, log.high_watermark, flushes()) == (15, 15, 1)


def test_a_follower_flushes_nothing(open_log: OpenLog) -> None:
    log = open_log(flush_messages=1, lead=False)
    flushes = counted(log)
    assert log.append_group([THREE])[0].error
    assert flushes() == 0


def test_the_high_watermark_of_followers_is_left_alone(open_log: OpenLog) -> None:
    log = open_log(flush_messages=1)
    log.append(THREE)
    log.set_leadership(1, True, 1, 2, {2: True})
    log.append(THREE)
    assert (log.recovery_point, log.high_watermark) == (6, 3)


# --- What is on the disk, and with it -------------------------------------------------------------


def test_indexes_of_the_active_segment_are_settled_by_a_clean_stop(open_log: OpenLog) -> None:
    log = open_log(flush_messages=1, segment_bytes=len(THREE) * 3)
    for _ in range(2):
        log.append(THREE)
    assert (log.recovery_point, log.settled_offset) == (6, 0)
    for _ in range(2):
        log.append(THREE)  # the second of them rolls, and settles the full segment
    assert (log.recovery_point, log.settled_offset, log.active_base_offset) == (12, 9, 9)
    assert not log.flush_rolled()
    flushes = counted(log)
    log.close()
    assert flushes() == 1


def test_a_start_after_a_crash_reads_from_the_recovery_point_on(open_log: OpenLog) -> None:
    settings = {"flush_messages": 1, "segment_bytes": len(THREE) * 3}
    log = open_log(**settings)
    for _ in range(7):
        log.append(THREE)
    point = log.recovery_point
    log.close(clean=False)
    assert point == 21
    first, second, active = sorted(log.path.glob("*.log"))
    for path in (first, second):  # what is not read is not noticed
        damaged = bytearray(path.read_bytes())
        damaged[-1] ^= 1
        path.write_bytes(damaged)
    log = open_log(recovery_point=point, **settings)
    assert (log.log_end_offset, log.recovery_point) == (21, 21)
    log.close(clean=False)
    damaged = bytearray(active.read_bytes())
    damaged[-1] ^= 1
    active.write_bytes(damaged)
    assert open_log(recovery_point=point, **settings).log_end_offset == 18


# --- While the log changes ------------------------------------------------------------------------


def flushing(log: LedLog, faults: FileFaults) -> threading.Thread:
    """A flush that is at the disk; the log's lock is free."""
    thread = threading.Thread(target=log.flush)
    thread.start()
    eventually(lambda: any(seen.operation == "sync" for seen in faults.look()), "it syncs")
    return thread


def test_a_segment_that_leaves_the_log_meanwhile_is_no_fault(open_log: OpenLog) -> None:
    """DeleteRecords, and the files lose their names: nothing of them has to be on the disk."""
    log = open_log(segment_bytes=len(THREE))
    for _ in range(3):
        log.append(THREE)
    failed: list[BaseException] = []
    with FileFaults(Fault(("sync",), delay_ms=SLOW_MS)) as faults:
        hook, threading.excepthook = threading.excepthook, lambda e: failed.append(e.exc_value)
        try:
            flush = flushing(log, faults)
            log.delete_records(6)
            assert log.trim()
            flush.join()
        finally:
            threading.excepthook = hook
    assert failed == []
    assert (log.online, log.recovery_point) == (True, 9)


def test_a_sync_before_a_cut_does_not_count_for_later_records(
    open_log: OpenLog,
) -> None:
    log = open_log()
    for _ in range(3):
        log.append(THREE)
    with FileFaults(Fault(("sync",), delay_ms=SLOW_MS)) as faults:
        flush = flushing(log, faults)
        log.truncate_to(3)
        for _ in range(3):
            log.append(THREE)
        flush.join()
    assert log.recovery_point == 0
    assert log.flush() == 12


# --- By the clock ---------------------------------------------------------------------------------


class Managed:
    """A manager whose clock is turned by hand; the log's own times are the machine's."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.clock = ManualClock()
        self.manager = LedLogManager([path], clock=self.clock, segment_delete_delay_ms=HOUR_MS)
        self.manager.start()

    def open(self, index: int = 0, **settings: int) -> LedLog:
        log = self.manager.open("a", index, TOPIC, settings)
        log.set_leadership(1, True, 0, 1)
        self.clock.advance(max(0, log.flushed_ms - self.clock.monotonic_ms()))
        return log

    def flush_old(self) -> None:
        for _ in self.manager.flush_old():
            pass

    def removed(self, paths: list[Path]) -> list[bool]:
        for _ in self.manager.remove_deleted():
            pass
        return [not path.exists() for path in paths]

    def points(self) -> str:
        for _ in self.manager.checkpoint_recovery_points():
            pass
        return (self.path / RECOVERY_POINT_FILE).read_text()


@pytest.fixture
def managed(tmp_path: Path) -> Iterator[Managed]:
    one = Managed(tmp_path / "data")
    yield one
    one.manager.stop()


def test_flushes_are_counted_where_the_log_belongs(managed: Managed, tmp_path: Path) -> None:
    other = Managed(tmp_path / "another")
    managed.open().append(THREE)
    managed.manager.stop()
    assert managed.manager.flush_times.read(())[0] == 1
    assert other.manager.flush_times.read(())[0] == 0
    other.manager.stop()


def test_records_that_wait_longer_than_flush_ms_are_flushed(managed: Managed) -> None:
    log = managed.open(flush_ms=2 * HOUR_MS)
    never = managed.open(1)
    for each in (log, never):
        each.append(THREE)
    managed.clock.advance(HOUR_MS)
    managed.flush_old()
    assert log.recovery_point == 0
    managed.clock.advance(HOUR_MS + HOUR_MS // 2)
    managed.flush_old()
    assert (log.recovery_point, never.recovery_point) == (3, 0)
    flushes = counted(log)
    managed.flush_old()
    assert flushes() == 0  # there is nothing that waits
    log.append(THREE)
    managed.flush_old()
    assert log.recovery_point == 6  # the last flush is as old as the hand of this clock says
    never.configure(flush_ms=0)
    managed.flush_old()
    assert never.recovery_point == 3


def test_recovery_points_are_written_where_a_start_finds_them(managed: Managed) -> None:
    log = managed.open(flush_messages=1)
    other = managed.open(1)
    for each in (log, other):
        each.append(THREE)
    # Only these batches tell of the leader epoch as long as its file is not on the disk.
    assert managed.points() == "0\n2\na 0 0\na 1 0\n"
    for _ in managed.manager.checkpoint():
        pass
    assert managed.points() == "0\n2\na 0 3\na 1 0\n"


def test_segments_go_by_their_topic_and_directories_by_the_broker(managed: Managed) -> None:
    quick = managed.open(0, segment_bytes=len(THREE), file_delete_delay_ms=1_000)
    slow = managed.open(1, segment_bytes=len(THREE), file_delete_delay_ms=2 * HOUR_MS)
    for log in (quick, slow):
        log.append(THREE)
        log.append(THREE)
        log.delete_records(3)
    for _ in managed.manager.checkpoint():
        pass
    files = [next(log.path.glob("*.log.deleted")) for log in (quick, slow)]
    assert managed.removed(files) == [False, False]
    managed.clock.advance(1_000)
    assert managed.removed(files) == [True, False]
    managed.manager.delete(quick)
    (directory,) = managed.path.glob("*-delete")
    managed.clock.advance(2_000)
    assert managed.removed([directory]) == [False]
    managed.manager.removals.delay_ms = 1_000  # holds for files that wait already
    assert managed.removed([directory, files[1]]) == [True, False]
    managed.clock.advance(2 * HOUR_MS)
    assert managed.removed(files) == [True, True]


def test_records_that_a_failed_sync_has_lost_come_back_with_no_later_one(managed: Managed) -> None:
    """The kernel says yes the next time, to any caller; the log is offline by then."""
    log = managed.open(segment_bytes=400)
    for _ in range(12):
        log.append(build_batch([b"." * 26]))
    with FileFaults(Fault(("sync",), ".log", error=errno.EIO)):
        for _ in range(2):
            for _ in managed.manager.checkpoint():
                pass
    assert not log.online and log.recovery_point == 0
    assert "a 0 0" in managed.points()
    with pytest.raises(OSError, match="Input/output error"):
        log.flush()  # a waiting caller gets an error


def refused(work: Callable[[], object]) -> None:
    with pytest.raises(OSError, match="Input/output error"):
        work()


def overtaken(work: Callable[[], object], first_work: Callable[[], object]) -> None:
    """The kernel reports the lost pages to the first, which gets it late, and says yes to the
    second."""
    flushed: list[bool] = []

    def first() -> None:
        refused(first_work)
        flushed.append(True)

    with FileFaults(Fault(("sync",), ".log", error=errno.EIO, delay_ms=200)) as faults:
        thread = threading.Thread(target=first)
        thread.start()
        eventually(lambda: any(seen.operation == "sync" for seen in faults.look()), "it syncs")
        work()
        thread.join()
    assert flushed == [True]


def test_a_flush_that_overtakes_a_failed_one_moves_nothing(open_log: OpenLog) -> None:
    log = open_log()
    log.append(THREE)
    overtaken(lambda: refused(log.flush), log.flush)
    assert (log.online, log.recovery_point) == (False, 0)


def test_records_that_an_overtaking_flush_may_have_lost_are_not_read(open_log: OpenLog) -> None:
    log = open_log(flush_messages=1)
    overtaken(lambda: refused(lambda: log.append(THREE)), lambda: log.append(THREE))
    assert (log.online, log.recovery_point, log.high_watermark) == (False, 0, 0)


@pytest.mark.parametrize("what", ["cut", "repair"])
def test_syncs_of_cuts_and_repairs_count_as_well(open_log: OpenLog, what: str) -> None:
    log = open_log(segment_bytes=2 * len(THREE))
    for _ in range(3):
        log.append(THREE)

    def repair() -> None:
        scrub = SegmentScrub(log.log, 0)
        log.restore(scrub, 0, log.read(0)[: len(THREE)])

    def flush() -> None:
        with suppress(OSError):  # a log that could not be cut is closed, and has nothing to flush
            log.flush()

    overtaken(flush, repair if what == "repair" else lambda: log.truncate_to(6))
    assert (log.online, log.recovery_point) == (False, 0)


def test_flushes_that_end_together_do_not_wait_for_each_other(open_log: OpenLog) -> None:
    log = open_log(flush_messages=1)
    with FileFaults(Fault(("sync",), ".log", times=8, delay_ms=20)):
        threads = [threading.Thread(target=log.append, args=(THREE,)) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(30)
    assert (log.recovery_point, log.high_watermark) == (24, 24)
