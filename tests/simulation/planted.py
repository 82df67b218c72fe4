"""Faults that the simulation must find: each replaces a real function by a wrong one, or all
functions that check the same thing one after the other.

Each has a number of seeds that are enough: a few times as many as it took, since every change of
the code changes the histories. `test_planted.py` tries all faults. If a fault is not found any
more, the histories, or the checks, have become too weak.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, Final
from unittest import mock

from kbroker.cluster.asked_controller import AskedController
from kbroker.coordinator.group import coordinator, rebalance
from kbroker.coordinator.group.coordinator import GroupCoordinator
from kbroker.coordinator.group.rebalance import Rebalance
from kbroker.coordinator.group.sessions import Sessions
from kbroker.coordinator.group.store import OffsetsStore
from kbroker.coordinator.runtime.loader import Loader
from kbroker.coordinator.runtime.store import CoordinatorStore
from kbroker.errors import ErrorCode, KafkaError
from kbroker.handlers import delete_records, offset_commit, offset_fetch
from kbroker.log.engine.partition_log import PartitionLog
from kbroker.log.upkeep.checkpointing import Checkpointing
from kbroker.metadata.controller import (
    partition_changes,
    partition_states,
    reassignment,
    registration,
)
from kbroker.metadata.controller.election import Election
from kbroker.metadata.controller.image_follower import ImageFollower
from kbroker.metadata.controller.image_updates import ImageAnswer, ImageUpdate
from kbroker.metadata.controller.nodes import MetadataNodes
from kbroker.metadata.controller.own_logs import OwnLogs
from kbroker.metadata.controller.partition_changes import PartitionChanges
from kbroker.metadata.controller.partition_states import ElectionRules, InSyncChange
from kbroker.metadata.controller.registration import Registration
from kbroker.metadata.controller.topic_changes import TopicChanges
from kbroker.metadata.image import BrokerImage, ClusterImage, PartitionImage
from kbroker.metadata.store.base import MetadataStore, Node, Operation
from kbroker.peer.replica_fetch import Asked
from kbroker.replica import in_sync, leadership, manager
from kbroker.replica._replica import Replica
from kbroker.replica.fetcher import ReplicaFetcher
from kbroker.replica.fetcher_partition import UNKNOWN, FollowedPartition, Outcome
from kbroker.replica.fetcher_session import FetchSession
from kbroker.replica.manager import ReplicaManager
from tests.simulation import requests
from tests.simulation.act import Act
from tests.simulation.plant import Plant
from tests.simulation.planted_full import PLANTED_WHERE_FULL

_append = FollowedPartition._append_locked
_begin = FollowedPartition.__init__
_open = ReplicaManager._open_replica
_ready = OwnLogs.ready
_restore = Rebalance.restore
_asked = FollowedPartition.asked
_led = partition_states.led_among
_truncate = PartitionLog.truncate_to
_follow = ImageFollower.follow
_check_members = partition_states._check_members
_check_epochs = partition_states._check_epochs
_Follower = in_sync.Follower
_finished = reassignment.finished
_load = Loader._read
_found_offsets = offset_fetch._found
_commit = offset_commit._commit
_delete_group = OffsetsStore.delete_group
_wait_for_followers = delete_records.DelayedDeleteRecords.wait
_begin_again = FetchSession.begin_again
_park = requests.Produces._park


def _cut_to_the_high_watermark(partition: FollowedPartition, *how: Any) -> None:
    """As before KIP-101: records above the high watermark may be committed all the same."""
    _begin(partition, *how)
    partition.replica.truncate_to(partition.replica.high_watermark)


def _without_epochs(partition: FollowedPartition) -> Asked:
    """The follower does not send the leader the epoch of its last record."""
    return _asked(partition)._replace(last_fetched_epoch=UNKNOWN)


def _over_the_committed_set(
    node_id: int, replica: Replica, partition: PartitionImage, joining: Any = (), *how: Any
) -> bool:
    return leadership.set_leadership(node_id, replica, partition, (), *how)


def _over_all(
    node_id: int, replica: Replica, partition: PartitionImage, joining: Any = (), *how: Any
) -> bool:
    return leadership.set_leadership(node_id, replica, partition, partition.replicas, *how)


def _any_controller(follower: ImageFollower, update: ImageUpdate) -> ImageAnswer:
    """A broker follows any broker that claims to be the controller."""
    return _follow(
        follower, update._replace(controller_epoch=max(update.controller_epoch, follower.epoch))
    )


def _unfenced(nodes: MetadataNodes, operations: list[Operation]) -> None:
    nodes._store.multi(operations)


def _with_its_producers(log: PartitionLog, offset: int, *how: Any) -> None:
    """A truncation removes the records and keeps their producers' state."""
    _, entries = log.producer_entries()
    _truncate(log, offset, *how)
    for entry in entries:
        log.restore_producer(entry)


