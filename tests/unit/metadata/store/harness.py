"""What a store implementation must offer to be put through the contract tests.

A new implementation adds one class here and its name to `HARNESSES`; the tests themselves do not
know which one they run on.
"""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Generic, TypeVar

from kbroker.metadata.store.base import MetadataStore
from kbroker.metadata.store.embedded import EmbeddedStore

T = TypeVar("T")

WAIT_S = 60.0


class EmbeddedHarness:
    """The embedded store in a directory of its own."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._first = EmbeddedStore.open(directory)
        self._sessions = [self._first]

    def session(self) -> MetadataStore:
        session = self._first.new_session()
        self._sessions.append(session)
        return session

    def expire(self, session: MetadataStore) -> None:
        assert isinstance(session, EmbeddedStore)
        session.expire()

    def reopen(self) -> None:
        """As after a restart of everything: all sessions end, the data stays."""
        self.close()
        self.__init__(self.directory)  # type: ignore[misc]

    def close(self) -> None:
        for session in self._sessions:
            session.close()


HARNESSES = {"embedded": EmbeddedHarness}


class Inbox(Generic[T]):
    """A callback that keeps what it was given, and lets a test wait for it."""

    def __init__(self) -> None:
        self._condition = threading.Condition()
        self._items: list[T] = []
        self.threads: set[str] = set()

    def __call__(self, item: T) -> None:
        with self._condition:
            self._items.append(item)
            self.threads.add(threading.current_thread().name)
            self._condition.notify_all()

    def wait_for(self, count: int) -> list[T]:
        with self._condition:
            if not self._condition.wait_for(lambda: len(self._items) >= count, WAIT_S):
                raise TimeoutError(f"{count} expected, got {self._items}")
            return list(self._items)

    @property
    def items(self) -> list[T]:
        with self._condition:
            return list(self._items)
