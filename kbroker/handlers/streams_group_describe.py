"""StreamsGroupDescribe (89): streams groups with their topology and members, for tools (KIP-1071).

A group with a topic that the client may not describe is refused as a whole, with an error of its
own. Any handler thread; takes each group's lock for the copying.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kbroker.errors import ErrorCode
from kbroker.handlers.authorization import denied, operations_of
from kbroker.handlers.repeats import NAMED_TOO_OFTEN, answers_of
from kbroker.handlers.reply import short_message
from kbroker.protocol import messages
from kbroker.security.rights import Operation, ResourceType

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from kbroker.coordinator.streams_group.images import InternalTopic, Tasks, TaskSet
    from kbroker.coordinator.streams_group.messages import DescribedMember, Description
    from kbroker.handlers.call import Call
    from kbroker.handlers.services import Services
    from kbroker.protocol.messages import streams_group_describe as table
    from kbroker.protocol.messages.streams_group_describe import (
        DescribedGroup,
        Request,
        Response,
    )


def handle(services: Services, call: Call[Request]) -> None:
    names = call.message.group_ids
    hidden = denied(services, call, Operation.DESCRIBE, ResourceType.GROUP, names)
    wanted = call.message.include_authorized_operations
    operations = operations_of(services, call, ResourceType.GROUP, wanted=wanted)
    found = answers_of(
        call,
        names,
        lambda group_id: (
            _nothing(group_id, ErrorCode.GROUP_AUTHORIZATION_FAILED, None)
            if group_id in hidden
            else _described(services, call, group_id, operations)
        ),
        lambda group_id: _nothing(group_id, ErrorCode.INVALID_REQUEST, NAMED_TOO_OFTEN),
    )
    call.answer(messages.streams_group_describe.Response(groups=found))


def _described(
    services: Services, call: Call[Request], group_id: str, operations: Callable[[str], int]
) -> DescribedGroup:
    if not group_id:
        return _nothing(group_id, ErrorCode.INVALID_GROUP_ID, None)
    found = services.streams_groups().describe(group_id)
    if isinstance(found, ErrorCode):
        words = None
        if found is ErrorCode.GROUP_ID_NOT_FOUND:
            is_there = services.groups.find(group_id) is not None
            words = "is not a streams group." if is_there else "not found."
            words = short_message(f"Group {group_id} {words}")
        return _nothing(group_id, found, words)
    topics = sorted(found.topics)
    if denied(services, call, Operation.DESCRIBE, ResourceType.TOPIC, topics):
        code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        words = "The described group uses topics that the client is not authorized to describe."
        return _nothing(group_id, code, words)
    return messages.streams_group_describe.DescribedGroup(
        error_code=ErrorCode.NONE,
        group_id=group_id,
        group_state=found.state.label,
        group_epoch=found.epoch,
        assignment_epoch=found.assignment_epoch,
        topology=_topology(found),
        members=[_member(each) for each in found.members],
        authorized_operations=operations(group_id),
    )


def _topology(found: Description) -> table.Topology | None:
    table = messages.streams_group_describe
    if found.topology_epoch is None:
        return None
    return table.Topology(
        epoch=found.topology_epoch,
        subtopologies=[
            table.Subtopology(
                subtopology_id=part.subtopology_id,
                source_topics=list(part.sources),
                repartition_sink_topics=list(part.repartition_sinks),
                state_changelog_topics=_infos(part.changelogs),
                repartition_source_topics=_infos(part.repartition_sources),
            )
            for part in found.subtopologies
        ],
    )


def _infos(topics: Iterable[InternalTopic]) -> list[table.TopicInfo]:
    table = messages.streams_group_describe
    return [
        table.TopicInfo(
            name=each.name,
            partitions=each.partitions,
            replication_factor=each.replication_factor,
            topic_configs=[table.KeyValue(key=key, value=value) for key, value in each.configs],
        )
        for each in topics
    ]


def _member(each: DescribedMember) -> table.Member:
    table = messages.streams_group_describe
    member = each.member
    endpoint = member.endpoint
    return table.Member(
        member_id=each.member_id,
        member_epoch=each.epoch,
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        client_id=member.client_id,
        client_host=member.client_host,
        topology_epoch=member.topology_epoch,
        process_id=member.process_id,
        user_endpoint=(
            None if endpoint is None else table.Endpoint(host=endpoint.host, port=endpoint.port)
        ),
        client_tags=[table.KeyValue(key=key, value=value) for key, value in member.tags],
        task_offsets=[],
        task_end_offsets=[],
        assignment=_assignment(each.assigned),
        target_assignment=_assignment(each.target),
    )


def _assignment(tasks: TaskSet) -> table.Assignment:
    return messages.streams_group_describe.Assignment(
        active_tasks=_task_ids(tasks.active),
        standby_tasks=_task_ids(tasks.standby),
        warmup_tasks=_task_ids(tasks.warmup),
    )


def _task_ids(tasks: Tasks) -> list[table.TaskIds]:
    table = messages.streams_group_describe
    return [
        table.TaskIds(subtopology_id=subtopology_id, partitions=sorted(some))
        for subtopology_id, some in sorted(tasks.items())
    ]


def _nothing(group_id: str, code: ErrorCode, message: str | None) -> DescribedGroup:
    return messages.streams_group_describe.DescribedGroup(
        error_code=code, error_message=message, group_id=group_id, members=[]
    )


def failure(call: Call[Request], code: ErrorCode, message: str | None) -> Response:
    """Each group that was named, once."""
    names = dict.fromkeys(call.message.group_ids)
    groups = [_nothing(group_id, code, message) for group_id in names]
    return messages.streams_group_describe.Response(groups=groups)
