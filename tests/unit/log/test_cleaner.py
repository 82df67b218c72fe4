"""Compaction: which log, how far, and that of every key the last record stays, whatever happens."""

from __future__ import annotations

import errno
import math
import threading
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from kbroker.clock import ManualClock
from kbroker.config.key import LONG_MAX
from kbroker.log.engine import file_operations
from kbroker.log.engine._results import SegmentFigures
from kbroker.log.engine.checkpoints import read_offsets
from kbroker.log.engine.partition_log import Compaction, PartitionLog
from kbroker.log.looking._describe import segment_figures
from kbroker.log.looking.verify import verify
from kbroker.log.upkeep import cleaner as cleaner_module
from kbroker.log.upkeep._cleaning import Cleaning
from kbroker.log.upkeep.cleanable import Cleanable, look
from kbroker.log.upkeep.cleaner import CleanerSettings, LogCleaner
from kbroker.own_thread import OwnThread
from kbroker.protocol.record_batch import decode_batches
from kbroker.types import TopicPartition
from tests.support.led_log import LedLog, LedLogManager
from tests.support.record_batches import Record, build_batch, compress, varint
from tests.unit.log.compaction_model import run

TOPIC = uuid.UUID(int=4)
SETTINGS: dict[str, Any] = {"segment_bytes": 2_000, "compacted": True}
HOUR_MS = 3_600_000


@pytest.mark.parametrize("seed", range(60))
def test_against_a_plain_list(seed: int) -> None:
    run(seed)


# --- Which, and how far ---------------------------------------------------------------------------


def figures(*segments: tuple[int, int, int, int]) -> list[SegmentFigures]:
    return [SegmentFigures(*segment) for segment in segments]


SEGMENTS = figures(
    (0, 100, 1_000, 2_000), (10, 100, 2_000, 3_000), (20, 200, 3_000, 4_000), (30, 50, 4_000, 5_000)
)


def test_the_active_segment_and_records_that_are_not_replicated_stay() -> None:
    rules = Compaction()
    assert look(SEGMENTS, 0, 35, 0, 99, rules, 9_000) == Cleanable(0, 30, 0, 400, 0)
    assert look(SEGMENTS, 0, 35, 10, 29, rules, 9_000) == Cleanable(10, 20, 100, 100, 0)
    assert look(SEGMENTS, 0, 35, 30, 99, rules, 9_000) == Cleanable(30, 30, 400, 0, 0)
    assert look(SEGMENTS[:1], 0, 9, 0, 99, rules, 9_000) == Cleanable(0, 0, 0, 0, 0)
    # A checkpoint of another log, or from before a cut.
    assert look(SEGMENTS, 5, 35, 40, 99, rules, 9_000).first_dirty == 5


def test_young_records_wait() -> None:
    rules = Compaction(lag_min_ms=6_000)
    assert look(SEGMENTS, 0, 35, 0, 99, rules, 9_999).end == 20  # 4,000 is younger than 3,999
    assert look(SEGMENTS, 0, 35, 0, 99, rules, 10_000).end == 30
    assert look(SEGMENTS, 0, 35, 20, 99, rules, 5_000) == Cleanable(20, 20, 200, 0, 0)


def test_it_is_worth_it_by_its_ratio_or_by_its_age() -> None:
    half = Compaction(dirty_ratio_min=0.5)
    assert look(SEGMENTS, 0, 35, 0, 99, half, 9_000).worth_it(half)
    assert not look(SEGMENTS, 0, 35, 20, 99, half, 9_000).worth_it(half)  # 200 of 400
    late = Compaction(dirty_ratio_min=0.5, lag_max_ms=5_000)
    assert look(SEGMENTS, 0, 35, 20, 99, late, 8_000).late_ms == 0
    assert look(SEGMENTS, 0, 35, 20, 99, late, 8_001).worth_it(late)
    assert not look(SEGMENTS, 0, 35, 30, 99, late, LONG_MAX).worth_it(late)  # nothing is dirty


# --- The cleaner ----------------------------------------------------------------------------------


class Cleaners:
    """A log manager, its cleaner, and a clock that both look at."""

    def __init__(self, data: Path) -> None:
        self.data = data
        self.clock = ManualClock()
        self.settings = CleanerSettings()
        self._open()

    def _open(self) -> None:
        self.logs = LedLogManager([self.data], clock=self.clock)
        self.logs.start()
        self.stopping = threading.Event()
        self.cleaner = LogCleaner(self.logs, lambda: self.settings, self.clock, self.stopping)

    def open(self, topic: str = "words", **settings: Any) -> LedLog:
        log = self.logs.open(topic, 0, TOPIC, {**SETTINGS, **settings})
        log.set_leadership(1, True, 1, 1)
        return log

    def again(self) -> None:
        self.logs.stop()
        self._open()


