"""The transaction coordinator of one broker, put together, and its markers' way to partitions.

    controller's thread  -> before, follow   which partitions of __transaction_state are here
    after the ready line -> start            load them; look for timeouts and unused ids

`Transactions` is imported and made when a first partition of the state topic is this broker's: a
broker that no transactional producer uses has none of it. `TransactionsOnDemand`
(`server/transactions.py`) sees to that. Markers of partitions that this broker leads are appended
without a socket, the others go out as WriteTxnMarkers (`marker_links.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from kbroker.cluster.marker_links import as_message
from kbroker.cluster.transaction_markers import Marker, TransactionMarkers
from kbroker.coordinator.runtime._shard_table import ShardTable
from kbroker.coordinator.runtime.loader import Loader
from kbroker.coordinator.txn._ids import TransactionalIds
from kbroker.coordinator.txn.coordinator import TransactionCoordinator
from kbroker.coordinator.txn.machine import TransactionMachine
from kbroker.coordinator.txn.seams import RETRY_MS, at_once
from kbroker.coordinator.txn.store import TransactionStore
from kbroker.metadata.image import TRANSACTIONS_TOPIC
from kbroker.types import TopicPartition

if TYPE_CHECKING:
    from kbroker.clock import Clock
    from kbroker.cluster.transaction_markers import Transport
    from kbroker.config import BrokerConfig
    from kbroker.coordinator.runtime.machine import LogListener
    from kbroker.coordinator.txn.seams import Generate, MarkerOrder, OnWorker
    from kbroker.errors import ErrorCode
    from kbroker.failures import Failures
    from kbroker.metadata.image import ClusterImage, ImageDelta
    from kbroker.protocol.messages import write_txn_markers
    from kbroker.purgatory.timer import CallLater
    from kbroker.scheduler import Scheduler

TIMEOUTS_TASK: Final = "transaction-timeouts"
EXPIRY_TASK: Final = "transactional-id-expiry"
# Before a partition whose write hangs is looked at again.
LATE_PAUSE_MS: Final = 100

Results = Mapping[int, Mapping[TopicPartition, "ErrorCode"]]
# As handlers/write_txn_markers.py does.
WriteMarkers = Callable[["Sequence[write_txn_markers.Marker]", Callable[[Results], None]], None]


class Parts(NamedTuple):
    """What the broker gives."""

    config: Callable[[], BrokerConfig]
    clock: Clock
    call_later: CallLater
    in_step: Callable[[Callable[[], None]], None]  # on the controller's thread
    replica_of: Callable[[str, int], Any]
    image: Callable[[], ClusterImage]
    listener: LogListener
    generate: Generate
    level: Callable[[], int]  # of transaction.version
    write_markers: WriteMarkers  # here
    failures: Failures
    transport: Transport | None = None  # None: there are no other brokers
    on_worker: OnWorker = at_once


class Transactions:
    """See the head of this file. Build on the controller's thread; `start` once, `stop` once."""

    def __init__(self, parts: Parts, make_loader: Callable[..., Loader] = Loader) -> None:
        settings = parts.config()
        self._parts = parts
        self.ids: Final = TransactionalIds()
        self.table: Final = ShardTable(parts.listener, any_size=True, base_sequence=-1)
        self.machine: Final = TransactionMachine(self.table, self._when_published)
        self.loader: Final = make_loader(
            self.table,
            self.machine,
            parts.clock,
            buffer_bytes=settings["transaction.state.log.load.buffer.size"],
        )
        self.store: Final = TransactionStore(
            self.table,
            self.loader,
            parts.replica_of,
            settings.node_id,
            parts.level,
            lambda call: parts.call_later(LATE_PAUSE_MS, lambda: parts.in_step(call)),
        )
        self.markers: Final = TransactionMarkers(
            settings.node_id,
            parts.image,
            self._write_here,
            parts.transport,
            parts.call_later,
            parts.failures,
            parts.on_worker,
        )
        self.coordinator: Final = TransactionCoordinator(
            parts.config,
            parts.clock,
            parts.call_later,
            self.store,
            self.markers,
            parts.generate,
            parts.level,
            failures=parts.failures,
            on_worker=parts.on_worker,
            ids=self.ids,
        )
        self.machine.attach(self.coordinator)

    def _when_published(self, partition: int, call: Callable[[], object]) -> None:
        """Have it done when the image is published in which a partition of the state topic is ours:
        a topic of a transaction may be new in it, too."""
        place = TopicPartition(TRANSACTIONS_TOPIC, partition)

        def begin() -> None:
            try:
                self._parts.on_worker(place, call)
            except Exception as error:  # no other call completes them
                self._parts.failures.note("completing outcomes that were loaded", error)
                self._parts.call_later(RETRY_MS, begin)

        self._parts.in_step(begin)

    def _write_here(
        self, order: MarkerOrder, place: TopicPartition, done: Callable[[ErrorCode], None]
    ) -> None:
        marker = as_message(Marker(order, (place,)))
        self._parts.write_markers([marker], lambda results: done(results[order.producer_id][place]))

    def before(self, delta: ImageDelta) -> None:
        """On the controller's thread, when the logs are about to follow."""
        self.store.before(delta)

    def follow(self, image: ClusterImage, delta: ImageDelta) -> None:
        """On the controller's thread, when the logs of the image are open."""
        self.store.follow(image, delta)

    def start(self, scheduler: Scheduler) -> None:
        self.loader.start()
        settings = self._parts.config()
        for name, work, key in (
            (
                TIMEOUTS_TASK,
                self.coordinator.abort_timed_out,
                "transaction.abort.timed.out.transaction.cleanup.interval.ms",
            ),
            (
                EXPIRY_TASK,
                self.coordinator.expire,
                "transaction.remove.expired.transaction.cleanup.interval.ms",
            ),
        ):
            period_ms = settings[key]
            scheduler.schedule(name, work, period_ms, delay_ms=period_ms)

    def stop(self) -> None:
        self.coordinator.close()
        self.loader.stop()
