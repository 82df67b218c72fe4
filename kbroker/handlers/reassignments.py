"""Reassignments of partitions to other brokers (KIP-455): asked for (45), and those under way (46).

AlterPartitionReassignments has the controller decide (`metadata/controller/reassignment.py`), for
each partition by itself; a null list of replicas is a cancellation. The answer says that a
reassignment has begun, not that it is complete: ListPartitionReassignments, which ignores the
topics' names, lists those in progress. A reassignment to the present replicas is no change and no
error, as in Apache Kafka.

Both are the controller's to answer. Any handler thread; holds no lock.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kbroker.errors import ErrorCode, KafkaError
from kbroker.handlers.delayed import await_decision
from kbroker.handlers.reply import short_message
from kbroker.metadata.controller.events import Reassignment
from kbroker.protocol import messages
from kbroker.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable

    from kbroker.handlers.call import Call
    from kbroker.handlers.services import Services
    from kbroker.metadata.controller.events import Outcomes
    from kbroker.metadata.image import ClusterImage, PartitionImage
    from kbroker.protocol.messages import (
        alter_partition_reassignments,
        list_partition_reassignments,
    )
    from kbroker.protocol.messages.alter_partition_reassignments import (
        ReassignablePartitionResponse,
        Response,
    )


def handle_alter(services: Services, call: Call[alter_partition_reassignments.Request]) -> None:
    request = call.message
    if request.timeout_ms <= 0:
        raise KafkaError(ErrorCode.REQUEST_TIMED_OUT)
    wanted = [
        Reassignment(
            TopicPartition(topic.name, partition.partition_index),
            None if partition.replicas is None else tuple(partition.replicas),
        )
        for topic in request.topics
        for partition in topic.partitions
    ]

    def finish(outcomes: Outcomes) -> Response:
        left = iter(outcomes)
        response = _each(call, lambda index: _result(index, next(left)[1]))
        response.error_message = None if response.responses else ""  # as Apache Kafka has it
        return response

    done = await_decision(services.purgatories.reassignment, call, request.timeout_ms, finish)
    services.controller.reassign(wanted, request.allow_replication_factor_change, done)


def _result(index: int, error: KafkaError | None) -> ReassignablePartitionResponse:
    code, message = ErrorCode.NONE, None
    if error is not None:
        code, message = error.code, None if error.message == error.code.name else error.message
    return messages.alter_partition_reassignments.ReassignablePartitionResponse(
        partition_index=index, error_code=code, error_message=short_message(message)
    )


def _each(
    call: Call[alter_partition_reassignments.Request],
    result: Callable[[int], ReassignablePartitionResponse],
) -> Response:
    """The response with a result for each partition that was named, in their order."""
    table = messages.alter_partition_reassignments
    return table.Response(
        allow_replication_factor_change=call.message.allow_replication_factor_change,
        error_code=ErrorCode.NONE,
        error_message=None,
        responses=[
            table.ReassignableTopicResponse(
                name=topic.name,
                partitions=[result(partition.partition_index) for partition in topic.partitions],
            )
            for topic in call.message.topics
        ],
    )


def alter_failure(
    call: Call[alter_partition_reassignments.Request], code: ErrorCode, message: str | None
) -> Response:
    """Every partition that was named gets the code, beside the request itself."""
    error = KafkaError(code, message) if message else KafkaError(code)
    response = _each(call, lambda index: _result(index, error))
    response.error_code = code
    response.error_message = message if message != code.name else None
    return response


def handle_list(services: Services, call: Call[list_partition_reassignments.Request]) -> None:
    table = messages.list_partition_reassignments
    image = services.controller.image
    topics = [
        table.OngoingTopicReassignment(
            name=name,
            partitions=[
                table.OngoingPartitionReassignment(
                    partition_index=each.index,
                    replicas=list(each.replicas),
                    adding_replicas=list(each.adding),
                    removing_replicas=list(each.removing),
                )
                for each in partitions
            ],
        )
        for name, partitions in _under_way(image, call.message.topics)
    ]
    call.answer(table.Response(error_code=ErrorCode.NONE, error_message=None, topics=topics))


def _under_way(
    image: ClusterImage,
    wanted: list[list_partition_reassignments.ListPartitionReassignmentsTopics] | None,
) -> list[tuple[str, list[PartitionImage]]]:
    """Of the partitions that are asked for, or of all (None), those that are reassigned."""
    asked: list[tuple[str, list[int] | None]] = [(name, None) for name in image.topics]
    if wanted is not None:
        asked = [(topic.name, topic.partition_indexes) for topic in wanted]
    found = []
    for name, indexes in asked:
        topic = image.topic(name)
        if topic is None:
            continue
        if indexes is None:
            partitions = topic.partitions
        else:
            known = (image.partition(name, index) for index in indexes)
            partitions = tuple(each for each in known if each is not None)
        if moving := [each for each in partitions if each.is_reassigned]:
            found.append((name, moving))
    return found
