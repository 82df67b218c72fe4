"""Workers that wait for logs: one for each data directory."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from threading import Event

import pytest

from kbroker import own_thread
from kbroker.clock import ManualClock, SystemClock
from kbroker.failures import Failures
from kbroker.log.log_workers import HANGING_MAX, STUCK_MS, THREAD_NAME, LogWorkers
from kbroker.log.upkeep.lane import ThreadLane
from kbroker.own_thread import OwnThread
from kbroker.types import TopicPartition
from tests.unit.net.harness import eventually

A, B, ELSEWHERE = TopicPartition("a", 0), TopicPartition("b", 0), TopicPartition("gone", 0)
PATHS = {A: Path("/one/a-0"), B: Path("/two/b-0")}


@pytest.fixture
def failures() -> Failures:
    return Failures("workers")


@pytest.fixture
def workers(failures: Failures) -> Iterator[LogWorkers]:
    workers = LogWorkers(PATHS.get, SystemClock(), failures)
    yield workers
    workers.stop()
    assert not any(each.is_alive() for each in workers.threads)


def test_a_directory_that_hangs_keeps_no_other_waiting(workers: LogWorkers) -> None:
    hangs, goes_on, done = Event(), Event(), Event()
    order: list[str] = []

    def hang() -> None:
        hangs.set()
        goes_on.wait(60)
        order.append(threading.current_thread().name)

    workers.put(A, hang)
    workers.put(A, lambda: order.append("after it"))
    workers.put(A, done.set)
    assert hangs.wait(30)
    for place in (B, ELSEWHERE):
        passed = Event()
        workers.put(place, passed.set)
        assert passed.wait(20)
    assert not order
    goes_on.set()
    assert done.wait(30)
    assert order == [THREAD_NAME, "after it"]
    assert [each.name for each in workers.threads] == [THREAD_NAME] * 3


def test_an_error_is_counted_and_the_next_work_is_done(
    workers: LogWorkers, failures: Failures
) -> None:
    def fails() -> None:
        raise OSError("no disk")

    done = Event()
    workers.put(A, fails)
    workers.put(A, done.set)
    assert done.wait(30)
    assert failures.count == 1


def test_a_stop_waits_for_queued_work_and_takes_no_more(workers: LogWorkers) -> None:
    done: list[str] = []
    workers.put(A, lambda: done.append("before"))
    workers.stop()
    workers.put(A, lambda: done.append("after"))
    workers.put(B, lambda: done.append("after"))
    assert done == ["before"] and len(list(workers.threads)) == 1


def test_work_whose_thread_cannot_start_is_done_once_though_it_is_put_again(
    workers: LogWorkers, monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[str] = []

    def fail(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patched:
        patched.setattr(OwnThread, "start", fail)
        for _ in range(2):
            with pytest.raises(RuntimeError):
                workers.put(A, lambda: done.append("work"))
    over = Event()
    workers.put(A, lambda: done.append("work"))
    workers.put(A, over.set)
    assert over.wait(30)
    assert done == ["work"]


def test_the_ends_of_many_sessions_take_turns_with_other_work(failures: Failures) -> None:
    """Also on the worker that goes on for one that hangs."""
    clock = ManualClock()
    workers = LogWorkers(PATHS.get, clock, failures)
    hangs, goes_on, done = Event(), Event(), Event()
    order: list[str] = []
    workers.put(A, lambda: (hangs.set(), goes_on.wait(60)))
    assert hangs.wait(30)
    for number in range(4):
        workers.put(A, partial(order.append, f"session {number}"), of_group=True)
    for number in range(2):
        workers.put(A, partial(order.append, f"marker {number}"))
    clock.advance(STUCK_MS)
    workers.put(A, done.set, of_group=True)
    assert done.wait(30)
    goes_on.set()
    workers.stop()
    assert order == [*("session 0", "marker 0", "session 1", "marker 1", "session 2", "session 3")]


def test_work_whose_thread_runs_although_its_start_has_failed_is_done_once(
    workers: LogWorkers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Memory was short after the start."""
    done, over = Event(), Event()
    start = OwnThread.start

    def fail(thread: OwnThread) -> None:
        start(thread)
        assert done.wait(30)
        raise MemoryError

    with monkeypatch.context() as patched:
        patched.setattr(OwnThread, "start", fail)
        workers.put(A, done.set)
    workers.put(A, over.set)
    assert over.wait(30)


def hang_all(
    workers: LogWorkers, clock: ManualClock, count: int, order: list[str]
) -> tuple[list[Event], Event]:
    """So many works that hang, each noticed by the work put after it."""
    hangs, goes_on = [Event() for _ in range(count)], Event()
    for number, each in enumerate(hangs):

        def hang(number: int = number, each: Event = each) -> None:
            each.set()
            goes_on.wait(60)
            order.append(f"hung {number}")

        workers.put(A, hang)
        assert each.wait(30)
        clock.advance(STUCK_MS)
    return hangs, goes_on


def test_work_goes_on_beside_work_that_hangs(failures: Failures) -> None:
    """What waited for it, too."""
    clock = ManualClock()
    workers = LogWorkers(PATHS.get, clock, failures)
    order: list[str] = []
    hangs, goes_on, waited, done = Event(), Event(), Event(), Event()

    def hang() -> None:
        hangs.set()
        goes_on.wait(60)
        order.append("hung")

    workers.put(A, hang)
    assert hangs.wait(30)
    workers.put(A, waited.set)
    clock.advance(STUCK_MS)
    workers.put(A, done.set)
    assert waited.wait(30) and done.wait(30)
    assert not order
    goes_on.set()
    workers.stop()
    assert order == ["hung"] and failures.count == 0
    assert not any(each.is_alive() for each in workers.threads)


