"""The control loop: one thread with an asyncio loop on uvloop, for rare work and for peers.

It starts after the ready line, so that no first request waits for its imports. Peer
connections and the HTTP side are its tenants as they come; the data path never is: a Produce or
Fetch does not touch it. Replica fetchers have loops of this kind for themselves, since they write
to logs (`replica/fetcher_manager.py`).

`submit` may be called from any thread and answers with a concurrent future. `stop` cancels what is
still running and joins the thread. Where uvloop has no wheel the standard loop does the same.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Coroutine
from concurrent.futures import Future
from typing import Any, Final, TypeVar

from kbroker.own_thread import OwnThread

logger: Final = logging.getLogger("kbroker.server")

THREAD_NAME: Final = "kbroker-control"
STOP_TIMEOUT_S: Final = 5.0

T = TypeVar("T")


class ControlLoop:
    """`start`, `submit`, `stop`; each once but submit."""

    def __init__(self, name: str = THREAD_NAME) -> None:
        self._loop = _new_loop()
        self.thread: Final = OwnThread(name, self._run, self._end)
        self._loop.set_exception_handler(self._noted)

    def start(self) -> None:
        try:
            self.thread.start()
        except BaseException:
            self._loop.close()  # its descriptors are not left to a collection
            raise

    def submit(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        """Run a coroutine on the loop; RuntimeError where the loop is lost."""
        if self.thread.dead:
            work.close()
            raise RuntimeError(f"{self.thread.name} is dead")
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def stop(self) -> None:
        with contextlib.suppress(RuntimeError):  # closed: the thread has ended
            self._loop.call_soon_threadsafe(self._loop.stop)
        self.thread.join(STOP_TIMEOUT_S)
        if self.thread.is_alive():
            logger.warning("%s is still busy; the stop goes on without it", self.thread.name)

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_forever()
        self._end()

    def _end(self) -> None:
        """Cancels the tasks that still run."""
        self._loop.run_until_complete(asyncio.sleep(0))  # what was submitted last has begun
        tasks = asyncio.all_tasks(self._loop)
        for task in tasks:
            task.cancel()
        self._loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
        self._loop.close()

    def _noted(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """An error that a callback or a task of the loop raised and no caller fetched."""
        error = context.get("exception") or RuntimeError(str(context.get("message")))
        self.thread.failures.note("work of the loop", error)


def _new_loop() -> asyncio.AbstractEventLoop:
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    loop: asyncio.AbstractEventLoop = uvloop.new_event_loop()
    return loop


async def give_back_memory_of_start() -> None:
    """The last step of a start.

    Modules that had to be compiled (a first start, or where bytecode is not kept) leave several MB
    of memory that would not be used again.
    """
    from kbroker._net import give_back_memory

    give_back_memory()
