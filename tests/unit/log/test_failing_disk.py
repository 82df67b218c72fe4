"""A disk that refuses, and bytes that are damaged: what is changed then, and what is not."""

from __future__ import annotations

import errno
import logging
import os
import struct
import traceback
from pathlib import Path

import pytest

from kbroker.errors import ErrorCode, KafkaError
from kbroker.log.looking.verify import verify
from kbroker.log.opening.set_aside import TORN_KEPT_MAX
from kbroker.testing.file_faults import FOREVER, Fault, FileFaults
from tests.support.led_log import LedLog
from tests.support.record_batches import Record, build_batch, parse_batches
from tests.unit.log.conftest import OpenLog
from tests.unit.log.test_recovery import crash, stored

SMALL = {"segment_bytes": 300, "index_interval_bytes": 0, "segment_index_bytes": 4_096}


def content(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in directory.iterdir()}


def filled(open_log: OpenLog, count: int = 20) -> LedLog:
    log = open_log(**SMALL)
    for number in range(count):
        log.append(build_batch([b"%d" % number]))
    assert len(list(log.path.glob("*.log"))) > 4
    return log


# --- A read that fails is no damage ---------------------------------------------------------------


@pytest.mark.parametrize(
    ("clean", "operation"),
    [
        *((clean, operation) for clean in (True, False) for operation in ("read", "open", "size")),
        (False, "map"),  # after a clean stop with the first append
    ],
)
def test_a_read_error_at_the_start_changes_nothing(
    open_log: OpenLog, clean: bool, operation: str
) -> None:
    log = filled(open_log)
    if clean:
        log.close()
    else:
        crash(log)
    before = content(log.path)

    def put_back() -> None:
        for path in log.path.iterdir():
            path.unlink()
        for name, data in before.items():
            (log.path / name).write_bytes(data)

    with FileFaults() as faults:
        opened = open_log(clean=clean, lead=False, **SMALL)
        done = faults.look()
        opened.close(clean=False)
    wanted = [each for each in done if each.operation == operation]
    assert len(wanted) >= 2
    refused = 0
    for nth, each in enumerate(wanted, start=1):
        put_back()
        with FileFaults(Fault((operation,), nth=nth, error=errno.EIO)):
            try:
                log = open_log(clean=clean, **SMALL)
            except (OSError, KafkaError):
                refused += 1
            else:  # an index that cannot be mapped makes reads slower, no more
                assert stored(log) == list(range(20)), each
                log.close(clean=False)
        after = content(log.path)
        assert sorted(after) == sorted(before)
        assert clean is False or after == before, each
        assert all(after[name] == before[name] for name in before if name.endswith(".log"))
        log = open_log(clean=clean, **SMALL)
        assert stored(log) == list(range(20))
        log.close(clean=False)
    assert refused


@pytest.mark.parametrize("operation", ["map", "open", "truncate"])
def test_a_first_append_whose_indexes_cannot_be_had_is_refused_alone(
    open_log: OpenLog, operation: str
) -> None:
    """After a clean stop they are made writable with it."""
    settings = {**SMALL, "segment_bytes": 100_000}
    log = open_log(**settings)
    for number in range(20):
        log.append(build_batch([b"%d" % number]))
    log.close()
    with FileFaults() as faults:
        log = open_log(clean=True, **settings)
        begun = len(faults.look())
        log.append(build_batch([b"20"]))
        done = [each.operation for each in faults.look()[begun:]].count(operation)
    log.close()
    assert done >= 2
    for nth in range(1, done + 1):
        log = open_log(clean=True, **settings)
        end = log.log_end_offset
        batch = build_batch([b"%d" % end])
        fault = Fault((operation,), nth=nth, error=errno.EIO)
        with FileFaults(fault), pytest.raises(KafkaError) as refused:
            log.append(batch)
        assert refused.value.code is ErrorCode.KAFKA_STORAGE_ERROR and log.online
        assert log.append(batch).base_offset == end
        assert stored(log) == list(range(end + 1))
        log.close()
        assert not verify(log.path).damage


