"""One member of a classic group: its protocols and time-outs, its waiting requests, its last one.

Owned by its group and touched under the group's lock only. At most one join and one sync of a
member wait at a time: a later one takes the place of the earlier, which the group answers.
"""

from __future__ import annotations

from collections.abc import Callable, Container
from sys import intern
from typing import TYPE_CHECKING

from kbroker.coordinator.group.images import MemberImage
from kbroker.coordinator.group.messages import JoinedMember, MemberDescription

if TYPE_CHECKING:
    from kbroker.coordinator.group.messages import AnswerJoin, AnswerSync, JoinAsked, Protocols


def shared_names(protocols: Protocols) -> Protocols:
    return tuple((intern(name), metadata) for name, metadata in protocols)


class Member:
    """See the module."""

    __slots__ = (
        "assignment", "awaiting_join", "awaiting_sync", "cancel_timer", "client_host", "client_id",
        "heard_ms", "instance_id", "is_new", "member_id", "protocols", "rebalance_timeout_ms",
        "session_timeout_ms", "timer_due_ms", "timer_token",
    )  # fmt: skip

    def __init__(self, member_id: str, asked: JoinAsked) -> None:
        self.member_id = member_id
        self.instance_id = asked.instance_id
        # Most members of a group have these in common: one text each, as long as one is there.
        self.client_id = intern(asked.client_id)
        self.client_host = intern(asked.client_host)
        self.session_timeout_ms = asked.session_timeout_ms
        self.rebalance_timeout_ms = asked.rebalance_timeout_ms
        self.protocols = shared_names(asked.protocols)
        self.assignment = b""
        self.awaiting_join: AnswerJoin | None = None
        self.awaiting_sync: AnswerSync | None = None
        # Until its first generation: it cannot send heartbeats yet, nor be seen to disconnect.
        self.is_new = True
        self.heard_ms = 0
        self.timer_due_ms = 0
        self.timer_token = 0
        self.cancel_timer: Callable[[], object] | None = None

    @property
    def is_static(self) -> bool:
        return self.instance_id is not None

    @property
    def is_waiting(self) -> bool:
        """Whether it has a request with us: then silence is ours and not the member's."""
        return self.awaiting_join is not None or self.awaiting_sync is not None

    def subscription(self, protocol: str | None) -> bytes:
        """What it said under this protocol."""
        for name, metadata in self.protocols:
            if name == protocol:
                return metadata
        return b""

    def vote(self, candidates: Container[str]) -> str | None:
        """The first of its protocols that all members have."""
        for name, _ in self.protocols:
            if name in candidates:
                return name
        return None

    def joined(self, protocol: str | None) -> JoinedMember:
        return JoinedMember(self.member_id, self.instance_id, self.subscription(protocol))

    def image(self, protocol: str | None) -> MemberImage:
        return MemberImage(
            self.member_id,
            self.instance_id,
            self.client_id,
            self.client_host,
            self.rebalance_timeout_ms,
            self.session_timeout_ms,
            self.subscription(protocol),
            self.assignment,
        )

    def described(self, protocol: str | None) -> MemberDescription:
        """Without a protocol without its data; the assignment is the last one that was given."""
        return MemberDescription(
            self.member_id,
            self.instance_id,
            self.client_id,
            self.client_host,
            b"" if protocol is None else self.subscription(protocol),
            self.assignment,
        )
