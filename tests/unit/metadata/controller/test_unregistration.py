"""A broker is unregistered: what the store has of it is removed, at whatever point it is cut."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path

import pytest

from kbroker.errors import ErrorCode, KafkaError
from kbroker.metadata.controller import records
from kbroker.metadata.controller.config_changes import NoSettings, ResourceChange
from kbroker.metadata.controller.directory_nodes import (
    load_used_directories,
    save_used_directories,
)
from kbroker.metadata.controller.partition_states import ElectionRules
from kbroker.metadata.image import NO_LEADER, ConfigKind, ConfigResource
from tests.unit.metadata.controller.brokers import Cluster, Wire
from tests.unit.metadata.controller.harness import OneBroker, eventually, wait

OWN = ConfigResource(ConfigKind.BROKER, "3")


class Anything(NoSettings):
    """Rules that let everything be set."""

    def check(
        self,
        resource: ConfigResource,
        configs: Mapping[str, str],
        given: Collection[str] = (),
    ) -> None:
        pass

    def edit_list(
        self, resource: ConfigResource, own: Mapping[str, str], key: str, parts: str, add: bool
    ) -> str:
        raise KafkaError(ErrorCode.INVALID_CONFIG)


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    made = Cluster(tmp_path, Wire())
    yield made
    for node_id in sorted(made.brokers, reverse=True):
        made.brokers[node_id].stop()


def unregister(broker: OneBroker, node_id: int) -> KafkaError | None:
    answer: KafkaError | None = wait(
        lambda done: broker.controller.unregister_broker(node_id, done)
    )
    return answer


def refused(broker: OneBroker, node_id: int) -> ErrorCode:
    error = unregister(broker, node_id)
    assert error is not None
    return error.code


def has(cluster: Cluster) -> list[str]:
    """What the store has of broker 3."""
    paths = (records.broker_path(3), records.used_directories_path(3), records.losses_path(3))
    return [path for path in paths if cluster.controller.embedded.exists(path)]


def test_of_one_that_is_gone_nothing_stays(cluster: Cluster, tmp_path: Path) -> None:
    cluster.rules = ElectionRules(min_in_sync=2)
    cluster.make(3, 2)
    save_used_directories(cluster.controller.embedded, 3, {"d3": "/data"})
    cluster.end(3)
    assert has(cluster) == [records.used_directories_path(3)]
    assert (cluster.state.isr, cluster.state.eligible) == ((2,), (3,))
    assert unregister(cluster.controller, 3) is None
    assert has(cluster) == []
    assert (cluster.state.isr, cluster.state.eligible, cluster.state.leader) == ((2,), (), 2)
    assert cluster.state.replicas == (3, 2)  # that is for a reassignment
    assert refused(cluster.controller, 3) is ErrorCode.BROKER_ID_NOT_REGISTERED
    # It may come back, with other disks.
    cluster.start(3, tmp_path, locks=lambda: ["another"])
    assert cluster.epochs().keys() == {1, 2, 3}


def test_another_takes_its_place_in_sync_where_one_is_eligible(
    cluster: Cluster, tmp_path: Path
) -> None:
    cluster.rules = ElectionRules(min_in_sync=2)
    cluster.make(3, 2)
    cluster.end(2)
    cluster.end(3)
    assert (cluster.state.isr, cluster.state.eligible) == ((3,), (2,))
    assert unregister(cluster.controller, 3) is None
    assert (cluster.state.isr, cluster.state.eligible) == ((2,), ())
    cluster.start(2, tmp_path)
    assert cluster.state.leader == 2
    assert cluster.controller.controller.statistics().unclean_elections == 0


def test_the_last_one_in_sync_stays_it(cluster: Cluster, tmp_path: Path) -> None:
    """No other has the committed records, and none without them is elected in silence."""
    cluster.make(3, 2)
    cluster.alter(3, 3)
    cluster.end(3)
    assert refused(cluster.controller, 3) is ErrorCode.BROKER_ID_NOT_REGISTERED
    assert (cluster.state.isr, cluster.state.leader) == ((3,), NO_LEADER)
    cluster.start(3, tmp_path)
    assert cluster.state.leader == 3


def test_one_that_runs_leads_nothing_and_registers_again(cluster: Cluster) -> None:
    cluster.make(3, 2)
    before = cluster.epochs()[3]
    assert unregister(cluster.controller, 3) is None
    # Its answer comes after the election.
    assert (cluster.state.leader, cluster.state.isr, cluster.state.leader_epoch) == (2, (2,), 1)
    three = cluster.brokers[3]
    eventually(lambda: cluster.epochs().get(3, before) > before)
    eventually(lambda: three.controller.informed)
    assert three.controller.broker_epoch == cluster.epochs()[3]
    assert three.image.topics["t"].partitions[0].leader == 2


def test_one_whose_registration_was_removed_by_hand_registers_again(
    cluster: Cluster,
) -> None:
    """It would go on leading otherwise, beside the one that is elected."""
    before = cluster.epochs()[3]
    cluster.controller.embedded.delete(records.broker_path(3))
    eventually(lambda: cluster.epochs().get(3, before) > before)


def test_the_controller_may_be_unregistered_itself(cluster: Cluster) -> None:
    cluster.make(1, 2)
    one, two, three = (cluster.brokers[each] for each in (1, 2, 3))
    before = cluster.epochs()[1]
    assert unregister(one, 1) is None

    def again() -> bool:
        found = [each for each in (one, two, three) if each.controller.active]
        if len(found) != 1:
            return False
        brokers = found[0].image.brokers
        return brokers.keys() == {1, 2, 3} and brokers[1].epoch > before

    eventually(again)
    eventually(lambda: all(each.controller.informed for each in (one, two, three)))
    (active,) = [each for each in (one, two, three) if each.controller.active]
    assert active.image.topics["t"].partitions[0].leader == 2
    assert len([each for each in (one, two, three) if each.controller.active]) == 1


@pytest.mark.parametrize("node_id", [-1, 0, 7, 2**31 - 1])
def test_a_broker_that_was_never_there_is_not_registered(cluster: Cluster, node_id: int) -> None:
    assert refused(cluster.controller, node_id) is ErrorCode.BROKER_ID_NOT_REGISTERED


def test_only_the_controller_does_it(cluster: Cluster) -> None:
    assert refused(cluster.brokers[2], 3) is ErrorCode.NOT_CONTROLLER
    assert 3 in cluster.epochs()


def test_the_only_broker_stays(tmp_path: Path) -> None:
    alone = OneBroker(tmp_path, 1)
    alone.start()
    try:
        error = unregister(alone, 1)
        assert error is not None
        assert error.code is ErrorCode.INVALID_REQUEST
        assert error.message == "broker 1 is the only one that runs: start another one first"
        assert alone.embedded.exists(records.broker_path(1))
        assert json.loads(alone.embedded.get(records.CONTROLLER).data)["brokerid"] == 1
    finally:
        alone.stop()


def test_its_settings_go_by_the_way_of_all_settings(tmp_path: Path) -> None:
    """The followers of the image get it; and asked for again it goes on after a crash."""
    alone = OneBroker(tmp_path, 1)
    alone.start(configs=Anything())
    try:
        change = ResourceChange(OWN, set={"min.insync.replicas": "2"})
        done = wait(lambda done: alone.controller.alter_resource_configs([change], False, done))
        assert done == [None]
        assert unregister(alone, 3) is None
        assert not alone.embedded.exists(records.config_path(OWN))
        assert refused(alone, 3) is ErrorCode.BROKER_ID_NOT_REGISTERED
        save_used_directories(alone.embedded, 3, {"d": "/d"})
        assert unregister(alone, 3) is None
        assert load_used_directories(alone.embedded, 3) == {}
    finally:
        alone.stop()
