"""Each file operation of a request fails once, and for good: never a wrong answer without an error.

A request is done once on a sound disk, to count its operations, and then once for each of them and
each way in which such an operation fails. Each time the log is opened again, so that nothing of it
is remembered. The answer is then that of a sound disk, or an error.

The same with indexes that do not tell the truth, as one without a checksum may: what is read to
find that out may fail as well.
"""

from __future__ import annotations

import shutil
import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from errno import EIO
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest

from kbroker.engine.share import reading
from kbroker.errors import KafkaError
from kbroker.log.opening.loader import UNKNOWN, Checkpointed
from kbroker.replica._committed_read import aborted_transactions
from kbroker.replica._late_offsets import find
from kbroker.testing.file_faults import FOREVER, Fault, FileFaults, Seen
from tests.support import memory
from tests.support.led_log import LedLog, open_led_log
from tests.support.record_batches import Record, build_batch
from tests.unit.log.conftest import TOPIC_ID
from tests.unit.log.disk_scenario import copy_files

SETTINGS: Final = {
    "segment_bytes": 2_000, "index_interval_bytes": 0, "segment_index_bytes": 4_096,
    "file_delete_delay_ms": 0,
}  # fmt: skip
FIRST_MS: Final = Record().timestamp_ms
TRANSACTIONAL: Final = 0x10
NO_GUARD: Final = -1
EXPECTED: Final = (OSError, KafkaError)
READS: Final = ("read", "read_now")


def transactional(log: LedLog, producer: int, sequence: int, at_ms: int) -> None:
    batch = build_batch(
        [Record(b"t" * 40, timestamp_ms=at_ms)], producer_id=producer, producer_epoch=0,
        base_sequence=sequence, attributes=TRANSACTIONAL,
    )  # fmt: skip
    log.append(batch, acks=-1, guard=NO_GUARD)


def end(log: LedLog, producer: int, at_ms: int, *, committed: bool) -> None:
    log.append_marker(producer, 0, 0, committed=committed, transaction_version=1, now_ms=at_ms)


