"""An index that is a file, on a disk that hangs: a look into it waits, and nothing else does.

The file under its name when the disk goes on may be another segment's. Where such a one is trusted,
a value that has the bytes of a batch in it is read as one: `lie`.
"""

from __future__ import annotations

import errno
from collections.abc import Callable
from typing import Any

import pytest

from kbroker.log.upkeep._cleaning import Cleaning
from kbroker.testing.file_faults import FOREVER, Fault, FileFaults
from tests.support.led_log import LedLog
from tests.support.record_batches import Record, build_batch, parse_batches
from tests.support.standing_disk import SOON_S, standing
from tests.unit.log.conftest import OpenLog

SETTINGS: dict[str, Any] = {"segment_bytes": 6_000, "index_interval_bytes": 100}
EVERY: dict[str, Any] = {"segment_bytes": 100_000, "index_interval_bytes": 0}
COUNT = 200
OLD = 20  # an offset in a segment that is full


def filled(open_log: OpenLog, **settings: Any) -> LedLog:
    log = open_log(**(settings or SETTINGS))
    for number in range(COUNT):
        log.append(build_batch([Record(b"%06d" % number, timestamp_ms=1_000 + number)]))
    assert log.active_base_offset > 2 * OLD
    return log


def first_at(log: LedLog, offset: int) -> bytes | None:
    """The value of the record there, read in a batch of its own."""
    (record,) = parse_batches(log.read(offset, 1))[0].records
    return record.value


LOOKS: dict[str, tuple[str, Callable[[LedLog], Any], Any]] = {
    "by offset": ("0.index", lambda log: first_at(log, OLD), b"%06d" % OLD),
    "by time": (
        "0.timeindex", lambda log: log.offset_for_time(1_000 + OLD), (OLD, 1_000 + OLD, 0)
    ),
    "by the offset of a time": (
        "0.index", lambda log: log.offset_for_time(1_000 + OLD), (OLD, 1_000 + OLD, 0)
    ),
}  # fmt: skip


@pytest.mark.parametrize("operation", ["open", "read"])
@pytest.mark.parametrize("look", LOOKS)
def test_a_look_into_an_index_of_a_full_segment_holds_up_none(
    open_log: OpenLog, look: str, operation: str
) -> None:
    log = filled(open_log)
    ending, call, expected = LOOKS[look]
    with standing((operation, ending)) as disk:
        looking = disk.begin(lambda: call(log))
        for number in range(COUNT, COUNT + 20):
            appended = disk.soon(lambda: log.append(build_batch([b"next"])))
            assert appended.base_offset == number
            assert disk.soon(lambda n=number: first_at(log, n)) == b"next"
        assert disk.soon(lambda: log.readable_bytes(OLD, 1 << 30)) > 0
        disk.soon(log.roll)
        assert not looking.done()
        disk.go_on()
        assert looking.result(SOON_S) == expected
    assert call(log) == expected


@pytest.mark.parametrize("operation", ["open", "read"])
@pytest.mark.parametrize("look", LOOKS)
def test_the_first_append_after_a_start_waits_for_no_look(
    open_log: OpenLog, look: str, operation: str
) -> None:
    """It makes the indexes writable that are read as files until then."""
    settings = {**SETTINGS, "segment_bytes": 1 << 20}
    log = open_log(**settings)
    for number in range(COUNT):
        log.append(build_batch([Record(b"%06d" % number, timestamp_ms=1_000 + number)]))
    log.close()
    log = open_log(clean=True, **settings)
    ending, call, expected = LOOKS[look]
    with standing((operation, ending)) as disk:
        looking = disk.begin(lambda: call(log))
        for number in range(COUNT, COUNT + 20):
            assert disk.soon(lambda: log.append(build_batch([b"next"]))).base_offset == number
            assert disk.soon(lambda n=number: first_at(log, n)) == b"next"
        assert call(log) == expected
        assert not looking.done()
        disk.go_on()
        assert looking.result(SOON_S) == expected


@pytest.mark.parametrize("ending", ["0.index", "0.timeindex"])
def test_a_look_for_the_largest_timestamp_holds_up_none(open_log: OpenLog, ending: str) -> None:
    """The largest but one is searched for where the largest is not replicated."""
    log = open_log(**SETTINGS)
    log.set_leadership(1, True, 0, 1, {2: True})
    for number in range(40):
        log.append(build_batch([Record(b"%06d" % number, timestamp_ms=1_000 + number)]))
    log.roll()
    log.note_fetch(2, OLD, OLD)
    with standing(("read", ending)) as disk:
        looking = disk.begin(log.offset_of_max_timestamp)
        assert disk.soon(lambda: log.append(build_batch([b"next"]))).base_offset == 40
        assert disk.soon(lambda: log.read(40, 1, to_log_end=True))
        disk.go_on()
        assert looking.result(SOON_S) == (OLD - 1, 1_000 + OLD - 1, 0)


