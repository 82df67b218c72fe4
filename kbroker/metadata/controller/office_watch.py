"""A controller that hangs gives up its office, so that another broker decides.

Place in the flow: a thread of its own, which touches no log, looks at the event that the
controller's thread is at. One that takes longer than `controller.event.max.ms` waits for a disk,
and all elections wait with it. Then /controller is deleted under the epoch in which it was
won; the session and the registration stay, so this broker goes on as one among others and leads
what it leads. Its thread finds out with its next write, or with the next event. Not more often than
once in AGAIN_MS: where every broker is slow, office must not go round and round.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

from kbroker.clock import NS_PER_MS, Clock
from kbroker.metadata.store.base import StoreError

log: Final = logging.getLogger("kbroker.controller")

OFFICE_LOOK_MS: Final = 250
AGAIN_MS: Final = 60_000


class OfficeWatch:
    """See the head of this file; one thread at a time."""

    def __init__(
        self,
        event: Callable[[], tuple[str, int] | None],
        give_up: Callable[[], None],
        clock: Clock,
    ) -> None:
        """`event`: what is being handled in office, and since when. `give_up` may raise."""
        self._event = event
        self._give_up = give_up
        self._clock = clock
        self._not_before_ms = 0

    def look(self, event_max_ms: int) -> None:
        event, now_ms = self._event(), self._clock.monotonic_ms()
        if event is None or now_ms < self._not_before_ms:
            return
        name, since_ns = event
        took_ms = now_ms - since_ns // NS_PER_MS
        if took_ms <= event_max_ms:
            return
        self._not_before_ms = now_ms + AGAIN_MS
        log.error(
            "the event %s takes the controller %d ms, longer than controller.event.max.ms: another"
            " broker is to be elected; see whether a disk of this one hangs",
            name,
            took_ms,
        )
        try:
            self._give_up()
        except StoreError as error:
            log.error("the office of controller cannot be given up: %s", error)
