"""The rebalances of one group, as the records of `__consumer_offsets` have them: for `group why`.

    records of a consumer group (KIP-848)   each batch is one decision of its coordinator
    records of a classic group              each is a generation, written when its rebalance ended

The records are applied in their order, with the coordinator's own rules, and each batch is compared
with the state before it: which members came, went or subscribe to other topics, and which topics
have more partitions. What nothing in the log explains is not guessed: a member that has left, was
removed or has timed out has the same records. Compaction removes records of long ago, so the first
rebalances may be without a cause.

Pure: no client, no clock.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from kbroker.coordinator.consumer_group.images import LEAVES_FOR_NOW_EPOCH, Kind, MemberImage
from kbroker.coordinator.consumer_group.records import change_of
from kbroker.coordinator.consumer_group.state import GroupState
from kbroker.coordinator.consumer_group.states import ConsumerGroupState, MemberState
from kbroker.coordinator.group.consumer_records import decode_key
from kbroker.coordinator.group.group_records import (
    RecordError,
    decode_group,
    group_of_key,
    is_of_a_consumer_group,
)
from kbroker.peer.consumer_protocol import PROTOCOL_TYPE, decode_assignment
from kbroker.protocol.wire import ProtocolError

if TYPE_CHECKING:
    from uuid import UUID

    from kbroker.coordinator.consumer_group.images import Change, Partitions
    from kbroker.coordinator.group.images import GroupImage
    from kbroker.coordinator.group.images import MemberImage as ClassicMember
    from kbroker.peer.group_messages import Unwritten
    from kbroker.protocol.record_batch import Record
    from kbroker.types import TopicPartition

CONSUMER, CLASSIC = "consumer", "classic"
GONE: Final = "gone"  # left, removed, or timed out: see `group why`
JOINED: Final = "joined"
# A departure is noted before its record is written, by the same broker's clock.
CLOCKS_DIFFER_MS: Final = 1_000


class Batch(NamedTuple):
    """Records that were written together, and when."""

    time_ms: int
    records: list[Record]


class Cause(NamedTuple):
    """`what` has happened; `text` has more of it."""

    what: str
    member_id: str | None = None
    instance_id: str | None = None
    client_id: str | None = None
    host: str | None = None
    text: str = ""

    def document(self) -> dict[str, Any]:
        return dict(self._asdict())


@dataclass
class Rebalance:
    """From the change that began it until all members have what they are to have, or until the
    next one began. Of a classic group only the end is known."""

    epoch: int
    time_ms: int
    causes: list[Cause] = field(default_factory=list)
    members: int = 0
    moved: int = 0  # partitions that no member or another one had before
    assigned_ms: int | None = None
    stable_ms: int | None = None

    def document(self) -> dict[str, Any]:
        return {**self.__dict__, "causes": [each.document() for each in self.causes]}


class Waiting(NamedTuple):
    """A member that does not have yet what it is to have, and the partitions that it is about."""

    member_id: str
    client_id: str
    host: str
    what: str
    partitions: list[tuple[str, int]]
    holder: str | None = None  # the member that has to give them up
    since_ms: int | None = None

    def document(self) -> dict[str, Any]:
        return {
            **self._asdict(),
            "partitions": [{"topic": name, "partition": n} for name, n in self.partitions],
        }


@dataclass
class History:
    """`state` is empty where the log does not have it: that of a classic group. Not `is_whole`:
    only the end of the log was read."""

    group: str
    kind: str = ""
    state: str = ""
    epoch: int = -1
    assignment_epoch: int | None = None
    rebalances: list[Rebalance] = field(default_factory=list)
    waiting: list[Waiting] = field(default_factory=list)
    members: dict[str, Cause] = field(default_factory=dict)  # each that ever joined, by its join
    is_whole: bool = True

    def document(self) -> dict[str, Any]:
        return {
            "group": self.group,
            "kind": self.kind,
            "state": self.state,
            "epoch": self.epoch,
            "assignment_epoch": self.assignment_epoch,
            "rebalances": [each.document() for each in self.rebalances],
            "waiting": [each.document() for each in self.waiting],
        }


def with_unwritten(history: History, unwritten: Unwritten) -> None:
    """Add what its coordinator remembers: why members have gone, and who is awaited."""
    if not history.state:
        history.state = unwritten.state
    begins = 0
    for each in history.rebalances:
        until = each.time_ms + CLOCKS_DIFFER_MS
        words = {
            gone.member_id: gone.why
            for gone in unwritten.departures
            if begins < gone.time_ms <= until
        }
        each.causes = [
            cause._replace(what=words[cause.member_id])
            if cause.what == GONE and cause.member_id in words
            else cause
            for cause in each.causes
        ]
        begins = each.time_ms - CLOCKS_DIFFER_MS
    for member_id in unwritten.awaited:
        member = history.members.get(member_id)
        client, host = ("", "") if member is None else (member.client_id or "", member.host or "")
        history.waiting.append(Waiting(member_id, client, host, "the rebalance waits for it", []))
    if unwritten.awaited:
        history.waiting += [
            Waiting(gone.member_id, "", "", gone.why, [], None, gone.time_ms)
            for gone in unwritten.departures
            if gone.time_ms > begins + 2 * CLOCKS_DIFFER_MS
        ]


def history_of(group_id: str, batches: Iterable[Batch], names: Mapping[UUID, str]) -> History:
    """All that these batches tell; `names`: of the topics that there are. A record that cannot be
    read is left out, as at a load."""
    telling = _Telling(group_id, names)
    for batch in batches:
        telling.take(batch)
    return telling.history()


class _Telling:
    """The states of a group, batch by batch."""

    def __init__(self, group_id: str, names: Mapping[UUID, str]) -> None:
        self._group_id = group_id
        self._names = names
        self._kind = ""
        self._rebalances: list[Rebalance] = []
        self._state = GroupState()
        self._since: dict[str, int] = {}  # when each member's present record was written
        self._generation: GroupImage | None = None

    def take(self, batch: Batch) -> None:
        consumers: list[Record] = []
        for record in batch.records:
            key = record.key or b""
            try:
                if is_of_a_consumer_group(key):
                    consumers.append(record)
                elif group_of_key(key) == self._group_id:
                    self._classic(batch.time_ms, record.value)
            except RecordError:
                continue  # of a version that is not known here
        if consumers:
            self._consumer(batch.time_ms, consumers)

    def history(self) -> History:
        found = History(self._group_id, self._kind, rebalances=self._rebalances)
        for rebalance in self._rebalances:
            for cause in rebalance.causes:
                if cause.member_id is not None:
                    found.members[cause.member_id] = cause
        if self._kind == CLASSIC and self._generation is not None:
            found.epoch = self._generation.generation
        elif self._kind == CONSUMER and self._state.exists:
            self._state.drop_orphans()
            found.state = self._state.state.label
            found.epoch = self._state.epoch
            found.assignment_epoch = self._state.assignment_epoch
            found.waiting = list(self._waiting())
        elif self._kind:
            found.state = ConsumerGroupState.DEAD.label
        return found

    # --- consumer groups ---

    def _consumer(self, time_ms: int, records: Iterable[Record]) -> None:
        state, changes = self._state, list(self._changes(records))
        kinds = {change.kind for change in changes}
        if not changes:
            return
        # What a change of its kind could make another one; most batches move one member.
        members = dict(state.members) if Kind.MEMBER in kinds else state.members
        targets = dict(state.targets) if Kind.TARGET in kinds else state.targets
        topics = {pattern: image.topics for pattern, image in state.patterns.items()}
        epoch, assigned = state.epoch, state.assignment_epoch
        for change in changes:
            state.apply(change)
            if change.kind is Kind.CURRENT:
                if change.value is None:
                    self._since.pop(change.key, None)
                else:
                    self._since[change.key] = time_ms
        if any(change.kind is Kind.GROUP and change.value is None for change in changes):
            self._kind = self._kind or CONSUMER
            self._state, self._since = GroupState(), {}
            return
        if not state.exists:
            return  # records that compaction has left before the one of the group
        self._kind, self._generation = CONSUMER, None
        causes = [*_of_members(members, state), *_of_patterns(topics, state)]
        if state.epoch != epoch or causes:
            self._began(time_ms, causes or [Cause("topics changed")])
        if self._rebalances:
            self._went_on(time_ms, assigned, targets)

    def _changes(self, records: Iterable[Record]) -> Iterator[Change]:
        for record in records:
            try:
                key = decode_key(record.key or b"")
                if key is not None and key.group_id == self._group_id:
                    yield change_of(key, record.value)
            except (RecordError, ProtocolError):
                continue  # of a version that is not known here

    def _began(self, time_ms: int, causes: list[Cause]) -> None:
        last = self._rebalances[-1] if self._rebalances else None
        if last is not None and last.epoch == self._state.epoch:
            last.causes += causes  # a large decision is written in parts
        else:
            self._rebalances.append(Rebalance(self._state.epoch, time_ms, causes))

    def _went_on(self, time_ms: int, assigned: int, targets: Mapping[str, Partitions]) -> None:
        state, last = self._state, self._rebalances[-1]
        last.members = len(state.members)
        if state.assignment_epoch != assigned:
            before, after = _owners(targets), _owners(state.targets)
            for each in reversed(self._rebalances):
                if each.assigned_ms is not None:
                    break
                if each.epoch <= state.assignment_epoch:
                    each.assigned_ms = time_ms
            last.moved += sum(before.get(where) != owner for where, owner in after.items())
            last.causes = [
                Cause("topics changed", text=words)
                if each == Cause("topics changed") and (words := self._grown(before, after))
                else each
                for each in last.causes
            ]
        if last.stable_ms is None and state.state is ConsumerGroupState.STABLE:
            last.stable_ms = time_ms
        elif not state.members and last.stable_ms is None:
            last.assigned_ms = last.stable_ms = time_ms

    def _grown(
        self, before: Mapping[tuple[UUID, int], str], after: Mapping[tuple[UUID, int], str]
    ) -> str:
        """Topics with another number of partitions that are assigned."""
        counts: dict[UUID, list[int]] = {}
        for at, owners in enumerate((before, after)):
            for topic_id, _ in owners:
                counts.setdefault(topic_id, [0, 0])[at] += 1
        return ", ".join(
            f"{self._name(topic_id)}: {old} -> {new} partitions"
            for topic_id, (old, new) in counts.items()
            if old != new
        )

    def _waiting(self) -> Iterator[Waiting]:
        state = self._state
        for member_id, member in state.members.items():
            current = state.current_of(member_id)
            who = member_id, member.client_id, member.client_host
            since = self._since.get(member_id)
            if current.epoch == LEAVES_FOR_NOW_EPOCH:
                yield Waiting(*who, "is to come back under its instance id", [], None, since)
            elif current.state is MemberState.UNREVOKED:
                which = self._named(
                    (topic, index) for topic, some in current.revoking.items() for index in some
                )
                yield Waiting(*who, "has to give up", which, member_id, since)
            elif current.state is MemberState.UNRELEASED:
                yield from self._missing(who, since)
            elif current.epoch < state.assignment_epoch:
                what = f"has not come since epoch {current.epoch}"
                yield Waiting(*who, what, [], None, since)

    def _missing(self, who: tuple[str, str, str], since: int | None) -> Iterator[Waiting]:
        """Partitions of its target that others have, by these."""
        state, member_id = self._state, who[0]
        by_holder: dict[str | None, list[tuple[UUID, int]]] = {}
        for topic_id, some in state.target_of(member_id).items():
            for index in some:
                holder = state.owner_of(topic_id, index)
                if holder != member_id:
                    by_holder.setdefault(holder, []).append((topic_id, index))
        for holder, places in by_holder.items():
            what = "waits for" if holder else "may have"
            yield Waiting(*who, what, self._named(places), holder, since)

    def _named(self, places: Iterable[tuple[UUID, int]]) -> list[tuple[str, int]]:
        return sorted((self._name(topic_id), index) for topic_id, index in places)

    def _name(self, topic_id: UUID) -> str:
        return self._names.get(topic_id, f"{topic_id} (deleted)")

    # --- classic groups ---

    def _classic(self, time_ms: int, value: bytes | None) -> None:
        before = self._generation
        if self._kind != CLASSIC:
            before = None
        if value is None:
            self._generation = None
            return
        image = decode_group(self._group_id, value)
        self._kind, self._generation = CLASSIC, image
        known = {} if before is None else {each.member_id: each for each in before.members}
        now = {each.member_id: each for each in image.members}
        causes = [_classic_cause(JOINED, each) for key, each in now.items() if key not in known]
        causes += [_classic_cause(GONE, each) for key, each in known.items() if key not in now]
        causes += [
            _classic_cause("subscribes otherwise", now[key])
            for key in known.keys() & now.keys()
            if known[key].subscription != now[key].subscription
        ]
        if before is not None and before.generation == image.generation and not causes:
            return
        held, holds = _holders(before), _holders(image)
        moved = sum(held.get(where) != owner for where, owner in holds.items())
        self._rebalances.append(
            Rebalance(image.generation, time_ms, causes, len(now), moved, time_ms, time_ms)
        )


def _holders(generation: GroupImage | None) -> dict[TopicPartition, str]:
    """By partition; nothing where a member's assignment is no consumer's."""
    found: dict[TopicPartition, str] = {}
    if generation is None or generation.protocol_type != PROTOCOL_TYPE:
        return found
    for member in generation.members:
        with suppress(ProtocolError):
            found |= dict.fromkeys(decode_assignment(member.assignment), member.member_id)
    return found


def _classic_cause(what: str, member: ClassicMember) -> Cause:
    return Cause(what, member.member_id, member.instance_id, member.client_id, member.client_host)


def _cause(what: str, member_id: str, member: MemberImage, text: str = "") -> Cause:
    return Cause(what, member_id, member.instance_id, member.client_id, member.client_host, text)


def _of_members(before: Mapping[str, MemberImage], state: GroupState) -> Iterator[Cause]:
    after = state.members
    gone = {key: each for key, each in before.items() if key not in after}
    by_instance = {each.instance_id: key for key, each in gone.items() if each.instance_id}
    for key, member in after.items():
        known = before.get(key)
        if known is None:
            old = by_instance.pop(member.instance_id or "", None)
            if old is not None:
                del gone[old]
                yield _cause("came back", key, member, f"in place of {old}")
            else:
                yield _cause(JOINED, key, member)
        elif (known.topics, known.pattern) != (member.topics, member.pattern):
            yield _cause("subscribes otherwise", key, member, _difference(known, member))
    for key, member in gone.items():
        yield _cause(GONE, key, member)


def _difference(before: MemberImage, after: MemberImage) -> str:
    words = [f"+{name}" for name in after.topics if name not in before.topics]
    words += [f"-{name}" for name in before.topics if name not in after.topics]
    if before.pattern != after.pattern:
        words.append(f"pattern '{before.pattern}' -> '{after.pattern}'")
    return " ".join(words)


def _of_patterns(before: Mapping[str, tuple[str, ...]], state: GroupState) -> Iterator[Cause]:
    for pattern, image in state.patterns.items():
        known = before.get(pattern, ())
        if known != image.topics:
            words = [f"+{name}" for name in image.topics if name not in known]
            words += [f"-{name}" for name in known if name not in image.topics]
            yield Cause("a pattern matches others", text=f"'{pattern}': {' '.join(words)}")


def _owners(targets: Mapping[str, Partitions]) -> dict[tuple[UUID, int], str]:
    return {
        (topic_id, index): member_id
        for member_id, target in targets.items()
        for topic_id, some in target.items()
        for index in some
    }