@pytest.mark.parametrize("how", ["cut short", "cannot be read"])
def test_an_index_that_cannot_be_read_makes_reads_slower_and_ends_nothing(
    open_log: OpenLog, how: str
) -> None:
    """A page of a map that cannot be had would end the process, so in a child."""
    settings = {"segment_bytes": 20_000, "segment_index_bytes": 4_096, "index_interval_bytes": 100}
    log = open_log(**settings)
    for number in range(400):
        log.append(build_batch([b"%d" % number]))
    log.close()
    log = open_log(clean=True, **settings)
    first = (10, 20, 30)

    def offsets_found() -> list[int]:
        return [parse_batches(log.read(offset, 100))[0].base_offset for offset in first]

    assert offsets_found() == list(first)  # it has looked
    child = os.fork()
    if child == 0:
        try:
            if how == "cut short":
                for path in log.path.glob("*index"):
                    os.truncate(path, 0)
                same = offsets_found() == list(first)
            else:
                every = [
                    Fault(("read",), each, times=FOREVER, error=errno.EIO)
                    for each in ("0.index", "0.timeindex")
                ]
                with FileFaults(*every):
                    same = offsets_found() == list(first)
            log.offset_for_time(1)
            os._exit(0 if same else 3)
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(4)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


# --- Damage ---------------------------------------------------------------------------------------


def damage(path: Path, at: int, zeros: int) -> None:
    with path.open("r+b") as file:
        file.seek(at, os.SEEK_SET if at >= 0 else os.SEEK_END)
        file.write(bytes(zeros))


