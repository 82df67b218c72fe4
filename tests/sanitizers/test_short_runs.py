"""What every run of the tests can bear of `make test-asan` and `make test-tsan`."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.sanitizers import tree


@pytest.mark.slow
@pytest.mark.timeout(1200)  # it builds what changed
@pytest.mark.parametrize("what", ["frames", "groups"])
def test_under_a_sanitizer(what: str) -> None:
    run = subprocess.run(
        [sys.executable, "-m", f"tests.sanitizers.{what}"],
        cwd=tree.ROOT, capture_output=True, text=True, timeout=1180, check=False,
    )  # fmt: skip
    print(run.stdout[-6000:])
    assert run.returncode == 0, run.stdout[-6000:] + run.stderr[-2000:]
