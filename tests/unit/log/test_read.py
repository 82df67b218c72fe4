"""Finding bytes by offset: whole batches, bounds, segments, and how seldom a file is read."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

from kbroker.errors import ErrorCode, KafkaError
from tests.support.led_log import LedLog
from tests.support.own_things import open_below
from tests.support.record_batches import build_batch, parse_batches
from tests.unit.log.conftest import OpenLog


def filled(log: LedLog, batches: int = 60, seed: int = 1) -> list[tuple[int, int, int]]:
    """(base offset, last offset, size) of the appended batches."""
    rng = random.Random(seed)
    out = []
    for _ in range(batches):
        batch = build_batch([rng.randbytes(rng.randint(0, 200))] * rng.randint(1, 5))
        result = log.append(batch)
        out.append((result.base_offset, result.last_offset, len(batch)))
    return out


@pytest.mark.parametrize("segment_bytes", [1 << 30, 2_000])
@pytest.mark.parametrize("reopened", [False, True])
def test_every_offset_gives_its_whole_batch(
    open_log: OpenLog, segment_bytes: int, reopened: bool
) -> None:
    settings = {"segment_bytes": segment_bytes, "index_interval_bytes": 300}
    log = open_log(**settings)
    batches = filled(log)
    if reopened:
        log.close()
        log = open_log(clean=True, **settings)
    for base, last, size in batches:
        for offset in (base, last, (base + last) // 2):
            whole = log.read(offset, 1)
            assert len(whole) == size
            assert parse_batches(whole)[0].base_offset == base
            assert log.read(offset, size - 1, whole_first=False) == b""
            assert len(log.read(offset, size, whole_first=False)) == size


def test_a_slice_is_cut_anywhere_after_its_first_batch(log: LedLog) -> None:
    batches = filled(log)
    everything = log.read(0, 1 << 30)
    assert len(everything) == sum(size for _, _, size in batches)
    first = batches[0][2]
    for extra in (0, 1, 60, 100):
        assert log.read(0, first + extra, whole_first=False) == everything[: first + extra]


def test_offsets_that_are_not_there(log: LedLog) -> None:
    filled(log, 3)
    end = log.log_end_offset
    assert log.read(end) == b""
    for offset in (-1, end + 1, 2**62):
        with pytest.raises(KafkaError) as caught:
            log.read(offset)
        assert caught.value.code is ErrorCode.OFFSET_OUT_OF_RANGE


def test_no_bytes_wanted(log: LedLog) -> None:
    filled(log, 3)
    assert log.read(0, 0, whole_first=False) == b""
    assert log.read(0, -5, whole_first=False) == b""
    assert log.read(0, 0) != b""


def test_only_the_leader_answers(log: LedLog) -> None:
    filled(log, 1)
    log.set_leadership(2, False, 1, 1)
    with pytest.raises(KafkaError) as caught:
        log.read(0)
    assert caught.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_a_reader_of_all_segments_sees_every_batch_once(open_log: OpenLog) -> None:
    log = open_log(segment_bytes=1_500, index_interval_bytes=200)
    batches = filled(log, 100)
    for max_bytes in (1, 300, 1_000, 1 << 20):
        offset, seen = 0, []
        while offset < log.log_end_offset:
            for batch in parse_batches(log.read(offset, max_bytes), records=False):
                seen.append((batch.base_offset, batch.last_offset, batch.size_bytes))
            offset = seen[-1][1] + 1
        assert seen == batches


def test_tail_readers_look_into_no_file(log: LedLog) -> None:
    filled(log, 300)
    before = log.statistics()["file_scans"]
    for _ in range(50):
        ((base, _, size),) = filled(log, 1, seed=3)
        assert len(log.read(base)) == size
        assert log.readable_bytes(base) == size
    recent = [b.base_offset for b in parse_batches(log.read(0, 1 << 30), records=False)][-200:]
    for offset in recent:
        log.read(offset, 1)
    assert log.statistics()["file_scans"] == before


def test_batches_larger_than_the_fetch_are_followed_without_an_index_scan(
    open_log: OpenLog,
) -> None:
    log = open_log()
    for number in range(400):
        log.append(build_batch([bytes([number % 256]) * 6_000]))
    for offset in range(100):
        assert parse_batches(log.read(offset, 1_000))[0].base_offset == offset
    # One look for each batch's size, at a place that is known.
    assert log.statistics()["file_scans"] == 100


@pytest.mark.parametrize("reopened", [False, True])
def test_a_reader_in_order_of_older_batches_looks_into_no_index(
    open_log: OpenLog, reopened: bool
) -> None:
    log = open_log(segment_bytes=400_000)
    sizes = random.Random(4)
    for _ in range(600):
        log.append(build_batch([b"x" * sizes.randint(1_000, 5_000)]))
    if reopened:
        log.close()
        log = open_log(clean=True, segment_bytes=400_000)
    for max_bytes in (1_000, 4_000, 8_000):  # most answers end inside of a batch
        offset, before = 0, log.statistics()["fast_reads"]
        reads = 0
        while offset < 300:
            batches = parse_batches(log.read(offset, max_bytes), records=False)
            assert batches[0].base_offset == offset
            offset = batches[-1].last_offset + 1
            reads += 1
        assert log.statistics()["fast_reads"] == before + reads


def test_readable_bytes(open_log: OpenLog) -> None:
    log = open_log(segment_bytes=1_500)
    batches = filled(log, 40)
    total = 0
    for base, last, size in reversed(batches):
        total += size
        if log.active_base_offset <= base:
            assert log.readable_bytes(base, 1 << 30) == total
            assert log.readable_bytes(last, 1 << 30) == total
        assert log.readable_bytes(base, 1 << 30) >= total
        assert log.readable_bytes(base, 10) == 10
    assert log.readable_bytes(0, 1 << 30) == log.size_bytes
    assert log.readable_bytes(log.log_end_offset) == 0
    assert log.readable_bytes(log.log_end_offset + 9) == 0


def test_a_slice_outlives_its_file(log: LedLog, tmp_path: Path) -> None:
    filled(log, 5)
    everything = log.read(0)
    piece = log.borrow(0)
    gone = log.delete()
    for name in os.listdir(gone):
        os.unlink(gone / name)
    assert piece.read() == everything
    assert open_below(tmp_path) == 1
    piece.release()
    assert open_below(tmp_path) == 0


def test_a_closed_log_answers_with_a_code(log: LedLog) -> None:
    filled(log, 2)
    log.close()
    for ask in (lambda: log.read(0), lambda: log.find_by_time(0), log.find_max_timestamp):
        with pytest.raises(KafkaError) as caught:
            ask()
        assert caught.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    assert log.readable_bytes(0) == 0
    log.close()


def test_files_and_maps_are_given_back(open_log: OpenLog, tmp_path: Path) -> None:
    def resources() -> tuple[int, int]:
        with open("/proc/self/maps") as maps:
            mapped = sum(1 for line in maps if f"{tmp_path}/" in line)
        return open_below(tmp_path), mapped

    log = open_log(segment_bytes=1_500, index_interval_bytes=100)
    filled(log, 50)
    for offset in range(0, log.log_end_offset, 3):
        log.read(offset)
    assert all(resources())
    log.close()
    assert resources() == (0, 0)
