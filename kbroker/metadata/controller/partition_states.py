"""What becomes of a partition's leader and in-sync replicas: pure functions, one per cause.

Place in the flow: the controller holds an image and is notified that brokers came or went, that a
leader wants another in-sync set, that the preferred replica should lead. One of these says what
each partition is to be afterwards; it writes what differs, in one fenced multi, and propagates it.

Three sets of replicas (KIP-966):

    in sync     have every record below the high watermark, and must have it before it moves
    eligible    left the in-sync set while fewer than min.insync.replicas stayed in it. The high
                watermark does not move then (the leader sees to that), so they have every record
                below it as well and may be elected without loss. None once enough are in sync,
                and none any more when that number becomes smaller.
    the rest    may lack records; lead only where unclean.leader.election.enable says so

Leader and controller may differ in min.insync.replicas: their files do, in a rolling restart that
changes it. So the controller writes the number that it decided with into the state, and a leader
goes by the larger of that and its own. A smaller number than the last one comes without eligible
replicas (`decided`): by it the high watermark may move, and they would lack records.

The in-sync set in the store is never empty, as in Apache Kafka up to 3.9: of replicas that all died
the last leader stays in it and the others are eligible. Every change of leader, to none as well, is
a new leader epoch. No dead broker joins an in-sync set (KIP-841), nor one that has started again
since the leader saw it fetch (KIP-903).

A broker whose start is lossy may lack records that it acknowledged. It leaves both sets before it
may lead, and comes back by fetching. Where that leaves no replica in either, the last leader is put
in sync, and leads as soon as it is there: what it has is all that is known to be left. So a
partition that has no leader keeps which one it had last (`last_leader`). A state that an earlier
kbroker or Apache Kafka wrote has none; there the last replica in sync stays.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Final, NamedTuple
from uuid import UUID

from kbroker.errors import ErrorCode, KafkaError
from kbroker.metadata.image import NO_LEADER, ClusterImage, PartitionImage, TopicImage
from kbroker.types import TopicPartition


class ElectionRules(NamedTuple):
    """What a topic's settings say."""

    min_in_sync: int = 1
    unclean: bool = False

    def needed(self, partition: PartitionImage) -> int:
        """More than all replicas cannot be asked for."""
        return min(self.min_in_sync, max(1, partition.replication_factor))

    def enough(self, partition: PartitionImage, in_sync: int) -> bool:
        return in_sync >= self.needed(partition)


RulesOf = Callable[[TopicImage], ElectionRules]
_CLEAN: Final = ElectionRules()
ELECTION_NOT_NEEDED: Final = KafkaError(
    ErrorCode.ELECTION_NOT_NEEDED, "the replica that would be elected leads already"
)


def clean_elections(topic: TopicImage) -> ElectionRules:
    """The default of all settings."""
    return _CLEAN


class InSyncChange(NamedTuple):
    """What a leader asks for (AlterPartition, KIP-497): of a partition it leads in `leader_epoch`,
    as it knew it at `partition_epoch`; `in_sync` are brokers with the epochs that it saw them
    fetch under."""

    topic_id: UUID
    partition: int
    leader_epoch: int
    partition_epoch: int
    in_sync: Mapping[int, int]


def after_brokers_changed(
    image: ClusterImage,
    alive: Collection[int],
    rules_of: RulesOf = clean_elections,
    *,
    closed: Collection[tuple[TopicPartition, int]] = (),
    lossy: Collection[int] = (),
    new_epochs: bool = False,
) -> list[PartitionImage]:
    """The partitions that change now that just these brokers live, in their new state.

    `closed` are replicas whose log a living broker cannot open. `lossy` are brokers that have just
    made a lossy start, or, where they do not live, are not to be elected again. `new_epochs` begins
    a leader epoch for every led partition: for a start after which logs may end elsewhere than
    consumers have seen; as for a lossy leader.
    """
    living, leaving = frozenset(alive), frozenset(lossy)
    forgotten = leaving - living
    changed: list[PartitionImage] = []
    for topic in image.topics.values():
        rules = rules_of(topic)
        for partition in topic.partitions:
            name = _name(partition)
            lost = {node for node in partition.replicas if (name, node) in closed}
            state = _among(_without_lossy(partition, leaving), living - lost, rules)
            if state.last_leader in forgotten.difference(state.isr):
                state = replace(state, last_leader=NO_LEADER)
            begins = new_epochs or partition.leader in leaving
            if begins and state.leader != NO_LEADER and state.leader == partition.leader:
                state = replace(state, leader_epoch=state.leader_epoch + 1)
            if state != partition:
                changed.append(state)
    return changed


