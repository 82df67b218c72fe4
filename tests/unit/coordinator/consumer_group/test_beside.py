"""The thread beside the groups: a start that fails, and one that only seems to."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from kbroker.coordinator.consumer_group.beside import Beside

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
