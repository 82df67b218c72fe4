"""`kbroker perf before-after` on real brokers: every stage measures both builds, and nothing stays.

The old build is this one: what is asked here is that each cell has its figures.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from perf import cells, process
from perf.before_after import several, starts
from perf.before_after.cells import GROUPS, stages
from perf.before_after.driver import NEW, OLD, Driver, Outcome, Plan
from perf.before_after.several import Sizes
from perf.cluster import catch_up, failover, shared_load
from tests.support import memory, zookeeper
from tests.support.source_tree import ROOT

pytestmark = pytest.mark.slow

SMALL = Sizes(
    seconds=0.3, gigabytes=0.05, failover_partitions=6, start_partitions=5, idle_partitions=4,
    idle_s=0.2,
)  # fmt: skip


@pytest.fixture
def place(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """In memory. These blocks write little, so few pages are touched for them."""
    monkeypatch.setattr(cells, "TOUCH_BYTES_MAX", 1 << 20)
    monkeypatch.setattr(shared_load, "TOUCH_BYTES_FIRST", 1 << 20)
    with memory.directory() as made:
        yield made


def measured(place: Path, *cells: str) -> Outcome:
    """One round, in which every figure of every line has a value of both builds."""
    said: list[str] = []
    found = stages(cells, place, ROOT, 0.2, said.append, SMALL)
    outcome = Driver(Plan(rounds=1, rounds_max=1), said.append).run(found)
    assert not outcome.faults
    assert {line.cell for line in outcome.lines} == set(cells)
    for line in outcome.lines:
        blocks = outcome.blocks[line.cell]
        for source in (blocks.first, blocks.again):
            for build in (NEW, OLD):
                (one,) = source[build]
                assert all(one.values[figure.key] > 0 for figure in line.figures), one
    assert not [path for path in place.rglob("*") if path.is_file()]
    return outcome


@pytest.mark.timeout(120)
def test_requests_handlers_and_starts(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(starts, "settled_memory", process.memory)
    outcome = measured(place, "p-1k-4x5", "commit-16x5", *GROUPS["handlers"], "start")
    (start,) = outcome.blocks["start"].first[NEW]
    assert 50 < start.values["modules"] < 2_000
    assert 10 < start.values["resident_mb"] < 200


@pytest.mark.java
@pytest.mark.timeout(400)
def test_clusters(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    zookeeper.required()
    for module, name in (
        (catch_up, "ALONE_S"), (catch_up, "REST_S"), (several, "REST_S"), (catch_up, "SETTLE_S"),
        (several, "SESSION_SETTLE_S"),
    ):  # fmt: skip
        monkeypatch.setattr(module, name, 0.1)
    monkeypatch.setattr(failover, "SESSION_MS", 3_000)
    # Idle followers and the preferred leaders' return are measured in test_perf_cluster.
    measured(place, "s-1k-4x5", "catch-up", "failover", "start-many")
