"""Lane: one of a fetcher's two links, the session over it, and the partitions that are in it.

A partition is in one lane at most. A partition that leaves is forgotten by the lane's session with
the next request over it, before the leader looks at any position: so no session speaks for a
partition of the other.

`moved` are those whose position may differ from the session's: they have just joined, or have got
records by Python's code, or a flush is due. A round looks at them alone, however many have not
moved; `taking` gives most positions to the session itself.

Owner: the fetcher's loop.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from kbroker.replica._taking import Taking
from kbroker.replica.fetcher_session import FetchSession, Key

if TYPE_CHECKING:
    from kbroker.clock import Clock
    from kbroker.peer.replica_fetch import FetchLimits
    from kbroker.replica.fetcher_partition import FollowedPartition
    from kbroker.replica.fetcher_settings import Link

# After so long an answer's appends let the loop's other tenants go on.
TURN_MS: Final = 5


class Lane:
    """See the head of this file."""

    def __init__(self, link: Link, limits: FetchLimits, clock: Clock, node_id: int) -> None:
        self.link = link
        self.limits = limits
        self.busy = False  # a round is under way
        self.changed = asyncio.Event()
        self.session = FetchSession()
        self.members: dict[Key, FollowedPartition] = {}
        self._moved: dict[Key, FollowedPartition] = {}
        self.taking = Taking(
            self.members, self._moved, self.session, node_id, limits, clock.monotonic_ms, TURN_MS
        )  # fmt: skip

    def join(self, partition: FollowedPartition) -> None:
        self.members[partition.key] = self._moved[partition.key] = partition

    def leave(self, partition: FollowedPartition) -> None:
        """Unless another has taken its place."""
        if self.members.get(partition.key) is partition:
            del self.members[partition.key]
            self._moved.pop(partition.key, None)
            self.session.forget(partition.key)

    def join_anew(self, partition: FollowedPartition) -> None:
        """The leader tells everything of it once more."""
        if self.members.get(partition.key) is partition:
            self.leave(partition)
            self.join(partition)

    def leave_all(self) -> list[FollowedPartition]:
        left = [*self.members.values()]
        for partition in left:
            self.leave(partition)
        return left

    def note_moved(self, partition: FollowedPartition) -> None:
        if self.members.get(partition.key) is partition:
            self._moved[partition.key] = partition

    @property
    def has_moved(self) -> bool:
        return bool(self._moved)

    def take_moved(self) -> list[FollowedPartition]:
        moved = [*self._moved.values()]
        self._moved.clear()
        return moved
