"""Files and directories that are removed later."""

from __future__ import annotations

from pathlib import Path

from kbroker.clock import ManualClock
from kbroker.log.upkeep.removals import Removals


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
