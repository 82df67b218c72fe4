"""What a start makes of the files that a compaction or a person left in a log's directory."""

from __future__ import annotations

import errno
import shutil
import struct
from contextlib import suppress
from pathlib import Path

import pytest

from kbroker.errors import ErrorCode, KafkaError
from kbroker.log.looking._tools import crc32c
from kbroker.testing.file_faults import FOREVER, Fault, FileFaults
from tests.support.record_batches import Record, build_batch
from tests.unit.log.conftest import OpenLog
from tests.unit.log.test_recovery import stored


def segments_for_swap(open_log: OpenLog) -> tuple[Path, list[Path]]:
    log = open_log(segment_bytes=300)
    for number in range(20):
        log.append(build_batch([b"%d" % number]))
    log.close()
    files = sorted(log.path.glob("*.log"))
    assert len(files) == 5
    return log.path, files


@pytest.mark.parametrize("clean", [True, False])
def test_a_swap_whose_originals_are_gone_is_completed(open_log: OpenLog, clean: bool) -> None:
    path, files = segments_for_swap(open_log)
    for suffix in (".log", ".index", ".timeindex"):
        source = files[2].with_suffix(suffix)
        source.rename(source.with_name(source.name + ".swap"))
    assert stored(open_log(clean=clean)) == list(range(20))
    assert not list(path.glob("*.swap"))


@pytest.mark.parametrize("clean", [True, False])
def test_a_swap_takes_the_place_of_all_that_it_holds(open_log: OpenLog, clean: bool) -> None:
    path, files = segments_for_swap(open_log)
    swap = files[2].with_name(files[2].name + ".swap")
    swap.write_bytes(files[2].read_bytes() + files[3].read_bytes())
    for suffix in (".index", ".timeindex"):
        files[2].with_name(files[2].stem + suffix + ".swap").touch()
    assert stored(open_log(clean=clean)) == list(range(20))
    assert sorted(path.glob("*.log")) == [*files[:3], *files[4:]]
    assert not list(path.glob("*.swap"))


def with_swap_of_three(path: Path, files: list[Path], gone: int) -> None:
    """Of segments 1 to 3, of which one batch stays; so many of them have given their names up, the
    last ones first."""
    *_, last = batches_in(files[3])
    put_swap(files, [last])
    for suffix in (".index", ".timeindex"):
        files[1].with_name(files[1].stem + suffix + ".swap").touch()
    for file in files[4 - gone : 4]:
        for suffix in (".log", ".index", ".timeindex"):
            source = file.with_suffix(suffix)
            source.rename(source.with_name(source.name + ".deleted"))


LEFT = [0, 1, 2, 3, 15, 16, 17, 18, 19]


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("gone", range(4))
def test_a_swap_is_completed_wherever_a_crash_has_ended_it(
    open_log: OpenLog, gone: int, clean: bool
) -> None:
    path, files = segments_for_swap(open_log)
    with_swap_of_three(path, files, gone)
    assert stored(open_log(clean=clean)) == LEFT
    assert sorted(path.glob("*.log")) == [*files[:2], files[4]]
    assert not [each for each in path.iterdir() if each.suffix in (".swap", ".deleted")]


@pytest.mark.parametrize("gone", range(4))
@pytest.mark.parametrize("nth", range(1, 20))
def test_a_start_that_completes_a_swap_is_ended_itself(
    open_log: OpenLog, gone: int, nth: int
) -> None:
    path, files = segments_for_swap(open_log)
    with_swap_of_three(path, files, gone)
    fault = Fault(("unlink", "rename"), path.name, nth=nth, times=FOREVER, error=errno.EIO)
    with FileFaults(fault), suppress(OSError, KafkaError):
        open_log(clean=False).close()
    assert stored(open_log(clean=False)) == LEFT


def contents(path: Path) -> dict[str, bytes]:
    return {each.name: each.read_bytes() for each in path.iterdir()}


# --- Names that are no segment's ------------------------------------------------------------------


