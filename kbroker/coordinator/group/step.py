"""A step of a group: what happens under its lock at once, and all of it or none.

    with Step(group, on_failure=once):
        ...                        the table's effects change the group
    # on the way out: C gets the outcome, the lock is let go, answers and writes go out

Two views have a group, Python's and C's, and answers that promise something. The outcome of a step
is published to C once, at its end and before the lock is free; if that raises, C is to know nothing
of the group, so that Heartbeat and OffsetCommit go to Python: C's view is the same or none. An
exception in the step itself leaves a group whose state cannot be trusted: it starts over
(`Rebalance.start_over`), without members, in a new generation. The requests that waited for it, and
the one of this step, are answered COORDINATOR_NOT_AVAILABLE and come again.

Then it is logged and counted (`failures.py`); nothing of it reaches the caller. `checked` has every
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
    """A callback that is called once: the first call counts, the others are too late.

    Called from the group's outbox only, which runs on one thread at a time.
    """

    __slots__ = ("_call",)

    def __init__(self, call: Callable[[Any], object]) -> None:
        self._call: Callable[[Any], object] | None = call

    def __call__(self, answer: Any) -> None:
        call, self._call = self._call, None
        if call is not None:
            call(answer)


class Step:
    """See the module. `on_failure` is called from the outbox if the step raises."""

    __slots__ = ("_group", "_on_failure", "failed")

    def __init__(self, group: Rebalance, on_failure: Callable[[], object] | None = None) -> None:
        self._group: Final = group
        self._on_failure = on_failure
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
                if self._on_failure is not None:
                    group.outbox.add(self._on_failure)
        group.publish_if_changed()
        if group.around.checked and (wrong := disagreement(group)):
            raise InvariantError(wrong)


def disagreement(group: Rebalance) -> str | None:
    """What C says otherwise than Python, in words; None if they agree, or C knows nothing.

    Members that are not in a generation yet are not published. Of a group that is dead C may know
    the one that has its id now. The lock is held.
    """
    published = group.around.view.published(group.group_id)
    if published is None or group.state is GroupState.DEAD:
        return None
    here = (group.state, group.generation, frozenset(group.generation_members()))
    if (published.state, published.generation, frozenset(published.members)) == here:
        return None
    return f"group {group.group_id} is {here}, and C has {published}"