def _at_once(replica: Replica, last_offset: int, *, appended: bool) -> bool:
    """A duplicate is answered before all followers have the batch that it repeats."""
    return appended and last_offset >= replica.high_watermark


def _with_the_dead(
    partition: PartitionImage, living: frozenset[int], rules: ElectionRules
) -> PartitionImage:
    """Another leader, and the same in-sync set."""
    if partition.leader in living:
        return partition
    alive = replace(partition, isr=tuple(each for each in partition.isr if each in living))
    state = _led(alive if alive.isr else partition, living, rules)
    return replace(state, isr=partition.isr)


def _lossy_or_not(partition: PartitionImage, lossy: frozenset[int]) -> PartitionImage:
    """A broker that may have lost records to a power cut stays in sync, and may lead."""
    return partition


def _compared_before(
    sets: in_sync.InSyncSets, led: Any, wanted: dict[int, int], brokers: Any
) -> dict[int, int]:
    """The high watermark waits for the joining, and may have gone past one of them before."""
    led.joining.update(wanted.keys() - {*led.partition.isr})
    led.held_for.clear()
    sets._apply(led.replica, led.partition, led.joining)
    return wanted


class _AnyEpoch(int):
    def __eq__(self, other: object) -> bool:
        return True

    __hash__ = int.__hash__


def _whenever_it_fetched(*found: Any) -> in_sync.Follower:
    """The position of a follower before its restart is taken for its position now."""
    follower = _Follower(*found)
    return follower._replace(broker_epoch=_AnyEpoch(follower.broker_epoch))


def _any_start_fetches(
    node_id: int, replica: Replica, partition: PartitionImage, joining: Any = (), *how: Any
) -> bool:
    """The replica does not know which starts of the others are registered."""
    return leadership.set_leadership(node_id, replica, partition, joining)


def _of_any_start(
    image: ClusterImage, partition: PartitionImage, change: InSyncChange, stopping: Any
) -> None:
    """The controller lets a broker join that has restarted since the leader saw it."""
    brokers = image.brokers
    now = {
        node: brokers[node].epoch if node in brokers else epoch
        for node, epoch in change.in_sync.items()
    }
    _check_members(image, partition, change._replace(in_sync=now), stopping)


def _in_sync_when_added(
    partition: PartitionImage, alive: Collection[int], rules: ElectionRules
) -> PartitionImage:
    """A reassignment ends before those that were added have caught up."""
    return _finished(replace(partition, isr=(*partition.isr, *partition.adding)), alive, rules)


def _not_awaited(
    produces: requests.Produces, replica: Replica, last_offset: int, led_since: int,
    timeout_ms: int, done: Callable[[ErrorCode], object],
) -> None:  # fmt: skip
    """A commit is answered before its followers have it."""
    done(ErrorCode.NONE)


class _Below:
    """A replica that seems to end at its high watermark."""

    def __init__(self, replica: Replica) -> None:
        self.read = replica.read
        self.log_start_offset = replica.log_start_offset
        self.log_end_offset = replica.high_watermark


def _load_what_is_committed(loader: Loader, job: Any) -> Any:
    """A load ends at the high watermark, though records above it are with the followers, too."""
    job.replica = _Below(job.replica)
    return _load(loader, job)


def _nothing_lost(store: CoordinatorStore[Any], partitions: Any) -> None:
    """A shard keeps its state when another broker leads its partition."""


def _no_members(groups: GroupCoordinator, images: Any) -> None:
    """A load brings the offsets, and no group."""


def _stable_or_not(services: Any, call: Any, *asked: Any) -> list[Any]:
    """A client that asks for stable offsets gets the ones that were committed before."""
    call.message.require_stable = False
    return _found_offsets(services, call, *asked)


def _dead_or_not(path: str, node: Node, locks: Collection[str]) -> bool:
    """A process with the data directory, or a copy of it, takes the registration over."""
    return True


def _if_there_is_one(registration: Registration, store: MetadataStore) -> bool:
    """A broker does not check which process holds the registration of its id."""
    return store.exists(registration._path)


def _not_given_up(asked: AskedController) -> None:
    """A controller that was replaced is waited for until the time-out."""


def _however_late(partition: PartitionImage, leader: int, change: InSyncChange) -> None:
    """A request that a newer decision has overtaken is done all the same."""
    _check_epochs(partition, leader, change._replace(partition_epoch=partition.partition_epoch))


