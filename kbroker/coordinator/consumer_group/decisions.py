"""What a request or an event does to a consumer group: changes of its state, and no more.

Each function is given a draft of the state and all that it needs besides (the request, the topics,
the time), and puts changes into the draft in the order in which their records are written: the
member, the group's epoch, the target assignment, what the member has. `Refused` is raised before or
after changes; the caller takes those back. Pure but for the draft: no lock, no clock, no log.

    a member joins, leaves, is removed,
    subscribes to other topics,            -> the group's epoch + 1 -> another target (assignments)
    or a topic has changed                                        -> each member's next heartbeat
                                                                     moves it (reconciliation)

Source: KIP-848, KIP-1251 (commits), KIP-1263, and answers of Apache Kafka 4.3.0.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from kbroker.coordinator.consumer_group.images import (
    JOINS_EPOCH,
    LEAVES_FOR_NOW_EPOCH,
    CurrentImage,
    GroupImage,
    Kind,
    MemberImage,
    PartitionEpochs,
    Partitions,
    PatternImage,
    TargetEpoch,
    partitions_of,
)
from kbroker.coordinator.consumer_group.messages import NO_TIMEOUT, Refused
from kbroker.coordinator.consumer_group.reconciliation import Target, is_part_of, reconciled
from kbroker.coordinator.consumer_group.states import MemberState
from kbroker.errors import ErrorCode

if TYPE_CHECKING:
    from uuid import UUID

    from kbroker.coordinator.consumer_group.messages import HeartbeatAsked
    from kbroker.coordinator.consumer_group.state import Draft, GroupState
    from kbroker.coordinator.consumer_group.topics import TopicsSeen
    from kbroker.coordinator.group.messages import Leaver

NONE: Final = ErrorCode.NONE
_FIRST_EPOCH: Final = 1
EPOCH_MAX: Final = 2**31 - 1
_COMMIT_KNOWS_EPOCHS: Final = 9

# Puts a target of the group's epoch into the draft, or has it computed beside.
Assign = Callable[["Draft"], None]


class Outcome(NamedTuple):
    """What a heartbeat is answered with; `assignment` None: as before."""

    member_id: str
    epoch: int
    assignment: Partitions | None


def heartbeat(
    draft: Draft,
    asked: HeartbeatAsked,
    topics: TopicsSeen,
    assign: Assign,
    *,
    size_max: int,
    now_ms: int,
    topics_changed: bool,
) -> Outcome:
    """A heartbeat of a member that joins or stays. `topics_changed`: since the hash was compared;
    `now_ms` is the wall clock's."""
    state = draft.state
    replaced = _admitted(draft, asked, size_max)
    current = state.current_of(asked.member_id)
    after = _described(state.members.get(asked.member_id), asked)
    changed = subscribed(
        draft, asked.member_id, after, topics, assign, now_ms=now_ms, topics_changed=topics_changed
    )
    following = moved(draft, asked.member_id, asked.owned, topics, changed=changed)
    is_same = following is current and asked.epoch == current.epoch
    if is_same and not (replaced or asked.is_full or asked.epoch == JOINS_EPOCH):
        return Outcome(asked.member_id, current.epoch, None)
    if following is not current:
        draft.put(Kind.CURRENT, asked.member_id, following)
    assigned = partitions_of(following.assigned)
    if (
        replaced
        or asked.is_full
        or asked.epoch == JOINS_EPOCH
        or asked.epoch != current.epoch
        or assigned != partitions_of(current.assigned)
    ):
        return Outcome(asked.member_id, following.epoch, assigned)
    return Outcome(asked.member_id, following.epoch, None)


def subscribed(
    draft: Draft,
    member_id: str,
    after: MemberImage,
    topics: TopicsSeen,
    assign: Assign,
    *,
    now_ms: int,
    topics_changed: bool,
) -> bool:
    """The member is this from now on; the group's epoch and its target follow. Whether a member
    that was here before subscribes to other topics."""
    state = draft.state
    before = state.members.get(member_id)
    topics_before: tuple[str, ...] = ()
    if after != before:
        topics_before = () if before is None else state.topics_of(before)
        draft.put(Kind.MEMBER, member_id, after)
        if before is not None and before.pattern != after.pattern:
            _drop_pattern(draft, before.pattern)
    names_before = () if before is None else before.topics
    changed = after != before and (
        after.topics != names_before or state.topics_of(after) != topics_before
    )
    _raise_epoch(draft, topics, now_ms, changed=changed, look=changed or topics_changed)
    if state.epoch > state.assignment_epoch:
        assign(draft)
    return changed and before is not None


# --- who may go on --------------------------------------------------------------------------------


