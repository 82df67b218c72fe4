"""Tasks of the scheduler for the logs: recovered ones are reported, as long as there are any."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kbroker import limits
from kbroker.clock import ManualClock
from kbroker.config import BrokerConfig
from kbroker.log.manager import LogManager
from kbroker.log.opening.data_directory import DataDirectory
from kbroker.log.upkeep.log_move import Unfinished
from kbroker.replica.held_replicas import HeldReplicas
from kbroker.replica.log_tasks import LogTasks
from kbroker.scheduler import Scheduler
from kbroker.types import TopicPartition

TASK = "recovered-logs"
NO_CLEANER = BrokerConfig.load(None, {}, ["log.cleaner.enable=false"])
NAMES = [TopicPartition("a", index) for index in range(3)]


class FakeRecoveries:
    def __init__(self, left: int) -> None:
        self.left = left
        self.ready: list[TopicPartition] = []
        self.threads: list[Any] = []

    @property
    def are_over(self) -> bool:
        return not self.left and not self.ready

    def take_ready(self) -> list[TopicPartition]:
        ready, self.ready = self.ready, []
        return ready


@pytest.mark.parametrize("left", [0, 3])
def test_logs_that_are_ready_are_reported_until_all_are(tmp_path: Path, left: int) -> None:
    clock, ready_calls = ManualClock(), list[list[TopicPartition]]()
    logs: Any = LogManager([tmp_path], listener=HeldReplicas(lambda replica: None))
    recoveries = logs.recoveries = FakeRecoveries(left)
    tasks = LogTasks(
        logs, dict, lambda replica: None, clock, lambda: NO_CLEANER,
        lambda names: ready_calls.append([*names]),
    )  # fmt: skip
    scheduler = Scheduler(clock)
    tasks.schedule(scheduler)
    assert (TASK in scheduler.statistics()) == bool(left)

    def look() -> None:
        clock.advance(limits.LOG_RECOVERED_PERIOD_MS)
        scheduler.run_due()

    if left:
        look()
        assert ready_calls == []
        recoveries.ready = NAMES[:2]
        recoveries.left = 1
        look()
        assert ready_calls == [NAMES[:2]]
        recoveries.ready, recoveries.left = NAMES[2:], 0  # the last one, which is reported as well
        look()
        assert ready_calls == [NAMES[:2], NAMES[2:]]
        assert TASK not in scheduler.statistics()


def test_a_move_that_was_cut_waits_for_the_log_that_is_reported_last(tmp_path: Path) -> None:
    """It is opened after the look that reports it, which is the last but for this."""
    clock = ManualClock()
    logs: Any = LogManager([tmp_path], listener=HeldReplicas(lambda replica: None))
    recoveries = logs.recoveries = FakeRecoveries(1)
    tasks = LogTasks(
        logs, dict, lambda replica: None, clock, lambda: NO_CLEANER,
        lambda names: None,
    )  # fmt: skip
    cut = Unfinished(NAMES[0], DataDirectory(tmp_path), tmp_path / "a-0.x-future")
    logs.moves.mover.unfinished = [cut]
    asked: list[TopicPartition] = []
    logs.moves.mover._ask = lambda name, path, it: asked.append(name)
    scheduler = Scheduler(clock)
    tasks.schedule(scheduler)
    recoveries.ready, recoveries.left = NAMES[:1], 0
    for _ in range(2):
        clock.advance(limits.LOG_RECOVERED_PERIOD_MS)
        scheduler.run_due()
    assert not asked
    logs.held = lambda names: [*names]  # it is open by now
    clock.advance(limits.LOG_RECOVERED_PERIOD_MS)
    scheduler.run_due()
    assert asked == NAMES[:1] and TASK not in scheduler.statistics()


@pytest.mark.parametrize("enabled", [True, False])
def test_the_cleaner_begins_with_the_start(tmp_path: Path, *, enabled: bool) -> None:
    clock = ManualClock()
    config = BrokerConfig.load(None, {}, []) if enabled else NO_CLEANER
    logs: Any = LogManager([tmp_path], listener=HeldReplicas(lambda replica: None))
    tasks = LogTasks(
        logs, dict, lambda replica: None, clock, lambda: config, lambda names: None
    )  # fmt: skip
    scheduler = Scheduler(clock)
    tasks.schedule(scheduler)
    try:
        scheduler.run_due()
        assert [thread.name for thread in tasks.threads] == ["kbroker-log-cleaner-0"] * enabled
    finally:
        tasks.stop()
