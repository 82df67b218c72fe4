"""Retention: records that are too old, or too many, are kept no longer.

A sweep looks at every replica here, leaders' and followers' alike, and moves the starts of those
whose oldest segments may go by their topic's `retention.ms` and `retention.bytes`; what waits for
records below is answered. The files go as those below any start do: taken out of the log by the
checkpoints (`log/engine/partition_log.py`), removed `file.delete.delay.ms` later. A topic that is
only compacted has neither bound.

Runs on the scheduler every `log.retention.check.interval.ms`, a replica that moves a step. No lock
of its own.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Final

from kbroker.log.engine.partition_log import KEPT_FOR_EVER
from kbroker.log.upkeep._retention import check_newest

if TYPE_CHECKING:
    from kbroker.clock import Clock
    from kbroker.replica._replica import Replica
    from kbroker.types import TopicPartition

logger: Final = logging.getLogger("kbroker.replica")

# A look at a replica takes some microseconds, a step of the scheduler ten times that.
LOOKED_AT_ONCE: Final = 100


class Retention:
    """See the head of this file."""

    def __init__(
        self,
        replicas: Callable[[], Mapping[TopicPartition, Replica]],
        wake: Callable[[Replica], None],
        clock: Clock,
    ) -> None:
        """`wake` answers the requests that are parked on a partition."""
        self._replicas: Final = replicas
        self._wake: Final = wake
        self._clock: Final = clock

    def sweep(self) -> Iterator[None]:
        """One look at every replica, in steps."""
        now_ms = self._clock.wall_ms()
        for looked_at, replica in enumerate(list(self._replicas().values()), start=1):
            if self._apply(replica, now_ms) or looked_at % LOOKED_AT_ONCE == 0:
                yield

    def _apply(self, replica: Replica, now_ms: int) -> bool:
        """Whether its log begins later from now on."""
        log = replica.log
        if log.retention_ms == log.retention_bytes == KEPT_FOR_EVER:
            return False
        if log.retention_ms != KEPT_FOR_EVER:
            check_newest(log, log.retention_ms, now_ms)
        start = replica.apply_retention(log.retention_ms, log.retention_bytes, now_ms)
        if start < 0:
            return False
        logger.info(
            "%s begins at offset %d from now on: retention.ms is %d, retention.bytes %d",
            replica.name, start, log.retention_ms, log.retention_bytes,
        )  # fmt: skip
        self._wake(replica)
        return True