def before_stop(
    image: ClusterImage, stopping: Collection[int], rules_of: RulesOf = clean_elections
) -> list[PartitionImage]:
    """The partitions that change before these brokers stop, in their new state: where others are
    in sync, they are in sync no more and do not lead. Elsewhere they go on as long as they can."""
    changed: list[PartitionImage] = []
    for topic in image.topics.values():
        rules = rules_of(topic)
        for partition in topic.partitions:
            stay = tuple(node for node in partition.isr if node not in stopping)
            if len(stay) == len(partition.isr) or image.brokers.keys().isdisjoint(stay):
                continue
            state = with_in_sync(partition, stay, rules)
            if state.leader not in stay:
                state = led_among(state, frozenset(stay) & image.brokers.keys(), rules)
            changed.append(state)
    return changed


def others_may_lead(
    image: ClusterImage,
    leader: int,
    stopping: Collection[int] = (),
    closed: Collection[tuple[TopicPartition, int]] = (),
) -> list[TopicPartition]:
    """What this broker leads and others that live, and do not stop, have a replica of that is not
    `closed`, as in `after_brokers_changed`."""
    others = image.brokers.keys() - {leader, *stopping}
    led = ((_name(each), each) for each in image.partitions() if each.leader == leader)
    return [
        name
        for name, each in led
        if any(node in others and (name, node) not in closed for node in each.replicas)
    ]


def preferred_election(
    partition: PartitionImage, alive: Collection[int]
) -> PartitionImage | KafkaError:
    """This partition led by its first replica; or ELECTION_NOT_NEEDED where it leads,
    PREFERRED_LEADER_NOT_AVAILABLE where it is not in sync or does not live."""
    first = partition.replicas[0]
    if partition.leader == first:
        return ELECTION_NOT_NEEDED
    if first not in alive or first not in partition.isr:
        code = ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE
        return KafkaError(code, f"replica {first}, which is preferred, cannot lead")
    return led_by(partition, first)


def election(
    image: ClusterImage, name: TopicPartition, unclean: bool, alive: Collection[int]
) -> PartitionImage | KafkaError:
    """The partition as `preferred_election` or `unclean_election` has it, or why not."""
    partition = image.partition(*name)
    if partition is None:
        return KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no {name}")
    return (unclean_election if unclean else preferred_election)(partition, alive)


def check_registered(image: ClusterImage, node_id: int, broker_epoch: int) -> None:
    """KafkaError: the broker is not, or has started again."""
    broker = image.brokers.get(node_id)
    if broker is None or broker.epoch != broker_epoch:
        raise KafkaError(ErrorCode.STALE_BROKER_EPOCH, f"Broker {node_id} is not registered so.")


def not_preferred(image: ClusterImage) -> Iterator[TopicPartition]:
    """The partitions that another replica leads though the preferred replica could."""
    for topic in image.topics.values():
        for each in topic.partitions:
            first = each.replicas[0]
            if each.leader != first and first in each.isr and first in image.brokers:
                yield _name(each)


