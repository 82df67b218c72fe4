"""How the broker's own threads are: steps that raised, and threads that are dead.

Read by `/readyz` and the figures, from any thread. A thread that ended because it was asked to is
none of these. The threads of the network core run no Python: there is nothing that they could
raise, and what they find impossible ends the process.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from kbroker.failures import Failures
from kbroker.own_thread import OwnThread


class Health:
    """`threads` gives those that there are now, `others` what runs on any thread."""

    def __init__(
        self,
        threads: Callable[[], Iterable[OwnThread | None]],
        others: Iterable[Failures] = (),
    ) -> None:
        self._threads = threads
        self._others = tuple(others)

    def dead(self) -> list[str]:
        """Names of the threads that are lost; the broker cannot serve without them."""
        return sorted(each.name for each in self._threads() if each is not None and each.dead)

    def failures(self) -> dict[str, int]:
        """Steps that raised, by the thread or part whose they were."""
        counts: dict[str, int] = {}
        own = [each.failures for each in self._threads() if each is not None]
        for failures in (*own, *self._others):
            counts[failures.part] = counts.get(failures.part, 0) + failures.count
        return counts
