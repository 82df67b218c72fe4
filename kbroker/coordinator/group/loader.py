"""The thread that reads `__consumer_offsets`: partitions gained and lost, topics deleted.

Place in the flow: the store queues a partition that this broker has begun or ceased to lead, or a
topic that was deleted; the thread `kbroker-groups` works them off in their order. Loading gives
whole batches to the table, which applies committed offsets in C, and collects the records of
groups, of which the last one counts; they go to the coordinator before the partition turns active,
so that nobody meets a group without its members. Until then clients are told
COORDINATOR_LOAD_IN_PROGRESS and come again. The thread is started behind the ready line: a long log
delays nobody else's first request.

Deleted topics' offsets get tombstones; those of a topic that was created again under the same name
are told apart by the topic's id. The queue does not outlive a stop, so a load looks as well: what
it finds of topics that are not there any more is forgotten behind it.

A log that is being changed for long is told late who leads it (`replica/in_sync.py`). Its partition
is looked at again every LATE_MS until then, and is loaded behind that change.

A record that is no group, and a batch or a record that cannot be read, is left out with one line. A
log in which the next batch cannot be found leaves its partition unowned (NOT_COORDINATOR), with a
line that says so.

Bounds: a queue of as many loads as the topic has partitions; deleted topics are names and ids.
Locks: a leaf around the queue, under which nothing is called; and one that is held while a piece is
given to the table, so that a partition which is lost is not loaded into any more (`cancel` waits
for that piece, some ten milliseconds). Below it the table's.

Whoever has no thread for it, such as a simulation of several brokers, walks through `work_off`
instead of `start`: between two pieces others have their turn, as beside the thread.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from kbroker.clock import NS_PER_MS
from kbroker.coordinator.group._groups import partition_for
from kbroker.coordinator.group.group_records import RecordError, decode_group, group_of_key
from kbroker.errors import ErrorCode, InvariantError, KafkaError
from kbroker.limits import LOG_GROUP_LINES_MAX
from kbroker.log_lines import LogLines
from kbroker.metadata.image import OFFSETS_TOPIC
from kbroker.own_thread import OwnThread

if TYPE_CHECKING:
    from kbroker.clock import Clock
    from kbroker.coordinator.group._groups import CommittedOffset, LoadedBatches, ShardStatistics
    from kbroker.coordinator.group.images import GroupImage
    from kbroker.metadata.image import TopicImage
    from kbroker.replica._replica import Replica

logger: Final = logging.getLogger("kbroker.groups")
# What a log may say of each of its groups.
lines: Final = LogLines(logger, lines_max=LOG_GROUP_LINES_MAX)

THREAD_NAME: Final = "kbroker-groups"
STOP_TIMEOUT_S: Final = 10.0
LATE_MS: Final = 100
NO_TOPIC_ID: Final = bytes(16)  # no topic has it


class Table(Protocol):
    """What loading asks of the table of offsets, `_groups.GroupTable`."""

    def load_batches(self, partition: int, data: bytes) -> LoadedBatches: ...

    def groups(self, partition: int) -> list[str]: ...

    def statistics(self, partition: int) -> ShardStatistics: ...

    def activate(self, partition: int) -> None: ...

    def close(self, partition: int) -> bool: ...

    def of_topic(self, topic: str) -> list[tuple[str, list[CommittedOffset]]]: ...

    def offsets_of_others(
        self, partition: int, topic_id_of: Callable[[str], bytes | None]
    ) -> list[tuple[str, list[CommittedOffset]]]: ...

    def remove_offsets(
        self,
        group_id: str,
        partitions: Sequence[tuple[str, int]],
        *,
        topic_id: bytes | None = ...,
    ) -> int: ...


class Groups(Protocol):
    """The coordinator, as it is told of groups that came or went with a partition."""

    def load(self, images: Sequence[GroupImage]) -> None: ...

    def ensure_group(self, group_id: str) -> None: ...

    def unload(self, lost: Callable[[str], bool]) -> object: ...


@dataclass
class _Load:
    partition: int
    replica: Replica
    leader_epoch: int  # in which it is ours
    cancelled: bool = False


class _Unload(NamedTuple):
    partitions: frozenset[int]
    of: int


class _Forget(NamedTuple):
    topic: str
    topic_id: bytes


class _Round(NamedTuple):
    """Loads one behind the other, for one line in the log."""

    began_ms: int
    partitions: int = 0
    groups: int = 0
    offsets: int = 0


class GroupLoader:
    """See the head of this file. `attach`, `start` behind the ready line, `stop`; once each."""

    def __init__(
        self,
        table: Table,
        clock: Clock,
        *,
        buffer_bytes: int,
        topic_id_of: Callable[[str], bytes | None] | None = None,
    ) -> None:
        """`buffer_bytes`: how much of a log is read at once, `offsets.load.buffer.size`.

        `topic_id_of`: the id that a topic has now; None if there is none of that name.
        """
        self._topic_id_of = topic_id_of
        self._table = table
        self._groups: Groups | None = None
        self._clock = clock
        self._buffer_bytes = buffer_bytes
        self._changed = threading.Condition()
        self._jobs: deque[_Load | _Unload | _Forget] = deque()
        self._current: _Load | None = None
        self._late: deque[tuple[int, _Load]] = deque()  # each with when it is looked at again
        self._piece = threading.Lock()
        self._stopping = self._lost = False
        self.thread: Final = OwnThread(THREAD_NAME, self._run, self._given_up)
        self._round: _Round | None = None

    def attach(self, groups: Groups) -> None:
        """Who is told of the groups; before `start`."""
        self._groups = groups

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

    def forget_topic(self, topic: TopicImage) -> None:
        """A topic was deleted: nobody's offsets of it are kept. Where the thread is lost the next
        load does it, after a restart."""
        self._put(_Forget(topic.name, topic.topic_id.bytes))

    def _put(self, job: _Load | _Unload | _Forget) -> bool:
        """False: the thread is lost, and nobody would come to it."""
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
        """Partitions that nobody will load have no coordinator here."""
        with self._changed:
            self._lost = True
            late = [job for _, job in self._late]
            jobs, self._jobs = (self._current, *self._jobs, *late), deque()
        for job in jobs:
            try:
                if isinstance(job, _Load) and not job.cancelled:
                    self._table.close(job.partition)
                elif isinstance(job, _Unload):
                    self._unload(job)
            except BaseException as error:
                self.thread.failures.note("a job of the lost group loader", error)

    def _next(self, *, wait: bool) -> _Load | _Unload | _Forget | None:
        with self._changed:
            self._current = None
            self._take_up_late()
            while wait and not self._jobs and not self._stopping:
                self._clock.wait_until(self._changed, self._late[0][0] if self._late else None)
                self._take_up_late()
            if self._stopping or not self._jobs:
                return None
            job = self._jobs.popleft()
            if isinstance(job, _Load):
                self._current = job
            return job

    def _take_up_late(self) -> None:
        while self._late and self._late[0][0] <= self._clock.monotonic_ns():
            self._jobs.append(self._late.popleft()[1])

    def _work(self, job: _Load | _Unload | _Forget) -> Iterator[None]:
        try:
            groups = self._groups
            if groups is None:
                raise InvariantError("a loader without groups")
            if isinstance(job, _Load):
                yield from self._load(job, groups)
            elif isinstance(job, _Unload):
                self._unload(job)
            else:
                self._forget(job)
        except Exception as error:
            self.thread.failures.note("a job of the group loader", error)

    def _load(self, job: _Load, groups: Groups) -> Iterator[None]:
        if job.replica.leader_epoch < job.leader_epoch and not job.cancelled:
            with self._changed:
                self._late.append((self._clock.monotonic_ns() + LATE_MS * NS_PER_MS, job))
            return
        began_ms = self._clock.monotonic_ms()
        name = f"{OFFSETS_TOPIC}-{job.partition}"
        try:
            found = yield from self._read(job)
            if found is None:
                return
            images = _images(found, name)
            groups.load(images)
            for group_id in self._table.groups(job.partition):
                groups.ensure_group(group_id)
            yield
            with self._piece:
                if job.cancelled:
                    return
                self._table.activate(job.partition)
        except GeneratorExit:
            raise  # nobody goes on with it
        except BaseException as error:
            if isinstance(error, KafkaError) and error.code is ErrorCode.NOT_LEADER_OR_FOLLOWER:
                return  # led elsewhere since a moment ago: who follows that closes it
            # Whatever it is: nobody is to be told for ever that the partition is being loaded.
            if not isinstance(error, KafkaError | OSError):
                self.thread.failures.note("loading groups", error)
            logger.error(
                "%s cannot be read, so its groups have no coordinator here: %s; look at its log"
                " with a dump tool, and restart the broker when it is mended",
                name,
                error,
            )
            with self._piece:
                if not job.cancelled:
                    self._table.close(job.partition)
            if not isinstance(error, Exception):
                raise
            return
        yield
        logger.debug("loaded %s: %d groups", name, len(images))
        self._forget_others(job.partition)
        self._tell_when_done(self._table.statistics(job.partition), began_ms)

    def _unload(self, job: _Unload) -> None:
        partitions, count = job
        if self._groups is not None:
            self._groups.unload(lambda group_id: partition_for(group_id, count) in partitions)

    def _tell_when_done(self, loaded: ShardStatistics, began_ms: int) -> None:
        """One line for partitions that were loaded one after the other."""
        before = self._round or _Round(began_ms)
        self._round = round_ = _Round(
            before.began_ms,
            before.partitions + 1,
            before.groups + loaded.groups,
            before.offsets + loaded.offsets,
        )
        with self._changed:
            more = any(isinstance(job, _Load) for job in self._jobs)
        if not more:
            self._round = None
            logger.info(
                "%s: loaded %d partitions with %d groups and %d offsets in %d ms",
                OFFSETS_TOPIC,
                round_.partitions,
                round_.groups,
                round_.offsets,
                self._clock.monotonic_ms() - round_.began_ms,
            )

    def _read(self, job: _Load) -> Generator[None, None, dict[str, bytes] | None]:
        """Values of the groups' records, the last of each; None if the partition is lost."""
        values: dict[str, bytes] = {}
        offset, end = job.replica.log_start_offset, job.replica.log_end_offset
        while offset < end:
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
                    f"{OFFSETS_TOPIC}-%d: the batch at offset %d cannot be read, so its records are"
                    " left out: %s; its groups have what they wrote before and after it"
                )
                lines.write(logging.WARNING, "unreadable", message, job.partition, base_offset, why)
            for record in loaded.records:
                try:
                    group_id = group_of_key(record.key)
                except RecordError as error:
                    message = "a record of groups is left out at offset %d: %s"
                    lines.write(logging.WARNING, "left out", message, record.offset, str(error))
                    continue
                if group_id is None:
                    continue  # of a kind that this broker does not have
                if record.value is None:
                    values.pop(group_id, None)
                else:
                    values[group_id] = record.value
        return values

    def _forget_others(self, partition: int) -> None:
        """Offsets of topics that were deleted when nobody was there to forget them."""
        if self._topic_id_of is None:
            return
        count = 0
        for group_id, offsets in self._table.offsets_of_others(partition, self._topic_id_of):
            by_topic: dict[bytes | None, list[tuple[str, int]]] = {}
            for each in offsets:
                by_topic.setdefault(each.topic_id, []).append((each.topic, each.partition))
            for topic_id, gone in by_topic.items():
                # Somebody may commit for the topic that has the name now: those stay.
                known = topic_id or NO_TOPIC_ID
                if not self._table.remove_offsets(group_id, gone, topic_id=known):
                    count += len(gone)
        if count:
            logger.info("removed %d offsets of topics that are no more", count)

    def _forget(self, job: _Forget) -> None:
        count = 0
        for group_id, offsets in self._table.of_topic(job.topic):
            gone = [
                (job.topic, each.partition)
                for each in offsets
                if each.topic_id in (None, job.topic_id)
            ]
            code = self._table.remove_offsets(group_id, gone, topic_id=job.topic_id)
            if code == ErrorCode.NONE:
                count += len(gone)
            else:
                lines.write(
                    logging.WARNING,
                    "not forgotten",
                    "offsets of the deleted topic %s stay in group %s: %s",
                    job.topic,
                    group_id,
                    ErrorCode(code).name,
                )
        if count:
            logger.info("removed %d offsets of the deleted topic %s", count, job.topic)


def _images(values: dict[str, bytes], name: str) -> list[GroupImage]:
    images: list[GroupImage] = []
    for group_id, value in values.items():
        try:
            images.append(decode_group(group_id, value))
        except RecordError as error:
            lines.write(logging.WARNING, "left out", "%s: left out: %s", name, str(error))
    return images
