"""A thread of ours, which is not lost to an exception: what its loop raises is said and counted,
and the loop goes on.

A loop catches the errors of its steps itself. This is the net below: an error in the loop's own
code, or one that is no `Exception`. After a pause the loop is entered again, `THREAD_LIVES_MAX`
times on end; then the thread is `dead`, a line says so, `given_up` answers the callers that wait
for it, /readyz and an alert rule show it (`observe/health.py`). A life of a minute begins the count
anew: an error a day is no reason to end.

Level 0. `dead` and `failures` may be read by any thread.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable
from typing import Final

from kbroker.failures import Failures
from kbroker.limits import (
    THREAD_JOIN_TIMEOUT_MS,
    THREAD_LIFE_LONG_MS,
    THREAD_LIVES_MAX,
    THREAD_PAUSE_MS,
)

logger: Final = logging.getLogger("kbroker.failures")


def nothing() -> None:
    """For a thread that no caller waits for."""


class OwnThread(threading.Thread):
    """Start and join it as any thread."""

    def __init__(
        self,
        name: str,
        loop: Callable[[], None],
        given_up: Callable[[], None] = nothing,
        monotonic_ns: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        """`loop` returns when the thread is to end; it may be called again after it has raised."""
        super().__init__(name=name, daemon=True)
        self.failures: Final = Failures(name)
        self.dead = False
        self._pause = threading.Event()  # which is never set
        self._loop = loop
        self._given_up = given_up
        self._monotonic_ns = monotonic_ns

    def await_end(self) -> bool:
        """After a request to end: False, and a line, if it takes too long; the stop goes on."""
        return await_ends([self])

    def run(self) -> None:
        try:
            if self._live():
                return
        except BaseException as error:  # there is not even memory to count the lives
            self.failures.note("its lives", error)
        self.dead = True
        try:
            logger.critical(
                "%s has ended, since its loop failed %d times: restart the broker and look at the"
                " errors before this line", self.name, THREAD_LIVES_MAX,
            )  # fmt: skip
        except BaseException as error:
            self.failures.note("the line about its end", error)
        try:
            self._given_up()
        except BaseException as error:
            self.failures.note("its end", error)

    def _live(self) -> bool:
        """Whether the loop has returned; else it has failed too often."""
        lives = THREAD_LIVES_MAX
        while lives > 0:
            began_ns = self._monotonic_ns()
            try:
                self._loop()
            except BaseException as error:
                self.failures.note("its loop", error)
            else:
                return True
            lived_ms = (self._monotonic_ns() - began_ns) // 1_000_000
            lives = THREAD_LIVES_MAX if lived_ms >= THREAD_LIFE_LONG_MS else lives - 1
            self._pause.wait(THREAD_PAUSE_MS / 1000)
        return False


def await_ends(
    threads: Iterable[OwnThread], monotonic_ns: Callable[[], int] = time.monotonic_ns
) -> bool:
    """As `OwnThread.await_end` for all of them, which have no more time together than one has."""
    deadline_ns = monotonic_ns() + THREAD_JOIN_TIMEOUT_MS * 1_000_000
    have_ended = True
    for each in threads:
        if each.ident is None or each is threading.current_thread():
            continue
        each.join(max(0.0, (deadline_ns - monotonic_ns()) / 1e9))
        if each.is_alive():
            logger.error("%s did not end in %d ms", each.name, THREAD_JOIN_TIMEOUT_MS)
            have_ended = False
    return have_ended
