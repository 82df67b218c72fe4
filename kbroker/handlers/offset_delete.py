"""OffsetDelete (47): commits of a group go, for topics that no member reads any more.

The group answers first, for everything: INVALID_GROUP_ID, GROUP_ID_NOT_FOUND, NON_EMPTY_GROUP where
its members are not consumers, the codes of a group that is not ours. Then each partition:
UNKNOWN_TOPIC_OR_PARTITION, GROUP_SUBSCRIBED_TO_TOPIC, or none, also where nothing was committed.
A deletion that is answered is in the log, and its followers have it. Partitions that do not exist
come first, as in Apache Kafka.

Version 0, never flexible. Any handler thread.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kbroker.coordinator.runtime._shard_table import Written
from kbroker.errors import ErrorCode
from kbroker.handlers.authorization import denied
from kbroker.protocol import messages
from kbroker.security.rights import Operation, ResourceType

if TYPE_CHECKING:
    from kbroker.handlers.call import Call
    from kbroker.handlers.services import Services
    from kbroker.protocol.messages.offset_delete import (
        OffsetDeleteResponsePartition,
        OffsetDeleteResponseTopic,
        Request,
    )

    ByTopic = dict[str, list[OffsetDeleteResponsePartition]]


def handle(services: Services, call: Call[Request]) -> None:
    table = messages.offset_delete
    group_id = call.message.group_id
    code, read = services.groups.readers(group_id)
    if code:
        call.answer(table.Response(error_code=code))
        return
    missing: ByTopic = {}
    topics: list[OffsetDeleteResponseTopic] = []
    gone: list[tuple[str, int]] = []
    image = services.controller.image
    names = [asked.name for asked in call.message.topics]
    hidden = denied(services, call, Operation.READ, ResourceType.TOPIC, names)
    for asked in call.message.topics:
        name = asked.name
        topic = image.topic(name)
        count = 0 if topic is None else len(topic.partitions)
        used = read is None or name in read
        results = []
        for each in asked.partitions:
            result = table.OffsetDeleteResponsePartition(
                partition_index=each.partition_index, error_code=ErrorCode.NONE
            )
            if name in hidden:
                result.error_code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
                missing.setdefault(name, []).append(result)
                continue
            if not 0 <= each.partition_index < count:
                result.error_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                missing.setdefault(name, []).append(result)
                continue
            if used:
                result.error_code = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
            else:
                gone.append((name, each.partition_index))
            results.append(result)
        if results:
            topics.append(table.OffsetDeleteResponseTopic(name=name, partitions=results))

    def answer(code: ErrorCode) -> None:
        merged = [] if code else _merged(missing, topics)
        call.answer(table.Response(error_code=code, topics=merged))

    if gone:
        written = Written()
        removed = services.offsets.remove_offsets(group_id, gone, written=written)
        services.offsets.when_replicated(written, removed, answer)
    else:
        answer(ErrorCode.NONE)


def _merged(
    missing: ByTopic, topics: list[OffsetDeleteResponseTopic]
) -> list[OffsetDeleteResponseTopic]:
    if not missing:
        return topics
    for topic in topics:
        missing.setdefault(topic.name, []).extend(topic.partitions)
    table = messages.offset_delete
    return [
        table.OffsetDeleteResponseTopic(name=name, partitions=partitions)
        for name, partitions in missing.items()
    ]
