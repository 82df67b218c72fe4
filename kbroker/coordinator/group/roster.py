"""The members of a group: static ones by instance, ids handed out, protocols in common.

Pure data, no lock of its own: it belongs to its group and is touched under the group's lock. It
keeps the counts that every join in a group of a thousand members needs (how many wait, which
protocols all of them have), so a join costs the same in a large group as in a small one. Only
forming a generation walks all members.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kbroker.coordinator.group.member import Member, shared_names
from kbroker.errors import ErrorCode, InvariantError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from kbroker.coordinator.group.messages import AnswerJoin, JoinAsked, Protocols


class Roster:
    """See the module. The order of `members` is that of joining."""

    __slots__ = ("_awaiting_join", "_supported", "leader", "members", "pending", "static",
                 "unsynced")  # fmt: skip

    def __init__(self) -> None:
        self.members: dict[str, Member] = {}
        self.static: dict[str, str] = {}  # instance id -> member id
        # Ids handed out and not joined with yet -> how to cancel their timer.
        self.pending: dict[str, Callable[[], object]] = {}
        # Members that were answered with the generation and have not asked for their assignment.
        self.unsynced: set[str] = set()
        self.leader: str | None = None
        self._awaiting_join = 0
        self._supported: dict[str, int] = {}

    def __len__(self) -> int:
        return len(self.members)

    # --- coming and going ---

    def add(self, member: Member) -> None:
        if member.member_id in self.members:
            raise InvariantError(f"{member.member_id} is a member already")
        if member.instance_id is not None:
            self.static[member.instance_id] = member.member_id
        self.members[member.member_id] = member
        self._count(member.protocols, 1)
        if self.leader is None:
            self.leader = member.member_id

    def remove(self, member_id: str) -> Member:
        """Take a member out; the next leader is the one that joined first."""
        member = self.members.pop(member_id)
        if member.awaiting_join is not None:
            self._awaiting_join -= 1
        self.unsynced.discard(member_id)
        self._count(member.protocols, -1)
        if member.instance_id is not None and self.static.get(member.instance_id) == member_id:
            del self.static[member.instance_id]
        if self.leader == member_id:
            self.leader = next(iter(self.members), None)
        return member

    def replace(self, old_id: str, new_id: str) -> Member:
        """A static member goes on under a new id; it leads if the old one did."""
        leads = self.leader == old_id
        member = self.remove(old_id)
        member.member_id = new_id
        member.awaiting_join = member.awaiting_sync = None
        self.add(member)
        if leads:
            self.leader = new_id
        return member

    def update(self, member: Member, asked: JoinAsked) -> None:
        self._count(member.protocols, -1)
        member.protocols = shared_names(asked.protocols)
        self._count(member.protocols, 1)
        member.session_timeout_ms = asked.session_timeout_ms
        member.rebalance_timeout_ms = asked.rebalance_timeout_ms

    # --- joining ---

    def park(self, member: Member, answer: AnswerJoin) -> AnswerJoin | None:
        """Let the member's join wait; returns the one that waited before, which gets no answer
        yet."""
        before, member.awaiting_join = member.awaiting_join, answer
        if before is None:
            self._awaiting_join += 1
        return before

    def unpark(self, member: Member) -> AnswerJoin | None:
        answer, member.awaiting_join = member.awaiting_join, None
        if answer is not None:
            self._awaiting_join -= 1
        return answer

    @property
    def awaiting_join(self) -> int:
        return self._awaiting_join

    @property
    def all_joined(self) -> bool:
        return self._awaiting_join == len(self.members) and not self.pending

    def absent(self) -> list[Member]:
        """Members whose join is missing."""
        return [member for member in self.members.values() if member.awaiting_join is None]

    def elect(self) -> bool:
        """Makes a member the leader that has joined; False if none has."""
        leader = self.members.get(self.leader or "")
        if leader is not None and leader.awaiting_join is not None:
            return True
        for member in self.members.values():
            if member.awaiting_join is not None:
                self.leader = member.member_id
                return True
        return False

    @property
    def rebalance_timeout_ms(self) -> int:
        """The longest that a member asks to be given for joining; 0 without members."""
        return max((m.rebalance_timeout_ms for m in self.members.values()), default=0)

    # --- protocols ---

    def _count(self, protocols: Protocols, step: int) -> None:
        for name, _ in protocols:
            count = self._supported.get(name, 0) + step
            if count:
                self._supported[name] = count
            else:
                del self._supported[name]

    def supports(self, protocols: Iterable[tuple[str, bytes]]) -> bool:
        """Whether all members have one of these."""
        all_of_them = len(self.members)
        return any(self._supported.get(name, 0) == all_of_them for name, _ in protocols)

    def choose(self) -> str:
        """The protocol most members prefer, of those that all have.

        Of equals it is the one that the earliest member votes for.
        """
        all_of_them = len(self.members)
        common = {name for name, count in self._supported.items() if count == all_of_them}
        votes: dict[str, int] = {}
        for member in self.members.values():
            vote = member.vote(common)
            if vote is not None:
                votes[vote] = votes.get(vote, 0) + 1
        if not votes:
            raise InvariantError("members without a protocol in common")
        return max(votes, key=lambda name: votes[name])

    # --- checks of members ---

    def check(self, member_id: str, instance_id: str | None) -> ErrorCode:
        """NONE, FENCED_INSTANCE_ID where another has the instance, or UNKNOWN_MEMBER_ID."""
        if instance_id is not None:
            holder = self.static.get(instance_id)
            if holder is None:
                return ErrorCode.UNKNOWN_MEMBER_ID
            if holder != member_id:
                return ErrorCode.FENCED_INSTANCE_ID
        return ErrorCode.NONE if member_id in self.members else ErrorCode.UNKNOWN_MEMBER_ID
