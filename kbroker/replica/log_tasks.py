"""Background tasks of the logs: tasks of the scheduler, each at its own pace, and the threads of
the cleaner, the scrub, the moves of logs and of a recovery that runs while others are served.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

from kbroker import limits
from kbroker.log.looking._describe import unreadable_bytes
from kbroker.log.upkeep.free_space import FreeSpace
from kbroker.metadata.image import INTERNAL_TOPICS
from kbroker.replica.late_offsets import find_late
from kbroker.replica.retention import Retention

if TYPE_CHECKING:
    from kbroker.clock import Clock
    from kbroker.config import BrokerConfig
    from kbroker.log.engine._flush_times import FlushTimes
    from kbroker.log.manager import LogManager
    from kbroker.log.upkeep.cleaner import CleanerSettings, LogCleaner
    from kbroker.log.upkeep.scrubber import LogScrubber, Repair, ScrubSettings
    from kbroker.metrics.model import Sample
    from kbroker.own_thread import OwnThread
    from kbroker.replica._replica import Replica
    from kbroker.scheduler import Scheduler
    from kbroker.types import TopicPartition


CLEANER_KEYS: Final = (
    "cleaner_dead_threads", "cleaner_uncleanable", "cleaner_uncleanable_bytes", "cleaner_dirtiest",
    "cleaner_since_last_run", "cleaner_recopied", "cleaner_time", "cleaner_map_use",
    "cleaner_read", "cleaner_written", "cleanings",
)  # fmt: skip


SCRUB_KEYS: Final = ("scrub_read", "scrub_damaged", "scrub_repaired")


class LogTasks:
    """Made with the logs; `schedule` when they are open, `stop` before they are closed."""

    def __init__(
        self,
        logs: LogManager,
        replicas: Callable[[], Mapping[TopicPartition, Replica]],
        wake: Callable[[Replica], None],
        clock: Clock,
        config: Callable[[], BrokerConfig],
        logs_ready: Callable[[Sequence[TopicPartition]], None],
        repair: Callable[[], Repair] | None = None,
    ) -> None:
        """`logs_ready` is called with logs that were not recovered when they were asked for, or had
        no room, and may open now. `repair`: asks other replicas for batches that the scrub finds
        damaged; None: there are none."""
        self.retention: Final = Retention(replicas, wake, clock)
        self._find_late: Final = partial(find_late, replicas, wake)
        self._logs: Final = logs
        self._clock: Final = clock
        self._config: Final = config
        self._logs_ready: Final = logs_ready
        self._began_ms: Final = clock.monotonic_ms()
        self._making: Final = threading.Lock()
        self._cleaner: LogCleaner | None = None
        self._cleans = False  # by itself
        self._scrubber: LogScrubber | None = None
        self._repair: Final = repair
        self._scrubs = False  # its time has come; the settings say whether there is one
        self._stopped = False

    def schedule(self, scheduler: Scheduler) -> None:
        config, logs = self._config(), self._logs
        scheduler.schedule(
            "log-checkpoints",
            logs.checkpoint,
            limits.LOG_CHECKPOINT_PERIOD_MS,
            delay_ms=limits.LOG_CHECKPOINT_PERIOD_MS,
        )
        scheduler.schedule("late-offsets", self._find_late, limits.LATE_OFFSETS_PERIOD_MS)
        scheduler.schedule("log-removals", logs.remove_deleted, limits.LOG_REMOVAL_PERIOD_MS)
        free_space = FreeSpace(
            lambda: [directory.path for directory in logs.usable],
            logs.open_logs,
            INTERNAL_TOPICS.__contains__,
            lambda: self._config()["log.dir.min.free.bytes"],
            lambda: scheduler.trigger("log-room"),
            self._clock,
        )
        scheduler.schedule("log-free-space", free_space.look, limits.LOG_SPACE_PERIOD_MS)
        scheduler.schedule("logs-that-want-room", self._look_at_room, limits.LOG_SPACE_PERIOD_MS)
        scheduler.schedule("log-room", self._make_room, limits.TASK_PERIOD_MS_MAX)
        for name, work, key in (
            ("log-flusher", logs.flush_old, "log.flush.scheduler.interval.ms"),
            ("recovery-points", logs.checkpoint_recovery_points,
             "log.flush.offset.checkpoint.interval.ms"),
            ("log-retention", self.retention.sweep, "log.retention.check.interval.ms"),
        ):  # fmt: skip
            period_ms = config[key]
            scheduler.schedule(
                name,
                work,
                period_ms if 0 < period_ms <= limits.TASK_PERIOD_MS_MAX else None,
                delay_ms=config["log.initial.task.delay.ms"],
            )
        scheduler.schedule(
            "log-scrub", self._follow_scrub, None, delay_ms=config["log.initial.task.delay.ms"]
        )
        if not logs.recoveries.are_over:
            task = scheduler.schedule(
                "recovered-logs",
                lambda: self._look_at_recovered(lambda: scheduler.cancel(task)),
                limits.LOG_RECOVERED_PERIOD_MS,
            )
        if config["log.cleaner.enable"]:
            scheduler.schedule("log-cleaner", self._begin_cleaning, None)

        logs.moves.begin_again()

    def _look_at_recovered(self, is_over: Callable[[], None]) -> None:
        recoveries = self._logs.recoveries
        if ready := recoveries.take_ready():
            self._logs_ready(ready)
        all_begun = self._logs.moves.begin_again()
        # The logs that were ready last are opened after this; a move that was cut waits for that.
        if recoveries.are_over and all_begun:
            is_over()

    def _look_at_room(self) -> None:
        if ready := self._logs.wanting_room.take_ready(self._clock.monotonic_ms()):
            self._logs_ready(ready)

    def _make_room(self) -> Iterator[None]:
        """What is kept no longer goes now."""
        yield from self.retention.sweep()
        yield from self._logs.checkpoint()
        yield from self._logs.removals.remove_due(at_once=True)

    @property
    def flush_times(self) -> FlushTimes:
        """Of all logs."""
        return self._logs.flush_times

    def samples(self) -> Mapping[str, list[Sample]]:
        """Figures by the catalogue's keys; before there is a worker, of nothing done."""
        unreadable: list[Sample] = [((), unreadable_bytes(self._logs.open_logs()))]
        return {"log_unreadable": unreadable, **self._scrub_samples(), **self._cleaner_samples()}

    def _scrub_samples(self) -> Mapping[str, list[Sample]]:
        if self._scrubber is None:
            return {key: [((), 0)] for key in SCRUB_KEYS}
        damaged = sum(map(len, self._scrubber.damaged.values()))
        values = self._scrubber.bytes_read, damaged, self._scrubber.repaired
        return {key: [((), value)] for key, value in zip(SCRUB_KEYS, values, strict=True)}

    def _cleaner_samples(self) -> Mapping[str, list[Sample]]:
        if self._cleaner is not None:
            return cleaner_samples(self._cleaner, self._clock)
        since_ms = self._clock.monotonic_ms() - self._began_ms
        nothing: dict[str, list[Sample]] = {key: [((), 0)] for key in CLEANER_KEYS}
        return {**nothing, "cleaner_since_last_run": [((), since_ms)]}

    def follow(self) -> None:
        """The settings have changed."""
        if self._cleaner is not None and self._cleans:
            self._cleaner.resize()
        if self._scrubs:
            self._follow_scrub()

    def stop(self) -> None:
        with self._making:
            self._stopped = True
            made = (self._cleaner, self._scrubber, self._logs.moves)
            workers = [each for each in made if each is not None]
        for worker in workers:
            worker.stop()

    def _follow_scrub(self) -> None:
        """Of the scrub nothing is imported before it is wanted."""
        self._scrubs = True
        if self._config()["log.scrub.interval.ms"] <= 0 and self._scrubber is None:
            return
        with self._making:
            if self._scrubber is None and not self._stopped:
                from kbroker.log.upkeep.scrubber import LogScrubber

                self._scrubber = LogScrubber(
                    self._logs.open_logs,
                    self._scrub_settings,
                    self._clock,
                    repair=None if self._repair is None else self._repair(),
                )
        if self._scrubber is not None:
            self._scrubber.follow()

    def _scrub_settings(self) -> ScrubSettings:
        from kbroker.log.upkeep.scrubber import ScrubSettings

        config = self._config()
        return ScrubSettings(
            config["log.scrub.interval.ms"], config["log.scrub.max.bytes.per.second"]
        )

    @property
    def threads(self) -> Sequence[OwnThread]:
        """Those named above, as far as there are any."""
        cleaners = () if self._cleaner is None else self._cleaner.threads
        scrub = None if self._scrubber is None else self._scrubber.thread
        single = [each for each in (scrub, self._logs.moves.thread) if each is not None]
        return (*self._logs.recoveries.threads, *cleaners, *single)

    @property
    def cleaner(self) -> LogCleaner:
        """Made when it is first asked for; its threads begin with `schedule`."""
        with self._making:
            if self._cleaner is None:
                # After the start, which does not wait for the modules that it imports.
                from kbroker.log.upkeep.cleaner import LogCleaner

                self._cleaner = LogCleaner(self._logs, self._cleaner_settings, self._clock)
            return self._cleaner

    def _begin_cleaning(self) -> None:
        self._cleans = True
        self.cleaner.resize()

    def _cleaner_settings(self) -> CleanerSettings:
        from kbroker.log.upkeep.cleaner import CleanerSettings

        config = self._config()
        return CleanerSettings(
            config["log.cleaner.threads"],
            config["log.cleaner.backoff.ms"],
            config["log.cleaner.dedupe.buffer.size"],
            config["log.cleaner.io.buffer.load.factor"],
            config["log.cleaner.io.max.bytes.per.second"],
        )


def cleaner_samples(cleaner: LogCleaner, clock: Clock) -> Mapping[str, list[Sample]]:
    figures, uncleanable = cleaner.figures, cleaner.uncleanable
    values = (
        sum(thread.dead for thread in cleaner.threads),
        len(uncleanable),
        sum(log.size_bytes for log in uncleanable),
        100 * figures.dirtiest,
        clock.monotonic_ms() - figures.last_look_ms,
        100 * figures.last_recopied,
        figures.last_seconds,
        100 * figures.last_map_share,
        figures.bytes_read,
        figures.bytes_written,
        figures.cleanings,
    )
    return {key: [((), value)] for key, value in zip(CLEANER_KEYS, values, strict=True)}