def _no_election(changes: PartitionChanges, _: MetadataNodes, brokers: Any) -> None:
    """Brokers come and go, and no leader is elected for it."""
    changes._follow(changes._propagation.image.with_brokers(brokers))


def _by_its_own_minimum(own: int, partition: PartitionImage) -> int:
    """A leader uses the min.insync.replicas of its own settings, though the controller decided
    with another value."""
    return own


def _counted_on(nodes: Any, node_id: int, count: int) -> int:
    """Producer ids are given out and not stored: the next controller begins again at the first."""
    first: int = getattr(nodes, "next_id", 0)
    nodes.next_id = first + count
    return first


def _stays_on_its_way(
    partition: PartitionImage, alive: Collection[int], rules: ElectionRules
) -> PartitionImage:
    """A reassignment does not end."""
    return partition


def _never_lags(*how: Any) -> bool:
    """A follower that does not fetch stays in sync."""
    return False


def _first_image_kept(follower: ImageFollower, update: ImageUpdate) -> ImageAnswer:
    """A broker that has an image acknowledges the next ones, and keeps its own."""
    known = follower._propagation.image
    if known.topics:
        return ImageAnswer(ErrorCode.NONE)
    return _follow(follower, update)


def _in_memory(fetcher: ReplicaFetcher, moved: Any) -> None:
    """A follower reports a log start that it does not write down for its next start."""


def _start_in_memory(partition: FollowedPartition) -> Asked:
    return _asked(partition)._replace(log_start_offset=partition.replica.log_start_offset)


def _answered_at_once(deletion: Any, services: Any, starts: Any) -> None:
    """A deletion is answered before the followers have the new log start."""
    for name, start in starts.items():
        deletion._results[name] = delete_records._Result(ErrorCode.NONE, start)
    _wait_for_followers(deletion, services, {})


def _forgotten(log: PartitionLog, *how: Any) -> None:
    """A log that was truncated or opened has lost the state of its producers."""


def _gone_at_once(store: OffsetsStore, group_id: str, in_log: Any, done: Any) -> None:
    """A deletion is answered before the followers have its tombstones."""
    _delete_group(store, group_id, in_log, lambda code: None)
    done(ErrorCode.NONE)


def _absent_at_once(store: Any, group_id: str, done: Any) -> None:
    """A deletion is answered with "not found" while the tombstones are being replicated."""
    done(ErrorCode.GROUP_ID_NOT_FOUND)


def _of_any_generation(services: Any, call: Any, *topics: Any) -> None:
    """The generation of a commit is not checked."""
    group = services.groups.find(call.message.group_id)
    if group is not None and call.message.generation_id_or_member_epoch >= 0:
        call.message.generation_id_or_member_epoch = group.generation
    _commit(services, call, *topics)


def _the_same_again(generation: int) -> int:
    """A rebalance ends in the generation in which it began."""
    return max(generation, 1)


def _nothing_came(partition: FollowedPartition, asked: Asked, fetched: Any, now_ms: int) -> Outcome:
    """A follower that gets no records does not look at the rest of the answer."""
    if not fetched.records:
        return Outcome.NOTHING_NEW
    return _append(partition, asked, fetched, now_ms)


def _from_the_start(replicas: ReplicaManager, *how: Any) -> Replica | None:
    """The high watermark that was written down is not taken up by the next start."""
    replica = _open(replicas, *how)
    if replica is not None:
        replica.set_high_watermark(replica.log_start_offset)
    return replica


def _for_ever(changes: PartitionChanges, image: ClusterImage) -> frozenset[int]:
    """A broker that has stopped once still counts as stopping after its next start."""
    return frozenset(changes._shutting_down) & image.brokers.keys()


def _remembered(follower: ImageFollower, controller_epoch: int) -> None:
    """A new controller's versions are compared with those of the one before."""
    follower._epoch = max(follower._epoch, controller_epoch)


def _not_won(election: Election) -> bool:
    """An election whose answer was lost counts as lost."""
    return False


def _removed_first(changes: TopicChanges, nodes: MetadataNodes, event: Any) -> list[Any]:
    """Logs are removed before the store has the deletion of their topic."""
    image = changes._propagation.image
    topics = [image.topics[each] for each in event.topics if each in image.topics]
    changes._propagation.delete(topics)
    nodes.delete_topics(topics)
    return []


def _unsaid(
    logs: OwnLogs, names: Any, nodes: MetadataNodes | None, store: MetadataStore, **how: Any
) -> None:
    """A broker does not notify the controller that a log is recovered."""
    if nodes is None:
        logs._propagation.come_online(names)
    else:
        _ready(logs, names, nodes, store, **how)


