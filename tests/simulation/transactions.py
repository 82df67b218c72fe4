"""Transactions of a simulated broker: the real coordinator, markers and verifications.

As `TransactionsOnDemand` composes them, with the loader's pieces and all timers on the loop, and
other brokers over the simulated network. A producer id may have fewer epochs than a real one.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Coroutine, Iterator
from functools import partial
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from kbroker.cluster.marker_links import MarkerLinks
from kbroker.cluster.transaction_adds import RETRY_BACKOFF_MS, RETRY_MAX_MS, TransactionAdds
from kbroker.cluster.transaction_coordinators import TransactionCoordinators
from kbroker.cluster.transactions import Parts, Transactions
from kbroker.coordinator.runtime._shard_table import partition_for
from kbroker.coordinator.runtime.loader import Loader
from kbroker.coordinator.txn.image import Limits
from kbroker.coordinator.txn.seams import at_once
from kbroker.peer.address import Address
from kbroker.protocol.wire import Reader
from kbroker.server.transactions import Given, TransactionsOnDemand
from kbroker.types import ApiKey
from tests.simulation.group_parts import CallsLater, SteppedLoader
from tests.simulation.links import ask, node_of
from tests.simulation.loop import BACKGROUND, LINKS, Process

if TYPE_CHECKING:
    from tests.simulation.broker import Running


class Peers:
    """The part of a `NetworkClient` that is used here, and by share groups."""

    def __init__(self, own: Running) -> None:
        self._own = own

    async def wait_ready(self, address: Address, **how: Any) -> None:
        pass

    def version(self, address: Address, api_key: ApiKey, lowest: int, highest: int) -> int:
        return highest

    async def call(self, address: Address, api_key: ApiKey, version: int, body: bytes) -> Reader:
        return await ask(self._own, node_of(address.host), api_key, version, body)

    def forget(self, address: Address) -> None:
        pass


class _Coordinators(TransactionCoordinators):
    """A request that is to be sent later waits with its broker, which may be paused or end."""

    process: Process

    def later(self, delay_ms: int, transactional_id: str, call: Callable[[], None]) -> None:
        self.process.later(delay_ms, call, LINKS)


class _MarkerLinks(MarkerLinks):
    peers: Peers

    def _peers(self, slow: bool) -> Any:
        return self.peers


class Tasks:
    """The part of a `Scheduler` that transactions and share groups use."""

    def __init__(self, process: Process) -> None:
        self._process = process

    def schedule(
        self, name: str, work: Callable[[], Iterator[None]], period_ms: int, *, delay_ms: int
    ) -> None:
        def turn() -> None:
            for _ in work():
                pass
            self._process.later(period_ms, turn, BACKGROUND)

        self._process.later(delay_ms, turn, BACKGROUND)


class BrokerTransactions(TransactionsOnDemand):
    """See the head of this file."""

    def __init__(self, own: Running) -> None:
        self._running = own
        self._peers = Peers(own)
        listener: Any = SimpleNamespace(wake=own.wake, await_followers=own.produces.await_followers)
        services, links, scheduler = own, own.links, Tasks(own.process)
        super().__init__(
            Given(
                lambda: own.broker.config,
                own.clock,
                CallsLater(own.process).call_later,
                lambda topic, index: own.replicas.partition(topic, index),
                listener,
                lambda: own.controller,
                lambda: services,  # type: ignore[arg-type, return-value]
                self.submit,
                scheduler,  # type: ignore[arg-type]
                links,  # type: ignore[arg-type]
            )
        )

    def submit(self, work: Coroutine[Any, Any, None]) -> Any:
        """Not after the death of the process, when a coroutine that is collected may submit."""
        if self._running.process.alive:
            return self._running._submit(work)
        work.close()
        return None

    def _watch(self) -> None:
        """No history is as long as a transaction that hangs."""

    def _make(self) -> Transactions:
        own = self._running
        # Nothing is drawn for it from the cluster's dice.
        dice = random.Random(f"transactions {self._node_id} {own.clock.monotonic_ns()}")
        made = self._made = Transactions(self._parts(), partial(SteppedLoader, own.process, dice))
        made.coordinator._epochs = Limits(own.cluster.epoch_max)
        own.at_pieces(made.loader)
        if self._is_started and not self._is_stopped:
            made.start(self._given.scheduler)
        return made

    def _parts(self) -> Parts:
        links = _MarkerLinks(self._image, self.submit, self.failures)
        links.peers = self._peers
        return super()._parts()._replace(transport=links, on_worker=at_once)

    def _make_adds(self) -> TransactionAdds:
        given = self._given
        coordinators = _Coordinators(
            self._node_id,
            self._image,
            partition_for,
            given.submit,
            self._own,
            self.failures,
            lambda: self._peers,
        )
        coordinators.process = self._running.process
        return TransactionAdds(
            coordinators,
            given.clock,
            self.failures,
            lambda: given.config()[RETRY_BACKOFF_MS],
            lambda: given.config()[RETRY_MAX_MS],
        )

    def loaders(self) -> list[Loader]:
        return [] if self.made is None else [self.made.loader]

    def end(self, *, clean: bool) -> None:
        """`clean`: a stop, else a kill."""
        if clean:
            self.stop()
        for loader in self.loaders():
            loader.stop()

    @property
    def failures_count(self) -> int:
        threads = (each.thread for each in self.loaders())
        return self.failures.count + sum(each.failures.count for each in threads)
