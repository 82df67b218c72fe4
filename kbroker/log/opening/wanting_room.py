"""Logs that did not open because their disk was full, or because the process had no descriptors or
memory left, and logs that such a failure took offline half way in a cut: they are tried again when
there is room.

Place in the flow: the replica manager notes a log that did not open; every second a task of the
scheduler asks for those that are worth another try (`replica/log_tasks.py`), and the controller has
their partitions applied once more, as it does with logs that were recovered meanwhile.

Nothing is done while no log waits. While one does, a small file is written to its data directory
each time. A try may still find no room, since a log needs more than that file: so it begins with
one log, doubles while all of them open, and pauses after one that does not.

The controller's thread notes, the scheduler's asks. A lock guards the names; no file is touched
under it.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection, Sequence
from typing import Final

from kbroker.log.engine import file_operations
from kbroker.log.opening.data_directory import DataDirectory
from kbroker.types import TopicPartition

logger: Final = logging.getLogger("kbroker.log")

PAUSE_MS: Final = 10_000
AT_ONCE_MAX: Final = 1_024


class WantingRoom:
    """See the head of this file."""

    def __init__(self, directories: Callable[[], Sequence[DataDirectory]]) -> None:
        """`directories`: those that serve."""
        self._directories: Final = directories
        self._lock: Final = threading.Lock()
        # With the data directory that had no room; None: it is not known which.
        self._waiting: dict[TopicPartition, DataDirectory | None] = {}
        self._tried: set[TopicPartition] = set()
        self._at_once = 1
        self._not_before_ms = 0
        self._failed = False  # one that was tried did not open, since the last time it was asked

    def note(self, name: TopicPartition, error: BaseException) -> None:
        """The log did not open. It waits here if `error` says, or comes from, a disk that is full,
        a quota that is used up, or a process that has no descriptors or memory left."""
        cause = error if isinstance(error, OSError) else error.__cause__
        if not isinstance(cause, OSError) or cause.errno not in file_operations.SHORT_OF:
            self.forget([name])
            return
        file = str(cause.filename)
        full = [it for it in self._directories() if file.startswith(f"{it.path}/")]
        with self._lock:
            self._waiting[name] = full[0] if full else None
            self._failed |= name in self._tried
            self._tried.discard(name)

    def note_offline(self, name: TopicPartition, directory: DataDirectory) -> None:
        """The log went offline and may open again. It may be said as often as one likes."""
        with self._lock:
            if name not in self._tried:
                self._waiting.setdefault(name, directory)

    def opened(self, name: TopicPartition) -> None:
        """The log is open."""
        if name in self._tried or name in self._waiting:
            logger.info("%s is open: there is room again", name)
            self.forget([name])

    def forget(self, names: Collection[TopicPartition]) -> None:
        """These wait no more: they are open, or gone, or room is not what they lack."""
        with self._lock:
            self._tried.difference_update(names)
            for name in names:
                self._waiting.pop(name, None)

    def take_ready(self, now_ms: int) -> list[TopicPartition]:
        """Logs that are worth another try now."""
        with self._lock:
            if self._failed:
                self._failed, self._at_once = False, 1
                self._not_before_ms = now_ms + PAUSE_MS
            waiting = dict(self._waiting)
        if not waiting or now_ms < self._not_before_ms:
            return []
        usable = self._directories()
        asked = {*usable} if None in waiting.values() else {*waiting.values()} & {*usable}
        with_room = {it for it in asked if it is not None and it.has_room()}
        ready = [
            name
            for name, it in waiting.items()
            if (it in with_room if it is not None else bool(with_room))
        ]
        with self._lock:
            ready = [name for name in ready if name in self._waiting][: self._at_once]
            for name in ready:
                del self._waiting[name]
            self._tried.update(ready)
            if ready:
                self._at_once = min(2 * self._at_once, AT_ONCE_MAX)
        return ready
