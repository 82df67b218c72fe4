"""The thread that reads a machine's topic: partitions gained and lost, topics deleted.

Place in the flow: the store queues a partition that this broker has begun or ceased to lead, or a
topic that was deleted; the thread works them off in their order. Loading gives whole batches to the
table, which applies what it knows in C; the other records go to the machine (`Replay`), which has
made of them what it serves before the partition turns active. Until then clients get
COORDINATOR_LOAD_IN_PROGRESS and come again. The thread is started once the broker is ready: a long
log delays no first request to anything else.

The queue does not outlive a stop, so what a deleted topic leaves to be done the machine looks for
after a load as well (`Machine.active`).

A machine may serve nothing that its partition could still lose (`Machine.waits_for_followers`).
Then a partition that is loaded turns active when the high watermark has reached the end of the
loaded records; it is looked at again after FOLLOWERS_MS, then after twice as long each time, up to
LATE_MS.

A log that is being changed for long learns late who leads it (`replica/in_sync.py`). Its partition
is looked at again every LATE_MS until then, and is loaded after that change.

A batch or a record that cannot be read is left out with one line. A log in which the next batch
cannot be found leaves its partition unowned (NOT_COORDINATOR), with a line that says so. So does a
load that fails in another way, for want of memory or descriptors, or since a disk has an error: it
is begun again after AGAIN_MS, and after twice as long each time, up to AGAIN_MS_MAX.

Bounds: a queue of as many loads as the topic has partitions; deleted topics are names and ids.
Locks: a leaf around the queue, under which nothing is called; and one that is held while a piece is
given to the table, so that a partition which is lost is not loaded into any more (`cancel` waits
for that piece, some ten milliseconds). Below it the table's.

Where there is no thread for it, as in a simulation of several brokers, `work_off` is walked through
instead of `start`: between two pieces others have their turn, as beside the thread.
"""

from __future__ import annotations

import bisect
import logging
import threading
from collections import deque
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

from kbroker.clock import NS_PER_MS
from kbroker.errors import ErrorCode, KafkaError
from kbroker.log_lines import LogLines
from kbroker.own_thread import OwnThread

if TYPE_CHECKING:
    from kbroker.clock import Clock
    from kbroker.coordinator.runtime.machine import LoadedTable, Machine, Replay
    from kbroker.metadata.image import TopicImage
    from kbroker.replica._replica import Replica

STOP_TIMEOUT_S: Final = 10.0
LATE_MS: Final = 100
FOLLOWERS_MS: Final = 5
AGAIN_MS: Final = 1_000
AGAIN_MS_MAX: Final = 30_000
# A wait for followers that lasts so long has a line in the log, once.
LONG_WAIT_MS: Final = 5_000


@dataclass
class _Load:
    partition: int
    replica: Replica
    leader_epoch: int  # in which it is ours
    cancelled: bool = False
    began_ms: int = -1  # the load; before that it waits for its turn
    loaded_to: int = -1  # all up to there is loaded, and waits for the followers
    pause_ms: int = FOLLOWERS_MS
    waits_long: bool = False
    failed: bool = False  # the table has it closed, and it is begun again
    again_ms: int = AGAIN_MS
    is_active: bool = False  # and its machine does not know


class _Unload(NamedTuple):
    partitions: frozenset[int]
    of: int


class _Deleted(NamedTuple):
    topic: TopicImage


class _Round(NamedTuple):
    """Loads one after the other, for one line in the log."""

    began_ms: int
    partitions: int = 0
    contents: tuple[tuple[str, int], ...] = ()


class LoadTimes(NamedTuple):
    """Of partitions that were loaded, since the start."""

    loads: int = 0
    total_ms: int = 0
    longest_ms: int = 0

    def with_one(self, took_ms: int) -> LoadTimes:
        return LoadTimes(self.loads + 1, self.total_ms + took_ms, max(self.longest_ms, took_ms))

    @property
    def average_ms(self) -> float:
        return self.total_ms / self.loads if self.loads else 0.0