def _admitted(draft: Draft, asked: HeartbeatAsked, size_max: int) -> bool:
    """Whether the member has taken the place of another one, of its instance id."""
    state = draft.state
    known = asked.member_id in state.members
    if asked.instance_id is None:
        if asked.epoch != JOINS_EPOCH:
            _check_epoch(state, asked)
        elif not known:
            check_room(state, size_max)
        return False
    holder = state.static.get(asked.instance_id)
    if asked.epoch != JOINS_EPOCH:
        if holder is None:
            raise Refused(
                ErrorCode.UNKNOWN_MEMBER_ID, f"Instance id {asked.instance_id} is unknown."
            )
        _check_holder(asked, holder)
        _check_epoch(state, asked)
        return False
    if holder is None:
        if not known:
            check_room(state, size_max)
        return False
    if holder == asked.member_id:
        return False  # its first answer was lost, or it comes back
    # One of the classic protocol does not say that it goes.
    is_classic = state.members[holder].classic is not None
    if not is_classic and state.current_of(holder).epoch != LEAVES_FOR_NOW_EPOCH:
        raise Refused(
            ErrorCode.UNRELEASED_INSTANCE_ID,
            f"Static member {asked.member_id} with instance id {asked.instance_id} cannot join the"
            f" group {asked.group_id} because the instance id is owned by {holder} member.",
        )
    replace(draft, holder, asked.member_id)
    return True


def check_room(state: GroupState, size_max: int) -> None:
    if len(state.members) >= size_max:
        raise Refused(
            ErrorCode.GROUP_MAX_SIZE_REACHED,
            f"The consumer group has reached its maximum capacity of {size_max} members.",
        )


def _check_holder(asked: HeartbeatAsked, holder: str) -> None:
    if holder != asked.member_id:
        raise Refused(
            ErrorCode.FENCED_INSTANCE_ID,
            f"Static member {asked.member_id} with instance id {asked.instance_id} was fenced by"
            f" member {holder}.",
        )


def _check_epoch(state: GroupState, asked: HeartbeatAsked) -> None:
    if asked.member_id not in state.members:
        raise Refused(
            ErrorCode.UNKNOWN_MEMBER_ID,
            f"Member {asked.member_id} is not a member of group {asked.group_id}.",
        )
    current = state.current_of(asked.member_id)
    if asked.epoch == current.epoch:
        return
    is_previous = asked.epoch == current.previous_epoch
    if asked.epoch < current.epoch and is_previous and is_part_of(asked.owned, current.assigned):
        return  # the answer with its epoch was lost
    which = "smaller" if asked.epoch < current.epoch else "greater"
    raise Refused(
        ErrorCode.FENCED_MEMBER_EPOCH,
        f"The consumer group member has a {which} member epoch ({asked.epoch}) than the one known"
        f" by the group coordinator ({current.epoch}). The member must abandon all its partitions"
        " and rejoin.",
    )


def replace(draft: Draft, old_id: str, new_id: str) -> None:
    """A static member comes back under a new id: it has what the old one had."""
    state = draft.state
    member, target = state.members[old_id], state.target_of(old_id)
    current = state.current_of(old_id)
    _forget(draft, old_id, keeps_pattern=True)
    draft.put(Kind.MEMBER, new_id, member)
    draft.put(Kind.TARGET, new_id, target)
    draft.put(
        Kind.CURRENT,
        new_id,
        CurrentImage(JOINS_EPOCH, JOINS_EPOCH, MemberState.STABLE, current.assigned),
    )


def _described(before: MemberImage | None, asked: HeartbeatAsked) -> MemberImage:
    """What the member is now. None in a request leaves a value as it is."""
    if before is None:
        before = MemberImage(None, None, "", "", (), "", NO_TIMEOUT, None)
    timeout_ms = asked.rebalance_timeout_ms
    return MemberImage(
        before.instance_id if asked.instance_id is None else asked.instance_id,
        before.rack_id if asked.rack_id is None else asked.rack_id,
        asked.client_id,
        asked.client_host,
        before.topics if asked.topics is None else asked.topics,
        before.pattern if asked.pattern is None else asked.pattern,
        before.rebalance_timeout_ms if timeout_ms == NO_TIMEOUT else timeout_ms,
        before.assignor if asked.assignor is None else asked.assignor,
    )


# --- the group's epoch ----------------------------------------------------------------------------


def _raise_epoch(
    draft: Draft, topics: TopicsSeen, now_ms: int, *, changed: bool, look: bool
) -> None:
    """`changed`: what a member subscribes to. `look`: the topics may be others than they were."""
    state = draft.state
    if not state.exists:
        # A new group has had an assignment, of nothing, in its first epoch.
        draft.put(Kind.GROUP, "", GroupImage(_FIRST_EPOCH, 0))
        draft.put(Kind.TARGET_EPOCH, "", TargetEpoch(_FIRST_EPOCH, now_ms))
    found = topics.hash_of(state.topics()) if look else state.metadata_hash
    if found != state.metadata_hash or changed:
        _next_epoch(draft, found)