def test_the_readable_offsets_are_answered_without_waiting(open_log: OpenLog) -> None:
    """Where the disk alone knows the place, the batches before it count."""
    log = filled(open_log)
    with FileFaults() as warm:
        known = log.readable_bytes(OLD, 1 << 30)
        assert 0 < known < log.size_bytes
    cold = Fault(("open_now",), "0.index", times=FOREVER, error=errno.EAGAIN)
    with FileFaults(cold) as faults:
        assert log.readable_bytes(OLD, 1 << 30) == log.size_bytes
        assert log.readable_bytes(OLD, 10) == 10
        assert log.readable_bytes(log.active_base_offset + 1, 1 << 30) < known
    assert {seen.operation for seen in (*warm.seen, *faults.seen)} <= {"open_now", "read_now"}


LIE = build_batch([b"a lie"], base_offset=2)
LIAR = build_batch([Record(b"." * 200 + LIE + b"." * 200, key=b"b")])
LIES_AT = LIAR.find(LIE)


def of_size(size: int, key: bytes) -> bytes:
    for length in range(size):
        batch = build_batch([Record(b"x" * length, key=key)])
        if len(batch) == size:
            return batch
    raise AssertionError(f"no batch has {size} bytes")


def compact(log: LedLog) -> None:
    """All that is full."""
    cleaning = Cleaning(
        log.log, 0, log.active_base_offset, map_bytes_max=1 << 20, load_factor=0.9, now_ms=0,
        delete_retention_ms=0,
    )  # fmt: skip
    while cleaning.map_keys(1 << 20):
        pass
    for first, end in cleaning.groups(1 << 20):
        cleaning.begin_group(first, end)
        while cleaning.clean(1 << 20):
            pass
        cleaning.finish()
        assert log.replace_by_cleaned(cleaning)


def test_an_index_that_a_compaction_has_put_there_is_not_trusted(open_log: OpenLog) -> None:
    log = open_log(compacted=True, **EVERY)
    # Without the first one the third begins where the second has its lie.
    first = of_size(len(LIAR) - LIES_AT, b"a")
    for batch in (first, LIAR, build_batch([Record(b"third", key=b"c")]), first):
        log.append(batch)
    log.roll()
    with standing(("open", "0.index")) as disk:
        looking = disk.begin(lambda: first_at(log, 2))
        disk.soon(lambda: compact(log))
        disk.go_on()
        assert looking.result(SOON_S) == b"third"
    assert first_at(log, 2) == b"third"


def test_an_index_of_a_log_that_was_cut_is_not_trusted(open_log: OpenLog) -> None:
    log = open_log(**EVERY)
    # In the new history the third begins where the old one's second has its lie.
    for batch in (build_batch([b"first"]), LIAR, build_batch([b"third"])):
        log.append(batch)
    log.roll()
    with standing(("open", "0.index")) as disk:
        looking = disk.begin(lambda: first_at(log, 2))
        disk.soon(lambda: log.truncate_to(1))
        for batch in (of_size(LIES_AT, b"c"), build_batch([b"another third"])):
            disk.soon(lambda fresh=batch: log.append(fresh))
        disk.go_on()
        assert looking.result(SOON_S) == b"third"
    assert first_at(log, 2) == b"another third"


def test_an_index_that_changes_its_name_is_looked_for_again(open_log: OpenLog) -> None:
    """A segment that a compaction has made is read under the name that its files had before."""
    log = open_log(compacted=True, **EVERY)
    for number in range(40):
        log.append(build_batch([Record(b"%06d" % number, key=b"%d" % number)]))
    log.roll()
    with standing(("rename", "0.log.swap"), ("open", "0.index.swap")) as disk:
        cleaning = disk.begin(lambda: compact(log), 0)
        looking = disk.begin(lambda: first_at(log, OLD), 1)
        disk.go_on(0)
        cleaning.result(SOON_S)
        disk.go_on(1)
        assert looking.result(SOON_S) == b"%06d" % OLD
        opened = [seen.path for seen in disk.seen() if seen.operation == "open"]
    assert opened[-1].endswith("0.index")
