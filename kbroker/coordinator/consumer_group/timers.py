"""The timers of a consumer group: a session for each member, and the time to give partitions up.

A session is not a timer for each heartbeat: the timer of a member fires once in a session, looks
when the session is over, and is set again for the rest. A session begins with each heartbeat, also
one that C has answered, and with the load of the group: timers are not in the log. The time for
giving up is the member's rebalance timeout, and begins where the member is asked for it, or asked
for more.

Used under the group's lock; the timer's thread calls the group, which takes it. A timer that was
cancelled too late finds its token outdated.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING, Final

from kbroker.coordinator.consumer_group.images import LEAVES_FOR_NOW_EPOCH
from kbroker.coordinator.consumer_group.states import MemberState
from kbroker.coordinator.runtime.deadline import Deadline

if TYPE_CHECKING:
    from kbroker.clock import Clock
    from kbroker.coordinator.consumer_group.images import CurrentImage
    from kbroker.purgatory.timer import CallLater


TRY_AGAIN_MS: Final = 1_000


class _MemberTimers:
    __slots__ = (
        "due_ms", "revocation", "revoking_epoch", "session", "session_set_ms", "timeout_ms",
    )  # fmt: skip

    def __init__(self, session: Deadline, revocation: Deadline) -> None:
        self.session = session
        self.revocation = revocation
        self.due_ms = 0
        self.timeout_ms = 0
        self.session_set_ms = -1  # when its timer fires; -1: none is set
        self.revoking_epoch: int | None = None


class Timers:
    """Of one group."""

    __slots__ = (
        "_call_later", "_clock", "_heard_ms", "_members", "_revocation_over", "_session_over",
    )  # fmt: skip

    def __init__(
        self,
        clock: Clock,
        call_later: CallLater,
        session_over: Callable[[str, int], object],
        revocation_over: Callable[[str, int], object],
        heard_ms: Callable[[str], int],
    ) -> None:
        """The first two are called with the member's id and a token, without a lock. `heard_ms`:
        when C has answered the member last."""
        self._clock: Final = clock
        self._call_later: Final = call_later
        self._session_over: Final = session_over
        self._revocation_over: Final = revocation_over
        self._heard_ms: Final = heard_ms
        self._members: dict[str, _MemberTimers] = {}

    def renew(self, member_id: str, timeout_ms: int) -> None:
        """Its session begins now."""
        timers = self._members.get(member_id)
        if timers is None:
            timers = self._members[member_id] = _MemberTimers(
                Deadline(self._call_later, partial(self._session_over, member_id)),
                Deadline(self._call_later, partial(self._revocation_over, member_id)),
            )
        timers.timeout_ms = timeout_ms
        timers.due_ms = self._clock.monotonic_ms() + timeout_ms
        if not 0 <= timers.session_set_ms <= timers.due_ms:
            self._set_session(timers)

    def _set_session(self, timers: _MemberTimers) -> None:
        timers.session_set_ms = timers.due_ms
        timers.session.set(max(0, timers.due_ms - self._clock.monotonic_ms()))

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

    def is_revocation_over(self, member_id: str, token: int) -> bool:
        timers = self._members.get(member_id)
        return timers is not None and timers.revocation.is_due(token)

    def follow(self, member_id: str, current: CurrentImage, timeout_ms: int) -> None:
        """The member has this now. Its session was begun before."""
        timers = self._members.get(member_id)
        if timers is None:
            return
        # One that is away owns nothing, and has its session to come back.
        if current.state is not MemberState.UNREVOKED or current.epoch == LEAVES_FOR_NOW_EPOCH:
            if timers.revoking_epoch is not None:
                timers.revoking_epoch = None
                timers.revocation.clear()
        elif timers.revoking_epoch != current.epoch:
            timers.revoking_epoch = current.epoch
            timers.revocation.set(max(0, timeout_ms))

    def end(self, member_id: str) -> None:
        timers = self._members.pop(member_id, None)
        if timers is not None:
            timers.session.clear()
            timers.revocation.clear()

    def end_all(self) -> None:
        for member_id in list(self._members):
            self.end(member_id)

    def without(self, members: Iterable[str]) -> list[str]:
        """Those that have no session."""
        return [each for each in members if each not in self._members]
