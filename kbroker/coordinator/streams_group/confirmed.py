"""What the members of one group have said last that they own.

A member says it when it joins, when that has changed since it said it last, and after a request
that failed. Kafka Streams 4.3 takes tasks on its own thread, and meanwhile sends heartbeats. If it
is given meanwhile what it has said before, it may be done with both before it sends the next one:
then nothing has changed for it, and it says nothing, while the coordinator waits for it to give up
what it had in between, until the rebalance timeout. So a member that has not said that it has its
tasks is not given back those that it said it had: it is left as it is until it does, for its
rebalance timeout at most (`reconciliation.py`).

In memory only: of a member that has said nothing since the group was loaded it is taken that it has
what it was given before. It belongs to its group, and is used under the group's lock.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kbroker.coordinator.consumer_group.images import JOINS_EPOCH
from kbroker.coordinator.streams_group.reconciliation import is_part_of

if TYPE_CHECKING:
    from kbroker.coordinator.streams_group.images import CurrentImage, TaskSet
    from kbroker.coordinator.streams_group.messages import HeartbeatAsked


class Confirmed:
    """See the module."""

    __slots__ = ("_said", "_waits_since_ms")

    def __init__(self) -> None:
        # Of members that have not said that they have what they were given.
        self._said: dict[str, TaskSet] = {}
        self._waits_since_ms: dict[str, int] = {}

    def said(
        self, asked: HeartbeatAsked, current: CurrentImage, now_ms: int, timeout_ms: int
    ) -> TaskSet | None:
        """What the member, with these tasks, owns before it is given others. None: it is not waited
        for, since it joins, or was waited for as long as `timeout_ms`."""
        if asked.epoch == JOINS_EPOCH:
            return None
        since_ms = self._waits_since_ms.get(asked.member_id, now_ms)
        if now_ms - since_ms >= max(0, timeout_ms):
            return None
        return self._said_by(asked, current)

    def _said_by(self, asked: HeartbeatAsked, current: CurrentImage) -> TaskSet:
        if asked.owned is not None:
            return asked.owned
        return self._said.get(asked.member_id) or current.assigned.plain()

    def received(self, asked: HeartbeatAsked, before: CurrentImage, after: CurrentImage) -> None:
        """A heartbeat was accepted, and the member has other tasks after it, or the same."""
        said = self._said_by(asked, before)
        if is_part_of(said, after.assigned) and said != after.assigned.plain():
            self._said[asked.member_id] = said
        else:
            self._said.pop(asked.member_id, None)

    def waits(self, member_id: str, now_ms: int | None) -> None:
        """The member is waited for from now on, or longer; None: it is not."""
        if now_ms is None:
            self._waits_since_ms.pop(member_id, None)
        else:
            self._waits_since_ms.setdefault(member_id, now_ms)

    def forget(self, member_id: str) -> None:
        self._said.pop(member_id, None)
        self._waits_since_ms.pop(member_id, None)
