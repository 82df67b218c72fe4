"""When logs forget a producer: one that is silent for long may begin again with any sequence.

One with an open transaction is not forgotten, however long it is silent.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from types import MappingProxyType
from typing import Any, Final, Protocol

from kbroker.clock import Clock
from kbroker.log.engine.partition_log import PartitionLog

_AFTER: Final = "producer.id.expiration.ms"
_CHECK: Final = "producer.id.expiration.check.interval.ms"
# The defaults of both.
PRODUCER_EXPIRATION: Final = MappingProxyType({_AFTER: 86_400_000, _CHECK: 600_000})
# A look at a log takes two microseconds, a step of the scheduler ten times that.
LOGS_LOOKED_AT_ONCE: Final = 100


class Settings(Protocol):
    """A broker's, by their keys."""

    def __getitem__(self, key: str, /) -> Any: ...


class ProducerExpiry:
    """Used on the scheduler's thread."""

    def __init__(self, clock: Clock, config: Callable[[], Settings]) -> None:
        """`config`: the broker's settings as they are now."""
        self._clock: Final = clock
        self._config: Final = config
        self._looked_ms = clock.monotonic_ms()

    def sweep(self, logs: Sequence[PartitionLog]) -> Iterator[None]:
        """A look at each, in steps, if it is time for one."""
        config, now_ms = self._config(), self._clock.monotonic_ms()
        if now_ms < self._looked_ms + config[_CHECK]:
            return
        self._looked_ms = now_ms
        before_ms = self._clock.wall_ms() - config[_AFTER]
        for looked_at, log in enumerate(logs, start=1):
            log.expire_producers(before_ms)
            if looked_at % LOGS_LOOKED_AT_ONCE == 0:
                yield
