"""DeleteShareGroupOffsets (92): a share group without members forgets what it has read of topics.

The group coordinator has the states of all their share-partitions removed. A member that subscribes
to such a topic later begins by the group's reset. Any handler thread; the answer comes when the
followers have the change.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kbroker.coordinator.share_group.images import TopicPartitions
from kbroker.errors import ErrorCode
from kbroker.handlers.authorization import denied
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

    from kbroker.coordinator.share_group.messages import OffsetsDeleted
    from kbroker.handlers.call import Call
    from kbroker.handlers.services import Services
    from kbroker.protocol.messages.delete_share_group_offsets import (
        Request,
        Response,
        ResponseTopic,
    )

_NOTHING_WORDS: Final = "There is no offset information to delete."


def handle(services: Services, call: Call[Request]) -> None:
    group_id = call.message.group_id
    check_group(group_id)
    names = [topic.topic_name for topic in call.message.topics]
    hidden = denied(services, call, Operation.READ, ResourceType.TOPIC, names)
    image = services.controller.image
    table = messages.delete_share_group_offsets
    rows: list[ResponseTopic] = []
    pending: list[ResponseTopic] = []
    topics: dict[UUID, TopicPartitions] = {}
    for name in names:
        row = table.ResponseTopic(topic_name=name, topic_id=None)
        rows.append(row)
        found = None if name in hidden else image.topic(name)
        if name in hidden:
            row.error_code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
            row.error_message = DENIED_WORDS
        elif found is None:
            row.error_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            row.error_message = UNKNOWN_TOPIC_WORDS
        else:
            row.topic_id = found.topic_id
            every = frozenset(range(len(found.partitions)))
            topics[found.topic_id] = TopicPartitions(name, every)
            pending.append(row)

    def answered(deleted: OffsetsDeleted) -> None:
        if deleted.code:
            call.fail(deleted.code, deleted.message or "")
            return
        for row in pending:
            code = None if row.topic_id is None else deleted.codes.get(row.topic_id)
            if code is None:
                row.topic_id = None
                row.error_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                row.error_message = _NOTHING_WORDS
            else:
                row.error_code = code
        call.answer(table.Response(responses=rows))

    services.share_groups().delete_offsets(group_id, topics, answered)


def failure(call: Call[Request], code: ErrorCode, message: str | None) -> Response:
    table = messages.delete_share_group_offsets
    return table.Response(error_code=code, error_message=words_of(code, message), responses=[])
