"""The state of one share group: the values that its records have, and what follows from them.

    change -> apply -> the change that undoes it

Nothing else changes a state, so the log is the state: replay applies the same changes in the same
order. Pure data, no lock of its own: it belongs to its group, or to one load.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from enum import Enum
from typing import Any, cast

from kbroker.coordinator.consumer_group.drafts import AnyChange, DraftOf
from kbroker.coordinator.consumer_group.images import (
    NO_PARTITIONS,
    GroupImage,
    Partitions,
    TargetEpoch,
)
from kbroker.coordinator.share_group.images import (
    FIRST_EPOCH,
    NEW_MEMBER,
    NO_STATE_TOPICS,
    CurrentImage,
    Kind,
    MemberImage,
    StateTopics,
)


class ShareGroupLabel(Enum):
    """What a share group is; the value is the label for clients."""

    EMPTY = "Empty"
    STABLE = "Stable"
    DEAD = "Dead"

    @property
    def label(self) -> str:
        return self.value


class ShareGroupState:
    """See the module."""

    __slots__ = (
        "_named", "current", "group", "has_state_record", "members", "state_topics",
        "target_epoch", "targets",
    )  # fmt: skip

    def __init__(self) -> None:
        self.group: GroupImage | None = None
        self.members: dict[str, MemberImage] = {}
        self.target_epoch: TargetEpoch | None = None
        self.targets: dict[str, Partitions] = {}
        self.current: dict[str, CurrentImage] = {}
        self.state_topics = NO_STATE_TOPICS
        self.has_state_record = False
        self._named: Counter[str] = Counter()

    def apply(self, change: AnyChange) -> AnyChange:
        """Make the change; the one that takes it back."""
        kind, key, value = change
        before: Any
        if kind == Kind.GROUP:
            before, self.group = self.group, cast("GroupImage | None", value)
        elif kind == Kind.TARGET_EPOCH:
            before, self.target_epoch = self.target_epoch, cast("TargetEpoch | None", value)
        elif kind == Kind.STATE_TOPICS:
            before = self.state_topics if self.has_state_record else None
            self.has_state_record = value is not None
            self.state_topics = NO_STATE_TOPICS if value is None else cast("StateTopics", value)
        elif kind == Kind.MEMBER:
            before = self.members.get(key)
            self._named.subtract(() if before is None else before.topics)
            self._named.update(() if value is None else value.topics)
            self._named = +self._named
            _set(self.members, key, value)
        elif kind == Kind.TARGET:
            before = _set(self.targets, key, value)
        else:
            before = _set(self.current, key, value)
        return AnyChange(kind, key, before)

    @property
    def exists(self) -> bool:
        """As in Apache Kafka, a group that an alteration of its offsets has made has no record of
        its own until its first member joins."""
        return self.group is not None or self.has_state_record

    @property
    def epoch(self) -> int:
        if self.group is None:
            return FIRST_EPOCH if self.has_state_record else 0
        return self.group.epoch

    @property
    def metadata_hash(self) -> int:
        return 0 if self.group is None else self.group.metadata_hash

    @property
    def assignment_epoch(self) -> int:
        if self.target_epoch is not None:
            return self.target_epoch.epoch
        return FIRST_EPOCH if self.group is None and self.has_state_record else 0

    @property
    def label(self) -> ShareGroupLabel:
        return ShareGroupLabel.STABLE if self.members else ShareGroupLabel.EMPTY

    def current_of(self, member_id: str) -> CurrentImage:
        return self.current.get(member_id, NEW_MEMBER)

    def target_of(self, member_id: str) -> Partitions:
        return self.targets.get(member_id, NO_PARTITIONS)

    def topics(self) -> set[str]:
        """The names that any member subscribes to."""
        return set(self._named)

    def drop_orphans(self) -> None:
        """After a load: what members have of which there is no record, since it cannot be read."""
        for key in [each for each in self.current if each not in self.members]:
            self.apply(AnyChange(Kind.CURRENT, key, None))
        for key in [each for each in self.targets if each not in self.members]:
            self.apply(AnyChange(Kind.TARGET, key, None))

    def tombstones(self) -> Iterator[AnyChange]:
        """What removes all of it, in the reverse order of its making."""
        yield from (AnyChange(Kind.CURRENT, key, None) for key in self.current)
        yield from (AnyChange(Kind.TARGET, key, None) for key in self.targets)
        if self.exists:
            yield AnyChange(Kind.TARGET_EPOCH, "", None)
        yield from (AnyChange(Kind.MEMBER, key, None) for key in self.members)
        if self.has_state_record:
            yield AnyChange(Kind.STATE_TOPICS, "", None)
        if self.exists:
            yield AnyChange(Kind.GROUP, "", None)

    def values(self) -> dict[tuple[int, str], Any]:
        """All of it by key, for comparisons."""
        found: dict[tuple[int, str], Any] = {}
        if self.group is not None:
            found[Kind.GROUP, ""] = self.group
        if self.target_epoch is not None:
            found[Kind.TARGET_EPOCH, ""] = self.target_epoch
        if self.has_state_record:
            found[Kind.STATE_TOPICS, ""] = self.state_topics
        found.update({(Kind.MEMBER, key): each for key, each in self.members.items()})
        found.update({(Kind.TARGET, key): each for key, each in self.targets.items()})
        found.update({(Kind.CURRENT, key): each for key, each in self.current.items()})
        return found


Draft = DraftOf[ShareGroupState]


def _set(values: dict[str, Any], key: str, after: Any) -> Any:
    before = values.get(key)
    if after is None:
        values.pop(key, None)
    else:
        values[key] = after
    return before
