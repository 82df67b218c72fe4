"""A group as its coordinator has it: whether it has members, and which of them a rebalance awaits.

Groups of every kind; the members that are awaited are known of classic and consumer groups. A
group's lock is held for the copying. Any thread.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Final

from kbroker.coordinator.group.group import Group as ClassicGroup
from kbroker.coordinator.runtime._shard_table import partition_for
from kbroker.errors import ErrorCode
from kbroker.metadata.image import OFFSETS_TOPIC
from kbroker.observe.why.facts import MEMBERS_MAX, TOPICS_MAX, Group, Member
from kbroker.types import TopicPartition

if TYPE_CHECKING:
    from kbroker.coordinator.consumer_group.messages import Description
    from kbroker.coordinator.group.seams import OtherGroup
    from kbroker.coordinator.groups import Groups
    from kbroker.handlers.services import Services
    from kbroker.metadata.image import ClusterImage

_CONSUMER: Final = "consumer"


def group_facts(services: Services, image: ClusterImage, name: str) -> Group:
    """Where its records are; takes no lock."""
    topic = image.topic(OFFSETS_TOPIC)
    if topic is None or not topic.partitions:
        return Group(name)
    records = topic.partitions[partition_for(name, len(topic.partitions))]
    return Group(name, TopicPartition(OFFSETS_TOPIC, records.index), records.leader)


def with_members(services: Services, groups: Groups, facts: Group) -> Group:
    """What its coordinator knows of it, if that is this broker."""
    name = facts.name
    if facts.records is None or facts.coordinator != services.node_id:
        return facts
    code = groups.coordinator.state_of(name)
    group = groups.coordinator.find(name)
    if code or group is None:
        return facts._replace(trouble=code.name if code else "")
    since_ms = group.aged().since_ms
    gone = groups.coordinator.departures.of(name)
    return facts._replace(
        state=group.listed().state.label,
        members=group.member_count,
        since_ms=since_ms if since_ms >= 0 else None,
        awaited=tuple(_awaited(services, group))[:MEMBERS_MAX],
        departed=f"member {gone[-1].member_id} {gone[-1].why.value}" if gone else "",
    )


def _awaited(services: Services, group: ClassicGroup | OtherGroup) -> Iterator[Member]:
    if isinstance(group, ClassicGroup):
        known = {each.member_id: each for each in group.described().members}
        for member_id in group.awaited():
            each = known.get(member_id)
            yield Member(member_id, *(() if each is None else (each.client_id, each.client_host)))
    elif group.listed().type == _CONSUMER:
        description = services.consumer_groups().describe(group.group_id)
        if not isinstance(description, ErrorCode):
            yield from _to_give_up(description)


def _to_give_up(group: Description) -> Iterator[Member]:
    """The members that have partitions of another member's target, or else lag by an epoch."""
    awaited = [
        each
        for each in group.members
        if any(some - each.target.get(topic, frozenset()) for topic, some in each.assigned.items())
    ]
    if not awaited:
        awaited = [each for each in group.members if each.epoch < group.assignment_epoch]
    return (Member(each.member_id, each.client_id, each.client_host) for each in awaited)


def topics_of(services: Services, name: str, committed: Iterable[TopicPartition]) -> list[str]:
    """The topics that the members subscribe to, and those with offsets of the group."""
    group = services.groups.find(name)
    subscribed = None if group is None else group.aged().topics
    return sorted({*(subscribed or ()), *(each.topic for each in committed)})[:TOPICS_MAX]
