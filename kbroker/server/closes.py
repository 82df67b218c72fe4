"""Connections that the network core has ended, in the log: a line a second for each reason.

Without the GIL nothing can be logged, so the network threads and the hot path count what they close
by cause, and this task of the scheduler says what has been added. A second in which nothing was
closed says nothing. Connections that Python closes have their own lines (`handlers/reply.py`).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Final

from kbroker._net import UNREAD

logger: Final = logging.getLogger("kbroker.network")


class ClosedConnections:
    """`counters` gives the counts since the start, by the reason in words."""

    def __init__(self, counters: Callable[[], Mapping[str, int]]) -> None:
        self._counters = counters
        self._reported: dict[str, int] = {}

    def tell(self) -> None:
        for reason, count in self._counters().items():
            added = count - self._reported.get(reason, 0)
            if added:
                self._reported[reason] = count
                level = logging.WARNING if reason == UNREAD else logging.INFO
                plural = "s"[: added != 1]
                logger.log(level, "closed %d connection%s: %s", added, plural, reason)
