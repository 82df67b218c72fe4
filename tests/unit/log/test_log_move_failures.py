"""A move between data directories that fails half way, or whose process does."""

from __future__ import annotations

import errno
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from kbroker._log import LocalLog
from kbroker.errors import DataDirectoryError
from kbroker.log.upkeep._moving import SegmentCopy, put_in_place
from kbroker.log.upkeep.log_move import MOVED_FILE, LogMove
from kbroker.testing.file_faults import FOREVER, Fault, FileFaults
from tests.support import memory
from tests.support.led_log import LedLogManager
from tests.unit.log.two_directories import Two, names


def operations_of_a_move(place: Path) -> int:
    two = Two(place)
    two.append(60)
    with FileFaults() as faults:
        two.move(two.second)
    two.close()
    return len(faults.seen)


def test_a_kill_before_any_operation_of_a_move_loses_nothing() -> None:
    """What a process leaves that is killed there; the next start moves it on."""
    with memory.directory() as place:
        count = operations_of_a_move(place / "count")
        assert count > 40
        twice = sum(killed_before(nth, place / str(nth)) for nth in range(count))
    assert twice, "no kill left it in both"


def killed_before(nth: int, place: Path) -> bool:
    """Whether the log was left in both directories."""
    two = Two(place / "running")
    two.append(60)
    seen = 0

    def crash(operation: str, path: str) -> None:
        nonlocal seen
        if seen == nth:
            shutil.copytree(place / "running", place / "left")
        seen += 1

    with FileFaults(before=crash):
        two.move(two.second)
    two.close()
    shutil.rmtree(place / "running")
    (place / "left").rename(place / "running")
    twice = len(two.here()) == 2
    two.start()
    assert two.read() == two.values and len(two.here()) == 1, nth
    two.append(5)
    two.begin_moves_again()
    two.remove_left_over()
    assert two.read() == two.values
    two.close()
    for path in (two.first, two.second):
        assert {it for it in names(path) if it.startswith("words")} <= {"words-0"}, nth
    shutil.rmtree(place)
    return twice


@pytest.mark.parametrize("error", [errno.EIO, errno.ENOSPC])
@pytest.mark.parametrize("where", ["first", "second"])
def test_an_operation_that_fails_leaves_it_where_it_was_or_there(error: int, where: str) -> None:
    with memory.directory() as place:
        count = operations_of_a_move(place / "count")
        failed = sum(one_fails(place / str(nth), nth, error, where) for nth in range(1, count))
    assert failed > (5 if where == "first" else 30)


def one_fails(place: Path, nth: int, error: int, where: str) -> bool:
    """Whether there were so many there."""
    two = Two(place)
    two.append(60)
    with FileFaults(Fault((), f"/{where}", nth=nth, error=error)) as faults:
        two.move(two.second)
    assert two.log.online and two.read() == two.values, nth
    two.append(20)
    two.remove_left_over()
    before = two.here()
    two.manager.stop(as_found=True)
    two.start()
    assert two.read() == two.values and two.here() == before[-1:], (nth, before)
    two.close()
    shutil.rmtree(place)
    return any(seen.failed for seen in faults.seen)


def test_without_its_source_a_copy_is_left_alone(two: Two, tmp_path: Path) -> None:
    two.append(60)
    move = LogMove(two.log.log, two.second)
    move.begin()
    two.close()
    shutil.move(two.first / "words-0", tmp_path / "away")
    manager = LedLogManager([two.first, two.second], boot_id="one")
    manager.start()
    manager.stop()
    assert move.future.is_dir()
    shutil.move(tmp_path / "away", two.first / "words-0")
    two.start()
    assert two.read() == two.values


def test_a_directory_that_could_not_be_left_goes_before_the_next_move(two: Two) -> None:
    """Or a later start finds two, and no copy."""
    two.append(60)
    with FileFaults(Fault(("rename",), "/first/words-0", error=errno.EIO)):
        two.move(two.second)
    assert two.here() == ["first", "second"]
    two.append(20)
    two.move(two.first)
    assert two.here() == ["first"]
    two.manager.stop(as_found=True)
    two.start()
    assert two.read() == two.values and two.here() == ["first"]


def test_a_disk_that_says_nothing_any_more_ends_a_move_and_is_offline(
    two: Two, monkeypatch: pytest.MonkeyPatch
) -> None:
    two.append(60)
    stat = os.stat

    def fails(path: Any, **how: Any) -> os.stat_result:
        if str(path).startswith(f"{two.second}/"):
            raise OSError(errno.EIO, os.strerror(errno.EIO), str(path))
        return stat(path, **how)

    monkeypatch.setattr(os, "stat", fails)
    with FileFaults(Fault((), "/second", times=FOREVER, error=errno.EIO)):
        two.move(two.second)
    monkeypatch.undo()
    assert two.manager.failed_directories() == [two.second]
    assert two.mover.futures() == [] and not two.log.log.being_moved
    two.append(5)
    assert two.read() == two.values


def test_a_directory_that_fails_as_a_log_comes_there_takes_it_with_it(
    two: Two, monkeypatch: pytest.MonkeyPatch
) -> None:
    two.append(60)
    (second,) = [each for each in two.manager.usable if each.path == two.second]

    def fail(log: LocalLog, copies: list[SegmentCopy], directory: str) -> None:
        put_in_place(log, copies, directory)
        with FileFaults(Fault((), "/.probe", times=FOREVER, error=errno.EIO)):
            two.manager.trouble.look_at(second)

    monkeypatch.setattr("kbroker.log.upkeep.log_move.put_in_place", fail)
    two.move(two.second)
    assert second.failed and not two.log.online and two.manager.replicas.offline == [two.log.log]


def test_two_logs_that_are_no_copies_are_still_refused(two: Two) -> None:
    two.append(10)
    two.close()
    shutil.copytree(two.first / "words-0", two.second / "words-0")
    (two.second / "words-0" / MOVED_FILE).write_text("/somewhere/else/words-0")
    with pytest.raises(DataDirectoryError, match="is in two data directories"):
        LedLogManager([two.first, two.second], boot_id="one").start()
    shutil.rmtree(two.second / "words-0")
    two.start()
