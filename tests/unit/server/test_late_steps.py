"""Steps after the ready line: what fails is tried again, and not stopped if it never began."""

from __future__ import annotations

import errno

import pytest

from kbroker.clock import ManualClock
from kbroker.limits import TASK_RETRY_MS
from kbroker.scheduler import Scheduler
from kbroker.server.late_steps import LateSteps
from kbroker.server.lifecycle import Lifecycle

SHORT = OSError(errno.EMFILE, "Too many open files")


class Rig:
    """A step that fails so many times."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.scheduler = Scheduler(self.clock)
        self.late = LateSteps(self.scheduler)
        self.left = 0
        self.did: list[str] = []
        step = self.late.step("groups", self._begin, lambda: self.did.append("stop"))
        self.lifecycle = Lifecycle([step])

    def _begin(self) -> None:
        if self.left:
            self.left -= 1
            raise SHORT
        self.did.append("start")

    def later(self) -> None:
        self.clock.advance(TASK_RETRY_MS)
        self.scheduler.run_due()


@pytest.fixture
def rig() -> Rig:
    return Rig()


def test_a_step_that_works_is_a_step(rig: Rig) -> None:
    assert rig.lifecycle.start()
    rig.lifecycle.stop()
    assert rig.did == ["start", "stop"]


def test_a_step_that_fails_does_not_end_the_start_and_is_tried_again(rig: Rig) -> None:
    rig.left = 2
    assert rig.lifecycle.start()
    assert rig.late.failures.count == 1
    assert "Too many open files" in rig.scheduler.failing()["start of groups"]
    rig.later()
    assert rig.did == [] and list(rig.scheduler.failing()) == ["start of groups"]
    rig.later()
    rig.later()
    assert rig.did == ["start"] and rig.scheduler.failing() == {}
    assert rig.lifecycle.stop() == []
    assert rig.did == ["start", "stop"]


def test_a_step_that_has_not_begun_by_the_stop_is_not_stopped_and_does_not_begin(rig: Rig) -> None:
    rig.left = 1
    rig.lifecycle.start()
    assert rig.lifecycle.stop() == []
    rig.later()
    assert rig.did == []