def _without_timers(group: Rebalance, image: Any) -> None:
    """Members that were loaded are members for ever."""
    with mock.patch.object(Sessions, "renew", lambda *how: None):
        _restore(group, image)


def _goes_on_after_a_loss(session: FetchSession, error: ErrorCode | None = None) -> None:
    """A fetch session goes on after a request that did not arrive."""
    if error is not ErrorCode.NETWORK_EXCEPTION:
        _begin_again(session, error)


def _with_what_was_noted(
    node_id: int, replica: Replica, partition: PartitionImage, *how: Any
) -> bool:
    """A leader keeps the positions of its followers from the last epoch in which it led."""
    noted = vars(replica.log).setdefault("noted", {})
    noted.update((each[0], each) for each in replica.followers() if each[2] >= 0)
    before = replica.leader_epoch
    is_done = leadership.set_leadership(node_id, replica, partition, *how)
    if is_done and partition.leader == node_id and partition.leader_epoch > before:
        for broker_id, _, offset, _, fetched_ns, broker_epoch in noted.values():
            with suppress(KafkaError):  # it is no replica any more, or our log has been cut since
                replica.note_fetch(
                    broker_id,
                    offset,
                    fetched_ns,
                    broker_epoch=broker_epoch,
                    leader_epoch=partition.leader_epoch,
                )
    return is_done


def _as_it_leads_now(
    produces: requests.Produces, replica: Replica, last_offset: int, led_since: int,
    timeout_ms: int, done: Callable[[ErrorCode], object],
) -> None:  # fmt: skip
    """A write of an earlier leadership waits as one of the current leadership."""
    now = produces._broker.led_since(replica.name)
    _park(produces, replica, last_offset, now, timeout_ms, done)


def _all_stayed(image: ClusterImage, known: Mapping[int, BrokerImage]) -> list[int]:
    """A broker that restarted since the controller last looked counts as one that stayed."""
    return [*(known.keys() & image.brokers.keys())]


def _as_it_was(checkpointing: Checkpointing, log: PartitionLog) -> None:
    """A cut leaves the recovery point in its file, above the end of the log."""


def _not_cancelled(loader: Loader, partitions: Sequence[int]) -> None:
    """A load goes on when its partition is lost."""


# A fault in a method of `FollowedPartition` has to be passed by every part of an answer.
_ONE_BY_ONE: Final = (ReplicaFetcher, "_in_one_call", lambda _: False)