@pytest.mark.parametrize(
    "suffix", [".log.swap", ".log.cleaned", ".log.deleted", ".index.swap", ".snapshot.deleted"]
)
@pytest.mark.parametrize("prefix", ["before-", "1", "9" * 20, "\N{FULLWIDTH DIGIT ONE}" * 20])
def test_a_file_with_another_name_has_no_effect(
    open_log: OpenLog, prefix: str, suffix: str
) -> None:
    path, files = segments_for_swap(open_log)
    number = "" if len(prefix) == 20 else files[-1].stem
    foreign = path / f"{prefix}{number}{suffix}"
    shutil.copy(files[-1], foreign)
    assert stored(open_log(clean=True)) == list(range(20))
    assert sorted(path.glob("*.log")) == files
    assert foreign.exists()


def test_a_file_with_another_name_does_not_take_a_swap_for_unfinished(open_log: OpenLog) -> None:
    path, files = segments_for_swap(open_log)
    files[2].rename(files[2].with_name(files[2].name + ".swap"))
    (path / "notes.cleaned").touch()
    assert stored(open_log(clean=True)) == list(range(20))


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("suffix", ["log", "index"])
@pytest.mark.parametrize(
    "number", ["9" * 20, f"{2**63:020d}", "\N{FULLWIDTH DIGIT ONE}" * 20, "1" * 19, "1" * 21]
)
def test_a_name_beyond_every_offset_is_no_segments(
    open_log: OpenLog, number: str, suffix: str, clean: bool
) -> None:
    path, _ = segments_for_swap(open_log)
    foreign = path / f"{number}.{suffix}"
    foreign.write_bytes(b"abc")
    assert stored(open_log(clean=clean)) == list(range(20))
    assert foreign.exists()


# --- Swaps whose headers are damaged --------------------------------------------------------------


def put_swap(files: list[Path], batches: list[bytes]) -> Path:
    swap = files[1].with_name(files[1].name + ".swap")
    swap.write_bytes(b"".join(batches))
    return swap


def batches_in(path: Path) -> list[bytes]:
    data, found = path.read_bytes(), []
    while data:
        size = 12 + int(struct.unpack_from(">i", data, 8)[0])
        found.append(data[:size])
        data = data[size:]
    return found


def at_offset(batch: bytes, offset: int) -> bytes:
    return struct.pack(">q", offset) + batch[8:]


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("offset", [0, 5, 14, 19, 20, 1 << 20, 1 << 40, 2**63 - 1, -1, -(2**63)])
def test_a_swap_with_a_damaged_offset_removes_nothing(
    open_log: OpenLog, offset: int, clean: bool
) -> None:
    """In its last batch: no later one contradicts it."""
    path, files = segments_for_swap(open_log)
    batches = batches_in(files[1])
    put_swap(files, [*batches[:-1], at_offset(batches[-1], offset)])
    (path / f"{0:020d}.log.deleted").write_bytes(b"an original, perhaps")
    before = contents(path)
    with pytest.raises(KafkaError, match="nothing was changed") as refused:
        open_log(clean=clean)
    assert refused.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    assert contents(path) == before


def test_a_swap_whose_offsets_go_back_removes_nothing(open_log: OpenLog) -> None:
    path, files = segments_for_swap(open_log)
    first, *others = batches_in(files[1])
    put_swap(files, [at_offset(first, 18), *others])
    before = contents(path)
    with pytest.raises(KafkaError, match="nothing was changed"):
        open_log(clean=True)
    assert contents(path) == before


def test_a_swap_whose_last_batch_has_fewer_records_is_completed(open_log: OpenLog) -> None:
    log = open_log(segment_bytes=300)
    for number in range(12):
        log.append(build_batch([Record(b"a", timestamp_ms=number), Record(b"b", timestamp_ms=50)]))
    log.close()
    files = sorted(log.path.glob("*.log"))
    *_, last = batches_in(files[2])
    fewer = bytearray(
        build_batch([Record(b"a", timestamp_ms=3)], base_offset=struct.unpack_from(">q", last)[0])
    )
    fewer[12:16] = last[12:16]
    struct.pack_into(">i", fewer, 23, 1)  # the last delta stays
    struct.pack_into(">I", fewer, 17, crc32c(bytes(fewer[21:])))
    put_swap(files, [bytes(fewer)])
    again = open_log(clean=True)
    assert sorted(log.path.glob("*.log")) == [*files[:2], *files[3:]]
    assert again.log_end_offset == 24
