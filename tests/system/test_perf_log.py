"""`kbroker perf log soak` on a real broker, for seconds: every kind of its traffic, and its end."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pytest

from perf.brokers import Broker
from perf.cells import CellError
from perf.log import soak
from perf.log.rounds import new_broker
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


def test_a_broker_that_goes_away_ends_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[Broker] = []

    def remembered(*given: Any) -> Broker:
        started.append(new_broker(*given))
        return started[-1]

    def kill(line: str) -> None:
        if "at the most" in line:
            os.kill(started[0].pid, signal.SIGKILL)

    monkeypatch.setattr(soak, "new_broker", remembered)
    # Wherever it is met first: each is one line and status 1.
    with pytest.raises((CellError, WireError, OSError)):
        soak.measure(SoakPlan(minutes=6, topics=3, window_s=0.3), tmp_path, kill)
    assert len(started) == 1
