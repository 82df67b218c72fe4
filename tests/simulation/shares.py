"""Share groups of a simulated broker: the real share coordinator, share-partitions and persister.

As `ShareGroupsOnDemand` composes them, with the loader's pieces, timers and workers on the loop,
and other brokers over the simulated network. A share-partition waits for records in the real
compiled parking (`waits.py`). What is handed to a handler, or to a worker of a log, is done a
moment later, or much later, so that everything else may happen before it.

Locks are shorter than a real group may have, and its window is smaller.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from kbroker.cluster.share_coordinators import ShareCoordinators
from kbroker.cluster.share_state import Parts, ShareStates
from kbroker.config.share_settings import EARLIEST, LATEST, ShareGroupSettings
from kbroker.coordinator.runtime._shard_table import partition_for
from kbroker.coordinator.runtime.loader import Loader
from kbroker.coordinator.share.images import NO_COUNT, SharePartition, StateBatch
from kbroker.coordinator.share.persister import StatePersister
from kbroker.coordinator.share.seams import Outcome, ReadState
from kbroker.errors import ErrorCode
from kbroker.metadata.image import SHARE_STATE_TOPIC, ClusterImage, ImageDelta, TopicImage
from kbroker.purgatory.purgatory import Purgatory
from kbroker.server.share_groups import Given, ShareGroupsOnDemand
from kbroker.server.share_service import ShareServiceOnDemand
from kbroker.types import TopicPartition
from tests.simulation.group_parts import SteppedLoader
from tests.simulation.loop import BACKGROUND, HANDLER
from tests.simulation.stepped_timer import SteppedTimer
from tests.simulation.transactions import Peers, Tasks

if TYPE_CHECKING:
    from tests.simulation.broker import Running
    from tests.simulation.waits import Watched

LOCK_MS = 400
DELIVERIES = 3
WINDOW = 5
# Groups, by the settings that they differ in: the reset, and whether they read committed records.
GROUPS = {"s1": (EARLIEST, False), "s2": (LATEST, True)}
# The end of a session so soon after a fetch is not counted.
SHORT_MS = {"s1": 0, "s2": 200}
# Until a handler, or a worker, is free.
SOON_MS = (0, 0, 0, 0, 0, 0, 1, 10, 100)
# Brokers' settings in simulated time, as those in `cluster.py`.
SHARE_SETTINGS = {
    "group.share.min.session.timeout.ms": "500",
    "group.share.session.timeout.ms": "700",
    "group.share.min.heartbeat.interval.ms": "50",
    "group.share.heartbeat.interval.ms": "100",
    "group.share.assignment.interval.ms": "50",
    # Longer than a persister tries: a state that is begun twice is begun again.
    "group.share.initialize.retry.interval.ms": "16000",
    "share.coordinator.write.timeout.ms": "800",
    "share.coordinator.load.buffer.size": "400",
    "share.coordinator.snapshot.update.records.per.snapshot": "5",
    "share.coordinator.cold.partition.snapshot.interval.ms": "600",
    "share.coordinator.state.topic.prune.interval.ms": "250",
}


class _Persister(StatePersister):
    """The states that it reads are compared with the log, and writes that fail are noted."""

    own: Running

    def read(
        self, key: SharePartition, leader_epoch: int, done: Callable[[ReadState], object]
    ) -> None:
        ledger = self.own.cluster.share_ledger
        known = ledger.known(key)

        def ended(kept: ReadState) -> None:
            ledger.has_read(key, known, kept)
            self.own.cluster.fault_points.happens("share state read", self.own.node_id)
            done(kept)

        super().read(key, leader_epoch, ended)

    def write(
        self, key: SharePartition, state_epoch: int, leader_epoch: int, start_offset: int,
        batches: Sequence[StateBatch], done: Callable[[Outcome], object],
        *, delivery_complete_count: int = NO_COUNT,
    ) -> None:  # fmt: skip
        ledger = self.own.cluster.share_ledger

        def ended(outcome: Outcome) -> None:
            if outcome.code is not ErrorCode.NONE:
                ledger.is_not_written(key, batches)
            done(outcome)

        super().write(
            key, state_epoch, leader_epoch, start_offset, batches, ended,
            delivery_complete_count=delivery_complete_count,
        )  # fmt: skip


class _Hot:
    """The part of `HotShares` that a share service uses."""

    def __init__(self, own: Running, later: Callable[[Callable[[], object], str], None]) -> None:
        self._own = own
        self._later = later

    def await_records(self, replica: Any, *how: Any) -> Watched:
        return self._own.produces.await_records(replica, *how)

    def await_end(
        self, request: Any, sends_no_more: bool, done: Callable[[ErrorCode], object]
    ) -> None:
        self._own.connections.await_end(
            request.connection_id, sends_no_more, lambda: done(ErrorCode.NONE)
        )

    def call_soon(self, done: Callable[[ErrorCode], object]) -> None:
        self._later(lambda: done(ErrorCode.NONE), HANDLER)


class _Service(ShareServiceOnDemand):
    make_hot: Callable[[], Any]

    def _hot_shares(self) -> Any:
        return self.make_hot()

    def settings(self, group_id: str) -> ShareGroupSettings:
        reset, is_committed = GROUPS[group_id]
        short_ms = SHORT_MS[group_id]
        return ShareGroupSettings(LOCK_MS, DELIVERIES, WINDOW, True, is_committed, reset, short_ms)


class Connections:
    """Of clients with share sessions, at one start of a broker."""

    def __init__(self) -> None:
        self._ended: set[str] = set()
        self._requests: Counter[str] = Counter()  # that are not answered
        # By the connection, and whether they wait for no more than its client's last request.
        self._waits: dict[tuple[str, bool], list[Callable[[], object]]] = {}

    def await_end(self, connection: str, sends_no_more: bool, done: Callable[[], object]) -> None:
        if sends_no_more and connection in self._ended:
            done()
        else:
            self._waits.setdefault((connection, sends_no_more), []).append(done)

    def begins(self, connection: str) -> None:
        self._requests[connection] += 1

    def has_answered(self, connection: str) -> None:
        self._requests[connection] -= 1
        self._end_waits(connection)

    def end(self, connection: str) -> None:
        self._ended.add(connection)
        for done in self._waits.pop((connection, True), ()):
            done()
        self._end_waits(connection)

    def _end_waits(self, connection: str) -> None:
        if connection in self._ended and not self._requests[connection]:
            for done in self._waits.pop((connection, False), ()):
                done()

    def is_open(self, connection: str) -> bool:
        return connection not in self._ended


class BrokerShares(ShareGroupsOnDemand):
    """See the head of this file."""

    def __init__(self, own: Running) -> None:
        self._running = own
        self._dice = random.Random(f"shares {own.node_id} {own.clock.monotonic_ns()}")
        self.timer = SteppedTimer(own.process, own.clock)
        waiting = Purgatory("ShareFetch", self.timer)
        nothing: Any = None
        services, scheduler, hot = own, Tasks(own.process), nothing
        super().__init__(
            Given(
                lambda: own.broker.config,
                own.clock,
                self.timer,
                lambda: own.replicas,
                hot,
                lambda: own.controller,
                lambda: services,  # type: ignore[arg-type, return-value]
                own.transactions.submit,
                scheduler,  # type: ignore[arg-type]
                self._on_worker,
                waiting,
            )
        )
        made = _Service(
            lambda: own.broker.config, own.clock, self.timer, hot, self._image,
            lambda: self.persister, self.failures, waiting,
        )  # fmt: skip
        made.make_hot = lambda: _Hot(own, self._later)
        self.service = made  # type: ignore[misc]

    def _later(self, call: Callable[[], object], thread: str) -> None:
        self._running.process.later(self._dice.choice(SOON_MS), call, thread)

    def _on_worker(
        self, place: TopicPartition, call: Callable[[], object], *, of_group: bool = False
    ) -> None:
        self._later(call, BACKGROUND)

    def _make_persister(self) -> StatePersister:
        own = self._running
        coordinators = ShareCoordinators(
            self._node_id, self._image, partition_for, lambda: self.coordinator,
            lambda: None, self._given.submit, self.failures, lambda: Peers(own),
        )  # fmt: skip
        made = _Persister(coordinators, own.clock, self.timer.call_later, self.failures)
        made.own = own
        return made

    def _make(self, image: ClusterImage, topic: TopicImage) -> None:
        own = self._running
        make_loader = partial(SteppedLoader, own.process, random.Random(self._dice.random()))
        made = ShareStates(self._parts(), image, make_loader)
        own.at_pieces(made.loader)
        made.follow(image, ImageDelta(created=(topic,)))
        if self._is_started and not self._is_stopped:
            made.start(self._given.scheduler)
        self._made = made

    def _parts(self) -> Parts:
        own = self._running
        listener: Any = SimpleNamespace(wake=own.wake, await_followers=own.produces.await_followers)
        return super()._parts()._replace(listener=listener)

    def loaders(self) -> list[Loader]:
        return [] if self.made is None else [self.made.loader]

    def home_of(self, key: SharePartition) -> TopicPartition:
        count = max(1, len(self._running.cluster.share_states))
        return TopicPartition(SHARE_STATE_TOPIC, partition_for(key.coordinator_key, count))

    def end(self, *, clean: bool) -> None:
        """`clean`: a stop, else a kill."""
        if clean:
            self.stop()
        for loader in self.loaders():
            loader.stop()

    @property
    def failures_count(self) -> int:
        threads = [self.timer.thread, *(each.thread for each in self.loaders())]
        return self.failures.count + sum(each.failures.count for each in threads)
