"""The timers of a consumer group: a session for each member, and the time for an owed request.

A session is not a timer for each heartbeat: the timer of a member fires once in a session, looks
when the session is over, and is set again for the rest. A session begins with each heartbeat, also
one that C has answered, and with the load of the group: timers are not in the log. A member owes
one thing at a time: to give partitions up, or, where it speaks the classic protocol, to join again
or to ask for its assignment. It has its rebalance timeout for it, from when it is asked for it, or
asked for more.

Used under the group's lock; the timer's thread calls the group, which takes it. A timer that was
cancelled too late finds its token outdated.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable
from enum import Enum
from functools import partial
from typing import TYPE_CHECKING, Final, Protocol

from kbroker.coordinator.consumer_group.images import LEAVES_FOR_NOW_EPOCH
from kbroker.coordinator.consumer_group.states import MemberState
from kbroker.coordinator.runtime.deadline import Deadline

if TYPE_CHECKING:
    from kbroker.clock import Clock
    from kbroker.purgatory.timer import CallLater


TRY_AGAIN_MS: Final = 1_000


class Owes(Enum):
    """The value says it in words."""

    NOTHING = "nothing"
    REVOCATION = "to confirm that it has given partitions up"
    JOIN = "to join again"
    SYNC = "to ask for its assignment"


class Reconciled(Protocol):
    """What a member of either protocol has."""

    @property
    def epoch(self) -> int: ...

    @property
    def state(self) -> MemberState: ...


class _MemberTimers:
    __slots__ = (
        "due_ms", "owed", "owes", "revoking_epoch", "session", "session_set_ms", "timeout_ms",
    )  # fmt: skip

    def __init__(self, session: Deadline, owed: Deadline) -> None:
        self.session = session
        self.owed = owed
        self.due_ms = 0
        self.timeout_ms = 0
        self.session_set_ms = -1  # when its timer fires; -1: none is set
        self.owes = Owes.NOTHING
        self.revoking_epoch: int | None = None

    def owe(self, what: Owes, timeout_ms: int) -> None:
        self.owes = what
        self.owed.set(max(0, timeout_ms))

    def owes_no_more(self, *what: Owes) -> None:
        if self.owes in what:
            self.owes = Owes.NOTHING
            self.revoking_epoch = None
            self.owed.clear()


class Timers:
    """Of one group."""

    __slots__ = ("_call_later", "_clock", "_heard_ms", "_members", "_owed_over", "_session_over")

    def __init__(
        self,
        clock: Clock,
        call_later: CallLater,
        session_over: Callable[[str, int], object],
        owed_over: Callable[[str, int], object],
        heard_ms: Callable[[str], int],
    ) -> None:
        """The first two are called with the member's id and a token, without a lock. `heard_ms`:
        when C has answered the member last."""
        self._clock: Final = clock
        self._call_later: Final = call_later
        self._session_over: Final = session_over
        self._owed_over: Final = owed_over
        self._heard_ms: Final = heard_ms
        self._members: dict[str, _MemberTimers] = {}

    def renew(self, member_id: str, timeout_ms: int) -> None:
        """Its session begins now."""
        timers = self._members.get(member_id)
        if timers is None:
            timers = self._members[member_id] = _MemberTimers(
                Deadline(self._call_later, partial(self._session_over, member_id)),
                Deadline(self._call_later, partial(self._owed_over, member_id)),
            )
        timers.timeout_ms = timeout_ms
        timers.due_ms = self._clock.monotonic_ms() + timeout_ms
        if not 0 <= timers.session_set_ms <= timers.due_ms:
            self._set_session(timers)

    def _set_session(self, timers: _MemberTimers) -> None:
        timers.session_set_ms = timers.due_ms
        timers.session.set(max(0, timers.due_ms - self._clock.monotonic_ms()))

    def keep_heard(self) -> None:
        """Sessions that began with heartbeats in C go on: C is about to forget when those were."""
        for member_id, timers in self._members.items():
            timers.due_ms = max(timers.due_ms, self._heard_ms(member_id) + timers.timeout_ms)

    def is_session_over(self, member_id: str, token: int) -> bool:
        """Whether the member's time is up, now that its timer has fired; else it is set again."""
        timers = self._members.get(member_id)
        if timers is None or not timers.session.is_due(token):
            return False
        timers.due_ms = max(timers.due_ms, self._heard_ms(member_id) + timers.timeout_ms)
        now_ms = self._clock.monotonic_ms()
        if timers.due_ms <= now_ms:
            # Its end comes with the member's. Where that fails, it is tried again.
            timers.due_ms = now_ms + TRY_AGAIN_MS
            self._set_session(timers)
            return True
        self._set_session(timers)
        return False

    def is_owed_over(self, member_id: str, token: int) -> Owes:
        """What the member owes, if the time for it is up now that the timer has fired."""
        timers = self._members.get(member_id)
        if timers is None or not timers.owed.is_due(token):
            return Owes.NOTHING
        # Its end comes with the member's. Where that fails, it is tried again.
        timers.owed.set(TRY_AGAIN_MS)
        return timers.owes

    def follow(
        self, member_id: str, current: Reconciled, timeout_ms: int, *, is_classic: bool
    ) -> None:
        """The member has this now. Its session was begun before."""
        timers = self._members.get(member_id)
        if timers is None:
            return
        if is_classic:
            timers.owes_no_more(Owes.REVOCATION)
            return
        timers.owes_no_more(Owes.JOIN, Owes.SYNC)
        # One that is away owns nothing, and has its session to come back.
        if current.state is not MemberState.UNREVOKED or current.epoch == LEAVES_FOR_NOW_EPOCH:
            timers.owes_no_more(Owes.REVOCATION)
        elif timers.revoking_epoch != current.epoch:
            timers.revoking_epoch = current.epoch
            timers.owe(Owes.REVOCATION, timeout_ms)

    def is_to_join(self, member_id: str, timeout_ms: int) -> None:
        """A member of the classic protocol was asked to join; the time runs from the first time."""
        timers = self._members.get(member_id)
        if timers is not None and timers.owes is Owes.NOTHING:
            timers.owe(Owes.JOIN, timeout_ms)

    def is_to_sync(self, member_id: str, timeout_ms: int) -> None:
        """It has joined."""
        timers = self._members.get(member_id)
        if timers is not None:
            timers.owe(Owes.SYNC, timeout_ms)

    def has_synced(self, member_id: str) -> None:
        timers = self._members.get(member_id)
        if timers is not None:
            timers.owes_no_more(Owes.SYNC)

    def end(self, member_id: str) -> None:
        timers = self._members.pop(member_id, None)
        if timers is not None:
            timers.session.clear()
            timers.owed.clear()

    def end_all(self) -> None:
        for member_id in list(self._members):
            self.end(member_id)

    def end_others(self, members: Container[str]) -> None:
        """Only these members are there: others have joined in a step that was taken back."""
        for member_id in [each for each in self._members if each not in members]:
            self.end(member_id)

    def without(self, members: Iterable[str]) -> list[str]:
        """Those that have no session."""
        return [each for each in members if each not in self._members]
