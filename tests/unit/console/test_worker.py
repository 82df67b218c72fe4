"""The console's thread: bounded, given up when it is not wanted, and never lost to a page."""

from __future__ import annotations

import gc
import threading
import weakref
from collections.abc import Iterator
from typing import Any
from unittest import mock

import pytest

from kbroker.clock import ManualClock
from kbroker.console.asked import Ended
from kbroker.console.worker import OBJECTS_MAX, Busy, Job, Worker
from kbroker.limits import CONSOLE_JOBS_MAX

TIMEOUT_S = 20


class Held:
    """A worker whose thread is in a job until it is let go."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.tidied = 0
        self.ended = threading.Event()
        self.worker = Worker("kbroker-console", self.clock, self._tidy, self.ended.set)
        self.begun, self.go = threading.Event(), threading.Event()

    def _tidy(self) -> None:
        self.tidied += 1

    def hold(self) -> Job:
        def work(job: Job) -> str:
            self.begun.set()
            self.go.wait(TIMEOUT_S)
            job.pause()
            return "made"

        job = self.worker.submit(work, 1_000)
        assert self.begun.wait(TIMEOUT_S)
        return job


@pytest.fixture
def held() -> Iterator[Held]:
    made = Held()
    yield made
    made.go.set()
    made.worker.stop()
    if made.worker.thread is not None:
        assert made.worker.thread.await_end()
        assert made.ended.is_set()


def test_there_is_no_thread_before_the_first_job(held: Held) -> None:
    assert held.worker.thread is None
    assert held.worker.submit(lambda job: 7, 1_000).future.result(TIMEOUT_S) == 7
    thread = held.worker.thread
    assert thread is not None and thread.name == "kbroker-console"


def test_a_thread_that_cannot_start_fails_one_job(held: Held) -> None:
    refused = RuntimeError("can't start new thread")
    with (
        mock.patch.object(threading.Thread, "start", side_effect=refused),
        pytest.raises(RuntimeError, match="new thread"),
    ):
        held.worker.submit(lambda job: 7, 1_000)
    assert held.worker.thread is None
    assert held.worker.submit(lambda job: 8, 1_000).future.result(TIMEOUT_S) == 8


def test_of_too_many_jobs_the_last_is_refused(held: Held) -> None:
    first = held.hold()
    waiting = [held.worker.submit(lambda job: None, 1_000) for _ in range(CONSOLE_JOBS_MAX)]
    with pytest.raises(Busy):
        held.worker.submit(lambda job: None, 1_000)
    held.go.set()
    assert first.future.result(TIMEOUT_S) == "made"
    assert [each.future.result(TIMEOUT_S) for each in waiting] == [None] * CONSOLE_JOBS_MAX
    assert held.worker.submit(lambda job: 8, 1_000).future.result(TIMEOUT_S) == 8


def test_abandoned_jobs_keep_out_no_other(held: Held) -> None:
    """One who reloads a page again and again leaves a job each time."""
    held.hold()
    waiting = [held.worker.submit(lambda job: None, 1_000) for _ in range(CONSOLE_JOBS_MAX)]
    for each in waiting[1:]:
        each.leave()
    others = [held.worker.submit(lambda job: 8, 1_000) for _ in range(CONSOLE_JOBS_MAX - 1)]
    with pytest.raises(Busy):
        held.worker.submit(lambda job: None, 1_000)
    held.go.set()
    assert [each.future.result(TIMEOUT_S) for each in others] == [8] * len(others)
    assert waiting[0].future.result(TIMEOUT_S) is None


def test_a_page_whose_visitor_has_gone_ends_at_its_next_pause(held: Held) -> None:
    job = held.hold()
    called: list[int] = []
    waits = held.worker.submit(lambda job: called.append(1), 1_000)
    job.leave()
    waits.leave()
    held.go.set()
    assert held.worker.submit(lambda job: 9, 1_000).future.result(TIMEOUT_S) == 9
    assert called == []
    with pytest.raises(Ended):
        job.future.result(TIMEOUT_S)


def test_a_page_that_takes_too_long_is_given_up_and_its_wait_counts(held: Held) -> None:
    job = held.hold()
    waits = held.worker.submit(lambda job: "late", 1_000)
    held.clock.advance(ms=1_000)
    held.go.set()
    for each in (job, waits):
        with pytest.raises(Ended):
            each.future.result(TIMEOUT_S)


def test_garbage_is_collected_seldom_while_pages_are_made(held: Held) -> None:
    """Of either thread: a collection holds the GIL for as long as a page has objects."""
    usual = gc.get_threshold()
    assert 0 < usual[0] < OBJECTS_MAX
    second = Worker("kbroker-console-records", held.clock, lambda: None, lambda: None)
    first = held.hold()
    assert gc.get_threshold() == (OBJECTS_MAX, *usual[1:])
    during = second.submit(lambda job: gc.get_threshold(), 1_000).future.result(TIMEOUT_S)
    assert during == gc.get_threshold() == (OBJECTS_MAX, *usual[1:])
    held.go.set()
    assert first.future.result(TIMEOUT_S) == "made"
    second.stop()
    assert second.thread is None or second.thread.await_end()
    held.worker.stop()
    assert held.worker.thread is not None and held.worker.thread.await_end()
    assert gc.get_threshold() == usual


class Rows:
    """Of a page; a list cannot be referred to weakly."""


@pytest.mark.parametrize("fails", [False, True])
def test_the_rows_of_a_page_are_freed_with_it(held: Held, fails: bool) -> None:
    rows: list[weakref.ref[Rows]] = []

    def work(job: Job) -> Any:
        made = Rows()
        rows.append(weakref.ref(made))
        if fails:
            raise ValueError("x")
        return made

    gc.disable()
    try:
        future = held.worker.submit(work, 1_000).future
        assert isinstance(future.exception(TIMEOUT_S), ValueError) == fails
        del future
        held.worker.submit(lambda job: None, 1_000).future.result(TIMEOUT_S)
        assert rows[0]() is None
    finally:
        gc.enable()


@pytest.mark.parametrize("error", [ValueError("x"), SystemExit(1), KeyboardInterrupt()])
def test_an_error_of_a_page_ends_no_thread(held: Held, error: BaseException) -> None:
    def work(job: Job) -> Any:
        raise error

    job = held.worker.submit(work, 1_000)
    assert held.worker.submit(lambda job: 1, 1_000).future.result(TIMEOUT_S) == 1
    assert job.future.exception(TIMEOUT_S) is error
    assert held.tidied >= 1


def test_a_stop_refuses_those_that_wait_and_ends_the_one_under_way(held: Held) -> None:
    job = held.hold()
    waits = held.worker.submit(lambda job: None, 1_000)
    held.worker.stop()
    with pytest.raises(Busy):
        waits.future.result(TIMEOUT_S)
    with pytest.raises(Busy):
        held.worker.submit(lambda job: None, 1_000)
    held.go.set()
    with pytest.raises(Ended):
        job.future.result(TIMEOUT_S)
    assert held.ended.wait(TIMEOUT_S)
