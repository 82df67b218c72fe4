"""AlterReplicaLogDirs (34): a replica moves to another data directory of this broker (KIP-113).

The answer says that it will, not that it is there: DescribeLogDirs shows a future log until it is.
Asking for the directory in which it is ends a move that is on its way. A partition that is not here
(REPLICA_NOT_AVAILABLE), or that nobody has made (UNKNOWN_TOPIC_OR_PARTITION), begins in that
directory if it comes later, which is how `kafka-reassign-partitions` places what it adds. A
directory that is not in `log.dirs` is
LOG_DIR_NOT_FOUND, one that has failed KAFKA_STORAGE_ERROR, a name that leaves no room for the
future log's is INVALID_TOPIC_EXCEPTION. A partition that is named more than once goes where it was
named last.

Any handler thread; nothing is waited for.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from kbroker.errors import ErrorCode, KafkaError
from kbroker.protocol.versions import is_flexible
from kbroker.protocol.wire import Reader, Writer
from kbroker.types import ApiKey, TopicPartition

if TYPE_CHECKING:
    from kbroker.handlers.services import ColdRequest, Services


def handle(services: Services, request: ColdRequest) -> None:
    results: dict[TopicPartition, ErrorCode] = {}
    image = services.controller.image
    for name, path in _wanted(request).items():
        results[name] = ErrorCode.NONE
        try:
            services.replicas.move(name, path)
        except KafkaError as error:
            results[name] = error.code
            is_known = image.partition(*name) is not None
            if error.code is ErrorCode.REPLICA_NOT_AVAILABLE and not is_known:
                results[name] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    request.respond(_encode(request, results))


def _flexible(request: ColdRequest) -> bool:
    return is_flexible(ApiKey.ALTER_REPLICA_LOG_DIRS, request.api_version)


def _wanted(request: ColdRequest) -> dict[TopicPartition, str]:
    """Paths by partition, in the order in which they are named first."""
    reader = Reader(request.body, flexible=_flexible(request))
    wanted: dict[TopicPartition, str] = {}
    for _ in range(reader.array()):
        path = reader.string()
        for _ in range(reader.array()):
            topic = reader.string()
            for _ in range(reader.array()):
                wanted[TopicPartition(topic, reader.int32())] = path
            reader.tags()
        reader.tags()
    reader.tags()
    return wanted


def _encode(request: ColdRequest, results: Mapping[TopicPartition, ErrorCode]) -> bytes:
    topics: dict[str, list[tuple[int, ErrorCode]]] = {}
    for (topic, index), code in results.items():
        topics.setdefault(topic, []).append((index, code))
    out = Writer(flexible=_flexible(request))
    out.int32(0)  # throttle time
    out.array(len(topics))
    for topic, partitions in topics.items():
        out.string(topic)
        out.array(len(partitions))
        for index, code in partitions:
            out.int32(index)
            out.int16(code)
            out.tags()
        out.tags()
    out.tags()
    return out.getvalue()


def failure(request: ColdRequest, code: ErrorCode, message: str) -> bytes:
    return _encode(request, dict.fromkeys(_wanted(request), code))
