"""Files and directories that are removed later."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from kbroker.clock import ManualClock
from kbroker.limits import REMOVAL_RETRY_MS, REMOVAL_RETRY_MS_MAX
from kbroker.log.upkeep.removals import Removals
from kbroker.testing.file_faults import FOREVER, Fault, FileFaults


def test_a_directory_in_a_deleted_one_is_removed_file_by_file(tmp_path: Path) -> None:
    """No log has one; a person or another program put it there."""
    deleted = tmp_path / "t-0.deleted"
    inner = deleted / "a" / "b"
    inner.mkdir(parents=True)
    for where in (deleted, inner):
        (where / "1").touch()
        (where / "2").touch()
    (deleted / "link").symlink_to(tmp_path / "kept")
    (tmp_path / "kept").mkdir()
    removals = Removals(ManualClock(), 60_000)
    removals.delete_now(deleted)
    assert len(list(removals.remove_due())) == 5
    assert [each.name for each in tmp_path.iterdir()] == ["kept"]


def test_a_directory_that_cannot_be_removed_is_tried_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    deleted = tmp_path / "t-0.deleted"
    deleted.mkdir()
    (deleted / "1").touch()
    (deleted / "2").touch()
    clock = ManualClock()
    removals = Removals(clock, 0)
    removals.schedule(deleted)
    with FileFaults(Fault(("unlink",), "", times=FOREVER, error=errno.EIO)):
        list(removals.remove_due())
        assert "it is tried again in 30 s" in caplog.text
        clock.advance(REMOVAL_RETRY_MS - 1)
        list(removals.remove_due())
        assert caplog.text.count("cannot remove") == 1
        clock.advance(1)
        list(removals.remove_due())
        assert "it is tried again in 60 s" in caplog.text
        for _ in range(20):
            clock.advance(REMOVAL_RETRY_MS_MAX)
            list(removals.remove_due())
        assert "it is tried again in 3600 s" in caplog.text
        assert len(removals) == 1
    clock.advance(REMOVAL_RETRY_MS_MAX)
    list(removals.remove_due())
    assert not len(removals)
    assert not deleted.exists()


def test_a_file_that_another_has_removed_leaves_no_directory(tmp_path: Path) -> None:
    deleted = tmp_path / "t-0.deleted"
    deleted.mkdir()
    for name in "123":
        (deleted / name).touch()
    removals = Removals(ManualClock(), 0)
    removals.schedule(deleted)
    steps = removals.remove_due()
    next(steps)
    for left in list(deleted.iterdir())[:1]:
        left.unlink()
    list(steps)
    assert not deleted.exists()


def test_a_directory_that_another_has_removed_meanwhile_is_no_failure(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    deleted = tmp_path / "t-0.deleted"
    deleted.mkdir()
    (deleted / "1").touch()
    removals = Removals(ManualClock(), 0)
    removals.schedule(deleted)
    steps = removals.remove_due()
    next(steps)
    deleted.rmdir()
    list(steps)
    assert not len(removals) and not caplog.text
