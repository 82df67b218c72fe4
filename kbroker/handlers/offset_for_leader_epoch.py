"""OffsetForLeaderEpoch (23): how far did the log come in leader epoch N?

A client or follower that knows offset and epoch of its position finds out whether the log still
holds what it has read. The answer is the largest epoch at or below the one asked, and where the
next one begins; for the current epoch that is the end of the log. An epoch that the log never heard
of is no error, but epoch and offset -1.

Every partition has its own error: 3 and 6 for one that is not there or not led here, 56 if its log
has failed, 74 and 75 if the client's *current* epoch is behind or ahead of ours. A partition that
is asked twice is answered twice.

Any handler thread; holds no lock: the epochs are one list that is replaced and never changed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from kbroker.errors import ErrorCode, KafkaError
from kbroker.handlers.services import led_replica
from kbroker.protocol.versions import is_flexible
from kbroker.protocol.wire import Reader, Writer
from kbroker.types import ApiKey

if TYPE_CHECKING:
    from kbroker.handlers.services import ColdRequest, Services

_SINCE_REPLICA_ID: Final = 3
UNKNOWN: Final = -1


class AskedPartition(NamedTuple):
    partition: int
    current_leader_epoch: int
    leader_epoch: int


class AskedTopic(NamedTuple):
    name: str
    partitions: list[AskedPartition]


class EpochEnd(NamedTuple):
    """One partition's answer."""

    partition: int
    code: ErrorCode
    leader_epoch: int = UNKNOWN
    end_offset: int = UNKNOWN


def decode(request: ColdRequest) -> list[AskedTopic]:
    version = request.api_version
    reader = Reader(request.body, flexible=is_flexible(ApiKey.OFFSET_FOR_LEADER_EPOCH, version))
    if version >= _SINCE_REPLICA_ID:
        reader.int32()  # a consumer's is -1; the leader answers whoever asks
    topics = []
    for _ in range(reader.array()):
        name = reader.string()
        partitions = []
        for _ in range(reader.array()):
            partitions.append(AskedPartition(reader.int32(), reader.int32(), reader.int32()))
            reader.tags()
        reader.tags()
        topics.append(AskedTopic(name, partitions))
    reader.tags()
    return topics


def handle(services: Services, request: ColdRequest) -> None:
    answers = [
        (topic.name, [_end(services, topic.name, partition) for partition in topic.partitions])
        for topic in decode(request)
    ]
    request.respond(encode(request.api_version, answers))


def _end(services: Services, topic: str, asked: AskedPartition) -> EpochEnd:
    try:
        replica = led_replica(services, topic, asked.partition, asked.current_leader_epoch)
    except KafkaError as error:
        return EpochEnd(asked.partition, error.code)
    epoch, end_offset = replica.epochs.end_offset_for(asked.leader_epoch, replica.log_end_offset)
    return EpochEnd(asked.partition, ErrorCode.NONE, epoch, end_offset)


def encode(version: int, answers: list[tuple[str, list[EpochEnd]]]) -> bytes:
    out = Writer(flexible=is_flexible(ApiKey.OFFSET_FOR_LEADER_EPOCH, version))
    out.int32(0)  # throttle time
    out.array(len(answers))
    for topic, ends in answers:
        out.string(topic)
        out.array(len(ends))
        for end in ends:
            out.int16(end.code)
            out.int32(end.partition)
            out.int32(end.leader_epoch)
            out.int64(end.end_offset)
            out.tags()
        out.tags()
    out.tags()
    return out.getvalue()


def failure(request: ColdRequest, code: ErrorCode, message: str) -> bytes:
    answers = [
        (topic.name, [EpochEnd(asked.partition, code) for asked in topic.partitions])
        for topic in decode(request)
    ]
    return encode(request.api_version, answers)
