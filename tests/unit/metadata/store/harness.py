"""What a store implementation must offer to be put through the contract tests.

A new implementation adds one class here and a row to `IMPLEMENTATIONS`; the tests themselves do
not know which one they run on.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Generic, Protocol, TypeVar

import pytest

from kbroker.metadata.store.base import MetadataStore, SessionEvent
from kbroker.metadata.store.embedded import EmbeddedStore
from kbroker.metadata.store.zookeeper import ZooKeeperStore
from kbroker.metadata.store.zookeeper_settings import ZooKeeperSettings
from kbroker.server.lifecycle import nothing
from kbroker.testing.zookeeper.server import ZooKeeperServer
from tests.support.zookeeper import ZooKeeper, end_session

T = TypeVar("T")

WAIT_S = 60.0


class Harness(Protocol):
    """A tree of its own, empty at first, and sessions with it."""

    def session(self) -> MetadataStore: ...
    def expire(self, session: MetadataStore) -> None:
        """End it as a lost one; it knows of that when this returns."""

    def reopen(self) -> None:
        """As after a restart of everything: all sessions end, the data stays."""

    def close(self) -> None: ...


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
        self.close()
        self.__init__(self.directory)  # type: ignore[misc]

    def close(self) -> None:
        for session in self._sessions:
            session.close()


class ZooKeeperHarness:
    """A path of its own in a ZooKeeper."""

    def __init__(self, connect: str, chroot: str, close: Callable[[], None] = nothing) -> None:
        self.settings = ZooKeeperSettings((connect,), chroot, 10_000, 30_000)
        self._sessions: list[ZooKeeperStore] = []
        self._close = close

    def session(self) -> ZooKeeperStore:
        self._sessions.append(ZooKeeperStore.open(self.settings))
        return self._sessions[-1]

    def expire(self, session: MetadataStore) -> None:
        assert isinstance(session, ZooKeeperStore)
        expire(self.settings.hosts[0], session)

    def reopen(self) -> None:
        while self._sessions:
            self._sessions.pop().close()

    def close(self) -> None:
        self.reopen()
        self._close()


def expire(address: str, session: ZooKeeperStore) -> None:
    """End the session at the server, and wait until its client has been notified."""
    notified = threading.Event()
    session.on_session_event(
        lambda event: notified.set() if event is SessionEvent.EXPIRED else None
    )
    session_id, password = session._client.client_id
    end_session(address, session_id, password)
    assert notified.wait(WAIT_S)


def _embedded(request: pytest.FixtureRequest, directory: Path) -> Harness:
    return EmbeddedHarness(directory)


def _zookeeper(request: pytest.FixtureRequest, directory: Path) -> Harness:
    server: ZooKeeper = request.getfixturevalue("zookeeper")
    return ZooKeeperHarness(server.connect, server.chroot())


def _in_memory(request: pytest.FixtureRequest, directory: Path) -> Harness:
    server = ZooKeeperServer().start()
    return ZooKeeperHarness(server.connect, "/kbroker", server.close)


Make = Callable[[pytest.FixtureRequest, Path], Harness]
IMPLEMENTATIONS = (
    pytest.param(_embedded, id="embedded"),
    pytest.param(_zookeeper, id="zookeeper", marks=pytest.mark.java),
    pytest.param(_in_memory, id="zookeeper-in-memory"),
)


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
        return self.wait_until(lambda items: len(items) >= count)

    def wait_until(self, enough: Callable[[list[T]], bool]) -> list[T]:
        with self._condition:
            if not self._condition.wait_for(lambda: enough(self._items), WAIT_S):
                raise TimeoutError(f"more expected, got {self._items}")
            return list(self._items)

    @property
    def items(self) -> list[T]:
        with self._condition:
            return list(self._items)
