"""Visitors of a broker's console: one page after the other, by HTTP, without drawing it."""

from __future__ import annotations

import http.client
import threading
import time
from collections.abc import Sequence
from typing import Final, Self

WAIT_S: Final = 30.0
BUSY: Final = 503  # the console has enough to do; a visitor looks again
BUSY_PAUSE_S: Final = 0.05


class VisitError(Exception):
    """A page was not answered."""


class Visitor:
    """A connection that is kept. Not for threads."""

    def __init__(self, address: str) -> None:
        """`address`: host:port of the admin listener."""
        self._connection = http.client.HTTPConnection(address, timeout=WAIT_S)

    def close(self) -> None:
        self._connection.close()

    def look(self, path: str) -> bytes:
        """The page. VisitError."""
        status, body = self._asked(path)
        if status != http.client.OK:
            raise VisitError(f"{path}: {status} {body[:200]!r}")
        return body

    def look_ms(self, path: str) -> float:
        """How long it took to have all of it."""
        began_ns = time.perf_counter_ns()
        self.look(path)
        return (time.perf_counter_ns() - began_ns) / 1e6

    def reload(self, path: str) -> bool:
        """Whether it was made: False where the console was busy."""
        status, body = self._asked(path)
        if status not in (http.client.OK, BUSY):
            raise VisitError(f"{path}: {status} {body[:200]!r}")
        return status != BUSY

    def _asked(self, path: str) -> tuple[int, bytes]:
        try:
            self._connection.request("GET", path)
            answer = self._connection.getresponse()
            return answer.status, answer.read()
        except (OSError, http.client.HTTPException) as error:
            self._connection.close()
            raise VisitError(f"{path}: {error!r}") from error


class Reloading:
    """Visitors that load one page again and again, each on a thread, until the block ends."""

    def __init__(self, address: str, path: str, visitors: int) -> None:
        self._path, self._over = path, threading.Event()
        self._visitors = [Visitor(address) for _ in range(visitors)]
        self._threads = [
            threading.Thread(target=self._work, args=(each,), name="visitor", daemon=True)
            for each in self._visitors
        ]
        self._failed: list[str] = []
        self._began = threading.Event()
        self.pages = 0

    def __enter__(self) -> Self:
        """Once the first page was made: then the console is at work."""
        for each in self._threads:
            each.start()
        if self._threads and (not self._began.wait(WAIT_S) or self._failed):
            self._end()
            raise VisitError(f"{self._path}: no page: {self._failed[:1]}")
        return self

    def __exit__(self, *_: object) -> None:
        self._end()
        if self._failed:
            raise VisitError(self._failed[0])

    def _end(self) -> None:
        self._over.set()
        for each in self._threads:
            each.join(WAIT_S)
        for visitor in self._visitors:
            visitor.close()

    def _work(self, visitor: Visitor) -> None:
        while not self._over.is_set():
            try:
                if not visitor.reload(self._path):
                    self._over.wait(BUSY_PAUSE_S)
                    continue
            except VisitError as error:
                self._failed.append(str(error))
                self._over.set()
                self._began.set()
                break
            self.pages += 1  # by several threads: one that is lost changes nothing
            self._began.set()


def all_pages(topic: str, group: str, node_id: int) -> Sequence[str]:
    """Every page that is only read."""
    from kbroker.console.routes import ROUTES, Kind

    values = {"topic": topic, "group": group, "broker": str(node_id)}
    return [f"/ui/{each.pattern.format(**values)}" for each in ROUTES if each.kind is Kind.PAGE]
