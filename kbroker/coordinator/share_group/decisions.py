"""What a request or an event does to a share group: changes of its state, and no more (KIP-932).

Each function is given a draft of the state and all that it needs besides, and puts changes into the
draft in the order in which their records are written. `Refused` is raised before or after changes;
the caller takes those back. Pure but for the draft: no lock, no clock, no log.

    a member joins, leaves, subscribes to other topics,
    a topic has changed, or its share-partitions have a state  -> the group's epoch + 1
    the next heartbeat of any member                           -> another target
    the next heartbeat of each member                          -> it has its target, at once

A share-partition is in a target only when it has a state.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Final
from uuid import UUID

from kbroker.coordinator.consumer_group.decisions import EPOCH_MAX, Outcome
from kbroker.coordinator.consumer_group.images import (
    JOINS_EPOCH,
    GroupImage,
    Partitions,
    TargetEpoch,
)
from kbroker.coordinator.consumer_group.messages import Refused
from kbroker.coordinator.consumer_group.parts import BATCH_BYTES_MAX
from kbroker.coordinator.share_group.images import (
    FIRST_EPOCH,
    CurrentImage,
    Kind,
    MemberImage,
    StateTopics,
    TopicPartitions,
)
from kbroker.errors import ErrorCode

if TYPE_CHECKING:
    from kbroker.coordinator.consumer_group.topics import TopicsSeen
    from kbroker.coordinator.share_group.messages import HeartbeatAsked
    from kbroker.coordinator.share_group.questions import Indexes
    from kbroker.coordinator.share_group.state import Draft, ShareGroupState

_NO_PARTITIONS: Final = TopicPartitions("", frozenset())
# In the record of the topics that have states.
_BESIDE_NAME_BYTES: Final = 24
_PARTITION_BYTES: Final = 4

# Puts a target of the group's epoch into the draft, if it is computed now.
Assign = Callable[["Draft"], None]


def heartbeat(
    draft: Draft,
    asked: HeartbeatAsked,
    topics: TopicsSeen,
    assign: Assign,
    *,
    size_max: int,
    now_ms: int,
    look: bool,
) -> Outcome:
    """A heartbeat of a member that joins or stays. `look`: the topics, or those with a state, may
    be others than they were at the last heartbeat; `now_ms` is the wall clock's."""
    state = draft.state
    _check(state, asked, size_max)
    before = state.members.get(asked.member_id)
    current = state.current_of(asked.member_id)
    after = MemberImage(
        asked.rack_id if asked.rack_id is not None else None if before is None else before.rack_id,
        asked.client_id,
        asked.client_host,
        asked.topics if asked.topics is not None else () if before is None else before.topics,
    )
    if after != before:
        draft.put(Kind.MEMBER, asked.member_id, after)
    changed = after.topics != (() if before is None else before.topics)
    _raise_epoch(draft, topics, now_ms, changed=changed, look=look or changed)
    if state.epoch > state.assignment_epoch:
        assign(draft)
    following = _moved(state, asked.member_id, topics, current, changed=changed)
    if following is not current:
        draft.put(Kind.CURRENT, asked.member_id, following)
    is_full = asked.epoch == JOINS_EPOCH or asked.topics is not None
    if is_full or following.assigned != current.assigned or asked.epoch != current.epoch:
        return Outcome(asked.member_id, following.epoch, following.assigned)
    return Outcome(asked.member_id, following.epoch, None)


def _check(state: ShareGroupState, asked: HeartbeatAsked, size_max: int) -> None:
    known = asked.member_id in state.members
    if asked.epoch == JOINS_EPOCH:
        if not known and len(state.members) >= size_max:
            raise Refused(
                ErrorCode.GROUP_MAX_SIZE_REACHED,
                f"The share group has reached its maximum capacity of {size_max} members.",
            )
        return
    if not known:
        raise Refused(
            ErrorCode.UNKNOWN_MEMBER_ID,
            f"Member {asked.member_id} is not a member of group {asked.group_id}.",
        )
    current = state.current_of(asked.member_id)
    if asked.epoch in (current.epoch, current.previous_epoch):
        return  # or its last answer was lost
    which = "smaller" if asked.epoch < current.epoch else "greater"
    raise Refused(
        ErrorCode.FENCED_MEMBER_EPOCH,
        f"The share group member has a {which} member epoch ({asked.epoch}) than the one known by"
        f" the group coordinator ({current.epoch}). The member must abandon all its partitions and"
        " rejoin.",
    )


