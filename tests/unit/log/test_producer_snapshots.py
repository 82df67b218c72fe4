"""Producer snapshots: the bytes of Kafka's format, and files that are not one."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest
from fastcrc import crc32

from kbroker.log.engine import producer_snapshots as snapshots
from kbroker.log.engine._results import ProducerEntry
from kbroker.testing.file_faults import FileFaults
from tests.support.snapshots import encode, packed

ENTRIES = [
    ProducerEntry(4_000, 3, 17, 99, 2, 1_600_000_000_000, 0, -1),
    ProducerEntry(4_001, 0, -1, -1, 0, 5, 7, 80),
]
# Written down by hand from the format: the count, then the entries.
BODY = bytes.fromhex(
    "00000002"
    "0000000000000fa0 0003 00000011 0000000000000063 00000002 00000174876e8000"
    "00000000 ffffffffffffffff"
    "0000000000000fa1 0000 ffffffff ffffffffffffffff 00000000 0000000000000005"
    "00000007 0000000000000050"
)
BYTES = b"\x00\x01" + struct.pack(">I", crc32.iscsi(BODY)) + BODY


def test_the_bytes_of_a_snapshot() -> None:
    assert encode(ENTRIES) == BYTES
    assert snapshots.decode(BYTES) == ENTRIES
    assert snapshots.decode(encode([])) == []


def test_damage_is_seen() -> None:
    for at in range(len(BYTES)):
        damaged = bytearray(BYTES)
        damaged[at] ^= 1
        with pytest.raises(snapshots.SnapshotError):
            snapshots.decode(bytes(damaged))
    for size in range(len(BYTES)):
        with pytest.raises(snapshots.SnapshotError):
            snapshots.decode(BYTES[:size])


def test_two_files_are_kept(tmp_path: Path) -> None:
    for offset in (5, 10, 10**15, 20):
        snapshots.write(tmp_path, offset, packed(ENTRIES), sync=offset == 5)
    assert [offset for offset, _ in snapshots.snapshot_files(tmp_path)] == [20, 10**15]
    assert not list(tmp_path.glob("*.tmp"))


def test_the_newest_sound_one_below_the_end(tmp_path: Path) -> None:
    assert snapshots.load_newest(tmp_path, 100) == (-1, [])
    for offset in (5, 10, 20, 30):
        (tmp_path / f"{offset:020d}.snapshot").write_bytes(encode(ENTRIES[: offset % 4]))
    (tmp_path / f"{20:020d}.snapshot").write_bytes(b"damaged")
    assert snapshots.load_newest(tmp_path, 25) == (10, ENTRIES[:2])
    assert [offset for offset, _ in snapshots.snapshot_files(tmp_path)] == [5, 10]


def test_producers_that_a_cut_log_cannot_have_do_not_come_back(tmp_path: Path) -> None:
    """A removal that a power cut undoes would put an old history's producers into a new log."""
    for offset in (10, 20, 30):
        snapshots.write(tmp_path, offset, packed(ENTRIES), sync=True)
    with FileFaults() as faults:
        assert snapshots.load_newest(tmp_path, 25)[0] == 20
        assert snapshots.load_newest(tmp_path, 25)[0] == 20
    done = [(seen.operation, Path(seen.path).name) for seen in faults.seen]
    removed = done.index(("unlink", f"{30:020d}.snapshot"))
    assert done[removed + 1 :].count(("sync", tmp_path.name)) == 1
