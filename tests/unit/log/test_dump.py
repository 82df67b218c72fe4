"""The files of a log are printed without a broker, and any damage in them is found."""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path

import pytest

from kbroker.compression import Codec
from kbroker.log.looking.dump import (
    DamagedLog,
    SegmentFile,
    StoredBatch,
    aborted_transactions,
    offset_entries,
)
from kbroker.log.looking.verify import verify
from tests.support.record_batches import CODECS, Record, build_batch
from tests.unit.log.conftest import OpenLog

SETTINGS = {"segment_bytes": 2_000, "index_interval_bytes": 300}
BATCHES = 60
OUTSIDE_CRC = {*range(8), *range(12, 16)}  # base offset and leader epoch: any value may be right


def fill(open_log: OpenLog) -> Path:
    """Several segments of all codecs; closed."""
    log = open_log(**SETTINGS, leader_epoch=2)
    for number in range(BATCHES):
        records = [Record(b"v" * 60, b"k", 1_000 + number * 7 % 50) for _ in range(1 + number % 3)]
        log.append(
            build_batch(
                records, codec=list(CODECS)[number % 5], producer_id=7, producer_epoch=0,
                base_sequence=sum(1 + n % 3 for n in range(number)),
            )
        )  # fmt: skip
    log.close()
    return Path(log.path)


def batches(path: Path) -> list[StoredBatch]:
    with SegmentFile(path) as segment:
        return list(segment.batches())


def segments(directory: Path) -> list[Path]:
    return sorted(directory.glob("*.log"))


def flip(path: Path, position: int, bit: int = 0) -> None:
    data = bytearray(path.read_bytes())
    data[position] ^= 1 << bit
    path.write_bytes(data)


def test_the_written_records_are_printed(open_log: OpenLog) -> None:
    directory = fill(open_log)
    found = [batch for path in segments(directory) for batch in batches(path)]
    assert len(segments(directory)) > 2
    assert [batch.record_count for batch in found] == [1 + n % 3 for n in range(BATCHES)]
    assert [batch.codec for batch in found] == [Codec(n % 5) for n in range(BATCHES)]
    assert {batch.leader_epoch for batch in found} == {2}
    offset = 0
    for batch in found:
        assert batch.base_offset == offset == batch.last_offset + 1 - batch.record_count
        assert (batch.producer_id, batch.base_sequence) == (7, offset)
        offset = batch.last_offset + 1
    verified = verify(directory)
    assert not verified.damage
    assert (verified.batches, verified.records) == (BATCHES, offset)
    assert (verified.first_offset, verified.next_offset) == (0, offset)
    assert verified.segments == len(segments(directory))


def test_an_active_segment_is_sound_with_its_large_indexes(open_log: OpenLog) -> None:
    log = open_log(index_interval_bytes=100)
    for _ in range(20):
        log.append(build_batch([b"v" * 50]))
    assert (Path(log.path) / f"{0:020d}.index").stat().st_size > 1000
    found = verify(Path(log.path))
    assert not found.damage
    assert found.records == 20


def test_a_file_that_was_made_longer_beforehand_is_sound(open_log: OpenLog) -> None:
    directory = fill(open_log)
    last = segments(directory)[-1]
    last.write_bytes(last.read_bytes() + bytes(100_000))
    assert not verify(directory).damage
    last.write_bytes(last.read_bytes() + b"x")
    (damage,) = verify(directory).damage
    assert "zeros" in damage.what


def test_every_flipped_bit_is_found_at_its_batch(open_log: OpenLog) -> None:
    directory = fill(open_log)
    path = segments(directory)[1]
    whole = batches(path)
    sound = path.read_bytes()
    for batch in whole[:6]:  # every codec
        for position in range(batch.position, batch.position + batch.size_bytes):
            if position - batch.position in OUTSIDE_CRC:
                continue
            flip(path, position, position % 8)
            with pytest.raises(DamagedLog) as caught:
                batches(path)
            assert (caught.value.offset, caught.value.position) == (
                batch.base_offset, batch.position,
            )  # fmt: skip
            path.write_bytes(sound)
    assert not verify(directory).damage


def test_a_file_that_was_cut_anywhere_is_found(open_log: OpenLog) -> None:
    directory = fill(open_log)
    path = segments(directory)[-1]
    sound, last = path.read_bytes(), batches(path)[-1]
    for size in range(last.position + 1, len(sound)):
        if not any(sound[last.position : size]):
            continue  # zeros may end a file
        path.write_bytes(sound[:size])
        damage = verify(directory).damage
        assert damage, size
        assert (damage[0].path, damage[0].offset) == (path, last.base_offset)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda data: data[:16] + b"\x01" + data[17:], "format 1"),
        (lambda data: data[:8] + struct.pack(">i", 2**31 - 1) + data[12:], "are left"),
        (lambda data: data[:8] + struct.pack(">i", 3) + data[12:], "are left"),
        (lambda data: data + data, "to"),
        (lambda data: data + b"abc", "3 bytes that are no batch"),
    ],
)
def test_damage_is_reported(open_log: OpenLog, change: Callable[[bytes], bytes], said: str) -> None:
    log = open_log()
    log.append(build_batch([b"v"]))
    log.close()
    (path,) = segments(Path(log.path))
    path.write_bytes(change(path.read_bytes()))
    (damage,) = verify(Path(log.path)).damage
    assert said in damage.what, damage