def unclean_election(
    partition: PartitionImage, alive: Collection[int]
) -> PartitionImage | KafkaError:
    """This partition led by the best replica that lives, whatever that costs; or
    ELECTION_NOT_NEEDED where there is a leader, ELIGIBLE_LEADERS_NOT_AVAILABLE where none lives."""
    if partition.leader != NO_LEADER:
        return ELECTION_NOT_NEEDED
    state = led_among(partition, frozenset(alive), ElectionRules(unclean=True))
    if state.leader == NO_LEADER:
        code = ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE
        return KafkaError(code, "no replica that lives has the log open")
    return state


def alter_in_sync(
    image: ClusterImage,
    leader: int,
    change: InSyncChange,
    rules_of: RulesOf = clean_elections,
    stopping: Collection[int] = (),
    closed: Collection[tuple[TopicPartition, int]] = (),
) -> PartitionImage:
    """The partition as its leader wants it; the same object where that is what it is already.

    Raises KafkaError: UNKNOWN_TOPIC_ID, UNKNOWN_TOPIC_OR_PARTITION; FENCED_LEADER_EPOCH and
    INVALID_UPDATE_VERSION for a request made on an older state; NOT_CONTROLLER for one on a newer
    state than ours; INVALID_REQUEST for a set that no leader may ask for; INELIGIBLE_REPLICA for
    one with a broker that is dead or has started again, or joins although it is `stopping` or its
    log is `closed`, as in `after_brokers_changed`.
    """
    topic = image.topic_by_id(change.topic_id)
    if topic is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID)
    if not 0 <= change.partition < len(topic.partitions):
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    partition = topic.partitions[change.partition]
    _check_epochs(partition, leader, change)
    name = _name(partition)
    unable = {*stopping, *(node for node in partition.replicas if (name, node) in closed)}
    _check_members(image, partition, change, unable)
    isr = tuple(node for node in partition.replicas if node in change.in_sync)
    if frozenset(isr) == frozenset(partition.isr):
        return partition
    return with_in_sync(partition, isr, rules_of(topic))


def decided(partition: PartitionImage, rules: ElectionRules) -> PartitionImage:
    """This state as it is written: with the min.insync.replicas that was decided with, and with
    no replica eligible where that is smaller than before."""
    needed = rules.needed(partition)
    if needed == partition.min_in_sync:
        return partition
    eligible = partition.eligible if needed > partition.min_in_sync else ()
    return replace(partition, min_in_sync=needed, eligible=eligible)


def without_eligible(topics: Iterable[TopicImage]) -> list[PartitionImage]:
    """The partitions of these topics that have eligible replicas by a min.insync.replicas that the
    state does not say, without any: by another one the high watermark may move, and they would lack
    records. Where the state says it, the leader goes by it until another is written."""
    return [
        replace(each, eligible=())
        for topic in topics
        for each in topic.partitions
        if each.eligible and not each.min_in_sync
    ]


def _name(partition: PartitionImage) -> TopicPartition:
    return TopicPartition(partition.topic, partition.index)


def _check_epochs(partition: PartitionImage, leader: int, change: InSyncChange) -> None:
    if change.leader_epoch < partition.leader_epoch:
        raise KafkaError(ErrorCode.FENCED_LEADER_EPOCH)
    if (
        change.leader_epoch > partition.leader_epoch
        or change.partition_epoch > partition.partition_epoch
    ):
        raise KafkaError(
            ErrorCode.NOT_CONTROLLER, "The leader knows of elections that this controller does not."
        )
    if leader != partition.leader:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"Broker {leader} does not lead it.")
    if change.partition_epoch < partition.partition_epoch:
        raise KafkaError(ErrorCode.INVALID_UPDATE_VERSION)


def _check_members(
    image: ClusterImage,
    partition: PartitionImage,
    change: InSyncChange,
    unable: Collection[int],
) -> None:
    strangers = [node for node in change.in_sync if node not in partition.replicas]
    if strangers:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"Brokers {strangers} hold no replica of it.")
    if partition.leader not in change.in_sync:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "A leader is in sync with itself.")
    stale = [
        node
        for node, epoch in change.in_sync.items()
        if node not in image.brokers
        or image.brokers[node].epoch != epoch
        or (node in unable and node not in partition.isr)
    ]
    if stale:
        raise KafkaError(
            ErrorCode.INELIGIBLE_REPLICA,
            f"Brokers {stale} are dead, are stopping, have started again or cannot use the log.",
        )


