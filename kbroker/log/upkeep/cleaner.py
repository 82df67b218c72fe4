"""The cleaner: compacted logs keep the last record of each key.

Its threads look for the dirtiest log that is worth it (`cleanable.py`) and clean it
(`_cleaning.pyx`), one log by one thread; where none is, they wait for `log.cleaner.backoff.ms`. The
offset up to which a log was cleaned is in `cleaner-offset-checkpoint`; files that a crash leaves
half done are removed or completed by the next opening. A log that cannot be cleaned is logged once,
counted, and left as it is until it is opened again.

Keys are remembered in `log.cleaner.dedupe.buffer.size` bytes, divided among the threads: where they
do not fit, a cleaning takes as many as do, and the next one goes on. What is read and written is
held to each thread's part of `log.cleaner.io.max.bytes.per.second`, on average. A log whose
cleaning the disk did not allow is put off for a while, and no other waits for it.

One lock, a leaf: which logs are being cleaned, which cannot be, and the figures.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from kbroker.clock import Clock
from kbroker.log.engine._results import Uncleanable
from kbroker.log.engine.checkpoints import CLEANER_FILE, RECOVERY_POINT_FILE
from kbroker.log.engine.listener import LogListener
from kbroker.log.engine.partition_log import PartitionLog
from kbroker.log.looking._describe import segment_figures
from kbroker.log.upkeep.checkpointing import Checkpointing
from kbroker.log.upkeep.cleanable import Cleanable, look
from kbroker.own_thread import OwnThread
from kbroker.types import TopicPartition

if TYPE_CHECKING:
    from kbroker.log.upkeep._cleaning import Cleaning

logger: Final = logging.getLogger("kbroker.log")

# Between two looks at whether to go on; a few milliseconds.
STEP_BYTES: Final = 4 << 20
PAUSE_MS_MIN: Final = 10  # whatever `log.cleaner.backoff.ms` says
PUT_OFF_MS_MIN: Final = 1_000
WAIT_S_MAX: Final = 1.0  # of a throttle, before it is reckoned anew


class CleanerSettings(NamedTuple):
    """`log.cleaner.*`, as they hold when a cleaning begins."""

    threads: int = 1
    backoff_ms: int = 15_000
    map_bytes: int = 128 << 20  # of all threads together
    load_factor: float = 0.9
    bytes_per_second_max: float = float("inf")


class Logs(Protocol):
    """What the cleaner asks of the log manager."""

    @property
    def listener(self) -> LogListener: ...

    @property
    def checkpointing(self) -> Checkpointing: ...

    def open_logs(self) -> list[PartitionLog]: ...


@dataclass
class Figures:
    """Since the start; `last_*` of the last cleaning."""

    cleanings: int = 0
    bytes_read: int = 0
    bytes_written: int = 0
    last_seconds: float = 0.0
    last_map_share: float = 0.0
    last_recopied: float = 0.0  # bytes written by bytes read
    last_look_ms: int = 0  # for a log to clean, on the monotonic clock
    dirtiest: float = 0.0  # the largest dirty share that was found when a log was looked for last


class Stopped(Exception):
    """The cleaner is being stopped, or the log is gone: what was written is given up."""


class LogCleaner:
    """See the head of this file."""

    def __init__(
        self,
        logs: Logs,
        settings: Callable[[], CleanerSettings],
        clock: Clock,
        stopping: threading.Event | None = None,
    ) -> None:
        """`stopping` is what its threads wait on; a test's own may turn a clock instead."""
        self._logs: Final = logs
        self._settings: Final = settings
        self._clock: Final = clock
        self._stopping: Final = stopping or threading.Event()
        self._lock: Final = threading.Condition(threading.Lock())
        self._being_cleaned: set[TopicPartition] = set()  # by name: two may have one directory
        self._uncleanable: dict[PartitionLog, str] = {}
        self._put_off: dict[TopicPartition, int] = {}  # till when, on the monotonic clock
        self._sizing: Final = threading.Lock()
        self._threads: list[OwnThread] = []
        self._leaving: list[OwnThread] = []
        self.figures: Final = Figures(last_look_ms=clock.monotonic_ms())

    # --- Life -------------------------------------------------------------------------------------

    def resize(self) -> None:
        """As many threads as the settings say; one that is too many ends with its cleaning."""
        wanted = self._settings().threads
        with self._sizing:
            while len(self._threads) < wanted and not self._stopping.is_set():
                name = f"kbroker-log-cleaner-{len(self._threads)}"
                self._threads.append(OwnThread(name, self._run))  # which looks for itself there
                try:
                    self._threads[-1].start()
                except BaseException:
                    self._threads.pop()  # it has never lived; the caller asks again
                    raise
            while len(self._threads) > wanted:
                self._leaving.append(self._threads.pop())
            self._leaving = [thread for thread in self._leaving if thread.is_alive()]

    def stop(self) -> None:
        """Ends the threads, within a step."""
        self._stopping.set()
        with self._sizing:
            threads = [*self._threads, *self._leaving]
        for thread in threads:
            thread.await_end()

    @property
    def threads(self) -> tuple[OwnThread, ...]:
        return tuple(self._threads)

    def _run(self) -> None:
        while not self._stopping.is_set() and threading.current_thread() in self._threads:
            if not self.clean_dirtiest():
                self._stopping.wait(max(self._settings().backoff_ms, PAUSE_MS_MIN) / 1000)

    # --- Which ------------------------------------------------------------------------------------

    def clean_dirtiest(self) -> bool:
        """Cleans the log that is worth it most; False: none is."""
        found = self._take_dirtiest()
        if found is None:
            return False
        self._clean_taken(*found)
        return True

    def clean_all(self) -> None:
        """Cleans every compacted log as far as it may be, whatever its ratio; of each, the active
        segment ends first."""
        for log in self._logs.open_logs():
            if not log.compacts or not log.online or log.being_moved:
                continue
            log.roll()
            with self._lock:
                while log.name in self._being_cleaned:
                    self._lock.wait()
                self._being_cleaned.add(log.name)
            self._clean_taken(log, self._look(log))

    def _look(self, log: PartitionLog) -> Cleanable:
        return look(
            segment_figures(log),
            log.log_start_offset,
            log.log_end_offset,
            log.cleaned_to,
            min(self._logs.listener.high_watermark_of(log), log.first_undecided_offset),
            log.compaction,
            self._clock.wall_ms(),
        )

    def _take_dirtiest(self) -> tuple[PartitionLog, Cleanable] | None:
        dirtiest: tuple[PartitionLog, Cleanable] | None = None
        largest = 0.0
        for log in self._free():
            found = self._look(log)
            largest = max(largest, found.ratio)
            if found.worth_it(log.compaction) and (
                dirtiest is None or found.ratio > dirtiest[1].ratio
            ):
                dirtiest = log, found
        with self._lock:
            self.figures.dirtiest = largest
            self.figures.last_look_ms = self._clock.monotonic_ms()
            if dirtiest is None or dirtiest[0].name in self._being_cleaned:
                return None
            self._being_cleaned.add(dirtiest[0].name)
        return dirtiest

    def _free(self) -> list[PartitionLog]:
        """Compacted logs that may be cleaned now."""
        now_ms = self._clock.monotonic_ms()
        logs = [log for log in self._logs.open_logs() if log.compacts and log.online]
        logs = [log for log in logs if not log.being_moved]
        with self._lock:
            for log in self._uncleanable.keys() - set(logs):
                del self._uncleanable[log]
            self._put_off = {name: due for name, due in self._put_off.items() if due > now_ms}
            kept_back = self._being_cleaned | self._put_off.keys()
            return [
                log for log in logs if log.name not in kept_back and log not in self._uncleanable
            ]

    # --- How --------------------------------------------------------------------------------------

    def _clean_taken(self, log: PartitionLog, found: Cleanable) -> None:
        try:
            self._clean(log, found)
        except Stopped:
            pass
        except (OSError, MemoryError) as error:
            logger.error("%s: the cleaning failed: %s", log.name, str(error) or "no memory")
            put_off_ms = max(self._settings().backoff_ms, PUT_OFF_MS_MIN)
            with self._lock:
                self._put_off[log.name] = self._clock.monotonic_ms() + put_off_ms
        except Uncleanable as error:
            logger.error("%s cannot be cleaned and stays as it is: %s", log.name, error)
            self._leave(log, str(error))
        except Exception as error:
            logger.exception("%s cannot be cleaned and stays as it is", log.name)
            self._leave(log, repr(error))
        finally:
            with self._lock:
                self._being_cleaned.discard(log.name)
                self._lock.notify_all()

    def _leave(self, log: PartitionLog, why: str) -> None:
        with self._lock:
            self._uncleanable[log] = why

    def _clean(self, log: PartitionLog, found: Cleanable) -> None:
        from kbroker.log.upkeep._cleaning import Cleaning  # many brokers never clean a log

        settings = self._settings()
        began_ms = self._clock.monotonic_ms()
        cleaning = Cleaning(
            log, found.first_dirty, found.end,
            map_bytes_max=settings.map_bytes // max(1, settings.threads),
            load_factor=settings.load_factor,
            now_ms=self._clock.wall_ms(),
            delete_retention_ms=log.compaction.delete_retention_ms,
        )  # fmt: skip
        while cleaning.map_keys(STEP_BYTES):
            self._go_on(log, cleaning, began_ms)
        self._settle(log)
        for first, end in cleaning.groups(log.segment_bytes):
            self._go_on(log, cleaning, began_ms)
            self._clean_group(log, cleaning, began_ms, first, end)
        log.note_cleaned(cleaning)
        self._logs.checkpointing.write_of(CLEANER_FILE, log)
        self._note(log, found, cleaning, began_ms)

    def _settle(self, log: PartitionLog) -> None:
        """A start after a crash does not ask batches that are cleaned where leader epochs begin:
        the first one of an epoch may be gone."""
        log.flush_rolled()
        self._logs.checkpointing.write_of(RECOVERY_POINT_FILE, log)

    def _clean_group(
        self, log: PartitionLog, cleaning: Cleaning, began_ms: int, first: int, end: int
    ) -> None:
        try:
            cleaning.begin_group(first, end)
            while cleaning.clean(STEP_BYTES):
                self._go_on(log, cleaning, began_ms)
            cleaning.finish()
            if not log.replace_by_cleaned(cleaning):
                raise Stopped
        except BaseException:
            cleaning.give_up()
            raise

    def _go_on(self, log: PartitionLog, cleaning: Cleaning, began_ms: int) -> None:
        """Waits until what was read and written is within its rate. Stopped."""
        moved_bytes = cleaning.bytes_mapped + cleaning.bytes_read + cleaning.bytes_written
        while True:
            if self._stopping.is_set() or not (log.online and log.compacts) or log.being_moved:
                raise Stopped
            settings = self._settings()
            rate = max(1.0, settings.bytes_per_second_max) / max(1, settings.threads)
            ahead_s = moved_bytes / rate - (self._clock.monotonic_ms() - began_ms) / 1000
            if ahead_s <= 0:
                return
            self._stopping.wait(min(ahead_s, WAIT_S_MAX))

    def _note(self, log: PartitionLog, found: Cleanable, cleaning: Cleaning, began_ms: int) -> None:
        now_ms = self._clock.monotonic_ms()
        seconds = (now_ms - began_ms) / 1000
        with self._lock:
            figures = self.figures
            figures.cleanings += 1
            figures.bytes_read += cleaning.bytes_read
            figures.bytes_written += cleaning.bytes_written
            figures.last_seconds = seconds
            figures.last_map_share = cleaning.map_share
            figures.last_recopied = cleaning.bytes_written / max(1, cleaning.bytes_read)
        logger.info(
            "%s was cleaned up to offset %d in %.1f s: %d of %d records and %d of %d bytes stay,"
            " %d keys",
            log.name, cleaning.mapped_end, seconds, cleaning.records_written,
            cleaning.records_read, cleaning.bytes_written, cleaning.bytes_read, cleaning.keys,
        )  # fmt: skip

    # --- Figures ----------------------------------------------------------------------------------

    @property
    def uncleanable(self) -> dict[PartitionLog, str]:
        """Logs that cannot be cleaned, and why."""
        with self._lock:
            return dict(self._uncleanable)
