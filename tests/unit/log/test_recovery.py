"""Opening a log after a crash, cut at every byte."""

from __future__ import annotations

import errno
import logging
import shutil
import struct
from pathlib import Path

import pytest

from kbroker.errors import ErrorCode, KafkaError
from kbroker.log.engine.checkpoints import CheckpointError
from kbroker.log.looking._tools import crc32c
from kbroker.testing.file_faults import Fault, FileFaults
from tests.support.led_log import LedLog
from tests.support.record_batches import Record, build_batch, parse_batches
from tests.unit.log.conftest import OpenLog


def idempotent(sequence: int, value: bytes = b"v") -> bytes:
    return build_batch(
        [Record(value, timestamp_ms=1_000 + sequence)],
        producer_id=9, producer_epoch=0, base_sequence=sequence,
    )  # fmt: skip


def crash(log: LedLog) -> Path:
    """What a killed process leaves: a copy of the directory while the log is open."""
    left = log.path.with_name("left")
    shutil.rmtree(left, ignore_errors=True)
    shutil.copytree(log.path, left)
    log.close(clean=False)
    shutil.rmtree(log.path)
    left.rename(log.path)
    return log.path


def active_file(path: Path) -> Path:
    return max(path.glob("*.log"))


def stored(log: LedLog) -> list[int]:
    out: list[int] = []
    offset = log.log_start_offset
    while data := log.read(offset):
        out += [batch.base_offset for batch in parse_batches(data)]
        offset = out[-1] + 1
    return out


def test_a_torn_write_at_every_byte_of_the_last_batch(open_log: OpenLog) -> None:
    log = open_log()
    for sequence in range(3):
        log.append(idempotent(sequence, b"some value"))
    path = crash(log)
    whole = active_file(path).read_bytes()
    size = len(whole) // 3
    last = 2 * size
    for cut in range(last, len(whole) + 1):
        active_file(path).write_bytes(whole[:cut])
        log = open_log(high_watermark=3)
        expected = 3 if cut == len(whole) else 2
        assert log.log_end_offset == log.high_watermark == expected, cut
        assert stored(log) == list(range(expected))
        assert active_file(path).stat().st_size == expected * size
        # The producer goes on where the log ends, and its last batch is still known.
        assert log.append(idempotent(expected - 1)).base_offset == expected - 1
        assert log.append(idempotent(expected, b"some value")).base_offset == expected
        log.close(clean=False)


def test_a_flipped_bit_at_every_byte_of_the_last_batch(open_log: OpenLog) -> None:
    log = open_log()
    for sequence in range(3):
        log.append(idempotent(sequence))
    path = crash(log)
    whole = active_file(path).read_bytes()
    last = len(whole) * 2 // 3
    for at in range(last, len(whole)):
        damaged = bytearray(whole)
        damaged[at] ^= 0x20
        active_file(path).write_bytes(damaged)
        log = open_log()
        # The base offset's high bytes and the leader epoch are outside the CRC.
        expected = {2}
        if at < last + 16:
            expected = {2, struct.unpack_from(">q", damaged, last)[0] + 1}
        assert log.log_end_offset in expected, at
        log.close(clean=False)
        shutil.rmtree(path)
        path.mkdir()
        active_file_of_new = path / f"{0:020d}.log"
        active_file_of_new.write_bytes(whole)


def test_zeros_and_noise_beyond_the_end(open_log: OpenLog) -> None:
    for tail in (bytes(1), bytes(4_096), b"\xff" * 61, b"noise" * 100):
        log = open_log()
        end = log.log_end_offset
        log.append(build_batch())
        path = crash(log)
        with active_file(path).open("ab") as file:
            file.write(tail)
        log = open_log()
        assert log.log_end_offset == end + 1
        assert log.append(build_batch()).base_offset == end + 1
        log.close()


