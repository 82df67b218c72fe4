"""The share coordinator of one broker, put together.

    controller's thread  -> before, follow   which partitions of __share_group_state are here
    after the ready line -> start            load them; prune them, and renew cold states

`ShareStates` is imported and made when a first partition of the state topic is this broker's
(`server/share_groups.py`): a broker that no share group uses has none of it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from kbroker.coordinator.runtime._shard_table import ShardTable
from kbroker.coordinator.runtime.loader import Loader
from kbroker.coordinator.share.coordinator import ShareCoordinator
from kbroker.coordinator.share.machine import ShareStateMachine
from kbroker.coordinator.share.store import ShareStateStore
from kbroker.metadata.image import SHARE_STATE_TOPIC
from kbroker.types import TopicPartition

if TYPE_CHECKING:
    from uuid import UUID

    from kbroker.clock import Clock
    from kbroker.config import BrokerConfig
    from kbroker.coordinator.runtime.machine import LogListener
    from kbroker.failures import Failures
    from kbroker.metadata.image import ClusterImage, ImageDelta
    from kbroker.purgatory.timer import CallLater
    from kbroker.scheduler import Scheduler

PRUNE_TASK: Final = "share-state-prune"
COLD_TASK: Final = "share-state-snapshots"
# Before a partition whose write hangs is looked at again.
LATE_PAUSE_MS: Final = 100
# Before a worker that could not begin is begun again.
WORKER_AGAIN_MS: Final = 100


class Parts(NamedTuple):
    """What the broker gives."""

    config: Callable[[], BrokerConfig]
    clock: Clock
    call_later: CallLater
    in_step: Callable[[Callable[[], None]], None]  # on the controller's thread
    replica_of: Callable[[str, int], Any]
    listener: LogListener
    # Has it done by a thread that may wait for the log of this partition.
    on_worker: Callable[[TopicPartition, Callable[[], object]], object]
    delete_records: Callable[[TopicPartition, int], object]
    failures: Failures


class ShareStates:
    """See the head of this file. Build on the controller's thread; `start` once, `stop` once."""

    def __init__(
        self, parts: Parts, image: ClusterImage, make_loader: Callable[..., Loader] = Loader
    ) -> None:
        settings = parts.config()
        self._parts = parts
        self._image = image
        self.table: Final = ShardTable(
            # A snapshot may be larger than max.message.bytes; refused, it would be so for ever.
            parts.listener,
            write_timeout_ms=settings["share.coordinator.write.timeout.ms"],
            any_size=True,
        )
        self.machine: Final = ShareStateMachine(self.table, self._when_published)
        self.loader: Final = make_loader(
            self.table,
            self.machine,
            parts.clock,
            buffer_bytes=settings["share.coordinator.load.buffer.size"],
        )
        self.store: Final = ShareStateStore(
            self.table,
            self.loader,
            parts.replica_of,
            settings.node_id,
            lambda call: parts.call_later(LATE_PAUSE_MS, lambda: parts.in_step(call)),
            parts.delete_records,
        )
        self.coordinator: Final = ShareCoordinator(
            parts.config, parts.clock, self.store, self._exists, self._on_worker, parts.failures
        )
        self.machine.attach(self.coordinator)

    def _exists(self, topic_id: UUID, partition: int) -> bool:
        image = self._image
        name = image.topic_ids.get(topic_id)
        return name is not None and image.partition(name, partition) is not None

    def _on_worker(self, partition: int, call: Callable[[], object]) -> None:
        self._parts.on_worker(TopicPartition(SHARE_STATE_TOPIC, partition), call)

    def _when_published(self, partition: int, call: Callable[[], object]) -> None:
        """Have it done when the image is published in which a partition of the state topic is ours:
        a topic may be new in it, too."""

        def begin() -> None:
            try:
                self._on_worker(partition, call)
            except Exception as error:  # no other call forgets what was deleted before
                self._parts.failures.note("looking for states of deleted topics", error)
                self._parts.call_later(WORKER_AGAIN_MS, begin)

        self._parts.in_step(begin)

    def before(self, delta: ImageDelta) -> None:
        """On the controller's thread, when the logs are about to follow."""
        self.store.before(delta)

    def follow(self, image: ClusterImage, delta: ImageDelta) -> None:
        """On the controller's thread, when the logs of the image are open."""
        self._image = image
        self.store.follow(image, delta)

    def show(self, image: ClusterImage) -> None:
        """This is published now."""
        self._image = image

    def start(self, scheduler: Scheduler) -> None:
        self.loader.start()
        settings = self._parts.config()
        for name, work, key in (
            (
                PRUNE_TASK,
                self.coordinator.prune,
                "share.coordinator.state.topic.prune.interval.ms",
            ),
            (
                COLD_TASK,
                self.coordinator.renew_cold,
                "share.coordinator.cold.partition.snapshot.interval.ms",
            ),
        ):
            period_ms = settings[key]
            scheduler.schedule(name, work, period_ms, delay_ms=period_ms)

    def stop(self) -> None:
        self.loader.stop()