@pytest.fixture
def cleaners(tmp_path: Path) -> Iterator[Cleaners]:
    made = Cleaners(tmp_path / "data")
    yield made
    made.cleaner.stop()
    made.logs.stop()


def fill(log: LedLog, batches: int = 30, keys: int = 4) -> None:
    for number in range(batches):
        record = Record(b"value %d" % number + b"." * 100, b"key %d" % (number % keys))
        assert log.append(build_batch([record])).error == 0


def held(log: LedLog) -> list[tuple[int, bytes | None]]:
    found, offset = [], log.log_start_offset
    while offset < log.log_end_offset:
        for batch in decode_batches(log.read(offset)):
            found += [(record.offset, record.key) for record in batch.records]
            offset = batch.last_offset + 1
    return found


def test_the_dirtiest_log_first(cleaners: Cleaners) -> None:
    little, much = cleaners.open("little"), cleaners.open("much")
    cleaners.open("plain", compacted=False)
    for log, batches in ((little, 40), (much, 40)):
        fill(log, batches)
    assert cleaners.cleaner.clean_dirtiest()
    assert cleaners.cleaner.clean_dirtiest()
    assert not cleaners.cleaner.clean_dirtiest()  # both are clean
    fill(much, 100)
    fill(little, 60)
    before = little.cleaned_to
    assert cleaners.cleaner.clean_dirtiest()
    assert little.cleaned_to == before
    assert cleaners.cleaner.clean_dirtiest()
    assert little.cleaned_to > before
    assert cleaners.cleaner.figures.cleanings == 4
    for log in (little, much):
        # All of the active segment, and one of each key that it does not hold before it.
        assert len(held(log)) < 40
        assert {key for _, key in held(log)} == {b"key %d" % n for n in range(4)}


def test_how_far_it_came_is_known_to_a_later_start(cleaners: Cleaners) -> None:
    log = cleaners.open()
    fill(log)
    assert cleaners.cleaner.clean_dirtiest()
    cleaned_to = log.cleaned_to
    assert cleaned_to == log.active_base_offset
    checkpoint = cleaners.data / "cleaner-offset-checkpoint"
    assert read_offsets(checkpoint) == {TopicPartition("words", 0): cleaned_to}
    records = held(log)
    cleaners.again()
    log = cleaners.open()
    assert log.cleaned_to == cleaned_to
    assert held(log) == records
    assert not cleaners.cleaner.clean_dirtiest()


def test_a_cut_makes_a_clean_part_of_the_rest_alone(cleaners: Cleaners) -> None:
    log = cleaners.open()
    fill(log)
    assert cleaners.cleaner.clean_dirtiest()
    log.set_leadership(2, False, 2, 1)
    log.truncate_to(12)
    checkpoint = cleaners.data / "cleaner-offset-checkpoint"
    # At once: a later start would take for clean what is written there by then.
    assert read_offsets(checkpoint) == {TopicPartition("words", 0): log.log_end_offset}
    assert log.cleaned_to == log.log_end_offset <= 12


def test_all_of_it_at_once(cleaners: Cleaners) -> None:
    log = cleaners.open()
    fill(log, 10)
    cleaners.cleaner.clean_all()
    assert held(log) == [(6, b"key 2"), (7, b"key 3"), (8, b"key 0"), (9, b"key 1")]
    assert log.log_end_offset == 10


def test_tombstones_go_a_retention_after_their_first_cleaning(cleaners: Cleaners) -> None:
    log = cleaners.open(compaction=Compaction(delete_retention_ms=HOUR_MS))
    fill(log, 4)
    log.append(build_batch([Record(None, b"key 1"), Record(b"kept", b"key 2")], codec="zstd"))
    cleaners.cleaner.clean_all()
    assert held(log) == [(0, b"key 0"), (3, b"key 3"), (4, b"key 1"), (5, b"key 2")]
    cleaners.clock.advance(HOUR_MS - 1)
    cleaners.cleaner.clean_all()
    assert (4, b"key 1") in held(log)
    cleaners.clock.advance(1)
    fill(log, 1)
    cleaners.cleaner.clean_all()
    assert held(log) == [(3, b"key 3"), (5, b"key 2"), (6, b"key 0")]