def test_a_batch_whose_largest_timestamp_lies(tmp_path: Path) -> None:
    path = tmp_path / f"{0:020d}.log"
    path.write_bytes(build_batch([Record(timestamp_ms=5)], max_timestamp_ms=6))
    with pytest.raises(DamagedLog, match="largest timestamp is 5, not 6"):
        batches(path)
    path.write_bytes(build_batch([Record(timestamp_ms=5)], max_timestamp_ms=6, attributes=8))
    assert len(batches(path)) == 1  # LogAppendTime


def may_say(path: Path, position: int, there: list[StoredBatch]) -> bool:
    """Whether the entry at that byte is not certainly wrong: the end of another batch,
    as brokers wrote who had one entry for several; an offset inside the batch with that time."""
    data = path.read_bytes()
    if path.suffix == ".index":
        (offset,) = struct.unpack_from(">i", data, position - position % 8)
        return position % 8 < 4 and offset in {batch.last_offset for batch in there}
    timestamp_ms, offset = struct.unpack_from(">qi", data, position - position % 12)
    return any(
        batch.base_offset <= offset <= batch.last_offset and batch.max_timestamp_ms == timestamp_ms
        for batch in there
    )


@pytest.mark.parametrize("suffix", ["index", "timeindex"])
def test_an_index_that_points_elsewhere(open_log: OpenLog, suffix: str) -> None:
    directory = fill(open_log)
    first = segments(directory)[0]
    path = first.with_suffix(f".{suffix}")
    sound = path.read_bytes()
    for position in range(len(sound)):
        flip(path, position, position % 8)
        found = [damage.path for damage in verify(directory).damage]
        if not found:
            assert may_say(path, position, batches(first))
        else:
            assert found == [path], position
        path.write_bytes(sound)
    path.write_bytes(sound + b"\x01")
    assert [damage.path for damage in verify(directory).damage] == [path]


def test_segments_that_overlap_and_epochs_that_fall(open_log: OpenLog) -> None:
    directory = fill(open_log)
    first, second, *_ = segments(directory)
    sound = second.read_bytes()
    second.write_bytes(sound[:12] + struct.pack(">i", 1) + sound[16:])
    (damage,) = verify(directory).damage
    assert (damage.path, damage.what) == (second, "leader epoch 1 after 2")
    second.write_bytes(sound)
    twin = directory / f"{3:020d}.log"
    twin.write_bytes(first.read_bytes())
    (damage,) = verify(directory).damage
    assert (damage.path, damage.offset) == (twin, 3)


def test_small_files(open_log: OpenLog) -> None:
    directory = fill(open_log)
    (snapshot, *_) = sorted(directory.glob("*.snapshot"))
    for path in (snapshot, directory / "leader-epoch-checkpoint", directory / "partition.metadata"):
        sound = path.read_bytes()
        path.write_bytes(b"\xff" + sound)
        assert [damage.path for damage in verify(directory).damage] == [path]
        path.write_bytes(sound)


def test_aborted_transactions(tmp_path: Path) -> None:
    path = tmp_path / f"{0:020d}.txnindex"
    path.write_bytes(struct.pack(">hqqqq", 0, 7, 10, 20, 21))
    assert list(aborted_transactions(path)) == [(7, 10, 20, 21)]
    path.write_bytes(struct.pack(">hqqqq", 1, 7, 10, 20, 21))
    with pytest.raises(DamagedLog, match="version 1"):
        list(aborted_transactions(path))


@pytest.mark.parametrize("zeros", [0, 6, 65_528, 65_535, 65_536, 131_072, 200_000])
@pytest.mark.parametrize("before", [0, 1, 8_191, 8_192, 8_193, 20_000])
def test_an_index_ends_where_its_zeros_begin(tmp_path: Path, before: int, zeros: int) -> None:
    """However long it was made beforehand; and a byte after them is damage, not zeros."""
    path = tmp_path / f"{0:020}.index"
    entries = b"".join(struct.pack(">ii", number + 1, number + 1) for number in range(before))
    path.write_bytes(entries + bytes(zeros))
    assert len(list(offset_entries(path))) == before
    path.write_bytes(entries + bytes(zeros) + b"\xff")
    with pytest.raises(DamagedLog):
        list(offset_entries(path))
