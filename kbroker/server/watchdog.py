"""Whether the broker still moves, for a service manager that starts it again if it does not.

A look finds it alive if each network thread has made a turn since the last look, the control loop
has run what the last look gave it, and none of its threads is dead. Request handlers, log workers
and the scheduler are not asked: one that waits for a disk may wait for long, while others serve and
other brokers take the lead (ADR 40), and a new start would wait for that disk, too. So the looks
have a thread of their own.

After a look that does not find it alive the manager gets nothing, and a line says why.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from typing import Any, Final

logger: Final = logging.getLogger("kbroker.server")


async def _nothing() -> None:
    """That the control loop runs it is all that is asked."""


class Watchdog:
    """`look`, once a period that is longer than a turn of an idle network thread.

    `turns`: of each network thread, what is different after a turn. `submit`: to the control loop.
    `dead`: names of lost threads. `alive`: for the manager.
    """

    def __init__(
        self,
        turns: Callable[[], Mapping[str, Any]],
        submit: Callable[[Any], Future[Any]],
        dead: Callable[[], Sequence[str]],
        alive: Callable[[], None],
    ) -> None:
        self._turns, self._submit, self._dead, self._alive = turns, submit, dead, alive
        self._before: Mapping[str, Any] = {}
        self._answer: Future[Any] | None = None

    def look(self) -> None:
        stuck = self._stuck()
        if stuck:
            logger.error("%s: the service manager will end this process", "; ".join(stuck))
            return
        self._alive()
        self._answer = self._submit(_nothing())

    def _stuck(self) -> list[str]:
        now = self._turns()
        stuck = [f"{name} does not move" for name in now if now[name] == self._before.get(name)]
        self._before = now
        if self._answer is not None and not self._answer.done():
            stuck.append("the control loop does not move")
        return stuck + [f"{name} is dead" for name in self._dead()]
