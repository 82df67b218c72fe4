"""A step of a group: what happens under its lock at once, and all of it or none.

    with Step(group, tell=once):
        ...                        the table's effects change the group
    # on the way out: C is shown the outcome, the lock is let go, answers and writes go out

Two views have a group, Python's and C's, and answers that promise something. What a step has done
is shown to C once, at its end and before the lock is free; where that raises, C is told to know
nothing of the group, so that Heartbeat and OffsetCommit are asked of Python: C's view is the same
or none. What raises in the step itself leaves a group of which nobody can say what holds: it starts
over (`Rebalance.start_over`), without members, in a new generation. Who waited for it, the request
of this step among them, is told COORDINATOR_NOT_AVAILABLE and comes anew.

Then it is said and counted (`failures.py`); nothing of it reaches the caller. `checked` has every
step end with a comparison of both views (`disagreement`): the group model runs so.
"""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final

from kbroker.coordinator.group.states import GroupState
from kbroker.errors import InvariantError

if TYPE_CHECKING:
    from kbroker.coordinator.group.rebalance import Rebalance


class Once:
    """A callback that is called once: the first caller is heard, the others are too late.

    Called from the group's outbox only, which runs on one thread at a time.
    """

    __slots__ = ("_call",)

    def __init__(self, call: Callable[[Any], object]) -> None:
        self._call: Callable[[Any], object] | None = call

    def __call__(self, told: Any) -> None:
        call, self._call = self._call, None
        if call is not None:
            call(told)


class Step:
    """See the module. `tell` is called from the outbox if the step raises."""

    __slots__ = ("_group", "_tell", "failed")

    def __init__(self, group: Rebalance, tell: Callable[[], object] | None = None) -> None:
        self._group: Final = group
        self._tell = tell
        self.failed = False

    def __enter__(self) -> Step:
        self._group.lock.acquire()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> bool:
        group = self._group
        try:
            self._end(group, error)
        finally:
            group.lock.release()
            group.outbox.run()
        return error is None or isinstance(error, Exception)

    def _end(self, group: Rebalance, error: BaseException | None) -> None:
        if error is not None:
            self.failed = True
            try:
                group.start_over(error)
            finally:
                if self._tell is not None:
                    group.outbox.add(self._tell)
        group.publish_if_changed()
        if group.around.checked and (wrong := disagreement(group)):
            raise InvariantError(wrong)


def disagreement(group: Rebalance) -> str | None:
    """What C says otherwise than Python, in words; None if they agree, or C knows nothing.

    Members who are not in a generation yet are not shown. Of a group that is dead C may know the
    one that has its id now. The lock is held.
    """
    shown = group.around.view.published(group.group_id)
    if shown is None or group.state is GroupState.DEAD:
        return None
    here = (group.state, group.generation, frozenset(group.generation_members()))
    if (shown.state, shown.generation, frozenset(shown.members)) == here:
        return None
    return f"group {group.group_id} is {here}, and C has {shown}"
