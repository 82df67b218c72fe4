"""File operations that are made to fail: which one, how, how often, and what is noted of it."""

from __future__ import annotations

import errno
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from kbroker.errors import KafkaError
from kbroker.log.engine import file_operations
from kbroker.testing import _file_faults
from kbroker.testing.file_faults import FOREVER, OPERATIONS, Fault, FileFaults
from kbroker.testing.hanging_files import HangingFiles
from tests.support.record_batches import build_batch
from tests.unit.log.conftest import OpenLog, log, open_log
from tests.unit.net.harness import eventually

__all__ = ["log", "open_log"]


def test_operations_of_both_kinds_are_noted_in_their_order(open_log: OpenLog) -> None:
    with FileFaults() as faults:
        log = open_log()
        log.append(build_batch())
        log.flush()
        log.close()
    # Another log of this process may be written to meanwhile.
    own = [each for each in faults.seen if Path(each.path).is_relative_to(log.path)]
    done = [(each.operation, Path(each.path).name) for each in own]
    first_log = f"{0:020d}.log"
    assert ("mkdir", "words-0") in done
    assert ("rename", "partition.metadata.tmp") in done
    assert done.index(("open", first_log)) < done.index(("write", first_log))
    assert done.index(("write", first_log)) < done.index(("sync", first_log))
    assert {operation for operation, _ in done} <= set(OPERATIONS)
    assert not any(each.failed for each in faults.seen)


def test_the_nth_that_fits_fails_once(open_log: OpenLog) -> None:
    log = open_log()
    with FileFaults(Fault(("write",), ".log", nth=2, error=errno.ENOSPC)) as faults:
        assert log.append(build_batch()).base_offset == 0
        with pytest.raises(KafkaError, match="cannot be written"):
            log.append(build_batch())
        assert log.append(build_batch()).base_offset == 1
    assert [each.failed for each in faults.seen if each.operation == "write"] == [
        False,
        True,
        False,
    ]
    assert log.append(build_batch()).base_offset == 2


def test_a_fault_that_goes_on_and_one_that_is_added_later(open_log: OpenLog) -> None:
    log = open_log()
    with FileFaults() as faults:
        log.append(build_batch())
        faults.add(Fault(("sync",), times=FOREVER, error=errno.EIO))
        for _ in range(2):
            with pytest.raises(OSError, match="Input/output"):
                file_operations.sync_directory(log.path)
        with pytest.raises(OSError, match="Input/output"):
            log.flush()
    file_operations.sync_directory(log.path)


def test_a_write_that_takes_a_few_bytes(open_log: OpenLog, tmp_path: Path) -> None:
    log = open_log()
    with FileFaults(Fault(("write",), times=2, bytes_max=5)):
        with pytest.raises(KafkaError, match="cannot be written"):
            log.append(build_batch())
        with pytest.raises(OSError, match="No space"):
            file_operations.replace_file(tmp_path / "text", b"longer than that")
    assert not (tmp_path / "text").exists()
    assert (tmp_path / "text.tmp").read_bytes() == b"longe"


def test_short_and_interrupted_reads_are_gone_on_with(open_log: OpenLog) -> None:
    log = open_log()
    log.append(build_batch([b"word"] * 100))
    stored = log.read(0)
    with FileFaults(
        Fault(("read",), bytes_max=7, times=3), Fault(("read",), error=errno.EINTR, times=3)
    ) as faults:
        assert log.read(0) == stored
    assert len([each for each in faults.seen if each.failed]) == 6


def test_a_fault_picks_its_files(open_log: OpenLog) -> None:
    with (
        FileFaults(Fault(("open",), ".timeindex", error=errno.EMFILE)) as faults,
        pytest.raises(OSError, match="Too many open files"),
    ):
        open_log()
    assert [Path(each.path).suffix for each in faults.seen if each.failed] == [".timeindex"]


def test_an_operation_that_hangs_goes_on_when_it_is_let_go(
    open_log: OpenLog, tmp_path: Path
) -> None:
    log = open_log()
    files = HangingFiles()
    files.hang(str(log.directory), ["write"])
    try:
        with ThreadPoolExecutor() as pool:
            writing = pool.submit(log.append, build_batch())
            eventually(lambda: files.control({"op": "hung"}) == 1)
            file_operations.replace_file(tmp_path / "elsewhere", b"text")
            assert not writing.done()
            assert files.control({"op": "let_files_go"}) == 1
            assert writing.result().base_offset == 0
        assert log.append(build_batch()).base_offset == 1
        assert files.hung() == 0
        with pytest.raises(ValueError, match="no such order: fall"):
            files.control({"op": "fall"})
    finally:
        _file_faults.remove()
        file_operations.hook = None