def next_look(draft: Draft, topics: TopicsSeen, now_ms: int, *, topics_changed: bool) -> None:
    """The group's epoch, where its topics are others now."""
    _raise_epoch(draft, topics, now_ms, changed=False, look=topics_changed)


def _next_epoch(draft: Draft, metadata_hash: int) -> None:
    if draft.state.epoch >= EPOCH_MAX:
        _begin_epochs_again(draft)
    draft.put(Kind.GROUP, "", GroupImage(draft.state.epoch + 1, metadata_hash))
    if draft.state.has_topics_record:
        draft.put(Kind.TOPICS, "", None)


def _begin_epochs_again(draft: Draft) -> None:
    """The last epoch that a message can say is followed by the first ones: else nothing of the
    group could be written any more. Members keep what they have until they say that they own
    nothing: with the epochs of before they are fenced, and join again."""
    state = draft.state
    draft.put(Kind.GROUP, "", GroupImage(_FIRST_EPOCH, state.metadata_hash))
    if state.target_epoch is not None:
        again = TargetEpoch(_FIRST_EPOCH, state.target_epoch.timestamp_ms)
        draft.put(Kind.TARGET_EPOCH, "", again)
    for member_id, current in list(state.current.items()):
        draft.put(
            Kind.CURRENT,
            member_id,
            CurrentImage(
                min(current.epoch, _FIRST_EPOCH),
                -1,
                current.state,
                _from_the_first_epoch(current.assigned),
                _from_the_first_epoch(current.revoking),
            ),
        )


def _from_the_first_epoch(epochs: PartitionEpochs) -> dict[UUID, dict[int, int]]:
    return {topic_id: dict.fromkeys(some, 0) for topic_id, some in epochs.items()}


# --- what the member has --------------------------------------------------------------------------


def moved(
    draft: Draft, member_id: str, owned: Partitions | None, topics: TopicsSeen, *, changed: bool
) -> CurrentImage:
    """What the member has from now on; the very value of before where nothing changes. `owned`: as
    the member says; `changed`: the topics that it subscribes to."""
    state = draft.state
    current = state.current_of(member_id)
    if (
        current.state is MemberState.STABLE
        and current.epoch == state.assignment_epoch
        and not changed
    ):
        return current
    target = Target(
        state.assignment_epoch,
        state.target_of(member_id),
        topics.ids_of(state.topics_of(state.members[member_id])),
    )

    def is_free(topic_id: UUID, index: int) -> bool:
        return state.owner_of(topic_id, index) in (None, member_id)

    return reconciled(current, target, owned, is_free, topics_changed=changed)


# --- members that go ------------------------------------------------------------------------------


def left(draft: Draft, member_id: str, instance_id: str | None, epoch: int) -> bool:
    """A member leaves: whether for good, which the caller is to make true (`removed`), or, a static
    one, for now."""
    state = draft.state
    if instance_id is None:
        if member_id not in state.members:
            raise Refused(ErrorCode.UNKNOWN_MEMBER_ID, f"Member {member_id} is not a member.")
        return True
    holder = state.static.get(instance_id)
    if holder is None:
        raise Refused(ErrorCode.UNKNOWN_MEMBER_ID, f"Instance id {instance_id} is unknown.")
    if holder != member_id:
        raise Refused(
            ErrorCode.FENCED_INSTANCE_ID,
            f"Static member {member_id} with instance id {instance_id} was fenced by member"
            f" {holder}.",
        )
    if epoch != LEAVES_FOR_NOW_EPOCH:
        return True
    current = state.current_of(member_id)
    # What it is to have again has no epoch in which it was handed over: it holds from 0 on.
    kept = {topic_id: dict.fromkeys(some, 0) for topic_id, some in current.assigned.items()}
    draft.put(
        Kind.CURRENT,
        member_id,
        CurrentImage(LEAVES_FOR_NOW_EPOCH, current.previous_epoch, current.state, kept),
    )
    return False


def named(state: GroupState, leavers: Sequence[Leaver]) -> tuple[list[ErrorCode], dict[str, None]]:
    """The members that a LeaveGroup names, and an answer for each name: a static one may be named
    by its instance. A member that is named twice goes once."""
    codes: list[ErrorCode] = []
    going: dict[str, None] = {}
    for leaver in leavers:
        code, member_id = _named(state, leaver)
        codes.append(code)
        if not code:
            going[member_id] = None
    return codes, going


