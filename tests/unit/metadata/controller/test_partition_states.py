"""Leaders and in-sync sets: the effect of each cause, and that no clean leader lacks a record."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from uuid import UUID

import hypothesis.strategies as st
import pytest
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from kbroker.errors import ErrorCode as E
from kbroker.errors import KafkaError
from kbroker.metadata.controller.decisions import new_topic_image
from kbroker.metadata.controller.partition_states import (
    ElectionRules,
    InSyncChange,
    after_brokers_changed,
    alter_in_sync,
    before_stop,
    decided,
    others_may_lead,
    preferred_election,
    unclean_election,
    without_eligible,
)
from kbroker.metadata.image import NO_LEADER, BrokerImage, ClusterImage, PartitionImage
from kbroker.types import TopicPartition

TOPIC = UUID(int=1)
NODES = (0, 1, 2)


def image(alive: Collection[int] = NODES, **state: object) -> ClusterImage:
    """One partition with replicas 0, 1, 2; broker n was registered as 100 + n."""
    topic = new_topic_image("t", TOPIC, [NODES], {})
    partition = replace(topic.partitions[0], leader_epoch=5, partition_epoch=9, **state)
    return (
        ClusterImage()
        .with_brokers(BrokerImage(node, epoch=100 + node) for node in alive)
        .with_topics([replace(topic, partitions=(partition,))])
    )


def only(cluster: ClusterImage) -> PartitionImage:
    return cluster.topics["t"].partitions[0]


def state_of(partition: PartitionImage) -> tuple[object, ...]:
    return partition.leader, partition.isr, partition.eligible, partition.leader_epoch


def change(*in_sync: int, **fields: int) -> InSyncChange:
    known = InSyncChange(TOPIC, 0, 5, 9, {node: 100 + node for node in in_sync})
    return known._replace(**fields)


@pytest.mark.parametrize(
    ("before", "alive", "minimum", "after"),
    [
        pytest.param((1, (1, 2)), (0, 1, 2), 1, None, id="who leads and lives stays"),
        pytest.param((1, (1, 2)), (1, 2), 1, None, id="a replica out of sync is not missed"),
        pytest.param((1, (1, 2)), (0, 2), 1, (2, (2,), (), 6), id="in sync, not the first one"),
        pytest.param((1, (1, 2)), (0, 1), 1, (1, (1,), (), 5), id="a follower: no new epoch"),
        pytest.param((1, (1, 2)), (0, 1), 2, (1, (1,), (2,), 5), id="below the minimum: eligible"),
        pytest.param((1, (1, 2)), (0,), 1, (-1, (1,), (2,), 6), id="none is clean: no leader"),
        pytest.param((1, (1, 2)), (), 1, (-1, (1,), (2,), 6), id="all dead: the last leader stays"),
        pytest.param((-1, (1,), (2,)), (2,), 1, (2, (2,), (), 6), id="an eligible one, enough"),
        pytest.param((-1, (1,), (2,)), (2,), 2, (2, (2,), (1,), 6), id="an eligible one, too few"),
        pytest.param((-1, (1,), (2,)), (1, 2), 2, (1, (1,), (2,), 6), id="in sync before eligible"),
        pytest.param((-1, (1,), (2,)), (0,), 2, None, id="out of sync and not eligible"),
    ],
)
def test_brokers_come_and_go(
    before: tuple[object, ...], alive: tuple[int, ...], minimum: int, after: object
) -> None:
    fields = dict(zip(("leader", "isr", "eligible"), before, strict=False))
    cluster = image(**fields)
    changed = after_brokers_changed(cluster, alive, lambda _: ElectionRules(minimum))
    assert [state_of(each) for each in changed] == ([] if after is None else [after])
    assert all(each.partition_epoch == 9 for each in changed)


A, B, C = NODES
RULES = {1: ElectionRules(1), 2: ElectionRules(2)}


def after_power_cut(
    order: Collection[int], minimum: int, leader: int = A, lossy: Collection[int] = NODES
) -> list[tuple[object, ...]]:
    """Leader, in-sync and eligible replicas after each start, where the power of all machines was
    cut that had all records."""
    cluster, alive = image((), leader=leader, isr=NODES, min_in_sync=minimum), list[int]()
    seen: list[tuple[object, ...]] = []
    for node in order:
        stayed, alive = alive, [*alive, node]
        for now, losing in ((stayed, ()), (alive, {node}.intersection(lossy))):
            cluster = cluster.with_partitions(
                after_brokers_changed(cluster, now, lambda _: RULES[minimum], lossy=losing)
            )
        seen.append(state_of(only(cluster))[:3])
    return seen


@pytest.mark.parametrize("minimum", [1, 2])
@pytest.mark.parametrize("order", [(A, B, C), (B, A, C), (C, B, A), (B, C, A)])
def test_after_a_power_cut_of_all_machines_the_last_leader_leads(
    order: tuple[int, ...], minimum: int
) -> None:
    """Whichever starts last."""
    *before, last = after_power_cut(order, minimum)
    assert last[:2] == (A, (A,))
    assert all(each[0] == NO_LEADER for each in before)


def test_a_replica_that_lost_nothing_goes_before_it() -> None:
    *_, last = after_power_cut((A, B, C), 2, lossy=(A, B))
    assert last[:2] == (C, (C,))


def test_it_leads_when_it_comes_back() -> None:
    """It is the one in sync until then."""
    cluster = image((B, C), leader=NO_LEADER, isr=(C,), last_leader=A, min_in_sync=1)
    (waits,) = after_brokers_changed(cluster, (B, C), lossy=(C,))
    assert state_of(waits)[:2] == (NO_LEADER, (A,)) and waits.last_leader == A
    cluster = cluster.with_partitions([waits])
    (led,) = after_brokers_changed(cluster, NODES, lossy=(A,))
    assert state_of(led)[:2] == (A, (A,)) and led.last_leader == NO_LEADER


def test_a_broker_that_is_unregistered_is_no_last_leader() -> None:
    cluster = image((B, C), leader=NO_LEADER, isr=(C,), last_leader=A, min_in_sync=1)
    (forgotten,) = after_brokers_changed(cluster, (B,), lossy=(A,))
    assert forgotten.last_leader == NO_LEADER
    cluster = cluster.with_partitions([forgotten])
    (led,) = after_brokers_changed(cluster, (B, C), lossy=(C,))
    assert state_of(led)[:2] == (C, (C,))


@pytest.mark.parametrize("unclean", [True, False])
def test_a_partition_that_is_led_has_no_last_leader(unclean: bool) -> None:
    (lost,) = after_brokers_changed(image(leader=A, isr=(A,)), (B,))
    assert (lost.leader, lost.last_leader) == (NO_LEADER, A)
    cluster = image(leader=A, isr=(A,)).with_partitions([lost])
    alive = (B,) if unclean else NODES
    (led,) = after_brokers_changed(cluster, alive, lambda _: ElectionRules(1, unclean))
    assert (led.leader, led.last_leader) == (B if unclean else A, NO_LEADER)


def test_an_unclean_election_is_for_topics_that_allow_it() -> None:
    cluster = image(leader=1, isr=(1,))
    unclean = ElectionRules(2, unclean=True)
    assert [
        state_of(each) for each in after_brokers_changed(cluster, (0, 2), lambda _: unclean)
    ] == [(0, (0,), (), 6)]
    # Who has every record goes before.
    cluster = image(leader=-1, isr=(1,), eligible=(2,))
    assert [
        state_of(each) for each in after_brokers_changed(cluster, (0, 2), lambda _: unclean)
    ] == [(2, (2,), (1,), 6)]


def test_an_unclean_election_that_is_asked_for() -> None:
    def asked(alive: Collection[int], **state: object) -> object:
        elected = unclean_election(only(image(**state)), alive)
        return elected.code if isinstance(elected, KafkaError) else state_of(elected)

    assert asked((0, 2), leader=NO_LEADER, isr=(1,)) == (0, (0,), (), 6)
    assert asked((0, 2), leader=NO_LEADER, isr=(1,), eligible=(2,)) == (2, (2,), (), 6)
    assert asked((0, 2), leader=1, isr=(1,)) is E.ELECTION_NOT_NEEDED
    assert asked((), leader=NO_LEADER, isr=(1,)) is E.ELIGIBLE_LEADERS_NOT_AVAILABLE


def test_a_replica_that_does_not_open_is_as_one_of_a_dead_broker() -> None:
    closed = [(TopicPartition("t", 0), 0)]
    cluster = image(leader=0, isr=(0, 1))
    assert [state_of(each) for each in after_brokers_changed(cluster, NODES, closed=closed)] == [
        (1, (1,), (), 6)
    ]
    leaderless = image(leader=NO_LEADER, isr=(0,))
    assert after_brokers_changed(leaderless, NODES, closed=closed) == []  # again and again


def test_a_start_after_an_unclean_end_has_new_epochs_where_there_is_a_leader() -> None:
    cluster = image(leader=0, isr=(0,))
    assert after_brokers_changed(cluster, NODES) == []
    assert [state_of(each) for each in after_brokers_changed(cluster, NODES, new_epochs=True)] == [
        (0, (0,), (), 6)
    ]
    gone = after_brokers_changed(cluster, (1,), new_epochs=True)
    assert [state_of(each) for each in gone] == [(-1, (0,), (), 6)]


@pytest.mark.parametrize(
    ("before", "alive", "lossy", "minimum", "after"),
    [
        pytest.param((1, (1, 2)), (1, 2), (0,), 1, None, id="it was in no set"),
        pytest.param((1, (1, 2)), (1, 2), (2,), 1, (1, (1,), (), 5), id="a follower leaves"),
        pytest.param((1, (1, 2)), (1, 2), (2,), 2, (1, (1,), (), 5), id="and is not eligible"),
        pytest.param((1, (1,), (0, 2)), NODES, (2,), 2, (1, (1,), (0,), 5), id="nor any more"),
        pytest.param((1, (1, 2)), (1, 2), (1,), 2, (2, (2,), (), 6), id="the leader leaves"),
        pytest.param((1, (1, 2)), (1,), (1,), 2, (-1, (2,), (), 6), id="before who is dead"),
        pytest.param((-1, (1,), (2,)), (1,), (1,), 2, (-1, (2,), (), 5), id="or eligible"),
        pytest.param((-1, (1,), (0, 2)), (1, 2), (1,), 2, (2, (2,), (0,), 6), id="who lives"),
        pytest.param((1, (1,)), NODES, (1,), 1, (1, (1,), (), 6), id="alone: a new epoch"),
        pytest.param((-1, (1,)), NODES, (1,), 1, (1, (1,), (), 6), id="alone: it leads again"),
        pytest.param((-1, (1,), (2,)), NODES, (1, 2), 2, (1, (1,), (), 6), id="last leader"),
        pytest.param((1, NODES), NODES, NODES, 2, (1, (1,), (), 6), id="all: the last leader"),
        pytest.param((1, NODES), (1,), (1,), 2, (-1, (0,), (2,), 6), id="one after the other"),
    ],
)
def test_a_lossy_start_leaves_both_sets_before_it_may_lead(
    before: tuple[object, ...],
    alive: tuple[int, ...],
    lossy: tuple[int, ...],
    minimum: int,
    after: object,
) -> None:
    fields = dict(zip(("leader", "isr", "eligible"), before, strict=False))
    rules = ElectionRules(minimum)
    changed = after_brokers_changed(image(**fields), alive, lambda _: rules, lossy=lossy)
    assert [state_of(each) for each in changed] == ([] if after is None else [after])


def test_the_preferred_replica_leads_if_it_is_in_sync_and_lives() -> None:
    def asked(alive: Collection[int], **state: object) -> object:
        elected = preferred_election(only(image(**state)), alive)
        return elected.code if isinstance(elected, KafkaError) else state_of(elected)

    assert asked(NODES, leader=1, isr=(0, 1)) == (0, (0, 1), (), 6)
    assert asked((1, 2), leader=1, isr=(0, 1)) is E.PREFERRED_LEADER_NOT_AVAILABLE
    assert asked(NODES, leader=1, isr=(1, 2)) is E.PREFERRED_LEADER_NOT_AVAILABLE
    assert asked(NODES, leader=0, isr=(0,)) is E.ELECTION_NOT_NEEDED


def test_a_leader_grows_and_shrinks_its_in_sync_set() -> None:
    def asked(cluster: ClusterImage, *in_sync: int, minimum: int = 1) -> tuple[object, ...]:
        rules = ElectionRules(minimum)
        return state_of(alter_in_sync(cluster, 1, change(*in_sync), lambda _: rules))

    cluster = image(leader=1, isr=(1, 2))
    assert asked(cluster, 2, 1, 0) == (1, (0, 1, 2), (), 5)
    assert asked(cluster, 1) == (1, (1,), (), 5)
    assert asked(cluster, 1, minimum=2) == (1, (1,), (2,), 5)
    few = image(leader=1, isr=(1,), eligible=(2,))
    assert asked(few, 1, 0, minimum=3) == (1, (0, 1), (2,), 5)
    assert asked(few, 1, 0, minimum=2) == (1, (0, 1), (), 5)
    assert alter_in_sync(cluster, 1, change(2, 1)) is only(cluster)


@pytest.mark.parametrize(
    ("leader", "asked", "code"),
    [
        (1, change(1, 2, topic_id=UUID(int=7)), E.UNKNOWN_TOPIC_ID),
        (1, change(1, 2, partition=1), E.UNKNOWN_TOPIC_OR_PARTITION),
        (1, change(1, 2, partition=-1), E.UNKNOWN_TOPIC_OR_PARTITION),
        (1, change(1, 2, leader_epoch=4), E.FENCED_LEADER_EPOCH),
        (1, change(1, 2, leader_epoch=6), E.NOT_CONTROLLER),
        (1, change(1, 2, partition_epoch=10), E.NOT_CONTROLLER),
        (1, change(1, 2, partition_epoch=8), E.INVALID_UPDATE_VERSION),
        (2, change(1, 2), E.INVALID_REQUEST),
        (1, change(2), E.INVALID_REQUEST),
        (1, change(), E.INVALID_REQUEST),
        (1, change(1, 3), E.INVALID_REQUEST),
        (1, change(1, in_sync={1: 101, 2: 55}), E.INELIGIBLE_REPLICA),  # it has started again
        (1, change(1, 0), E.INELIGIBLE_REPLICA),  # it is dead
    ],
)
def test_sets_that_no_leader_may_ask_for(leader: int, asked: InSyncChange, code: E) -> None:
    cluster = image((1, 2), leader=1, isr=(1,))
    with pytest.raises(KafkaError) as refused:
        alter_in_sync(cluster, leader, asked)
    assert refused.value.code is code


@pytest.mark.parametrize(
    ("before", "stopping", "minimum", "after"),
    [
        pytest.param((0, (0, 1, 2)), {0}, 1, (1, (1, 2), (), 6), id="another leads"),
        pytest.param((0, (0, 1, 2)), {1}, 1, (0, (0, 2), (), 5), id="who follows leaves"),
        pytest.param((0, (0, 1, 2)), {0, 1}, 1, (2, (2,), (), 6), id="none that stops as well"),
        pytest.param((0, (0, 2)), {0}, 2, (2, (2,), (0,), 6), id="below the minimum: eligible"),
        pytest.param((0, (0,)), {0}, 1, None, id="who is alone goes on"),
        pytest.param((0, (0, 1)), {0, 1}, 1, None, id="so do all, if all stop"),
        pytest.param((0, (0, 1)), {2}, 1, None, id="one out of sync is no loss"),
    ],
)
def test_before_a_broker_stops_others_lead(
    before: tuple[int, tuple[int, ...]],
    stopping: set[int],
    minimum: int,
    after: tuple[object, ...] | None,
) -> None:
    leader, isr = before
    cluster = image(leader=leader, isr=isr)
    changed = before_stop(cluster, stopping, lambda _: ElectionRules(minimum))
    assert [state_of(each) for each in changed] == ([] if after is None else [after])


def test_partitions_that_a_stop_waits_for() -> None:
    name = TopicPartition("t", 0)
    assert others_may_lead(image(leader=0, isr=(0,)), 0) == [name]
    assert others_may_lead(image((0,), leader=0, isr=(0,)), 0) == []  # no other lives
    assert others_may_lead(image(leader=0, isr=(0,)), 0, {1, 2}) == []
    assert others_may_lead(image(leader=1, isr=(1,)), 0) == []
    assert others_may_lead(image(leader=0, isr=(0,)), 0, (), {(name, 1)}) == [name]
    assert others_may_lead(image(leader=0, isr=(0,)), 0, (), {(name, 1), (name, 2)}) == []


def test_a_stopping_broker_does_not_join_again_and_is_not_put_out_by_itself() -> None:
    cluster = image(leader=1, isr=(1,))
    with pytest.raises(KafkaError) as refused:
        alter_in_sync(cluster, 1, change(1, 0), stopping={0})
    assert refused.value.code is E.INELIGIBLE_REPLICA
    assert alter_in_sync(cluster, 1, change(1, 2), stopping={0, 1}).isr == (1, 2)


def test_other_settings_end_eligibility() -> None:
    few = image(leader=1, isr=(1,), eligible=(2,))
    assert [state_of(each) for each in without_eligible(few.topics.values())] == [(1, (1,), (), 5)]
    assert without_eligible(image(leader=1, isr=(1,)).topics.values()) == []
    said = image(leader=1, isr=(1,), eligible=(2,), min_in_sync=2)
    assert without_eligible(said.topics.values()) == []  # until a smaller one is written
    # Settings of a broker's file, whose change was not seen.
    for leader, epoch in ((1, 5), (NO_LEADER, 6)):
        cluster = image(leader=leader, isr=(1,), eligible=(2,))
        changed = after_brokers_changed(cluster, NODES, lambda _: ElectionRules(1))
        assert [state_of(each) for each in changed] == [(1, (1,), (), epoch)]


@pytest.mark.parametrize(
    ("known", "minimum", "eligible"),
    [
        pytest.param(2, 2, (2,), id="the same"),
        pytest.param(2, 3, (2,), id="larger: by neither the high watermark moves"),
        pytest.param(3, 2, (), id="smaller"),
        pytest.param(3, 9, (2,), id="no more than there are replicas"),
        pytest.param(0, 2, (2,), id="of a controller that did not say it"),
    ],
)
def test_a_state_says_the_minimum_that_was_decided_with(
    known: int, minimum: int, eligible: tuple[int, ...]
) -> None:
    before = only(image(leader=1, isr=(1,), eligible=(2,), min_in_sync=known))
    after = decided(before, ElectionRules(minimum))
    assert after == replace(before, eligible=eligible, min_in_sync=min(minimum, 3))


def test_a_smaller_minimum_is_written_at_once_where_it_is_waited_for() -> None:
    few = image(leader=1, isr=(1,), min_in_sync=2)
    (state,) = after_brokers_changed(few, NODES, lambda _: ElectionRules(1))
    assert state == replace(only(few), min_in_sync=1)
    for enough in ({"isr": (1, 2)}, {"isr": (1,), "leader": NO_LEADER}):
        cluster = image((2,), **{"leader": 1, "min_in_sync": 2, **enough})
        alive = (1, 2) if "leader" not in enough else (0, 2)
        assert after_brokers_changed(cluster, alive, lambda _: ElectionRules(1)) == []
    assert after_brokers_changed(few, NODES, lambda _: ElectionRules(3)) == []


class Records(RuleBasedStateMachine):
    """One partition of three brokers, and how many records each of them has on its disk.

    What is below the high watermark is lost only if as many machines stopped as it was to be on,
    and then a lossy leader says so.
    """

    def __init__(self) -> None:
        super().__init__()
        self.cluster = image(leader=0, isr=NODES)
        self.alive = set(NODES)
        self.written = dict.fromkeys(NODES, 0)  # by broker: the records that it has
        self.high_watermark = 0
        self.election = ElectionRules(2)  # of the controller
        self.leaders_minimum = 2  # of the leader's settings
        self.cut: set[int] = set()  # machines that stopped, that no controller knows of
        self.stopped: set[int] = set()  # those, and who did since the high watermark moved
        self.fewest = 2  # min.insync.replicas since then

    @property
    def state(self) -> PartitionImage:
        return only(self.cluster)

    def take(self, changed: list[PartitionImage], lossy: Collection[int] = ()) -> None:
        for now in (decided(each, self.election) for each in changed):
            was = self.state
            assert now.leader_epoch >= was.leader_epoch
            same = now.leader == was.leader and now.leader not in lossy
            assert same or now.leader_epoch > was.leader_epoch
            if now.leader != NO_LEADER and not same:
                # A leader's log is what counts from now on; what others have beyond it is cut.
                end = self.written[now.leader]
                if end < self.high_watermark:
                    assert now.leader in lossy, "a clean election lost records"
                    assert len(self.stopped) >= self.fewest
                    self.high_watermark = end
                    self.stopped = {*self.cut}
                for node in NODES:
                    self.written[node] = min(self.written[node], end)
            self.cluster = self.cluster.with_partitions(
                [replace(now, partition_epoch=was.partition_epoch + 1)]
            )

    def follow(self) -> None:
        self.cluster = self.cluster.with_brokers(
            BrokerImage(node, epoch=100 + node) for node in sorted(self.alive)
        )
        lossy = self.alive & self.cut
        self.cut -= lossy
        changed = after_brokers_changed(
            self.cluster, self.alive, lambda _: self.election, lossy=lossy
        )
        self.take(changed, lossy)

    @rule(node=st.sampled_from(NODES))
    def broker_dies_or_comes_back(self, node: int) -> None:
        self.alive ^= {node}
        self.follow()

    @rule(nodes=st.sets(st.sampled_from(NODES)))
    def some_die_at_once(self, nodes: set[int]) -> None:
        self.alive -= nodes
        self.follow()

    @rule(nodes=st.sets(st.sampled_from(NODES)))
    def some_are_about_to_stop(self, nodes: set[int]) -> None:
        led = self.state.leader != NO_LEADER
        self.take(before_stop(self.cluster, nodes, lambda _: self.election))
        assert (self.state.leader != NO_LEADER) is led

    @rule(nodes=st.sets(st.sampled_from(NODES), min_size=1), lost=st.integers(0, 3))
    def machines_stop(self, nodes: set[int], lost: int) -> None:
        """With the records that were not on their disks."""
        for node in nodes:
            self.written[node] = max(0, self.written[node] - lost)
        self.cut |= nodes
        self.stopped |= nodes
        self.some_die_at_once(nodes)

    @rule()
    def all_come_back(self) -> None:
        self.alive = {*NODES}
        self.follow()

    @precondition(lambda self: self.state.leader in self.alive)
    @rule(records=st.integers(1, 3))
    def leader_writes(self, records: int) -> None:
        self.written[self.state.leader] += records

    @precondition(lambda self: self.state.leader in self.alive)
    @rule(node=st.sampled_from(NODES))
    def follower_fetches(self, node: int) -> None:
        if node in self.alive:
            self.written[node] = self.written[self.state.leader]
        self.advance()

    def advance(self) -> None:
        minimum = max(self.leaders_minimum, self.state.min_in_sync)
        if len(self.state.isr) >= minimum:
            end = min(self.written[node] for node in self.state.isr)
            if end > self.high_watermark:
                self.high_watermark = end
                self.fewest = minimum
                self.stopped = {*self.cut}

    @precondition(lambda self: self.state.leader in self.alive)
    @rule(nodes=st.sets(st.sampled_from(NODES)))
    def leader_alters_its_in_sync_set(self, nodes: set[int]) -> None:
        leader = self.state.leader
        joined = {n for n in nodes & self.alive if self.written[n] >= self.high_watermark}
        wanted = change(
            *{leader, *joined},
            leader_epoch=self.state.leader_epoch,
            partition_epoch=self.state.partition_epoch,
        )
        state = alter_in_sync(self.cluster, leader, wanted, lambda _: self.election)
        if state is not self.state:
            self.take([state])

    @rule(minimum=st.integers(1, 3))
    def settings_change(self, minimum: int) -> None:
        self.take(without_eligible(self.cluster.topics.values()))
        self.settings_of_the_controller_differ(minimum)
        self.settings_of_the_leader_differ(minimum)

    @rule(minimum=st.integers(1, 3))
    def settings_of_the_controller_differ(self, minimum: int) -> None:
        self.election = ElectionRules(minimum)
        self.fewest = min(self.fewest, minimum)

    @rule(minimum=st.integers(1, 3))
    def settings_of_the_leader_differ(self, minimum: int) -> None:
        self.leaders_minimum = minimum

    @invariant()
    def the_sets_are_what_they_say(self) -> None:
        state = self.state
        assert state.isr and {*state.isr} <= {*NODES}
        assert not {*state.isr} & {*state.eligible}
        assert state.leader == NO_LEADER or state.leader in state.isr
        if state.leader == NO_LEADER:
            assert {*state.isr, *state.eligible}.isdisjoint(self.alive)
        for node in {*state.isr, *state.eligible} - self.cut:
            assert self.written[node] >= self.high_watermark, node


TestRecords = Records.TestCase
TestRecords.settings = settings(max_examples=600, stateful_step_count=30, deadline=None)
