"""`kbroker perf transactions` on a real broker, for moments: each kind of its work."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from perf.measurement import OURS
from perf.transactions import commits, pacing, reading
from tests.unit.perf.test_report import MACHINE

pytestmark = pytest.mark.timeout(120)

SECONDS = 0.2


def test_commits(tmp_path: Path) -> None:
    plan = commits.CommitPlan((OURS,), 1, SECONDS, (1, 10), producers=3, warm_commits=5)
    found = commits.measure(plan, tmp_path, lambda text: None)
    assert [one.cell for one in found] == [cell.key for cell in plan.cells]
    for one in found:
        assert one.commits > 3
        assert one.p50_us <= one.p99_us
        assert one.cpu_us_each > 0
    measured = commits.report(found, plan.to_json())
    assert "TV2 by TV1, 10 records" in measured.text(MACHINE, 1.0)
    json.dumps(measured.to_json(MACHINE, 1.0), allow_nan=False)


def test_batches(tmp_path: Path) -> None:
    plan = pacing.PacingPlan((OURS,), 1, SECONDS, warm=False)
    found = pacing.measure(plan, tmp_path, lambda text: None)
    assert [one.kind for one in found] == list(plan.kinds)
    assert [one.commits > 0 for one in found] == [False, True, True]
    measured = pacing.report(found, plan.to_json())
    assert "TV2" in measured.text(MACHINE, 1.0)
    json.dumps(measured.to_json(MACHINE, 1.0), allow_nan=False)


def test_reading(tmp_path: Path) -> None:
    """Either level gets the same bytes; half of the transactions are aborted."""
    plan = reading.ReadingPlan((OURS,), 1, SECONDS, (0, 50), log_bytes=1 << 20, warm=False)
    found = reading.measure(plan, tmp_path, lambda text: None)
    assert len(found) == 2 * 2 * 2
    assert all(one.megabytes_per_s > 1 for one in found)
    measured = reading.report(found, plan.to_json())
    assert "50 % aborted" in measured.text(MACHINE, 1.0)
    json.dumps(measured.to_json(MACHINE, 1.0), allow_nan=False)
