"""The records of a log's files, of which only the new ones are read.

A record's value names the producer; in `__consumer_offsets` it is the group and the offset, in
`__transaction_state` and `__share_group_state` the whole record, and of a marker the outcome of the
transaction. Records that were truncated are forgotten, and those in their place are read. So a look
at a log after every step costs only its new records. Records that were deleted at its beginning
count as present.
"""

from __future__ import annotations

import itertools
import os
import struct
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from kbroker.coordinator.share import records as share_records
from kbroker.coordinator.share.images import SharePartition
from kbroker.coordinator.share.records import Value
from kbroker.coordinator.txn.image import Pair, TransactionImage
from kbroker.coordinator.txn.records import decode_key, decode_value
from kbroker.metadata.image import OFFSETS_TOPIC, SHARE_STATE_TOPIC, TRANSACTIONS_TOPIC
from tests.support.record_batches import build_batch

# Offset, size, epoch; attributes; producer, its epoch, sequence, records.
_HEAD = struct.Struct(">qii5xh20xqhii")
_TRANSACTIONAL, _CONTROL = 0x10, 0x20
_SIZE_COUNTS_FROM = 12
_LENGTH_AT = 5  # of the value, in a record without a key: one byte, twice the length
# At once; no batch is larger.
_READ_BYTES = 1 << 16
# A group with its members: the coordinator's own record, which no client has sent.
GROUP_STATE = b"group of "
# A tombstone of a commit: no client has sent it, either.
DELETED = b"deleted of "
# A record of a transactional id, and the end of a transaction.
TRANSACTION_STATE = b"transaction "
# The state of a share-partition, or a change of it.
SHARE_STATE = b"share state "
COMMIT, ABORT = b"marker commit ", b"marker abort "
_MARKER_TYPE_AT, _MARKER_EPOCH_AT = 7, 12  # in a record that is a marker
_OFFSET_KEY = 1
_SHORT, _LONG = struct.Struct(">h"), struct.Struct(">q")


class Record(NamedTuple):
    epoch: int
    value: bytes
    producer_id: int = -1
    sequence: int = -1
    producer_epoch: int = -1
    is_transactional: bool = False

    @property
    def is_marker(self) -> bool:
        return self.is_transactional and self.value.startswith((COMMIT, ABORT))


def batch_of(
    value: bytes,
    producer_id: int = -1,
    epoch: int = -1,
    sequence: int = -1,
    *,
    transactional: bool = False,
) -> bytes:
    """As a producer sends it: one record, which `Contents` reads again."""
    return build_batch(
        [value],
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=sequence,
        attributes=_TRANSACTIONAL if transactional else 0,
    )


def value_in(record: bytes) -> bytes:
    """Of a producer's record."""
    start = _LENGTH_AT + 1
    return record[start : start + (record[_LENGTH_AT] >> 1)]


def commit_in(record: bytes) -> bytes:
    """Of a record in `__consumer_offsets`: "group/offset", the group's state, or a deletion."""
    at = 3 if record[0] & 0x80 else 2  # its length, attributes
    at += 2  # times and offsets are those of the batch
    key, at = _sized(record, at)
    (version,) = _SHORT.unpack_from(key)
    group = key[4 : 4 + _SHORT.unpack_from(key, 2)[0]]
    if version != _OFFSET_KEY:
        return GROUP_STATE + group + record
    value, _ = _sized(record, at)
    if not value:
        return DELETED + group
    return b"%s/%d" % (group, _LONG.unpack_from(value, 2)[0])


def transaction_in(record: bytes) -> bytes:
    """Of a record in `__transaction_state`: the whole of it, which `transaction_of` reads."""
    return TRANSACTION_STATE + _whole(record)


def share_state_in(record: bytes) -> bytes:
    """Of a record in `__share_group_state`: the whole of it, which `share_state_of` reads."""
    return SHARE_STATE + _whole(record)


def _whole(record: bytes) -> bytes:
    at = 3 if record[0] & 0x80 else 2
    key, at = _sized(record, at + 2)
    value, _ = _sized(record, at)
    return _SHORT.pack(len(key)) + key + value


def transaction_of(value: bytes) -> tuple[str, TransactionImage | None]:
    """The id and its state; None: the id was forgotten."""
    key, state = _key_and_value(value, TRANSACTION_STATE)
    return decode_key(key), decode_value(state) if state else None


def share_state_of(value: bytes) -> tuple[SharePartition, Value | None]:
    """The share-partition, and its snapshot or an update; None: it was forgotten."""
    key, state = _key_and_value(value, SHARE_STATE)
    kind, share_partition = share_records.decode_key(key)
    return share_partition, share_records.decode_value(kind, state) if state else None


def _key_and_value(value: bytes, begins: bytes) -> tuple[bytes, bytes]:
    at = len(begins)
    (size,) = _SHORT.unpack_from(value, at)
    return value[at + 2 : at + 2 + size], value[at + 2 + size :]


def marker_in(record: bytes) -> bytes:
    committed = _SHORT.unpack_from(record, _MARKER_TYPE_AT)[0] == 1
    (epoch,) = struct.unpack_from(">i", record, _MARKER_EPOCH_AT)
    return (COMMIT if committed else ABORT) + b"of coordinator %d" % epoch


VALUES: dict[str, Callable[[bytes], bytes]] = {
    OFFSETS_TOPIC: commit_in,
    TRANSACTIONS_TOPIC: transaction_in,
    SHARE_STATE_TOPIC: share_state_in,
}


def _sized(record: bytes, at: int) -> tuple[bytes, int]:
    """Bytes that follow their length, empty where there are none; and the place after them."""
    length, start = _length(record, at)
    return record[start : start + length], start + length