def _raise_epoch(
    draft: Draft, topics: TopicsSeen, now_ms: int, *, changed: bool, look: bool
) -> None:
    state = draft.state
    if state.group is None:
        # A new group has had an assignment, of nothing, in its first epoch.
        draft.put(Kind.GROUP, "", GroupImage(FIRST_EPOCH, 0))
        draft.put(Kind.TARGET_EPOCH, "", TargetEpoch(FIRST_EPOCH, now_ms))
    if not look:
        return
    found = topics.hash_of(state.topics())
    is_late = state.epoch == state.assignment_epoch and _lacks(state, topics)
    if changed or found != state.metadata_hash or is_late:
        _next_epoch(draft, found)


def _lacks(state: ShareGroupState, topics: TopicsSeen) -> bool:
    """Whether share-partitions have a state, and are in no target."""
    if not state.members:
        return False
    given: dict[UUID, set[int]] = {}
    for target in state.targets.values():
        for topic_id, some in target.items():
            given.setdefault(topic_id, set()).update(some)
    none: frozenset[int] = frozenset()
    partitions = assignable(state, topics)
    return any(some - given.get(topic_id, none) for topic_id, some in partitions.items())


def assignable(state: ShareGroupState, topics: TopicsSeen) -> dict[UUID, frozenset[int]]:
    """Partitions of the subscribed topics that have a state, by topic."""
    found: dict[UUID, frozenset[int]] = {}
    for topic_id, count in topics.partition_counts(state.topics()).items():
        some = state.state_topics.initialized.get(topic_id, _NO_PARTITIONS).partitions
        if some and max(some) >= count:
            some = frozenset(index for index in some if index < count)
        if some:
            found[topic_id] = some
    return found


def _next_epoch(draft: Draft, metadata_hash: int) -> None:
    if draft.state.epoch >= EPOCH_MAX:
        _begin_epochs_again(draft)
    draft.put(Kind.GROUP, "", GroupImage(draft.state.epoch + 1, metadata_hash))


def _begin_epochs_again(draft: Draft) -> None:
    """The last epoch that a message can say is followed by the first ones, as in a consumer group.
    Members have what they had; with the epochs of before they are fenced, and join again."""
    state = draft.state
    draft.put(Kind.GROUP, "", GroupImage(FIRST_EPOCH, state.metadata_hash))
    if state.target_epoch is not None:
        again = TargetEpoch(FIRST_EPOCH, state.target_epoch.timestamp_ms)
        draft.put(Kind.TARGET_EPOCH, "", again)
    for member_id, current in list(state.current.items()):
        epoch = min(current.epoch, FIRST_EPOCH)
        draft.put(Kind.CURRENT, member_id, CurrentImage(epoch, -1, current.assigned))


def _moved(
    state: ShareGroupState,
    member_id: str,
    topics: TopicsSeen,
    current: CurrentImage,
    *,
    changed: bool,
) -> CurrentImage:
    """What the member has from now on; the very value of before where nothing changes."""
    if current.epoch == state.assignment_epoch and not changed:
        return current
    mine = topics.ids_of(state.members[member_id].topics)
    assigned = {id_: some for id_, some in state.target_of(member_id).items() if id_ in mine}
    following = CurrentImage(state.assignment_epoch, current.epoch, assigned)
    if following.epoch == current.epoch:
        following = following._replace(previous_epoch=current.previous_epoch)
    return current if following == current else following


def assigned(draft: Draft, epoch: int, targets: Mapping[str, Partitions], now_ms: int) -> bool:
    """The target of a group's epoch; False: a later one is there, or epochs have begun again."""
    state = draft.state
    if not state.assignment_epoch < epoch <= state.epoch or not state.members:
        return False
    for member_id in state.members:
        target = targets.get(member_id, {})
        if state.targets.get(member_id) != target:
            draft.put(Kind.TARGET, member_id, target)
    draft.put(Kind.TARGET_EPOCH, "", TargetEpoch(epoch, now_ms))
    return True


def removed(draft: Draft, member_ids: Iterable[str], topics: TopicsSeen) -> None:
    """Members have left, or have sent nothing in time."""
    for member_id in member_ids:
        state = draft.state
        if member_id not in state.members:
            raise Refused(
                ErrorCode.UNKNOWN_MEMBER_ID, f"Member {member_id} is not a member of the group."
            )
        if member_id in state.current:
            draft.put(Kind.CURRENT, member_id, None)
        if member_id in state.targets:
            draft.put(Kind.TARGET, member_id, None)
        draft.put(Kind.MEMBER, member_id, None)
    _next_epoch(draft, topics.hash_of(draft.state.topics()))


# --- the topics with a state ----------------------------------------------------------------------


