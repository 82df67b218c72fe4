"""The members whose next heartbeat C answers, since it will change nothing.

    a heartbeat has changed nothing, and is answered   -> `show`: C answers the next one like it
    the group changes, or an image is published        -> C asks Python again, member by member

C compares three numbers: the group's, which is another one after each change of it
(`Steps._publish`), that of the images, and the time until which no pattern is to be looked for. So
nothing has to be taken back, but for members that go. C notes the time of each heartbeat; a session
timer asks for it when it fires.

A group's `Beats` is used under its lock; a leaf but for C's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from kbroker.coordinator.consumer_group.states import MemberState

if TYPE_CHECKING:
    from kbroker.coordinator.consumer_group.settings import Settings
    from kbroker.coordinator.consumer_group.state import GroupState

NEVER_MS: Final = 2**63 - 1


class ShownBeat(NamedTuple):
    """A member as C has it, and what its group has at this moment."""

    member_id: str
    instance_id: str | None
    epoch: int
    client_id: str
    host: str  # its address
    generation: int  # the group's number in C
    interval_ms: int
    images: int  # that had been published before the decision
    until_ms: int  # monotonic


class BeatsInC(Protocol):
    """Any thread."""

    @property
    def images(self) -> int:
        """How many images of the cluster have been published."""
        ...

    def show(self, group_id: str, beat: ShownBeat) -> None:
        """Nothing where C has another number for the group. MemoryError. OSError: the host is no
        address."""
        ...

    def forget(self, group_id: str, member_id: str) -> None: ...

    def heard_ms(self, group_id: str, member_id: str) -> int:
        """Monotonic ms of its last heartbeat that C has answered; 0: none is known."""
        ...


class Beats:
    """Of one group."""

    __slots__ = ("_group_id", "_in_c", "_settings")

    def __init__(self, group_id: str, in_c: BeatsInC) -> None:
        self._group_id: Final = group_id
        self._in_c: Final = in_c
        self._settings: tuple[int, int] | None = None

    @property
    def images(self) -> int:
        """To be read before anything of an image is."""
        return self._in_c.images

    def are_other(self, settings: Settings) -> bool:
        """Whether members were published under other settings: each is to come to Python once."""
        now = (settings.heartbeat_interval_ms, settings.session_timeout_ms)
        before, self._settings = self._settings, now
        return before is not None and before != now

    def show(
        self, state: GroupState, member_id: str, *, generation: int, interval_ms: int, images: int,
        until_ms: int,
    ) -> None:  # fmt: skip
        """If the member's next heartbeat changes nothing. There is no change that the log or the
        followers lack."""
        member, current = state.members[member_id], state.current_of(member_id)
        if (
            current.state is not MemberState.STABLE
            or not 0 < current.epoch == state.assignment_epoch == state.epoch
        ):
            return
        beat = ShownBeat(
            member_id, member.instance_id, current.epoch, member.client_id,
            member.client_host.removeprefix("/"), generation, interval_ms, images, until_ms,
        )  # fmt: skip
        try:
            self._in_c.show(self._group_id, beat)
        except (MemoryError, OSError):
            return  # no room, or a client without an address: Python answers it

    def forget(self, member_id: str) -> None:
        self._in_c.forget(self._group_id, member_id)

    def heard_ms(self, member_id: str) -> int:
        return self._in_c.heard_ms(self._group_id, member_id)
