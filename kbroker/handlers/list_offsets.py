"""ListOffsets (2): where a partition begins and ends, and which offset a moment has.

A request names a timestamp per partition; the negative ones are questions of their own, each known
from some version on. "Latest" is the high watermark for a consumer, the end of the log for a
replica. A timestamp is answered by the first record (not batch) below the high watermark that is
not older, with that record's own timestamp; if there is none, the offset is -1 without an error. A
new leader does not know up to which offset the former leader has answered consumers until its high
watermark has reached the start of its epoch. Until then the error is 78 (5 in versions without it),
or a consumer would see the end go back.

Every partition has its own error: 42, once, if the request names it twice, 35 for a question that
its version does not have, 3, 6 and 56 for a partition that is not there, not led or not readable
here, 74 and 75 if the client's leader epoch is older or newer than ours.

Any handler thread. A search by time may read an index and a few KB of a segment; it holds no lock
of ours meanwhile.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final, NamedTuple

from kbroker.errors import ErrorCode, KafkaError
from kbroker.handlers.authorization import denied, is_a_broker
from kbroker.handlers.services import NO_LEADER_EPOCH, led_replica
from kbroker.protocol import messages
from kbroker.security.rights import Operation, ResourceType

if TYPE_CHECKING:
    from kbroker.handlers.call import Call
    from kbroker.handlers.services import LedReplica, Services
    from kbroker.protocol.messages.list_offsets import (
        ListOffsetsPartition,
        ListOffsetsPartitionResponse,
        Request,
    )
    from kbroker.types import TopicPartition

LATEST: Final = -1
EARLIEST: Final = -2
MAX_TIMESTAMP: Final = -3
EARLIEST_LOCAL: Final = -4
LATEST_TIERED: Final = -5
EARLIEST_PENDING_UPLOAD: Final = -6

# The version that brought each question (KIP-734, KIP-405, KIP-1005, KIP-1023).
_SINCE: Final = {
    LATEST: 1,
    EARLIEST: 1,
    MAX_TIMESTAMP: 7,
    EARLIEST_LOCAL: 8,
    LATEST_TIERED: 9,
    EARLIEST_PENDING_UPLOAD: 11,
}
_SINCE_NOT_AVAILABLE: Final = 5

CONSUMER: Final = -1
READ_COMMITTED: Final = 1
_ISOLATION_LEVELS: Final = (0, READ_COMMITTED)
UNKNOWN: Final = -1


class Found(NamedTuple):
    """One partition's answer."""

    code: ErrorCode
    offset: int = UNKNOWN
    timestamp: int = UNKNOWN
    leader_epoch: int = UNKNOWN


_NOTHING: Final = Found(ErrorCode.NONE)
_HIDDEN: Final = Found(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
_TWICE: Final = Found(ErrorCode.INVALID_REQUEST)
_NEVER_TWICE: Final[frozenset[tuple[str, int]]] = frozenset()


def handle(services: Services, call: Call[Request]) -> None:
    table = messages.list_offsets
    request = call.message
    if request.isolation_level not in _ISOLATION_LEVELS:
        raise KafkaError(ErrorCode.INVALID_REQUEST)
    twice = _named_twice(request)
    result = table.ListOffsetsPartitionResponse
    names = [topic.name for topic in request.topics]
    hidden: frozenset[str] = frozenset()
    if not is_a_broker(services, call):  # which asks for the lag of a share group
        hidden = denied(services, call, Operation.DESCRIBE, ResourceType.TOPIC, names)
    topics = []
    for topic in request.topics:
        name = topic.name
        found: dict[int, ListOffsetsPartitionResponse] = {}
        for partition in topic.partitions:
            index = partition.partition_index
            if name in hidden:
                code, offset, timestamp, epoch = _HIDDEN
            elif twice and (name, index) in twice:
                code, offset, timestamp, epoch = _TWICE
            else:
                code, offset, timestamp, epoch = _find(services, call, name, partition)
            found[index] = result(
                partition_index=index,
                error_code=code,
                timestamp=timestamp,
                offset=offset,
                leader_epoch=epoch,
            )
        topics.append(table.ListOffsetsTopicResponse(name=name, partitions=list(found.values())))
    call.answer(table.Response(topics=topics))


def _named_twice(request: Request) -> frozenset[tuple[str, int]]:
    """The partitions that it names more than once."""
    if len(request.topics) == 1 and len(request.topics[0].partitions) == 1:
        return _NEVER_TWICE
    times = Counter((t.name, p.partition_index) for t in request.topics for p in t.partitions)
    return frozenset(place for place, count in times.items() if count > 1)


def latest_offset(services: Services, place: TopicPartition) -> int | ErrorCode:
    """The end of a partition that this broker leads, for consumers; or why it is not known."""
    try:
        replica = led_replica(services, place.topic, place.partition, NO_LEADER_EPOCH)
        found = _find_on(replica, LATEST, is_consumer=True, reads_committed=False)
    except KafkaError as error:
        return error.code
    return ErrorCode.OFFSET_NOT_AVAILABLE if found is None else found.offset


def _find(
    services: Services, call: Call[Request], topic: str, partition: ListOffsetsPartition
) -> Found:
    timestamp = partition.timestamp
    version = call.version
    if timestamp < 0 and version < _SINCE.get(timestamp, version + 1):
        return Found(ErrorCode.UNSUPPORTED_VERSION)
    try:
        replica = led_replica(
            services, topic, partition.partition_index, partition.current_leader_epoch
        )
        found = _find_on(
            replica,
            timestamp,
            is_consumer=call.message.replica_id == CONSUMER,
            reads_committed=call.message.isolation_level == READ_COMMITTED,
        )
    except KafkaError as error:
        return Found(error.code)
    if found is not None:
        return found
    if version < _SINCE_NOT_AVAILABLE:
        return Found(ErrorCode.LEADER_NOT_AVAILABLE)
    return Found(ErrorCode.OFFSET_NOT_AVAILABLE)


def _find_on(
    replica: LedReplica, timestamp: int, *, is_consumer: bool, reads_committed: bool
) -> Found | None:
    """None: it is not known yet."""
    end = replica.log_end_offset
    if is_consumer:
        end = replica.last_stable_offset if reads_committed else replica.high_watermark
    if timestamp == LATEST:
        if is_consumer and not _has_caught_up(replica):
            return None
        return Found(ErrorCode.NONE, end, UNKNOWN, replica.leader_epoch)
    if timestamp in (EARLIEST, EARLIEST_LOCAL):
        start = replica.log_start_offset
        return Found(ErrorCode.NONE, start, UNKNOWN, replica.epochs.epoch_at(start))
    if timestamp in (LATEST_TIERED, EARLIEST_PENDING_UPLOAD):
        return _NOTHING
    if timestamp == MAX_TIMESTAMP:
        # Of records without a time, which have none, the first is named.
        record = replica.offset_of_max_timestamp() or replica.offset_for_time(UNKNOWN)
    else:
        record = replica.offset_for_time(timestamp)
    if record is not None and is_consumer and reads_committed and record[0] >= end:
        record = None  # it may be of a transaction that is open
    if record is None:
        return _NOTHING if not is_consumer or _has_caught_up(replica) else None
    offset, record_timestamp, leader_epoch = record
    return Found(ErrorCode.NONE, offset, record_timestamp, leader_epoch)


def _has_caught_up(replica: LedReplica) -> bool:
    """Whether the high watermark has reached the start of the leader's epoch."""
    before = replica.leader_epoch - 1
    _, start = replica.epochs.end_offset_for(before, replica.log_end_offset)
    return replica.high_watermark >= start