def _length(data: bytes, at: int) -> tuple[int, int]:
    """A number of one byte or two, 0 for none; and the place after it."""
    number = data[at] & 0x7F
    if data[at] & 0x80:
        at += 1
        number |= data[at] << 7
    return (number >> 1 if not number & 1 else 0), at + 1


def is_of_the_coordinator(value: bytes) -> bool:
    """Whether it is a coordinator's record: the state of a group, of a transactional id or of a
    share-partition, a deletion, or a marker. Such a record may be there twice."""
    return value.startswith((GROUP_STATE, DELETED, TRANSACTION_STATE, SHARE_STATE, COMMIT, ABORT))


def records_in(data: bytes) -> list[tuple[int, Record]]:
    """A producer's, of whole batches and perhaps a part of one, by offset."""
    return [
        (batch.offset + index, record)
        for batch in _batches(data)
        for index, record in enumerate(batch.records(data, value_in))
    ]


def producer_of(data: bytes) -> tuple[Pair, int]:
    """Of a batch: its pair and its sequence."""
    batch = next(_batches(data))
    return Pair(batch.producer_id, batch.producer_epoch), batch.sequence


class _Batch(NamedTuple):
    offset: int
    epoch: int
    attributes: int
    producer_id: int
    producer_epoch: int
    sequence: int
    number: int
    start: int  # of its records
    end: int

    def records(self, data: bytes, value_of: Callable[[bytes], bytes]) -> Iterator[Record]:
        at = self.start
        is_transactional = bool(self.attributes & _TRANSACTIONAL)
        if self.attributes & _CONTROL:
            value_of = marker_in
        for index in range(self.number):
            length, begins = _length(data, at)
            sequence = self.sequence + index if self.sequence >= 0 else -1
            value = value_of(data[at : begins + length])
            yield Record(
                self.epoch,
                value,
                self.producer_id,
                sequence,
                self.producer_epoch,
                is_transactional,
            )
            at = begins + length


def _batches(data: bytes) -> Iterator[_Batch]:
    at = 0
    while at + _HEAD.size <= len(data):
        offset, size, epoch, attributes, *producer, count = _HEAD.unpack_from(data, at)
        end = at + _SIZE_COUNTS_FROM + size
        if end > len(data):
            break
        producer_id, producer_epoch, sequence = producer
        yield _Batch(
            offset, epoch, attributes, producer_id, producer_epoch, sequence, count,
            at + _HEAD.size, end,
        )  # fmt: skip
        at = end


class Contents:
    """The records of one log by offset. `committed`: those that it had before they were deleted."""

    def __init__(
        self,
        directory: Path,
        value_of: Callable[[bytes], bytes],
        committed: Sequence[Record],
    ) -> None:
        self.directory = directory
        self._path = str(directory)
        self.value_of = value_of
        self.records: list[Record] = []
        self._committed = committed
        # Where each ends: its segment's base offset and a position in that file.
        self._ends: list[tuple[int, int]] = []

    def follow(self, end_offset: int) -> list[Record]:
        """Returns the new records of a log that ends there now."""
        del self.records[end_offset:], self._ends[end_offset:]
        known = len(self.records)
        base, position = self._ends[-1] if self._ends else (0, 0)
        while len(self.records) < end_offset:
            before = len(self.records)
            if not self._read(base, position, end_offset) and base == before:
                self._begin_later(end_offset)
                if len(self.records) == before:
                    self._begin_within(before)
            if len(self.records) == before:
                if base == before:
                    raise AssertionError(f"{self.directory}: no batch at offset {before}")
                base, position = before, 0
            else:
                base, position = self._ends[-1]
        return self.records[known:]

    def begins_at(self, offset: int) -> None:
        """The records below were deleted. A log that begins again there may have had other ones."""
        self.records[:offset] = self._committed[:offset]
        self._ends += [(offset, 0)] * (offset - len(self._ends))

    def place_of(self, offset: int) -> tuple[int, int]:
        """The base offset of the segment in which it begins or the log ends, and the position."""
        return self._ends[offset - 1] if offset else (0, 0)

    def _read(self, base: int, position: int, end_offset: int) -> bool:
        """False: there is no such file."""
        try:
            file = os.open(f"{self._path}/{base:020d}.log", os.O_RDONLY)
        except FileNotFoundError:
            return False
        try:
            data = os.pread(file, _READ_BYTES, position)
        finally:
            os.close(file)
        for batch in _batches(data):
            if len(self.records) >= end_offset:
                break
            if batch.offset != len(self.records):
                raise AssertionError(
                    f"{self.directory}: offset {batch.offset} where {len(self.records)} should be"
                )
            self.records += batch.records(data, self.value_of)
            self._ends += [(base, position + batch.end)] * batch.number
        return True

    def _begin_within(self, known: int) -> None:
        """The log begins within the first batch of a file, since records were deleted up to there
        before its broker had it."""
        bases = [int(path.stem) for path in self.directory.glob("*.log")]
        base = max((each for each in bases if each < known), default=known)
        data = (self.directory / f"{base:020d}.log").read_bytes()[:_READ_BYTES]
        for batch in itertools.islice(_batches(data), 1):
            found = list(batch.records(data, self.value_of))[known - base :]
            self.records += found
            self._ends += [(base, batch.end)] * len(found)

    def _begin_later(self, end_offset: int) -> None:
        """Segments up to the first that is there were deleted."""
        known = len(self.records)
        bases = [int(path.stem) for path in self.directory.glob("*.log")]
        first = min((each for each in bases if known < each <= end_offset), default=known)
        self.records += self._committed[known:first]
        self._ends += [(first, 0)] * (len(self.records) - known)
