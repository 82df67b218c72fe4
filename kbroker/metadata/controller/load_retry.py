"""A controller that cannot read the store tries again, and lets another broker try.

Place in the flow: the controller calls `failed` when it is in office and could not make its image
what the store says, after every other event as well. Nothing is elected until it can. So it reads
again after a pause, which doubles up to PAUSE_MS_MAX. After several pauses the fault may be one of
this broker: it gives up the office, as in `office_watch.py`, and does not run for it for a
while, in which the others do. Not more often than once in AGAIN_MS: a node that no broker can read
must not let the office go round and round. The session and the registration stay.

A store that cannot be reached is no such failure: it says itself when it is there again.

On the controller's thread, but for the end of a pause, which comes from any thread.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

from kbroker.clock import Clock
from kbroker.metadata.controller.office_watch import AGAIN_MS
from kbroker.metadata.store.base import StoreError, StoreUnavailableError

log: Final = logging.getLogger("kbroker.controller")

PAUSE_MS: Final = 250
PAUSE_MS_MAX: Final = 8_000
# Before this broker gives up the office; together less than two seconds.
PAUSES: Final = 3
# Long enough for the others to see that there is no controller.
ASIDE_MS: Final = 2_000

Later = Callable[[int, Callable[[], None]], None]


class LoadRetry:
    """See the head of this file."""

    def __init__(
        self,
        clock: Clock,
        later: Later,
        load: Callable[[], None],
        run: Callable[[], None],
        give_up: Callable[[], None] | None,
    ) -> None:
        """`load` and `run`, for office, are called from any thread. `give_up`, which may raise a
        StoreError; None: there is no other broker."""
        self._clock = clock
        self._later = later
        self._load_again = load
        self._run_again = run
        self._give_up = give_up
        self._pauses = 0  # since a load worked
        self._stands_aside = False
        # A pause whose end is lost is over by then: the next event has the store read again.
        self._pause_until_ms = 0
        self._aside_until_ms = self._not_before_ms = 0

    @property
    def stands_aside(self) -> bool:
        """Whether another broker is to be elected."""
        return self._stands_aside and self._clock.monotonic_ms() < self._aside_until_ms

    def worked(self) -> None:
        self._pauses = 0

    def failed(self, error: Exception) -> None:
        now_ms = self._clock.monotonic_ms()
        if now_ms < self._pause_until_ms or isinstance(error, StoreUnavailableError):
            return
        if self._give_up and self._pauses >= PAUSES and self._leaves(self._give_up):
            return
        pause_ms = min(PAUSE_MS << min(self._pauses, 16), PAUSE_MS_MAX)
        self._pauses += 1
        self._pause_until_ms = now_ms + pause_ms
        self._later(pause_ms, self._pause_ended)

    def _leaves(self, give_up: Callable[[], None]) -> bool:
        now_ms = self._clock.monotonic_ms()
        if now_ms < self._not_before_ms:
            return False
        self._not_before_ms = now_ms + AGAIN_MS
        log.error(
            "the controller cannot read the metadata store: another broker is to be elected; what"
            " it cannot read is in the lines before this one"
        )
        try:
            give_up()
        except StoreError as error:
            log.error("the office of controller cannot be given up: %s", error)
            return False
        self._pauses = 0
        self._aside_until_ms = now_ms + ASIDE_MS
        self._stands_aside = True
        self._later(ASIDE_MS, self._aside_ended)
        return True

    def _pause_ended(self) -> None:
        self._pause_until_ms = 0
        self._load_again()

    def _aside_ended(self) -> None:
        self._stands_aside = False
        self._run_again()
