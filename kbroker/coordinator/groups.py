"""The group coordinator of one broker, put together: table, store, loader, coordinator, expiry.

    controller's thread  -> before, follow    which partitions of __consumer_offsets are ours
    after the ready line -> start    load what is in them; look for expired offsets now and then

The parts know each other by protocols only (`coordinator/group/seams.py`); this is where they meet.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Final, Protocol

from kbroker.coordinator.group._groups import GroupTable
from kbroker.coordinator.group._hot_beats import HotBeats
from kbroker.coordinator.group.coordinator import GroupCoordinator
from kbroker.coordinator.group.expiration import OffsetExpiration
from kbroker.coordinator.group.machine import GroupMachine
from kbroker.coordinator.group.store import OffsetsStore
from kbroker.coordinator.runtime._shard_table import partition_for
from kbroker.coordinator.runtime.loader import Loader
from kbroker.errors import InvariantError
from kbroker.metadata.image import OFFSETS_TOPIC, ClusterImage
from kbroker.types import TopicPartition

if TYPE_CHECKING:
    from kbroker.clock import Clock
    from kbroker.config import BrokerConfig
    from kbroker.coordinator.consumer_group.beside import Beside
    from kbroker.coordinator.consumer_group.coordinator import ConsumerGroups
    from kbroker.coordinator.runtime.machine import LogListener
    from kbroker.coordinator.share.seams import Persister
    from kbroker.coordinator.share_group.coordinator import ShareGroups
    from kbroker.coordinator.streams_group.coordinator import StreamsGroups
    from kbroker.metadata.image import ImageDelta
    from kbroker.own_thread import OwnThread
    from kbroker.purgatory.timer import CallLater
    from kbroker.replica._replica import Replica
    from kbroker.scheduler import Scheduler

EXPIRY_TASK: Final = "offset-expiry"
# Before what hangs is looked at again.
LATE_PAUSE_MS: Final = 100
_NO_IMAGE: Final = ClusterImage()


class ForShareGroups(Protocol):
    """What share groups have of the broker."""

    @property
    def persister(self) -> Persister: ...

    def on_worker(self, place: TopicPartition, call: Callable[[], object]) -> object:
        """Have a group's step done by a thread that may wait for the log of this partition."""
        ...


class _NoShare:
    @property
    def persister(self) -> Persister:
        raise InvariantError("there is nothing for share groups")

    def on_worker(self, place: TopicPartition, call: Callable[[], object]) -> None:
        call()


class Timer(Protocol):
    @property
    def call_later(self) -> CallLater: ...


