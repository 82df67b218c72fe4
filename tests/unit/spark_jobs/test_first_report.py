"""`make report`: what it may empty, what it starts and stops, what it says when a step fails."""

from __future__ import annotations

import os
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

from kbroker.errors import UserError
from spark_jobs.first_report import MARKER, Run, emptied, orders


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


def test_only_files_of_an_earlier_run_are_emptied(tmp_path: Path) -> None:
    mine = tmp_path / "own"
    (emptied(mine) / "old").write_text("x")
    assert [path.name for path in emptied(mine).iterdir()] == [MARKER]
    other = tmp_path / "other"
    other.mkdir()
    (other / "thesis.tex").write_text("x")
    with pytest.raises(UserError, match="holds something else"):
        emptied(other)
    assert (other / "thesis.tex").exists()


def test_half_of_the_orders_have_one_key() -> None:
    keys = Counter(line.split(b":")[0] for line in orders(1000).splitlines())
    assert keys.most_common(1)[0] == (b"anna", 500 + 63)
    assert len(keys) > 5


def test_a_step_that_fails_says_its_last_lines(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = Run(tmp_path)
    script = "import sys; print('why it failed'); sys.exit(3)"
    with pytest.raises(UserError, match=r"the thing: failed \(3\)"):
        run.step("the thing", "thing", [sys.executable, "-c", script])
    said = capsys.readouterr()
    assert "the thing" in said.out
    assert "    why it failed" in said.err
    assert run.step("x", "x", [sys.executable, "-c", script], fine=(0, 3)) == 3


def test_a_step_that_hangs_is_stopped_with_its_children(tmp_path: Path) -> None:
    script = (
        "import subprocess, sys, signal\n"
        "child = subprocess.Popen([sys.executable, '-c', 'import signal; signal.pause()'])\n"
        "print(child.pid, flush=True)\n"
        "signal.pause()\n"
    )
    run = Run(tmp_path)
    with pytest.raises(UserError, match="not done after 4 s"):
        run.step("it", "it", [sys.executable, "-c", script], seconds_max=4.0)
    child = int((tmp_path / "log" / "it.log").read_text().split()[0])
    deadline = time.monotonic() + 10
    while alive(child) and time.monotonic() < deadline:
        pass  # a signal takes its time on a busy machine
    assert not alive(child)


def test_a_step_reads_the_files_that_it_is_given(tmp_path: Path) -> None:
    run = Run(tmp_path)
    run.step("cat", "cat", ["cat"], given=b"abc\n" * 50_000)
    assert os.path.getsize(tmp_path / "log" / "cat.log") == 200_000
