"""Behind a crash: every log of a data directory is opened before anybody asks for it.

Several at a time, each by one thread, which reads what lies beyond its recovery point. The broker's
log says how far it is. A log that cannot be read is left to whoever opens it, who tells why.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Final
from uuid import UUID

from kbroker.clock import Clock
from kbroker.errors import KafkaError
from kbroker.log.checkpoints import (
    PARTITION_METADATA_FILE,
    CheckpointError,
    read_partition_metadata,
)
from kbroker.log.data_directory import DataDirectory, in_threads
from kbroker.log.partition_log import PartitionLog
from kbroker.log.placement import Place
from kbroker.types import TopicPartition

logger: Final = logging.getLogger("kbroker.log")

TOLD_EVERY_MS: Final = 5_000

OpenAt = Callable[[Place, TopicPartition, UUID], PartitionLog]
Opened = Callable[[TopicPartition, PartitionLog | None], None]


def recover(
    directory: DataDirectory, threads: int, open_at: OpenAt, opened: Opened, clock: Clock
) -> None:
    """All logs there that say whose they are, before anybody has one of them; `opened` is called
    of each, None: it cannot be read."""
    found = list(directory.logs().items())
    progress = _Progress(directory.path, len(found), clock)

    def open_one(item: tuple[TopicPartition, Path]) -> None:
        name, path = item
        size_bytes = 0
        try:
            topic_id = read_partition_metadata(path / PARTITION_METADATA_FILE)
            if topic_id is not None:
                log = open_at(Place(directory, path, topic_id), name, topic_id)
                size_bytes = log.size_bytes
                opened(name, log)
        except CheckpointError as error:
            # Whose it is, only the metadata store knows: whoever opens it is told.
            logger.warning("%s; it is read when its topic is opened", error)
        except (OSError, KafkaError) as error:
            # It is asked for again by whoever opens it, who tells why.
            logger.error("%s cannot be recovered: %s", path, error)
            opened(name, None)
        progress.one_more(size_bytes)

    in_threads(threads, open_one, found)
    progress.end()


class _Progress:
    """Lines for a person who waits. Any thread."""

    def __init__(self, path: Path, total: int, clock: Clock) -> None:
        self._path = path
        self._total = total
        self._clock = clock
        self._began_ms = self._told_ms = clock.monotonic_ms()
        self._lock = threading.Lock()
        self._done = 0
        self._bytes = 0

    def one_more(self, size_bytes: int) -> None:
        with self._lock:
            self._done += 1
            self._bytes += size_bytes
            done, megabytes = self._done, self._bytes // 1_000_000
            now_ms = self._clock.monotonic_ms()
            if now_ms - self._told_ms < TOLD_EVERY_MS or done == self._total:
                return
            self._told_ms = now_ms
        logger.info(
            "recovering %s: %d of %d logs, with %d MB", self._path, done, self._total, megabytes
        )

    def end(self) -> None:
        if self._total:
            took_ms = self._clock.monotonic_ms() - self._began_ms
            logger.info(
                "recovered %d logs with %d MB in %s in %d ms", self._total,
                self._bytes // 1_000_000, self._path, took_ms,
            )  # fmt: skip
