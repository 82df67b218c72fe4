"""Transactions of a broker: nothing of them is imported or kept before a client uses one.

    controller's thread  -> before, follow   the coordinator is made when the image has the state
                                             topic with a replica here; open transactions are
                                             watched when there is such a topic
                            show             C writes records in the format of the published level
    handlers             -> coordinator, create_topic
    handler threads      -> verify           a produce that begins a transaction asks a coordinator

Threads that may not wait for a log have workers append to it (`log/log_workers.py`).

A late import or start may fail, for want of descriptors, memory or threads. A request that meets
it fails, and the next one tries again. On the controller's thread no other event would: it tries
again after TASK_RETRY_MS (`_try_again`), and no topic goes offline for it.

`start` and `stop` come in their steps of the broker's life. A lock is between them and the
controller's thread: what is made after `start` is started at once, after `stop` it is not.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from kbroker.errors import ErrorCode, InvariantError
from kbroker.failures import Failures
from kbroker.limits import TASK_RETRY_MS
from kbroker.metadata.features import TRANSACTION_VERSION, FeatureLevels
from kbroker.metadata.image import TRANSACTIONS_TOPIC, ImageDelta
from kbroker.peer.own_login import own_login
from kbroker.server.sockets import VERIFIES

if TYPE_CHECKING:
    from kbroker.clock import Clock
    from kbroker.cluster.broker_links import BrokerLinks, Submit
    from kbroker.cluster.offsets_verification import OffsetsVerification
    from kbroker.cluster.open_transactions import Figures, Holder, OpenTransactions
    from kbroker.cluster.transaction_adds import AddedTransaction, Done, TransactionAdds, Verdict
    from kbroker.cluster.transactions import Parts, Results, Transactions
    from kbroker.config import BrokerConfig
    from kbroker.coordinator.runtime.machine import LogListener
    from kbroker.coordinator.runtime.state_topic import StateTopicCreation
    from kbroker.coordinator.txn.coordinator import TransactionCoordinator
    from kbroker.engine._hot import HotPath
    from kbroker.engine._transactions import HotTransactions
    from kbroker.handlers.services import Services
    from kbroker.log.log_workers import LogWorkers
    from kbroker.metadata.controller import Controller
    from kbroker.metadata.image import ClusterImage, TopicImage
    from kbroker.own_thread import OwnThread
    from kbroker.protocol.messages import write_txn_markers
    from kbroker.purgatory.timer import CallLater
    from kbroker.scheduler import Scheduler
    from kbroker.security.client_login import ClientLogin
    from kbroker.types import TopicPartition


WATCH_TASK: Final = "open-transactions"


class Given(NamedTuple):
    """What the broker has for it; what is called for is there once handlers run."""

    config: Callable[[], BrokerConfig]
    clock: Clock
    call_later: CallLater
    replica_of: Callable[[str, int], Any]
    listener: LogListener
    controller: Callable[[], Controller]
    services: Callable[[], Services | None]
    submit: Submit
    scheduler: Scheduler
    links: BrokerLinks | None  # None: this broker is alone
    hot: HotPath | None = None  # None: Python serves all of it


def value_version_in(image: ClusterImage) -> int:
    """Of the records of `__transaction_state` that are written with this image."""
    from kbroker.coordinator.txn.records import value_version

    return value_version(image.features.level(TRANSACTION_VERSION))


class TransactionsOnDemand:
    """See the head of this file."""

    def __init__(self, given: Given) -> None:
        self._given = given
        self._node_id = given.config().node_id
        self.failures: Final = Failures("transactions")
        self._lock = threading.Lock()
        self._made: Transactions | None = None
        self._adds: TransactionAdds | None = None
        self._offsets: OffsetsVerification | None = None
        self._watched: OpenTransactions | None = None
        self._in_c: HotTransactions | None = None
        self._is_started = self._is_stopped = False
        # Of the controller's thread: what is made follows images; what failed is tried again soon.
        self._follows = self._tries_again = False
        self._creation: StateTopicCreation | None = None
        self._workers: LogWorkers | None = None

    def _login(self) -> ClientLogin | None:
        return own_login(self._given.config())

    def _image(self) -> ClusterImage:
        return self._given.controller().image

    # --- handlers ---------------------------------------------------------------------------------

    @property
    def coordinator(self) -> TransactionCoordinator | None:
        made = self._made
        return None if made is None else made.coordinator

    def create_topic(self, controller: Any, config: BrokerConfig, brokers: int) -> None:
        from kbroker.coordinator.txn.state_topic import creation

        with self._lock:
            if self._creation is None:
                self._creation = creation()
        self._creation.ensure(controller, config, brokers)

    def verify(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: Sequence[TopicPartition],
        *,
        adds: bool,
        done: Done,
    ) -> None:
        """As `TransactionAdds.verify`."""
        with self._lock:
            if self._adds is None:
                self._adds = self._make_adds()
        self._adds.verify(
            transactional_id, producer_id, producer_epoch, partitions, adds=adds, done=done
        )

    def verify_offsets(
        self,
        partition: int,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        version: int,
        done: Callable[[ErrorCode, int], None],
    ) -> None:
        """As `OffsetsVerification`."""
        with self._lock:
            if self._offsets is None:
                self._offsets = self._make_offsets()
        self._offsets(partition, transactional_id, producer_id, producer_epoch, version, done)

    def _make_offsets(self) -> OffsetsVerification:
        from kbroker.cluster.offsets_verification import OffsetsVerification

        given = self._given
        self._workers_locked()
        return OffsetsVerification(
            given.replica_of, self.verify, lambda: given.config()[VERIFIES], self.on_worker
        )

    def _make_adds(self) -> TransactionAdds:
        from kbroker.cluster.transaction_adds import RETRY_BACKOFF_MS, RETRY_MAX_MS, TransactionAdds
        from kbroker.cluster.transaction_coordinators import TransactionCoordinators
        from kbroker.coordinator.runtime._shard_table import partition_for

        given = self._given
        self._workers_locked()
        coordinators = TransactionCoordinators(
            self._node_id, self._image, partition_for, given.submit, self._own, self.failures,
            on_worker=self.on_worker, login=self._login,
        )  # fmt: skip
        return TransactionAdds(
            coordinators,
            given.clock,
            self.failures,
            lambda: given.config()[RETRY_BACKOFF_MS],
            lambda: given.config()[RETRY_MAX_MS],
        )

    def _own(
        self,
        transactions: Sequence[AddedTransaction],
        *,
        done: Callable[[Mapping[str, Verdict]], None],
    ) -> None:
        """This broker's coordinator is asked without a socket."""
        from kbroker.coordinator.txn.own_requests import ask

        image = self._image()
        ask(
            self.coordinator, transactions, done, self.failures,
            lambda place: image.partition(*place) is not None,
        )  # fmt: skip

    # --- the controller's thread ------------------------------------------------------------------

    def before(self, delta: ImageDelta) -> None:
        if self._made is not None:
            self._made.before(delta)

    def follow(self, image: ClusterImage, delta: ImageDelta) -> None:
        if self._made is not None and self._follows:
            self._made.follow(image, delta)
        self._begin(image)

    def _begin(self, image: ClusterImage) -> None:
        """What this image needs, and is not there yet."""
        topic = image.topic(TRANSACTIONS_TOPIC)
        if topic is None:
            return
        try:
            if not self._follows and self._is_here(topic):
                made = self._made or self._make()
                # Where it failed before, the topic came with an earlier image.
                made.follow(image, ImageDelta(created=(topic,)))
                self._follows = True
            if self._watched is None:
                self._watch()
            if self._made is not None and self._in_c is None and self._given.hot is not None:
                self._make_hot(self._made, self._given.hot)
        except Exception as error:
            self.failures.note("beginning to serve transactions", error)
            if not self._tries_again:
                self._tries_again = True
                in_step = partial(self._given.controller().in_step, self._try_again)
                self._given.call_later(TASK_RETRY_MS, in_step)

    def _try_again(self) -> None:
        self._tries_again = False
        self._begin(self._image())

    def show(self, image: ClusterImage) -> None:
        """This is the published image now. A feature's level changes without a topic."""
        if self._in_c is not None:
            self._in_c.follow_version(value_version_in(image))

    def _watch(self) -> None:
        from kbroker.server.watched_transactions import watched

        with self._lock:
            made = watched(self._given, lambda: self.coordinator, self._services)
            if self._is_started and not self._is_stopped:
                self._schedule_watch(made)
            self._watched = made

    def _schedule_watch(self, watched: OpenTransactions) -> None:
        from kbroker.cluster.open_transactions import LOOK_PERIOD_MS

        self._given.scheduler.schedule(WATCH_TASK, watched.look, LOOK_PERIOD_MS)

    @property
    def made(self) -> Transactions | None:
        """None: this broker has coordinated nothing yet."""
        return self._made

    def figures(self) -> Figures | None:
        """Of open transactions; None: there has been none."""
        return None if self._watched is None else self._watched.figures()

    def holders(self) -> list[Holder]:
        return [] if self._watched is None else self._watched.holders()

    def _is_here(self, topic: TopicImage) -> bool:
        return any(self._node_id in each.replicas for each in topic.partitions)

    def _make(self) -> Transactions:
        from kbroker.cluster.transactions import Transactions

        with self._lock:
            self._workers_locked()
            made = Transactions(self._parts())
            if self._is_started and not self._is_stopped:
                made.start(self._given.scheduler)
            self._made = made
        return made

    def _make_hot(self, made: Transactions, hot: HotPath) -> None:
        """What is plainly right is served without Python; until then Python serves all of it."""
        from kbroker.coordinator.txn.image import LIMITS
        from kbroker.engine._transactions import HotTransactions

        version = value_version_in(self._image())
        self._in_c = HotTransactions(
            hot, made.table, made.ids, epoch_max=LIMITS.epoch_max, value_version=version
        )

    def _parts(self) -> Parts:
        from kbroker.cluster.given_producer_ids import GivenProducerIds
        from kbroker.cluster.marker_links import MarkerLinks
        from kbroker.cluster.transactions import Parts

        given = self._given
        levels = FeatureLevels(self._image)
        return Parts(
            given.config,
            given.clock,
            given.call_later,
            lambda call: given.controller().in_step(call),
            given.replica_of,
            self._image,
            given.listener,
            GivenProducerIds(given.controller, given.links).generate,
            lambda: levels.level(TRANSACTION_VERSION),
            self.write_markers,
            self.failures,
            None
            if given.links is None
            else MarkerLinks(self._image, given.submit, self.failures, login=self._login),
            self.on_worker,
        )

    def on_worker(
        self, place: TopicPartition, call: Callable[[], object], *, of_group: bool = False
    ) -> None:
        """Have it done by a thread that may wait for this partition's log. As of `LogWorkers.put`.
        Any thread."""
        with self._lock:
            if self._is_stopped:
                return
            workers = self._workers_locked()
        workers.put(place, call, of_group=of_group)

    def _workers_locked(self) -> LogWorkers:
        """Made with those that need them: a loop or a timer that could not have them would lose
        what it is at. They have no thread yet."""
        if self._workers is None:
            self._workers = self._make_workers()
        return self._workers

    def _make_workers(self) -> LogWorkers:
        from kbroker.log.log_workers import LogWorkers

        def path_of(place: TopicPartition) -> Path | None:
            replica = self._given.replica_of(*place)
            return None if replica is None else replica.log.path

        given = self._given
        return LogWorkers(path_of, given.clock, self.failures, call_later=given.call_later)

    def write_markers(
        self, markers: Sequence[write_txn_markers.Marker], done: Callable[[Results], None]
    ) -> None:
        """To partitions that this broker leads."""
        from kbroker.handlers.write_txn_markers import write_markers

        write_markers(self._services(), markers, done)

    def _services(self) -> Services:
        services = self._given.services()
        if services is None:
            raise InvariantError("the handlers are not there")
        return services

    # --- the broker's life ------------------------------------------------------------------------

    def start(self) -> None:
        """May be called again where it has failed."""
        with self._lock:
            if self._made is not None and not self._is_started:
                self._made.start(self._given.scheduler)
            self._is_started = True
            if self._watched is not None:
                self._schedule_watch(self._watched)

    def stop(self) -> None:
        with self._lock:
            self._is_stopped = True
            made, workers = self._made, self._workers
        if made is not None:
            made.stop()  # which waits for a thread, perhaps one that has a callback for us
        if workers is not None:
            workers.stop()

    @property
    def threads(self) -> Iterator[OwnThread]:
        """Of the loader and the workers, if there are any."""
        if self._made is not None:
            yield self._made.loader.thread
        if self._workers is not None:
            yield from self._workers.threads
