"""The pytest plugin in a run of its own: the lines beside a failure."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
TESTS = """
import pytest
from tests.unit.testing.test_process import GRACEFUL, Program

@pytest.fixture(scope="session")
def servers():
    with Program(GRACEFUL) as used, Program(GRACEFUL) as idle:
        idle.name = "idle"
        yield used

def test_first(servers):
    log(servers, "of another test")

def test_second(servers):
    log(servers, "of this test")
    assert False

def log(server, line):
    with server.log_path.open("a") as file:
        file.write(line)
"""


def test_a_failure_has_the_log_lines_since_its_test_began(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(TESTS)
    plain = ["-p", "kbroker.testing.plugin", "-p", "no:cacheprovider", "-c", os.devnull]
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", *plain, tmp_path],
        env={**os.environ, "PYTHONPATH": str(ROOT)}, cwd=tmp_path,
        capture_output=True, text=True, timeout=100,
    )  # fmt: skip
    assert "1 failed, 1 passed" in ran.stdout, ran.stdout + ran.stderr
    assert "log of program" in ran.stdout and "\nof this test\n" in ran.stdout
    assert "of another test\n" not in ran.stdout.split("log of program")[1]
    assert "log of idle" not in ran.stdout
