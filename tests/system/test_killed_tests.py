"""What a test process that ends badly leaves of its brokers: nothing."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from kbroker.testing import Broker, PlainBroker, keeper

ROOT = Path(__file__).parents[2]

WAITS = """
import sys, time
from kbroker.testing import {name}
with {name}() as broker:
    print(broker.pid, broker.scratch_dir, flush=True)
    time.sleep(600)
"""
INTERRUPTED = """
import sys, time
from kbroker.testing import Broker
with Broker(topics={"orders": 1}) as broker:
    try:
        print(broker.pid, flush=True)
        time.sleep(600)
    except KeyboardInterrupt:
        time.sleep(0.3)                 # for signals that would reach the broker, too
        broker.create_topic("later")    # it serves
    assert broker.stop() == 0
    print(broker.log_text(), flush=True)
"""


def run(program: str, folder: Path, **environment: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", program],
        cwd=ROOT,
        env={**os.environ, "TMPDIR": str(folder), **environment},
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def until(holds: Callable[[], bool], what: str) -> None:
    end = time.monotonic() + 30
    while not holds():
        assert time.monotonic() < end, what
        time.sleep(0.01)


def runs(pid: int) -> bool:
    try:
        return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False


def output(process: subprocess.Popen[str]) -> list[str]:
    assert process.stdout is not None
    return process.stdout.readline().split()


@pytest.mark.parametrize("name", ["Broker", "PlainBroker"])
def test_a_killed_test_leaves_nothing(tmp_path: Path, name: str) -> None:
    with run(WAITS.format(name=name), tmp_path) as process:
        pid, scratch = output(process)
        assert runs(int(pid))
        assert Path(scratch).parent == tmp_path
        os.killpg(process.pid, signal.SIGKILL)
    until(lambda: not runs(int(pid)), "the broker runs on")
    until(lambda: not list(tmp_path.iterdir()), "its directory stays")


def test_ctrl_c_is_the_tests(tmp_path: Path) -> None:
    with run(INTERRUPTED, tmp_path) as process:
        output(process)
        os.killpg(process.pid, signal.SIGINT)
        said, _ = process.communicate(timeout=60)
    assert process.returncode == 0
    assert "stopping on SIGTERM" in said
    assert "SIGINT" not in said
    assert not list(tmp_path.iterdir())


def test_a_long_name_of_the_temporary_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / ("long" * 30)
    folder.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(folder))
    with Broker(topics={"orders": 1}) as broker:
        assert len(str(broker.control_path)) > 108
        assert broker.records("orders") == []


def test_directories_without_an_owner_go_with_the_next_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    left, held, other = (tmp_path / f"kbroker-test-{name}" for name in ("left", "held", "other"))
    for folder in (left, held, other):
        folder.mkdir()
    os.close(keeper.own(left))
    owner = keeper.own(held)
    try:
        keeper.sweep("kbroker-test-")
        assert {path.name for path in tmp_path.iterdir()} == {held.name, other.name}
    finally:
        os.close(owner)


def test_a_server_holds_its_directory_after_its_test(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The lock is free when both are gone."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    broker = PlainBroker()
    assert broker._owner is not None
    broker.start()
    os.close(broker._owner)  # as its process's end does
    broker._owner = None
    try:
        keeper.sweep("kbroker-test-")
        assert broker.scratch_dir.exists()
        broker.stop()
        keeper.sweep("kbroker-test-")
        assert not broker.scratch_dir.exists()
    finally:
        broker.close()
