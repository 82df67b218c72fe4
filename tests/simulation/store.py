"""The metadata store of a simulated cluster: one tree, sessions that are cut off and expire.

It keeps the contract of `kbroker.metadata.store.base` as ZooKeeper does. A session lives on the
ensemble's clock: a broker that is cut off, paused or dead for SESSION_MS loses it, with its
ephemeral nodes, and is notified when it is back. While it is cut off every call raises
StoreUnavailableError; `lose_answer` has the next write done and its answer lost. Watches and
session events come one after the other, late by a moment, while the broker's process runs.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from kbroker.metadata.store.base import (
    EventType,
    MetadataStore,
    Node,
    Operation,
    SessionCallback,
    SessionEvent,
    SessionExpiredError,
    StoreUnavailableError,
    Watch,
    WatchCallback,
    WatchEvent,
    WatchKind,
    parent_of,
)
from kbroker.testing.zookeeper.tree import Changes, Tree, Znode
from tests.simulation.loop import STORE, Process, StepLoop

SESSION_MS = 1_200
_EVENT_MS_MAX = 4

# Called after a write with the session and its operations.
Written = Callable[["Session", Sequence[Operation]], None]


class Ensemble:
    """The tree, and its sessions."""

    def __init__(
        self,
        loop: StepLoop,
        dice: random.Random,
        written: Written,
        reaches: Callable[[int], bool],
    ) -> None:
        """`reaches`: whether a broker's calls come through."""
        self.reaches = reaches
        self.loop = loop
        self.dice = dice
        self.tree = Tree()
        self.sessions: list[Session] = []
        self._begun: dict[Process, list[Session]] = {}
        self._written = written
        self._last_session = 0

    def begin_session(self, process: Process, node_id: int) -> Session:
        self._last_session += 1
        session = Session(self, process, node_id, self._last_session)
        self.sessions.append(session)
        self._begun.setdefault(process, []).append(session)
        return session

    def sessions_of(self, process: Process) -> list[Session]:
        """All that it has begun."""
        return self._begun.get(process, [])

    def multi(self, session: Session, operations: Sequence[Operation]) -> list[int]:
        versions, changes = self.tree.multi(session.session_id, operations)
        self._publish(changes)
        self._written(session, operations)
        return versions

    def end(self, session: Session) -> None:
        """Its ephemeral nodes vanish."""
        if session in self.sessions:
            self.sessions.remove(session)
            self._publish(self.tree.end(session.session_id))

    def _publish(self, changes: Changes) -> None:
        if changes:
            for session in self.sessions:
                session.changed(changes)


@dataclass(eq=False)
class _Watch(Watch):
    session: Session
    path: str
    kind: WatchKind
    callback: WatchCallback
    persistent: bool
    pending: EventType | None = None

    def cancel(self) -> None:
        if self in self.session.watches:
            self.session.watches.remove(self)


