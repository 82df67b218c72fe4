"""What a member has next: the step that a heartbeat makes towards the member's target.

Pure functions of a member's partitions, its target, the partitions that it says it owns, and those
that are free. No step gives a partition to a member before its owner has given it up: it is
free when no member has it assigned or is to give it up (`state.py`, owners).

    assigned  = what it has and is to have
    revoking  = what it has and is not to have: first of all it gives these up, in its epoch
    then      = all free partitions of its target are added, in the target's epoch

A member that does not list its partitions may own all that it was given. Source: KIP-848.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Mapping
from typing import TYPE_CHECKING, NamedTuple

from kbroker.coordinator.consumer_group.images import (
    CurrentImage,
    PartitionEpochs,
    Partitions,
)
from kbroker.coordinator.consumer_group.states import CELLS, Do, MemberState, Situation

if TYPE_CHECKING:
    from uuid import UUID

# Whether no other member has a partition. The member's own partitions are not asked for.
IsFree = Callable[["UUID", int], bool]


class Target(NamedTuple):
    """What a member is to have. `subscribed`: the ids of its topics now, beyond which it is given
    nothing, also if the target is older than its subscription."""

    epoch: int
    partitions: Partitions
    subscribed: Container[UUID]


def situation(
    current: CurrentImage, target_epoch: int, owned: Partitions | None, *, topics_changed: bool
) -> Situation:
    """What a heartbeat means for its member. `owned`: as the member has said; None: nothing."""
    if current.state is MemberState.UNREVOKED:
        if not owns_any(owned, current.revoking):
            return Situation.REVOKED
        return Situation.FEWER_TOPICS if topics_changed else Situation.NOT_REVOKED
    if current.epoch != target_epoch:
        return Situation.NEWER_TARGET
    return Situation.FEWER_TOPICS if topics_changed else Situation.AS_BEFORE


def reconciled(
    current: CurrentImage,
    target: Target,
    owned: Partitions | None,
    is_free: IsFree,
    *,
    topics_changed: bool = False,
) -> CurrentImage:
    """What the member has after its heartbeat; `current` itself where nothing changes."""
    do = CELLS[
        current.state, situation(current, target.epoch, owned, topics_changed=topics_changed)
    ]
    if do is Do.STAY:
        return current
    if do is Do.DROP:
        following = _dropped(current, target.subscribed, owned)
    else:
        epoch = current.epoch
        if do is Do.NEXT_EPOCH:
            epoch = min(epoch + 1, target.epoch)
        following = _next(current, epoch, target, owned, is_free)
    return current if _is_same(current, following) else following


def owns_any(owned: Partitions | None, revoking: PartitionEpochs) -> bool:
    """Whether a member with this list may still use a partition that it is to give up."""
    if owned is None:
        return bool(revoking)
    return any(
        not owned[topic_id].isdisjoint(some)
        for topic_id, some in revoking.items()
        if topic_id in owned
    )


def is_part_of(owned: Partitions | None, assigned: PartitionEpochs) -> bool:
    """Whether a member owns nothing but what it was given; None: it does not say."""
    if owned is None:
        return False
    return all(some <= assigned.get(topic_id, {}).keys() for topic_id, some in owned.items())


def _dropped(
    current: CurrentImage, subscribed: Container[UUID], owned: Partitions | None
) -> CurrentImage:
    assigned = {
        topic_id: some for topic_id, some in current.assigned.items() if topic_id in subscribed
    }
    if len(assigned) == len(current.assigned):
        return current
    revoking = {topic_id: dict(some) for topic_id, some in current.revoking.items()}
    for topic_id, some in current.assigned.items():
        if topic_id not in subscribed:
            revoking.setdefault(topic_id, {}).update(some)
    if not owns_any(owned, revoking):
        return current._replace(assigned=assigned, revoking={})
    return current._replace(state=MemberState.UNREVOKED, assigned=assigned, revoking=revoking)


def _next(
    current: CurrentImage, epoch: int, target: Target, owned: Partitions | None, is_free: IsFree
) -> CurrentImage:
    """`epoch`: the member's, as long as it has something to give up."""
    assigned: dict[UUID, dict[int, int]] = {}
    revoking: dict[UUID, dict[int, int]] = {}
    for topic_id, some in current.assigned.items():
        wanted = target.partitions.get(topic_id, frozenset())
        if topic_id not in target.subscribed:
            wanted = frozenset()
        kept = {index: given for index, given in some.items() if index in wanted}
        if kept:
            assigned[topic_id] = kept
        if len(kept) < len(some):
            revoking[topic_id] = {
                index: given for index, given in some.items() if index not in kept
            }
    if revoking and owns_any(owned, revoking):
        previous = current.epoch if epoch != current.epoch else current.previous_epoch
        return CurrentImage(epoch, previous, MemberState.UNREVOKED, assigned, revoking)
    # A partition that the member has had, and is given up by it just now, is no other member's.
    lacks = _take(assigned, target, is_free)
    state = MemberState.UNRELEASED if lacks else MemberState.STABLE
    previous = current.epoch if target.epoch != current.epoch else current.previous_epoch
    return CurrentImage(target.epoch, previous, state, assigned, {})


def _take(assigned: dict[UUID, dict[int, int]], target: Target, is_free: IsFree) -> bool:
    """Adds what is free; whether some of the target is missing."""
    lacks = False
    for topic_id, wanted in target.partitions.items():
        if topic_id not in target.subscribed:
            continue
        has = assigned.get(topic_id, {})
        for index in wanted:
            if index in has:
                continue
            if is_free(topic_id, index):
                has[index] = target.epoch
            else:
                lacks = True
        if has:
            assigned[topic_id] = has
    return lacks


def lacking(
    current: CurrentImage, target: Partitions, subscribed: Container[UUID]
) -> Iterator[tuple[UUID, int]]:
    """The partitions of a member's target that it does not have yet."""
    for topic_id, wanted in target.items():
        if topic_id in subscribed:
            has = current.assigned.get(topic_id, {})
            yield from ((topic_id, index) for index in wanted if index not in has)


def _is_same(one: CurrentImage, other: CurrentImage) -> bool:
    return (
        one.epoch == other.epoch
        and one.state is other.state
        and _plain(one.assigned) == _plain(other.assigned)
        and _plain(one.revoking) == _plain(other.revoking)
    )


def _plain(epochs: PartitionEpochs) -> dict[UUID, Mapping[int, int]]:
    return {topic_id: some for topic_id, some in epochs.items() if some}
