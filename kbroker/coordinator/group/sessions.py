"""The timers of one group: sessions of its members, ids handed out, joining and syncing.

A session is not a timer for each heartbeat: the timer of a member runs out once in a session, asks
when the member sent its last request (to C or here), and is set again for the rest. So a heartbeat
costs no timer, and a member has at most one.

Touched under the group's lock; the timer's thread calls `expired`, which takes it. A timer that was
cancelled too late finds its token outdated and does nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final

from kbroker.coordinator.runtime.deadline import OnWorker, at_once, later_on_worker

if TYPE_CHECKING:
    from kbroker.clock import Clock
    from kbroker.coordinator.group.departures import Departures
    from kbroker.coordinator.group.member import Member
    from kbroker.coordinator.group.seams import GroupStore, HotView
    from kbroker.failures import Failures
    from kbroker.purgatory.timer import CallLater


@dataclass(frozen=True, slots=True)
class Settings:
    """What an operator chose, at this moment."""

    initial_delay_ms: int
    size_max: int
    session_timeout_ms_min: int
    session_timeout_ms_max: int


@dataclass(frozen=True, slots=True)
class Around:
    """What a group needs of the broker around it."""

    settings: Callable[[], Settings]
    clock: Clock
    call_later: CallLater
    store: GroupStore
    view: HotView
    failures: Failures
    departures: Departures
    on_worker: OnWorker = at_once
    checked: bool = False  # compare C's view with Python's after every step

    def later(self, group_id: str) -> CallLater:
        """The timers of a group."""
        return later_on_worker(self.call_later, self.on_worker, group_id)


class Sessions:
    """The sessions of a group's members."""

    __slots__ = ("_around", "_due", "_expired", "_group_id")

    def __init__(
        self, group_id: str, around: Around, expired: Callable[[str, int], object]
    ) -> None:
        self._group_id: Final = group_id
        self._around: Final = around
        # One for all timers: ten thousand members have one each.
        self._due: Final = self._timer_ends
        self._expired: Final = expired

    def renew(self, member: Member, timeout_ms: int | None = None) -> None:
        """The member is alive as of now; its timer is set where none would fire in time."""
        member.heard_ms = self._around.clock.monotonic_ms()
        due_ms = member.heard_ms + (member.session_timeout_ms if timeout_ms is None else timeout_ms)
        if member.cancel_timer is not None and member.timer_due_ms <= due_ms:
            return
        self._set(member, due_ms)

    def _set(self, member: Member, due_ms: int) -> None:
        self.end(member)
        member.timer_due_ms = due_ms
        member.cancel_timer = self._around.call_later(
            due_ms - self._around.clock.monotonic_ms(),
            partial(self._due, member.member_id, member.timer_token),
        )

    def _timer_ends(self, member_id: str, token: int) -> None:
        self._around.on_worker(self._group_id, partial(self._expired, member_id, token))

    def end(self, member: Member) -> None:
        member.timer_token += 1
        if member.cancel_timer is not None:
            member.cancel_timer()
            member.cancel_timer = None

    def is_over(self, member: Member, token: int) -> bool:
        """Whether the member's time is up, now that its timer has fired; else it is set again.

        While a member waits for our answer its silence means nothing; the answer sets the timer.
        A new member has no id yet, so it is given up when its join has waited too long.
        """
        if token != member.timer_token or member.cancel_timer is None:
            return False
        member.cancel_timer = None
        if member.is_new:
            return True
        if member.is_waiting:
            return False
        in_c_ms = self._around.view.last_heard_ms(self._group_id, member.member_id)
        due_ms = max(member.heard_ms, in_c_ms) + member.session_timeout_ms
        if due_ms <= self._around.clock.monotonic_ms():
            return True
        self._set(member, due_ms)
        return False
