"""AlterReplicaLogDirs (34): a replica moves to another data directory of this broker (KIP-113).

The answer says that the move was accepted, not that it is complete: DescribeLogDirs lists a future
log until it is. Asking for the directory that holds the replica cancels a move in progress. A
partition that is not on this broker (REPLICA_NOT_AVAILABLE) or does not exist
(UNKNOWN_TOPIC_OR_PARTITION) is placed in that directory if it is created later:
`kafka-reassign-partitions` places the replicas that it adds in this way. A directory that is not in
`log.dirs` is LOG_DIR_NOT_FOUND, one that has failed is KAFKA_STORAGE_ERROR. A topic name that
leaves no room for the future log's directory name is INVALID_TOPIC_EXCEPTION. If a partition is
named more than once, the last directory counts.

Any handler thread; nothing is waited for.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from kbroker.errors import ErrorCode, KafkaError
from kbroker.protocol import messages
from kbroker.types import TopicPartition

if TYPE_CHECKING:
    from kbroker.handlers.call import Call
    from kbroker.handlers.services import Services
    from kbroker.protocol.messages.alter_replica_log_dirs import (
        AlterReplicaLogDirPartitionResult,
        Request,
        Response,
    )


def handle(services: Services, call: Call[Request]) -> None:
    results: dict[TopicPartition, ErrorCode] = {}
    image, move = services.controller.image, services.replicas.move
    for name, path in _wanted(call.message).items():
        results[name] = ErrorCode.NONE
        try:
            move(name, path)
        except KafkaError as error:
            is_elsewhere = error.code is ErrorCode.REPLICA_NOT_AVAILABLE
            if is_elsewhere and image.partition(*name) is None:
                results[name] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            else:
                results[name] = error.code
    call.answer(_response(results))


def _wanted(request: Request) -> dict[TopicPartition, str]:
    """Paths by partition, in the order in which they are named first."""
    return {
        TopicPartition(topic.name, index): directory.path
        for directory in request.dirs
        for topic in directory.topics
        for index in topic.partitions
    }


def _response(results: Mapping[TopicPartition, ErrorCode]) -> Response:
    table = messages.alter_replica_log_dirs
    topics: dict[str, list[AlterReplicaLogDirPartitionResult]] = {}
    for (topic, index), code in results.items():
        result = table.AlterReplicaLogDirPartitionResult(partition_index=index, error_code=code)
        topics.setdefault(topic, []).append(result)
    return table.Response(
        results=[
            table.AlterReplicaLogDirTopicResult(topic_name=name, partitions=partitions)
            for name, partitions in topics.items()
        ]
    )


def failure(call: Call[Request], code: ErrorCode, message: str | None) -> Response:
    return _response(dict.fromkeys(_wanted(call.message), code))
