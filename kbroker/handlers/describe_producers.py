"""DescribeProducers (61): the idempotent producers that a partition remembers.

For each: id, epoch, last sequence and last timestamp; without transactions the coordinator's epoch
and the start of the transaction are -1. Tools that look for hanging transactions begin here. A
partition may remember a hundred thousand, so the log writes them into the answer's form itself, and
what one answer may hold is bounded: a partition beyond the bound has an error instead.

`kbroker share explain` asks for one record of a share-partition, too, by tagged fields of ours. It
needs DESCRIBE on the group, beside READ on the topic. Such a request has a partition answered once,
however often it is named: an index costs four bytes, and its record more than a hundred.

Any handler thread; takes each partition's lock for the copying.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from kbroker import limits
from kbroker.coordinator.share.images import SharePartition
from kbroker.errors import ErrorCode, KafkaError
from kbroker.handlers.authorization import denied
from kbroker.handlers.reply import short_message
from kbroker.metadata.features import SHARE_VERSION
from kbroker.metadata.topic_names import invalid_topic_name
from kbroker.protocol import messages
from kbroker.protocol._messages import Encoded
from kbroker.protocol.wire import encode_array_length
from kbroker.replica.share.ranges import NO_OWNER
from kbroker.replica.share.states import State
from kbroker.security.rights import Operation, ResourceType

if TYPE_CHECKING:
    from kbroker.handlers.call import Call
    from kbroker.handlers.services import Services
    from kbroker.protocol.messages.describe_producers import PartitionResponse, Request


_HIDDEN: Final = (ErrorCode.TOPIC_AUTHORIZATION_FAILED, "Topic authorization failed.")


def handle(services: Services, call: Call[Request]) -> None:
    table = messages.describe_producers
    budget = _Budget(limits.DESCRIBED_PRODUCERS_MAX)
    topics = []
    names = [topic.name for topic in call.message.topics if invalid_topic_name(topic.name) is None]
    hidden = denied(services, call, Operation.READ, ResourceType.TOPIC, names)
    group_id = call.message.share_group_id
    if group_id and denied(services, call, Operation.DESCRIBE, ResourceType.GROUP, [group_id]):
        raise KafkaError(ErrorCode.GROUP_AUTHORIZATION_FAILED)
    described: set[tuple[str, int]] = set()  # with the records of a share group
    for topic in call.message.topics:
        refusal = _HIDDEN if topic.name in hidden else _refusal(services, topic.name)
        partitions = []
        for index in topic.partition_indexes:
            if refusal is not None:
                partitions.append(_refused(index, *refusal))
                continue
            if group_id and (topic.name, index) in described:
                continue
            try:
                found = _described(services, topic.name, index, budget)
                if group_id:
                    described.add((topic.name, index))
                    _add_share_record(services, call.message, topic.name, found)
                partitions.append(found)
            except KafkaError as error:
                message = error.message if error.message != error.code.name else None
                partitions.append(_refused(index, error.code, message))
        topics.append(table.TopicResponse(name=topic.name, partitions=partitions))
    call.answer(table.Response(topics=topics))


def _refusal(services: Services, name: str) -> tuple[ErrorCode, str] | None:
    """Why no partition of this topic can be described."""
    reason = invalid_topic_name(name)
    if reason is not None:
        return ErrorCode.INVALID_TOPIC_EXCEPTION, reason
    if services.controller.image.topic(name) is None:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic '{name}'"
    return None


class _Budget:
    """How many more producers the answer may hold."""

    def __init__(self, left: int) -> None:
        self._left = left

    def take(self, count: int) -> None:
        """Raises where the answer would grow too long; from then on always."""
        self._left = -1 if count > self._left else self._left - count
        if self._left < 0:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST,
                "too many producers for one answer: ask for fewer partitions at a time",
            )


def _described(services: Services, topic: str, index: int, budget: _Budget) -> PartitionResponse:
    if services.controller.image.partition(topic, index) is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    replica = services.replicas.partition(topic, index)
    if replica is None:
        raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    budget.take(0)
    count, encoded = replica.encode_producers()
    budget.take(count)
    result = messages.describe_producers.PartitionResponse(
        partition_index=index, error_code=ErrorCode.NONE
    )
    producers: Any = Encoded(encode_array_length(count, flexible=True) + encoded)
    result.active_producers = producers
    return result


def _add_share_record(
    services: Services, request: Request, topic: str, found: PartitionResponse
) -> None:
    """Nothing, where no member has fetched from this leader."""
    image = services.controller.image
    named = image.topic(topic)
    if named is None or not image.features.level(SHARE_VERSION):
        return
    share = services.share_service()
    key = SharePartition(request.share_group_id, named.topic_id, found.partition_index)
    led = share.leaders.find(key)
    if led is None:
        return
    is_serving, record = led.describe(request.share_offset)
    session = None if record.owner == NO_OWNER else share.sessions.numbered(record.owner)
    settings = led.settings()
    left_ms = -1
    if record.owner != NO_OWNER or record.state == State.DELAYED:
        left_ms = max(0, record.deadline_ms - services.clock.monotonic_ms())
    found.share_records = [
        messages.describe_producers.ShareRecord(
            is_serving=int(is_serving),
            start_offset=record.start,
            end_offset=record.end,
            state=record.state,
            next_state=record.next_state,
            first_offset=record.first_offset,
            last_offset=record.last_offset,
            delivery_count=record.delivery_count,
            deliveries_max=settings.deliveries,
            window_max=settings.window,
            member_id="" if session is None else session.member_id,
            connection="" if session is None else session.connection,
            lock_left_ms=left_ms,
            given_up=led.given_up(record),
            delayed=record.delayed,
            uncounted=record.delayed + (record.done if settings.waits else 0),
        )
    ]


def _refused(index: int, code: ErrorCode, message: str | None) -> PartitionResponse:
    return messages.describe_producers.PartitionResponse(
        partition_index=index, error_code=code, error_message=short_message(message)
    )
