"""So many things at once, and the others in their order: who has a turn gives it back.

Topics are served by turns, and none has more than half of them. A topic that fails has one at a
time: each of its writes may take until its timeout, and other topics go on meanwhile.

A turn begins on a handler's thread. One that cannot begin is over, and its owner gets the error.
Any thread; the lock is a leaf.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from typing import Final, NamedTuple


class _Turn(NamedTuple):
    topic: str
    begin: Callable[[], object]
    failed: Callable[[Exception], object]


class _Topic:
    __slots__ = ("fails", "held", "waiting")

    def __init__(self) -> None:
        self.fails = False
        self.held = 0
        self.waiting: deque[_Turn] = deque()


class Turns:
    """See the module. `call_soon` has a call done by a handler."""

    def __init__(self, turns_max: int, call_soon: Callable[[Callable[[], object]], None]) -> None:
        self._lock = threading.Lock()
        self._call_soon: Final = call_soon
        self._left = turns_max
        self._of_topic_max: Final = max(1, turns_max // 2)
        self._topics: dict[str, _Topic] = {}  # those that have turns, or wait for some
        self._ready: dict[str, None] = {}  # those that may have the next ones, in their order

    def take(
        self,
        topic: str,
        begin: Callable[[], object],
        failed: Callable[[Exception], object],
        *,
        fails: bool = False,
    ) -> None:
        """`begin` is called, now or later. `failed`: it will not be called. `fails`: the last
        attempt did. Neither raises."""
        with self._lock:
            of_topic = self._topics.setdefault(topic, _Topic())
            of_topic.fails = of_topic.fails or fails
            of_topic.waiting.append(_Turn(topic, begin, failed))
            self._changed_locked(topic, of_topic)
        self._go_on()

    def give_back(self, topic: str, fails: bool | None = None) -> None:
        """A turn of it is over. `fails`: whether the topic does; None: as before."""
        with self._lock:
            of_topic = self._topics[topic]
            of_topic.held -= 1
            self._left += 1
            if fails is not None:
                of_topic.fails = fails
            self._changed_locked(topic, of_topic)
        self._go_on()

    def _changed_locked(self, topic: str, of_topic: _Topic) -> None:
        most = 1 if of_topic.fails else self._of_topic_max
        if of_topic.waiting and of_topic.held < most:
            self._ready.setdefault(topic)
        else:
            self._ready.pop(topic, None)
        if not (of_topic.waiting or of_topic.held):
            del self._topics[topic]

    def _go_on(self) -> None:
        while (turn := self._next()) is not None:
            try:
                self._call_soon(turn.begin)
            except Exception as error:
                turn.failed(error)
                self.give_back(turn.topic)

    def _next(self) -> _Turn | None:
        with self._lock:
            if not self._left or not self._ready:
                return None
            topic = next(iter(self._ready))
            del self._ready[topic]  # after the others it may be ready again
            of_topic = self._topics[topic]
            turn = of_topic.waiting.popleft()
            of_topic.held += 1
            self._left -= 1
            self._changed_locked(topic, of_topic)
            return turn
