"""What is done for the logs in the background: tasks of the scheduler, each at its own pace."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kbroker import limits

if TYPE_CHECKING:
    from kbroker.config import BrokerConfig
    from kbroker.log.manager import LogManager
    from kbroker.replica.retention import Retention
    from kbroker.server.scheduler import Scheduler


def schedule_log_tasks(
    scheduler: Scheduler, logs: LogManager, retention: Retention, config: BrokerConfig
) -> None:
    scheduler.schedule(
        "log-checkpoints",
        logs.checkpoint,
        limits.LOG_CHECKPOINT_PERIOD_MS,
        delay_ms=limits.LOG_CHECKPOINT_PERIOD_MS,
    )
    scheduler.schedule("log-removals", logs.remove_deleted, limits.LOG_REMOVAL_PERIOD_MS)
    for name, work, key in (
        ("log-flusher", logs.flush_old, "log.flush.scheduler.interval.ms"),
        ("recovery-points", logs.checkpoint_recovery_points,
         "log.flush.offset.checkpoint.interval.ms"),
        ("log-retention", retention.sweep, "log.retention.check.interval.ms"),
    ):  # fmt: skip
        period_ms = config[key]
        scheduler.schedule(
            name,
            work,
            period_ms if 0 < period_ms <= limits.TASK_PERIOD_MS_MAX else None,
            delay_ms=config["log.initial.task.delay.ms"],
        )
