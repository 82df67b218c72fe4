"""What the log's compiled face answers with, as named tuples."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from kbroker.errors import ErrorCode
from kbroker.types import TopicPartition


class AppendResult(NamedTuple):
    """The result of one batch: an error code, or its place in the log."""

    error: int
    base_offset: int
    last_offset: int
    append_time_ms: int
    log_start_offset: int
    error_record: int
    error_message: str


class MarkerAppended(NamedTuple):
    """What became of a marker: an error, or its offset. `led_since`: the leader epoch with which
    its followers are to be waited for, -1 where it is below the high watermark already."""

    error: ErrorCode
    offset: int
    led_since: int


class LoadedSegment(NamedTuple):
    """What opening one segment found. `reason` is empty if the whole file is good.

    `torn`: it ends in the middle of a batch. `rebuilt`: all of it was read, for its indexes.
    `has_gaps`: so read, it lacks records between the first and the last, as a cleaning leaves it.
    """

    base_offset: int
    valid_bytes: int
    file_bytes: int
    next_offset: int
    last_leader_epoch: int
    batches: int
    reason: str
    torn: bool
    rebuilt: bool
    has_gaps: bool


class ProducerEntry(NamedTuple):
    """A batch of one producer, as a snapshot keeps it; sequence and offset -1: none."""

    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_offset: int
    offset_delta: int
    timestamp_ms: int
    coordinator_epoch: int
    transaction_first_offset: int


class EndedTransaction(NamedTuple):
    """Of a producer: where it began in the log, and where its marker lies."""

    producer_id: int
    first_offset: int
    marker_offset: int


class LogFiles(NamedTuple):
    """The content of a log's directory: the bytes of each file (of one that holds no records 0, or
    its bytes), -1 for anything else; and the content of `partition.metadata` and
    `leader-epoch-checkpoint`, None: not known yet."""

    sizes: dict[str, int]
    metadata: bytes | None
    epochs: bytes | None


class FutureLog(NamedTuple):
    """A log on its way into the data directory at `path`: bytes that are there, offsets that are
    not."""

    name: TopicPartition
    path: str
    size_bytes: int
    lag: int


class DirectoryUse(NamedTuple):
    """A data directory: the logs in it with their bytes, the bytes of its volume; -1: unknown.

    `failed`: the directory cannot be asked, and its content is unknown. `futures` are those that
    are on their way there.
    """

    path: str
    failed: bool
    logs: list[tuple[TopicPartition, int]]
    total_bytes: int
    usable_bytes: int
    futures: Sequence[FutureLog] = ()


class SegmentFigures(NamedTuple):
    """Of one segment. A first timestamp of -1: no batch has one; the largest is then the file's."""

    base_offset: int
    size_bytes: int
    first_timestamp_ms: int
    max_timestamp_ms: int


class DamagedBatch(NamedTuple):
    """In which segment, the first offset that cannot be had, where in the file, and how."""

    base_offset: int
    offset: int
    position: int
    what: str


class Uncleanable(ValueError):
    """A log that the cleaner leaves as it is: what in which file it cannot go past."""
