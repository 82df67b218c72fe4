"""A partition on its way to other replicas (KIP-455): pure functions, beside `partition_states.py`.

Place in the flow: a client asks (AlterPartitionReassignments), and the controller writes the first
of these states; every later state of that partition, whatever it came from, goes through `finished`
before it is written.

Replicas that are `adding` fetch like any others, and join the in-sync set when they have caught up.
Those that are `removing` serve, lead and are waited for until all that were added are in sync, and
all that stay where more go than come; then they leave every set at once. So a reassignment that
stops half way has taken nothing away. That much is Apache Kafka's. Nor does the end of one, or its
cancellation, leave fewer in sync than min.insync.replicas asks for.

Wherever a replica leaves, another leader epoch begins: a replica that is added again, with a new
log, is not taken for the earlier one, by a leader that is notified of both changes at once.
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
    (KIP-860) where this one would have more or fewer replicas than it has, or is to have, and may
    not. A broker that does not live is one that is not there, but for those that have a replica."""
    reason = None
    if not target:
        reason = "the list of replicas is empty: name at least one broker"
    elif len({*target}) != len(target):
        reason = "a broker is named more than once"
    elif strangers := {*target}.difference(image.brokers, partition.replicas):
        reason = f"there is no broker {min(strangers)}"
    if reason is not None:
        raise KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, reason)
    has = len(partition.replicas) - len(partition.removing)
    if not factor_may_change and len(target) != has:
        raise KafkaError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"it would have {len(target)} replicas instead of {has}",
        )


def reassigned(
    partition: PartitionImage,
    target: Sequence[int],
    alive: Collection[int],
    rules: ElectionRules,
) -> PartitionImage:
    """This partition on its way to these replicas, or there; the same where it is so already.

    Of those that were being added elsewhere the ones that are not needed leave at once. Those that
    must be in sync go when others have come.
    """
    had = {*partition.replicas} - {*partition.adding}
    dropped = {*partition.adding}.difference(target)
    if _too_few_without(partition, dropped, rules):
        dropped -= {*partition.isr}
    removing = tuple(sorted({*partition.replicas} - dropped - {*target}))
    state = replace(
        _without(partition, dropped, rules) if dropped else partition,
        replicas=(*target, *removing),
        adding=tuple(sorted({*target} - had)),
        removing=removing,
    )
    return finished(_led_anew(partition, state, alive, rules), alive, rules)


def cancelled(
    partition: PartitionImage, alive: Collection[int], rules: ElectionRules
) -> PartitionImage:
    """This partition with the replicas that it had before.

    KafkaError: NO_REASSIGNMENT_IN_PROGRESS; INVALID_REPLICA_ASSIGNMENT where too few are in sync
    beside those that were being added.
    """
    if not partition.is_reassigned:
        raise KafkaError(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS)
    if _too_few_without(partition, partition.adding, rules):
        raise KafkaError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"of the replicas in sync, {list(partition.isr)}, too few would be left without those "
            "that are being added; try again when others have caught up",
        )
    state = _without(partition, partition.adding, rules)
    return _led_anew(partition, state, alive, rules)


def finished(
    partition: PartitionImage, alive: Collection[int], rules: ElectionRules
) -> PartitionImage:
    """This partition at the end of its way, if all that were added are in sync and those that stay
    are enough and can lead; else as it is."""
    stay = {*partition.isr} - {*partition.removing}
    if not partition.is_reassigned or partition.leader == NO_LEADER:
        return partition
    fewer = len(partition.adding) < len(partition.removing)
    awaited = {*partition.replicas}.difference(partition.removing) if fewer else partition.adding
    if not stay or not stay.issuperset(awaited):
        return partition
    if partition.leader in partition.removing and stay.isdisjoint(alive):
        return partition
    state = _without(partition, partition.removing, rules)
    if not rules.enough(state, len(stay)):
        return partition
    return _led_anew(partition, state, alive, rules)


def _too_few_without(
    partition: PartitionImage, leaving: Collection[int], rules: ElectionRules
) -> bool:
    """Whether a replica would leave the in-sync set, and too few stay in it."""
    stay = {*partition.isr}.difference(leaving)
    if len(stay) == len(partition.isr):
        return False
    return not stay or not rules.enough(partition, len(stay))


def _without(
    partition: PartitionImage, leaving: Collection[int], rules: ElectionRules
) -> PartitionImage:
    """This partition with the other replicas, of which some are in sync, and no more to come: all
    count from here on, for min.insync.replicas as well."""
    state = replace(
        partition,
        replicas=tuple(node for node in partition.replicas if node not in leaving),
        eligible=tuple(node for node in partition.eligible if node not in leaving),
        last_leader=NO_LEADER if partition.last_leader in leaving else partition.last_leader,
        adding=(),
        removing=(),
    )
    isr = tuple(node for node in partition.isr if node not in leaving)
    return with_in_sync(state, isr, rules)


def _led_anew(
    before: PartitionImage,
    state: PartitionImage,
    alive: Collection[int],
    rules: ElectionRules,
) -> PartitionImage:
    """This state, led by one of its replicas; in another epoch where some have left, so that no
    replica goes on with them."""
    if state.leader not in (*state.replicas, NO_LEADER):
        return led_among(state, frozenset(alive), rules._replace(unclean=False))
    if state.leader != NO_LEADER and not {*before.replicas} <= {*state.replicas}:
        return replace(state, leader_epoch=state.leader_epoch + 1)
    return state
