"""A partition on its way to other replicas (KIP-455): pure functions, beside `partition_states.py`.

Place in the flow: somebody asks (AlterPartitionReassignments), and the controller writes the first
of these states; every later state of that partition, whatever it came from, goes through `finished`
before it is written.

Replicas that are `adding` fetch like any others, and join the in-sync set when they have caught up.
Those that are `removing` serve, lead and are waited for until all that were added are in sync, and
as many of those that stay as min.insync.replicas asks for; then they leave every set at once, in a
new leader epoch. So a reassignment that stops half way has taken nothing away, and nobody's word
leaves an acknowledged record with fewer replicas than it was acknowledged by: neither the end of a
reassignment nor its cancellation. (Apache Kafka 4 looks at those that were added alone.)
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

from kbroker.errors import ErrorCode, KafkaError
from kbroker.metadata.controller.partition_states import ElectionRules, led_among, with_in_sync
from kbroker.metadata.image import NO_LEADER, ClusterImage, PartitionImage


def check_target(
    image: ClusterImage, partition: PartitionImage, target: Sequence[int], factor_may_change: bool
) -> None:
    """KafkaError INVALID_REPLICA_ASSIGNMENT where no partition can be, INVALID_REPLICATION_FACTOR
    (KIP-860) where this one would have more or fewer replicas than it has and may not."""
    reason = None
    if not target:
        reason = "the list of replicas is empty: name at least one broker"
    elif len({*target}) != len(target):
        reason = "a broker is named more than once"
    elif strangers := [node for node in target if node not in image.brokers]:
        reason = f"there is no broker {strangers[0]}"
    if reason is not None:
        raise KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, reason)
    if not factor_may_change and len(target) != partition.replication_factor:
        raise KafkaError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"{partition.topic}-{partition.index} has {partition.replication_factor} replicas and "
            f"would have {len(target)}",
        )


def reassigned(
    partition: PartitionImage,
    target: Sequence[int],
    alive: Collection[int],
    rules: ElectionRules,
) -> PartitionImage:
    """This partition on its way to these replicas, or there; wherever else it was going, it is not
    any more. KafkaError as `cancelled`."""
    state = cancelled(partition, alive, rules) if partition.is_reassigned else partition
    had = state.replicas
    state = replace(
        state,
        replicas=(*target, *(node for node in had if node not in target)),
        adding=tuple(node for node in target if node not in had),
        removing=tuple(node for node in had if node not in target),
    )
    return finished(state, alive, rules)


def cancelled(
    partition: PartitionImage, alive: Collection[int], rules: ElectionRules
) -> PartitionImage:
    """This partition with the replicas that it had before.

    KafkaError: NO_REASSIGNMENT_IN_PROGRESS; INVALID_REPLICA_ASSIGNMENT where too few are in sync
    beside those that were being added.
    """
    if not partition.is_reassigned:
        raise KafkaError(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS)
    state = _without(partition, partition.adding, rules)
    stay = {*partition.isr} - {*partition.adding}
    if len(stay) < len(partition.isr) and not (stay and rules.enough(state, len(stay))):
        raise KafkaError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"of the replicas in sync, {list(partition.isr)}, too few would be left without those "
            "that are being added; try again when others have caught up",
        )
    return _led_by_a_replica(state, alive, rules)


def finished(
    partition: PartitionImage, alive: Collection[int], rules: ElectionRules
) -> PartitionImage:
    """This partition at the end of its way, if all that were added are in sync and those that stay
    are enough and can lead; else as it is."""
    stay = {*partition.isr} - {*partition.removing}
    if not partition.is_reassigned or partition.leader == NO_LEADER:
        return partition
    if not stay or not stay.issuperset(partition.adding):
        return partition
    if partition.leader in partition.removing and stay.isdisjoint(alive):
        return partition
    state = _without(partition, partition.removing, rules)
    if not rules.enough(state, len(stay)):
        return partition
    state = _led_by_a_replica(state, alive, rules)
    if partition.removing and state.leader_epoch == partition.leader_epoch:
        # Nobody is to go on with those that are no replicas any more.
        return replace(state, leader_epoch=state.leader_epoch + 1)
    return state


def _without(
    partition: PartitionImage, leaving: Collection[int], rules: ElectionRules
) -> PartitionImage:
    """This partition with the other replicas, of which some are in sync, and no more to come: all
    count from here on, for min.insync.replicas as well."""
    state = replace(
        partition,
        replicas=tuple(node for node in partition.replicas if node not in leaving),
        eligible=tuple(node for node in partition.eligible if node not in leaving),
        adding=(),
        removing=(),
    )
    isr = tuple(node for node in partition.isr if node not in leaving)
    return with_in_sync(state, isr, rules)


def _led_by_a_replica(
    partition: PartitionImage, alive: Collection[int], rules: ElectionRules
) -> PartitionImage:
    if partition.leader in (*partition.replicas, NO_LEADER):
        return partition
    return led_among(partition, frozenset(alive), rules._replace(unclean=False))
