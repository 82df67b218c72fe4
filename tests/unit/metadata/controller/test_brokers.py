"""Brokers that come and go, as the controller sees it: elections, in-sync sets, broker epochs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from uuid import UUID

import pytest

from kbroker.errors import ErrorCode, KafkaError
from kbroker.metadata.controller import ConfigChange, MorePartitions, NewTopic, nodes, records
from kbroker.metadata.controller.directory_nodes import load_replicas
from kbroker.metadata.controller.events import Reassignment
from kbroker.metadata.controller.nodes import load_brokers
from kbroker.metadata.controller.partition_states import ElectionRules
from kbroker.metadata.controller.registration import register
from kbroker.metadata.controller.skeleton import ensure_skeleton
from kbroker.metadata.image import NO_LEADER, BrokerImage, PartitionImage
from kbroker.metadata.store.base import OPERATION_BYTES
from kbroker.metadata.store.embedded import EmbeddedStore
from kbroker.types import TopicPartition
from tests.unit.metadata.controller.brokers import Cluster, Wire
from tests.unit.metadata.controller.harness import OneBroker, eventually, wait


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    made = Cluster(tmp_path)
    yield made
    for node_id in sorted(made.brokers, reverse=True):
        made.brokers[node_id].stop()


def test_epochs_grow_with_every_start(cluster: Cluster, tmp_path: Path) -> None:
    before = cluster.epochs()
    assert sorted(before.values()) == [before[1], before[2], before[3]]
    cluster.end(2)
    cluster.start(2, tmp_path)
    after = cluster.epochs()
    assert after[2] > before[3] and (after[1], after[3]) == (before[1], before[3])
    eventually(lambda: cluster.brokers[3].image.brokers == cluster.controller.image.brokers)


def test_the_dead_leave_with_the_write_that_elects(cluster: Cluster) -> None:
    cluster.make(3, 2)
    path = records.partition_state_path("t", 0)
    assert (cluster.state.leader, cluster.state.isr) == (3, (3, 2))
    cluster.end(3)
    assert (cluster.state.leader, cluster.state.isr, cluster.state.leader_epoch) == (2, (2,), 1)
    node = cluster.controller.embedded.get(path)
    assert node.version == cluster.state.partition_epoch == 1
    assert records.decode_partition(path, node.data) == (2, 1, (2,), (), 1, NO_LEADER)


def test_no_replica_is_elected_that_may_lack_records(cluster: Cluster, tmp_path: Path) -> None:
    cluster.make(3, 2)
    cluster.alter(3, 3)
    cluster.end(3)
    assert (cluster.state.leader, cluster.state.isr, cluster.state.leader_epoch) == (
        NO_LEADER,
        (3,),
        1,
    )
    assert cluster.controller.controller.statistics().offline_partitions == 1
    cluster.start(3, tmp_path)
    assert (cluster.state.leader, cluster.state.isr, cluster.state.leader_epoch) == (3, (3,), 2)
    assert cluster.controller.controller.statistics().unclean_elections == 0


def test_an_unclean_election_is_counted(cluster: Cluster) -> None:
    cluster.rules = ElectionRules(unclean=True)
    cluster.make(3, 2)
    cluster.alter(3, 3)
    cluster.end(3)
    assert (cluster.state.leader, cluster.state.isr) == (2, (2,))
    figures = cluster.controller.controller.statistics()
    assert (figures.leader_elections, figures.unclean_elections) == (1, 1)


def test_a_clean_election_is_counted_and_the_first_leader_is_not(cluster: Cluster) -> None:
    cluster.make(3, 2)
    figures = cluster.controller.controller.statistics
    assert figures().leader_elections == 0
    cluster.end(3)
    assert cluster.state.leader == 2
    assert (figures().leader_elections, figures().unclean_elections) == (1, 0)


def test_a_replica_that_left_below_the_minimum_may_be_elected(
    cluster: Cluster, tmp_path: Path
) -> None:
    cluster.rules = ElectionRules(min_in_sync=2)
    cluster.make(3, 2)
    cluster.end(2)
    cluster.end(3)
    assert (cluster.state.leader, cluster.state.isr, cluster.state.eligible) == (-1, (3,), (2,))
    # A controller that reads the store knows it as well.
    cluster.controller.controller.reload()
    cluster.start(2, tmp_path)
    assert (cluster.state.leader, cluster.state.isr, cluster.state.eligible) == (2, (2,), (3,))
    assert cluster.controller.controller.statistics().unclean_elections == 0


def test_a_start_whose_end_was_not_seen_is_an_end_and_a_start(
    cluster: Cluster, tmp_path: Path
) -> None:
    cluster.make(3, 2)
    first = cluster.brokers[3]
    second = OneBroker(tmp_path, 3)
    # It takes the registration over.
    second.start(first.embedded.new_session(), locks=lambda: ["d3"])
    cluster.brokers[3] = second
    eventually(lambda: cluster.epochs().get(3) == second.controller.broker_epoch)
    assert (cluster.state.leader, cluster.state.isr, cluster.state.leader_epoch) == (2, (2,), 1)
    first.embedded.expire()
    first.stop()
    assert cluster.epochs().keys() == {1, 2, 3}


def test_a_start_that_no_controller_saw_is_one_to_the_next(
    tmp_path: Path,
) -> None:
    """Or it leads on in the epoch that it led before, with a high watermark that has gone back."""
    cluster = Cluster(tmp_path, Wire())
    cluster.make(2, 3)
    one, three = cluster.brokers[1], cluster.brokers[3]
    one.controller._loop.stop()  # as a process that hangs: it stays in office
    cluster.brokers[2].stop()
    again = OneBroker(tmp_path, 2)
    again.start(three.embedded.new_session(), locks=lambda: ["d2"], transport=Wire())
    assert not again.controller.active
    three.stop()
    one.embedded.close()
    eventually(lambda: again.controller.active and "t" in again.image.topics)
    state = again.image.topics["t"].partitions[0]
    again.stop()
    assert (state.leader, state.isr, state.leader_epoch) == (2, (2,), 1)


def test_a_lossy_start_leaves_its_sets_in_the_write_that_elects(
    cluster: Cluster, tmp_path: Path
) -> None:
    """Its session has not expired, and its end was not seen."""
    cluster.rules = ElectionRules(min_in_sync=2)
    cluster.make(3, 2)
    first = cluster.brokers[3]
    second = OneBroker(tmp_path, 3)
    lossy = BrokerImage(3, lossy=True)
    second.start(first.embedded.new_session(), locks=lambda: ["d3"], broker=lossy)
    cluster.brokers[3] = second
    eventually(lambda: cluster.epochs().get(3) == second.controller.broker_epoch)
    state = cluster.state
    assert (state.leader, state.isr, state.eligible, state.partition_epoch) == (2, (2,), (), 1)
    # That was the loss, and it may catch up.
    cluster.alter(2, 2, 3)
    cluster.end(2)
    assert (cluster.state.leader, cluster.state.isr, cluster.state.eligible) == (3, (3,), (2,))
    first.embedded.expire()
    first.stop()


def test_a_lossy_start_leads_only_where_no_other_can_and_says_so(
    cluster: Cluster, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    cluster.make(3, 2)
    one = cluster.controller
    assert not one.create(NewTopic("single", assignments={0: (3,)}))[0].error
    cluster.alter(3, 3)
    cluster.end(3)
    assert cluster.state.leader == NO_LEADER
    cluster.start(3, tmp_path, broker=BrokerImage(3, lossy=True))
    assert (cluster.state.leader, cluster.state.isr, cluster.state.leader_epoch) == (3, (3,), 2)
    assert one.image.topics["single"].partitions[0].leader == 3
    # No other replica could have had more of the other topic.
    assert one.controller.statistics().unclean_elections == 1
    said = [each.getMessage() for each in caplog.records if "may have lost" in each.getMessage()]
    assert [each.partition("leads ")[2].partition(" ")[0] for each in said] == ["1"]
    assert said[0].endswith("t-0")


@pytest.mark.parametrize(
    ("noted", "lossy"),
    [
        (lambda epoch: records.encode_losses(epoch), False),
        (lambda epoch: records.encode_losses(epoch - 1), True),  # an earlier start's
        (lambda epoch: b"{", True),
    ],
)
def test_of_which_lossy_start_account_was_taken(
    tmp_path: Path, noted: Callable[[int], bytes], lossy: bool
) -> None:
    store = EmbeddedStore.open(tmp_path)
    ensure_skeleton(store, "td1oS7a7TU-n3josdqba8w")
    epoch = register(store, BrokerImage(2, lossy=True), {"d2"}, 1)
    assert load_brokers(store) == (BrokerImage(2, epoch=epoch, lossy=True),)
    store.create(records.losses_path(2), noted(epoch))
    assert load_brokers(store) == (BrokerImage(2, epoch=epoch, lossy=lossy),)
    store.close()


@pytest.mark.parametrize("who", [1, 2])
def test_a_controller_that_starts_finds_lossy_starts(tmp_path: Path, who: int) -> None:
    """Its own, or that of a broker whose controller died before it learned of it."""
    one = OneBroker(tmp_path, 1)
    one.start(locks=lambda: ["d1"])
    two = one.embedded.new_session()
    register(two, BrokerImage(2), {"d2"}, 1)
    eventually(lambda: 2 in one.image.brokers)
    assert not one.create(NewTopic("t", assignments={0: (1, 2)}))[0].error
    again = two.new_session()
    one.embedded.expire()
    one.stop()
    if who == 2:
        register(again, BrokerImage(2, lossy=True), {"d2"}, 2)
    known: list[bool] = []
    one = OneBroker(tmp_path, 1)
    one.start(
        two.new_session(),
        locks=lambda: ["d1"],
        broker=BrokerImage(1, lossy=who == 1),
        start_is_known=lambda: known.append(True),
    )
    state = one.image.topics["t"].partitions[0]
    assert (state.leader, state.isr) == ((2, (2,)) if who == 1 else (1, (1,)))
    assert known == ([True] if who == 1 else [])
    assert load_brokers(two)[0] == BrokerImage(1, epoch=one.controller.broker_epoch)
    one.stop()
    for session in (two, again):
        session.close()


def test_a_leader_alters_its_in_sync_set(cluster: Cluster) -> None:
    cluster.make(3, 2)
    (shrunk,) = cluster.alter(3, 3)
    assert isinstance(shrunk, PartitionImage)
    assert (shrunk.isr, shrunk.partition_epoch, shrunk.leader_epoch) == ((3,), 1, 0)
    assert shrunk == cluster.state
    (same,) = cluster.alter(3, 3)
    assert same == shrunk
    grown, again = cluster.alter(3, 3, 2, times=2)
    assert isinstance(grown, PartitionImage) and grown.isr == (3, 2)
    assert isinstance(again, KafkaError) and again.code is ErrorCode.INVALID_UPDATE_VERSION


def test_a_leader_that_was_replaced_alters_nothing(cluster: Cluster, tmp_path: Path) -> None:
    cluster.make(3, 2)
    old = cluster.epochs()[3]
    cluster.end(3)
    cluster.start(3, tmp_path)
    (answer,) = cluster.alter(3, 3, broker_epoch=old)
    assert isinstance(answer, KafkaError) and answer.code is ErrorCode.STALE_BROKER_EPOCH
    (answer,) = cluster.alter(3, 3)
    assert isinstance(answer, KafkaError) and answer.code is ErrorCode.INVALID_REQUEST
    assert cluster.state.isr == (2,)


def test_a_log_that_is_offline_here_is_not_elected_again_and_again(cluster: Cluster) -> None:
    cluster.controller.replicas.offline = [TopicPartition("t", 0)]
    cluster.make(1)
    cluster.controller.controller.reload()
    path = records.partition_state_path("t", 0)
    before = cluster.controller.embedded.get(path)
    cluster.end(3)
    cluster.end(2)
    assert cluster.controller.embedded.get(path) == before


def test_the_next_controller_goes_on_with_decisions_of_the_last_one(cluster: Cluster) -> None:
    cluster.make(3, 2)
    cluster.alter(3, 3)
    cluster.brokers.pop(1).stop()
    two, three = cluster.brokers[2], cluster.brokers[3]
    eventually(lambda: "t" in {*two.image.topics, *three.image.topics})
    second, last = (two, three) if two.controller.active else (three, two)
    state = second.image.topics["t"].partitions[0]
    assert (state.leader, state.isr, state.leader_epoch, state.partition_epoch) == (3, (3,), 0, 1)
    second.embedded.expire()
    eventually(lambda: "t" in last.image.topics)
    state = last.image.topics["t"].partitions[0]
    assert last.image.brokers.keys() == {last.node_id}
    assert state.leader == (3 if last is three else NO_LEADER) and state.isr == (3,)


def test_a_smaller_minimum_ends_eligibility_and_no_other_does(cluster: Cluster) -> None:
    cluster.rules = ElectionRules(min_in_sync=2)
    cluster.make(3, 2)
    cluster.end(2)
    assert cluster.state.eligible == (2,)
    for change in ({"set": {"min.insync.replicas": "1"}}, {"replace": True}):
        cluster.controller.alter(ConfigChange("t", **change), validate_only=True)
    cluster.controller.alter(ConfigChange("t", set={"retention.ms": "1"}))
    cluster.controller.alter(ConfigChange("t", set={"min.insync.replicas": "2"}))
    assert (cluster.state.eligible, cluster.state.partition_epoch) == ((2,), 1)
    cluster.rules = ElectionRules(min_in_sync=1)
    cluster.controller.alter(ConfigChange("t", set={"min.insync.replicas": "1"}))
    assert (cluster.state.eligible, cluster.state.partition_epoch) == ((), 2)
    assert cluster.controller.image.topics["t"].configs["min.insync.replicas"] == "1"


def test_a_request_of_which_one_topic_is_too_large_moves_nothing(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    create = cluster.controller.create
    assert not create(NewTopic("a", assignments={0: (1,)}))[0].error
    assert not create(NewTopic("z", assignments=dict.fromkeys(range(40), (1,))))[0].error
    before = cluster.controller.image.topics
    monkeypatch.setattr(nodes, "MULTI_BYTES_MAX", 600 + 3 * OPERATION_BYTES)
    wanted = [Reassignment(TopicPartition(name, 0), (2,)) for name in ("a", "z")]
    outcomes = wait(lambda done: cluster.controller.controller.reassign(wanted, True, done))
    assert [error.code for _, error in outcomes] == [ErrorCode.POLICY_VIOLATION] * 2
    assert cluster.controller.image.topics == before
    outcomes = wait(lambda done: cluster.controller.controller.reassign(wanted[:1], True, done))
    assert [error for _, error in outcomes] == [None]


def test_a_partition_that_is_named_again_has_the_same_outcome_until_it_has_changed(
    cluster: Cluster,
) -> None:
    assert not cluster.controller.create(NewTopic("a", assignments={0: (1,)}))[0].error
    name = TopicPartition("a", 0)
    targets = [None, None, (2,), (2,), (), (), (2,), None, None]
    wanted = [Reassignment(name, target) for target in targets]
    outcomes = wait(lambda done: cluster.controller.controller.reassign(wanted, True, done))
    nothing = ErrorCode.NO_REASSIGNMENT_IN_PROGRESS
    invalid = ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert [error and error.code for _, error in outcomes] == [
        nothing, nothing, None, None, invalid, invalid, None, None, nothing
    ]  # fmt: skip


def test_others_lead_before_a_broker_stops(cluster: Cluster, tmp_path: Path) -> None:
    cluster.make(3, 2)
    cluster.controller.create(NewTopic("alone", assignments={0: (3,)}))
    cluster.controller.create(NewTopic("followed", assignments={0: (1, 3)}))
    stale = cluster.shut_down(3, cluster.epochs()[3] - 1)
    assert isinstance(stale, KafkaError) and stale.code is ErrorCode.STALE_BROKER_EPOCH
    assert cluster.state.leader == 3
    assert cluster.shut_down(3) == []
    assert (cluster.state.leader, cluster.state.isr, cluster.state.leader_epoch) == (2, (2,), 1)
    topics = cluster.controller.image.topics
    assert topics["alone"].partitions[0].leader == 3
    assert topics["followed"].partitions[0].isr == (1,)
    # It does not join again, nor is it elected, before it has started again.
    (answer,) = cluster.alter(2, 2, 3)
    assert isinstance(answer, KafkaError) and answer.code is ErrorCode.INELIGIBLE_REPLICA
    assert cluster.shut_down(2) == []  # no other is left that could lead
    assert cluster.state.leader == 2
    cluster.end(3)
    cluster.start(3, tmp_path)
    assert cluster.shut_down(2) == [TopicPartition("t", 0)]  # one may, once it is in sync
    cluster.alter(2, 2, 3)
    assert cluster.shut_down(2) == []
    assert (cluster.state.leader, cluster.state.isr) == (3, (3,))


def test_topics_that_are_created_while_a_broker_stops_go_to_the_others(
    cluster: Cluster, tmp_path: Path
) -> None:
    """Until it has started again."""

    def placed(name: str) -> set[int]:
        assert not cluster.controller.create(NewTopic(name, 6, 1))[0].error
        topic = cluster.controller.image.topics[name]
        return {node for each in topic.partitions for node in each.replicas}

    cluster.shut_down(3)
    assert placed("a") == {1, 2}
    assert not cluster.controller.grow(MorePartitions("a", 12))[0].error
    partitions = cluster.controller.image.topics["a"].partitions
    assert {each.replicas for each in partitions} == {(1,), (2,)}
    cluster.end(3)
    cluster.start(3, tmp_path)
    assert placed("b") == {1, 2, 3}


def test_the_controller_stops_like_any_other(cluster: Cluster) -> None:
    cluster.make(1, 2)
    assert cluster.shut_down(1) == []
    assert (cluster.state.leader, cluster.state.isr) == (2, (2,))


def test_elections_by_request(cluster: Cluster, tmp_path: Path) -> None:
    def elect(unclean: bool, *indexes: int) -> list[ErrorCode]:
        wanted = [TopicPartition("t", index) for index in indexes]
        controller = cluster.controller.controller
        results = wait(lambda done: controller.elect_leaders(unclean, wanted, done))
        assert [name for name, _ in results] == wanted
        return [ErrorCode.NONE if error is None else error.code for _, error in results]

    cluster.make(3, 2)
    cluster.end(3)
    assert elect(False, 0, 1) == [
        ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ]
    cluster.start(3, tmp_path)
    assert elect(False, 0) == [ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE]  # it is not in sync yet
    cluster.alter(2, 2, 3)
    assert elect(False, 0) == [ErrorCode.NONE]
    assert (cluster.state.leader, cluster.state.isr) == (3, (3, 2))
    assert elect(False, 0) == elect(True, 0) == [ErrorCode.ELECTION_NOT_NEEDED]
    cluster.alter(3, 3)
    cluster.end(3)
    assert cluster.state.leader == NO_LEADER
    assert elect(True, 0) == [ErrorCode.NONE]
    assert (cluster.state.leader, cluster.state.isr) == (2, (2,))
    assert cluster.controller.controller.statistics().unclean_elections == 1


def test_a_moving_topic_that_is_deleted_while_it_is_read_hinders_no_start(tmp_path: Path) -> None:
    """Its own node goes last, so it may be there without those of its partitions."""
    store = EmbeddedStore.open(tmp_path)
    ensure_skeleton(store, "AAAAAAAAAAAAAAAAAAAAAA")
    topic_id = UUID(int=5)
    data = records.encode_topic(topic_id, [(3, 1)], {0: (3,)}, {0: (1,)})
    store.create(records.topic_path("t"), data)
    assert list(load_replicas(store)) == [("t", topic_id, ((1,),))]
    store.close()
