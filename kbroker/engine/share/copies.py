"""Copies of records for a dead-letter topic, as one batch (KIP-1191).

A copy says by its headers which record it is of, and why the group has given that up. With
errors.deadletterqueue.copy.record.enable it has the record's key, value and headers as well, and
the headers of its own come after them. What does not fit into the topic's largest batch, or cannot
be read, is a copy without them; a header says so. Its timestamp is the time of the copy: the topic
keeps it for as long as it keeps other records.

A wanted offset at which the log has no record, or a marker of a transaction, has no copy.

Pure. A batch has SHARE_DEAD_LETTER_BYTES_MAX at most, or one record.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from kbroker.compression import unpacked_bytes_max
from kbroker.engine.share.figures import REASONS
from kbroker.engine.share.reading import Batch, batches_in
from kbroker.limits import SHARE_DEAD_LETTER_BYTES_MAX
from kbroker.protocol.record_batch import (
    CONTROL,
    HEADER_BYTES,
    Headers,
    Record,
    encode_batch,
    open_batch,
)
from kbroker.protocol.wire import ProtocolError
from kbroker.replica.share.partition import ToCopy
from kbroker.replica.share.states import Event
from kbroker.types import TopicPartition

_PREFIX: Final = "__dlq.errors."
REASON: Final = "kb-dead-letter-reason"
LEFT_OUT: Final = "kb-dead-letter-left-out"
TOO_LARGE: Final = "too large"
UNREADABLE: Final = "unreadable"
# The values of __dlq.errors.message in Apache Kafka 4.4: programs tell the two apart by them.
_REJECTED: Final = "Offset rejected by client."
_DELIVERED_TOO_OFTEN: Final = "Offset delivery count exceeded the threshold."
# A record's lengths and deltas, and a header's lengths, at most.
_RECORD_BYTES: Final = 40
_HEADER_BYTES: Final = 10


class Context(NamedTuple):
    """What all copies of a share-partition have in common."""

    group_id: str
    place: TopicPartition
    deliveries_max: int
    is_whole: bool  # with key, value and headers
    bytes_max: int  # of a batch
    now_ms: int


class Copies(NamedTuple):
    """`batch`: empty where there is nothing to copy. `reached`: all that is wanted up to there is
    in it, as far as it is a record."""

    batch: bytes
    copied: int
    left_out: int  # of them, without key, value and headers against the group's wish
    reached: int


def copies_of(data: bytes, wanted: Sequence[ToCopy], context: Context) -> Copies:
    """`data`: whole batches of the log, from the one with the first wanted offset on."""
    enough = min(context.bytes_max, SHARE_DEAD_LETTER_BYTES_MAX)
    made: list[Record] = []
    size, left_out, reached = HEADER_BYTES, 0, wanted[0].first_offset - 1
    for batch in batches_in(data):
        for run, record, reason in _found(data, batch, wanted):
            copy, is_left_out = _copy(run, record, reason, context)
            bytes_more = _size(copy)
            if made and size + bytes_more > enough:
                return Copies(encode_batch(made), len(made), left_out, reached)
            made.append(copy)
            size += bytes_more
            left_out += is_left_out
            reached = record.offset
        reached = batch.last_offset
        if reached >= wanted[-1].last_offset:
            break
    return Copies(encode_batch(made) if made else b"", len(made), left_out, reached)


def _found(
    data: bytes, batch: Batch, wanted: Sequence[ToCopy]
) -> Iterator[tuple[ToCopy, Record, str]]:
    """Those of the batch, in order; and why one has no key, value and headers, or nothing."""
    runs = [
        run
        for run in wanted
        if run.first_offset <= batch.last_offset and run.last_offset >= batch.base_offset
    ]
    if not runs or batch.attributes & CONTROL:
        return
    piece = data[batch.begins : batch.ends]
    after = batch.base_offset
    try:
        for record in open_batch(piece, unpacked_bytes_max(len(piece))).records():
            after = record.offset + 1
            run = next((each for each in runs if each.last_offset >= record.offset), None)
            if run is None:
                return
            if run.first_offset <= record.offset:
                yield run, record, ""
    except ProtocolError:
        for run in runs:
            first = max(run.first_offset, after)
            for offset in range(first, min(run.last_offset, batch.last_offset) + 1):
                yield run, Record(None, None, offset=offset), UNREADABLE


def _copy(run: ToCopy, record: Record, reason: str, context: Context) -> tuple[Record, bool]:
    """And whether it lacks what it should have."""
    own = _own_headers(run, record.offset, context)
    if context.is_whole and not reason:
        copy = Record(record.key, record.value, record.headers + own, context.now_ms, record.offset)
        if HEADER_BYTES + _size(copy) <= context.bytes_max:
            return copy, False
        reason = TOO_LARGE
    is_left_out = context.is_whole
    if is_left_out:
        own += ((LEFT_OUT, reason.encode()),)
    return Record(None, None, own, context.now_ms, record.offset), is_left_out


def _own_headers(run: ToCopy, offset: int, context: Context) -> Headers:
    """As KIP-1191 names them, and the reason in the words of our metric. After a change of the
    leader the cause is not known: then the count says it, as in Apache Kafka 4.4."""
    is_rejected = run.cause is Event.REJECT
    if run.cause is None:
        is_rejected = run.delivery_count < context.deliveries_max
    values = {
        f"{_PREFIX}topic": context.place.topic,
        f"{_PREFIX}partition": str(context.place.partition),
        f"{_PREFIX}offset": str(offset),
        f"{_PREFIX}group": context.group_id,
        f"{_PREFIX}delivery.count": str(run.delivery_count),
        f"{_PREFIX}message": _REJECTED if is_rejected else _DELIVERED_TOO_OFTEN,
    }
    if run.cause is not None:
        values[REASON] = REASONS[run.cause]
    return tuple((name, value.encode()) for name, value in values.items())


def _size(record: Record) -> int:
    """Of the record in a batch, at most."""
    size = _RECORD_BYTES + len(record.key or b"") + len(record.value or b"")
    for name, value in record.headers:
        size += _HEADER_BYTES + len(name.encode()) + len(value or b"")
    return size
