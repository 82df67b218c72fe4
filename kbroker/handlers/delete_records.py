"""DeleteRecords (21): a partition's log begins later from now on.

Each partition names the offset that shall be the first one left, -1 standing for the high
watermark, and is answered with the low watermark: where its log begins now. That never moves back,
so an offset below it is no error. Beyond the high watermark, or below -1, is OFFSET_OUT_OF_RANGE. A
topic that is only compacted keeps its records (POLICY_VIOLATION), an internal one does too
(INVALID_TOPIC_EXCEPTION). A partition that is named more than once is done once, with the last
offset given.

The start moves at once and is on file before the answer, so it is not lost with this process;
segments below it go in the background (`log/_trim.pyx`). The client's time-out has nothing to end:
nothing is waited for. Any handler thread; writes a small file, under the data directory's lock.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from kbroker.config import TopicConfig
from kbroker.errors import ErrorCode, KafkaError
from kbroker.protocol.versions import is_flexible
from kbroker.protocol.wire import Reader, Writer
from kbroker.types import ApiKey, TopicPartition

if TYPE_CHECKING:
    from kbroker.handlers.services import ColdRequest, Services
    from kbroker.metadata.image import TopicImage

NO_WATERMARK: Final = -1


def handle(services: Services, request: ColdRequest) -> None:
    wanted = _wanted(request)
    results: dict[TopicPartition, int | KafkaError] = {}
    allowed: dict[TopicPartition, int] = {}
    image = services.controller.image
    refusals: dict[str, KafkaError | None] = {}
    for name, offset in wanted.items():
        topic = image.topic(name.topic)
        if name.topic not in refusals:
            refusals[name.topic] = _refusal(services, topic)
        refusal = refusals[name.topic]
        if topic is None or image.partition(*name) is None:
            results[name] = KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        elif topic.partitions[name.partition].leader != services.node_id:
            results[name] = KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        elif refusal is not None:
            results[name] = refusal
        else:
            allowed[name] = offset
    if allowed:
        results.update(services.replicas.delete_records(allowed))
    request.respond(_encode(request, {name: results[name] for name in wanted}))


def _flexible(request: ColdRequest) -> bool:
    return is_flexible(ApiKey.DELETE_RECORDS, request.api_version)


def _wanted(request: ColdRequest) -> dict[TopicPartition, int]:
    """What is asked for each partition, in the order in which they are named first."""
    reader = Reader(request.body, flexible=_flexible(request))
    wanted: dict[TopicPartition, int] = {}
    for _ in range(reader.array()):
        topic = reader.string()
        for _ in range(reader.array()):
            name = TopicPartition(topic, reader.int32())
            wanted[name] = reader.int64()
            reader.tags()
        reader.tags()
    reader.int32()  # the time-out
    reader.tags()
    return wanted


def _refusal(services: Services, topic: TopicImage | None) -> KafkaError | None:
    """Why no partition of a topic may lose records."""
    if topic is None:
        return None
    if topic.internal:
        return KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION)
    policy = TopicConfig(services.config, topic.configs)["cleanup.policy"]
    if "compact" in policy and "delete" not in policy:
        return KafkaError(ErrorCode.POLICY_VIOLATION)
    return None


def _encode(request: ColdRequest, results: Mapping[TopicPartition, int | KafkaError]) -> bytes:
    topics: dict[str, list[tuple[int, int | KafkaError]]] = {}
    for (topic, index), result in results.items():
        topics.setdefault(topic, []).append((index, result))
    out = Writer(flexible=_flexible(request))
    out.int32(0)  # throttle time
    out.array(len(topics))
    for topic, partitions in topics.items():
        out.string(topic)
        out.array(len(partitions))
        for index, result in partitions:
            code, low_watermark = ErrorCode.NONE, NO_WATERMARK
            if isinstance(result, KafkaError):
                code = result.code
            else:
                low_watermark = result
            out.int32(index)
            out.int64(low_watermark)
            out.int16(code)
            out.tags()
        out.tags()
    out.tags()
    return out.getvalue()


def failure(request: ColdRequest, code: ErrorCode, message: str) -> bytes:
    error = KafkaError(code, message)
    return _encode(request, dict.fromkeys(_wanted(request), error))
