"""A group with members changes its protocol: a classic group as a consumer group, and back.

    classic -> consumer     the first member of the consumer protocol joins; the others stay as
                            members of the classic protocol, with their leader's assignments
    consumer -> classic     the last member of the consumer protocol goes; the others join again,
                            and one of them leads

`group.consumer.migration.policy` says which of the two is allowed. Either is one decision, and its
records are written as one: the last record of the one group and the first of the other are never
apart. Pure functions. Source: KIP-848, and answers of Apache Kafka 4.3.0.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from enum import Enum
from typing import TYPE_CHECKING, Final, NamedTuple

from kbroker.coordinator.consumer_group.embedded import (
    Assignment,
    Malformed,
    Subscription,
    assignment_bytes,
    assignment_of,
    subscription_of,
    version_of,
)
from kbroker.coordinator.consumer_group.images import (
    Change,
    ClassicMember,
    CurrentImage,
    GroupImage,
    Kind,
    MemberImage,
    Partitions,
    TargetEpoch,
)
from kbroker.coordinator.consumer_group.parts import BATCH_BYTES_MAX, fits
from kbroker.coordinator.consumer_group.records import records_of
from kbroker.coordinator.consumer_group.states import ConsumerGroupState, MemberState
from kbroker.coordinator.group import images as classic
from kbroker.coordinator.group.group_records import encode_group, group_key
from kbroker.coordinator.group.messages import Refusal
from kbroker.coordinator.group.subscriptions import CONSUMER

if TYPE_CHECKING:
    from uuid import UUID

    from kbroker.coordinator.consumer_group.state import GroupState
    from kbroker.coordinator.consumer_group.topics import TopicsSeen

_TOO_LARGE: Final = Refusal("its members do not fit into one batch of the log")
_FIRST_EPOCH: Final = 1
_NOT_COMPUTED_MS: Final = 0  # as Apache Kafka writes it of a target that a leader has chosen


class Policy(Enum):
    """The value is that of the setting."""

    DISABLED = "disabled"
    UPGRADE = "upgrade"
    DOWNGRADE = "downgrade"
    BIDIRECTIONAL = "bidirectional"

    @property
    def upgrades(self) -> bool:
        return self in (Policy.UPGRADE, Policy.BIDIRECTIONAL)

    @property
    def downgrades(self) -> bool:
        return self in (Policy.DOWNGRADE, Policy.BIDIRECTIONAL)


class Upgrade(NamedTuple):
    """A classic group that makes room, and what the consumer group in its place begins with."""

    before: classic.GroupImage
    changes: tuple[Change, ...]


# --- to the consumer protocol ---------------------------------------------------------------------


def upgraded(
    before: classic.GroupImage,
    topics: TopicsSeen,
    policy: Policy,
    size_max: int,
    *,
    is_empty: bool,
) -> Upgrade | Refusal:
    """What a classic group is as a consumer group; an empty one becomes one in any case. Another
    one has no members here as long as none has been in a generation."""
    if is_empty:
        return Upgrade(before, ())
    if not policy.upgrades:
        return Refusal("online upgrade is disabled")
    if before.protocol_type != CONSUMER:
        return Refusal("the group does not use the consumer embedded protocol")
    if len(before.members) > size_max:
        return Refusal("the group size exceeds the consumer group maximum size")
    # All of that is in the records, so they are not made where it alone is too much.
    sizes = (len(data) for member in before.members for _, data in member.protocols)
    if sum(sizes) > BATCH_BYTES_MAX:
        return _TOO_LARGE
    try:
        subscriptions = [subscription_of(member.subscription) for member in before.members]
        given = [assignment_of(member.assignment) for member in before.members]
    except Malformed:
        return Refusal("the embedded consumer protocol is malformed")
    if any(assignment.has_more for assignment in given):
        return Refusal(
            "an unsupported custom assignor is in use. Please refer to the documentation or switch"
            " to a default assignor before re-attempting the upgrade"
        )
    has = _held_by_each(before, given, subscriptions, topics)
    metadata_hash = topics.hash_of({name for each in subscriptions for name in each.topics})
    changes = tuple(_changes(before, subscriptions, has, metadata_hash))
    if not fits(records_of(before.group_id, changes)):
        return _TOO_LARGE
    return Upgrade(before, changes)


def _held_by_each(
    before: classic.GroupImage,
    given: list[Assignment],
    subscriptions: list[Subscription],
    topics: TopicsSeen,
) -> list[dict[UUID, frozenset[int]]]:
    """What each member may read now, each partition once.

    A member without an assignment, in a rebalance that had begun, may still own the partitions that
    it named when it joined, but for those that others were given since. A partition that a leader
    gave to two members is the first one's.
    """
    taken: dict[UUID, set[int]] = {}
    has = [_taken(taken, topics.known(assignment.partitions)) for assignment in given]
    for place, member in enumerate(before.members):
        if not member.assignment:
            has[place] = _taken(taken, topics.known(subscriptions[place].owned))
    return has


def _taken(
    taken: dict[UUID, set[int]], partitions: dict[UUID, frozenset[int]]
) -> dict[UUID, frozenset[int]]:
    """Those that are not taken yet; they are from now on."""
    own: dict[UUID, frozenset[int]] = {}
    for topic_id, some in partitions.items():
        known = taken.setdefault(topic_id, set())
        if left := some - known:
            own[topic_id] = left
            known |= left
    return own


def _changes(
    before: classic.GroupImage,
    subscriptions: list[Subscription],
    has: list[dict[UUID, frozenset[int]]],
    metadata_hash: int,
) -> Iterator[Change]:
    epoch = max(before.generation, _FIRST_EPOCH)
    for member, subscription in zip(before.members, subscriptions, strict=True):
        protocols = member.protocols or ((before.protocol or "", member.subscription),)
        yield Change(
            Kind.MEMBER,
            member.member_id,
            MemberImage(
                member.instance_id,
                subscription.rack_id,
                member.client_id,
                member.client_host,
                subscription.topics,
                "",
                member.rebalance_timeout_ms,
                None,
                ClassicMember(member.session_timeout_ms, protocols),
            ),
        )
    yield Change(Kind.GROUP, "", GroupImage(epoch, metadata_hash))
    for member, partitions in zip(before.members, has, strict=True):
        yield Change(Kind.TARGET, member.member_id, dict(partitions))
    yield Change(Kind.TARGET_EPOCH, "", TargetEpoch(epoch, _NOT_COMPUTED_MS))
    for member, partitions in zip(before.members, has, strict=True):
        given = {topic_id: dict.fromkeys(some, epoch) for topic_id, some in partitions.items()}
        current = CurrentImage(epoch, epoch, MemberState.STABLE, given)
        yield Change(Kind.CURRENT, member.member_id, current)


# --- back to the classic protocol -----------------------------------------------------------------


def downgraded(
    group_id: str,
    state: GroupState,
    gone: Collection[str],
    topics: TopicsSeen,
    policy: Policy,
    size_max: int,
    now_ms: int,
) -> classic.GroupImage | None:
    """What the group is without these members, if that is a classic group: one of members of the
    classic protocol alone, and of one at least.

    It has no leader where its members are to join again: since one has gone, not all of them have
    reached their target, or one was answered another protocol. A coordinator that loads it has them
    join, too.
    """
    if not policy.downgrades:
        return None
    stay = [each for each in state.members if each not in gone]
    if not stay or len(stay) > size_max:
        return None
    if any(state.members[each].classic is None for each in stay):
        return None
    protocol = _chosen([state.members[each] for each in stay])
    if protocol is None:
        return None  # members that have none in common cannot be in one classic group
    try:
        members = tuple(_classic(each, state, protocol, topics) for each in stay)
    except Malformed:
        return None
    # A member of a consumer group has its own first protocol, and was answered that.
    has_protocol = all(member.protocols[0][0] == protocol for member in members)
    rests = not gone and has_protocol and state.state is ConsumerGroupState.STABLE
    leader = stay[0] if rests else None
    after = classic.GroupImage(group_id, CONSUMER, state.epoch, protocol, leader, now_ms, members)
    tombstones = records_of(group_id, state.tombstones())
    if not fits([*tombstones, (group_key(group_id), encode_group(after))]):
        return None
    return after


def _chosen(members: list[MemberImage]) -> str | None:
    """The protocol that most members prefer of those that all have, as a classic group chooses."""
    named = [[name for name, _ in member.classic.protocols] for member in members if member.classic]
    common = set(named[0]).intersection(*named[1:])
    votes: dict[str, int] = {}
    for names in named:
        vote = next((name for name in names if name in common), None)
        if vote is not None:
            votes[vote] = votes.get(vote, 0) + 1
    return max(votes, key=lambda name: votes[name]) if votes else None


def _classic(
    member_id: str, state: GroupState, protocol: str, topics: TopicsSeen
) -> classic.MemberImage:
    member = state.members[member_id]
    if member.classic is None:
        raise Malformed(f"{member_id} is no member of the classic protocol")
    subscription = dict(member.classic.protocols)[protocol]
    return classic.MemberImage(
        member_id,
        member.instance_id,
        member.client_id,
        member.client_host,
        member.rebalance_timeout_ms,
        member.classic.session_timeout_ms,
        subscription,
        assignment_for(subscription, _held(state.current_of(member_id)), topics),
        member.classic.protocols,
    )


def _held(current: CurrentImage) -> dict[UUID, frozenset[int]]:
    """All that the member may read now: of a group that becomes one of consumers again before its
    members have joined, no other member is to have that."""
    held: dict[UUID, frozenset[int]] = {}
    for part in (current.assigned, current.revoking):
        for topic_id, some in part.items():
            held[topic_id] = held.get(topic_id, frozenset()) | some.keys()
    return held


def assignment_for(subscription: bytes, partitions: Partitions, topics: TopicsSeen) -> bytes:
    """Partitions as the member with this subscription reads them; Malformed. Topics that are no
    more are left out."""
    named = [
        (name, some)
        for topic_id, some in partitions.items()
        if some and (name := topics.name_of(topic_id)) is not None
    ]
    return assignment_bytes(version_of(subscription), named)