PLANTED: dict[str, Plant] = {
    "cut-to-the-high-watermark": Plant(
        FollowedPartition, "__init__", _cut_to_the_high_watermark, 100, first=9
    ),
    "without-epochs": Plant(FollowedPartition, "asked", _without_epochs, 40, also=(_ONE_BY_ONE,)),
    "over-the-committed-set": Plant(
        in_sync, "set_leadership", _over_the_committed_set, 300, first=79
    ),
    "over-all-replicas": Plant(in_sync, "set_leadership", _over_all, 60),
    "compared-before-waited-for": Plant(
        in_sync.InSyncSets, "_wait_for", _compared_before, 100, first=8
    ),
    "old-controller-obeyed": Plant(ImageFollower, "follow", _any_controller, 600, first=139),
    "unfenced": Plant(MetadataNodes, "_multi", _unfenced, 80, first=17),
    "producers-kept": Plant(PartitionLog, "truncate_to", _with_its_producers, 100),
    "duplicate-at-once": Plant(requests, "must_wait", _at_once, 40, first=3),
    "a-lossy-leader": Plant(partition_states, "_without_lossy", _lossy_or_not, 60, first=4),
    "stale-broker-epoch": Plant(
        in_sync,
        "Follower",
        _whenever_it_fetched,
        120,
        also=(
            (in_sync, "set_leadership", _any_start_fetches),
            (partition_states, "_check_members", _of_any_start),
        ),
    ),
    "stale-at-the-controller": Plant(
        partition_states, "_check_members", _of_any_start, 150, first=121
    ),
    "commit-at-once": Plant(requests.Produces, "await_followers", _not_awaited, 20),
    "load-of-the-committed": Plant(Loader, "_read", _load_what_is_committed, 200),
    "a-shard-kept": Plant(CoordinatorStore, "_lose", _nothing_lost, 40, first=29),
    "members-not-loaded": Plant(GroupCoordinator, "load", _no_members, 40),
    "unstable-answered": Plant(offset_fetch, "_found", _stable_or_not, 150, first=98),
    "in-sync-when-added": Plant(partition_changes, "finished", _in_sync_when_added, 60),
    "minimum-of-its-own": Plant(manager, "needed_in_sync", _by_its_own_minimum, 40, first=47),
    "the-dead-kept": Plant(partition_states, "_among", _with_the_dead, 40),
    "a-copy-takes-over": Plant(registration, "_is_of_the_dead", _dead_or_not, 60),
    "replaced-unseen": Plant(
        Registration,
        "is_there",
        _if_there_is_one,
        1,
        first=1,
        schedule=(Act(300, "usurp", (2, 3_000)),),
    ),
    "old-controller-awaited": Plant(AskedController, "followed", _not_given_up, 60, first=24),
    "overtaken-accepted": Plant(
        partition_states,
        "_check_epochs",
        _however_late,
        1,
        first=21,
        schedule=(
            Act(300, "kill", (2, 30)),
            Act(380, "late", (3, 1, 2_600)),
            Act(720, "part", (2, 3, 2_600)),
            *(Act(at_ms, "produce", (0, 1)) for at_ms in range(900, 4_500, 300)),
        ),
    ),
    "ids-not-written": Plant(MetadataNodes, "take_producer_ids", _counted_on, 20),
    "a-move-without-end": Plant(
        partition_changes,
        "finished",
        _stays_on_its_way,
        20,
        also=((reassignment, "finished", _stays_on_its_way),),
    ),
    "lag-forgiven": Plant(
        in_sync.InSyncSets,
        "_lags",
        _never_lags,
        1,
        schedule=(
            Act(100, "hang_fetchers", (3, 5_500)),
            *(Act(at_ms, "produce", (0, 0)) for at_ms in range(200, 4_500, 300)),
        ),
    ),
    "images-not-followed": Plant(ImageFollower, "follow", _first_image_kept, 20),
    "deletion-at-once": Plant(delete_records.DelayedDeleteRecords, "wait", _answered_at_once, 40),
    "producers-forgotten": Plant(PartitionLog, "restore_producers", _forgotten, 40),
    "starts-in-memory": Plant(
        ReplicaFetcher,
        "_keep_starts",
        _in_memory,
        1,
        also=((FollowedPartition, "asked", _start_in_memory), _ONE_BY_ONE),
        first=329,
        schedule=(
            Act(126, "produce", (3, 0)),
            Act(603, "reassign", (0, 3, 1, 2)),
            Act(790, "delete_records", (0, 100)),
            Act(801, "kill", (1, 403)),
            Act(849, "alone", (1, 733)),
            Act(864, "commit", (0,)),
            Act(901, "commit", (1,)),
            Act(1_015, "kill", (3, 407)),
        ),
    ),
    "group-gone-at-once": Plant(OffsetsStore, "delete_group", _gone_at_once, 40, first=23),
    "group-absent-at-once": Plant(coordinator, "answer_not_found", _absent_at_once, 40, first=235),
    "any-generation-commits": Plant(offset_commit, "_commit", _of_any_generation, 40, first=15),
    "one-generation": Plant(rebalance, "following", _the_same_again, 40, first=6),
    "nothing-came": Plant(
        FollowedPartition, "_append_locked", _nothing_came, 20, also=(_ONE_BY_ONE,)
    ),
    "checkpoint-not-read": Plant(ReplicaManager, "_open_replica", _from_the_start, 20),
    "point-above-a-cut": Plant(Checkpointing, "points_fell", _as_it_was, 20),
    "stopping-for-ever": Plant(PartitionChanges, "_stopping", _for_ever, 60, first=6),
    "versions-of-another": Plant(ImageFollower, "accept_epoch", _remembered, 40),
    "won-and-not-known": Plant(Election, "_has_won", _not_won, 80, first=29),
    "removed-before-written": Plant(TopicChanges, "delete_topics", _removed_first, 40, first=11),
    "recovered-and-not-said": Plant(OwnLogs, "ready", _unsaid, 20, first=3),
    "loaded-without-timers": Plant(Rebalance, "restore", _without_timers, 60, first=3),
    "the-dead-lead": Plant(PartitionChanges, "brokers_changed", _no_election, 20, first=4),
    "session-goes-on": Plant(FetchSession, "begin_again", _goes_on_after_a_loss, 40, first=8),
    "positions-kept": Plant(in_sync, "set_leadership", _with_what_was_noted, 60, first=6),
    "waits-as-of-now": Plant(requests.Produces, "_park", _as_it_leads_now, 60, first=69),
    "a-quick-restart": Plant(partition_changes, "_stayed", _all_stayed, 40, first=4),
    "a-load-goes-on": Plant(Loader, "cancel", _not_cancelled, 60, first=958),
    **PLANTED_WHERE_FULL,
}