def begin_states(draft: Draft, topics: TopicsSeen) -> int:
    """Share-partitions of subscribed topics that have no state are to get one, also where their
    states are being deleted, which the share coordinator does first. This is one change: a member
    may name many topics. How many topics wait, since the log would not take the record of all."""
    kept = draft.state.state_topics
    initializing, deleting = dict(kept.initializing), dict(kept.deleting)
    left, size = 0, _record_bytes(kept)
    for name in sorted(draft.state.topics()):
        for topic_id, count in topics.partition_counts([name]).items():
            begins = initializing.get(topic_id, _NO_PARTITIONS).partitions
            begun = kept.initialized.get(topic_id, _NO_PARTITIONS).partitions
            missing = frozenset(range(count)) - begins - begun
            if not missing:
                continue
            size += _topic_bytes(name, len(missing))
            if size > BATCH_BYTES_MAX:
                left += 1
                continue
            initializing[topic_id] = TopicPartitions(name, begins | missing)
            deleting.pop(topic_id, None)
    _put_topics(draft, StateTopics(initializing, kept.initialized, deleting))
    return left


def _record_bytes(kept: StateTopics) -> int:
    """About how long the record of these is, at most."""
    parts = (kept.initializing, kept.initialized)
    size = sum(_topic_bytes(name, len(some)) for part in parts for name, some in part.values())
    return size + sum(_topic_bytes(name, 0) for name in kept.deleting.values())


def _topic_bytes(name: str, partitions: int) -> int:
    """Of a topic that begins, and has begun in part, so that it is named twice."""
    return 2 * (_BESIDE_NAME_BYTES + len(name)) + _PARTITION_BYTES * partitions


def states_came(draft: Draft, begun: Indexes, deleted: Indexes, topics: TopicsSeen) -> None:
    """Share-partitions have a state now; others have none any more. A topic is no more to be
    deleted when all its partitions are."""
    kept = draft.state.state_topics
    initializing, initialized = dict(kept.initializing), dict(kept.initialized)
    for topic_id, some in begun.items():
        waiting = initializing.pop(topic_id, _NO_PARTITIONS)
        came, left = waiting.partitions & some, waiting.partitions - some
        if left:
            initializing[topic_id] = TopicPartitions(waiting.name, left)
        if came:
            before = initialized.get(topic_id, _NO_PARTITIONS).partitions
            initialized[topic_id] = TopicPartitions(waiting.name, before | came)
    deleting = {
        topic_id: name
        for topic_id, name in kept.deleting.items()
        if len(deleted.get(topic_id, ())) < topics.partition_count(topic_id)
    }
    _put_topics(draft, StateTopics(initializing, initialized, deleting))


def topics_gone(draft: Draft, exists: Callable[[UUID], bool]) -> None:
    """Topics that were deleted have no states any more: the share coordinator removes those."""
    kept = draft.state.state_topics
    after = StateTopics(
        {id_: some for id_, some in kept.initializing.items() if exists(id_)},
        {id_: some for id_, some in kept.initialized.items() if exists(id_)},
        {id_: name for id_, name in kept.deleting.items() if exists(id_)},
    )
    _put_topics(draft, after)


def removal_begins(draft: Draft, topics: TopicsSeen) -> list[tuple[UUID, int]]:
    """The group is to be removed: topic ids and partitions whose states go first. A topic that is
    no more has none: the share coordinator removes those.

    The states are to be deleted from now on, whatever becomes of the removal. Which of them a
    deletion before has left is not known: of its topics every partition is named."""
    kept = draft.state.state_topics
    found: list[tuple[UUID, int]] = []
    deleting: dict[UUID, str] = {}
    for topic_id in {**kept.initializing, **kept.initialized, **kept.deleting}:
        name = topics.name_of(topic_id)
        if name is None:
            continue
        deleting[topic_id] = name
        some: set[int] = set()
        if topic_id in kept.deleting:
            some.update(range(topics.partition_count(topic_id)))
        for part in (kept.initializing, kept.initialized):
            some |= part.get(topic_id, _NO_PARTITIONS).partitions
        found += [(topic_id, index) for index in sorted(some)]
    _put_topics(draft, StateTopics(deleting=deleting))
    return found


def _put_topics(draft: Draft, after: StateTopics) -> None:
    if after != draft.state.state_topics:
        draft.put(Kind.STATE_TOPICS, "", after)


def topics_again(draft: Draft) -> None:
    """The same record: when the followers have it, no other broker coordinates this group, and what
    a group of this id before has left may be deleted."""
    draft.put(Kind.STATE_TOPICS, "", draft.state.state_topics)