def test_a_torn_segment_in_the_middle_ends_the_log(
    open_log: OpenLog, caplog: pytest.LogCaptureFixture
) -> None:
    settings = {"segment_bytes": 300, "index_interval_bytes": 0}
    log = open_log(**settings)
    for sequence in range(20):
        log.append(idempotent(sequence))
    path = crash(log)
    files = sorted(path.glob("*.log"))
    assert len(files) > 4
    with files[2].open("r+b") as file:
        file.seek(-3, 2)
        file.write(b"?")
    with caplog.at_level(logging.WARNING, "kbroker.log"):
        log = open_log(**settings)
    assert "CRC" in caplog.text
    end = log.log_end_offset
    assert int(files[2].stem) < end < int(files[3].stem)
    assert sorted(path.glob("*.log")) == files[:3]
    assert stored(log) == list(range(end))
    assert log.append(idempotent(end)).base_offset == end
    log.close()
    assert stored(open_log(clean=True, **settings)) == list(range(end + 1))


@pytest.mark.parametrize("lost", [0, 1])
def test_names_that_a_power_cut_left_after_lost_bytes_do_not_move_the_end(
    open_log: OpenLog, lost: int
) -> None:
    """Or a follower would have a hole that is never filled, and could be elected with it."""
    settings = {"segment_bytes": 300, "index_interval_bytes": 0}
    log = open_log(**settings)
    for sequence in range(20):
        log.append(idempotent(sequence))
    path = crash(log)
    files = sorted(path.glob("*.log"))
    for file in files[lost:]:
        file.write_bytes(b"")
    log = open_log(**settings)
    end = int(files[lost].stem)
    assert (log.log_end_offset, stored(log)) == (end, list(range(end)))
    assert len(list(path.glob("*.log"))) == max(lost, 1)
    assert log.append(idempotent(end)).base_offset == end
    log.close()
    assert stored(open_log(clean=True, **settings)) == list(range(end + 1))


def test_nothing_is_known_of_batches_whose_files_are_gone(open_log: OpenLog) -> None:
    """Or a follower names an epoch of which it has nothing, and takes no batch before it."""
    log = open_log()
    log.set_leadership(1, True, 3, 1)
    for sequence in range(3):
        log.append(idempotent(sequence))
    log.write_snapshot()
    path = crash(log)
    for file in (*path.glob("*.log"), *path.glob("*index")):
        file.unlink()
    log = open_log()
    assert (log.log_end_offset, log.producer_entries()) == (0, (0, []))
    assert log.epochs.entries == [(0, 0)]  # in which it leads now
    assert not list(path.glob("*.snapshot"))


def test_segments_below_the_recovery_point_are_trusted(open_log: OpenLog) -> None:
    settings = {"segment_bytes": 300}
    log = open_log(**settings)
    for sequence in range(20):
        log.append(idempotent(sequence))
    point = log.flush(active=False)
    assert point == log.active_base_offset == log.recovery_point
    path = crash(log)
    first = min(path.glob("*.log"))
    damaged = bytearray(first.read_bytes())
    damaged[-1] ^= 1
    first.write_bytes(damaged)
    log = open_log(recovery_point=point, **settings)
    assert log.log_end_offset == 20
    assert log.recovery_point == point
    log.close(clean=False)
    log = open_log(recovery_point=0, **settings)
    assert log.log_end_offset < 20


def test_after_a_clean_close_nothing_is_read_again(open_log: OpenLog) -> None:
    log = open_log()
    for sequence in range(10):
        log.append(idempotent(sequence))
    log.close()
    damaged = bytearray(active_file(log.path).read_bytes())
    damaged[-1] ^= 1
    active_file(log.path).write_bytes(damaged)
    log = open_log(clean=True, high_watermark=4, lead=False)
    assert (log.high_watermark, log.log_end_offset) == (4, 10)


