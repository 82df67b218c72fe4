"""What another broker left on the disk, and how to see what became of it."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from pathlib import Path
from uuid import UUID

from kbroker.coordinator.txn.adopted_ids import AdoptedIds
from kbroker.log import adopted
from kbroker.log.engine.checkpoints import (
    PARTITION_METADATA_FILE,
    write_offsets,
    write_partition_metadata,
)
from kbroker.log.opening.data_directory import CLEAN_SHUTDOWN_FILE
from kbroker.metadata.controller import records
from kbroker.metadata.store.embedded import EmbeddedStore
from kbroker.metadata.transfer.adopt import Adoption, Own
from kbroker.types import TopicPartition
from tests.support.led_log import LedLogManager
from tests.support.record_batches import CODECS, Record, build_batch
from tests.unit.metadata.transfer.trees import LAST_PRODUCER_ID

WORDS, OTHER, OFFSETS = UUID(int=21), UUID(int=22), UUID(int=23)
WORDS_0 = TopicPartition("words", 0)
GROUPS = TopicPartition("__consumer_offsets", 0)
EPOCH, PRODUCER = 5, LAST_PRODUCER_ID + 500
BATCHES = 12
NOW_MS = 1_800_000_000_000
TRANSACTIONAL, MARKER = 0x10, 0x30
ABORT, COMMIT = 0, 1


def write(
    directory: Path, ids: Mapping[TopicPartition, UUID], *, clean: bool = True
) -> LedLogManager:
    """Logs of several segments and codecs, whose first records are deleted."""
    directory.mkdir(exist_ok=True)
    manager = LedLogManager([directory])
    manager.start()
    for at, (name, topic_id) in enumerate(ids.items()):
        log = manager.open(*name, topic_id, {"segment_bytes": 800})
        log.set_leadership(1, True, EPOCH + at, 1)
        for number in range(BATCHES):
            made = [Record(b"%s %d" % (str(name).encode(), number), b"key", 1_000 + number)] * 3
            codec = list(CODECS)[number % len(CODECS)]
            log.append(build_batch(made, codec=codec, producer_id=PRODUCER + at, producer_epoch=0,
                                   base_sequence=3 * number))  # fmt: skip
        log.delete_records(4)
    for _ in manager.checkpoint():
        pass
    if clean:
        manager.stop()
    return manager


def two(topic: str = "words", topic_id: UUID = WORDS) -> dict[TopicPartition, UUID]:
    return {TopicPartition(topic, index): topic_id for index in range(2)}


def segments(
    source: Path,
    of: Mapping[int, bytes],
    *,
    clean: bool = True,
    name: TopicPartition = WORDS_0,
    topic_id: UUID = WORDS,
    lines: Mapping[str, int] | None = None,
) -> Path:
    """A log as plain files: its directory. `lines`: of the checkpoints."""
    log = source / str(name)
    log.mkdir(parents=True)
    for base_offset, data in of.items():
        (log / f"{base_offset:020d}.log").write_bytes(data)
    write_partition_metadata(log / PARTITION_METADATA_FILE, topic_id)
    for file, offset in (lines or {}).items():
        write_offsets(source / file, {name: offset})
    if clean:
        (source / CLEAN_SHUTDOWN_FILE).write_bytes(b"{}")
    return log


def batch(base_offset: int, count: int = 1, *, attributes: int = 0, producer: int = -1) -> bytes:
    """Of so many records, of a producer without sequence numbers."""
    made = [b"%d" % (base_offset + number) for number in range(count)]
    return build_batch(made, base_offset=base_offset, leader_epoch=EPOCH, attributes=attributes,
                       producer_id=producer, producer_epoch=0 if producer >= 0 else -1)  # fmt: skip


def marker(base_offset: int, end: int, producer: int = 9) -> bytes:
    record = Record(b"\0" * 6, struct.pack(">hh", 0, end))
    return build_batch([record], base_offset=base_offset, attributes=MARKER, producer_id=producer,
                       producer_epoch=0)  # fmt: skip


def contents(directory: Path) -> dict[str, bytes]:
    """What is in its files; a checkpoint of no lines is as good as none, and so is half of one."""
    return {
        str(path.relative_to(directory)): path.read_bytes()
        for path in sorted(directory.rglob("*"))
        if path.is_file()
        and not path.name.startswith(("metadata.db", ".boot_id"))
        and path.suffix != ".tmp"
        and path.read_bytes() != b"0\n0\n"
    }


def tree(data: Path) -> dict[str, bytes]:
    store = EmbeddedStore.open(data)
    try:
        return {
            path: store.get(path).data
            for topic in store.children(records.TOPICS)
            for path in (records.topic_path(topic), records.topic_config_path(topic))
        }
    finally:
        store.close()


def adopt(
    data: Path,
    *sources: Path,
    topics: tuple[str, ...] = (),
    groups: bool = False,
    transactions: bool = False,
) -> list[adopted.Copied]:
    ids = AdoptedIds(NOW_MS)
    adoption = Adoption(data, "boot", ids, NOW_MS, {"cleanup.policy": "compact"})
    return adoption.run(sources, topics, Own(groups, transactions))


def read(directory: Path, name: TopicPartition, topic_id: UUID) -> tuple[int, int, bytes]:
    """Where the log begins and ends, and the bytes of its segments."""
    manager = LedLogManager([directory])
    manager.start()
    try:
        log = manager.open(*name, topic_id, {}, new=False)
        files = sorted((directory / str(name)).glob("*.log"))
        return log.log_start_offset, log.log_end_offset, b"".join(f.read_bytes() for f in files)
    finally:
        manager.stop()
