"""FollowerThrottle: how fast this broker copies replicas that are out of sync (KIP-73).

A replica that is in sync is never held back: acknowledgements wait for it. One that is new here, or
lies behind, and that `follower.replication.throttled.replicas` of its topic names, shares
`follower.replication.throttled.rate` with all others like it, so that moving a partition leaves
clients their part of the network and the disk.

What came is paid for afterwards: records of so many bytes keep the rate busy for so long, and until
that is over nothing more is asked for them. Who copied nothing for a while has saved up a second at
most. A pause is looked at again after a second, since the rate may have been changed meanwhile:
what is owed is paid at the rate of now.

Owner: the fetchers' loop. The rate may be set from any thread.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from kbroker.clock import NS_PER_MS
from kbroker.config.key import LONG_MAX

if TYPE_CHECKING:
    from kbroker.clock import Clock
    from kbroker.metadata.image import TopicImage
    from kbroker.types import TopicPartition

RATE: Final = "follower.replication.throttled.rate"
REPLICAS: Final = "follower.replication.throttled.replicas"
UNLIMITED: Final = LONG_MAX
PAUSE_MS_MAX: Final = 1_000
_EVERY_REPLICA: Final = "*"
_NS_PER_S: Final = 1_000 * NS_PER_MS


class FollowerThrottle:
    """See the head of this file."""

    def __init__(
        self,
        clock: Clock,
        is_throttled: Callable[[TopicPartition], bool],
        bytes_per_s: int = UNLIMITED,
    ) -> None:
        """`is_throttled`: whether a replica here is to be, which is not so in sync."""
        self.bytes_per_s = bytes_per_s
        self._clock = clock
        self._is_throttled = is_throttled
        # Bytes that came and are not paid for, as of then: times a second, so that nothing is lost
        # where little is paid at a time. Below 0: what is saved up.
        self._owed = 0
        self._paid_ns = 0

    def pause_ms(self, name: TopicPartition) -> int:
        """How long this replica is not asked for; 0: it may be."""
        rate = self.bytes_per_s
        if rate == UNLIMITED or not self._is_throttled(name):
            return 0
        if rate == 0:
            return PAUSE_MS_MAX
        self._pay(rate)
        return min(PAUSE_MS_MAX, -(-self._owed // (rate * NS_PER_MS))) if self._owed > 0 else 0

    def note_copied(self, name: TopicPartition, size_bytes: int) -> None:
        rate = self.bytes_per_s
        if 0 < rate < UNLIMITED and self._is_throttled(name):
            self._pay(rate)
            self._owed += size_bytes * _NS_PER_S

    def _pay(self, rate: int) -> None:
        now_ns = self._clock.monotonic_ns()
        self._owed = max(self._owed - (now_ns - self._paid_ns) * rate, -rate * _NS_PER_S)
        self._paid_ns = now_ns


def is_throttled(topic: TopicImage | None, partition: int, node_id: int) -> bool:
    """Whether the topic's settings hold back this replica, which does so out of sync only."""
    replicas = "" if topic is None else topic.configs.get(REPLICAS, "")
    if topic is None or not replicas or partition >= len(topic.partitions):
        return False
    if node_id in topic.partitions[partition].isr:
        return False
    named = _named(replicas)
    return _EVERY_REPLICA in named or f"{partition}:{node_id}" in named


@functools.lru_cache(maxsize=64)
def _named(replicas: str) -> frozenset[str]:
    return frozenset(each.strip() for each in replicas.split(","))
