"""The state of one consumer group: the values that its records have, and what follows from them.

    change -> apply -> the change that undoes it

Nothing else changes a state, so the log is the state: replay applies the same changes in the same
order. What follows from the values is kept with them, in steps of one member: who owns which
partition, static members by instance, how many members name a topic or a pattern, how many are
stable in which epoch. A heartbeat in a group of ten thousand members looks at one of them.

A partition's owner is the member that has it assigned or is to give it up. If two claim it, as no
coordinator writes it, the later record counts.

Pure data, no lock of its own: it belongs to its group, or to one load.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, TypeVar, cast

from kbroker.coordinator.consumer_group.drafts import DraftOf
from kbroker.coordinator.consumer_group.images import (
    NEW_MEMBER,
    NO_PARTITIONS,
    Change,
    CurrentImage,
    GroupImage,
    Kind,
    MemberImage,
    Partitions,
    PatternImage,
    TargetEpoch,
    Value,
)
from kbroker.coordinator.consumer_group.states import ConsumerGroupState, MemberState

if TYPE_CHECKING:
    from collections.abc import Iterator
    from uuid import UUID


Kept = TypeVar("Kept")
Key = TypeVar("Key")


class GroupState:
    """See the module."""

    __slots__ = (
        "_named", "_owners", "_pattern_uses", "_stable_at", "current", "group", "has_topics_record",
        "members", "patterns", "static", "target_epoch", "targets", "unresolved",
    )  # fmt: skip

    def __init__(self) -> None:
        self.group: GroupImage | None = None
        self.has_topics_record = False
        self.members: dict[str, MemberImage] = {}
        self.target_epoch: TargetEpoch | None = None
        self.targets: dict[str, Partitions] = {}
        self.current: dict[str, CurrentImage] = {}
        self.patterns: dict[str, PatternImage] = {}
        self.static: dict[str, str] = {}  # instance id -> member id
        self.unresolved: set[str] = set()  # patterns in use whose topics are not known
        self._owners: dict[UUID, dict[int, str]] = {}
        self._named: Counter[str] = Counter()
        self._pattern_uses: Counter[str] = Counter()
        self._stable_at: Counter[int] = Counter()

    # --- changes ---

    def apply(self, change: Change) -> Change:
        """Make the change; the one that takes it back."""
        kind, key, value = change
        before: Value | None
        if kind is Kind.GROUP:
            before, self.group = self.group, cast("GroupImage | None", value)
        elif kind is Kind.TARGET_EPOCH:
            before, self.target_epoch = self.target_epoch, cast("TargetEpoch | None", value)
        elif kind is Kind.MEMBER:
            before = self.members.get(key)
            self._set_member(key, before, cast("MemberImage | None", value))
        elif kind is Kind.CURRENT:
            before = self.current.get(key)
            self._set_current(key, before, cast("CurrentImage | None", value))
        elif kind is Kind.TARGET:
            before = _set(self.targets, key, cast("Partitions | None", value))
        elif kind is Kind.PATTERN:
            before = _set(self.patterns, key, cast("PatternImage | None", value))
            self._note_pattern(key)
        else:
            before = GroupImage(0, 0) if self.has_topics_record else None
            self.has_topics_record = value is not None
        return Change(kind, key, before)

    def _set_member(self, key: str, before: MemberImage | None, after: MemberImage | None) -> None:
        if before is not None:
            self._count_member(before, -1)
            if before.instance_id is not None and self.static.get(before.instance_id) == key:
                del self.static[before.instance_id]
            if after is None:
                self._count_current(self.current_of(key), -1)
        _set(self.members, key, after)
        if after is not None:
            self._count_member(after, 1)
            if after.instance_id is not None:
                self.static[after.instance_id] = key
            if before is None:
                self._count_current(self.current_of(key), 1)

    def _count_member(self, member: MemberImage, by: int) -> None:
        for topic in member.topics:
            _add(self._named, topic, by)
        if member.pattern:
            _add(self._pattern_uses, member.pattern, by)
            self._note_pattern(member.pattern)

    def _note_pattern(self, pattern: str) -> None:
        if pattern in self._pattern_uses and pattern not in self.patterns:
            self.unresolved.add(pattern)
        else:
            self.unresolved.discard(pattern)

    def _set_current(
        self, key: str, before: CurrentImage | None, after: CurrentImage | None
    ) -> None:
        if key in self.members:
            self._count_current(before or NEW_MEMBER, -1)
            self._count_current(after or NEW_MEMBER, 1)
        if before is not None:
            self._release(key, before)
        _set(self.current, key, after)
        if after is not None:
            for part in (after.assigned, after.revoking):
                for topic_id, some in part.items():
                    self._owners.setdefault(topic_id, {}).update(dict.fromkeys(some, key))

    def _count_current(self, current: CurrentImage, by: int) -> None:
        if current.state is MemberState.STABLE:
            _add(self._stable_at, current.epoch, by)

    def _release(self, key: str, current: CurrentImage) -> None:
        for part in (current.assigned, current.revoking):
            for topic_id, some in part.items():
                owners = self._owners.get(topic_id, {})
                for index in some:
                    if owners.get(index) == key:
                        del owners[index]
                if not owners:
                    self._owners.pop(topic_id, None)

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
    def assignment_epoch(self) -> int:
        return 0 if self.target_epoch is None else self.target_epoch.epoch

    @property
    def state(self) -> ConsumerGroupState:
        if not self.members:
            return ConsumerGroupState.EMPTY
        if self.epoch > self.assignment_epoch:
            return ConsumerGroupState.ASSIGNING
        if self._stable_at[self.assignment_epoch] < len(self.members):
            return ConsumerGroupState.RECONCILING
        return ConsumerGroupState.STABLE

    def current_of(self, member_id: str) -> CurrentImage:
        return self.current.get(member_id, NEW_MEMBER)

    def target_of(self, member_id: str) -> Partitions:
        return self.targets.get(member_id, NO_PARTITIONS)

    def owner_of(self, topic_id: UUID, index: int) -> str | None:
        """The member that has the partition, or has to give it up."""
        return self._owners.get(topic_id, {}).get(index)

    def topics_of(self, member: MemberImage) -> tuple[str, ...]:
        """The names that a member subscribes to, those that its pattern has matched too."""
        matched = self.patterns.get(member.pattern) if member.pattern else None
        if matched is None or not matched.topics:
            return member.topics
        return tuple(sorted({*member.topics, *matched.topics}))

    def topics(self) -> set[str]:
        """The names that any member subscribes to."""
        names = set(self._named)
        for pattern in self._pattern_uses:
            if (matched := self.patterns.get(pattern)) is not None:
                names.update(matched.topics)
        return names

    @property
    def has_patterns(self) -> bool:
        return bool(self._pattern_uses)

    def patterns_in_use(self) -> frozenset[str]:
        return frozenset(self._pattern_uses)

    def is_pattern_used(self, pattern: str) -> bool:
        return pattern in self._pattern_uses

    def drop_orphans(self) -> None:
        """After a load: what members have of which there is no record, since it cannot be read.

        They never come back, so the partitions would be theirs for ever."""
        for key in [each for each in self.current if each not in self.members]:
            self.apply(Change(Kind.CURRENT, key, None))
        for key in [each for each in self.targets if each not in self.members]:
            self.apply(Change(Kind.TARGET, key, None))

    def tombstones(self) -> Iterator[Change]:
        """What removes all of it, in the reverse order of its making."""
        yield from (Change(Kind.CURRENT, key, None) for key in self.current)
        yield from (Change(Kind.TARGET, key, None) for key in self.targets)
        if self.target_epoch is not None:
            yield Change(Kind.TARGET_EPOCH, "", None)
        yield from (Change(Kind.MEMBER, key, None) for key in self.members)
        yield from (Change(Kind.PATTERN, key, None) for key in self.patterns)
        if self.has_topics_record:
            yield Change(Kind.TOPICS, "", None)
        if self.group is not None:
            yield Change(Kind.GROUP, "", None)

    def values(self) -> dict[tuple[Kind, str], Value]:
        """All of it by key, for comparisons."""
        found: dict[tuple[Kind, str], Value] = {}
        if self.group is not None:
            found[Kind.GROUP, ""] = self.group
        if self.target_epoch is not None:
            found[Kind.TARGET_EPOCH, ""] = self.target_epoch
        found.update({(Kind.MEMBER, key): each for key, each in self.members.items()})
        found.update({(Kind.TARGET, key): each for key, each in self.targets.items()})
        found.update({(Kind.CURRENT, key): each for key, each in self.current.items()})
        found.update({(Kind.PATTERN, key): each for key, each in self.patterns.items()})
        return found


def _set(values: dict[str, Kept], key: str, after: Kept | None) -> Kept | None:
    before = values.get(key)
    if after is None:
        values.pop(key, None)
    else:
        values[key] = after
    return before


def _add(counts: Counter[Key], key: Key, by: int) -> None:
    counts[key] += by
    if counts[key] <= 0:
        del counts[key]


class Draft(DraftOf[GroupState]):
    """Changes of a consumer group."""

    __slots__ = ()

    def put(self, kind: Kind, key: str, value: Value | None) -> None:  # type: ignore[override]
        super().put(kind, key, value)

    def _change(self, kind: int, key: str, value: Value | None) -> Change:
        return Change(Kind(kind), key, value)

    @property
    def changes(self) -> tuple[Change, ...]:
        return super().changes

    @property
    def undo(self) -> tuple[Change, ...]:
        return super().undo
