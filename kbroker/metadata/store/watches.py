"""The watches of one session, and the thread that calls back.

Place in the flow: a store implementation arms watches here and reports every committed change with
`changed`; the callbacks run on the thread `kbroker-store-events`, one at a time, holding no lock.
The thread starts with the first watch or session callback, so a broker that needs none has none.

Locks: `_condition` only, a leaf: nothing is called while it is held. A store may (and the embedded
one does) report changes under its own lock, which is what keeps events in the order of changes.
`cancel` waits for the callback that it would cut off, so its caller must hold no lock that the
callback may want.

Bound: a watch has at most one undelivered event, so the queue is never longer than the number of
watches (plus session events, which are at most a handful). A later change before the delivery
replaces the event's type: the last word wins, since the receiver reads again anyway.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable
from functools import partial
from typing import Final, TypeVar

from kbroker.metadata.store.base import (
    EventType,
    SessionCallback,
    SessionEvent,
    Watch,
    WatchCallback,
    WatchEvent,
    WatchKind,
    parent_of,
)
from kbroker.own_thread import OwnThread

THREAD_NAME: Final = "kbroker-store-events"
_JOIN_TIMEOUT_S: Final = 10.0

T = TypeVar("T")


class _Watch(Watch):
    def __init__(
        self,
        registry: WatchRegistry,
        path: str,
        kind: WatchKind,
        callback: WatchCallback,
        persistent: bool,
    ) -> None:
        self.registry = registry
        self.path = path
        self.kind = kind
        self.callback = callback
        self.persistent = persistent
        self.pending: EventType | None = None
        self.cancelled = False

    def cancel(self) -> None:
        self.registry.cancel(self)


class WatchRegistry:
    """See the head of this file. `changed` and `session_event` belong to the store."""

    def __init__(self) -> None:
        self._condition = threading.Condition()
        self._armed: dict[tuple[WatchKind, str], list[_Watch]] = {}
        self._queue: deque[_Watch | SessionEvent] = deque()
        self._session_callbacks: list[SessionCallback] = []
        self._thread: OwnThread | None = None
        self._closed = False
        self._calling: _Watch | SessionEvent | None = None  # whose callback runs, or is about to

    def arm(self, path: str, kind: WatchKind, callback: WatchCallback, persistent: bool) -> Watch:
        watch = _Watch(self, path, kind, callback, persistent)
        with self._condition:
            self._start_locked()
            self._armed.setdefault((kind, path), []).append(watch)
        return watch

    def cancel(self, watch: _Watch) -> None:
        """From another thread than the callbacks': one that has begun has ended on return."""
        with self._condition:
            watch.cancelled = True
            self._disarm_locked(watch)
            if threading.current_thread() is not self._thread:
                while self._calling is watch:
                    self._condition.wait()

    def on_session_event(self, callback: SessionCallback) -> None:
        with self._condition:
            self._start_locked()
            self._session_callbacks.append(callback)

    def changed(self, changes: Iterable[tuple[EventType, str]]) -> None:
        """Queue the events of committed changes, in their order."""
        with self._condition:
            if not self._armed:
                return
            for type_, path in changes:
                self._fire_locked(WatchKind.DATA, path, type_)
                if type_ is not EventType.CHANGED:
                    self._fire_locked(WatchKind.CHILDREN, parent_of(path), EventType.CHILDREN)
                if type_ is EventType.DELETED:
                    self._fire_locked(WatchKind.CHILDREN, path, type_, last=True)
            if self._queue:
                self._condition.notify_all()

    def fire(self, kind: WatchKind, path: str, type_: EventType, *, last: bool = False) -> None:
        """Queue the event of another process's change; `last` ends persistent watches, too."""
        with self._condition:
            self._fire_locked(kind, path, type_, last=last)
            if self._queue:
                self._condition.notify_all()

    def watched(self) -> list[tuple[WatchKind, str]]:
        """All paths that are watched."""
        with self._condition:
            return list(self._armed)

    def is_watched(self, kind: WatchKind, path: str, *, persistently: bool = False) -> bool:
        """Whether this path is watched (beyond its next change)."""
        with self._condition:
            watches = self._armed.get((kind, path), ())
            return any(watch.persistent or not persistently for watch in watches)

    def session_event(self, event: SessionEvent) -> None:
        """Queue a session event; EXPIRED also ends all watches."""
        with self._condition:
            if event is SessionEvent.EXPIRED:
                self._armed.clear()
            if self._thread is not None:
                self._queue.append(event)
                self._condition.notify_all()

    def close(self) -> None:
        """Drop what is undelivered and end the thread; safe from a callback."""
        with self._condition:
            self._closed = True
            self._armed.clear()
            self._queue.clear()
            self._condition.notify_all()
            thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join(_JOIN_TIMEOUT_S)

    @property
    def thread(self) -> OwnThread | None:
        """None until there is something to call back."""
        return self._thread

    @property
    def watch_count(self) -> int:
        with self._condition:
            return sum(len(watches) for watches in self._armed.values())

    @property
    def queued(self) -> int:
        with self._condition:
            return len(self._queue)

    def _fire_locked(
        self, kind: WatchKind, path: str, type_: EventType, *, last: bool = False
    ) -> None:
        for watch in tuple(self._armed.get((kind, path), ())):
            if watch.pending is None:
                self._queue.append(watch)
            watch.pending = type_
            if last or not watch.persistent:
                self._disarm_locked(watch)

    def _disarm_locked(self, watch: _Watch) -> None:
        key = (watch.kind, watch.path)
        watches = self._armed.get(key)
        if watches is not None and watch in watches:
            watches.remove(watch)
            if not watches:
                del self._armed[key]

    def _start_locked(self) -> None:
        if self._thread is None and not self._closed:
            thread = OwnThread(THREAD_NAME, self._run)
            thread.start()  # one that cannot start is started by the next watch
            self._thread = thread

    def _run(self) -> None:
        while True:
            with self._condition:
                while not self._queue and not self._closed:
                    self._condition.wait()
                if self._closed:
                    return
                head = self._queue.popleft()
                calls = self._calls_locked(head)
                self._calling = head
            try:
                for call in calls:
                    call()
            finally:
                with self._condition:
                    self._calling = None
                    self._condition.notify_all()

    def _call(self, callback: Callable[[T], object], event: T) -> None:
        try:
            callback(event)
        except Exception as error:
            if self._thread is not None:
                self._thread.failures.note("a callback of the metadata store", error)

    def _calls_locked(self, head: _Watch | SessionEvent) -> list[Callable[[], None]]:
        if isinstance(head, SessionEvent):
            return [partial(self._call, callback, head) for callback in self._session_callbacks]
        type_, head.pending = head.pending, None
        if head.cancelled or type_ is None:
            return []
        return [partial(self._call, head.callback, WatchEvent(type_, head.path))]
