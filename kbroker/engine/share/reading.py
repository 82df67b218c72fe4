"""Batches for a share-partition: a read of the log, and which of them a group does not get.

A group that reads committed records only gets no batch of an aborted transaction, and reads up to
the last stable offset; the bytes of such batches are sent nevertheless, between others. The markers
of transactions are batches like others: a client finds no record there, and says so.

Waits for the disk, so it is called by handlers only, and under no lock.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

from kbroker.protocol.record_batch import (
    BATCH_HEADER,
    CONTROL,
    LOG_OVERHEAD_BYTES,
    TRANSACTIONAL,
)
from kbroker.replica.share.acquiring import Acquired, LogBatch

_BASE, _LENGTH, _ATTRIBUTES, _LAST_DELTA, _PRODUCER = 0, 1, 5, 6, 9


class Log(Protocol):
    """A replica that leads."""

    def read(
        self,
        offset: int,
        max_bytes: int = ...,
        *,
        whole_first: bool = ...,
        read_committed: bool = ...,
    ) -> bytes: ...


# (log, offset, bytes at most): (producer id, first offset) of aborted transactions that may have
# records there.
Aborted = Callable[[Any, int, int], Sequence[tuple[int, int]]]


class Batch(NamedTuple):
    """One in the bytes that were read."""

    base_offset: int
    last_offset: int
    begins: int
    ends: int
    attributes: int
    producer_id: int


class Read(NamedTuple):
    data: bytes
    batches: list[Batch]
    found: list[LogBatch]
    aborted: list[LogBatch]

    def slice(self, acquired: Sequence[Acquired]) -> bytes:
        """From the batch with the first acquired record to the one with the last, whole."""
        if not acquired:
            return b""
        first, last = acquired[0].first_offset, acquired[-1].last_offset
        parts = [each for each in self.batches if each.last_offset >= first]
        parts = [each for each in parts if each.base_offset <= last]
        if not parts:
            return b""
        begins, ends = parts[0].begins, parts[-1].ends
        return self.data if ends - begins == len(self.data) else self.data[begins:ends]


def read(log: Log, offset: int, max_bytes: int, aborted: Aborted, *, is_committed: bool) -> Read:
    """The batches from the one with this offset on: one at least, if the group may read it.
    KafkaError."""
    data = log.read(offset, max_bytes, whole_first=True, read_committed=is_committed)
    batches = batches_in(data)
    found = [LogBatch(each.base_offset, each.last_offset) for each in batches]
    if not is_committed or not any(each.attributes & TRANSACTIONAL for each in batches):
        return Read(data, batches, found, [])
    listed = aborted(log, offset, max_bytes)
    return Read(data, batches, found, _aborted_in(batches, listed))


def batches_in(data: bytes) -> list[Batch]:
    """The whole batches in bytes of the log."""
    batches: list[Batch] = []
    at, size = 0, len(data)
    while at + BATCH_HEADER.size <= size:
        head = BATCH_HEADER.unpack_from(data, at)
        ends = at + LOG_OVERHEAD_BYTES + head[_LENGTH]
        if ends > size or ends <= at + LOG_OVERHEAD_BYTES:
            break
        base = head[_BASE]
        batches.append(
            Batch(base, base + head[_LAST_DELTA], at, ends, head[_ATTRIBUTES], head[_PRODUCER])
        )
        at = ends
    return batches


def _aborted_in(batches: Sequence[Batch], listed: Sequence[tuple[int, int]]) -> list[LogBatch]:
    """A transaction's batches lie between its first offset and its marker. That is the producer's
    next one, and is not opened: compaction may have left it no record, and where its bytes are
    damaged the records of transactions after it are not aborted either."""
    left = sorted(listed, key=lambda each: each[1], reverse=True)
    aborting: set[int] = set()
    found: list[LogBatch] = []
    for batch in batches:
        while left and left[-1][1] <= batch.last_offset:
            aborting.add(left.pop()[0])
        if not batch.attributes & TRANSACTIONAL or batch.producer_id not in aborting:
            continue
        if batch.attributes & CONTROL:
            aborting.discard(batch.producer_id)
        else:
            found.append(LogBatch(batch.base_offset, batch.last_offset))
    return found
