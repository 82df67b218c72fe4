"""Several brokers' metadata halves on one tree, and the wire between them."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from kbroker.errors import KafkaError
from kbroker.metadata.cluster_delta import ClusterDelta
from kbroker.metadata.cluster_delta_codec import decode_delta, encode_delta
from kbroker.metadata.controller import NewTopic
from kbroker.metadata.controller.image_updates import NOTHING, ImageAnswer, ImageUpdate
from kbroker.metadata.controller.partition_states import ElectionRules, InSyncChange
from kbroker.metadata.image import BrokerImage, ClusterImage, PartitionImage
from kbroker.types import TopicPartition
from tests.unit.metadata.controller.harness import OneBroker, eventually, wait

Answers = list[PartitionImage | KafkaError]


class Wire:
    """Carries updates between brokers of this process, as bytes; loses or holds what a test says.

    Pauses end when the test says so, too. A broker of a cluster has an end of its own (`end_of`),
    so that its pauses are not taken for the controller's.
    """

    def __init__(self) -> None:
        self.brokers: dict[int, OneBroker] = {}
        self.sent: list[tuple[int, ImageUpdate]] = []
        self.loses: set[int] = set()  # brokers that get nothing
        self.loses_answers: set[int] = set()
        self.holds: set[int] = set()
        self._lock = threading.Lock()
        self._held: list[Callable[[], None]] = []
        self._pauses: list[tuple[int | None, Callable[[], None]]] = []

    def end_of(self, node_id: int) -> WireEnd:
        return WireEnd(self, node_id)

    def update(
        self, broker: BrokerImage, update: ImageUpdate, done: Callable[[ImageAnswer | None], None]
    ) -> None:
        node_id = broker.node_id
        carried = update._replace(delta=decode_delta(encode_delta(update.delta)))
        self.sent.append((node_id, carried))
        if node_id in self.loses or node_id not in self.brokers:
            done(None)
            return

        def deliver() -> None:
            answered = done if node_id not in self.loses_answers else lambda _: done(None)
            self.brokers[node_id].controller.follow(carried, answered)

        with self._lock:
            if node_id in self.holds:
                self._held.append(deliver)
                return
        deliver()

    def later(self, delay_ms: int, call: Callable[[], None], node_id: int | None = None) -> None:
        assert delay_ms > 0
        with self._lock:
            self._pauses.append((node_id, call))

    def pauses_of(self, node_id: int) -> int:
        """That have begun at its end, and not ended."""
        with self._lock:
            return sum(each == node_id for each, _ in self._pauses)

    def release(self) -> None:
        with self._lock:
            held, self._held = self._held, []
            self.holds.clear()
        for deliver in held:
            deliver()

    def pauses_end(self) -> None:
        with self._lock:
            pauses, self._pauses = self._pauses, []
        for _, call in pauses:
            call()


class WireEnd:
    """The wire as one broker has it."""

    def __init__(self, wire: Wire, node_id: int) -> None:
        self.update = wire.update
        self._wire = wire
        self._node_id = node_id

    def later(self, delay_ms: int, call: Callable[[], None]) -> None:
        self._wire.later(delay_ms, call, self._node_id)


class Cluster:
    """Broker 1, which is the controller, and others, each with a session of its own."""

    def __init__(
        self, directory: Path, wire: Wire | None = None, make: type[OneBroker] = OneBroker
    ) -> None:
        """`wire`: how the controller tells the others; None: not at all."""
        self._make = make
        self.brokers: dict[int, OneBroker] = {}
        self.rules = ElectionRules()
        self.wire = wire
        if wire is not None:
            wire.brokers = self.brokers
        for node_id in (1, 2, 3):
            self.start(node_id, directory)

    @property
    def controller(self) -> OneBroker:
        return self.brokers[1]

    def start(self, node_id: int, directory: Path, **more: Any) -> None:
        broker = self.brokers[node_id] = self._make(directory, node_id)
        one = self.brokers[1] if node_id > 1 else None
        options: dict[str, Any] = {
            "locks": lambda: [f"d{node_id}"],
            "elections": lambda _: self.rules,
            **more,
        }
        if self.wire is not None:
            options |= {"transport": self.wire.end_of(node_id), "renew": broker.next_session}
        broker.start(one and one.embedded.new_session(), **options)
        eventually(lambda: self.epochs().get(node_id) == broker.controller.broker_epoch)

    def end(self, node_id: int) -> None:
        """Its session is over, as after a kill."""
        self.brokers.pop(node_id).stop()
        eventually(lambda: node_id not in self.epochs())

    def epochs(self) -> dict[int, int]:
        controller = self.brokers.get(1)
        brokers = controller.image.brokers if controller else self.brokers[2].image.brokers
        return {node_id: broker.epoch for node_id, broker in brokers.items()}

    def make(self, *replicas: int) -> None:
        assert not self.controller.create(NewTopic("t", assignments={0: replicas}))[0].error

    def shut_down(self, node_id: int, broker_epoch: int = -1) -> list[TopicPartition] | KafkaError:
        """What it leads still, as the controller answers."""
        epoch = self.epochs()[node_id] if broker_epoch == -1 else broker_epoch
        left: list[TopicPartition] | KafkaError = wait(
            lambda done: self.controller.controller.shut_down(node_id, epoch, done)
        )
        return left

    @property
    def state(self) -> PartitionImage:
        return self.controller.image.topics["t"].partitions[0]

    def alter(
        self,
        leader: int,
        *in_sync: int,
        broker_epoch: int = -1,
        times: int = 1,
        topic_name: str = "t",
    ) -> Answers:
        topic = self.controller.image.topics[topic_name]
        state = topic.partitions[0]
        change = InSyncChange(
            topic.topic_id,
            0,
            state.leader_epoch,
            state.partition_epoch,
            {node: self.epochs().get(node, -1) for node in in_sync},
        )
        epoch = self.epochs()[leader] if broker_epoch == -1 else broker_epoch
        answers: Answers = wait(
            lambda done: self.controller.controller.alter_in_sync(
                leader, epoch, [change] * times, done
            )
        )
        return answers


def agree(one: ClusterImage, other: ClusterImage) -> bool:
    return one.at_version(0) == other.at_version(0)


def follow(cluster: Cluster) -> None:
    """Until all have what the controller has."""
    one = cluster.controller
    eventually(lambda: all(agree(each.image, one.image) for each in cluster.brokers.values()))


def update_of(cluster: Cluster, to: OneBroker, **fields: int) -> ImageUpdate:
    """One that would delete everything."""
    update = ImageUpdate(
        1,
        cluster.controller.controller.statistics().controller_epoch,
        to.controller.broker_epoch,
        NOTHING,
        1_000_000,
        ClusterDelta.between(
            ClusterImage(), ClusterImage(cluster_id=cluster.controller.image.cluster_id)
        ),
    )
    return update._replace(**fields)