class Session(MetadataStore):
    """The session of one broker, which may be cut off and expire."""

    def __init__(self, ensemble: Ensemble, process: Process, node_id: int, session_id: int) -> None:
        self._ensemble = ensemble
        self._process = process
        self.node_id = node_id
        self._session_id = session_id
        self._callbacks: list[SessionCallback] = []
        self._queue: deque[_Watch | SessionEvent] = deque()
        self._pumping = False
        self._over = False
        self._suspended = False
        self._silent_since_ms: int | None = None
        self.watches: list[_Watch] = []
        self.lose_answer = False

    def is_of(self, process: Process) -> bool:
        return self._process is process

    def shares_with(self, other: Session) -> bool:
        """Whether this is not over, and of a process that lives beside that of the other."""
        is_open = self in self._ensemble.sessions
        return is_open and self._process.alive and self._process is not other._process

    # --- faults -----------------------------------------------------------------------------------

    def cut_off(self) -> None:
        """No message comes through, or its process is paused; it survives that for SESSION_MS."""
        if self._silent_since_ms is None:
            self._silent_since_ms = now = self._ensemble.loop.now_ms
            self._ensemble.loop.later(SESSION_MS, self._expire_if_silent, now)

    def lose_connection(self) -> None:
        """As its broker sees it."""
        if not self._suspended:
            self._suspended = True
            self._notify(SessionEvent.SUSPENDED)

    def back(self) -> None:
        """It reaches the store again, in time or not."""
        if self._silent_since_ms is None:
            return
        self._silent_since_ms = None
        suspended, self._suspended = self._suspended, False
        if self not in self._ensemble.sessions:
            self._expired()
        elif suspended:
            self._notify(SessionEvent.CONNECTED)

    def _expire_if_silent(self, since_ms: int) -> None:
        if self._silent_since_ms == since_ms:
            self._ensemble.end(self)

    def _expired(self) -> None:
        if not self._over:
            self._over = True
            self.watches.clear()
            self._queue.clear()
            self._notify(SessionEvent.EXPIRED)

    # --- events -----------------------------------------------------------------------------------

    def changed(self, changes: Changes) -> None:
        for type_, path in changes:
            parent = parent_of(path)
            for watch in list(self.watches):
                if watch.path == path and watch.kind is WatchKind.DATA:
                    self._fire(watch, type_)
                elif (
                    watch.path == parent
                    and watch.kind is WatchKind.CHILDREN
                    and type_ is not EventType.CHANGED
                ):
                    self._fire(watch, EventType.CHILDREN)

    def _fire(self, watch: _Watch, type_: EventType) -> None:
        if watch.pending is None:
            self._notify(watch)
        watch.pending = type_
        if not watch.persistent:
            watch.cancel()

    def _notify(self, event: _Watch | SessionEvent) -> None:
        self._queue.append(event)
        self._pump()

    def _pump(self) -> None:
        if not self._pumping and self._queue:
            self._pumping = True
            moment_ms = self._ensemble.dice.uniform(0, _EVENT_MS_MAX)
            self._process.later(moment_ms, self._deliver, STORE)

    def _deliver(self) -> None:
        self._pumping = False
        if not self._queue:
            return
        if self._suspended and isinstance(self._queue[0], _Watch):
            self._process.later(_EVENT_MS_MAX, self._pump, STORE)  # notified when it is back
            return
        head = self._queue.popleft()
        if isinstance(head, SessionEvent):
            for callback in self._callbacks:
                callback(head)
        elif head.pending is not None:
            type_, head.pending = head.pending, None
            head.callback(WatchEvent(type_, head.path))
        self._pump()

    # --- the contract -----------------------------------------------------------------------------

    def _checked(self) -> Ensemble:
        if self._over:
            raise SessionExpiredError("", "this session has ended")
        if self._suspended:
            raise StoreUnavailableError("", "cut off")
        if self not in self._ensemble.sessions:
            self._expired()
            raise SessionExpiredError("", "this session has ended")
        return self._ensemble

    @property
    def session_id(self) -> int:
        return self._session_id

    def new_session(self) -> Session:
        if not self._ensemble.reaches(self.node_id):
            raise StoreUnavailableError("", "cut off")
        return self._ensemble.begin_session(self._process, self.node_id)

    def get(self, path: str) -> Node:
        return _seen(self._checked().tree.node(path))

    def exists(self, path: str) -> bool:
        return self._checked().tree.find(path) is not None

    def children(self, path: str) -> list[str]:
        return sorted(self._checked().tree.node(path).children)

    def children_data(self, path: str) -> dict[str, Node]:
        return {name: self.get(f"{path}/{name}") for name in self.children(path)}

    def get_many(self, paths: Sequence[str]) -> dict[str, Node]:
        return {path: self.get(path) for path in paths if self.exists(path)}

    def multi(self, operations: Sequence[Operation]) -> list[int]:
        versions = self._checked().multi(self, operations)
        if self.lose_answer:
            self.lose_answer = False
            raise StoreUnavailableError("", "the answer was lost")
        return versions

    def watch(
        self, path: str, kind: WatchKind, callback: WatchCallback, *, persistent: bool = False
    ) -> Watch:
        if kind is WatchKind.CHILDREN:
            self._checked().tree.node(path)
        watch = _Watch(self, path, kind, callback, persistent)
        self.watches.append(watch)
        return watch

    def on_session_event(self, callback: SessionCallback) -> None:
        self._callbacks.append(callback)

    def close(self) -> None:
        self._ensemble.end(self)
        self._over = True


def _seen(node: Znode) -> Node:
    return Node(node.data, node.version, node.owner, node.created)
