"""`kbroker perf transactions` on a real broker, for moments: each kind of its work."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from perf import process
from perf.before_after import starts
from perf.measurement import OURS, Measurement
from perf.transactions import (
    commits,
    copying,
    failover,
    hanging,
    idle_ids,
    pacing,
    reading,
    sendfiles,
    unused,
    visible,
)
from tests.support import requirements, zookeeper
from tests.support.source_tree import ROOT
from tests.unit.perf.test_report import MACHINE

pytestmark = pytest.mark.timeout(120)

SECONDS = 0.2


def checked(measured: Measurement, *words: str) -> None:
    """It can be printed, with these words, and written as JSON."""
    text = measured.text(MACHINE, 1.0)
    assert all(word in text for word in words), text
    json.dumps(measured.to_json(MACHINE, 1.0), allow_nan=False)


OF_THE_OBSERVER = re.compile(r"kbroker\.((observe|metrics)\.|(net|replica)\._\w+_figures$)")


def test_commits(tmp_path: Path) -> None:
    plan = commits.CommitPlan((OURS,), 1, SECONDS, (1, 10), producers=3, warm_commits=5)
    found = commits.measure(plan, tmp_path, lambda text: None)
    assert [one.cell for one in found] == [cell.key for cell in plan.cells]
    for one in found:
        assert one.commits > 3
        assert one.p50_us <= one.p99_us
        assert one.cpu_us_each > 0
    checked(commits.report(found, plan.to_json()), "TV2 by TV1, 10 records")


def test_batches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pacing, "TOUCH_BYTES", 1 << 20)
    plan = pacing.PacingPlan((OURS,), 1, SECONDS, warm=False)
    found = pacing.measure(plan, tmp_path, lambda text: None)
    assert [one.kind for one in found] == list(plan.kinds)
    assert [one.commits > 0 for one in found] == [False, True, True]
    checked(pacing.report(found, plan.to_json()), "TV2")


def test_reading(tmp_path: Path) -> None:
    """Either level gets the same bytes; half of the transactions are aborted."""
    plan = reading.ReadingPlan((OURS,), 1, SECONDS, (0, 50), log_bytes=1 << 20, warm=False)
    found = reading.measure(plan, tmp_path, lambda text: None)
    assert len(found) == 2 * 2 * 2
    assert all(one.megabytes_per_s > 1 for one in found)
    checked(reading.report(found, plan.to_json()), "50 % aborted")


def test_sendfiles(tmp_path: Path) -> None:
    """Every byte of the records leaves by sendfile, at either level."""
    requirements.program("strace", "`make test` or `apt-get install strace` installs it")
    plan = sendfiles.SendfilePlan(rounds=1, shares=(50,), sizes=(16 << 10,), log_bytes=1 << 20)
    found = sendfiles.measure(plan, tmp_path, lambda text: None)
    assert [one.isolation for one in found] == ["uncommitted", "committed"]
    assert {one.fetches for one in found} == {plan.fetches}
    assert all(16_000 < one.bytes_each < 17_000 and one.calls_each >= 1 for one in found)
    checked(sendfiles.report(found, plan.to_json()), "16 KB, 50 % aborted")


def test_copies(tmp_path: Path) -> None:
    plan = copying.CopyPlan((OURS,), 1, 1_000, 100, ("librdkafka",), warm_commits=0)
    (one,) = copying.measure(plan, tmp_path, lambda text: None)
    assert (one.lost, one.doubled) == (0, 0)
    assert one.records_per_s > 100
    checked(copying.report([one], plan.to_json()), "lost or doubled, librdkafka")


@pytest.mark.java
def test_copies_by_java(tmp_path: Path) -> None:
    plan = copying.CopyPlan((OURS,), 1, 1_000, 100, ("java",), warm_commits=0)
    (one,) = copying.measure(plan, tmp_path, lambda text: None)
    assert (one.lost, one.doubled) == (0, 0)


def test_idle_ids(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(idle_ids, "settled_memory", process.memory)
    plan = idle_ids.IdsPlan(rounds=1, ids=200)
    (one,) = idle_ids.measure(plan, tmp_path, lambda text: None)
    assert 0 < one.full.cpu_s < 60
    assert one.full.served_s > 0 and one.empty.served_s > 0
    checked(idle_ids.report([one], plan.to_json()), "load of 200 idle ids")


def test_a_transaction_that_stays_open(tmp_path: Path) -> None:
    plan = hanging.HangingPlan(rounds=1, seconds=SECONDS, partitions=20, rate=200.0)
    found = hanging.measure(plan, tmp_path, lambda text: None)
    assert [one.which for one in found] == list(hanging.BLOCKS)
    assert all(one.produce_p99_us <= one.visible_p99_us * 2 for one in found)
    checked(hanging.report(found, plan.to_json()), "p99 until read", "undecided")


def test_a_broker_that_has_no_transactions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The old build is this one."""
    monkeypatch.setattr(starts, "settled_memory", process.memory)
    plan = unused.UnusedPlan(ROOT, rounds=1)
    found = unused.measure(plan, tmp_path, lambda text: None)
    # The observer is made half a second after a start, which may be after the stop.
    differs = found[0].started.modules ^ found[1].started.modules
    assert [name for name in differs if not OF_THE_OBSERVER.match(name)] == []
    assert "kbroker.server.broker" in found[0].started.modules
    checked(unused.report(found, plan.to_json()), "modules more than before")


@pytest.mark.java
def test_commit_to_visible(tmp_path: Path) -> None:
    zookeeper.required()
    plan = visible.VisiblePlan((OURS,), 1, SECONDS, ("tv2",), warm_commits=3)
    (one,) = visible.measure(plan, tmp_path, lambda text: None)
    assert one.commits > 3
    assert 0 < one.visible_p50_us <= one.visible_p99_us
    checked(visible.report([one], plan.to_json()), "commit to visible, TV2")


@pytest.mark.java
def test_failover(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The prepared ones are completed by the coordinator that comes after."""
    zookeeper.required()
    session = {**failover.SETTINGS[OURS], "zookeeper.session.timeout.ms": 2_000}
    monkeypatch.setattr(failover, "SETTINGS", {OURS: session})
    plan = failover.FailoverPlan((OURS,), 1, ids=30, prepared=10)
    (one,) = failover.measure(plan, tmp_path, lambda text: None)
    assert 0 < one.served_s <= one.complete_s
    assert one.elected_s > 1
    checked(failover.report([one], plan.to_json()), "killed to served")
