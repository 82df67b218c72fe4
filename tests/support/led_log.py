"""A log with the replica in front of it, for tests that append and read.

Methods that the replica lacks, such as `roll` or `close`, are its log's.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any
from uuid import UUID

from kbroker.errors import KafkaError
from kbroker.log.engine.partition_log import PartitionLog
from kbroker.log.manager import LogManager
from kbroker.log.opening.loader import UNKNOWN, Checkpointed, open_partition_log
from kbroker.replica._replica import Replica


class LedLog(Replica):
    """Begins as the replica manager has one begin: at the checkpointed high watermark, not led."""

    def __init__(self, log: PartitionLog) -> None:
        try:
            self.set_high_watermark(log.checkpointed_high_watermark)
        except KafkaError:
            pass  # no batch is there that can be read

    def __getattr__(self, name: str) -> Any:
        return getattr(self.log, name)


def open_led_log(
    directory: Path,
    topic: str,
    index: int,
    topic_id: UUID,
    settings: dict[str, Any],
    checkpointed: Checkpointed = UNKNOWN,
    **how: Any,
) -> LedLog:
    """As `open_partition_log`; `set_leadership` is the caller's."""
    log = open_partition_log(directory, topic, index, topic_id, settings, checkpointed, **how)
    return LedLog(log)


class Listener:
    """Of a log manager; it has no manager in it: who drops one gives its descriptors back at
    once."""

    def __init__(self) -> None:
        self.replicas: dict[PartitionLog, LedLog] = {}
        self.offline: list[PartitionLog] = []

    def high_watermark_of(self, log: PartitionLog) -> int:
        replica = self.replicas.get(log)
        return log.checkpointed_high_watermark if replica is None else replica.high_watermark

    def went_offline(self, log: PartitionLog) -> None:
        self.offline.append(log)


class LedLogManager(LogManager):
    """A log manager whose logs have their replicas, as a broker's have."""

    def __init__(self, directories: Sequence[Path], **how: Any) -> None:
        self.replicas = Listener()
        super().__init__(directories, **{"listener": self.replicas, **how})

    def open(self, *name: Any, **how: Any) -> LedLog:  # type: ignore[override]
        log = super().open(*name, **how)
        led = self.replicas.replicas[log] = LedLog(log)
        return led

    def close(self, log: LedLog) -> None:  # type: ignore[override]
        super().close(log.log)

    def delete(self, log: LedLog) -> None:  # type: ignore[override]
        super().delete(log.log)
