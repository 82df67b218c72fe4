"""The requests of members to a consumer group and its answers, free of versions and bytes.

The handlers make these from requests and answers from these. Immutable.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final, NamedTuple

from kbroker.coordinator.consumer_group.images import Partitions
from kbroker.errors import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kbroker.coordinator.consumer_group.states import ConsumerGroupState

NO_TIMEOUT: Final = -1

# The names among these that a client may not know.
Hidden = Callable[["Sequence[str]"], frozenset[str]]


def none_hidden(names: Sequence[str]) -> frozenset[str]:
    """To one that may know all."""
    return frozenset()


class HeartbeatAsked(NamedTuple):
    """A ConsumerGroupHeartbeat. None: as before."""

    group_id: str
    member_id: str
    epoch: int
    instance_id: str | None = None
    rack_id: str | None = None
    rebalance_timeout_ms: int = NO_TIMEOUT
    topics: tuple[str, ...] | None = None  # sorted, each once
    pattern: str | None = None
    assignor: str | None = None
    owned: Partitions | None = None
    client_id: str = ""
    client_host: str = ""
    hidden: Hidden = none_hidden

    @property
    def is_full(self) -> bool:
        """Whether it has all that a first request has."""
        subscribes = self.topics is not None or self.pattern is not None
        return self.rebalance_timeout_ms != NO_TIMEOUT and subscribes and self.owned is not None


class HeartbeatAnswer(NamedTuple):
    """`assignment` None: as before."""

    code: ErrorCode = ErrorCode.NONE
    message: str | None = None
    member_id: str | None = None
    epoch: int = 0
    interval_ms: int = 0
    assignment: Partitions | None = None


class DescribedMember(NamedTuple):
    member_id: str
    instance_id: str | None
    rack_id: str | None
    epoch: int
    client_id: str
    client_host: str
    topics: tuple[str, ...]
    pattern: str
    assigned: Partitions
    target: Partitions
    is_classic: bool


class Description(NamedTuple):
    """A group as ConsumerGroupDescribe has it."""

    group_id: str
    state: ConsumerGroupState
    epoch: int
    assignment_epoch: int
    assignor: str
    members: tuple[DescribedMember, ...]


AnswerHeartbeat = Callable[[HeartbeatAnswer], object]


class Refused(Exception):
    """A request is answered with this error, and changes nothing."""

    def __init__(self, code: ErrorCode, message: str | None = None) -> None:
        super().__init__(message or code.name)
        self.code = code
        self.message = message
