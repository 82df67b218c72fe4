"""The state of one streams group: the values that its records have, and what follows from them.

    change -> apply -> the change that undoes it

Nothing else changes a state, so the log is the state: replay applies the same changes in the same
order. What follows from the values is kept with them, in steps of one member: who has which active
task, who has copies of it, and how many members are stable in which epoch.

An active task's owner is the member that has it assigned or is to give it up. If two claim it, as
no coordinator writes it, the later record counts.

Pure data, no lock of its own: it belongs to its group, or to one load.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from enum import Enum
from typing import Any, cast

from kbroker.coordinator.consumer_group.drafts import AnyChange, DraftOf
from kbroker.coordinator.consumer_group.images import TargetEpoch
from kbroker.coordinator.consumer_group.states import MemberState
from kbroker.coordinator.streams_group.images import (
    FIRST_EPOCH,
    NEW_MEMBER,
    NO_TASK,
    NOT_VALIDATED,
    CurrentImage,
    GroupImage,
    HeldTasks,
    Kind,
    MemberImage,
    TaskSet,
    TopologyImage,
)

Task = tuple[str, int]


class StreamsGroupLabel(Enum):
    """What a streams group is; the value is the label for clients."""

    EMPTY = "Empty"
    NOT_READY = "NotReady"  # topics of its topology are missing, or are not as they should be
    ASSIGNING = "Assigning"
    RECONCILING = "Reconciling"
    STABLE = "Stable"
    DEAD = "Dead"

    @property
    def label(self) -> str:
        return self.value


class StreamsGroupState:
    """See the module."""

    __slots__ = (
        "_copies", "_owners", "_stable_at", "current", "group", "members", "target_epoch",
        "targets", "topology",
    )  # fmt: skip

    def __init__(self) -> None:
        self.group: GroupImage | None = None
        self.topology: TopologyImage | None = None
        self.members: dict[str, MemberImage] = {}
        self.target_epoch: TargetEpoch | None = None
        self.targets: dict[str, TaskSet] = {}
        self.current: dict[str, CurrentImage] = {}
        self._owners: dict[Task, str] = {}
        self._copies: dict[Task, Counter[str]] = {}  # by member: once for each list it is in
        self._stable_at: Counter[int] = Counter()

    # --- changes ---

    def apply(self, change: AnyChange) -> AnyChange:
        """Make the change; the one that takes it back."""
        kind, key, value = change
        before: Any
        if kind == Kind.GROUP:
            before, self.group = self.group, cast("GroupImage | None", value)
        elif kind == Kind.TOPOLOGY:
            before, self.topology = self.topology, cast("TopologyImage | None", value)
        elif kind == Kind.TARGET_EPOCH:
            before, self.target_epoch = self.target_epoch, cast("TargetEpoch | None", value)
        elif kind == Kind.MEMBER:
            before = self.members.get(key)
            if before is None and value is not None:
                self._count_stable(self.current_of(key), 1)
            elif before is not None and value is None:
                self._count_stable(self.current_of(key), -1)
            _set(self.members, key, value)
        elif kind == Kind.TARGET:
            before = _set(self.targets, key, value)
        else:
            before = self.current.get(key)
            self._set_current(key, before, cast("CurrentImage | None", value))
        return AnyChange(kind, key, before)

    def _set_current(
        self, key: str, before: CurrentImage | None, after: CurrentImage | None
    ) -> None:
        if key in self.members:
            self._count_stable(before or NEW_MEMBER, -1)
            self._count_stable(after or NEW_MEMBER, 1)
        if before is not None:
            for held in (before.assigned, before.revoking):
                self._release(key, held)
        _set(self.current, key, after)
        if after is not None:
            for held in (after.assigned, after.revoking):
                self._hold(key, held)

    def _count_stable(self, current: CurrentImage, by: int) -> None:
        if current.state is MemberState.STABLE:
            self._stable_at[current.epoch] += by
            if self._stable_at[current.epoch] <= 0:
                del self._stable_at[current.epoch]

    def _hold(self, key: str, held: HeldTasks) -> None:
        for id_, epochs in held.active.items():
            self._owners.update(((id_, index), key) for index in epochs)
        for task in _copies_in(held):
            self._copies.setdefault(task, Counter())[key] += 1

    def _release(self, key: str, held: HeldTasks) -> None:
        for id_, epochs in held.active.items():
            for index in epochs:
                if self._owners.get((id_, index)) == key:
                    del self._owners[id_, index]
        for task in _copies_in(held):
            having = self._copies.get(task, Counter())
            having[key] -= 1
            if having[key] <= 0:
                del having[key]
            if not having:
                self._copies.pop(task, None)

    # --- what follows ---

    @property
    def exists(self) -> bool:
        return self.group is not None

    @property
    def epoch(self) -> int:
        return 0 if self.group is None else self.group.epoch

    @property
    def metadata_hash(self) -> int:
        return 0 if self.group is None else self.group.metadata_hash

    @property
    def validated_epoch(self) -> int:
        return NOT_VALIDATED if self.group is None else self.group.validated_epoch

    @property
    def assignment_epoch(self) -> int:
        return FIRST_EPOCH if self.target_epoch is None else self.target_epoch.epoch

    @property
    def label(self) -> StreamsGroupLabel:
        if not self.members:
            return StreamsGroupLabel.EMPTY
        if self.topology is None or self.topology.epoch != self.validated_epoch:
            return StreamsGroupLabel.NOT_READY
        if self.epoch > self.assignment_epoch:
            return StreamsGroupLabel.ASSIGNING
        if self._stable_at[self.assignment_epoch] < len(self.members):
            return StreamsGroupLabel.RECONCILING
        return StreamsGroupLabel.STABLE

    def current_of(self, member_id: str) -> CurrentImage:
        return self.current.get(member_id, NEW_MEMBER)

    def target_of(self, member_id: str) -> TaskSet:
        return self.targets.get(member_id, NO_TASK)

    def owner_of(self, subtopology_id: str, index: int) -> str | None:
        """The member that has the active task, or has to give it up."""
        return self._owners.get((subtopology_id, index))

    def is_active_free(self, member_id: str, subtopology_id: str, index: int) -> bool:
        """No other member has it, and none of the member's process has a copy."""
        owner = self.owner_of(subtopology_id, index)
        if owner is not None and owner != member_id:
            return False
        return not self._has_copy_beside(member_id, subtopology_id, index)

    def is_copy_free(self, member_id: str, subtopology_id: str, index: int) -> bool:
        """No other member of the member's process has the task."""
        owner = self.owner_of(subtopology_id, index)
        if owner is not None and owner != member_id and self._are_together(owner, member_id):
            return False
        return not self._has_copy_beside(member_id, subtopology_id, index)

    def _has_copy_beside(self, member_id: str, subtopology_id: str, index: int) -> bool:
        having = self._copies.get((subtopology_id, index), ())
        return any(each != member_id and self._are_together(each, member_id) for each in having)

    def _are_together(self, one: str, other: str) -> bool:
        return self._process_of(one) == self._process_of(other)

    def _process_of(self, member_id: str) -> str | None:
        member = self.members.get(member_id)
        return None if member is None else member.process_id

    def drop_orphans(self) -> None:
        """After a load: what members have of which there is no record, since it cannot be read."""
        for key in [each for each in self.current if each not in self.members]:
            self.apply(AnyChange(Kind.CURRENT, key, None))
        for key in [each for each in self.targets if each not in self.members]:
            self.apply(AnyChange(Kind.TARGET, key, None))

    def tombstones(self) -> Iterator[AnyChange]:
        """What removes all of it, in the order of Apache Kafka."""
        yield from (AnyChange(Kind.CURRENT, key, None) for key in self.current)
        yield from (AnyChange(Kind.TARGET, key, None) for key in self.targets)
        if self.target_epoch is not None:
            yield AnyChange(Kind.TARGET_EPOCH, "", None)
        yield from (AnyChange(Kind.MEMBER, key, None) for key in self.members)
        if self.group is not None:
            yield AnyChange(Kind.GROUP, "", None)
        if self.topology is not None:
            yield AnyChange(Kind.TOPOLOGY, "", None)

    def values(self) -> dict[tuple[int, str], Any]:
        """All of it by key, for comparisons."""
        found: dict[tuple[int, str], Any] = {}
        if self.group is not None:
            found[Kind.GROUP, ""] = self.group
        if self.topology is not None:
            found[Kind.TOPOLOGY, ""] = self.topology
        if self.target_epoch is not None:
            found[Kind.TARGET_EPOCH, ""] = self.target_epoch
        found.update({(Kind.MEMBER, key): each for key, each in self.members.items()})
        found.update({(Kind.TARGET, key): each for key, each in self.targets.items()})
        found.update({(Kind.CURRENT, key): each for key, each in self.current.items()})
        return found


Draft = DraftOf[StreamsGroupState]


def _copies_in(held: HeldTasks) -> Iterator[Task]:
    for tasks in (held.standby, held.warmup):
        for id_, some in tasks.items():
            yield from ((id_, index) for index in some)


def _set(values: dict[str, Any], key: str, after: Any) -> Any:
    before = values.get(key)
    if after is None:
        values.pop(key, None)
    else:
        values[key] = after
    return before
