"""A partition's log, read from outside with ordinary fetches, so that any broker will do.

For commands that make a history from the log (`txn explain`, `group why`, `share explain`) and for
the console's messages. Owner: the client's thread.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final, NamedTuple

from kbroker.errors import ErrorCode, KafkaError
from kbroker.protocol.record_batch import BATCH_HEADER, HEADER_BYTES, LOG_OVERHEAD_BYTES
from kbroker.protocol.wire import ProtocolError

if TYPE_CHECKING:
    from kbroker.peer.client import Client
    from kbroker.types import TopicPartition

_FETCH_WAIT_MS: Final = 100


class Header(NamedTuple):
    """Of a batch, which is at `begin` to `end`."""

    begin: int
    end: int
    offset: int
    last_offset_delta: int
    attributes: int
    time_ms: int
    producer_id: int
    epoch: int
    records: int


def headers(data: bytes) -> Iterator[Header]:
    """Of the whole batches; their records are not unpacked."""
    begin = 0
    while len(data) - begin >= HEADER_BYTES:
        fields = BATCH_HEADER.unpack_from(data, begin)
        count = fields[12]
        end = begin + LOG_OVERHEAD_BYTES + fields[1]
        if fields[1] < HEADER_BYTES - LOG_OVERHEAD_BYTES:
            raise ProtocolError(f"a batch of {fields[1]} bytes is shorter than its header")
        if end > len(data):
            return
        yield Header(
            begin, end, fields[0], fields[6], fields[5], fields[8], fields[9], fields[10], count
        )
        begin = end


def offset_at(client: Client, place: TopicPartition, timestamp_ms: int) -> int:
    """Of a time, or of EARLIEST_TIMESTAMP and LATEST_TIMESTAMP."""
    answer = client.list_offsets({place: timestamp_ms})[place]
    if answer.error is not ErrorCode.NONE:
        raise KafkaError(answer.error, str(place))
    return answer.offset


def pieces(
    client: Client, place: TopicPartition, start: int, end: int, bytes_max: int | None = None
) -> Iterator[bytes]:
    """The log's bytes from one offset to another, in whole batches."""
    from kbroker.clock import NS_PER_MS

    searched = 0
    clock = client.cluster.clock
    deadline_ns = clock.monotonic_ns() + client.cluster.timeout_ms * NS_PER_MS
    while start < end:
        answer = client.fetch({place: start}, max_wait_ms=_FETCH_WAIT_MS).get(place)
        if answer is None:
            if clock.monotonic_ns() > deadline_ns:
                raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, f"{place} cannot be read")
            continue
        if answer.error is not ErrorCode.NONE:
            raise KafkaError(answer.error, str(place))
        following = start
        for header in headers(answer.records):
            following = header.offset + header.last_offset_delta + 1
        if following <= start:
            return  # nothing more is readable
        yield answer.records
        searched += len(answer.records)
        if bytes_max is not None and searched >= bytes_max:
            raise KafkaError(
                ErrorCode.REQUEST_TIMED_OUT, f"read from {start} on: {searched} bytes, not to {end}"
            )
        start = following
        deadline_ns = clock.monotonic_ns() + client.cluster.timeout_ms * NS_PER_MS
