"""DescribeProducers (61): the idempotent producers that a partition remembers.

For each: id, epoch, last sequence and last timestamp; without transactions the coordinator's epoch
and the start of the transaction are -1. Tools that look for hanging transactions begin here. A
partition may remember a hundred thousand, so the log writes them into the answer's form itself, and
what one answer may hold is bounded: a partition beyond the bound has an error instead.

Any handler thread; takes each partition's lock for the copying.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from kbroker import limits
from kbroker.errors import ErrorCode, KafkaError
from kbroker.handlers.authorization import denied
from kbroker.handlers.reply import short_message
from kbroker.metadata.topic_names import invalid_topic_name
from kbroker.protocol import messages
from kbroker.protocol._messages import Encoded
from kbroker.protocol.wire import encode_array_length
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
    for topic in call.message.topics:
        refusal = _HIDDEN if topic.name in hidden else _refusal(services, topic.name)
        partitions = []
        for index in topic.partition_indexes:
            if refusal is not None:
                partitions.append(_refused(index, *refusal))
                continue
            try:
                partitions.append(_described(services, topic.name, index, budget))
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


def _refused(index: int, code: ErrorCode, message: str | None) -> PartitionResponse:
    return messages.describe_producers.PartitionResponse(
        partition_index=index, error_code=code, error_message=short_message(message)
    )