def _without_lossy(partition: PartitionImage, lossy: frozenset[int]) -> PartitionImage:
    """This partition with them in neither set; if that leaves none, with the last leader alone,
    which may have left before.

    Of eligible replicas that are left, one takes the place in sync: it has what is committed.
    """
    if lossy.isdisjoint((*partition.isr, *partition.eligible)):
        return partition
    isr = tuple(node for node in partition.isr if node not in lossy)
    eligible = tuple(node for node in partition.eligible if node not in lossy)
    if not isr and not eligible:
        last = partition.last_leader
        last = last if last in partition.replicas else _stays(partition)
        return replace(partition, isr=(last,), eligible=())
    if not isr:
        isr, eligible = eligible[:1], eligible[1:]
    return replace(partition, isr=isr, eligible=eligible)


def _stays(partition: PartitionImage) -> int:
    """Which replica stays in sync where all leave: the last leader, if it is one of them."""
    leaders = partition.leader, partition.last_leader
    return next((node for node in leaders if node in partition.isr), partition.isr[0])


def _among(
    partition: PartitionImage, living: frozenset[int], rules: ElectionRules
) -> PartitionImage:
    """This partition with only the living in sync and leading."""
    in_sync = tuple(node for node in partition.isr if node in living)
    state = partition
    if in_sync != partition.isr:
        state = with_in_sync(partition, in_sync, rules)
    if state.leader not in in_sync:
        state = led_among(state, living, rules)
    if state.leader != NO_LEADER and state.eligible and rules.enough(state, len(state.isr)):
        state = replace(state, eligible=())  # by settings that are not those of when they left
    if state.leader != NO_LEADER and rules.needed(state) < state.min_in_sync > len(state.isr):
        state = decided(state, rules)  # acks=all is refused there by a number that holds no more
    return state


def with_in_sync(
    partition: PartitionImage, isr: tuple[int, ...], rules: ElectionRules
) -> PartitionImage:
    """Another in-sync set, and who is eligible beside it; of none the last leader stays."""
    enough = rules.enough(partition, len(isr))
    if not isr:
        isr = (_stays(partition),)
    may = {*partition.isr, *partition.eligible} - {*isr}
    eligible = () if enough else tuple(node for node in partition.replicas if node in may)
    return replace(partition, isr=isr, eligible=eligible)


def led_among(
    partition: PartitionImage, candidates: frozenset[int], rules: ElectionRules
) -> PartitionImage:
    """This partition with another leader: one in sync, else one eligible, else, if unclean
    elections are allowed, one that may lack records; else none."""
    for group in (partition.isr, partition.eligible):
        for node in partition.replicas:
            if node in candidates and node in group:
                return _elected(partition, node, group, rules)
    for node in partition.replicas if rules.unclean else ():
        if node in candidates:
            return replace(led_by(partition, node), isr=(node,), eligible=())
    return partition if partition.leader == NO_LEADER else led_by(partition, NO_LEADER)


def led_by(partition: PartitionImage, node: int) -> PartitionImage:
    """This partition with this leader, or none, in the next leader epoch."""
    last = NO_LEADER
    if node == NO_LEADER and partition.leader in partition.replicas:
        last = partition.leader
    epoch = partition.leader_epoch + 1
    return replace(partition, leader=node, leader_epoch=epoch, last_leader=last)


def _elected(
    partition: PartitionImage, node: int, group: tuple[int, ...], rules: ElectionRules
) -> PartitionImage:
    state = led_by(partition, node)
    if group is partition.isr:
        return state
    return with_in_sync(state, (node,), rules)
