"""An event loop on a thread of its own, and a way for tests to have something done there."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any, Final

THREAD_NAME: Final = "kbroker-test-cluster"
_CALL_TIMEOUT_S: Final = 30.0


class LoopThread:
    """Begins with its first `call`; `close` may be called again."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever, name=THREAD_NAME, daemon=True)

    def call(self, what: Callable[[], Any]) -> Any:
        """What `what` answers or raises, once it was called on the loop's thread; a coroutine's
        outcome if it is one."""
        if not self._thread.is_alive():
            self._thread.start()

        async def run() -> Any:
            found = what()
            return await found if asyncio.iscoroutine(found) else found

        return asyncio.run_coroutine_threadsafe(run(), self.loop).result(_CALL_TIMEOUT_S)

    def close(self) -> None:
        if self.loop.is_closed():
            return
        if self._thread.is_alive():
            self.call(self._cancel_all)
            self.loop.call_soon_threadsafe(self.loop.stop)
            self._thread.join()
        self.loop.close()

    async def _cancel_all(self) -> None:
        others = asyncio.all_tasks(self.loop) - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)
