"""Workers that wait for logs: one for each data directory."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from threading import Event

import pytest

from kbroker.clock import SystemClock
from kbroker.failures import Failures
from kbroker.log.log_workers import THREAD_NAME, LogWorkers
from kbroker.types import TopicPartition

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
