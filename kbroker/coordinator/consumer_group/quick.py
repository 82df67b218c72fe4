"""How soon a member is to come again: soon while its group changes.

A heartbeat is all that moves a member, so a rebalance takes some heartbeats of each. While a group
changes (a member is younger than CHANGES_FOR_MS, a target is not reached, a pattern is not
resolved) its members are given QUICK_MS instead of the interval of the configuration, for
CHANGES_FOR_MS at most after the last change, and for MEMBERS_MAX members of this broker at most.

Any thread; one leaf lock.
"""

from __future__ import annotations

import threading
from typing import Final

# A second member gets its partitions in its third heartbeat, and librdkafka needs another 105 ms to
# its first record. Both are to be less than 300 ms together.
QUICK_MS: Final = 90
CHANGES_FOR_MS: Final = 3_000
MEMBERS_MAX: Final = 1_000


class QuickGroups:
    """The groups that change now. A note of one ends by itself."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._groups: dict[str, tuple[int, int]] = {}  # members; until when
        self._members = 0

    def may(self, group_id: str, members: int, until_ms: int, now_ms: int) -> bool:
        """Whether this group, with so many members, may be one of them until then."""
        with self._lock:
            self._forget(group_id)
            if self._members + members > MEMBERS_MAX:
                for each, (_, end_ms) in list(self._groups.items()):
                    if end_ms <= now_ms:
                        self._forget(each)
                if self._members + members > MEMBERS_MAX:
                    return False
            self._groups[group_id] = (members, until_ms)
            self._members += members
            return True

    def ended(self, group_id: str) -> None:
        if group_id in self._groups:
            with self._lock:
                self._forget(group_id)

    def _forget(self, group_id: str) -> None:
        before = self._groups.pop(group_id, None)
        if before is not None:
            self._members -= before[0]