@pytest.mark.parametrize("codec", ["none", "zstd"])
def test_a_null_value_written_with_more_bytes_is_a_tombstone(
    cleaners: Cleaners, codec: str
) -> None:
    """As Apache Kafka's classes have it: -1 is `01`, `81 00` and `81 80 80 80 70`."""
    log = cleaners.open(compaction=Compaction(delete_retention_ms=HOUR_MS))
    for length in (b"\x81\0", b"\x81\x80\x80\x80\x70"):
        body = b"\0\0\0" + varint(1) + b"k" + length + b"\0"
        payload = compress(codec, varint(len(body)) + body)
        log.append(build_batch([b""], codec=codec, payload=payload))
    fill(log, 1)
    cleaners.cleaner.clean_all()
    assert held(log) == [(1, b"k"), (2, b"key 0")]
    cleaners.clock.advance(HOUR_MS)
    fill(log, 1)
    cleaners.cleaner.clean_all()
    assert held(log) == [(3, b"key 0")]


@pytest.mark.parametrize("codec", ["none", "zstd"])
def test_a_value_length_written_with_more_bytes_stays_as_it_is(
    cleaners: Cleaners, codec: str
) -> None:
    """In a batch that is written anew: its first record is replaced by the second batch's."""
    log = cleaners.open()
    bodies = [
        b"\0\0" + varint(at) + varint(len(key)) + key + length + b"ab\0"
        for at, (key, length) in enumerate(
            ((b"key 0", b"\x04"), (b"two", b"\x84\0"), (b"five", b"\x84\x80\x80\x80\x70"))
        )
    ]
    payload = compress(codec, b"".join(varint(len(body)) + body for body in bodies))
    log.append(build_batch([b""] * 3, codec=codec, payload=payload))
    fill(log, 1)
    cleaners.cleaner.clean_all()
    assert held(log) == [(1, b"two"), (2, b"five"), (3, b"key 0")]
    batch, _ = decode_batches(log.read(0))
    assert [record.value for record in batch.records] == [b"ab", b"ab"]
    if codec == "none":
        assert b"\x84\0ab" in log.read(0) and b"\x84\x80\x80\x80\0ab" in log.read(0)


def test_old_files_are_removed(cleaners: Cleaners) -> None:
    log = cleaners.open(file_delete_delay_ms=0)
    fill(log)
    cleaners.cleaner.clean_all()
    cleaners.cleaner.clean_all()  # what is small by now becomes one segment
    for _ in cleaners.logs.checkpoint():
        pass
    for _ in cleaners.logs.remove_deleted():
        pass
    left = [path.name for path in log.path.iterdir()]
    assert not [name for name in left if name.endswith((".deleted", ".swap", ".cleaned"))]
    assert len([name for name in left if name.endswith(".log")]) == 2


def test_a_log_that_cannot_be_cleaned_stays_and_is_reported_once(
    cleaners: Cleaners, caplog: pytest.LogCaptureFixture
) -> None:
    log = cleaners.open()
    fill(log)
    path = log.path / f"{0:020d}.log"
    data = bytearray(path.read_bytes())
    data[100] ^= 1
    path.write_bytes(data)
    assert cleaners.cleaner.clean_dirtiest()
    assert not cleaners.cleaner.clean_dirtiest()
    (why,) = cleaners.cleaner.uncleanable.values()
    assert f"{path}, byte 0: a batch's CRC is wrong" in why
    assert caplog.text.count("cannot be cleaned") == 1
    assert path.read_bytes() == data
    assert not list(log.path.glob("*.cleaned"))


def test_its_rate_is_held(cleaners: Cleaners) -> None:
    waited: list[float] = []

    class Stopping(threading.Event):
        def wait(self, timeout: float | None = None) -> bool:
            waited.append(timeout or 0.0)
            cleaners.clock.advance(math.ceil(1000 * (timeout or 0.0)))
            return False

    log = cleaners.open(segment_bytes=3 << 20)
    cleaners.settings = CleanerSettings(bytes_per_second_max=1 << 20)
    for number in range(30):
        log.append(build_batch([Record(bytes(500_000), b"%d" % number)]))
    slow = LogCleaner(cleaners.logs, lambda: cleaners.settings, cleaners.clock, Stopping())
    slow.clean_all()
    moved = slow.figures.bytes_read + slow.figures.bytes_written
    assert slow.figures.last_seconds == pytest.approx(sum(waited), abs=0.1)
    assert sum(waited) > moved / (1 << 20) - 4  # but for the last step


