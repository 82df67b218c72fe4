"""The scrub: reads sealed segments on the disk, and finds damage before a consumer meets it.

One thread reads every sealed segment of every log, checks each batch, and begins again
`log.scrub.interval.ms` later; at `log.scrub.max.bytes.per.second` on average. A batch that is
damaged is said once, and counted as long as it is there. In a cluster another replica is asked for
it (`replica/batch_repair.py`), and the segment is read again. Off by default (0).

One lock, a leaf: the figures.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Final, NamedTuple

from kbroker.clock import Clock
from kbroker.log.engine._results import DamagedBatch
from kbroker.log.engine.partition_log import PartitionLog
from kbroker.log.looking._describe import segment_figures
from kbroker.log.upkeep._scrub import SegmentScrub
from kbroker.own_thread import OwnThread
from kbroker.types import TopicPartition

logger: Final = logging.getLogger("kbroker.log")

STEP_BYTES: Final = 1 << 20
WAIT_S_MAX: Final = 1.0  # before the settings are looked at again


class ScrubSettings(NamedTuple):
    """`log.scrub.*`, as they hold now."""

    interval_ms: int = 0
    bytes_per_second_max: float = 10 << 20


# Puts what another replica has in the place of a damaged batch: who that was, or None. OSError.
Repair = Callable[[PartitionLog, SegmentScrub, DamagedBatch], str | None]


class Stopped(Exception):
    """The scrub is being stopped or was switched off."""


class LogScrubber:
    """See the head of this file."""

    def __init__(
        self,
        logs: Callable[[], list[PartitionLog]],
        settings: Callable[[], ScrubSettings],
        clock: Clock,
        stopping: threading.Event | None = None,
        repair: Repair | None = None,
    ) -> None:
        """`stopping` is what its thread waits on; a test's own may turn a clock instead."""
        self._logs: Final = logs
        self._settings: Final = settings
        self._clock: Final = clock
        self._stopping: Final = stopping or threading.Event()
        self._starting: Final = threading.Lock()
        self._thread: OwnThread | None = None
        self._lock: Final = threading.Lock()
        self._damage: dict[tuple[TopicPartition, int], list[DamagedBatch]] = {}
        self._bytes_read = 0
        self._repair: Final = repair
        self._repaired = 0

    # --- Life -------------------------------------------------------------------------------------

    def follow(self) -> None:
        """Starts the thread if the settings want one; it ends by itself when they do not."""
        with self._starting:
            wanted = self._settings().interval_ms > 0 and not self._stopping.is_set()
            if wanted and (self._thread is None or not self._thread.is_alive()):
                self._thread = OwnThread("kbroker-log-scrub", self._run)
                self._thread.start()

    def stop(self) -> None:
        """Ends the thread, within a step."""
        self._stopping.set()
        with self._starting:
            thread = self._thread
        if thread is not None:
            thread.await_end()

    @property
    def thread(self) -> OwnThread | None:
        return self._thread

    def _run(self) -> None:
        try:
            while True:
                self._scrub_and_wait()
        except Stopped:
            pass

    def _scrub_and_wait(self) -> None:
        began_ms = self._clock.monotonic_ms()
        self.scrub_all()
        self._wait(lambda: began_ms + self._settings().interval_ms)

    def _wait(self, until_ms: Callable[[], int]) -> None:
        """Until then, which may change meanwhile. Stopped."""
        while True:
            if self._stopping.is_set() or self._settings().interval_ms <= 0:
                raise Stopped
            left_ms = until_ms() - self._clock.monotonic_ms()
            if left_ms <= 0:
                return
            self._stopping.wait(min(left_ms / 1000, WAIT_S_MAX))

    # --- Reading ----------------------------------------------------------------------------------

    def scrub_all(self) -> None:
        """Every sealed segment once. Stopped."""
        seen: set[tuple[TopicPartition, int]] = set()
        for log in self._logs():
            if log.online:
                for segment in segment_figures(log)[:-1]:
                    seen.add((log.name, segment.base_offset))
                    self._scrub(log, segment.base_offset)
        with self._lock:
            self._damage = {where: it for where, it in self._damage.items() if where in seen}

    def _scrub(self, log: PartitionLog, base_offset: int) -> None:
        tried: set[int] = set()
        while (scrub := self._read(log, base_offset)) is not None:
            self._note(log, base_offset, scrub.damage)
            repaired: set[int] = set()
            for batch in scrub.damage:
                # A batch's header says where the next one is: after a repair it is read again.
                if batch.position not in tried and batch.offset not in repaired:
                    tried.add(batch.position)
                    if self._is_repaired(log, scrub, batch):
                        repaired.add(batch.offset)
            if not repaired:
                return

    def _read(self, log: PartitionLog, base_offset: int) -> SegmentScrub | None:
        """None: it cannot be read, or is the log's no more."""
        began_ms = self._clock.monotonic_ms()
        try:
            scrub = SegmentScrub(log, base_offset)
        except KeyError:
            return None
        before = 0
        try:
            while scrub.step(STEP_BYTES):
                before = self._go_on(scrub, before, began_ms)
            self._go_on(scrub, before, began_ms)
        except OSError as error:
            logger.error("%s cannot be scrubbed: %s", log.name, error)
            return None
        return scrub if scrub.still_there else None

    def _is_repaired(self, log: PartitionLog, scrub: SegmentScrub, batch: DamagedBatch) -> bool:
        if self._repair is None:
            return False
        if self._stopping.is_set():
            raise Stopped
        try:
            source = self._repair(log, scrub, batch)
        except OSError as error:
            logger.error("%s: offset %d cannot be repaired: %s", log.name, batch.offset, error)
            return False
        if source is None:
            return False
        with self._lock:
            self._repaired += 1
        logger.warning("%s: offset %d is repaired, from %s", log.name, batch.offset, source)
        return True

    def _go_on(self, scrub: SegmentScrub, before: int, began_ms: int) -> int:
        with self._lock:
            self._bytes_read += scrub.bytes_read - before

        def due_ms() -> int:
            rate = max(1.0, self._settings().bytes_per_second_max)
            return began_ms + int(scrub.bytes_read / rate * 1000)

        self._wait(due_ms)
        return scrub.bytes_read

    def _note(self, log: PartitionLog, base_offset: int, damage: list[DamagedBatch]) -> None:
        with self._lock:
            known = self._damage.get((log.name, base_offset), [])
        for batch in damage:
            if batch not in known:
                logger.error(
                    "%s/%020d.log has rotted at offset %d, byte %d: %s; consumers get an error, "
                    "kbroker dump-log --verify shows the rest",
                    log.path, base_offset, batch.offset, batch.position, batch.what,
                )  # fmt: skip
        # After the lines: the figure is never ahead of them.
        with self._lock:
            self._damage.pop((log.name, base_offset), None)
            if damage:
                self._damage[log.name, base_offset] = damage

    # --- Figures ----------------------------------------------------------------------------------

    @property
    def damaged(self) -> dict[TopicPartition, list[DamagedBatch]]:
        """What is damaged, as far as it has been read."""
        found: dict[TopicPartition, list[DamagedBatch]] = {}
        with self._lock:
            for (name, _), batches in sorted(self._damage.items()):
                found.setdefault(name, []).extend(batches)
        return found

    @property
    def bytes_read(self) -> int:
        """Since the start."""
        with self._lock:
            return self._bytes_read

    @property
    def repaired(self) -> int:
        """Batches, since the start."""
        with self._lock:
            return self._repaired
