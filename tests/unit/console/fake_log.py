"""A topic in memory for pages of messages: batches, fetches and offsets as brokers answer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any, Final

from kbroker.clock import ManualClock
from kbroker.console.asked import Asked
from kbroker.console.page import Facts, Notice, Page, Table, Value
from kbroker.errors import ErrorCode
from kbroker.peer.isolation import READ_COMMITTED, AbortedTransaction
from kbroker.peer.messages import (
    EARLIEST_TIMESTAMP,
    LATEST_TIMESTAMP,
    ClusterMetadata,
    FetchResult,
    OffsetResult,
    PartitionMetadata,
    TopicMetadata,
)
from kbroker.protocol.record_batch import Record, decode_batches, encode_batch
from kbroker.types import TopicPartition

NOW_MS: Final = 1_700_000_000_000
TOPIC: Final = "t"


def records(
    first: int, count: int, *, value: bytes | None = b"v", key: bytes | None = b"k"
) -> list[Record]:
    """Each a millisecond after the one before, from the time of its offset on."""
    return [Record(key, value, (), NOW_MS + first + n, first + n) for n in range(count)]


class FakePartition:
    """`batches` are by base offset. Offsets without a batch are as compaction leaves them."""

    def __init__(self) -> None:
        self.batches: list[tuple[int, int, bytes]] = []  # base, last, bytes
        self.start = 0
        self.end = 0
        self.last_stable: int | None = None
        self.aborted: list[AbortedTransaction] = []
        self.leader = 1

    def add(self, rows: Sequence[Record], **fields: Any) -> None:
        """At the offset of the first of them, one after the other."""
        base = rows[0].offset
        self.add_bytes(base, base + len(rows) - 1, encode_batch(rows, base_offset=base, **fields))

    def add_bytes(self, base: int, last: int, data: bytes) -> None:
        self.batches.append((base, last, data))
        self.end = last + 1


class FakeLogs:
    """A client of one topic, its fetches counted."""

    def __init__(self, partitions: Sequence[FakePartition], topic: str = TOPIC) -> None:
        self.topic = topic
        self.partitions = partitions
        self.fetches: list[tuple[int, int, int]] = []  # partition, offset, bytes
        self.unanswered = 0
        self.error = ErrorCode.NONE
        self.cluster = SimpleNamespace(clock=ManualClock(NOW_MS))

    def metadata(self, topics: Sequence[str] | None = None) -> ClusterMetadata:
        parts = [
            PartitionMetadata(index, ErrorCode.NONE, each.leader, 0, (1,), (1,), ())
            for index, each in enumerate(self.partitions)
        ]
        found = TopicMetadata(self.topic, ErrorCode.NONE, None, False, tuple(parts))
        return ClusterMetadata("c", 1, {}, {self.topic: found})

    def list_offsets(
        self, timestamps: Mapping[TopicPartition, int], *, isolation: int = 0
    ) -> dict[TopicPartition, OffsetResult]:
        return {
            where: OffsetResult(ErrorCode.NONE, -1, self._offset(where.partition, at, isolation))
            for where, at in timestamps.items()
        }

    def _offset(self, index: int, at: int, isolation: int) -> int:
        log = self.partitions[index]
        if at == EARLIEST_TIMESTAMP:
            return log.start
        if at == LATEST_TIMESTAMP:
            committed = isolation == READ_COMMITTED and log.last_stable is not None
            return log.last_stable if committed and log.last_stable is not None else log.end
        younger = (
            record.offset
            for _, _, data in log.batches
            for batch in decode_batches(data)
            for record in batch.records
            if record.timestamp_ms >= at
        )
        return next(younger, -1)

    def fetch(
        self,
        positions: Mapping[TopicPartition, int],
        *,
        max_wait_ms: int = 0,
        min_bytes: int = 1,
        max_bytes: int = 0,
        partition_max_bytes: int = 0,
        isolation: int = 0,
    ) -> dict[TopicPartition, FetchResult]:
        answers: dict[TopicPartition, FetchResult] = {}
        for where, offset in positions.items():
            self.fetches.append((where.partition, offset, partition_max_bytes))
            if self.unanswered:
                self.unanswered -= 1
                continue
            answers[where] = self._fetched(where.partition, offset, partition_max_bytes, isolation)
        return answers

    def _fetched(self, index: int, offset: int, bytes_max: int, isolation: int) -> FetchResult:
        log = self.partitions[index]
        if self.error or not log.start <= offset <= log.end:
            error = self.error or ErrorCode.OFFSET_OUT_OF_RANGE
            return FetchResult(error, log.end, log.start, b"")
        stable = log.end if log.last_stable is None else log.last_stable
        bound = stable if isolation == READ_COMMITTED else log.end
        out = b""
        for base, last, data in log.batches:
            if last < offset or base >= bound:
                continue
            if out and len(out) + len(data) > bytes_max:
                break
            out += data
        aborted = tuple(log.aborted) if isolation == READ_COMMITTED else ()
        return FetchResult(ErrorCode.NONE, log.end, log.start, out, aborted, stable)


def asked(
    client: Any, query: Mapping[str, str] | None = None, *, messages: str = "on", **path: str
) -> Asked:
    return Asked(
        path={"topic": TOPIC, **path},
        query=query or {},
        client=client,
        here=None,  # type: ignore[arg-type]  # no page of mine asks it
        now_ms=NOW_MS,
        may_write=False,
        messages=messages,
        pause=lambda: None,
    )


def table(page: Page, name: str) -> Table:
    return next(each for each in page.sections if isinstance(each, Table) and each.name == name)


def facts(page: Page, name: str) -> dict[str, Value]:
    found = next(each for each in page.sections if isinstance(each, Facts) and each.name == name)
    return {fact.name: fact.cell.value for fact in found.items}


def notices(page: Page) -> list[str]:
    return [each.what for each in page.sections if isinstance(each, Notice)]


def column(page: Page, name: str, of: str = "messages") -> list[Value]:
    found = table(page, of)
    place = [each.name for each in found.columns].index(name)
    return [row[place].value for row in found.rows]


def query_of(path: str) -> dict[str, str]:
    """Of a link."""
    from urllib.parse import parse_qsl, urlsplit

    return dict(parse_qsl(urlsplit(path).query, keep_blank_values=True))
