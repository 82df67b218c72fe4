"""When logs forget a producer: one that is silent for long may begin again with any sequence."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from kbroker.clock import Clock
from kbroker.log.engine.partition_log import PartitionLog

PRODUCER_EXPIRATION_MS: Final = 86_400_000
PRODUCER_EXPIRATION_CHECK_MS: Final = 600_000
# A look at a log takes two microseconds, a step of the scheduler ten times that.
LOGS_LOOKED_AT_ONCE: Final = 100


class ProducerExpiry:
    """Used on the scheduler's thread."""

    def __init__(self, clock: Clock, after_ms: int = PRODUCER_EXPIRATION_MS) -> None:
        self._clock: Final = clock
        self._after_ms: Final = after_ms
        self._due_ms = clock.monotonic_ms() + PRODUCER_EXPIRATION_CHECK_MS

    def sweep(self, logs: Sequence[PartitionLog]) -> Iterator[None]:
        """A look at each, in steps, if it is time for one."""
        if self._clock.monotonic_ms() < self._due_ms:
            return
        self._due_ms = self._clock.monotonic_ms() + PRODUCER_EXPIRATION_CHECK_MS
        before_ms = self._clock.wall_ms() - self._after_ms
        for looked_at, log in enumerate(logs, start=1):
            log.expire_producers(before_ms)
            if looked_at % LOGS_LOOKED_AT_ONCE == 0:
                yield