def test_the_high_watermark_is_never_beyond_the_end(open_log: OpenLog) -> None:
    log = open_log()
    log.append(build_batch([b"a"] * 3))
    log.close()
    log = open_log(clean=True, high_watermark=99, lead=False)
    assert (log.high_watermark, log.log_end_offset) == (3, 3)


# --- Producers ------------------------------------------------------------------------------------


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("snapshots", ["kept", "removed", "damaged"])
def test_producers_survive(open_log: OpenLog, clean: bool, snapshots: str) -> None:
    log = open_log(segment_bytes=400)
    for sequence in range(12):
        log.append(idempotent(sequence))
        if sequence == 7:
            log.write_snapshot()
    if clean:
        log.close()
    else:
        crash(log)
    files = list(log.path.glob("*.snapshot"))
    assert len(files) == (2 if clean else 1)
    for file in files:
        if snapshots == "removed":
            file.unlink()
        elif snapshots == "damaged":
            file.write_bytes(file.read_bytes()[:-1] + b"\xff")
    log = open_log(clean=clean, segment_bytes=400)
    assert log.append(idempotent(11)).base_offset == 11
    with pytest.raises(KafkaError) as caught:
        log.append(idempotent(13))
    assert caught.value.code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert log.append(idempotent(12)).base_offset == 12


@pytest.mark.parametrize("clean", [True, False])
def test_each_batch_in_flight_may_be_sent_again_after_a_start(
    open_log: OpenLog, clean: bool
) -> None:
    """A client has five in flight, and of none it has the answer."""
    log = open_log()
    for sequence in range(6):
        log.append(idempotent(sequence))
    log.write_snapshot()
    if clean:
        log.close()
    else:
        crash(log)
    log = open_log(clean=clean)
    for sequence in range(1, 6):
        assert log.append(idempotent(sequence)).base_offset == sequence
    with pytest.raises(KafkaError) as caught:
        log.append(idempotent(0))
    assert caught.value.code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert log.log_end_offset == 6


