"""A directory of a test's broker is somebody's from its first moment on."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

import pytest

from kbroker.testing import keeper


def test_a_directory_that_is_being_made_is_not_swept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Test processes that begin together look for what others left behind."""
    mine = tmp_path / "broker-test-1"
    mine.mkdir()
    flock = fcntl.flock

    def another_process_is_faster(file: int, how: int) -> None:
        monkeypatch.undo()
        keeper.sweep("broker-test-", str(tmp_path))
        flock(file, how)

    monkeypatch.setattr(fcntl, "flock", another_process_is_faster)
    owner = keeper.own(mine)
    try:
        keeper.sweep("broker-test-", str(tmp_path))
        assert mine.exists()
    finally:
        os.close(owner)
    keeper.sweep("broker-test-", str(tmp_path))
    assert not mine.exists()
