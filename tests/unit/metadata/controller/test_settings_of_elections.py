"""Settings by which the controller elects: they change at run time, and brokers differ in them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kbroker.config import BrokerConfig, validate_topic_overrides
from kbroker.metadata.controller import ConfigChange, records
from kbroker.metadata.controller.config_changes import ResourceChange
from kbroker.metadata.controller.partition_states import ElectionRules
from kbroker.metadata.image import NO_LEADER, ConfigKind, ConfigResource, PartitionImage
from kbroker.server.dynamic_config import DynamicConfig
from tests.unit.metadata.controller import harness
from tests.unit.metadata.controller.brokers import Cluster, Wire, follow
from tests.unit.metadata.controller.harness import eventually, wait

MIN_IN_SYNC = "min.insync.replicas"
UNCLEAN = "unclean.leader.election.enable"
EVERY_BROKER = ConfigResource(ConfigKind.BROKER, "")


class Configured(Cluster):
    """Brokers with real settings, of files and made at run time."""

    def start(self, node_id: int, directory: Path, **more: Any) -> None:
        dynamic = DynamicConfig(BrokerConfig.load(overrides=[f"node.id={node_id}"]))
        how = {"configs": dynamic, "follow": dynamic.follow, "elections": dynamic.election_rules}
        super().start(node_id, directory, **{**how, **more})

    def set_everywhere(self, key: str, value: str) -> None:
        change = ResourceChange(EVERY_BROKER, {key: value})
        controller = self.controller.controller
        results = wait(lambda done: controller.alter_resource_configs([change], False, done))
        assert results == [None]

    def lose_the_leader(self) -> None:
        """Broker 3, which was in sync alone; 2 has a replica."""
        self.make(3, 2)
        self.alter(3, 3)
        self.end(3)
        assert self.state.leader == NO_LEADER


@pytest.fixture
def wire() -> Wire:
    return Wire()


@pytest.fixture
def cluster(tmp_path: Path, wire: Wire, monkeypatch: pytest.MonkeyPatch) -> Iterator[Configured]:
    monkeypatch.setattr(harness, "validate_configs", validate_topic_overrides)
    made = Configured(tmp_path, wire)
    yield made
    for node_id in sorted(made.brokers, reverse=True):
        made.brokers[node_id].stop()


def kept(cluster: Cluster) -> records.PartitionRecord:
    path = records.partition_state_path("t", 0)
    return records.decode_partition(path, cluster.controller.embedded.get(path).data)


def sets(state: PartitionImage | records.PartitionRecord) -> tuple[object, ...]:
    return state.isr, state.eligible, state.min_in_sync


def test_unclean_elections_that_a_topic_allows_now_are_made_at_once(cluster: Configured) -> None:
    cluster.lose_the_leader()
    cluster.controller.alter(ConfigChange("t", set={UNCLEAN: "true"}), validate_only=True)
    assert cluster.state.leader == NO_LEADER
    cluster.controller.alter(ConfigChange("t", set={UNCLEAN: "true"}))
    assert (cluster.state.leader, cluster.state.isr) == (2, (2,))
    assert cluster.controller.controller.statistics().unclean_elections == 1


def test_unclean_elections_that_are_allowed_everywhere_are_made_at_once(
    cluster: Configured,
) -> None:
    cluster.lose_the_leader()
    cluster.set_everywhere("log.retention.ms", "100000")
    assert cluster.state.leader == NO_LEADER
    cluster.set_everywhere(UNCLEAN, "true")
    assert (cluster.state.leader, cluster.state.isr) == (2, (2,))


def test_a_controller_elects_by_the_latest_state_of_the_store(
    cluster: Configured, wire: Wire, tmp_path: Path
) -> None:
    """And not by an earlier image, in which unclean elections are allowed."""
    cluster.make(1, 2)
    cluster.alter(1, 1)
    cluster.set_everywhere(UNCLEAN, "true")
    follow(cluster)
    wire.loses = {2, 3}
    cluster.set_everywhere(UNCLEAN, "false")
    cluster.brokers.pop(1).stop()
    others = cluster.brokers.values()
    eventually(lambda: any(each.controller.active for each in others))
    (last,) = [each for each in others if each.controller.active]
    eventually(lambda: last.image.brokers.keys() == {2, 3})
    assert last.image.topics["t"].partitions[0].leader == NO_LEADER
    assert last.controller.statistics().unclean_elections == 0


def test_a_leader_gets_the_minimum_by_which_others_are_eligible(
    cluster: Configured, wire: Wire
) -> None:
    cluster.make(3, 2)
    cluster.set_everywhere(MIN_IN_SYNC, "2")
    cluster.end(2)
    assert sets(cluster.state) == sets(kept(cluster)) == ((3,), (2,), 2)
    follow(cluster)
    assert sets(cluster.brokers[3].image.topics["t"].partitions[0]) == ((3,), (2,), 2)
    # None is eligible by a smaller one; a waiting leader gets it at once.
    cluster.set_everywhere(MIN_IN_SYNC, "1")
    assert sets(cluster.state) == sets(kept(cluster)) == ((3,), (), 1)


def test_a_controller_with_a_smaller_minimum_writes_it_with_none_eligible(
    tmp_path: Path, wire: Wire
) -> None:
    """As when it starts again with another file, in a rolling restart."""
    made = Cluster(tmp_path, wire)
    made.rules = ElectionRules(min_in_sync=2)
    made.make(3, 2)
    made.end(2)
    assert sets(made.state) == ((3,), (2,), 2)
    epoch = made.state.partition_epoch
    made.rules = ElectionRules(min_in_sync=1)
    made.controller.controller.reload()
    eventually(lambda: made.state.min_in_sync == 1)
    assert sets(made.state) == ((3,), (), 1)
    assert made.state.partition_epoch == epoch + 1
    for node_id in (3, 1):
        made.brokers[node_id].stop()
