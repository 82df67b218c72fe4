"""Records of a partition by ordinary fetches from its leader, newest first or oldest first.

Newest first, a partition is read in windows of offsets, each one below the last: a fetch begins at
the window's first offset and has to come as far as its end. Where it has more bytes than a fetch
brings, the window becomes smaller; where it has few or none, as after compaction, larger. So a gap
of millions of offsets costs a dozen fetches, and none waits for records. A window begins with a
whole batch, which is read once.

All records are hostile: a batch unpacks to a bounded size and number, one that cannot be read costs
its row, and a reader holds a bounded number of bytes. A `Budget` ends the reading; it goes on later
from `position`. Owner: the console's thread.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Final, NamedTuple

from kbroker.clock import NS_PER_MS
from kbroker.compression import Codec
from kbroker.console.drawing import HEADERS_MAX
from kbroker.errors import ErrorCode, KafkaError
from kbroker.peer.isolation import READ_COMMITTED, Aborted
from kbroker.peer.log_reading import Header, headers
from kbroker.peer.messages import EARLIEST_TIMESTAMP
from kbroker.protocol.record_batch import (
    CONTROL,
    TRANSACTIONAL,
    OpenBatch,
    Record,
    RecordBatch,
    open_batch,
)
from kbroker.protocol.wire import ProtocolError

if TYPE_CHECKING:
    from kbroker.clock import Clock
    from kbroker.console.search import Filters
    from kbroker.peer.client import Client
    from kbroker.peer.messages import FetchResult
    from kbroker.types import TopicPartition

# Of one batch. A larger one is a row that says so.
UNPACKED_BYTES_MAX: Final = 16 * 1024 * 1024
BATCH_RECORDS_MAX: Final = 200_000
RECORD_HEADERS_MAX: Final = 10_000
# Of the filters for one batch.
BATCH_MS_MAX: Final = 2_000
# Between two pauses of the thread.
RECORDS_AT_ONCE: Final = 200
FIRST_WINDOW_OFFSETS: Final = 64
WINDOW_OFFSETS_MAX: Final = 1 << 40
_FETCH_TRIES: Final = 3
_MARKERS: Final = {0: "abort", 1: "commit"}
_MARKER_BYTES_MAX: Final = 1024
_OBJECT_BYTES: Final = 400  # of a record beside its payloads, about


class LateBatch(Exception):
    """The filters have taken their time for one batch."""


class Budget:
    """How far one page may look. `over` is asked between batches; within one, its filters have
    BATCH_MS_MAX, however little of the page's time is left: so each search gets past each batch."""

    def __init__(self, clock: Clock, *, records: int, data_bytes: int, time_ms: int) -> None:
        self.records = 0
        self.data_bytes = 0
        self._clock: Final = clock
        self._records_max: Final = records
        self._bytes_max: Final = data_bytes
        self._deadline_ns: Final = clock.monotonic_ns() + time_ms * NS_PER_MS
        self._batch_deadline_ns = self._deadline_ns

    @property
    def over(self) -> bool:
        return (
            self.records >= self._records_max
            or self.data_bytes >= self._bytes_max
            or self._clock.monotonic_ns() >= self._deadline_ns
        )

    def looked(self, records: int, data_bytes: int) -> None:
        self.records += records
        self.data_bytes += data_bytes

    def begin_batch(self) -> None:
        self._batch_deadline_ns = self._clock.monotonic_ns() + BATCH_MS_MAX * NS_PER_MS

    def check_batch(self) -> None:
        """Raises LateBatch."""
        if self._clock.monotonic_ns() >= self._batch_deadline_ns:
            raise LateBatch


class Found(NamedTuple):
    """A record that is asked for, the marker of a transaction, or a batch that cannot be read.

    `record`'s payloads may be cut; -1 is the size of a null. `text`: of a marker, or why a batch
    cannot be read."""

    partition: int
    offset: int
    timestamp_ms: int
    record: Record | None
    key_bytes: int = -1
    value_bytes: int = -1
    text: str = ""


class Reading(NamedTuple):
    """How records are read. `payload_bytes_max`: of each key, value and header what is kept; None:
    all. `want`: how many records are enough at a time; `held_bytes_max`: how many bytes."""

    client: Client
    isolation: int
    markers: bool
    filters: Filters
    budget: Budget
    pause: Callable[[], None]
    want: int
    held_bytes_max: int
    payload_bytes_max: int | None
    fetch_bytes: int


