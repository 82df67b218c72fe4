"""A thread of ours whose loop raises goes on; at last it is dead, and its waiters are answered."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import threading
import time
from concurrent.futures import CancelledError
from typing import cast

import pytest

from kbroker import own_thread
from kbroker.clock import ManualClock, SystemClock
from kbroker.config.admin_listeners import AdminListener
from kbroker.errors import InvariantError
from kbroker.handlers import reply
from kbroker.limits import THREAD_LIVES_MAX
from kbroker.log_lines import LogLines
from kbroker.metadata.controller.event_loop import EventLoop
from kbroker.metadata.store.base import EventType, WatchEvent, WatchKind
from kbroker.metadata.store.watches import WatchRegistry
from kbroker.observe.health import Health
from kbroker.observe.metrics_sampler import Sampler
from kbroker.observe.metrics_topic import MetricsTopic
from kbroker.observe.readiness import RUNNING, Readiness
from kbroker.own_thread import OwnThread, await_ends
from kbroker.peer.control_loop import ControlLoop, give_back_memory_of_start
from kbroker.purgatory.delayed_operation import DelayedOperation
from kbroker.purgatory.purgatory import Purgatory
from kbroker.purgatory.timer import Timer
from kbroker.scheduler import Scheduler
from kbroker.server.admin_port import AdminPort, Busy
from tests.unit.handlers.support import FakeRequest
from tests.unit.net.harness import eventually

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


def test_a_lost_thread_is_logged_counted_and_listed(
    caplog: pytest.LogCaptureFixture,
) -> None:
    given_up: list[str] = []
    thread = OwnThread("kbroker-test", raises, lambda: given_up.append("called"))
    health = Health(lambda: [thread, None])
    readiness = Readiness([], health.dead)
    readiness.phase = RUNNING
    assert all(check.ok for check in readiness.checks())
    thread.start()
    ended(thread)
    assert given_up == ["called"]
    assert health.dead() == ["kbroker-test"]
    assert health.failures() == {"kbroker-test": THREAD_LIVES_MAX}
    assert [check.name for check in readiness.checks() if not check.ok] == ["thread kbroker-test"]
    assert any("kbroker-test has ended" in line for line in caplog.messages)


def test_a_thread_is_dead_though_there_is_no_memory_for_a_line(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def no_memory(*_: object, **__: object) -> None:
        raise MemoryError

    given_up = threading.Event()
    lives: list[int] = []

    def loop() -> None:
        lives.append(1)
        raises()

    thread = OwnThread("kbroker-test", loop, given_up.set)
    monkeypatch.setattr(own_thread, "THREAD_PAUSE_MS", 0)
    monkeypatch.setattr(own_thread.logger, "critical", no_memory)
    monkeypatch.setattr(LogLines, "write", no_memory)
    thread.start()
    ended(thread)
    assert given_up.is_set()
    assert len(lives) == THREAD_LIVES_MAX


class Waiting(DelayedOperation):
    __slots__ = ("answered",)

    def __init__(self) -> None:
        super().__init__(1_000_000)
        self.answered = False

    def try_complete(self) -> bool:
        return False

    def on_complete(self) -> None:
        self.answered = True


def test_a_caller_that_waits_for_the_timer_is_answered_when_it_is_lost(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    timer = Timer(SystemClock())
    purgatory = Purgatory("test", timer)
    called = threading.Event()
    timer.call_later(1_000_000, called.set)
    before, after = Waiting(), Waiting()
    assert not purgatory.try_complete_else_watch(before, ["key"])
    monkeypatch.setattr(timer, "_sleep_until_due", raises)
    timer.start()
    ended(timer.thread)
    assert called.is_set()
    assert before.answered
    assert purgatory.try_complete_else_watch(after, ["key"])  # at once, with the present result
    assert after.answered
    with pytest.raises(InvariantError, match="kbroker-timer is dead"):
        timer.call_later(1, called.set)


def test_a_task_of_the_timer_that_raises_is_counted() -> None:
    clock = ManualClock()
    timer = Timer(clock)
    timer.call_later(1, lambda: 1 // 0)
    clock.advance(5)
    timer.advance()
    assert timer.thread.failures.count == 1


def test_a_shortage_of_a_moment_ends_no_thread() -> None:
    times: list[float] = []

    def loop() -> None:
        times.append(time.monotonic())
        if times[-1] < times[0] + 0.3:
            raise MemoryError

    thread = OwnThread("kbroker-test", loop)
    thread.start()
    thread.join(JOIN_S)
    assert not thread.dead
    assert thread.failures.count > 0


@pytest.mark.parametrize("error", [ZeroDivisionError, SystemExit])
def test_a_background_task_that_raises_runs_again(error: type[BaseException]) -> None:
    clock = ManualClock()
    scheduler = Scheduler(clock)
    runs: list[int] = []

    def raises_once() -> None:
        runs.append(1)
        if len(runs) == 1:
            raise error

    scheduler.schedule("raises", raises_once, 10)
    for _ in range(2):
        clock.advance(15)
        with contextlib.suppress(SystemExit):  # as its thread does
            scheduler.run_due()
    assert len(runs) == 2


def test_an_error_now_and_then_ends_no_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(own_thread, "THREAD_PAUSE_MS", 0)
    lives: list[int] = []

    def loop() -> None:
        lives.append(1)
        if len(lives) <= 3 * THREAD_LIVES_MAX:
            raises()

    minutes = itertools.count(step=60 * 10**9)  # every life is a long one
    thread = OwnThread("kbroker-test", loop, monotonic_ns=lambda: next(minutes))
    thread.start()
    thread.join(JOIN_S)
    assert (thread.dead, thread.failures.count) == (False, 3 * THREAD_LIVES_MAX)


def test_whatever_the_end_of_a_thread_raises_is_counted() -> None:
    thread = OwnThread("kbroker-test", raises, raises)
    thread.start()
    ended(thread)
    assert thread.failures.count == THREAD_LIVES_MAX + 1


def test_a_background_task_that_raises_is_counted() -> None:
    clock = ManualClock()
    scheduler = Scheduler(clock)
    scheduler.schedule("divides", lambda: 1 // 0, 10)  # type: ignore[arg-type,return-value]
    clock.advance(15)
    scheduler.run_due()
    assert scheduler.thread.failures.count == 1


def test_a_caller_that_waits_for_the_controller_is_answered_when_it_is_lost(
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


@pytest.mark.parametrize("error", [ValueError, SystemExit])
def test_a_caller_of_the_controller_is_answered_when_its_event_raises(
    error: type[BaseException],
) -> None:
    answered: list[str] = []

    def handle(event: str) -> None:
        raise error(event)

    loop: EventLoop[str] = EventLoop("kbroker-controller", handle, 10, answered.append)
    loop.start()
    loop.post("asked")
    loop.stop()
    assert answered == ["asked"]
    assert loop.thread.failures.count == 1


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
        loop.submit(give_back_memory_of_start())
    loop.stop()


def test_a_waiter_for_a_lost_control_loop_is_answered() -> None:
    loop = ControlLoop()

    async def waits() -> None:
        await asyncio.Event().wait()

    waiting = loop.submit(waits())
    loop.thread._loop = raises  # type: ignore[assignment]
    loop.start()
    with pytest.raises(CancelledError):
        waiting.result(JOIN_S)
    ended(loop.thread)


def test_a_caller_that_waits_for_the_admin_thread_is_answered_when_it_is_lost() -> None:
    loop = ControlLoop()
    loop.start()
    port = AdminPort(lambda _: pytest.fail("no request has come"), loop.submit)
    port.bind((AdminListener("127.0.0.1", 0),), may_be_taken=False)
    go = threading.Event()

    def work() -> None:
        assert go.wait(JOIN_S)
        raises()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(port, "_work", work)
        port.start()
    (thread,) = port.threads
    waits = loop.submit(_run(port))
    eventually(lambda: port._waiting == 1, "the job is queued")
    go.set()
    assert waits.result(JOIN_S) == "done"
    ended(thread)
    with pytest.raises(Busy):
        loop.submit(_run(port)).result(JOIN_S)
    port.stop()
    loop.stop()


async def _run(port: AdminPort) -> str:
    return await port.run(lambda: "done")


def test_a_metrics_thread_that_is_lost_is_dead_and_stops() -> None:
    topic = MetricsTopic(cast("Sampler", None), pytest.fail, SystemClock())
    topic.thread._loop = raises  # type: ignore[assignment]
    topic.start()
    ended(topic.thread)
    topic.stop()


def test_a_callback_of_the_metadata_store_that_raises_is_counted() -> None:
    registry = WatchRegistry()
    called = threading.Event()

    def callback(_: WatchEvent) -> None:
        called.set()
        raise ValueError("of this test")

    registry.arm("/a", WatchKind.DATA, callback, persistent=False)
    registry.changed([(EventType.CREATED, "/a")])
    assert called.wait(JOIN_S)
    thread = registry.thread
    assert thread is not None
    eventually(lambda: thread.failures.count == 1, "it is counted")
    registry.close()


def test_a_request_that_raises_is_counted() -> None:
    before = reply.failures.count
    reply.answer_exception(FakeRequest(0, 0, b""), None, ValueError("of this test"))
    assert reply.failures.count == before + 1


def test_a_waiter_for_the_end_is_answered_if_it_does_not_come(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(own_thread, "THREAD_JOIN_TIMEOUT_MS", 1)
    may_end = threading.Event()

    def loop() -> None:
        may_end.wait()

    thread = OwnThread("kbroker-slow", loop)
    assert thread.await_end()  # it was never started
    thread.start()
    assert not thread.await_end()
    assert "kbroker-slow did not end in 1 ms" in caplog.text
    may_end.set()
    thread.join()
    assert thread.await_end()


def test_threads_that_do_not_end_are_awaited_together(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    waits: list[float] = []

    class Hanging(OwnThread):
        ident = 1

        def join(self, timeout: float | None = None) -> None:
            assert timeout is not None
            waits.append(timeout)
            clock.advance(ms=round(timeout * 1000))

        def is_alive(self) -> bool:
            return True

    clock = ManualClock()
    monkeypatch.setattr(own_thread, "THREAD_JOIN_TIMEOUT_MS", 10_000)
    threads = [Hanging("a", lambda: None), Hanging("b", lambda: None)]
    assert not await_ends(threads, clock.monotonic_ns)
    assert waits == [10, 0]
    assert caplog.text.count("did not end in 10000 ms") == 2
