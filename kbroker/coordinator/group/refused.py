"""Groups that are refused since the broker has as many as it may.

A client that is answered COORDINATOR_NOT_AVAILABLE tries again for ever, and its user sees nothing.
GROUP_MAX_SIZE_REACHED is what Apache Kafka answers where a group is full; clients give up with it,
and raise it. There a broker has no bound of groups. The operator has a count, and a line a minute.

Any thread; the lock is a leaf.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Final

from kbroker.errors import ErrorCode
from kbroker.log_lines import LogLines

logger: Final = logging.getLogger("kbroker.groups")

ALL: Final = "groups"
SHARE: Final = "share groups"
BOUNDS: Final = (ALL, SHARE)
_WORDS: Final = "The broker coordinates as many groups as it may."
_LINE_PERIOD_MS: Final = 60_000


def words_of(code: ErrorCode) -> str | None:
    """Of an answer with the code of a group that could not be made."""
    return _WORDS if code is ErrorCode.GROUP_MAX_SIZE_REACHED else None


class RefusedGroups:
    """See the module."""

    def __init__(self, monotonic_ns: Callable[[], int]) -> None:
        self._lock: Final = threading.Lock()
        self._counts = dict.fromkeys(BOUNDS, 0)
        self._lines: Final = LogLines(logger, monotonic_ns, period_ms=_LINE_PERIOD_MS)

    def add(self, group_id: str, bound: str, most: int) -> ErrorCode:
        """The answer to a request that would make this group."""
        with self._lock:
            self._counts[bound] += 1
        self._lines.write(
            logging.WARNING,
            bound,
            "group %s was refused: there are %d %s, as many as a broker may coordinate -> delete"
            " those that are not used: kbroker group list, kbroker group delete",
            group_id, most, bound,
        )  # fmt: skip
        return ErrorCode.GROUP_MAX_SIZE_REACHED

    def counts(self) -> dict[str, int]:
        """How many, by the bound."""
        with self._lock:
            return dict(self._counts)
