"""Why members have gone: what no record of a group says.

The last ones of each group are kept in memory, for `kbroker group why`; a coordinator that takes
the group over knows none of them. Of more groups than GROUPS_MAX the one whose last departure is
longest ago is forgotten. One that is noted again, as the last of its group, counts once.

Any thread; one leaf lock.
"""

from __future__ import annotations

import threading
from collections import OrderedDict, deque
from enum import Enum
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from kbroker.clock import Clock

GROUPS_MAX: Final = 1_000
OF_A_GROUP_MAX: Final = 16
# Of the ids of a group and of a member. Clients choose them; longer ones are not kept.
ID_CHARS_MAX: Final = 256


class Why(Enum):
    """The value is the words for it."""

    LEFT = "left"
    REMOVED = "removed by an operator"
    SESSION_OVER = "timed out: no heartbeat in its session"
    NOT_REVOKED = "timed out: did not give up its partitions"
    NOT_JOINED = "timed out: did not join again"
    NOT_SYNCED = "timed out: did not ask for its assignment"
    NO_ROOM = "no room: group.max.size"


class Departure(NamedTuple):
    time_ms: int  # wall clock
    member_id: str
    why: Why


class Departures:
    """See the module."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._groups: OrderedDict[str, deque[Departure]] = OrderedDict()

    def note(self, group_id: str, member_id: str, why: Why) -> None:
        if max(len(group_id), len(member_id)) > ID_CHARS_MAX:
            return
        one = Departure(self._clock.wall_ms(), member_id, why)
        with self._lock:
            found = self._groups.setdefault(group_id, deque(maxlen=OF_A_GROUP_MAX))
            if found and (found[-1].member_id, found[-1].why) == (member_id, why):
                found.pop()  # it could not be written, and is tried again
            found.append(one)
            self._groups.move_to_end(group_id)
            if len(self._groups) > GROUPS_MAX:
                self._groups.popitem(last=False)

    def of(self, group_id: str) -> tuple[Departure, ...]:
        """The last ones, in their order."""
        with self._lock:
            return tuple(self._groups.get(group_id, ()))
