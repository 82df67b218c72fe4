"""Fetch as a follower asks it of its leader, version 17: partitions by topic id, epochs, positions.

Other than a consumer's (`messages.py`) it names the broker that asks, with the epoch of its
registration (KIP-903), the leader epoch it believes in (KIP-320), the epoch of its last batch, to
which the leader may answer that it knows a different history (KIP-595), and its log's start. The
records of an answer are views of the frame that came in, and keep it as long as they live.

It has ListOffsets too, by which a follower asks where its leader's log begins and ends.

Pure functions, any thread. The Reader checks a response's sizes and counts: `ProtocolError`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final, NamedTuple
from uuid import UUID

from kbroker.errors import ErrorCode, KafkaError
from kbroker.peer.messages import error_code, write_by_topic
from kbroker.protocol.wire import Reader, Writer
from kbroker.types import TopicPartition

FETCH_VERSION: Final = 17
LIST_OFFSETS_VERSION: Final = 7

NO_SESSION_ID: Final = 0
# Of a session: of the full request that begins it, and of a request outside of any.
INITIAL_EPOCH: Final = 0
FINAL_EPOCH: Final = -1

_REPLICA_STATE_TAG: Final = 1
_DIVERGING_EPOCH_TAG: Final = 0


class Asked(NamedTuple):
    """One partition of a request."""

    topic_id: UUID
    partition: int
    leader_epoch: int
    fetch_offset: int
    last_fetched_epoch: int
    log_start_offset: int


class FetchMetadata(NamedTuple):
    """Which request of which session this is."""

    session_id: int
    epoch: int


WITHOUT_SESSION: Final = FetchMetadata(NO_SESSION_ID, FINAL_EPOCH)


class Fetched(NamedTuple):
    """One partition of an answer; offsets are -1 where the leader does not say them."""

    topic_id: UUID | None
    partition: int
    error: ErrorCode
    high_watermark: int
    log_start_offset: int
    diverging: tuple[int, int] | None  # epoch, end offset
    records: memoryview | None


class FetchAnswer(NamedTuple):
    session_id: int
    partitions: list[Fetched]


class FetchLimits(NamedTuple):
    """How long a request may wait, for how much, and what it may bring."""

    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    partition_max_bytes: int


def encode_fetch(
    replica_id: int,
    broker_epoch: int,
    asked: Mapping[UUID, Sequence[Asked]],
    bounds: FetchLimits,
    metadata: FetchMetadata = WITHOUT_SESSION,
    forgotten: Mapping[UUID, Sequence[int]] = MappingProxyType({}),
) -> bytes:
    """The topics in the order of the mappings. `forgotten`: of the session, by their partitions."""
    writer = Writer(flexible=True)
    writer.int32(bounds.max_wait_ms)
    writer.int32(bounds.min_bytes)
    writer.int32(bounds.max_bytes)
    writer.int8(0)  # isolation level: a follower reads up to the log's end
    writer.int32(metadata.session_id)
    writer.int32(metadata.epoch)
    writer.array(len(asked))
    for topic_id, partitions in asked.items():
        writer.uuid(topic_id)
        writer.array(len(partitions))
        for each in partitions:
            writer.int32(each.partition)
            writer.int32(each.leader_epoch)
            writer.int64(each.fetch_offset)
            writer.int32(each.last_fetched_epoch)
            writer.int64(each.log_start_offset)
            writer.int32(bounds.partition_max_bytes)
            writer.tags()
        writer.tags()
    writer.array(len(forgotten))
    for topic_id, indexes in forgotten.items():
        writer.uuid(topic_id)
        writer.array(len(indexes))
        for index in indexes:
            writer.int32(index)
        writer.tags()
    writer.string("")  # rack
    state = Writer(flexible=True)
    state.int32(replica_id)
    state.int64(broker_epoch)
    state.tags()
    writer.tags({_REPLICA_STATE_TAG: state.getvalue()})
    return writer.getvalue()


def decode_fetch(reader: Reader) -> FetchAnswer:
    """KafkaError: the leader refuses the request as a whole."""
    reader.int32()  # throttle time
    error = error_code(reader.int16())
    session_id = reader.int32()
    if error is not ErrorCode.NONE:
        raise KafkaError(error, "the leader refused the fetch")
    found: list[Fetched] = []
    for _ in range(reader.array()):
        topic_id = reader.uuid()
        for _ in range(reader.array()):
            found.append(_decode_partition(reader, topic_id))
        reader.tags()
    reader.tags()
    return FetchAnswer(session_id, found)


def _decode_partition(reader: Reader, topic_id: UUID | None) -> Fetched:
    partition = reader.int32()
    error = error_code(reader.int16())
    high_watermark = reader.int64()
    reader.int64()  # last stable offset: its own log tells a follower
    log_start_offset = reader.int64()
    for _ in range(reader.nullable_array() or 0):
        reader.raw(16)  # an aborted transaction: for consumers
        reader.tags()
    reader.int32()  # preferred read replica: for consumers
    records = reader.nullable_view()
    diverging: list[tuple[int, int]] = []

    def diverged(tag: Reader) -> None:
        diverging.append((tag.int32(), tag.int64()))
        tag.tags()

    reader.tags({_DIVERGING_EPOCH_TAG: diverged})
    return Fetched(
        topic_id,
        partition,
        error,
        high_watermark,
        log_start_offset,
        diverging[0] if diverging and min(diverging[0]) >= 0 else None,
        records,
    )


# --- where the leader's log begins and ends -------------------------------------------------------


def encode_list_offsets(
    replica_id: int, leader_epochs: Mapping[TopicPartition, int], timestamp: int
) -> bytes:
    """Asked by a replica: the latest offset is the log's end and not the high watermark.

    `messages.decode_list_offsets` reads the answer.
    """
    writer = Writer(flexible=True)
    writer.int32(replica_id)
    writer.int8(0)  # isolation level

    def partition(where: TopicPartition) -> None:
        writer.int32(leader_epochs[where])
        writer.int64(timestamp)

    write_by_topic(writer, leader_epochs, partition)
    writer.tags()
    return writer.getvalue()