class Groups:
    """Build with the broker, `start` after the ready line, `stop` before the logs are closed."""

    def __init__(
        self,
        config: Callable[[], BrokerConfig],
        clock: Clock,
        timer: Timer,
        replica_of: Callable[[str, int], Replica | None],
        listener: LogListener,
        make_loader: Callable[..., Loader] = Loader,
        in_step: Callable[[Callable[[], None]], None] = lambda call: call(),
        beside: Callable[[Callable[[], object]], bool] | None = None,
        share: Callable[[], ForShareGroups] = _NoShare,
    ) -> None:
        """`config` gives the settings as they are now, `replica_of` a partition's replica here.
        `listener`: of appends for the groups. `in_step` has something done on the
        controller's thread, `beside` on none that serves requests; None: on one of ours."""
        settings = config()
        self._config = config
        self._image: ClusterImage | None = None
        self.table: Final = GroupTable(
            listener,
            write_timeout_ms=settings["offsets.commit.timeout.ms"],
            metadata_bytes_max=settings["offset.metadata.max.bytes"],
        )
        self._beats: Final = HotBeats(self.table)
        self._machine: Final = GroupMachine(self.table, self._topic_id)
        self.loader: Final = make_loader(
            self.table, self._machine, clock, buffer_bytes=settings["offsets.load.buffer.size"]
        )
        self.store: Final = OffsetsStore(
            self.table,
            self.loader,
            replica_of,
            settings.node_id,
            lambda call: timer.call_later(LATE_PAUSE_MS, lambda: in_step(call)),
        )
        self.coordinator: Final = GroupCoordinator(
            config, clock, timer.call_later, self.store, self.table, on_worker=self._on_worker
        )
        self._on_demand = threading.Lock()
        self._consumer_groups: ConsumerGroups | None = None
        self._share_groups: ShareGroups | None = None
        self._share_assignments: Beside | None = None
        self._streams_groups: StreamsGroups | None = None
        self._share = share
        self._clock, self._timer, self._beside = clock, timer, beside
        self._machine.attach(
            self.coordinator,
            lambda: self.consumer_groups().replay(),
            lambda: self.share_groups().replay(),
            lambda: self.streams_groups().replay(),
        )
        self.expiration: Final = OffsetExpiration(
            self.table, self.coordinator, clock, config, self.coordinator.failures
        )

    def before(self, delta: ImageDelta) -> None:
        """On the controller's thread, when the logs are about to follow."""
        self.store.before(delta)

    def follow(self, image: ClusterImage, delta: ImageDelta) -> None:
        """On the controller's thread, when the logs of the image are open."""
        self.show(image)
        self.store.follow(image, delta)

    def marker_written(
        self, partition: int, producer_id: int, committed: bool, offset: int
    ) -> None:
        """A marker is in the log of this partition of __consumer_offsets. Any thread."""
        if committed:
            self._machine.marker_comes(partition, producer_id)
        for group_id in self.table.marker_written(partition, producer_id, committed, offset):
            self.coordinator.ensure_group(group_id)

    def show(self, image: ClusterImage) -> None:
        """This is published now; what follows from it, settings too, is there already."""
        self._image = image
        self._beats.image_shown()

    def consumer_groups(self) -> ConsumerGroups:
        """Made at the first call: a broker without such groups has nothing of them."""
        with self._on_demand:
            if self._consumer_groups is None:
                from kbroker.coordinator.consumer_group.coordinator import ConsumerGroups

                self._consumer_groups = ConsumerGroups(
                    self._config, self._clock, self._timer.call_later, self.store, self.table,
                    self.coordinator, self._now, self._beats, self._beside, self._on_worker,
                )  # fmt: skip
            return self._consumer_groups

    def share_groups(self) -> ShareGroups:
        """Made at the first call. They see the topics as consumer groups, and compute beside on a
        thread of their own."""
        consumer_groups = self.consumer_groups()
        with self._on_demand:
            if self._share_groups is None:
                from kbroker.coordinator.consumer_group.beside import Beside
                from kbroker.coordinator.share_group.coordinator import ShareGroups

                self._share_assignments = Beside("kbroker-share-assignments")
                self._share_groups = ShareGroups(
                    self._config, self._clock, self._timer.call_later, self.store, self.table,
                    self.coordinator, self._now, consumer_groups.seen_topics,
                    self._beside or self._share_assignments.submit,
                    lambda: self._share().persister, self._on_worker,
                )  # fmt: skip
            return self._share_groups

    def _on_worker(self, group_id: str, call: Callable[[], object]) -> None:
        """Have it done by a thread that may wait for the log of this group."""
        count = self.table.partition_count
        index = partition_for(group_id, count) if count else 0
        try:
            self._share().on_worker(TopicPartition(OFFSETS_TOPIC, index), call)
        except (
            RuntimeError,
            MemoryError,
        ) as error:  # no thread could begin; a timer would never end
            self.coordinator.failures.note("a worker for groups", error)
            again = partial(self._on_worker, group_id, call)
            self._timer.call_later(LATE_PAUSE_MS, again)

    def streams_groups(self) -> StreamsGroups:
        """Made at the first call. They see the topics, and compute beside, as consumer groups."""
        consumer_groups = self.consumer_groups()
        with self._on_demand:
            if self._streams_groups is None:
                from kbroker.coordinator.streams_group.coordinator import StreamsGroups

                self._streams_groups = StreamsGroups(
                    self._config, self._clock, self._timer.call_later, self.store, self.table,
                    self.coordinator, self._now, consumer_groups.seen_topics,
                    consumer_groups.beside, self._on_worker,
                )  # fmt: skip
            return self._streams_groups

    def _now(self) -> ClusterImage:
        return _NO_IMAGE if self._image is None else self._image

    @property
    def threads(self) -> Iterator[OwnThread]:
        yield self.loader.thread
        if self._consumer_groups is not None:
            yield self._consumer_groups.thread
        if self._share_assignments is not None:
            yield self._share_assignments.thread

    def _topic_id(self, name: str) -> bytes | None:
        topic = None if self._image is None else self._image.topic(name)
        return None if topic is None else topic.topic_id.bytes

    def start(self, scheduler: Scheduler) -> None:
        self.loader.start()
        period_ms = self._config()["offsets.retention.check.interval.ms"]
        scheduler.schedule(EXPIRY_TASK, self.expiration.run, period_ms, delay_ms=period_ms)

    def stop(self) -> None:
        """Requests that wait in groups are answered while there is a network to answer on."""
        self.coordinator.close()
        self.loader.stop()
        if self._consumer_groups is not None:
            self._consumer_groups.stop()
        if self._share_assignments is not None:
            self._share_assignments.stop()
