"""A load on a thread of its own: what is measured beside it, or ends it, goes on meanwhile."""

from __future__ import annotations

import threading
from typing import Any

from perf._load import Load
from perf.spec import Run


class LoadThread:
    """One run of the load generator, from `start` until its end or `stop`."""

    def __init__(self, spec: Run) -> None:
        self._load = Load(spec)
        self._outcome: list[dict[str, Any] | BaseException] = []
        self._thread = threading.Thread(target=self._work, name="perf-load", daemon=True)

    def _work(self) -> None:
        try:
            self._outcome.append(self._load.go())
        except BaseException as error:  # handed to the caller's thread by `join`
            self._outcome.append(error)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """The window is over."""
        self._load.stop()

    def join(self) -> dict[str, Any]:
        """Its counters, when it is over; or what it failed with. An interrupt ends it at once."""
        try:
            self._thread.join()
        except BaseException:
            self.stop()
            self._thread.join()
            raise
        found = self._outcome[0]
        if isinstance(found, BaseException):
            raise found
        return found
