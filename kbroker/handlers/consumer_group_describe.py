"""ConsumerGroupDescribe (69): consumer groups with their members, for tools.

A group with an assignment of a topic that the client may not describe is refused as a whole, with
an error of its own. Topics that were deleted since are left out. Any handler thread; takes each
group's lock for the copying.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kbroker.errors import ErrorCode
from kbroker.handlers.authorization import denied, operations_of
from kbroker.handlers.repeats import NAMED_TOO_OFTEN, answers_of
from kbroker.handlers.reply import short_message
from kbroker.protocol import messages
from kbroker.security.rights import Operation, ResourceType

if TYPE_CHECKING:
    from collections.abc import Callable

    from kbroker.coordinator.consumer_group.images import Partitions
    from kbroker.coordinator.consumer_group.messages import Description
    from kbroker.coordinator.consumer_group.topics import TopicsSeen
    from kbroker.handlers.call import Call
    from kbroker.handlers.services import Services
    from kbroker.protocol.messages.consumer_group_describe import (
        Assignment,
        DescribedGroup,
        Member,
        Request,
    )

_CLASSIC: Final = 0
_CONSUMER: Final = 1


def handle(services: Services, call: Call[Request]) -> None:
    names = call.message.group_ids
    hidden = denied(services, call, Operation.DESCRIBE, ResourceType.GROUP, names)
    wanted = call.message.include_authorized_operations
    operations = operations_of(services, call, ResourceType.GROUP, wanted=wanted)
    found = answers_of(
        call,
        sorted(names, key=lambda group_id: group_id not in hidden),  # as Kafka: the refused first
        lambda group_id: (
            _nothing(group_id, ErrorCode.GROUP_AUTHORIZATION_FAILED, None)
            if group_id in hidden
            else _described(services, call, group_id, operations)
        ),
        lambda group_id: _nothing(group_id, ErrorCode.INVALID_REQUEST, NAMED_TOO_OFTEN),
    )
    call.answer(messages.consumer_group_describe.Response(groups=found))


def _described(
    services: Services, call: Call[Request], group_id: str, operations: Callable[[str], int]
) -> DescribedGroup:
    groups = services.consumer_groups()
    found = groups.describe(group_id)
    if isinstance(found, ErrorCode):
        words = None
        if found is ErrorCode.GROUP_ID_NOT_FOUND:
            is_there = services.groups.find(group_id) is not None
            words = "is not a consumer group." if is_there else "not found."
            words = short_message(f"Group {group_id} {words}")
        return _nothing(group_id, found, words)
    topics = groups.topics()
    names = sorted(_topic_names(found, topics))
    if denied(services, call, Operation.DESCRIBE, ResourceType.TOPIC, names):
        code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        words = "The group has described topic(s) that the client is not authorized to describe."
        return _nothing(group_id, code, words)
    return messages.consumer_group_describe.DescribedGroup(
        error_code=ErrorCode.NONE,
        group_id=group_id,
        group_state=found.state.label,
        group_epoch=found.epoch,
        assignment_epoch=found.assignment_epoch,
        assignor_name=found.assignor,
        members=_members(found, topics),
        authorized_operations=operations(group_id),
    )


def _topic_names(group: Description, topics: TopicsSeen) -> set[str]:
    ids = {
        topic_id
        for member in group.members
        for part in (member.assigned, member.target)
        for topic_id in part
    }
    return {name for each in ids if (name := topics.name_of(each)) is not None}


def _members(group: Description, topics: TopicsSeen) -> list[Member]:
    table = messages.consumer_group_describe
    return [
        table.Member(
            member_id=member.member_id,
            instance_id=member.instance_id,
            rack_id=member.rack_id,
            member_epoch=member.epoch,
            client_id=member.client_id,
            client_host=member.client_host,
            subscribed_topic_names=list(member.topics),
            subscribed_topic_regex=member.pattern,
            assignment=_assignment(member.assigned, topics),
            target_assignment=_assignment(member.target, topics),
            member_type=_CLASSIC if member.is_classic else _CONSUMER,
        )
        for member in group.members
    ]


def _assignment(partitions: Partitions, topics: TopicsSeen) -> Assignment:
    table = messages.consumer_group_describe
    return table.Assignment(
        topic_partitions=[
            table.TopicPartitions(topic_id=topic_id, topic_name=name, partitions=sorted(some))
            for topic_id, some in partitions.items()
            if some and (name := topics.name_of(topic_id)) is not None
        ]
    )


def _nothing(group_id: str, code: ErrorCode, message: str | None) -> DescribedGroup:
    return messages.consumer_group_describe.DescribedGroup(
        error_code=code, error_message=message, group_id=group_id
    )