class _Part(NamedTuple):
    """A batch of an answer, and whether its records were never committed."""

    header: Header
    data: bytes
    aborted: bool

    @property
    def last_offset(self) -> int:
        return self.header.offset + max(self.header.last_offset_delta, 0)


class PartitionReader(ABC):
    """What both directions share: the offsets from `low` on and below `high` are to be looked at.

    `found`: what was found there and is not taken yet, in the direction's order.
    """

    def __init__(self, reading: Reading, where: TopicPartition, low: int, high: int) -> None:
        self.where: Final = where
        self.found: deque[Found] = deque()
        self.low = low
        self.high = max(low, high)
        self._reading: Final = reading
        self._held_bytes = 0

    @property
    def is_over(self) -> bool:
        """Whether nothing is left to look at."""
        return self.low >= self.high

    @property
    @abstractmethod
    def position(self) -> int:
        """Where another reader goes on, after the records that were taken."""

    @abstractmethod
    def read_on(self) -> None:
        """One step: a fetch, and what is in it up to the bounds."""

    def take(self) -> Found:
        """The next one of `found`."""
        found = self.found.popleft()
        self._held_bytes -= _size(found)
        return found

    @property
    def _is_full(self) -> bool:
        reading = self._reading
        return bool(self.found) and (
            len(self.found) >= reading.want or self._held_bytes >= reading.held_bytes_max
        )

    def _fetch(self, offset: int, data_bytes: int) -> list[_Part] | None:
        """The whole batches from the one with this offset on, or after it; none: there are none.
        None: the log has no such offset any more; `low` is where it begins now."""
        reading = self._reading
        for _ in range(_FETCH_TRIES):
            reading.pause()
            answer = reading.client.fetch(
                {self.where: offset},
                max_wait_ms=0,
                max_bytes=data_bytes,
                partition_max_bytes=data_bytes,
                isolation=reading.isolation,
            ).get(self.where)
            if answer is not None:
                break
        else:
            raise KafkaError(ErrorCode.LEADER_NOT_AVAILABLE, f"{self.where} has no leader now")
        if answer.error is ErrorCode.OFFSET_OUT_OF_RANGE:
            self._begin_later(offset)
            return None
        if answer.error is not ErrorCode.NONE:
            raise KafkaError(answer.error, str(self.where))
        return parts_of(answer, self.where, reading.isolation)

    def _begin_later(self, offset: int) -> None:
        """Records were deleted since the page was begun; else the log's end has moved back."""
        answer = self._reading.client.list_offsets({self.where: EARLIEST_TIMESTAMP})[self.where]
        if answer.error is not ErrorCode.NONE:
            raise KafkaError(answer.error, str(self.where))
        self.low = max(self.low, answer.offset if answer.offset > offset else self.high)

    def _found_in(self, part: _Part) -> Iterator[Found]:
        """What of a batch is asked for, in the order of its offsets."""
        reading, header = self._reading, part.header
        if part.aborted or (header.attributes & CONTROL and not reading.markers):
            reading.budget.looked(max(header.records, 0), len(part.data))
            return
        try:
            opened = open_batch(part.data, UNPACKED_BYTES_MAX)
        except ProtocolError as error:
            reading.budget.looked(0, len(part.data))
            yield self._unreadable(part, header.offset, str(error))
            return
        reading.budget.looked(opened.record_count, len(part.data))
        if opened.record_count > BATCH_RECORDS_MAX:
            text = f"a batch of {opened.record_count} records: {BATCH_RECORDS_MAX} are read at most"
            yield self._unreadable(part, header.offset, text)
        elif opened.batch.control:
            yield from self._marker(opened)
        elif reading.filters.may_match(opened.payload):
            yield from self._matches(part, opened)

    def _matches(self, part: _Part, opened: OpenBatch) -> Iterator[Found]:
        reading = self._reading
        filters = reading.filters
        following = part.header.offset
        reading.budget.begin_batch()
        try:
            for number, record in enumerate(opened.records(RECORD_HEADERS_MAX), start=1):
                if number % RECORDS_AT_ONCE == 0:
                    reading.pause()
                    if filters.is_slow:
                        reading.budget.check_batch()
                following = record.offset + 1
                if self.low <= record.offset < self.high and filters.match(
                    record, reading.budget.check_batch
                ):
                    yield found_of(self.where.partition, record, reading.payload_bytes_max)
        except ProtocolError as error:
            yield self._unreadable(part, following, str(error))
        except LateBatch:
            text = (
                f"offsets {part.header.offset} to {part.last_offset} are not searched to their "
                f"end: the filter had {BATCH_MS_MAX // 1000} s; a simpler one takes less"
            )
            yield self._note(part, following, text)

    def _marker(self, opened: OpenBatch) -> Iterator[Found]:
        """A control record's key is its version and its kind, two bytes each."""
        batch = opened.batch
        for record in islice(opened.records(), 1):
            kind = int.from_bytes((record.key or b"")[2:4], "big") if record.key else -1
            text = f"{_MARKERS.get(kind, f'control record of kind {kind}')}, producer "
            text += f"{batch.producer_id}, epoch {batch.producer_epoch}"
            if self.low <= record.offset < self.high:
                yield Found(
                    self.where.partition, record.offset, record.timestamp_ms, None, text=text
                )

    def _unreadable(self, part: _Part, offset: int, why: str) -> Found:
        text = f"offsets {part.header.offset} to {part.last_offset} cannot be read: {why}"
        return self._note(part, offset, text)

    def _note(self, part: _Part, offset: int, text: str) -> Found:
        """In place of records from this offset on."""
        inside = min(max(offset, self.low), self.high - 1)
        return Found(self.where.partition, inside, part.header.time_ms, None, text=text)