def populate(log: LedLog, rounds: int = 40) -> None:
    """Some segments: plain batches whose times rise and fall, transactions of three producers, of
    which two abort, and one that stays open."""
    for number in range(rounds):
        at_ms = FIRST_MS + 100 * number - 350 * (number % 5)
        producer = number % 3
        transactional(log, producer, number // 3, at_ms)
        log.append(build_batch([Record(b"p" * 30, timestamp_ms=at_ms + i) for i in range(3)]))
        if number % 7 == 6:
            end(log, producer, at_ms, committed=producer == 1)
    for producer in range(3):
        end(log, producer, FIRST_MS, committed=producer == 1)
    transactional(log, 9, 0, FIRST_MS)
    log.append(build_batch([b"last"]))


def lie(directory: Path, suffix: str, entry: struct.Struct, at: int, by: int) -> None:
    """Each index's first entries say what its later ones say: of a place that is too far on."""
    for path in sorted(directory.glob(f"*.{suffix}"))[:-1]:
        data = bytearray(path.read_bytes())
        size = entry.size
        for number in range(len(data) // size - by - 1):
            value = entry.unpack_from(data, (number + by) * size)[at]
            fields = list(entry.unpack_from(data, number * size))
            fields[at] = value - (by - 1)  # so that they rise
            entry.pack_into(data, number * size, *fields)
        path.write_bytes(data)


@pytest.fixture(scope="module")
def sound() -> Iterator[Path]:
    """A log that was stopped in order."""
    with memory.directory() as made:
        directory = made / "words-0"
        log = opened(directory)
        populate(log)
        log.close()
        yield directory


@pytest.fixture(scope="module", params=["sound indexes", "indexes that lie"])
def store(request: pytest.FixtureRequest, sound: Path) -> Path:
    """The same log; its first index entries may say what is not so."""
    if request.param == "sound indexes":
        return sound
    directory = sound.parent / "lies" / "words-0"
    directory.parent.mkdir()
    copy_files(sound, directory)
    lie(directory, "index", struct.Struct(">ii"), 1, 2)
    return directory


def opened(directory: Path, checkpointed: Checkpointed = UNKNOWN) -> LedLog:
    log = open_led_log(directory, "words", 0, TOPIC_ID, SETTINGS, checkpointed)
    log.set_leadership(1, True, 0, 1)
    return log


@contextmanager
def again(directory: Path) -> Iterator[LedLog]:
    """Opened as after a stop in order; its files stay as they are."""
    log = opened(directory, Checkpointed(clean=True, high_watermark=1 << 40))
    yield log
    log.abandon()


class Listed(frozenset[tuple[int, int]]):
    """Aborted transactions. One too many does no harm, where an index does not say how far the
    records go."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Listed) and self >= other

    __hash__ = frozenset.__hash__


# --- What is asked --------------------------------------------------------------------------------


def everywhere(log: LedLog) -> range:
    return range(0, log.log_end_offset, 31)


def reads(log: LedLog) -> Any:
    return [log.read(at, 900) for at in everywhere(log)]


def small_reads(log: LedLog) -> Any:
    """Of which the first batch's size has to be known."""
    return [log.read(at, 130, whole_first=at % 2 == 0) for at in everywhere(log)]


def followers_reads(log: LedLog) -> Any:
    return [log.read(at, 1 << 20, to_log_end=True) for at in everywhere(log)]


def committed_reads(log: LedLog) -> Any:
    return [
        (log.read(at, 900, read_committed=True), Listed(aborted_transactions(log, at, 900)))
        for at in everywhere(log)
        if at < log.last_stable_offset
    ]


def share_reads(log: LedLog) -> Any:
    return [
        reading.read(log, at, 900, aborted_transactions, is_committed=True)
        for at in everywhere(log)
    ]


def times(log: LedLog) -> Any:
    return [log.offset_for_time(at) for at in range(FIRST_MS - 400, FIRST_MS + 4_000, 550)]


def largest_time(log: LedLog) -> Any:
    return log.offset_of_max_timestamp()


REQUESTS: Final = (
    reads, small_reads, followers_reads, committed_reads, share_reads, times, largest_time,
)  # fmt: skip


class Way(NamedTuple):
    """In which an operation fails."""

    error: int
    bytes_max: int
    times: int

    def at(self, nth: int) -> Fault:
        return Fault(nth=nth, times=self.times, error=self.error, bytes_max=self.bytes_max)


def ways(seen: Seen) -> list[Way]:
    found = [Way(EIO, -1, 1), Way(EIO, -1, FOREVER)]
    if seen.operation == "read":
        found.append(Way(0, 7, 1))
    return found


def each_fails(count: Callable[[], list[Seen]], run: Callable[[Fault], object]) -> None:
    """`run` answers the error, or None where what it got is right."""
    seen, right = count(), 0
    for nth, operation in enumerate(seen, start=1):
        for way in ways(operation):
            try:
                right += run(way.at(nth)) is None
            except AssertionError as error:
                error.add_note(f"operation {nth} of {len(seen)}: {operation}, {way}")
                raise
    assert right, "no answer was right"


@pytest.mark.parametrize("request_of", REQUESTS)
def test_an_answer_is_right_or_an_error(
    sound: Path, store: Path, request_of: Callable[[LedLog], object]
) -> None:
    with again(sound) as log:
        expected = request_of(log)

    def count() -> list[Seen]:
        with again(store) as log, FileFaults() as faults:
            request_of(log)
        return faults.seen

    def run(fault: Fault) -> object:
        with again(store) as log, FileFaults(fault):
            try:
                answer = request_of(log)
            except EXPECTED as error:
                return error
        assert answer == expected
        return None

    each_fails(count, run)


# --- What a start reads ---------------------------------------------------------------------------


@pytest.mark.parametrize("stopped", ["in order", "by a crash"])
def test_a_start_knows_all_or_fails(stopped: str) -> None:
    """Which transactions were aborted is found again from their markers after a crash."""
    checkpointed = Checkpointed(clean=stopped == "in order", high_watermark=1 << 40)

    def answers(directory: Path) -> object:
        log = opened(directory, checkpointed)
        try:
            return committed_reads(log), log.last_stable_offset, largest_time(log)
        finally:
            log.abandon()

    with memory.directory() as made:
        before, it = made / "words-0", made / "it" / "words-0"
        log = opened(before)
        populate(log, 12)
        log.close()

        def fresh() -> Path:
            shutil.rmtree(it.parent, ignore_errors=True)
            it.parent.mkdir()
            copy_files(before, it)
            return it

        expected = answers(fresh())

        def count() -> list[Seen]:
            fresh()
            with FileFaults() as faults:
                log = opened(it, checkpointed)
                seen = faults.look()
            log.abandon()
            return seen

        def run(fault: Fault) -> object:
            fresh()
            with FileFaults(fault):
                try:
                    log = opened(it, checkpointed)
                except EXPECTED as error:
                    return error
            find(log)  # as a task of the scheduler: what could not be read then is read now
            try:
                found = committed_reads(log), log.last_stable_offset, largest_time(log)
            finally:
                log.abandon()
            assert found == expected
            return None

        each_fails(count, run)


# --- What a cut and a move of the high watermark read ---------------------------------------------


def with_two_transactions(directory: Path) -> LedLog:
    """Both begin at 2 and 4, and a snapshot of the producers is of 6; the first aborts there."""
    shutil.rmtree(directory, ignore_errors=True)
    log = opened(directory)
    log.append(build_batch([b"a", b"b"]))
    transactional(log, 1, 0, FIRST_MS)
    log.append(build_batch([b"c"]))
    transactional(log, 2, 0, FIRST_MS)
    log.append(build_batch([b"d"]))
    log.write_snapshot()
    end(log, 1, FIRST_MS, committed=False)
    log.append(build_batch([b"e"]))
    return log


def test_a_cut_that_opens_a_transaction_again_shows_none_of_it() -> None:
    with memory.directory() as made:
        it = made / "words-0"

        def count() -> list[Seen]:
            log = with_two_transactions(it)
            assert (log.last_stable_offset, log.high_watermark) == (4, 8)
            with FileFaults() as faults:
                log.truncate_to(6)
            assert (log.last_stable_offset, log.high_watermark) == (2, 6)
            log.abandon()
            return faults.seen

        def run(fault: Fault) -> object:
            log, failed = with_two_transactions(it), None
            with FileFaults(fault):
                try:
                    log.truncate_to(6)
                except EXPECTED as error:
                    failed = error
            if log.online:
                is_cut = log.log_end_offset == 6
                assert is_cut or (failed and log.log_end_offset == 8)
                assert log.last_stable_offset in ((2,) if is_cut else (2, 4))
            else:
                assert failed
            log.abandon()
            return failed

        each_fails(count, run)


def test_the_last_stable_offset_is_looked_for_again() -> None:
    """After a start it has to be asked of the disk where an open transaction begins."""
    with memory.directory() as made:
        it = made / "words-0"
        log = with_two_transactions(it)
        log.close()
        with FileFaults() as faults, again(it) as log:
            assert log.last_stable_offset == 4
            seen = [each for each in faults.look() if each.operation in READS]
        last = Fault(READS, ".log", sum(".log" in each.path for each in seen), FOREVER, EIO)
        with FileFaults(last):
            log = opened(it, Checkpointed(clean=True, high_watermark=1 << 40))
            assert (log.last_stable_offset, log.high_watermark) == (0, 8)
        assert find(log)
        assert log.last_stable_offset == 4
        log.abandon()
