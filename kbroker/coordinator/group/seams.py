"""What the parts of the group coordinator know of each other.

    handlers -> GroupCoordinator -> GroupStore (records of groups, appended with acks=-1)
                     |
                     +-> HotView: what the compiled path needs to answer Heartbeat and OffsetCommit

The coordinator decides; the store makes it last; the hot view repeats the outcome where C can read
it, and notes the time of each member's last request, so that a heartbeat costs no Python.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from kbroker.coordinator.group.expiration import GroupAge
    from kbroker.coordinator.group.images import GroupImage
    from kbroker.coordinator.group.messages import (
        Admission,
        AnswerJoin,
        AnswerLeave,
        AnswerSync,
        CommitAsked,
        GroupDescription,
        GroupListing,
        JoinAsked,
        Labelled,
        Leaver,
        SyncAsked,
    )
    from kbroker.errors import ErrorCode


class PublishedGroup(NamedTuple):
    """A group as C has it."""

    state: int
    generation: int
    members: Sequence[tuple[str, str | None]]  # member id, instance id; in no order


class GroupStore(Protocol):
    """The group's partition of `__consumer_offsets`."""

    def state_of(self, group_id: str) -> ErrorCode:
        """NONE when this broker owns the group; COORDINATOR_LOAD_IN_PROGRESS, NOT_COORDINATOR or
        COORDINATOR_NOT_AVAILABLE otherwise."""
        ...

    def write_group(
        self, image: GroupImage, incarnation: int, done: Callable[[ErrorCode], None]
    ) -> None:
        """Append the group's record; `done` is called once, without any lock held, perhaps at
        once, when it survives what acks=-1 survives. A group that has been made anew since, with
        a higher incarnation, is not written over."""
        ...

    def delete_group(
        self,
        group_id: str,
        in_log: Callable[[], object],
        done: Callable[[ErrorCode], None],
    ) -> None:
        """Append tombstones for the group and for all its offsets. `in_log` is called when they
        are in the log, from where nothing takes them back, then `done` as of other writes."""
        ...

    def when_settled(self, group_id: str, done: Callable[[ErrorCode], object]) -> None:
        """`done` is called once, without any lock held, perhaps at once, when all that any caller
        wrote of the group survives what acks=-1 survives; or with an error."""
        ...


class Committer(NamedTuple):
    """Who commits offsets to a group; `checked_twice`: the group has said twice that it may.
    `in_transaction`: they are part of a transaction."""

    member_id: str
    instance_id: str | None
    generation: int  # below 0: no member
    checked_twice: bool = False
    in_transaction: bool = False


class HotView(Protocol):
    """The groups as C sees them. Any thread; never calls back."""

    def publish_members(
        self,
        group_id: str,
        *,
        state: int,
        generation: int,
        members: Iterable[tuple[str, str | None]],
    ) -> None:
        """Replace what C knows of the group: `state` is a `GroupState`, members are
        (member id, instance id). Call it under the group's lock, after every change."""
        ...

    def published(self, group_id: str) -> PublishedGroup | None:
        """What C knows of the group; None: nothing, and Python is asked. For checks."""
        ...

    def remove_members(self, group_id: str) -> None:
        """The group is gone (Dead) or this broker no longer owns it."""
        ...

    def last_heard_ms(self, group_id: str, member_id: str) -> int:
        """Monotonic ms of the member's last heartbeat or commit in C; 0 if never."""
        ...


class OtherGroup(Protocol):
    """A group of another kind, under an id that no classic group has. Any thread."""

    @property
    def group_id(self) -> str: ...

    @property
    def is_empty(self) -> bool: ...

    @property
    def member_count(self) -> int: ...

    @property
    def state(self) -> Labelled: ...

    def join(self, asked: JoinAsked, answer: AnswerJoin) -> None: ...

    def sync(self, asked: SyncAsked, answer: AnswerSync) -> None: ...

    def heartbeat(self, member_id: str, instance_id: str | None, generation: int) -> ErrorCode: ...

    def leave(self, leavers: Sequence[Leaver], answer: AnswerLeave) -> None: ...

    def retire(self, done: Callable[[ErrorCode], object]) -> None:
        """It makes room for a classic group if it is empty; its offsets stay."""
        ...

    def delete(
        self,
        done: Callable[[ErrorCode], object],
        *,
        unless: Callable[[], bool],
        gone: Callable[[], object],
    ) -> None: ...

    def unload(self) -> None: ...

    def admit_commit(self, asked: CommitAsked) -> Admission: ...

    def fetch_error(self, member_id: str | None, epoch: int) -> ErrorCode: ...

    def readers(self) -> tuple[ErrorCode, frozenset[str] | None]: ...

    def aged(self) -> GroupAge: ...

    def described(self) -> GroupDescription | None: ...

    def listed(self) -> GroupListing: ...
