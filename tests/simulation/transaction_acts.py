"""Acts of `Cluster` on the transactions of a simulated cluster.

`serve_transactions` comes first: without it there is no `__transaction_state`, and transactional
producers do nothing.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any, cast

from kbroker.coordinator.txn.image import EPOCH_MAX
from kbroker.coordinator.txn.state_topic import new_topic
from kbroker.errors import ErrorCode
from kbroker.metadata.controller import NewTopic
from kbroker.metadata.controller.feature_changes import FeatureUpdate, UpgradeType
from kbroker.metadata.features import TRANSACTION_VERSION
from kbroker.metadata.image import TRANSACTIONS_TOPIC
from kbroker.types import TopicPartition
from tests.simulation.fault_points import FaultPoints
from tests.simulation.transaction_clients import CommittedReader, TransactionalProducer
from tests.simulation.transaction_ledger import TransactionLedger

if TYPE_CHECKING:
    from tests.simulation.broker import Broker, Running
    from tests.simulation.cluster import Cluster
    from tests.simulation.loop import StepLoop

# Ids of producers, and whether they are modern. Two have one id: each fences the other.
PRODUCERS = (("x", True), ("x", False), ("y", True))
OLD = 1  # the place of the old one
# Of a producer id.
FEW_EPOCHS = 3
LEVEL = 2
HOUR_MS = 3_600_000
_RETRY_MS = 100
_CONFIGS = {"cleanup.policy": "compact", "min.insync.replicas": "2"}


class TransactionActs:
    """See the head of this file."""

    brokers: dict[int, Broker]
    names: list[TopicPartition]
    homes: list[TopicPartition]
    share_states: list[TopicPartition]
    loop: StepLoop
    ledger: TransactionLedger

    def _prepare_transactions(self, dice: random.Random) -> None:
        cluster = cast("Cluster", self)
        self.states: list[TopicPartition] = []
        self.epoch_max = EPOCH_MAX
        self.is_healed = False
        self.ledger = TransactionLedger(cluster)
        self.fault_points = FaultPoints(cluster)
        self.transactional = [
            TransactionalProducer(
                cluster, number, name, random.Random(dice.random()), modern=modern
            )
            for number, (name, modern) in enumerate(PRODUCERS, start=1)
        ]
        self.committed_reader = CommittedReader(cluster, random.Random(dice.random()))

    @property
    def logs(self) -> list[TopicPartition]:
        """All but those of topics that operators create."""
        return [*self.names, *self.homes, *self.states, *self.share_states]

    def controllers(self) -> list[Running]:
        raise NotImplementedError

    def serve_transactions(self, partitions: int, epoch_max: int, level: int) -> None:
        """There is a state topic of so many partitions, and transaction.version has that level;
        no epochs (0): as many as a real producer id has."""
        self.epoch_max = epoch_max or EPOCH_MAX
        self._make_state_topic(partitions, level)

    def _make_state_topic(self, partitions: int, level: int) -> None:
        """Until it is there."""
        running = next(iter(self.controllers()), None)
        if running is None:
            self.loop.later(_RETRY_MS, self._make_state_topic, partitions, level)
            return
        brokers = [*self.brokers]
        assignments = {
            index: (*brokers[at:], *brokers[:at])
            for index in range(partitions)
            for at in [(index + 2) % len(brokers)]
        }
        configs = {**new_topic(running.config, len(brokers)).configs, **_CONFIGS}
        topic = NewTopic(TRANSACTIONS_TOPIC, assignments=assignments, configs=configs)

        def made(results: Any) -> None:
            if results[0].error in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
                self.states = [TopicPartition(TRANSACTIONS_TOPIC, each) for each in assignments]
            else:
                self.loop.later(_RETRY_MS, self._make_state_topic, partitions, level)

        def at_its_level(error: Any) -> None:
            running.controller.create_topics([topic], False, made)

        if level == LEVEL:
            at_its_level(None)
        else:
            update = FeatureUpdate(TRANSACTION_VERSION, level, UpgradeType.SAFE_DOWNGRADE)
            running.controller.update_features([update], False, at_its_level)

    def change_level(self, level: int) -> None:
        """Of transaction.version: clients go by it from their next transaction on."""
        for kind in (UpgradeType.UPGRADE, UpgradeType.SAFE_DOWNGRADE):
            update = FeatureUpdate(TRANSACTION_VERSION, level, kind)
            for running in self.controllers():
                running.controller.update_features([update], False, lambda error: None)

    def transact(self, producer: int) -> None:
        self.transactional[producer].transact()

    def crash(self, producer: int) -> None:
        self.transactional[producer].crash()

    def hurry(self, producer: int, pause_ms: int, away_ms: int) -> None:
        """In its next transaction of TV1, which is aborted while a batch is under way."""
        self.transactional[producer].hurry = pause_ms, away_ms

    def read_committed(self, index: int) -> None:
        self.committed_reader.read(self.names[index])

    def ask_transacted(self) -> None:
        self.committed_reader.ask_offsets()

    def arm(self, point: int, fault: int, delay_ms: int, for_ms: int) -> None:
        self.fault_points.arm(point, fault, delay_ms, for_ms)

    def step_clock(self, node_id: int, by_ms: int, for_ms: int) -> None:
        """The wall clock of a broker is wrong, and right again."""
        running = self.brokers[node_id].running
        if running is not None:
            running.clock.shift_ms = by_ms
            self.loop.later(for_ms, setattr, running.clock, "shift_ms", 0)

    def advance_clock(self, node_id: int, for_ms: int) -> None:
        self.step_clock(node_id, HOUR_MS, for_ms)

    def _end_transactions(self) -> None:
        """Producers end where they are; their open transactions end by the timeout."""
        self.is_healed = True
        self.fault_points.disarm()
        for producer in self.transactional:
            producer.crash()
            producer.hurry = None
        for broker in self.brokers.values():
            if broker.running is not None:
                broker.running.clock.shift_ms = 0
