"""When a broker counts as alive: its network threads and its control loop move."""

from __future__ import annotations

import threading
from collections.abc import Coroutine
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest

from kbroker.config import BrokerConfig
from kbroker.limits import WATCHDOG_PERIOD_MS_MIN
from kbroker.server.broker import Broker
from kbroker.server.watchdog import Watchdog


class Parts:
    def __init__(self) -> None:
        self.turns = {"kafka-network-thread-0": 0, "kafka-network-thread-1": 0}
        self.moving = set(self.turns)
        self.loop_runs = True
        self.dead: list[str] = []
        self.fed = 0
        self.dog = Watchdog(self._turns, self._submit, lambda: self.dead, self._alive)

    def look(self) -> bool:
        before = self.fed
        self.dog.look()
        return self.fed > before

    def _turns(self) -> dict[str, int]:
        for name in self.moving:
            self.turns[name] += 1
        return dict(self.turns)

    def _submit(self, work: Coroutine[Any, Any, None]) -> Future[None]:
        work.close()
        answer: Future[None] = Future()
        if self.loop_runs:
            answer.set_result(None)
        return answer

    def _alive(self) -> None:
        self.fed += 1


def test_a_broker_that_moves_is_alive() -> None:
    parts = Parts()
    assert [parts.look() for _ in range(5)] == [True] * 5


def test_one_network_thread_that_hangs(caplog: pytest.LogCaptureFixture) -> None:
    parts = Parts()
    assert parts.look()
    parts.moving = {"kafka-network-thread-1"}
    assert not parts.look()
    assert "kafka-network-thread-0 does not move" in caplog.text
    parts.moving.add("kafka-network-thread-0")
    assert parts.look()


def test_a_control_loop_that_hangs() -> None:
    parts = Parts()
    parts.loop_runs = False
    assert parts.look()
    assert not parts.look()
    assert not parts.look()


def test_a_thread_that_is_dead() -> None:
    parts = Parts()
    parts.dead = ["kbroker-timer"]
    assert not parts.look()


def test_a_network_thread_that_is_new_or_taken_away() -> None:
    parts = Parts()
    assert parts.look()
    parts.turns["kafka-network-thread-2"] = 0
    parts.moving = set(parts.turns)
    assert parts.look()
    del parts.turns["kafka-network-thread-0"]
    parts.moving = set(parts.turns)
    assert parts.look()


def test_a_scheduler_that_hangs_at_a_disk_is_no_reason(tmp_path: Path) -> None:
    config = BrokerConfig.load(None, {}, [f"log.dirs={tmp_path}", "listeners=PLAINTEXT://[::1]:0"])
    broker = Broker(config, tmp_path)
    hangs, goes_on, fed = threading.Event(), threading.Event(), threading.Event()

    def flush() -> None:
        hangs.set()
        goes_on.wait(30)

    assert broker.start()
    try:
        broker._scheduler.once("a flush", flush, 0)
        assert hangs.wait(30)
        broker.keep_watched(fed.set, WATCHDOG_PERIOD_MS_MIN)
        assert fed.wait(30)
    finally:
        goes_on.set()
        assert broker.stop()
