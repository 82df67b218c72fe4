"""FollowerThrottle: how fast this broker copies replicas that are out of sync (KIP-73).

A replica that is in sync is never held back: acknowledgements wait for it. One that is new here, or
lags, and that `follower.replication.throttled.replicas` of its topic names, shares
`follower.replication.throttled.rate` with all others like it, so that moving a partition leaves
clients their part of the network and the disk.

Records are paid for after they have come: so many bytes keep the rate busy for so long, and until
that is over no more are fetched. A broker that copied nothing for a while has saved up a second at
most. A pause is looked at again after a second, since the rate may have been changed meanwhile: the
rest is paid at the new one.

Owner: the fetchers' loop. The rate may be set from any thread.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from kbroker.clock import NS_PER_MS
from kbroker.config.key import LONG_MAX

if TYPE_CHECKING:
    from kbroker.clock import Clock
    from kbroker.types import TopicPartition

UNLIMITED: Final = LONG_MAX
PAUSE_MS_MAX: Final = 1_000
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
        self._free_at_ns = 0  # when all that came is paid for, at this rate
        self._counted_at = bytes_per_s

    def pause_ms(self, name: TopicPartition) -> int:
        """How long this replica is not asked for; 0: it may be."""
        rate = self.bytes_per_s
        if rate == UNLIMITED or not self._is_throttled(name):
            return 0
        if rate == 0:
            return PAUSE_MS_MAX
        left_ns = self._owed_until_ns(rate) - self._clock.monotonic_ns()
        return min(PAUSE_MS_MAX, -(-left_ns // NS_PER_MS)) if left_ns > 0 else 0

    def note_copied(self, name: TopicPartition, size_bytes: int) -> None:
        rate = self.bytes_per_s
        if 0 < rate < UNLIMITED and self._is_throttled(name):
            saved_ns = self._clock.monotonic_ns() - _NS_PER_S
            owed_until_ns = max(self._owed_until_ns(rate), saved_ns)
            self._free_at_ns = owed_until_ns + size_bytes * _NS_PER_S // rate

    def _owed_until_ns(self, rate: int) -> int:
        """Bytes are what is owed: the time for them is another at another rate."""
        if rate != self._counted_at:
            now_ns = self._clock.monotonic_ns()
            left_ns = self._free_at_ns - now_ns
            if left_ns > 0:
                self._free_at_ns = now_ns + left_ns * self._counted_at // rate
            self._counted_at = rate
        return self._free_at_ns
