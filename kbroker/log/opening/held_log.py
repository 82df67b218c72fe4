"""A log that the manager holds open, with the data directory that it is in."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from kbroker.log.engine.partition_log import PartitionLog
    from kbroker.log.opening.data_directory import DataDirectory

logger: Final = logging.getLogger("kbroker.log")


@dataclass
class HeldLog:
    log: PartitionLog
    directory: DataDirectory
    failed_writes: int = 0  # as last reported in the broker's log

    def log_failed_writes(self) -> bool:
        """One line a round for the writes that were answered KAFKA_STORAGE_ERROR; whether there
        were any."""
        figures = self.log.statistics()
        failed = figures["failed_writes"] + figures["failed_flushes"]
        new = failed > self.failed_writes
        if new:
            logger.error(
                "%s: %d writes failed since the last look; is %s full, or read-only?",
                self.log.name, failed - self.failed_writes, self.directory.path,
            )  # fmt: skip
            self.failed_writes = failed
        return new
