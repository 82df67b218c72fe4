"""The same question about many share-partitions: asked a few at a time, answered together.

    keys -> WINDOW of them are under way -> the next one with each answer -> done, with all answers
         -> too late: each of those left is answered so                 -> done, with all answers

So a group of any size leaves room for others in the persister's queue, which has a bound. An answer
may come before the call returns: one thread at a time asks, and the stack does not grow with the
number of keys. A question that raises is answered like the others: each has an answer from the
beginning, that it has failed, and none is made at the end. What follows from all answers may take
long where there are many, and is handed over to a thread that may take that long. Any thread; the
lock is a leaf.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING, Final, Generic, TypeVar

from kbroker.once import once

if TYPE_CHECKING:
    from kbroker.failures import Failures

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
        failed: Callable[[K], A],
        failures: Failures,
        window: int | None = None,
        *,
        is_late: Callable[[], bool] = lambda: False,
        late: Callable[[K], A] | None = None,
        hand_over: Callable[[Callable[[], object]], object] | None = None,
    ) -> None:
        """`ask` calls back once; where it raises, the answer is the one that `failed` gives here.
        `done` is called once, whatever raises, with the answers in the order of the keys.
        `window`: of WINDOW, where there is none.

        `is_late` is looked at before each question; once it is so, no more are asked, and `late`
        gives the answers of those that are left; where there is none, or it raises, they failed.
        `hand_over` has a call done by another thread; without it `done` is called by the thread of
        the last answer, or by the one that begins."""
        self._keys: Final = list(dict.fromkeys(keys))
        self._ask: Final = ask
        self._done: Final = done
        self._failures: Final = failures
        self._is_late: Final = is_late
        self._late: Final = late
        self._hand_over: Final = hand_over
        self._lock: Final = threading.Lock()
        self._window: Final = window or WINDOW
        self._to_ask = len(self._keys)  # of the first keys
        self._asked = self._answered = 0
        self._is_asking = self._is_over = False
        self._answers: Final[dict[K, A]] = {key: failed(key) for key in self._keys}

    def begin(self) -> None:
        self._go_on()

    def _go_on(self) -> None:
        with self._lock:
            if self._is_asking:
                return  # the thread that asks sees what has changed
            self._is_asking = True
        while True:
            with self._lock:
                has_more = self._asked < self._to_ask
                if not has_more or self._asked - self._answered >= self._window:
                    self._is_asking = False
                    ends = not self._is_over and self._answered == self._to_ask
                    self._is_over = self._is_over or ends
                    break
                key = self._keys[self._asked]
            if self._has_no_time():
                with self._lock:
                    self._to_ask = self._asked
                continue
            with self._lock:
                self._asked += 1
            self._ask_one(key)
        if ends:
            self._end()

    def _has_no_time(self) -> bool:
        try:
            return self._is_late()
        except Exception as error:
            self._failures.note("looking for the time that is left", error)
            return True

    def _ask_one(self, key: K) -> None:
        came: Callable[[A], None] | None = None
        try:
            came = once(partial(self._came, key))
            self._ask(key, came)
        except Exception as error:
            self._failures.note("asking about a share-partition", error)
            if came is None:  # it was not asked
                self._came(key, self._answers[key])
            else:
                came(self._answers[key])

    def _came(self, key: K, answer: A) -> None:
        with self._lock:
            self._answers[key] = answer
            self._answered += 1
        self._go_on()

    def _end(self) -> None:
        if self._hand_over is not None:
            try:
                self._hand_over(self._tell)
                return
            except Exception as error:  # better here than never
                self._failures.note("handing answers over", error)
        self._tell()

    def _tell(self) -> None:
        late, answers = self._late, self._answers
        if late is not None:
            try:
                for key in itertools.islice(self._keys, self._to_ask, None):
                    answers[key] = late(key)
            except Exception as error:  # they have failed, then
                self._failures.note("answering about what was not asked", error)
        self._done(answers)
