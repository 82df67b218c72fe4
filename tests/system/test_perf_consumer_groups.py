"""`kbroker perf consumer-groups` on a real broker, for moments: each kind of its work."""

from __future__ import annotations

from pathlib import Path

import pytest

from perf.consumer_groups import heartbeats, second_member
from perf.measurement import OURS
from tests.system.test_perf_transactions import checked

pytestmark = pytest.mark.timeout(120)


def test_heartbeats(tmp_path: Path) -> None:
    plan = heartbeats.HeartbeatPlan((OURS,), 1, 0.2, groups=2, members=3, connections=4)
    (one,) = found = heartbeats.measure(plan, tmp_path, lambda text: None)
    assert one.members == 6
    assert one.heartbeats > 6
    assert one.p50_us <= one.p99_us
    assert one.cpu_us_each > 0
    checked(heartbeats.report(found, plan.to_json()), "heartbeats/s")


@pytest.mark.client
def test_a_second_member(tmp_path: Path) -> None:
    plan = second_member.SecondPlan((OURS,), 1)
    (one,) = found = second_member.measure(plan, tmp_path, lambda text: None)
    assert 0 < one.after_ms < 2_000
    assert one.second_ms > 0
    checked(second_member.report(found, plan.to_json()), "second ms")
