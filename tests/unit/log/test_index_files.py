"""The bytes of .index and .timeindex, and what becomes of files that a crash left."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from tests.support.record_batches import Record, build_batch, parse_batches
from tests.unit.log.conftest import OpenLog


def offsets_of(path: Path) -> list[tuple[int, int]]:
    data = path.read_bytes()
    assert len(data) % 8 == 0
    return [struct.unpack_from(">ii", data, at) for at in range(0, len(data), 8)]


def times_of(path: Path) -> list[tuple[int, int]]:
    data = path.read_bytes()
    assert len(data) % 12 == 0
    return [struct.unpack_from(">qi", data, at) for at in range(0, len(data), 12)]


def test_entries_are_those_of_the_rule(open_log: OpenLog) -> None:
    log = open_log(index_interval_bytes=500)
    log.append(build_batch())
    log.roll()
    times = [50, 90, 20, 20, 95, 95, 10, 99, 98, 97, 100, 3]
    for number, time_ms in enumerate(times):
        log.append(build_batch([Record(b"x" * (90 + number), timestamp_ms=time_ms)] * 2))
    batches = [b for b in parse_batches(log.read(1)) if b.base_offset >= 1]
    log.close()

    expected_offsets: list[tuple[int, int]] = []
    expected_times: list[tuple[int, int]] = []
    position = since = 0
    largest, largest_at = -1, 0
    for batch in batches:
        if batch.max_timestamp_ms > largest:
            largest, largest_at = batch.max_timestamp_ms, batch.last_offset
        if since > 500:
            expected_offsets.append((batch.last_offset - 1, position))
            if not expected_times or largest > expected_times[-1][0]:
                expected_times.append((largest, largest_at - 1))
            since = 0
        position += batch.size_bytes
        since += batch.size_bytes
    if largest > expected_times[-1][0]:
        expected_times.append((largest, largest_at - 1))
    assert len(expected_offsets) >= 3
    name = f"{1:020d}"
    assert offsets_of(log.path / f"{name}.index") == expected_offsets
    assert times_of(log.path / f"{name}.timeindex") == expected_times


def test_files_are_large_while_active_and_cut_at_the_end(open_log: OpenLog) -> None:
    log = open_log(segment_index_bytes=100_000)
    first = log.path / f"{0:020d}.index"
    log.append(build_batch())
    assert first.stat().st_size == 100_000
    assert first.with_suffix(".timeindex").stat().st_size == 100_000 - 100_000 % 12
    assert first.stat().st_blocks * 512 <= 8_192  # sparse: most of it is not there
    log.roll()
    assert first.stat().st_size == 0
    assert times_of(first.with_suffix(".timeindex")) == [(1_000, 0)]
    log.close()
    assert sum(f.stat().st_size for f in log.path.glob("*.index")) == 0


@pytest.mark.parametrize(
    "damage",
    ["missing", "zeros", "short", "going back", "beyond the end", "not a multiple"],
)
@pytest.mark.parametrize("suffix", ["index", "timeindex"])
def test_a_damaged_index_is_written_anew(open_log: OpenLog, damage: str, suffix: str) -> None:
    settings = {"index_interval_bytes": 200, "segment_bytes": 3_000}
    log = open_log(**settings)
    for number in range(60):
        log.append(build_batch([Record(b"x" * 80, timestamp_ms=number * 5)] * 2))
    log.close()
    path = sorted(log.path.glob(f"*.{suffix}"))[1]
    good = path.read_bytes()
    entry = 8 if suffix == "index" else 12
    bad = {
        "missing": b"",
        "zeros": bytes(len(good) + 5 * entry),
        "short": good[: entry + 1],
        "going back": good + good[:entry],
        "beyond the end": good + b"\x7f" * entry,
        "not a multiple": good + b"\0",
    }[damage]
    path.write_bytes(bad)
    if damage == "missing":
        path.unlink()
    log = open_log(clean=True, **settings)
    assert path.read_bytes() == good
    for offset in range(120):
        assert parse_batches(log.read(offset, 1))[0].base_offset == offset // 2 * 2
        assert log.offset_for_time(offset // 2 * 5) == (offset // 2 * 2, offset // 2 * 5, 0)


@pytest.mark.parametrize("suffix", ["index", "timeindex"])
def test_no_answer_rests_on_an_entry_that_a_bit_has_changed(open_log: OpenLog, suffix: str) -> None:
    """After a clean stop only the last entries are looked at; no index has a checksum."""
    settings = {"index_interval_bytes": 200, "segment_bytes": 3_000}
    log = open_log(**settings)
    for number in range(40):
        log.append(build_batch([Record(b"x" * 80, timestamp_ms=number * 5)] * 2))
    log.close()
    path = log.path / f"{0:020d}.{suffix}"
    good = path.read_bytes()
    for bit in range(8 * len(good)):
        bad = bytearray(good)
        bad[bit // 8] ^= 1 << bit % 8
        path.write_bytes(bad)
        log = open_log(clean=True, **settings)
        for offset in range(0, 40, 3):
            assert parse_batches(log.read(offset, 1))[0].base_offset == offset // 2 * 2
            assert log.offset_for_time(offset // 2 * 5) == (offset // 2 * 2, offset // 2 * 5, 0)
        log.close(clean=False)
    path.write_bytes(good)


def test_a_cut_does_not_rest_on_one_either(open_log: OpenLog) -> None:
    settings = {"index_interval_bytes": 0, "segment_bytes": 1 << 20}
    log = open_log(**settings)
    for number in range(12):
        log.append(build_batch([b"%06d" % number]))
    log.close()
    path = log.path / f"{0:020d}.index"
    entries = bytearray(path.read_bytes())
    entries[5 * 8 + 4 : 6 * 8] = entries[9 * 8 + 4 : 10 * 8]  # of a batch after it
    path.write_bytes(entries)
    log = open_log(clean=True, **settings)
    log.truncate_to(6)
    assert log.log_end_offset == 6
    found = [parse_batches(log.read(offset, 1))[0].records[0].value for offset in range(6)]
    assert found == [b"%06d" % number for number in range(6)]


def test_a_cut_inside_a_batch_does_not_either(open_log: OpenLog) -> None:
    settings = {"index_interval_bytes": 0, "segment_bytes": 1 << 20}
    log = open_log(**settings)
    for number in range(6):
        log.append(build_batch([b"%06d" % number] * 2))
    log.close()
    path = log.path / f"{0:020d}.index"
    entries = bytearray(path.read_bytes())
    entries[2 * 8 + 4 : 3 * 8] = entries[3 * 8 + 4 : 4 * 8]  # leads to the batch that is cut into
    path.write_bytes(entries)
    log = open_log(clean=True, **settings)
    log.truncate_to(7)
    assert log.log_end_offset == 6
    assert log.append(build_batch([b"next"])).base_offset == 6
    assert [parse_batches(log.read(offset, 1))[0].base_offset for offset in (0, 2, 4, 6)] == [
        0, 2, 4, 6,
    ]  # fmt: skip


@pytest.mark.parametrize("clean_segment", [0, 1])
def test_a_bit_in_a_batchs_timestamp_costs_no_other_batch(
    open_log: OpenLog, clean_segment: int
) -> None:
    """Which of the two is damaged, the batch or the index, an entry alone does not tell."""
    settings = {"index_interval_bytes": 0, "segment_bytes": 600}
    log = open_log(**settings)
    for number in range(10):
        log.append(build_batch([Record(b"x" * 40, timestamp_ms=1_000 + number)]))
    log.close()
    path = sorted(log.path.glob("*.log"))[clean_segment]
    data = bytearray(path.read_bytes())
    last = parse_batches(bytes(data))[-1]
    data[len(data) - last.size_bytes + 36] ^= 0x01  # of its largest timestamp
    path.write_bytes(data)
    log = open_log(clean=True, **settings)
    assert log.log_end_offset == 10
    assert not list(log.path.glob("*.cut"))
    sound = set(range(10)) - {last.base_offset}
    for offset in sound:
        assert parse_batches(log.read(offset, 1))[0].base_offset == offset


def test_a_time_index_that_lost_its_end_hides_no_record(open_log: OpenLog) -> None:
    log = open_log(index_interval_bytes=100_000)
    for number in range(6):
        log.append(build_batch([Record(timestamp_ms=number * 10)]))
    log.roll()
    log.close()
    path = log.path / f"{0:020d}.timeindex"
    assert times_of(path) == [(50, 5)]
    path.write_bytes(struct.pack(">qi", 10, 1))
    log = open_log(clean=True)
    assert log.offset_for_time(50) == (5, 50, 0)
    assert log.offset_of_max_timestamp() == (5, 50, 0)


def test_a_group_may_fill_the_indexes(open_log: OpenLog) -> None:
    settings = {"index_interval_bytes": 0, "segment_index_bytes": 60}
    log = open_log(**settings)
    log.append_group([build_batch([Record(timestamp_ms=number * 10)]) for number in range(20)])
    for clean in (False, True):
        if clean:
            log.close()
        else:
            log.roll()
            log.close(clean=False)
        # The last place was kept for the largest timestamp.
        assert times_of(log.path / f"{0:020d}.timeindex")[-1] == (190, 19)
        log = open_log(clean=clean, **settings)
        for offset in range(20):
            assert parse_batches(log.read(offset, 1))[0].base_offset == offset
            assert log.offset_for_time(offset * 10) == (offset, offset * 10, 0)
