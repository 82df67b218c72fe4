"""`kbroker perf cluster` on real brokers: it measures, and nothing of it stays."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from perf.cluster import idle_followers, rebalance
from tests.support import zookeeper
from tests.support.source_tree import ROOT

pytestmark = [pytest.mark.java, pytest.mark.timeout(240)]

WAIT_S = 120.0


@pytest.fixture(autouse=True)
def needs() -> None:
    zookeeper.required()


def test_processes_of_a_cluster_are_measured_one_by_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(idle_followers, "REST_S", 0.0)
    found = idle_followers.measure(
        tmp_path, print, brokers=["kbroker"], rounds=1, seconds=0.2, partitions=3
    )
    assert [one.role for one in found] == list(idle_followers.ROLES)
    assert all(one.proportional_bytes > 1 << 20 for one in found)
    assert not list(tmp_path.glob("kbroker/broker-*"))


def test_preferred_leaders_come_back_only_where_they_are_to(tmp_path: Path) -> None:
    plan = rebalance.RebalancePlan(rounds=1, partitions=4, rate=200.0, seconds=1.0)
    with_it, without = rebalance.measure(plan, tmp_path, print)
    assert (with_it.enabled, with_it.led, without.enabled, without.led) == ("true", 2, "false", 0)
    assert with_it.back_s is not None and without.back_s is None
    assert with_it.requests_per_s > 50 and without.requests_per_s > 50


def test_ctrl_c_ends_every_process(tmp_path: Path) -> None:
    command = ("cluster", "shared-load", "--brokers", "kbroker", "--directory", str(tmp_path))
    with subprocess.Popen(
        [sys.executable, "-m", "perf.cli", *command], stderr=subprocess.PIPE, text=True, cwd=ROOT
    ) as run:
        assert run.stderr is not None
        said = run.stderr.readline()
        pids = [int(pid) for pid in re.findall(r" (\d+)", said)]
        run.send_signal(signal.SIGINT)
        _, more = run.communicate(timeout=WAIT_S)
    assert len(pids) == 3, said + more
    assert run.returncode == 130, more
    give_up_s = time.monotonic() + WAIT_S
    while any(map(_runs, pids)):
        assert time.monotonic() < give_up_s, pids
        time.sleep(0.01)
    assert not list(tmp_path.iterdir())


def _runs(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True
