"""What requests of the classic protocol do in a consumer group: members that have not changed yet.

Such a member has no leader: the coordinator assigns. It joins, is answered at once with its epoch
as generation, and gets its partitions by SyncGroup, in the bytes that a leader would have sent. It
is moved by its joins alone, so a heartbeat has it join again (REBALANCE_IN_PROGRESS) when there is
something to be had or given up:

    the target is newer than its epoch   it joins, with the partitions of its subscription
    it is to give partitions up          it was given the rest, and joins without them
    all that its target lacks is free    it joins, and has it

A consumer that gives all up before each join owns nothing, by its own words, and reaches its
target in one. A member has its rebalance timeout to join when it was asked to, and as long to ask
for its assignment (`timers.py`).

Pure but for the draft, as `decisions.py`. Source: KIP-848, and answers of Apache Kafka 4.3.0.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kbroker.coordinator.consumer_group.decisions import (
    Assign,
    check_room,
    moved,
    next_look,
    replace,
    subscribed,
)
from kbroker.coordinator.consumer_group.embedded import Malformed, subscription_of
from kbroker.coordinator.consumer_group.images import (
    ClassicMember,
    CurrentImage,
    Kind,
    MemberImage,
)
from kbroker.coordinator.consumer_group.messages import Refused
from kbroker.coordinator.consumer_group.migration import assignment_for
from kbroker.coordinator.consumer_group.reconciliation import lacking
from kbroker.coordinator.consumer_group.states import MemberState
from kbroker.coordinator.group.subscriptions import CONSUMER
from kbroker.errors import ErrorCode

if TYPE_CHECKING:
    from kbroker.coordinator.consumer_group.state import Draft, GroupState
    from kbroker.coordinator.consumer_group.topics import TopicsSeen
    from kbroker.coordinator.group.messages import JoinAsked, SyncAsked

NONE: Final = ErrorCode.NONE


def check_protocols(state: GroupState, asked: JoinAsked, size_max: int) -> None:
    """Whether a member with these protocols has a place in the group, under its id or a new one;
    Refused."""
    has_place = asked.instance_id is not None and asked.instance_id in state.static
    if not has_place and asked.member_id not in state.members:
        check_room(state, size_max)
    if asked.protocol_type != CONSUMER or not _is_common(state, asked):
        raise Refused(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)


def _is_common(state: GroupState, asked: JoinAsked) -> bool:
    """Whether all members of the classic protocol have one of its protocols."""
    common = {name for name, _ in asked.protocols}
    for member in state.members.values():
        if member.classic is not None:
            common.intersection_update(name for name, _ in member.classic.protocols)
    return bool(common)


def joined(
    draft: Draft,
    asked: JoinAsked,
    member_id: str,
    topics: TopicsSeen,
    assign: Assign,
    *,
    now_ms: int,
    topics_changed: bool,
) -> CurrentImage:
    """A member joins, for the first time or again; what it has from now on. Its protocols were
    checked. `member_id`: the one that it has, or is given."""
    state = draft.state
    _admit(draft, asked, member_id)
    try:
        subscription = subscription_of(asked.protocols[0][1])
    except Malformed:
        raise Refused(ErrorCode.UNKNOWN_SERVER_ERROR) from None  # as Apache Kafka has it
    before = state.members.get(member_id)
    rack_id = subscription.rack_id
    if rack_id is None and before is not None:
        rack_id = before.rack_id
    after = MemberImage(
        asked.instance_id,
        rack_id,
        asked.client_id,
        asked.client_host,
        subscription.topics,
        "",
        asked.rebalance_timeout_ms,
        None,
        ClassicMember(asked.session_timeout_ms, asked.protocols),
    )
    current = state.current_of(member_id)
    changed = subscribed(
        draft, member_id, after, topics, assign, now_ms=now_ms, topics_changed=topics_changed
    )
    owned = topics.known(subscription.owned)
    following = moved(draft, member_id, owned, topics, changed=changed)
    if following is not current:
        draft.put(Kind.CURRENT, member_id, following)
    return following


def _admit(draft: Draft, asked: JoinAsked, member_id: str) -> None:
    if asked.instance_id is None:
        return
    holder = draft.state.static.get(asked.instance_id)
    if asked.member_id:
        _check_holder(holder, asked.member_id)
    elif holder is not None:
        replace(draft, holder, member_id)  # the client with the old id is fenced


def _check_holder(holder: str | None, member_id: str) -> None:
    if holder is None:
        raise Refused(ErrorCode.UNKNOWN_MEMBER_ID)
    if holder != member_id:
        raise Refused(ErrorCode.FENCED_INSTANCE_ID)


def check_member(
    state: GroupState, member_id: str, instance_id: str | None, generation: int
) -> MemberImage:
    """The member of the classic protocol that sends this; Refused."""
    if instance_id is not None:
        _check_holder(state.static.get(instance_id), member_id)
    member = state.members.get(member_id)
    if member is None or member.classic is None:
        raise Refused(ErrorCode.UNKNOWN_MEMBER_ID)
    if generation != state.current_of(member_id).epoch:
        raise Refused(ErrorCode.ILLEGAL_GENERATION)
    return member


def is_to_join(state: GroupState, member_id: str, topics: TopicsSeen) -> bool:
    """Whether a heartbeat of the member is to make it join again."""
    current = state.current_of(member_id)
    if current.epoch < state.assignment_epoch or current.state is MemberState.UNREVOKED:
        return True
    if current.state is not MemberState.UNRELEASED:
        return False
    member_topics = topics.ids_of(state.topics_of(state.members[member_id]))
    wanted = lacking(current, state.target_of(member_id), member_topics)
    return all(state.owner_of(*each) is None for each in wanted)


def look(
    draft: Draft, topics: TopicsSeen, assign: Assign, *, now_ms: int, topics_changed: bool
) -> None:
    """A heartbeat finds that topics have changed: members are to join for another target."""
    next_look(draft, topics, now_ms, topics_changed=topics_changed)
    if draft.state.epoch > draft.state.assignment_epoch:
        assign(draft)


def synced(state: GroupState, asked: SyncAsked, topics: TopicsSeen) -> tuple[str, bytes]:
    """The member's protocol, and its assignment in bytes; Refused."""
    member = check_member(state, asked.member_id, asked.instance_id, asked.generation)
    protocol, subscription = protocol_of(member)
    other_type = asked.protocol_type is not None and asked.protocol_type != CONSUMER
    if other_type or asked.protocol not in (None, protocol):
        raise Refused(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    current = state.current_of(asked.member_id)
    if current.epoch < state.assignment_epoch and current.state is not MemberState.UNREVOKED:
        raise Refused(ErrorCode.REBALANCE_IN_PROGRESS)
    assigned = {topic_id: frozenset(some) for topic_id, some in current.assigned.items()}
    try:
        return protocol, assignment_for(subscription, assigned, topics)
    except Malformed:
        raise Refused(ErrorCode.INCONSISTENT_GROUP_PROTOCOL) from None


def protocol_of(member: MemberImage) -> tuple[str, bytes]:
    """The one that a member of the classic protocol has in a consumer group: its first."""
    if member.classic is None or not member.classic.protocols:
        raise Refused(ErrorCode.UNKNOWN_MEMBER_ID)
    return member.classic.protocols[0]
