"""A thread of ours whose loop raises: it goes on; at last it is dead, and nobody waits for it."""

from __future__ import annotations

import threading

import pytest

from kbroker.clock import ManualClock, SystemClock
from kbroker.errors import InvariantError
from kbroker.limits import THREAD_LIVES_MAX
from kbroker.metadata.controller.event_loop import EventLoop
from kbroker.own_thread import OwnThread
from kbroker.purgatory.delayed_operation import DelayedOperation
from kbroker.purgatory.purgatory import Purgatory
from kbroker.purgatory.timer import Timer
from kbroker.server.call_later import CallLater
from kbroker.server.control_loop import ControlLoop, warm_schemas
from kbroker.server.health import Health
from kbroker.server.readiness import RUNNING, Readiness
from kbroker.server.scheduler import Scheduler

JOIN_S = 20


def raises(*_: object) -> bool:
    raise SystemExit("of this test")  # what no `except Exception` catches


def ended(thread: OwnThread) -> None:
    thread.join(JOIN_S)
    assert thread.dead


def test_a_loop_that_raises_is_entered_again(caplog: pytest.LogCaptureFixture) -> None:
    lives: list[int] = []

    def loop() -> None:
        lives.append(1)
        if len(lives) < 3:
            raises()

    thread = OwnThread("kbroker-test", loop)
    thread.start()
    thread.join(JOIN_S)
    assert (len(lives), thread.dead, thread.failures.count) == (3, False, 2)
    assert "kbroker-test: its loop failed: SystemExit: of this test" in caplog.messages


def test_a_thread_that_is_lost_is_said_counted_and_shown(
    caplog: pytest.LogCaptureFixture,
) -> None:
    given_up: list[str] = []
    thread = OwnThread("kbroker-test", raises, lambda: given_up.append("told"))
    health = Health(lambda: [thread, None])
    readiness = Readiness([], health.dead)
    readiness.phase = RUNNING
    assert all(check.ok for check in readiness.checks())
    thread.start()
    ended(thread)
    assert given_up == ["told"]
    assert health.dead() == ["kbroker-test"]
    assert health.failures() == {"kbroker-test": THREAD_LIVES_MAX}
    assert [check.name for check in readiness.checks() if not check.ok] == ["thread kbroker-test"]
    assert any("kbroker-test has ended" in line for line in caplog.messages)


class Waiting(DelayedOperation):
    __slots__ = ("answered",)

    def __init__(self) -> None:
        super().__init__(1_000_000)
        self.answered = False

    def try_complete(self) -> bool:
        return False

    def on_complete(self) -> None:
        self.answered = True


def test_who_waits_for_the_timer_is_answered_when_it_is_lost(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    timer = Timer(SystemClock())
    purgatory = Purgatory("test", timer)
    told = threading.Event()
    CallLater(timer)(1_000_000, told.set)
    before, after = Waiting(), Waiting()
    assert not purgatory.try_complete_else_watch(before, ["key"])
    monkeypatch.setattr(timer, "_sleep_until_due", raises)
    timer.start()
    ended(timer.thread)
    assert told.is_set()
    assert before.answered
    assert purgatory.try_complete_else_watch(after, ["key"])  # at once, with what there is
    assert after.answered
    with pytest.raises(InvariantError, match="kbroker-timer is dead"):
        CallLater(timer)(1, told.set)


def test_a_task_of_the_timer_that_raises_is_counted() -> None:
    clock = ManualClock()
    timer = Timer(clock)
    CallLater(timer)(1, lambda: 1 // 0)
    clock.advance(5)
    timer.advance()
    assert timer.thread.failures.count == 1


def test_a_background_task_that_raises_is_counted() -> None:
    clock = ManualClock()
    scheduler = Scheduler(clock)
    scheduler.schedule("divides", lambda: 1 // 0, 10)  # type: ignore[arg-type,return-value]
    clock.advance(15)
    scheduler.run_due()
    assert scheduler.thread.failures.count == 1


def test_who_waits_for_the_controller_is_answered_when_it_is_lost(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    answered: list[str] = []
    loop: EventLoop[str] = EventLoop("kbroker-controller", raises, 10, answered.append)
    for number in range(THREAD_LIVES_MAX // 20):
        assert loop.post(str(number))
    monkeypatch.setattr(loop, "_run", raises)
    loop._thread._loop = loop._run
    loop.start()
    ended(loop.thread)
    assert answered == [str(number) for number in range(THREAD_LIVES_MAX // 20)]
    assert not loop.post("later")


def test_an_event_of_the_controller_that_raises_is_counted() -> None:
    done = threading.Event()

    def handle(event: str) -> None:
        if event == "last":
            done.set()
        raise ValueError(event)

    loop: EventLoop[str] = EventLoop("kbroker-controller", handle, 10)
    loop.start()
    loop.post("first")
    loop.post("last")
    loop.stop()
    assert done.is_set()
    assert loop.thread.failures.count == 2


def test_nothing_is_given_to_a_control_loop_that_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    loop = ControlLoop()
    loop.thread._loop = raises  # type: ignore[assignment]
    loop.start()
    ended(loop.thread)
    with pytest.raises(RuntimeError, match="dead"):
        loop.submit(warm_schemas())
