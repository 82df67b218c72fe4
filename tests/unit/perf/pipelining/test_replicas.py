"""What both replicas have: every record once, each producer's in order, with the bytes that were
sent."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from perf import batch
from perf._load import crc32c
from perf.batch import CRC_AT
from perf.cells import CellError
from perf.pipelining import replicas
from perf.wire import WireError

STAMPED = batch.of_records(100, stamped=True)
OTHERS = batch.of_records(100, stamped=True, seed=8)  # another producer's
FIRST = batch.of_records(100)  # the one that is there before the load
CRC_FROM = batch.ATTRIBUTES_AT


def _log(
    *offsets_and_stamps: tuple[int, int],
    first: batch.RecordBatch = FIRST,
    others: tuple[int, ...] = (),
) -> bytes:
    """A segment; at the offsets of `others` lies what another producer sent."""
    made = bytearray(first.data)
    for offset, stamp in offsets_and_stamps:
        one = bytearray((OTHERS if offset in others else STAMPED).data)
        struct.pack_into(">q", one, 0, offset)
        struct.pack_into(">q", one, STAMPED.stamp_at, stamp)
        struct.pack_into(">I", one, CRC_AT, crc32c(bytes(one[CRC_FROM:])))
        made += one
    return bytes(made)


GOOD = _log((1, 10), (2, 20), (3, 30))


def _replicas(tmp_path: Path, *logs: bytes) -> list[Path]:
    homes = []
    for number, data in enumerate(logs):
        home = tmp_path / f"broker-{number}"
        place = home / "data" / "t-0"
        place.mkdir(parents=True)
        (place / f"{0:020d}.log").write_bytes(data)
        homes.append(home)
    return homes


def test_replicas_that_have_everything_in_order_are_fine(tmp_path: Path) -> None:
    replicas.check(_replicas(tmp_path, GOOD, GOOD), "t", 4, STAMPED.stamp_at)


@pytest.mark.parametrize(
    ("log", "says"),
    [
        pytest.param(_log((1, 10), (2, 20)), "3 records of t, not 4", id="lost"),
        pytest.param(_log((1, 10), (2, 20), (4, 30)), "offset 4 where 3 had to be", id="a gap"),
        pytest.param(_log((1, 10), (2, 20), (2, 20)), "offset 2 where 3 had to be", id="twice"),
        pytest.param(_log((1, 10), (2, 30), (3, 20)), "not sent after", id="order"),
        pytest.param(_log((1, 10), (2, 20), (3, 20)), "not sent after", id="the same again"),
        pytest.param(
            _log((1, 10), (2, 20), (3, 30), first=batch.of_records(99)),
            "other records of t than on its leader",
            id="another record",
        ),
    ],
)
def test_a_replica_with_anything_else_is_not(tmp_path: Path, log: bytes, says: str) -> None:
    with pytest.raises(CellError, match=says):
        replicas.check(_replicas(tmp_path, GOOD, log), "t", 4, STAMPED.stamp_at)


@pytest.mark.parametrize("stamped", [True, False])
def test_bytes_that_are_not_those_of_the_crc_are_found(tmp_path: Path, stamped: bool) -> None:
    """On one replica alone, and with the CRC as it was sent."""
    log = bytearray(GOOD)
    log[-2] ^= 1
    homes = _replicas(tmp_path, GOOD, bytes(log))
    with pytest.raises(WireError, match=r"the CRC of the batch at .* is not of its bytes"):
        replicas.check(homes, "t", 4, STAMPED.stamp_at if stamped else -1)


@pytest.mark.parametrize("length", [-1, 5, 1 << 30])
def test_a_file_that_is_no_log_is_said(tmp_path: Path, length: int) -> None:
    data = bytearray(GOOD)
    struct.pack_into(">i", data, 8, length)
    (home,) = _replicas(tmp_path, bytes(data))
    with pytest.raises(WireError, match=f"a batch of {length} bytes at 0"):
        replicas.check([home], "t", 4, STAMPED.stamp_at)


def test_the_end_of_a_file_is_a_batch_or_nothing(tmp_path: Path) -> None:
    (torn,) = _replicas(tmp_path / "torn", GOOD + b"\0\0\0\0\0\0\0\4half a header")
    with pytest.raises(WireError, match=r"21 bytes at .* that are no batch"):
        replicas.check([torn], "t", 4, STAMPED.stamp_at)
    for room in (10, 1000):  # made longer beforehand
        (roomy,) = _replicas(tmp_path / str(room), GOOD + bytes(room))
        replicas.check([roomy], "t", 4, STAMPED.stamp_at)


def test_each_of_several_producers_has_its_own_order(tmp_path: Path) -> None:
    """Among each other their records may lie as they came."""
    mixed = _log((1, 30), (2, 10), (3, 40), (4, 20), others=(2, 4))
    replicas.check(_replicas(tmp_path / "fine", mixed, mixed), "t", 5, STAMPED.stamp_at)
    turned = _log((1, 30), (2, 20), (3, 40), (4, 10), others=(2, 4))
    with pytest.raises(CellError, match="the record at 4 was not sent after its producer's last"):
        replicas.check(_replicas(tmp_path / "turned", turned, turned), "t", 5, STAMPED.stamp_at)


def test_records_without_a_stamp_have_no_order(tmp_path: Path) -> None:
    mixed = _log((1, 30), (2, 10), (3, 20))
    replicas.check(_replicas(tmp_path, mixed, mixed), "t", 4, -1)
