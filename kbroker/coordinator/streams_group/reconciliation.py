"""What a member has next: the step that a heartbeat makes towards the member's target.

Pure functions of a member's tasks, its target, the tasks that it says it owns, and what is free. No
step gives an active task to a member before its owner has given it up. The states of a member and
what is done in each are those of consumer groups (`consumer_group/states.py`):

    assigned  = what it has and is to have
    revoking  = what it has and is not to have: first of all it gives these up, in its epoch
    then      = all free tasks of its target are added, in the target's epoch

An active task is free when no member has it, and no other member of the process has a copy; a copy
is free when no other member of the process has the task at all: a process has one directory for it.
A member that does not list its tasks may own all that it was given. Source: KIP-1071.

Beyond Apache Kafka, a member that has not said that it has what it was given is not given what it
said before (`confirmed.py`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from kbroker.coordinator.consumer_group.states import CELLS, Do, MemberState, Situation
from kbroker.coordinator.streams_group.images import (
    CurrentImage,
    HeldTasks,
    TaskEpochs,
    Tasks,
    TaskSet,
)


class Free(NamedTuple):
    """Whether a task may be given to the member; its own tasks are not asked for."""

    active: Callable[[str, int], bool]
    copy: Callable[[str, int], bool]


class Target(NamedTuple):
    epoch: int
    tasks: TaskSet


def situation(current: CurrentImage, target_epoch: int, owned: TaskSet | None) -> Situation:
    """What a heartbeat means for its member. `owned`: as the member has said; None: nothing."""
    if current.state is MemberState.UNREVOKED:
        still = owns_any(owned, current.revoking)
        return Situation.NOT_REVOKED if still else Situation.REVOKED
    if current.epoch != target_epoch:
        return Situation.NEWER_TARGET
    return Situation.AS_BEFORE


def reconciled(
    current: CurrentImage, target: Target, owned: TaskSet | None, free: Free
) -> CurrentImage:
    """What the member has after its heartbeat; `current` itself where nothing changes."""
    do = CELLS[current.state, situation(current, target.epoch, owned)]
    if do is Do.STAY:
        return current
    epoch = current.epoch
    if do is Do.NEXT_EPOCH:
        epoch = min(epoch + 1, target.epoch)
    following = _next(current, epoch, target, owned, free)
    return current if _is_same(current, following) else following


def owns_any(owned: TaskSet | None, revoking: HeldTasks) -> bool:
    """Whether a member with this list may still use a task that it is to give up."""
    if owned is None:
        return any(revoking)
    return any(
        not has.get(id_, frozenset()).isdisjoint(some)
        for has, part in zip(owned, revoking, strict=True)
        for id_, some in part.items()
    )


def is_part_of(owned: TaskSet | None, assigned: HeldTasks) -> bool:
    """Whether a member owns nothing but what it was given; None: it does not say."""
    if owned is None:
        return False
    return all(
        some <= frozenset(part.get(id_, ()))
        for has, part in zip(owned, assigned, strict=True)
        for id_, some in has.items()
    )


def goes_back(current: CurrentImage, following: CurrentImage, said: TaskSet | None) -> bool:
    """Whether a step takes a member back to the tasks that it has said to own, before it has said
    to own those that it was given. `said` None: it is not known."""
    if said is None or following is current or said != following.assigned.plain():
        return False
    return said != current.assigned.plain()


def _next(
    current: CurrentImage, epoch: int, target: Target, owned: TaskSet | None, free: Free
) -> CurrentImage:
    """`epoch`: the member's, as long as it has something to give up."""
    has, wanted = current.assigned, target.tasks
    active, rest_active = _parted_epochs(has.active, wanted.active)
    standby, rest_standby = _parted(has.standby, wanted.standby)
    warmup, rest_warmup = _parted(has.warmup, wanted.warmup)
    revoking = HeldTasks(rest_active, rest_standby, rest_warmup)
    if any(revoking) and owns_any(owned, revoking):
        previous = current.epoch if epoch != current.epoch else current.previous_epoch
        assigned = HeldTasks(active, standby, warmup)
        return CurrentImage(epoch, previous, MemberState.UNREVOKED, assigned, revoking)
    lacks = _take_active(active, wanted.active, free, target.epoch)
    lacks |= _take_copies(standby, wanted.standby, free)
    lacks |= _take_copies(warmup, wanted.warmup, free)
    state = MemberState.UNRELEASED if lacks else MemberState.STABLE
    previous = current.epoch if target.epoch != current.epoch else current.previous_epoch
    return CurrentImage(target.epoch, previous, state, HeldTasks(active, standby, warmup))


def _parted_epochs(
    has: TaskEpochs, wanted: Tasks
) -> tuple[dict[str, dict[int, int]], dict[str, dict[int, int]]]:
    """What the member keeps, and what it is to give up."""
    kept: dict[str, dict[int, int]] = {}
    rest: dict[str, dict[int, int]] = {}
    for id_, some in has.items():
        mine = wanted.get(id_, frozenset())
        for index, since in some.items():
            part = kept if index in mine else rest
            part.setdefault(id_, {})[index] = since
    return kept, rest


def _parted(
    has: Tasks, wanted: Tasks
) -> tuple[dict[str, frozenset[int]], dict[str, frozenset[int]]]:
    kept = {id_: some & wanted.get(id_, frozenset()) for id_, some in has.items()}
    rest = {id_: some - wanted.get(id_, frozenset()) for id_, some in has.items()}
    return _some(kept), _some(rest)


def _some(tasks: dict[str, frozenset[int]]) -> dict[str, frozenset[int]]:
    return {id_: some for id_, some in tasks.items() if some}


def _take_active(active: dict[str, dict[int, int]], wanted: Tasks, free: Free, epoch: int) -> bool:
    """Adds what is free; whether some of the target is missing."""
    lacks = False
    for id_, some in wanted.items():
        for index in some:
            if index in active.get(id_, {}):
                continue
            if free.active(id_, index):
                active.setdefault(id_, {})[index] = epoch
            else:
                lacks = True
    return lacks


def _take_copies(has: dict[str, frozenset[int]], wanted: Tasks, free: Free) -> bool:
    lacks = False
    for id_, some in wanted.items():
        missing = some - has.get(id_, frozenset())
        taken = frozenset(index for index in missing if free.copy(id_, index))
        if taken:
            has[id_] = has.get(id_, frozenset()) | taken
        lacks = lacks or taken != missing
    return lacks


def _is_same(one: CurrentImage, other: CurrentImage) -> bool:
    return (
        one.epoch == other.epoch
        and one.state is other.state
        and one.assigned.plain() == other.assigned.plain()
        and one.revoking.plain() == other.revoking.plain()
    )