@pytest.mark.parametrize("operation", ["rename", "sync"])
@pytest.mark.parametrize("nth", range(1, 12))
def test_a_disk_that_fails_half_way(cleaners: Cleaners, operation: str, nth: int) -> None:
    """The log is offline then or whole; after the next start nothing is lost in any case."""
    log = cleaners.open()
    fill(log, 60)
    before = dict(held(log))
    last = {key: offset for offset, key in before.items()}
    calls = 0

    def fail(name: str, _path: str) -> None:
        nonlocal calls
        calls += name == operation
        if calls == nth and name == operation:
            raise OSError(errno.EIO, "the test's")

    file_operations.hook = fail  # type: ignore[assignment]
    try:
        cleaners.cleaner.clean_dirtiest()
    finally:
        file_operations.hook = None
    cleaners.again()
    log = cleaners.open()
    found = dict(held(log))
    assert found.items() <= before.items()
    assert {key: offset for offset, key in found.items()} == last
    assert log.log_end_offset == 60
    assert not [damage for damage in verify(log.path).damage]
    cleaners.cleaner.clean_all()
    assert len(held(log)) == 4


def test_a_log_that_is_closed_meanwhile(
    cleaners: Cleaners, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = cleaners.open()
    fill(log)
    path = log.path

    class Closing(LogCleaner):
        def _go_on(self, its: PartitionLog, cleaning: Cleaning, began_ms: int) -> None:
            if cleaning.bytes_read and its.online:
                assert list(path.glob("*.cleaned"))
                cleaners.logs.close(log)
            super()._go_on(its, cleaning, began_ms)

    closing = Closing(cleaners.logs, lambda: cleaners.settings, cleaners.clock)
    monkeypatch.setattr(cleaner_module, "STEP_BYTES", 100)
    closing.clean_dirtiest()
    assert closing.figures.cleanings == 0
    assert not list(path.glob("*.cleaned")) and not list(path.glob("*.swap"))
    log = cleaners.open()
    assert len(held(log)) == 30


def first_from(log: LedLog, offset: int) -> int:
    """What a consumer that asks for an offset gets first."""
    at = offset
    while True:
        for batch in decode_batches(log.read(at)):
            found = [record.offset for record in batch.records if record.offset >= offset]
            if found:
                return found[0]
            at = batch.last_offset + 1


def test_readers_go_on_across_a_swap(cleaners: Cleaners) -> None:
    log = cleaners.open()
    fill(log, 60)
    slice_before = log.borrow(0, 300)
    data = slice_before.read()
    bases = [figure.base_offset for figure in segment_figures(log.log)]
    assert len(bases) > 3
    for base in bases:
        log.read(base)  # places are handed out
    cleaners.cleaner.clean_all()
    assert slice_before.read() == data
    records = held(log)
    for offset in range(60):
        assert first_from(log, offset) == min(at for at, _ in records if at >= offset)


def test_a_thread_that_cannot_start_is_started_when_it_is_asked_for_again(
    cleaners: Cleaners, monkeypatch: pytest.MonkeyPatch
) -> None:
    cleaners.settings = CleanerSettings(threads=1, backoff_ms=10)
    with monkeypatch.context() as short:
        short.setattr(OwnThread, "start", Mock(side_effect=RuntimeError("can't start new thread")))
        with pytest.raises(RuntimeError, match="new thread"):
            cleaners.cleaner.resize()
    assert cleaners.cleaner.threads == ()
    cleaners.cleaner.resize()
    (thread,) = cleaners.cleaner.threads
    assert thread.is_alive()
    cleaners.cleaner.stop()


def test_threads_come_and_go(cleaners: Cleaners) -> None:
    log = cleaners.open()
    fill(log)
    cleaners.settings = CleanerSettings(threads=2, backoff_ms=10)
    cleaners.cleaner.resize()
    deadline = threading.Event()
    while log.cleaned_to == 0:
        deadline.wait(0.005)
    cleaners.settings = CleanerSettings(threads=1, backoff_ms=10)
    first, second = cleaners.cleaner.threads
    cleaners.cleaner.resize()
    second.join(10)
    assert not second.is_alive() and first.is_alive()
    cleaners.cleaner.stop()
    assert not first.is_alive()
