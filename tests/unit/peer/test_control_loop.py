"""The control loop runs coroutines of other threads and ends without leaving any."""

from __future__ import annotations

import asyncio
import threading

from kbroker.peer.control_loop import THREAD_NAME, ControlLoop


async def _where() -> str:
    return threading.current_thread().name


def test_a_coroutine_runs_on_the_loops_own_thread() -> None:
    loop = ControlLoop()
    loop.start()
    try:
        assert loop.submit(_where()).result(60) == THREAD_NAME
    finally:
        loop.stop()


def test_stopping_cancels_running_tasks() -> None:
    loop = ControlLoop()
    loop.start()
    started = threading.Event()

    async def for_ever() -> None:
        started.set()
        await asyncio.Event().wait()

    endless = loop.submit(for_ever())
    assert started.wait(60)
    loop.stop()
    assert endless.cancelled()
    assert THREAD_NAME not in {thread.name for thread in threading.enumerate()}
