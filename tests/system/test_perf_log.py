"""`kbroker perf log soak` on a real broker, for seconds: every kind of its traffic, and its end."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from perf.cells import CellError
from perf.log import soak
from perf.log.soak import SoakPlan
from perf.wire import WireError

pytestmark = pytest.mark.timeout(120)


def test_a_soak_of_seconds(tmp_path: Path) -> None:
    said: list[str] = []
    plan = SoakPlan(minutes=6, topics=6, window_s=0.5)
    found = soak.measure(plan, tmp_path, said.append)
    assert [one.number for one in found] == [1, 2, 3, 4, 5, 6]
    for one in found:
        assert one.p50_us <= one.p99_us <= one.p999_us
        assert one.taken.disk_bytes > 0
        assert one.taken.descriptors > plan.topics
    assert said[-1].endswith("keyed records, each key's last value is there")
    assert not said[-1].startswith("kbroker: 0 ")
    assert not os.listdir(tmp_path)  # its data are gone with it


def test_a_broker_that_goes_away_ends_it(tmp_path: Path) -> None:
    killed: list[int] = []

    def kill(line: str) -> None:
        if "at the most" in line and not killed:
            killed.append(_only_broker(tmp_path))
            os.kill(killed[0], 9)

    # Whoever meets it first: each is one line and status 1.
    with pytest.raises((CellError, WireError, OSError)):
        soak.measure(SoakPlan(minutes=6, topics=3, window_s=0.3), tmp_path, kill)
    assert killed


def _only_broker(directory: Path) -> int:
    """The process that was started for it."""
    wanted = str(directory / "kbroker" / "data").encode()
    (found,) = (
        int(path.parent.name) for path in Path("/proc").glob("[0-9]*/cmdline")
        if wanted in path.read_bytes().split(b"\0")
    )  # fmt: skip
    return found
