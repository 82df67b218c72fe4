"""The same question about many share-partitions: asked a few at a time, answered together.

    keys -> WINDOW of them are under way -> the next one with each answer -> done, with all answers

So a group of any size leaves room for others in the persister's queue, which has a bound. An answer
may come before the call returns: one thread at a time asks, and the stack does not grow with the
number of keys. Any thread; the lock is a leaf.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from functools import partial
from typing import Final, Generic, TypeVar

from kbroker.once import once

K = TypeVar("K")
A = TypeVar("A")

WINDOW: Final = 1_000


class Gathering(Generic[K, A]):
    """See the module; `begin` once."""

    def __init__(
        self,
        keys: Iterable[K],
        ask: Callable[[K, Callable[[A], None]], object],
        done: Callable[[dict[K, A]], object],
        window: int = WINDOW,
    ) -> None:
        """`ask` calls back once, and does not raise. `done` is called once, with the answers in the
        order of the keys; on the thread that begins, if there are no keys."""
        self._keys: Final = list(dict.fromkeys(keys))
        self._ask: Final = ask
        self._done: Final = done
        self._lock: Final = threading.Lock()
        self._window: Final = window
        self._asked = self._answered = 0
        self._is_asking = self._is_over = False
        self._answers: dict[K, A] = {}

    def begin(self) -> None:
        self._go_on()

    def _go_on(self) -> None:
        with self._lock:
            if self._is_asking:
                return  # the thread that asks sees what has changed
            self._is_asking = True
        while True:
            with self._lock:
                has_more = self._asked < len(self._keys)
                if not has_more or self._asked - self._answered >= self._window:
                    self._is_asking = False
                    ends = not self._is_over and self._answered == len(self._keys)
                    self._is_over = self._is_over or ends
                    break
                key = self._keys[self._asked]
                self._asked += 1
            self._ask(key, once(partial(self._came, key)))
        if ends:
            self._done({key: self._answers[key] for key in self._keys})

    def _came(self, key: K, answer: A) -> None:
        with self._lock:
            self._answers[key] = answer
            self._answered += 1
        self._go_on()