def test_a_snapshot_of_batches_that_a_crash_took_is_removed(open_log: OpenLog) -> None:
    log = open_log()
    for sequence in range(4):
        log.append(idempotent(sequence))
        log.write_snapshot()
    path = crash(log)
    assert [int(f.stem) for f in sorted(path.glob("*.snapshot"))] == [3, 4]
    whole = active_file(path).read_bytes()
    active_file(path).write_bytes(whole[: len(whole) * 3 // 4 - 1])
    log = open_log()
    assert log.log_end_offset == 2
    assert list(path.glob("*.snapshot")) == []
    assert log.append(idempotent(1)).base_offset == 1
    assert log.append(idempotent(2)).base_offset == 2


# --- The directory --------------------------------------------------------------------------------


def test_left_over_files_are_removed(open_log: OpenLog) -> None:
    log = open_log()
    log.append(build_batch())
    log.close()
    left = [
        f"{0:020d}.log.deleted", f"{5:020d}.log.cleaned",
        f"{5:020d}.log.swap",     # after a .cleaned: a split that was not finished
        f"{5:020d}.index", f"{5:020d}.timeindex", "leader-epoch-checkpoint.tmp",
    ]  # fmt: skip
    for name in left:
        (log.path / name).write_bytes(b"left over")
    (log.path / "notes.txt").write_bytes(b"a person's")
    open_log(clean=True)
    assert not any((log.path / name).exists() for name in left)
    assert (log.path / "notes.txt").exists()


def test_another_topics_directory_is_not_opened(open_log: OpenLog) -> None:
    log = open_log()
    log.close()
    other = "version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAQ"
    (log.path / "partition.metadata").write_text(other)
    with pytest.raises(CheckpointError, match="belongs to"):
        open_log()


def test_epochs_beyond_the_end_are_forgotten(open_log: OpenLog) -> None:
    log = open_log(leader_epoch=2)
    log.append(build_batch())
    log.set_leadership(1, True, 5, 1)
    log.append(build_batch())
    path = crash(log)
    whole = active_file(path).read_bytes()
    active_file(path).write_bytes(whole[:-1])
    log = open_log(lead=False)
    assert log.epochs.entries == [(2, 0)]
    log.set_leadership(1, True, 6, 1)
    assert log.epochs.entries == [(2, 0), (6, 1)]


def test_epochs_that_a_power_cut_took_are_read_from_the_batches(open_log: OpenLog) -> None:
    settings = {"segment_bytes": 150}
    log = open_log(leader_epoch=1, **settings)
    for epoch in (1, 1, 4, 4, 9):
        log.set_leadership(1, True, epoch, 1)
        log.append(build_batch([b"a", b"b"]))
    expected = log.epochs.entries
    path = crash(log)
    (path / "leader-epoch-checkpoint").write_bytes(b"")
    log = open_log(lead=False, **settings)
    assert log.epochs.entries == expected == [(1, 0), (4, 4), (9, 8)]


def test_epochs_that_the_file_lacks_are_read_from_the_batches(open_log: OpenLog) -> None:
    """A power cut may leave the file as it was before the last changes."""
    settings = {"segment_bytes": 150}
    log = open_log(leader_epoch=1, **settings)
    for _ in range(3):
        log.append(build_batch([b"a", b"b"]))
    log.flush_rolled()
    old = (log.path / "leader-epoch-checkpoint").read_bytes()
    for epoch in (4, 4, 9):
        log.set_leadership(1, True, epoch, 1)
        log.append(build_batch([b"a", b"b"]))
    log.flush()
    # The promise to a later start goes no further than the epochs that are on the disk.
    point = log.settled_recovery_point
    assert (point, log.recovery_point) == (6, 12)
    path = crash(log)
    (path / "leader-epoch-checkpoint").write_bytes(old)
    log = open_log(lead=False, recovery_point=point, **settings)
    assert log.epochs.entries == [(1, 0), (4, 6), (9, 10)]
    log.flush_rolled()
    assert log.epochs.unsettled_from > log.log_end_offset
    log.close()
    assert open_log(lead=False, clean=True).epochs.entries == [(1, 0), (4, 6), (9, 10)]


def test_of_a_log_that_was_cut_the_batches_tell_and_not_the_file(open_log: OpenLog) -> None:
    """The process ends when the file still has epochs of the cut part."""
    log = open_log(leader_epoch=1)
    for epoch in (1, 3, 5):
        log.set_leadership(1, True, epoch, 1)
        log.append(build_batch([b"a", b"b"]))
    log.flush()
    log.epochs.settle(log.log_end_offset)
    log.truncate_to(2)
    log.flush()
    point = log.settled_recovery_point
    assert point == 2
    log.set_leadership(2, False, 7, 2)
    batch = build_batch([b"c"])
    for offset, epoch in ((2, 2), (3, 7)):
        head = struct.pack(">q", offset) + batch[8:12] + struct.pack(">i", epoch)
        log.append_as_follower(head + batch[16:], 7)
    expected = log.epochs.entries
    crash(log)
    log = open_log(lead=False, recovery_point=point)
    assert log.epochs.entries == expected == [(1, 0), (2, 2), (7, 3)]


@pytest.mark.parametrize("trimmed", [False, True])
def test_no_older_epoch_takes_the_place_of_that_of_deleted_records(
    open_log: OpenLog, trimmed: bool
) -> None:
    """The file lacks it, and the only batches of it lie below the log's start. Without any batch
    no epoch is known, as in Apache Kafka, but never an older one."""
    log = open_log(leader_epoch=0, segment_bytes=200)
    log.append(build_batch([b"a" * 80]))
    log.flush()
    log.epochs.settle(log.log_end_offset)
    flushed = log.log_end_offset
    log.set_leadership(1, True, 2, 1)
    log.append(build_batch([b"b" * 80]))
    start = log.delete_records(-1)
    if trimmed:
        assert log.trim()
    crash(log)
    again = open_log(lead=False, recovery_point=flushed, log_start_offset=start)
    assert again.epochs.entries == ([] if trimmed else [(2, start)])


def test_a_trim_keeps_batches_whose_epoch_a_full_disk_does_not_take(open_log: OpenLog) -> None:
    log = open_log(leader_epoch=0, segment_bytes=200)
    log.append(build_batch([b"a" * 80]))
    log.flush()
    log.epochs.settle(log.log_end_offset)
    flushed = log.log_end_offset
    log.set_leadership(1, True, 2, 1)
    log.append(build_batch([b"b" * 80]))
    start = log.delete_records(-1)
    with FileFaults(Fault(("write",), "leader-epoch", times=2, error=errno.ENOSPC)):
        assert log.trim()
        with pytest.raises(OSError, match="No space"):
            log.trim()
    crash(log)
    again = open_log(lead=False, recovery_point=flushed, log_start_offset=start)
    assert again.epochs.entries == [(2, start)]
    assert again.trim()  # there is room again


def test_a_trim_keeps_records_that_are_deleted_meanwhile(
    open_log: OpenLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their epoch is not in the file when the trim has written that."""
    log = open_log(leader_epoch=0, segment_bytes=200)
    log.append(build_batch([b"a" * 80]))
    log.append(build_batch([b"a" * 80]))
    log.flush()
    flushed = log.log_end_offset
    log.delete_records(1)
    settle = log.epochs.settle

    def meanwhile(offset: int) -> None:
        settle(offset)
        log.set_leadership(1, True, 2, 1)
        log.append(build_batch([b"b" * 80]))
        log.delete_records(-1)

    with monkeypatch.context() as patch:
        patch.setattr(log.epochs, "settle", meanwhile)
        assert log.trim()
    start = log.log_start_offset
    crash(log)
    again = open_log(lead=False, recovery_point=flushed, log_start_offset=start)
    assert again.epochs.entries == [(2, start)]


def test_epochs_of_a_log_whose_start_moved_begin_with_it(open_log: OpenLog) -> None:
    log = open_log(leader_epoch=1)
    for epoch in (1, 4):
        log.set_leadership(1, True, epoch, 1)
        for _ in range(3):
            log.append(build_batch([b"a", b"b"]))
    crash(log)
    log = open_log(lead=False, log_start_offset=9)  # within a batch
    assert log.epochs.entries == [(4, 9)]
    log.close()
    assert open_log(lead=False, clean=True, log_start_offset=11).epochs.entries == [(4, 11)]


def test_an_epoch_file_of_other_bytes_is_made_anew(open_log: OpenLog) -> None:
    log = open_log(leader_epoch=3)
    log.append(build_batch())
    log.close()
    (log.path / "leader-epoch-checkpoint").write_bytes(b"\xff\x00 no text")
    log = open_log(clean=True, lead=False)
    assert log.epochs.entries == [(3, 0)]


@pytest.mark.slow
def test_a_batch_beyond_two_gigabytes_ends_the_log(open_log: OpenLog) -> None:
    """An index has no place for it. No broker writes so long a segment: a disk may hold one."""
    log = open_log()
    log.append(build_batch([b"first"]))
    path = active_file(crash(log))
    batch = bytearray(path.read_bytes())
    struct.pack_into(">i", batch, 8, 2**31 - 1)  # zeros follow, in a hole of the file
    end = 12 + 2**31 - 1
    crc, zeros = crc32c(batch[21:]), memoryview(bytes(1 << 24))
    for at in range(len(batch), end, len(zeros)):
        crc = crc32c(zeros[: end - at], crc)
    struct.pack_into(">I", batch, 17, crc)
    with path.open("r+b") as file:
        file.write(batch)
        file.seek(end)
        file.write(build_batch([b"second"], base_offset=1))
    again = open_log()
    assert again.online and again.log_end_offset == 1
    assert path.stat().st_size == end
