"""Offsets by timestamp, exact to the record, against a look at every record."""

from __future__ import annotations

import random
from typing import Any

import pytest

from kbroker.replica import offset_lookup
from tests.support.led_log import LedLog
from tests.support.record_batches import CODECS, Record, build_batch, parse_batches
from tests.unit.log.conftest import OpenLog


def filled(
    log: LedLog, seed: int, *, codecs: list[str], ends: list[int] | None = None
) -> list[int]:
    """Timestamps by offset; they wander about and repeat. `ends`: where each batch ends."""
    rng = random.Random(seed)
    times: list[int] = []
    for number in range(60):
        batch = [rng.randrange(number * 10, number * 10 + 200) for _ in range(rng.randint(1, 6))]
        records = [Record(rng.randbytes(30), timestamp_ms=time_ms) for time_ms in batch]
        log.append(build_batch(records, codec=rng.choice(codecs)))
        times += batch
        if ends is not None:
            ends.append(len(times))
    return times


@pytest.mark.parametrize("segment_bytes", [1 << 30, 1_200])
@pytest.mark.parametrize("reopened", [False, True])
def test_the_first_record_that_is_not_older(
    open_log: OpenLog, segment_bytes: int, reopened: bool
) -> None:
    settings = {"segment_bytes": segment_bytes, "index_interval_bytes": 250}
    log = open_log(leader_epoch=3, **settings)
    times = filled(log, 5, codecs=list(CODECS))
    if reopened:
        log.close()
        log = open_log(clean=True, leader_epoch=3, **settings)
    for wanted in range(-1, max(times) + 2):
        offset = next((o for o, time_ms in enumerate(times) if time_ms >= wanted), None)
        expected = None if offset is None else (offset, times[offset], 3)
        assert log.offset_for_time(wanted) == expected
    largest = max(times)
    assert log.offset_of_max_timestamp() == (times.index(largest), largest, 3)


@pytest.mark.parametrize("segment_bytes", [1 << 30, 1_200])
def test_the_largest_is_that_of_the_readable_records(open_log: OpenLog, segment_bytes: int) -> None:
    """A newer one above the high watermark hides none below it."""
    log = open_log(segment_bytes=segment_bytes, index_interval_bytes=250)
    log.set_leadership(1, True, 0, 1, {2: True})
    ends: list[int] = []
    times = filled(log, 5, codecs=list(CODECS), ends=ends)
    assert log.offset_of_max_timestamp() is None
    for end in ends:
        log.note_fetch(2, end, end)
        assert log.high_watermark == end
        largest = max(times[:end])
        assert log.offset_of_max_timestamp() == (times.index(largest), largest, 0)


def test_an_empty_log(log: LedLog) -> None:
    assert log.offset_for_time(0) is None
    assert log.offset_of_max_timestamp() is None


def test_nothing_beyond_the_high_watermark(log: LedLog) -> None:
    log.set_leadership(1, True, 0, 2, {2: True})
    log.append(build_batch([Record(timestamp_ms=5)]))
    log.append(build_batch([Record(timestamp_ms=9)]))
    assert log.offset_for_time(0) is None
    assert log.offset_of_max_timestamp() is None
    log.set_high_watermark(1)
    assert log.offset_for_time(0) == (0, 5, 0)
    assert log.offset_for_time(6) is None


def test_log_append_time_is_one_time_for_a_batch(open_log: OpenLog) -> None:
    log = open_log(log_append_time=True)
    log.append(build_batch([Record(timestamp_ms=1), Record(timestamp_ms=2)]), now_ms=1_000)
    log.append(build_batch([Record(timestamp_ms=1), Record(timestamp_ms=2)]), now_ms=2_000)
    assert log.offset_for_time(1_001) == (2, 2_000, 0)
    assert log.offset_of_max_timestamp() == (2, 2_000, 0)


def test_where_a_codec_has_no_library(log: LedLog, monkeypatch: pytest.MonkeyPatch) -> None:
    times = [7, 3, 9, 5]
    log.append(build_batch([Record(timestamp_ms=t) for t in times], codec="zstd"))
    log.append(build_batch([Record(timestamp_ms=11)], codec="zstd"))

    class Blind:
        """As the compiled search answers without the library: the batch, and "look yourself"."""

        log_start_offset = 0

        def __init__(self) -> None:
            self.answers = [(0, -1, -1, True), (4, -1, -1, True), None]

        find_by_time = lambda self, *_: self.answers.pop(0)  # noqa: E731
        find_max_timestamp = find_by_time
        read = lambda self, offset, size: log.read(offset, size)  # noqa: E731

    for wanted, expected in ((8, (2, 9, 0)), (10, (4, 11, 0)), (12, None)):
        searcher: Any = Blind()
        assert offset_lookup.offset_for_time(searcher, wanted) == expected
    searcher = Blind()
    assert offset_lookup.offset_of_max_timestamp(searcher) == (2, 9, 0)


def test_a_start_inside_a_batch_of_such_a_codec(log: LedLog) -> None:
    for times in ([7, 3, 9, 5], [8, 2]):
        log.append(build_batch([Record(timestamp_ms=t) for t in times], codec="zstd"))
    compiled = log.find_by_time

    def look_yourself(timestamp_ms: int, from_offset: int = 0) -> object:
        found = compiled(timestamp_ms, from_offset)
        return None if found is None else (0 if found[0] < 4 else 4, -1, -1, True)

    class Blind:
        find_by_time = staticmethod(look_yourself)
        find_max_timestamp = staticmethod(lambda: (0, 9, 0, True))
        read = log.read

        @property
        def log_start_offset(self) -> int:
            return log.log_start_offset

    blind: Any = Blind()
    for start, by_time, largest in ((1, (2, 9, 0), (2, 9, 0)), (3, (4, 8, 0), (2, 9, 0))):
        log.delete_records(start)
        assert offset_lookup.offset_for_time(blind, 6) == by_time
        assert offset_lookup.offset_of_max_timestamp(blind) == largest
    log.delete_records(5)
    assert offset_lookup.offset_for_time(blind, 1) == (5, 2, 0)
    assert offset_lookup.offset_for_time(blind, 3) is None
    # Its batch is deleted: no other record has that timestamp.
    assert offset_lookup.offset_of_max_timestamp(blind) == (0, 9, 0)
    log.delete_records(-1)
    assert offset_lookup.offset_of_max_timestamp(blind) == (0, 9, 0)
    blind.answers = [(0, 9, 0, True), (4, 8, 0, False)]  # its segment goes meanwhile
    blind.find_max_timestamp = lambda: blind.answers.pop(0)
    assert offset_lookup.offset_of_max_timestamp(blind) == (4, 8, 0)


def test_the_search_reads_the_batch_that_it_finds(log: LedLog) -> None:
    filled(log, 8, codecs=["lz4"])
    found = log.offset_for_time(300)
    assert found is not None
    record = next(
        b.records[found[0] - b.base_offset]
        for b in parse_batches(log.read(found[0]))
        if b.base_offset <= found[0] <= b.last_offset
    )
    assert record.timestamp_ms == found[1]
