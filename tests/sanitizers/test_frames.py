"""Hostile frames under the address sanitizer: what every run can bear of `make test-asan`."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.sanitizers import tree


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_hostile_frames_under_the_address_sanitizer() -> None:
    run = subprocess.run(
        [sys.executable, "-m", "tests.sanitizers.frames"],
        cwd=tree.ROOT, capture_output=True, text=True, timeout=880, check=False,
    )  # fmt: skip
    print(run.stdout[-6000:])
    assert run.returncode == 0, run.stdout[-6000:] + run.stderr[-2000:]