def _named(state: GroupState, leaver: Leaver) -> tuple[ErrorCode, str]:
    member_id = leaver.member_id
    if leaver.instance_id is not None:
        holder = state.static.get(leaver.instance_id)
        if holder is None:
            return ErrorCode.UNKNOWN_MEMBER_ID, member_id
        if member_id not in ("", holder):
            return ErrorCode.FENCED_INSTANCE_ID, member_id
        member_id = holder
    known = member_id in state.members
    return (NONE if known else ErrorCode.UNKNOWN_MEMBER_ID), member_id


def removed(draft: Draft, member_ids: Iterable[str], topics: TopicsSeen) -> None:
    """Members have left, are removed by an operator, or have sent nothing in time: their partitions
    are free. All of them go in one epoch."""
    for member_id in member_ids:
        _forget(draft, member_id)
    state = draft.state
    _next_epoch(draft, topics.hash_of(state.topics()))


def _forget(draft: Draft, member_id: str, *, keeps_pattern: bool = False) -> None:
    state = draft.state
    member = state.members[member_id]
    if member_id in state.current:
        draft.put(Kind.CURRENT, member_id, None)
    if member_id in state.targets:
        draft.put(Kind.TARGET, member_id, None)
    draft.put(Kind.MEMBER, member_id, None)
    if not keeps_pattern:
        _drop_pattern(draft, member.pattern)


def _drop_pattern(draft: Draft, pattern: str) -> None:
    if pattern in draft.state.patterns and not draft.state.is_pattern_used(pattern):
        draft.put(Kind.PATTERN, pattern, None)


# --- what was computed beside ---------------------------------------------------------------------


def assigned(draft: Draft, epoch: int, targets: Mapping[str, Partitions], now_ms: int) -> bool:
    """The target of a group's epoch; False: a later one is there, or epochs began again."""
    state = draft.state
    if not state.assignment_epoch < epoch <= state.epoch or not state.members:
        return False
    for member_id in state.members:
        target = targets.get(member_id, {})
        if state.targets.get(member_id) != target:
            draft.put(Kind.TARGET, member_id, target)
    draft.put(Kind.TARGET_EPOCH, "", TargetEpoch(epoch, now_ms))
    return True


def matched(
    draft: Draft,
    found: Mapping[str, tuple[str, ...]],
    version: int,
    topics: TopicsSeen,
    now_ms: int,
) -> None:
    """The topics that patterns match, as they were found in that version of the metadata; `topics`
    are those of now."""
    state = draft.state
    differs = False
    for pattern, names in found.items():
        if not state.is_pattern_used(pattern):
            continue  # its members have left since
        before = state.patterns.get(pattern)
        if before is not None and before.topics == names:
            continue
        draft.put(Kind.PATTERN, pattern, PatternImage(names, version, now_ms))
        differs = differs or names != (() if before is None else before.topics)
    if state.exists:
        metadata_hash = topics.hash_of(state.topics())
        if differs or metadata_hash != state.metadata_hash:
            _next_epoch(draft, metadata_hash)


# --- offsets --------------------------------------------------------------------------------------


def commit_error(
    state: GroupState,
    member_id: str,
    epoch: int,
    partitions: Callable[[], Iterable[tuple[UUID, int]]],
    *,
    version: int,
    in_transaction: bool,
) -> ErrorCode:
    """Whether a member may commit these partitions with this epoch (KIP-1251): it may be older than
    the member's, but not than the epoch in which the member got the partition."""
    if epoch < 0 and not state.members:
        return NONE
    if epoch < 0 and not member_id and in_transaction:
        return NONE
    member = state.members.get(member_id)
    if member is None:
        return ErrorCode.UNKNOWN_MEMBER_ID
    is_classic = member.classic is not None
    if not in_transaction and not is_classic and version < _COMMIT_KNOWS_EPOCHS:
        return ErrorCode.UNSUPPORTED_VERSION
    current = state.current_of(member_id)
    if epoch == current.epoch:
        return NONE
    stale = ErrorCode.STALE_MEMBER_EPOCH
    if is_classic or in_transaction:
        stale = ErrorCode.ILLEGAL_GENERATION
    if epoch > current.epoch or epoch < 0:
        return stale
    for topic_id, index in partitions():
        given = current.assigned.get(topic_id, {}).get(index)
        if given is None:
            given = current.revoking.get(topic_id, {}).get(index)
        if given is None or given > epoch:
            return stale
    return NONE


def fetch_error(state: GroupState, member_id: str | None, epoch: int) -> ErrorCode:
    """Whether a member may read the offsets with this epoch."""
    if member_id is None and epoch < 0:
        return NONE
    member = state.members.get(member_id or "")
    if member is None:
        return ErrorCode.UNKNOWN_MEMBER_ID
    if epoch == state.current_of(member_id or "").epoch:
        return NONE
    is_classic = member.classic is not None
    return ErrorCode.ILLEGAL_GENERATION if is_classic else ErrorCode.STALE_MEMBER_EPOCH
