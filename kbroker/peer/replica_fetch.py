"""Fetch as a follower asks it of its leader, version 17: partitions by topic id, epochs, positions.

Other than a consumer's (`messages.py`) it names the broker that asks, with the epoch of its
registration (KIP-903), the leader epoch it believes in (KIP-320), the epoch of its last batch, to
which the leader may answer that it knows a different history (KIP-595), and its log's start. The
records of an answer are views of the frame that came in, and keep it as long as they live.

`_replica_fetch.pyx` writes the request and reads the response. ListOffsets is here, by which a
follower asks where its leader's log begins and ends.

Pure functions, any thread.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple
from uuid import UUID

from kbroker.errors import ErrorCode
from kbroker.peer.messages import write_by_topic
from kbroker.protocol.wire import Writer
from kbroker.types import TopicPartition

FETCH_VERSION: Final = 17
LIST_OFFSETS_VERSION: Final = 7

NO_SESSION_ID: Final = 0
# Of a session: of the full request that begins it, and of a request outside of any.
INITIAL_EPOCH: Final = 0
FINAL_EPOCH: Final = -1


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

    topic: int  # the number of its id: a UUID takes a microsecond to make
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