@pytest.mark.parametrize(
    ("at", "junk"), [(0, bytes(61)), (8, struct.pack(">i", -5)), (8, struct.pack(">i", 1 << 28))]
)
def test_a_consumer_goes_on_after_damage_that_a_start_has_found(
    open_log: OpenLog, at: int, junk: bytes
) -> None:
    """Apache Kafka sends the bytes, or answers CORRUPT_MESSAGE for ever."""
    settings = {"segment_bytes": 280, "segment_index_bytes": 4_096}
    log = open_log(**settings)
    for number in range(12):
        log.append(build_batch([b"%d" % number]))
    log.close()
    first, second, *_ = sorted(log.path.glob("*.log"))
    assert int(second.stem) == 4
    with first.open("r+b") as file:
        file.seek(2 * (first.stat().st_size // 4) + at)
        file.write(junk)
    log = open_log(clean=True, **settings)
    for offset in (2, 3):
        assert parse_batches(log.read(offset))[0].base_offset == 4
    assert parse_batches(log.read(1, 10))[0].base_offset == 1
    assert parse_batches(log.read(4))[0].base_offset == 4


def test_after_a_clean_stop_a_damaged_segment_costs_nothing_after_it(
    open_log: OpenLog, caplog: pytest.LogCaptureFixture
) -> None:
    settings = {"segment_bytes": 2_000, "segment_index_bytes": 4_096}
    log = open_log(**settings)
    for number in range(60):
        log.append(build_batch([b"%d" % number]))
    log.close()
    files = sorted(log.path.glob("*.log"))
    assert len(files) > 2
    damage(files[1], -100, 100)
    before = content(log.path)
    log = open_log(clean=True, **settings)
    assert log.log_end_offset == 60
    assert files[1].name in caplog.text
    assert parse_batches(log.read(int(files[2].stem)))[0].base_offset == int(files[2].stem)
    assert log.append(build_batch()).base_offset == 60
    log.close()
    after = content(log.path)
    assert all(after[path.name] == before[path.name] for path in files[:-1])


def test_bytes_that_a_recovery_cuts_are_kept_aside(
    open_log: OpenLog, caplog: pytest.LogCaptureFixture
) -> None:
    log = filled(open_log)
    crash(log)
    files = sorted(log.path.glob("*.log"))
    damage(files[2], -3, 2)
    before = content(log.path)
    with caplog.at_level(logging.WARNING, "kbroker.log"):
        log = open_log(**SMALL)
    end = log.log_end_offset
    assert int(files[2].stem) < end < int(files[3].stem)
    left = files[2].stat().st_size
    tail = log.path / f"{files[2].name}.{left}.cut"
    assert tail.read_bytes() == before[files[2].name][left:]
    for later in files[3:]:
        assert not later.exists()
        assert (log.path / f"{later.name}.cut").read_bytes() == before[later.name]
        assert f"{later.name}.cut" in caplog.text
    assert tail.name in caplog.text
    # The names are not taken for anything else, now or later.
    assert log.append(build_batch()).base_offset == end
    log.close()
    assert stored(open_log(clean=True, **SMALL)) == list(range(end + 1))
    assert tail.exists()


def test_of_a_tail_of_zeros_nothing_is_kept(open_log: OpenLog) -> None:
    log = open_log()
    log.append(build_batch())
    path = crash(log)
    with max(path.glob("*.log")).open("ab") as file:
        file.write(bytes(5_000))
    assert open_log().log_end_offset == 1
    assert not list(path.glob("*.cut"))


def test_two_cuts_at_one_place_are_both_kept(open_log: OpenLog) -> None:
    log = open_log()
    log.append(build_batch())
    for noise in (b"first" * 20, b"second" * 20):
        path = crash(log)
        with max(path.glob("*.log")).open("ab") as file:
            file.write(noise)
        log = open_log()
    assert {file.read_bytes() for file in path.glob("*.cut")} == {b"first" * 20, b"second" * 20}


@pytest.mark.parametrize("whole", [False, True])
def test_bytes_that_were_kept_and_moved_away_are_not_replaced(
    open_log: OpenLog, tmp_path: Path, whole: bool
) -> None:
    """A link is in their place, and what it leads to is not there now."""
    log = filled(open_log) if whole else open_log()
    log.append(build_batch())
    path = crash(log)
    files = sorted(path.glob("*.log"))
    if whole:
        damage(files[2], -3, 2)
        link = path / f"{files[3].name}.cut"
    else:
        link = path / f"{files[0].name}.{files[0].stat().st_size}.cut"
        with files[0].open("ab") as file:
            file.write(b"noise" * 20)
    link.symlink_to(tmp_path / "away")
    log = open_log(**SMALL) if whole else open_log()
    assert log.online
    assert link.is_symlink()
    assert link.with_name(link.name.replace(".cut", ".2.cut")).exists()


def test_nothing_is_cut_where_the_kept_files_are_not_known(open_log: OpenLog) -> None:
    log = open_log()
    log.append(build_batch())
    path = crash(log)
    (file,) = path.glob("*.log")
    with file.open("ab") as end:
        end.write(b"noise" * 20)
    before = file.read_bytes()
    with (
        FileFaults(Fault(("open",), ".cut", error=errno.EIO)),
        pytest.raises((OSError, KafkaError), match="Input/output"),
    ):
        open_log()
    assert file.read_bytes() == before
    assert open_log().log_end_offset == 1


def test_crashes_do_not_pile_up_pieces_of_batches(
    open_log: OpenLog, caplog: pytest.LogCaptureFixture
) -> None:
    log = open_log()
    log.append(build_batch())
    for number in range(TORN_KEPT_MAX + 2):
        path = crash(log)
        with max(path.glob("*.log")).open("ab") as file:
            file.write(build_batch([b"x" * 200], base_offset=1)[: 70 + number])
        log = open_log()
        assert log.log_end_offset == 1
    assert len(list(path.glob("*.cut"))) == TORN_KEPT_MAX
    assert caplog.text.count("look at them and remove them") == 2


def test_starts_that_fail_after_it_keep_a_tail_once(open_log: OpenLog) -> None:
    log = open_log()
    log.append(build_batch())
    path = crash(log)
    with max(path.glob("*.log")).open("ab") as file:
        file.write(b"noise" * 20)
    for _ in range(3):
        with (
            FileFaults(Fault(("truncate",), ".log", error=errno.EIO)),
            pytest.raises(OSError, match="Input/output"),
        ):
            open_log()
    assert open_log().log_end_offset == 1
    assert [file.read_bytes() for file in path.glob("*.cut")] == [b"noise" * 20]


def test_without_space_to_keep_it_nothing_is_cut(open_log: OpenLog) -> None:
    log = open_log()
    for _ in range(3):
        log.append(build_batch())
    path = crash(log)
    file = max(path.glob("*.log"))
    damage(file, file.stat().st_size // 2, 4)
    before = file.read_bytes()
    with (
        FileFaults(Fault(("write",), ".cut", error=errno.ENOSPC)),
        pytest.raises((OSError, KafkaError), match="No space"),
    ):
        open_log()
    assert file.read_bytes() == before
    assert open_log().log_end_offset == 1


def test_a_torn_write_is_cut_even_without_space_to_keep_it(open_log: OpenLog) -> None:
    log = open_log()
    for _ in range(3):
        log.append(build_batch())
    path = crash(log)
    file = max(path.glob("*.log"))
    os.truncate(file, file.stat().st_size - 5)
    with FileFaults(Fault(("write",), ".cut", error=errno.ENOSPC)):
        log = open_log()
    assert log.log_end_offset == 2
    assert log.append(build_batch()).base_offset == 2


def test_segments_that_overlap_are_left_for_a_person(open_log: OpenLog) -> None:
    log = filled(open_log)
    log.close()
    files = sorted(log.path.glob("*.log"))
    for suffix in (".log", ".index", ".timeindex"):
        source = files[2].with_suffix(suffix)
        source.rename(log.path / f"{int(files[2].stem) - 1:020d}{suffix}")
    before = content(log.path)
    for clean in (True, False):
        with pytest.raises(KafkaError, match="overlap"):
            open_log(clean=clean, recovery_point=20, **SMALL)
    assert content(log.path) == before


# --- A roll ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("suffix", [".log", ".index", ".timeindex"])
@pytest.mark.parametrize("clean", [True, False])
def test_a_roll_that_fails_leaves_nothing(open_log: OpenLog, suffix: str, clean: bool) -> None:
    settings = {"segment_bytes": 250}
    log = open_log(**settings)
    for _ in range(2):
        log.append(build_batch([b"x" * 20]))
    before = sorted(log.path.iterdir())
    with FileFaults(Fault(("open",), suffix, error=errno.EMFILE)):
        with pytest.raises(KafkaError, match="cannot be written"):
            log.append(build_batch([b"x" * 170]))
        assert sorted(log.path.iterdir()) == before
        # What still fits goes into the old segment, and is acknowledged.
    log.append(build_batch([b"y"]))
    if clean:
        log.close()
    else:
        crash(log)
    log = open_log(clean=clean, **settings)
    assert stored(log) == [0, 1, 2]
    assert log.append(build_batch()).base_offset == 3


def test_a_roll_that_cannot_even_be_undone(open_log: OpenLog) -> None:
    settings = {"segment_bytes": 250}
    log = open_log(**settings)
    for _ in range(2):
        log.append(build_batch([b"x" * 20]))
    faults = Fault(("open",), ".index", error=errno.EMFILE), Fault(("unlink",), error=errno.EIO)
    with FileFaults(*faults), pytest.raises(KafkaError, match="cannot be written"):
        log.append(build_batch([b"x" * 170]))
    assert (log.path / f"{2:020d}.log").exists()
    log.append(build_batch([b"y"]))
    crash(log)
    log = open_log(**settings)
    assert stored(log) == [0, 1, 2]
    # And if a later roll comes before the next start, it is in the middle.
    (log.path / f"{2:020d}.log").touch()
    log.append(build_batch([b"x" * 170]))
    log.close()
    assert stored(open_log(clean=True, **settings)) == [0, 1, 2, 3]


def test_a_roll_for_deleted_records_that_fails(open_log: OpenLog) -> None:
    log = open_log()
    for _ in range(3):
        log.append(build_batch())
    log.delete_records(-1)
    log.epochs.settle(log.log_end_offset)  # a trim writes this file first
    before = sorted(log.path.iterdir())
    with (
        FileFaults(Fault(("open",), ".timeindex", error=errno.ENOSPC)),
        pytest.raises(OSError, match="No space"),
    ):
        log.trim()
    assert sorted(log.path.iterdir()) == before
    assert log.append(build_batch()).base_offset == 3
    crash(log)
    assert open_log().log_end_offset == 4


# --- Space ----------------------------------------------------------------------------------------


def test_indexes_that_a_crash_left_long_take_no_space(open_log: OpenLog) -> None:
    log = open_log()
    for _ in range(3):
        log.append(build_batch())
    path = crash(log)
    for index in path.glob("*index"):
        os.truncate(index, 10 << 20)
    with FileFaults() as faults:
        log = open_log()
    assert log.log_end_offset == 3
    taken = [each.length for each in faults.seen if each.operation == "allocate"]
    assert taken
    assert sum(taken) <= 256 * 1024


def test_an_empty_log_is_opened_where_no_block_is_free(open_log: OpenLog) -> None:
    with FileFaults(Fault(("allocate",), times=100, error=errno.ENOSPC)):
        log = open_log()
        with pytest.raises(KafkaError, match="cannot be written"):
            log.append(build_batch())
    assert log.append(build_batch()).base_offset == 0


# --- Time -----------------------------------------------------------------------------------------


def test_a_restart_does_not_roll(open_log: OpenLog) -> None:
    log = open_log(segment_ms=60_000)
    log.append(build_batch([Record(b"no time", timestamp_ms=-1)]))
    for clean in (True, False):
        log.close()
        log = open_log(clean=clean, segment_ms=60_000)
        log.append(build_batch([Record(b"no time", timestamp_ms=-1)]))
    assert log.statistics()["segments"] == 1


def test_a_file_below_the_start_that_cannot_be_renamed_has_its_turn_again(
    open_log: OpenLog,
) -> None:
    log = filled(open_log)
    log.delete_records(-1)
    count = len(list(log.path.glob("*.log")))
    with (
        FileFaults(Fault(("rename",), ".timeindex", error=errno.EIO)),
        pytest.raises(OSError, match="Input/output"),
    ):
        log.trim()
    assert len(log.trim()) == 3 * count
    assert [int(path.stem) for path in log.path.glob("*.log")] == [20]
    assert log.trim() == []
