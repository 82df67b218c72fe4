"""AlterShareGroupOffsets (91): a share group without members begins to read at other offsets.

The group coordinator has the states of the share-partitions begin again with these starts; what was
acknowledged, or delivered, is forgotten. A group that is not there is made. A partition that is
named twice gets the start that comes last. Any handler thread; the answer comes when the followers
have the change.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kbroker.coordinator.share.images import SharePartition
from kbroker.coordinator.share_group.images import TopicPartitions
from kbroker.coordinator.share_group.messages import AlterAsked
from kbroker.errors import ErrorCode
from kbroker.handlers.authorization import denied
from kbroker.handlers.reply import short_message
from kbroker.handlers.share_offsets import (
    DENIED_WORDS,
    UNKNOWN_TOPIC_WORDS,
    check_group,
    words_of,
)
from kbroker.protocol import messages
from kbroker.security.rights import Operation, ResourceType

if TYPE_CHECKING:
    from uuid import UUID

    from kbroker.coordinator.share_group.messages import Altered
    from kbroker.handlers.call import Call
    from kbroker.handlers.services import Services
    from kbroker.protocol.messages.alter_share_group_offsets import (
        Request,
        Response,
        ResponsePartition,
        ResponseTopic,
    )


def handle(services: Services, call: Call[Request]) -> None:
    request = call.message
    group_id = request.group_id
    check_group(group_id)
    names = [topic.topic_name for topic in request.topics]
    hidden = denied(services, call, Operation.READ, ResourceType.TOPIC, names)
    image = services.controller.image
    table = messages.alter_share_group_offsets
    rows: list[ResponseTopic] = []
    pending: list[tuple[SharePartition, ResponsePartition]] = []
    topics: dict[UUID, TopicPartitions] = {}
    starts: dict[SharePartition, int] = {}
    for topic in request.topics:
        name = topic.topic_name
        found = None if name in hidden else image.topic(name)
        partitions: list[ResponsePartition] = []
        for each in topic.partitions:
            row = table.ResponsePartition(partition_index=each.partition_index)
            partitions.append(row)
            if name in hidden:
                row.error_code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
                row.error_message = DENIED_WORDS
            elif found is None or not 0 <= each.partition_index < len(found.partitions):
                row.error_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                row.error_message = UNKNOWN_TOPIC_WORDS
            else:
                key = SharePartition(group_id, found.topic_id, each.partition_index)
                starts[key] = each.start_offset
                pending.append((key, row))
        topic_id = None if found is None else found.topic_id
        rows.append(table.ResponseTopic(topic_name=name, topic_id=topic_id, partitions=partitions))
    by_topic: dict[UUID, set[int]] = {}
    for key in starts:
        by_topic.setdefault(key.topic_id, set()).add(key.partition)
    for topic_id, some in by_topic.items():
        named = image.topic_by_id(topic_id)
        topics[topic_id] = TopicPartitions("" if named is None else named.name, frozenset(some))

    def answered(altered: Altered) -> None:
        if altered.code:
            call.fail(altered.code, altered.message or "")
            return
        for key, row in pending:
            code, message, _ = altered.outcomes[key]
            row.error_code, row.error_message = code, short_message(message)
        call.answer(table.Response(responses=rows))

    services.share_groups().alter(AlterAsked(group_id, topics, starts), answered)


def failure(call: Call[Request], code: ErrorCode, message: str | None) -> Response:
    table = messages.alter_share_group_offsets
    return table.Response(error_code=code, error_message=words_of(code, message), responses=[])
