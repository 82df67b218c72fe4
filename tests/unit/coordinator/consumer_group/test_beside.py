"""The thread beside the groups: a start that fails, and one that only seems to."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable

import pytest

from kbroker import own_thread
from kbroker.coordinator.consumer_group import beside as beside_module
from kbroker.coordinator.consumer_group.beside import Beside, Job
from kbroker.own_thread import OwnThread

WAIT_S = 60


def fails(first: Callable[[], object]) -> Callable[[], None]:
    def start() -> None:
        first()
        raise MemoryError

    return start


def test_a_thread_that_runs_although_its_start_has_failed_does_the_job(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It cannot be started a second time: no job would be done any more."""
    beside, done = Beside("test-jobs"), threading.Event()
    monkeypatch.setattr(beside.thread, "start", fails(beside.thread.start))
    assert beside.submit(done.set)
    assert done.wait(WAIT_S)
    assert beside.thread.failures.count == 1
    again = threading.Event()
    assert beside.submit(again.set)
    assert again.wait(WAIT_S)
    beside.stop()
    assert not beside.thread.is_alive()


def test_a_thread_that_could_not_start_is_started_by_the_next_job(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    beside, done = Beside("test-jobs"), threading.Event()
    with monkeypatch.context() as patch:
        patch.setattr(beside.thread, "start", fails(lambda: None))
        assert not beside.submit(done.set)
    assert beside.submit(threading.Event().set)
    assert beside.submit(done.set)
    assert done.wait(WAIT_S)
    beside.stop()


@pytest.mark.parametrize("starts", [True, False])
def test_a_thread_that_is_lost_is_replaced_by_one_that_does_the_jobs(
    monkeypatch: pytest.MonkeyPatch, starts: bool
) -> None:
    monkeypatch.setattr(own_thread, "THREAD_PAUSE_MS", 0)
    monkeypatch.setattr(beside_module, "START_AGAIN_S", 0.01)
    beside, begun, goes_on, done = Beside("test-jobs"), *(threading.Event() for _ in range(3))
    assert beside.submit(lambda: (begun.set(), goes_on.wait(WAIT_S)))
    assert beside.submit(done.set)
    assert begun.wait(WAIT_S)
    lost, original = beside.thread, beside._jobs
    tries: list[OwnThread] = []
    start = OwnThread.start

    def start_late(thread: OwnThread) -> None:
        tries.append(thread)
        if len(tries) == 1 and not starts:
            raise RuntimeError("can't start new thread")
        start(thread)

    class Jobs(deque[Job]):
        """None can be taken by the first thread, as where there is no memory."""

        def popleft(self) -> Job:
            if threading.current_thread() is lost:
                raise MemoryError
            return super().popleft()

    monkeypatch.setattr(OwnThread, "start", start_late)
    with beside._changed:
        beside._jobs = Jobs(original)
    goes_on.set()
    assert done.wait(WAIT_S)
    assert len(tries) == (1 if starts else 2)
    assert not beside.thread.dead
    again = threading.Event()
    assert beside.submit(again.set)
    assert again.wait(WAIT_S)
    beside.stop()
    lost.join(WAIT_S)


def test_a_stop_waits_for_no_thread_that_cannot_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(own_thread, "THREAD_PAUSE_MS", 0)
    beside, goes_on, tried = Beside("test-jobs"), threading.Event(), threading.Event()
    lost = beside.thread

    def fail(thread: OwnThread) -> None:
        tried.set()
        raise RuntimeError("can't start new thread")

    def run() -> None:
        goes_on.wait(WAIT_S)
        raise MemoryError

    lost._loop = run
    assert beside.submit(lambda: None)
    monkeypatch.setattr(OwnThread, "start", fail)
    goes_on.set()
    assert tried.wait(WAIT_S)
    beside.stop()
    lost.join(WAIT_S)
    assert not lost.is_alive()
