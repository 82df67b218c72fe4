"""A directory of a test's broker has an owner from its first moment on."""

from __future__ import annotations

import fcntl
import os
import signal
from pathlib import Path

import pytest

from kbroker.testing import keeper


def test_a_directory_that_is_being_made_is_not_swept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Test processes that begin together look for files that others left."""
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


def test_a_fork_that_holds_the_pipe_does_not_keep_the_end_waiting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keeper, "_keeper", None)  # one of this test's own
    monkeypatch.setattr(keeper, "_keeper_of", 0)
    mine = tmp_path / "broker-test-1"
    mine.mkdir()
    keeper.keep(mine, None)
    child = os.fork()
    if child == 0:
        signal.pause()
        os._exit(0)
    try:
        monkeypatch.setattr(keeper, "END_S", 60.0)
        keeper.end()
        assert not mine.exists()
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
