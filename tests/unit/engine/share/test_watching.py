"""The watch of a share-partition's log: one for all, and one look that is still to come."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from unittest.mock import Mock

import pytest

from kbroker.clock import ManualClock
from kbroker.engine.share.watching import LogWatcher
from kbroker.errors import ErrorCode
from kbroker.purgatory.timer import Timer

NONE = ErrorCode.NONE


class Made:
    def __init__(self, log: Log, count_bytes: int) -> None:
        self._log, self._count_bytes = log, count_bytes

    def cancel(self) -> bool:
        self._log.cancelled.append(self._count_bytes)
        return True


class Log:
    """Its watches wait here until a test ends them."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.timer = Timer(self.clock)
        self.watches: list[tuple[int, bool, int, Callable[[ErrorCode], object]]] = []
        self.cancelled: list[int] = []
        self.woken = 0
        self.ends_at_once = False
        self.meanwhile: Callable[[], object] = lambda: None
        self.watcher = LogWatcher(self, self._await, self.timer.call_later, self._wake)

    def _wake(self) -> None:
        self.woken += 1

    def _await(
        self, log: Any, offset: int, is_committed: bool, count_bytes: int, ms: int,
        done: Callable[[ErrorCode], object],
    ) -> Made:  # fmt: skip
        self.watches.append((offset, is_committed, count_bytes, done))
        self.meanwhile()
        if self.ends_at_once:
            done(NONE)
        return Made(self, count_bytes)

    def pass_ms(self, ms: int) -> None:
        self.clock.advance(ms)
        self.timer.advance()


def test_the_log_is_watched_though_the_watch_before_cannot_be_cancelled(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    log = Log()
    log.watcher.watch(10, False, 1_000)
    monkeypatch.setattr(Made, "cancel", Mock(side_effect=ValueError("cancel")))
    with pytest.raises(ValueError, match="cancel"):
        log.watcher.watch(20, False, 1)
    monkeypatch.undo()
    log.watcher.watch(20, False, 1)
    *_, done = log.watches[-1]
    done(NONE)
    assert log.woken == 1


def test_the_fewest_bytes_serve_all() -> None:
    log = Log()
    for count_bytes in (1_000, 2_000, 1, 1_000):
        log.watcher.watch(5, True, count_bytes)
    assert [each[:3] for each in log.watches] == [(5, True, 1_000), (5, True, 1)]
    assert log.cancelled == [1_000]
    log.watches[0][-1](NONE)  # it could not be cancelled any more
    assert log.woken == 0
    log.watches[1][-1](NONE)
    assert log.woken == 1
    log.watcher.watch(5, True, 1_000)
    assert len(log.watches) == 3


def test_another_offset_takes_the_place() -> None:
    log = Log()
    log.watcher.watch(5, False, 1)
    log.watcher.watch(6, False, 10)
    assert log.cancelled == [1]


def test_watches_that_end_at_once_lead_to_one_look() -> None:
    log = Log()
    log.ends_at_once = True
    for offset in range(50):
        log.watcher.watch(offset, False, 1)
    assert log.woken == 0
    assert len(log.timer) == 1
    log.pass_ms(20)
    assert log.woken == 1
    log.watcher.watch(7, False, 1)
    log.pass_ms(20)
    assert log.woken == 2


def test_a_watch_that_cannot_be_made_is_not_kept() -> None:
    log = Log()

    def fails() -> None:
        raise MemoryError

    log.meanwhile = fails
    with pytest.raises(MemoryError):
        log.watcher.watch(5, False, 1)
    log.meanwhile = lambda: None
    log.watcher.watch(5, False, 1)
    assert len(log.watches) == 2


def test_a_watch_that_is_stopped_while_it_is_made() -> None:
    log = Log()
    log.meanwhile = log.watcher.stop
    log.watcher.watch(5, False, 1)
    assert log.cancelled == [1]
    log.meanwhile = lambda: None
    log.watcher.watch(5, False, 1)
    assert len(log.watches) == 2
    log.watcher.close()
    assert log.cancelled == [1, 1]
    log.watcher.watch(5, False, 1)
    assert len(log.watches) == 2
