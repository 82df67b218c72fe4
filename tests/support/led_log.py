"""A log with the replica in front of it, for tests that append and read.

What the replica does not have, such as `roll` or `close`, is its log's.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any
from uuid import UUID

from kbroker.errors import KafkaError
from kbroker.log.loader import UNKNOWN, Checkpointed, open_partition_log
from kbroker.log.manager import LogManager
from kbroker.log.partition_log import PartitionLog
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
) -> LedLog:
    """As `open_partition_log`; `set_leadership` is the caller's."""
    return LedLog(open_partition_log(directory, topic, index, topic_id, settings, checkpointed))


class LedLogManager(LogManager):
    """A log manager whose logs have their replicas, as a broker's have."""

    def __init__(self, directories: Sequence[Path], **how: Any) -> None:
        super().__init__(directories, **how)
        replicas: dict[PartitionLog, LedLog] = {}

        def of_replica(log: PartitionLog) -> int:
            replica = replicas.get(log)
            return log.checkpointed_high_watermark if replica is None else replica.high_watermark

        self._replicas = replicas
        # Without this manager in it: whoever drops one gives its descriptors back at once.
        self.high_watermark_of = of_replica

    def open(self, *name: Any, **how: Any) -> LedLog:  # type: ignore[override]
        log = super().open(*name, **how)
        self._replicas[log] = LedLog(log)
        return self._replicas[log]

    def close(self, log: LedLog) -> None:  # type: ignore[override]
        super().close(log.log)

    def delete(self, log: LedLog) -> None:  # type: ignore[override]
        super().delete(log.log)
