"""Who led before leads again, when it can."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from kbroker.clock import SystemClock
from kbroker.cluster import leader_rebalance
from kbroker.cluster.leader_rebalance import LeaderRebalance
from kbroker.config import BrokerConfig
from kbroker.scheduler import Scheduler
from tests.unit.metadata.controller.brokers import Cluster
from tests.unit.metadata.controller.harness import wait


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    made = Cluster(tmp_path)
    yield made
    for node_id in sorted(made.brokers, reverse=True):
        made.brokers[node_id].stop()


def look(cluster: Cluster, node_id: int = 1) -> None:
    """And what it asked for is done."""
    controller = cluster.brokers[node_id].controller
    LeaderRebalance(lambda: controller).look()
    wait(lambda done: controller.in_step(lambda: done(None)))


def test_the_preferred_replica_leads_again(cluster: Cluster, tmp_path: Path) -> None:
    cluster.make(3, 2)
    cluster.end(3)
    look(cluster)
    assert cluster.state.leader == 2  # it is dead
    cluster.start(3, tmp_path)
    look(cluster)
    assert cluster.state.leader == 2  # it lives, and is not in sync
    cluster.alter(2, 2, 3)
    look(cluster, node_id=2)
    assert cluster.state.leader == 2  # only the controller decides
    look(cluster)
    assert (cluster.state.leader, cluster.state.isr) == (3, (3, 2))
    epoch = cluster.state.leader_epoch
    look(cluster)
    assert cluster.state.leader_epoch == epoch


def test_so_many_at_a_time(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leader_rebalance, "ELECTIONS_MAX", 0)
    cluster.make(3, 2)
    cluster.end(3)
    cluster.start(3, tmp_path)
    cluster.alter(2, 2, 3)
    look(cluster)
    assert cluster.state.leader == 2


@pytest.mark.parametrize(("enabled", "tasks"), [("true", 1), ("false", 0)])
def test_it_can_be_switched_off(cluster: Cluster, enabled: str, tasks: int) -> None:
    config = BrokerConfig.load(overrides=[f"auto.leader.rebalance.enable={enabled}"])
    scheduler = Scheduler(SystemClock())
    LeaderRebalance(lambda: cluster.controller.controller).schedule(scheduler, config)
    assert scheduler.trigger("leader-rebalance") == bool(tasks)
