"""Committed offsets in a backup, and the log of them that a new broker begins with.

    {"groups": [["shop", "orders", 0, 17, 4, "metadata"], ...]}
                 group   topic   partition, offset, leader epoch (-1: unknown)

The offsets are saved as the broker answers them, not as the log `__consumer_offsets` has them: they
can be read with any tool, restored for some topics, and corrected. A log that was saved without its
newest records, or after its oldest were deleted, may not have a committed offset: `corrected` puts
it at the nearest one that is there, with a line. Members of groups are not saved; their clients
join again.

`write_log` makes the log of offsets as files of a broker that was stopped in order, which are
adopted as all others are. Values have version 3 of Apache Kafka's format, without expiry: the
offsets count as committed when they were restored.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple
from uuid import UUID

from kbroker.backup.files import make_directory, write_file
from kbroker.backup.questions import CommittedOffset
from kbroker.config.key import INT_MAX, LONG_MAX
from kbroker.coordinator.group.group_records import offset_key
from kbroker.coordinator.runtime._shard_table import partition_for
from kbroker.log.engine.checkpoints import PARTITION_METADATA_FILE
from kbroker.log.opening.data_directory import CLEAN_SHUTDOWN_FILE
from kbroker.metadata.image import OFFSETS_TOPIC
from kbroker.protocol.record_batch import Record, encode_batch
from kbroker.protocol.wire import Writer
from kbroker.types import TopicPartition, uuid_text

GROUPS_BYTES_MAX: Final = 512 << 20
RECORDS_IN_A_BATCH: Final = 200
_VALUE_VERSION: Final = 3
_TEXT_BYTES_MAX: Final = 2**15 - 1
_NO_EPOCH: Final = -1


class Corrected(NamedTuple):
    """An offset that is not in the saved log, and the one in its place."""

    group: str
    partition: TopicPartition
    committed: int
    restored: int


def encode(offsets: Iterable[CommittedOffset]) -> bytes:
    rows = [
        [each.group, *each.partition, each.offset, each.leader_epoch, each.metadata]
        for each in offsets
    ]
    return json.dumps({"groups": rows}, indent=0).encode() + b"\n"


def decode(raw: bytes) -> list[CommittedOffset]:
    """ValueError says what is wrong with it."""
    try:
        document = json.loads(raw)
    except RecursionError:
        raise ValueError("it is nested too deep") from None
    rows = document.get("groups") if isinstance(document, dict) else None
    if not isinstance(rows, list):
        raise ValueError("it has no groups")
    return [_offset(row) for row in rows]


def _offset(row: object) -> CommittedOffset:
    match row:
        case [str(group), str(topic), int(partition), int(offset), int(epoch), str(metadata)]:
            texts = (group, topic, metadata)
            if (
                all(_fits(text) for text in texts)
                and 0 <= partition <= INT_MAX
                and 0 <= offset <= LONG_MAX
                and _NO_EPOCH <= epoch <= INT_MAX
            ):
                where = TopicPartition(topic, partition)
                return CommittedOffset(group, where, offset, epoch, metadata)
    raise ValueError("a committed offset is none")


def _fits(text: str) -> bool:
    """In a string of a record: a lone surrogate has no bytes."""
    try:
        return len(text.encode()) <= _TEXT_BYTES_MAX
    except UnicodeEncodeError:
        return False


def corrected(
    offsets: Iterable[CommittedOffset], logs: Mapping[TopicPartition, tuple[int, int]]
) -> tuple[list[CommittedOffset], list[Corrected]]:
    """The offsets of these logs, which begin and end so; and those that had to be changed."""
    kept: list[CommittedOffset] = []
    changed: list[Corrected] = []
    for each in offsets:
        if each.partition not in logs:
            continue
        start, end = logs[each.partition]
        nearest = min(max(each.offset, start), end)
        if nearest != each.offset:
            changed.append(Corrected(each.group, each.partition, each.offset, nearest))
            each = each._replace(offset=nearest, leader_epoch=_NO_EPOCH)
        kept.append(each)
    return kept, changed


def write_log(
    directory: Path, offsets: Sequence[CommittedOffset], count: int, topic_id: UUID, now_ms: int
) -> None:
    """Of a topic of `count` partitions, in a directory of its own that looks like a log.dirs."""
    by_partition: dict[int, list[Record]] = {}
    for each in offsets:
        record = Record(offset_key(each.group, *each.partition), _value(each, now_ms), (), now_ms)
        by_partition.setdefault(partition_for(each.group, count), []).append(record)
    make_directory(directory)
    for index in range(count):
        log = directory / f"{OFFSETS_TOPIC}-{index}"
        make_directory(log)
        text = f"version: 0\ntopic_id: {uuid_text(topic_id)}"
        write_file(log / PARTITION_METADATA_FILE, text.encode())
        batches = b"".join(_batches(by_partition.get(index, [])))
        write_file(log / f"{0:020d}.log", batches)
    write_file(directory / CLEAN_SHUTDOWN_FILE, b"{}")


def _batches(records: Sequence[Record]) -> Iterator[bytes]:
    for at in range(0, len(records), RECORDS_IN_A_BATCH):
        some = records[at : at + RECORDS_IN_A_BATCH]
        yield encode_batch(some, base_offset=at, leader_epoch=0)


def _value(each: CommittedOffset, now_ms: int) -> bytes:
    out = Writer(flexible=False)
    out.int16(_VALUE_VERSION)
    out.int64(each.offset)
    out.int32(each.leader_epoch)
    out.string(each.metadata)
    return out.getvalue() + struct.pack(">q", now_ms)