class NewestFirst(PartitionReader):
    """`high` comes down."""

    def __init__(self, reading: Reading, where: TopicPartition, low: int, high: int) -> None:
        super().__init__(reading, where, low, high)
        self._window = FIRST_WINDOW_OFFSETS

    @property
    def position(self) -> int:
        """The offset after the next one."""
        return self.found[0].offset + 1 if self.found else self.high

    def read_on(self) -> None:
        fetch_bytes = self._reading.fetch_bytes
        begin = max(self.low, self.high - self._window)
        parts = self._fetch(begin, fetch_bytes)
        if parts is None:
            return
        window = [part for part in parts if part.header.offset < self.high]
        end = window[-1].last_offset + 1 if window else begin
        if len(window) == len(parts) and parts and end < self.high:
            # All were of the window: is there one more, or is its end empty?
            following = self._fetch(end, 1)
            if following and following[0].header.offset < self.high:
                self._window = max(1, min(end - begin, 3 * self._window // 4))
                return
        for part in reversed(window):
            if not self._take_over(part):
                return
        self.high = min(self.high, begin)
        used = sum(len(part.data) for part in window)
        if used < fetch_bytes // 4:
            self._window = min(self._window * (2 if used else 8), WINDOW_OFFSETS_MAX)

    def _take_over(self, part: _Part) -> bool:
        """Whether to go on with the batch before it."""
        kept: deque[Found] = deque()
        reading, kept_bytes, has_more = self._reading, 0, False
        for found in self._found_in(part):
            kept.append(found)
            kept_bytes += _size(found)
            while len(kept) > 1 and (
                len(kept) > reading.want or kept_bytes > reading.held_bytes_max
            ):
                kept_bytes -= _size(kept.popleft())
                has_more = True
        self.found.extend(reversed(kept))
        self._held_bytes += kept_bytes
        # Above `low`, which the log may begin with in the midst of a batch.
        self.high = kept[0].offset if has_more else max(self.low, part.header.offset)
        return not (has_more or self._is_full or reading.budget.over)


class OldestFirst(PartitionReader):
    """`low` goes up."""

    @property
    def position(self) -> int:
        """The offset of the next one."""
        return self.found[0].offset if self.found else self.low

    def read_on(self) -> None:
        parts = self._fetch(self.low, self._reading.fetch_bytes)
        if parts is None:
            return
        if not parts or parts[0].header.offset >= self.high:
            self.low = self.high
            return
        for part in parts:
            if part.header.offset >= self.high or not self._take_over(part):
                return

    def _take_over(self, part: _Part) -> bool:
        """Whether to go on with the batch after it."""
        for found in self._found_in(part):
            if self._is_full:
                self.low = max(self.low, found.offset)
                return False
            self.found.append(found)
            self._held_bytes += _size(found)
        self.low = max(self.low, part.last_offset + 1)
        return not (self._is_full or self._reading.budget.over)


class Merged:
    """Partitions in one order: by their records' timestamps, newest or oldest first, as far as each
    partition's own order has it so.

    Each partition that has nothing ready reads on, one step a round, before the next record is
    taken; when the budget is over, what is ready is taken and the others are left out.
    """

    def __init__(self, readers: Sequence[PartitionReader], budget: Budget, *, newest: bool) -> None:
        self.readers: Final = readers
        self._budget: Final = budget
        self._sign: Final = 1 if newest else -1

    @property
    def is_over(self) -> bool:
        return all(reader.is_over and not reader.found for reader in self.readers)

    @property
    def needs_more(self) -> bool:
        """Whether to read on before the next record is taken."""
        return bool(self._lacking()) and not self._budget.over

    def read_on(self) -> None:
        """One round."""
        for reader in self._lacking():
            reader.read_on()
            if self._budget.over:
                break

    def take(self) -> Found | None:
        """None: there is no more, or the budget is over."""
        while self.needs_more:
            self.read_on()
        return self.take_ready()

    def take_ready(self) -> Found | None:
        """One that was read already; None: there is none."""
        ready = [reader for reader in self.readers if reader.found]
        if not ready:
            return None
        return max(ready, key=self._rank).take()

    def _lacking(self) -> list[PartitionReader]:
        return [reader for reader in self.readers if not (reader.found or reader.is_over)]

    def _rank(self, reader: PartitionReader) -> tuple[int, int]:
        """Of equal times the lowest partition comes first."""
        return self._sign * reader.found[0].timestamp_ms, -reader.where.partition


def found_of(partition: int, record: Record, payload_bytes_max: int | None) -> Found:
    """With payloads of this size at most."""
    key_bytes = -1 if record.key is None else len(record.key)
    value_bytes = -1 if record.value is None else len(record.value)
    if payload_bytes_max is not None:
        record = _cut(record, payload_bytes_max)
    return Found(partition, record.offset, record.timestamp_ms, record, key_bytes, value_bytes)


def _cut(record: Record, bytes_max: int) -> Record:
    def cut(payload: bytes | None) -> bytes | None:
        return None if payload is None else payload[:bytes_max]

    kept = tuple(
        (name[:bytes_max], cut(value)) for name, value in record.headers[: HEADERS_MAX + 1]
    )
    return record._replace(key=cut(record.key), value=cut(record.value), headers=kept)


def _size(found: Found) -> int:
    record = found.record
    if record is None:
        return _OBJECT_BYTES + len(found.text)
    payloads = [record.key, record.value, *(value for _, value in record.headers)]
    names = sum(len(name) for name, _ in record.headers)
    return (
        _OBJECT_BYTES * (1 + len(record.headers))
        + names
        + sum(len(each or b"") for each in payloads)
    )


def parts_of(answer: FetchResult, where: TopicPartition, isolation: int) -> list[_Part]:
    """KafkaError: the bytes are no batches."""
    data = answer.records
    aborted = Aborted(answer.aborted) if isolation == READ_COMMITTED and answer.aborted else None
    parts: list[_Part] = []
    try:
        for header in headers(data):
            part = _Part(header, data[header.begin : header.end], aborted=False)
            if aborted is not None and aborted.holds(_outline(part)):
                part = part._replace(aborted=True)
            parts.append(part)
    except ProtocolError as error:
        raise KafkaError(ErrorCode.CORRUPT_MESSAGE, f"{where}: {error}") from error
    return parts


def _outline(part: _Part) -> RecordBatch:
    """What tells whether a batch was aborted: its header, and the record of a marker."""
    header = part.header
    is_control = bool(header.attributes & CONTROL)
    records: tuple[Record, ...] = ()
    if is_control:
        try:
            opened = open_batch(part.data, _MARKER_BYTES_MAX)
            records = tuple(islice(opened.records(), 1))
        except ProtocolError:
            pass  # it is a row of its own, and ends no transaction
    return RecordBatch(
        base_offset=header.offset,
        last_offset=part.last_offset,
        leader_epoch=-1,
        codec=Codec.NONE,
        log_append_time=False,
        transactional=bool(header.attributes & TRANSACTIONAL),
        control=is_control,
        max_timestamp_ms=header.time_ms,
        producer_id=header.producer_id,
        producer_epoch=header.epoch,
        base_sequence=-1,
        records=records,
    )
