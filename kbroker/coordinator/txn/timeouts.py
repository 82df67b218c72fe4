"""Which open transactions are late, where the wall clock may go back.

A transaction begins at a wall time that is in the log, of the broker that coordinated it then. That
time may be in the future: the clock was set back since, or it is another broker's. By the wall
clock alone such a transaction would stay open, and hold consumers, until that time comes again; and
its producer may be well, so it is not late at once either. It has its timeout from the first look
at it on, by the monotonic clock.

The coordinator looks at all that is open, in rounds. Owner: the coordinator, under its lock.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from kbroker.coordinator.txn import decisions
from kbroker.coordinator.txn.states import State

if TYPE_CHECKING:
    from kbroker.clock import Clock
    from kbroker.coordinator.txn.image import Pair, TransactionImage


class _Look(NamedTuple):
    """The first one at a transaction: which it was, and when, by the monotonic clock."""

    pair: Pair
    start_ms: int
    at_ms: int


class Timeouts:
    """See the head of this file. Bound: what is open and begins in the future."""

    def __init__(self, clock: Clock) -> None:
        self._clock: Final = clock
        self._looks: dict[str, _Look] = {}
        self._last_round: dict[str, _Look] = {}

    def is_late(self, transactional_id: str, image: TransactionImage) -> bool:
        if image.state is not State.ONGOING:
            return False
        now_ms, at_ms = self._clock.wall_ms(), self._clock.monotonic_ms()
        look = self._looks.get(transactional_id) or self._last_round.get(transactional_id)
        if look is None or (look.pair, look.start_ms) != (image.pair, image.start_ms):
            if image.start_ms <= now_ms:
                return decisions.is_late(image, now_ms)
            look = _Look(image.pair, image.start_ms, at_ms)
        self._looks[transactional_id] = look
        return decisions.is_late(image, now_ms) or at_ms - look.at_ms > image.timeout_ms

    def end_round(self) -> None:
        """All that is open has been looked at: looks at others are forgotten."""
        self._last_round, self._looks = self._looks, {}
