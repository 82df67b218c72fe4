"""The requests of members to a group and its answers, free of versions and bytes.

The handlers make these from requests and answers from these; the group knows nothing else of the
wire. Immutable.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from kbroker.coordinator.group.images import NO_GENERATION
from kbroker.coordinator.group.states import GroupState
from kbroker.errors import ErrorCode

if TYPE_CHECKING:
    from uuid import UUID

# The type of a group, as ListGroups has it.
CLASSIC: Final = "classic"
# A JoinGroup without a member id comes from a member that has none yet.
NO_MEMBER_ID: Final = ""

# Names with opaque metadata, in the member's order of preference.
Protocols = tuple[tuple[str, bytes], ...]


class JoinAsked(NamedTuple):
    """A JoinGroup request."""

    group_id: str
    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    protocol_type: str
    protocols: Protocols
    session_timeout_ms: int
    rebalance_timeout_ms: int
    needs_id: bool = True  # since version 4 a dynamic member joins under an id it was given
    may_skip: bool = True  # since version 9 the answer may have a leader assign nothing


class JoinedMember(NamedTuple):
    """A member in the leader's answer."""

    member_id: str
    instance_id: str | None
    subscription: bytes


class JoinAnswer(NamedTuple):
    code: ErrorCode = ErrorCode.NONE
    member_id: str = NO_MEMBER_ID
    generation: int = NO_GENERATION
    protocol_type: str | None = None
    protocol: str | None = None
    leader: str = NO_MEMBER_ID
    skip_assignment: bool = False
    members: tuple[JoinedMember, ...] = ()


class SyncAsked(NamedTuple):
    """A SyncGroup request; protocol type and name (version 5) are checked where they are given."""

    group_id: str
    member_id: str
    instance_id: str | None
    generation: int
    protocol_type: str | None = None
    protocol: str | None = None
    assignments: tuple[tuple[str, bytes], ...] = ()


class SyncAnswer(NamedTuple):
    code: ErrorCode = ErrorCode.NONE
    protocol_type: str | None = None
    protocol: str | None = None
    assignment: bytes = b""


class Leaver(NamedTuple):
    """One member of a LeaveGroup request; a static member may be named by its instance alone."""

    member_id: str
    instance_id: str | None = None
    reason: str | None = None


class LeaveAnswer(NamedTuple):
    """An error for all, or one for each who was named."""

    code: ErrorCode = ErrorCode.NONE
    members: tuple[ErrorCode, ...] = ()


class Refusal(NamedTuple):
    """Why a group stays of its kind, in words that follow "because"."""

    reason: str


class MemberDescription(NamedTuple):
    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    subscription: bytes
    assignment: bytes


class GroupDescription(NamedTuple):
    """A group as DescribeGroups tells of it; the protocol and bytes only where it is stable."""

    group_id: str
    state: GroupState
    protocol_type: str
    protocol: str
    members: tuple[MemberDescription, ...]


class Labelled(Protocol):
    """A state of a group of any kind."""

    @property
    def label(self) -> str: ...


class GroupListing(NamedTuple):
    group_id: str
    state: Labelled
    protocol_type: str
    type: str = CLASSIC


class CommitAsked(NamedTuple):
    """Who wants to commit offsets. `make`: a group is made for those of no member."""

    group_id: str
    member_id: str
    instance_id: str | None
    generation: int  # or the epoch of a member of the consumer protocol
    partitions: Callable[[], Iterable[tuple[UUID, int]]]  # by topic id
    version: int
    in_transaction: bool = False
    make: bool = True


class Admission(NamedTuple):
    """Whether offsets may be committed, and the generation under which C writes them: nothing of
    the group may have changed by then. `is_final`: C asks for nothing else."""

    code: ErrorCode
    generation: int = NO_GENERATION
    is_final: bool = False


AnswerJoin = Callable[[JoinAnswer], object]
AnswerSync = Callable[[SyncAnswer], object]
AnswerLeave = Callable[[LeaveAnswer], object]