def test_work_that_came_just_before_it_was_noticed_goes_on(failures: Failures) -> None:
    clock, looks = ManualClock(), list[Callable[[], object]]()

    def call_later(delay_ms: int, call: Callable[[], object]) -> Callable[[], None]:
        assert delay_ms == STUCK_MS
        looks.append(call)
        return lambda: None

    workers = LogWorkers(PATHS.get, clock, failures, call_later=call_later)
    hangs, goes_on, waited = Event(), Event(), Event()
    workers.put(A, lambda: (hangs.set(), goes_on.wait(60)))
    assert hangs.wait(30)
    clock.advance(STUCK_MS - 1)
    workers.put(A, waited.set)
    looks.pop()()
    assert not waited.is_set()
    clock.advance(1)
    looks.pop()()
    assert waited.wait(30)
    goes_on.set()
    workers.stop()


def test_a_bound_on_workers_that_hang(failures: Failures) -> None:
    clock = ManualClock()
    workers = LogWorkers(PATHS.get, clock, failures)
    order: list[str] = []
    _, goes_on = hang_all(workers, clock, HANGING_MAX + 1, order)
    last = Event()
    workers.put(A, last.set)
    assert len([*workers.threads]) == HANGING_MAX + 1
    assert not last.is_set()
    goes_on.set()
    assert last.wait(30)
    workers.stop()
    assert sorted(order) == [f"hung {number}" for number in range(HANGING_MAX + 1)]


def test_a_worker_stays_where_no_other_can_begin(
    failures: Failures, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = ManualClock()
    workers = LogWorkers(PATHS.get, clock, failures)
    order: list[str] = []
    _, goes_on = hang_all(workers, clock, 1, order)
    done = Event()

    def fail(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patched:
        patched.setattr(OwnThread, "start", fail)
        workers.put(A, done.set)
    assert failures.count == 1
    goes_on.set()
    assert done.wait(30)
    workers.stop()


@pytest.fixture
def lose(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[LogWorkers], None]]:
    """Has the only worker lose its thread, as where there is no memory for its loop."""
    original = ThreadLane._next
    lost: list[OwnThread | None] = []

    def fail(lane: ThreadLane) -> object:
        if lane.thread in lost:
            raise MemoryError
        return original(lane)

    monkeypatch.setattr(own_thread, "THREAD_PAUSE_MS", 0)
    monkeypatch.setattr(ThreadLane, "_next", fail)

    def lose(workers: LogWorkers) -> None:
        (thread,) = workers.threads
        lost.append(thread)
        workers.put(A, lambda: None)  # after which it looks for the next work
        thread.join(30)
        assert not thread.is_alive()

    yield lose


def test_a_worker_that_is_lost_is_replaced(
    workers: LogWorkers,
    failures: Failures,
    lose: Callable[[LogWorkers], None],
    caplog: pytest.LogCaptureFixture,
) -> None:
    for _ in range(2):
        begun, done = Event(), Event()
        workers.put(A, begun.set)
        assert begun.wait(30)
        lose(workers)
        workers.put(A, done.set)
        assert done.wait(30)
        assert not any(each.dead for each in workers.threads)
    assert sum("is replaced" in each for each in caplog.messages) == 2


def test_work_that_waits_for_a_worker_that_is_lost_is_done_without_more(
    workers: LogWorkers, lose: Callable[[LogWorkers], None]
) -> None:
    hangs, goes_on, done = Event(), Event(), Event()
    workers.put(A, lambda: (hangs.set(), goes_on.wait(60)))
    assert hangs.wait(30)
    (thread,) = workers.threads
    workers.put(A, done.set)
    loses = threading.Thread(target=lose, args=[workers], daemon=True)
    loses.start()
    eventually(lambda: next(iter(workers._workers.values())).left == 3)
    goes_on.set()
    assert done.wait(30)
    loses.join(30)
    assert thread not in workers.threads


def test_a_worker_that_is_lost_is_replaced_when_a_thread_can_begin_again(
    failures: Failures,
    lose: Callable[[LogWorkers], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    looks = list[Callable[[], object]]()

    def call_later(delay_ms: int, call: Callable[[], object]) -> Callable[[], None]:
        looks.append(call)
        return lambda: None

    workers = LogWorkers(PATHS.get, SystemClock(), failures, call_later=call_later)
    begun, done = Event(), Event()
    workers.put(A, begun.set)
    assert begun.wait(30)

    def fail(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patched:
        patched.setattr(OwnThread, "start", fail)
        lose(workers)
        workers.put(A, done.set)
        assert [each.dead for each in workers.threads] == [True]
    assert not done.is_set()
    while looks:
        looks.pop()()
    assert done.wait(30)
    workers.stop()


def test_work_that_ends_its_thread_s_loop_is_over(workers: LogWorkers, failures: Failures) -> None:
    def fails() -> None:
        raise SystemExit("of this test")

    done = Event()
    workers.put(A, fails)
    workers.put(A, done.set)
    assert done.wait(30)
    assert failures.count == 1 and not any(each.failures.count for each in workers.threads)