class Loader:
    """See the head of this file. `start` once the broker is ready, `stop`; once each."""

    def __init__(
        self, table: LoadedTable, machine: Machine, clock: Clock, *, buffer_bytes: int
    ) -> None:
        """`buffer_bytes`: how much of a log is read at once."""
        self._table = table
        self._machine = machine
        self._logger: Final = logging.getLogger(f"kbroker.{machine.name}")
        self._lines: Final = LogLines(
            self._logger, clock.monotonic_ns, lines_max=machine.log_lines_max
        )
        self._clock = clock
        self._buffer_bytes = buffer_bytes
        self._changed = threading.Condition()
        self._jobs: deque[_Load | _Unload | _Deleted] = deque()
        self._current: _Load | _Unload | _Deleted | None = None
        self._late: list[tuple[int, _Load]] = []  # each with when it is looked at again, in order
        self._piece = threading.Lock()
        self._stopping = self._lost = False
        self.thread: Final = OwnThread(f"kbroker-{machine.name}", self._run, self._given_up)
        self._round: _Round | None = None
        self.times = LoadTimes()  # which any thread may read

    def start(self) -> None:
        self.thread.start()

    def stop(self) -> None:
        with self._changed:
            self._stopping = True
            self._changed.notify_all()
        if self.thread.is_alive():
            self.thread.join(STOP_TIMEOUT_S)

    # --- the controller's thread ------------------------------------------------------------------

    def load(self, partition: int, replica: Replica, leader_epoch: int) -> None:
        """Bring a partition up that the table has open, when its log leads in that epoch."""
        if not self._put(_Load(partition, replica, leader_epoch)):
            self._table.close(partition)

    def cancel(self, partitions: Sequence[int]) -> None:
        """These are lost. On return nothing is loaded into them any more."""
        lost = frozenset(partitions)
        with self._changed:
            for job in (*self._jobs, self._current, *(late for _, late in self._late)):
                if isinstance(job, _Load) and job.partition in lost:
                    job.cancelled = True
        with self._piece:
            pass  # the piece that was being given to the table is in

    def unload(self, partitions: Sequence[int], count: int) -> None:
        """The table has closed these of `count` partitions: their groups go."""
        job = _Unload(frozenset(partitions), count)
        if not self._put(job):
            self._unload(job)

    def unloads(self, partition: int, count: int) -> bool:
        """Whether an older term of this one of `count` partitions is being unloaded, or waits for
        it. With another number of partitions its keys may have been in any of them."""
        with self._changed:
            return any(
                isinstance(job, _Unload) and (partition in job.partitions or job.of != count)
                for job in (*self._jobs, self._current)
            )

    def topic_deleted(self, topic: TopicImage) -> None:
        """Where the thread is lost, the next load finds what is to be done, after a restart."""
        self._put(_Deleted(topic))

    def _put(self, job: _Load | _Unload | _Deleted) -> bool:
        """False: the thread is lost, and the job would never run."""
        with self._changed:
            if not self._lost:
                self._jobs.append(job)
                self._changed.notify_all()
            return not self._lost

    # --- the loader's thread ----------------------------------------------------------------------

    def _run(self) -> None:
        for _ in self.work_off(wait=True):
            pass

    def work_off(self, *, wait: bool = False) -> Iterator[None]:
        """All that is queued, a piece at a time; with `wait` until the loader stops."""
        while (job := self._next(wait=wait)) is not None:
            yield from self._work(job)

    def _given_up(self) -> None:
        """Partitions that will not be loaded have no coordinator here."""
        with self._changed:
            self._lost = True
            late = [job for _, job in self._late]
            jobs = (self._current, *self._jobs, *late)
        for job in jobs:
            try:
                if isinstance(job, _Load) and not (job.cancelled or job.is_active):
                    self._table.close(job.partition)
                elif isinstance(job, _Unload):
                    self._unload(job)
            except BaseException as error:
                self.thread.failures.note(
                    f"a job of the lost loader of {self._machine.name}", error
                )
        with self._changed:
            self._current = None
            self._jobs.clear()

    def _next(self, *, wait: bool) -> _Load | _Unload | _Deleted | None:
        with self._changed:
            self._current = None
            self._take_up_late()
            while wait and not self._jobs and not self._stopping:
                self._clock.wait_until(self._changed, self._late[0][0] if self._late else None)
                self._take_up_late()
            if self._stopping or not self._jobs:
                return None
            job = self._jobs.popleft()
            self._current = job
            return job

    def _take_up_late(self) -> None:
        while self._late and self._late[0][0] <= self._clock.monotonic_ns():
            self._jobs.append(self._late.pop(0)[1])

    def _work(self, job: _Load | _Unload | _Deleted) -> Iterator[None]:
        try:
            if isinstance(job, _Load):
                yield from self._load(job)
            elif isinstance(job, _Unload):
                self._unload(job)
            else:
                self._machine.topic_deleted(job.topic)
        except Exception as error:
            self.thread.failures.note(f"a job of the loader of {self._machine.name}", error)

    def _load(self, job: _Load) -> Iterator[None]:
        if job.is_active:
            self._say_active(job)
            return
        if job.replica.leader_epoch < job.leader_epoch and not job.cancelled:
            self._look_again(job, LATE_MS)
            return
        if job.failed and not self._may_begin_again(job):
            return
        if job.began_ms < 0:
            job.began_ms = self._clock.monotonic_ms()
        name = f"{self._machine.topic}-{job.partition}"
        try:
            if job.loaded_to < 0:
                replay = yield from self._read(job)
                if replay is None:
                    return
                replay.loaded()
            yield
            with self._piece:
                if job.cancelled:
                    return
                if self._machine.waits_for_followers and not _is_replicated(job):
                    self._wait_for_followers(job, name)
                    return
                self._table.activate(job.partition)
        except GeneratorExit:
            raise  # the load is given up
        except BaseException as error:
            if isinstance(error, KafkaError) and error.code is ErrorCode.NOT_LEADER_OR_FOLLOWER:
                return  # led elsewhere since a moment ago: who follows that closes it
            # Whatever the error, clients must not be answered for ever that the partition is
            # loading.
            if not isinstance(error, KafkaError | OSError):
                self.thread.failures.note(f"loading {self._machine.name}", error)
            is_damage = isinstance(error, KafkaError) and error.code is ErrorCode.CORRUPT_MESSAGE
            may_pass = isinstance(error, Exception) and not is_damage
            self._logger.error(
                "%s cannot be read, so its %s have no coordinator here: %s; %s",
                name,
                self._machine.name,
                error,
                "it is read again soon"
                if may_pass
                else "look at its log with a dump tool, and restart the broker when it is mended",
            )
            with self._piece:
                if not job.cancelled:
                    self._table.close(job.partition)
            if may_pass:
                job.failed = True
                self._look_again(job, job.again_ms)
                job.again_ms = min(2 * job.again_ms, AGAIN_MS_MAX)
            if not isinstance(error, Exception):
                raise
            return
        yield
        job.is_active = True
        self._say_active(job)

    def _say_active(self, job: _Load) -> None:
        """What follows from a load follows from no other call: it is called until it succeeds."""
        if job.cancelled:
            return
        try:
            self._machine.active(job.partition)
        except Exception:
            self._look_again(job, job.again_ms)
            job.again_ms = min(2 * job.again_ms, AGAIN_MS_MAX)
            raise
        self.times = self.times.with_one(self._clock.monotonic_ms() - job.began_ms)
        self._log_when_done(job.partition, job.began_ms)

    def _may_begin_again(self, job: _Load) -> bool:
        try:
            return self._begin_again(job)
        except Exception:
            self._look_again(job, job.again_ms)
            raise

    def _begin_again(self, job: _Load) -> bool:
        """A load that has failed. False: not now, or not any more."""
        if job.cancelled:
            return False
        # What was loaded of it is loaded once more.
        self._unload(_Unload(frozenset((job.partition,)), self._table.partition_count))
        with self._piece:
            if job.cancelled:
                return False
            if not self._table.open(job.partition, job.replica):
                self._look_again(job, job.again_ms)
                return False
        job.failed, job.loaded_to = False, -1
        return True

    def _wait_for_followers(self, job: _Load, name: str) -> None:
        if not job.waits_long and self._clock.monotonic_ms() - job.began_ms >= LONG_WAIT_MS:
            job.waits_long = True
            self._logger.warning(
                "%s is loaded up to offset %d, and its high watermark is %d: its %s are served when"
                " enough followers have the rest; look at its in-sync replicas",
                name,
                job.loaded_to,
                job.replica.high_watermark,
                self._machine.name,
            )
        self._look_again(job, job.pause_ms)
        job.pause_ms = min(2 * job.pause_ms, LATE_MS)

    def _look_again(self, job: _Load, pause_ms: int) -> None:
        at_ns = self._clock.monotonic_ns() + pause_ms * NS_PER_MS
        with self._changed:
            bisect.insort(self._late, (at_ns, job), key=lambda late: late[0])

    def _unload(self, job: _Unload) -> None:
        self._machine.unloaded(job.partitions, job.of)

    def _log_when_done(self, partition: int, began_ms: int) -> None:
        """One line for partitions that were loaded one after another."""
        before = self._round or _Round(began_ms)
        counts = dict(before.contents)
        for name, count in self._machine.contents(partition):
            counts[name] = counts.get(name, 0) + count
        self._round = round_ = _Round(before.began_ms, before.partitions + 1, tuple(counts.items()))
        with self._changed:
            waiting = (job for _, job in self._late)
            more = any(isinstance(job, _Load) for job in (*self._jobs, *waiting))
        if not more:
            self._round = None
            self._logger.info(
                "%s: loaded %d partitions with %s in %d ms",
                self._machine.topic,
                round_.partitions,
                " and ".join(f"{count} {name}" for name, count in round_.contents),
                self._clock.monotonic_ms() - round_.began_ms,
            )

    def _read(self, job: _Load) -> Generator[None, None, Replay | None]:
        """The replay of all that the log has; None if the partition is lost."""
        replay = self._machine.replay(job.partition)
        offset = job.replica.log_start_offset
        # Markers are appended meanwhile, and what they end may not be in memory yet. They are read.
        while offset < (end := job.replica.log_end_offset):
            # To the end: of a leader before, there are records that its followers have not all yet.
            data = job.replica.read(offset, self._buffer_bytes, to_log_end=True)
            yield
            with self._piece:
                if job.cancelled or self._stopping:
                    return None
                loaded = self._table.load_batches(job.partition, data)
            if loaded.used_bytes == 0:
                raise KafkaError(ErrorCode.CORRUPT_MESSAGE, f"no whole batch at offset {offset}")
            offset = loaded.next_offset
            for base_offset, why in loaded.left_out:
                message = (
                    "%s-%d: the batch at offset %d cannot be read, so its records are"
                    " left out: %s; its %s have what they wrote before and after it"
                )
                self._lines.write(
                    logging.WARNING, "unreadable", message, self._machine.topic, job.partition,
                    base_offset, why, self._machine.name,
                )  # fmt: skip
            for record in loaded.records:
                replay.record(record)
        job.loaded_to = end
        return replay


def _is_replicated(job: _Load) -> bool:
    return job.replica.high_watermark >= job.loaded_to
