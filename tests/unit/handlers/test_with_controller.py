"""The handlers on the real controller and store: answers come from its thread, and only then."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from kbroker.clock import ManualClock
from kbroker.config import BrokerConfig, edit_topic_list, validate_topic_overrides
from kbroker.coordinator.group._groups import GroupTable
from kbroker.coordinator.group.coordinator import GroupCoordinator
from kbroker.errors import ErrorCode
from kbroker.handlers.delayed import Purgatories
from kbroker.handlers.registry import REGISTRY
from kbroker.handlers.services import Services
from kbroker.metadata.controller.controller import Controller
from kbroker.metadata.controller.parts import Listeners, Rules, Session
from kbroker.metadata.controller.producer_ids import ProducerIdManager
from kbroker.metadata.image import BrokerImage, ClusterImage, ImageDelta
from kbroker.metadata.store.embedded import EmbeddedStore
from kbroker.purgatory.timer import Timer
from kbroker.types import TopicPartition
from tests.support.group_memory import MemoryStore, NoView
from tests.unit.handlers.support import FakeLog, FakeReplicas, FakeRequest, answer_of, written
from tests.unit.handlers.test_alter_configs import ALTER, INCREMENTAL
from tests.unit.handlers.test_alter_configs import ask as alter
from tests.unit.handlers.test_metadata import ask as metadata
from tests.unit.handlers.test_small_families import identity, init
from tests.unit.handlers.test_topics import codes, create, delete, outcome


@dataclass
class WaitingRequest(FakeRequest):
    """A request whose answer another thread may give."""

    answered: threading.Event = field(default_factory=threading.Event)
    thread: str = ""

    def respond(self, body: bytes) -> None:
        super().respond(body)
        self.thread = threading.current_thread().name
        self.answered.set()

    def close_connection(self, reason: str) -> None:
        super().close_connection(reason)
        self.answered.set()


class Broker:
    def __init__(self, directory: Path) -> None:
        self.store = EmbeddedStore.open(directory)
        self.replicas = FakeReplicas()
        self.reconfigured: list[str] = []
        config = BrokerConfig.load(None, {}, ["num.partitions=2"])
        self.controller = Controller(
            Session(
                store=self.store, broker=BrokerImage(1, "127.0.0.1", 9092), clock=ManualClock()
            ),
            Rules(
                config=config, validate_configs=validate_topic_overrides, edit_list=edit_topic_list
            ),
            Listeners(apply=self._apply),
        )
        self.controller.start()
        self.services = Services(
            config=config,
            clock=ManualClock(),
            controller=self.controller,
            replicas=self.replicas,
            producer_ids=ProducerIdManager(self.controller.allocate_producer_ids),
            await_low_watermark=lambda *waiting: None,
            await_followers=lambda *waiting: None,
            wake=lambda _: None,
            purgatories=Purgatories.on(Timer(ManualClock())),
            cluster_id=self.controller.image.cluster_id,
            node_id=1,
            advertised=lambda request: (request.local_host, request.local_port),
            groups=GroupCoordinator(
                lambda: config,
                ManualClock(),
                lambda delay_ms, action: lambda: None,
                MemoryStore(),
                NoView(),
            ),
            offsets=GroupTable(),
        )

    def _apply(self, image: ClusterImage, delta: ImageDelta) -> list[TopicPartition]:
        for topic in delta.created:
            for partition in topic.partitions:
                self.replicas.logs[topic.name, partition.index] = FakeLog()
        self.reconfigured += [topic.name for topic in delta.reconfigured]
        return []

    def ask(self, entity: Any) -> WaitingRequest:
        request = WaitingRequest(entity.__api_key__, entity.__version__, written(entity))
        REGISTRY.dispatch(self.services, request)
        assert request.answered.wait(60)
        return request

    def call(self, entity: Any) -> Any:
        return answer_of(self.ask(entity))

    def stop(self) -> None:
        self.controller.stop()
        self.store.close()


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    broker = Broker(tmp_path / "metadata")
    yield broker
    broker.stop()


def test_a_topic_from_creation_to_deletion(broker: Broker) -> None:
    request = broker.ask(create(7, {"name": "a", "partitions": 3}, {"name": "a b"}))
    assert request.thread == "kbroker-controller"
    answer = answer_of(request)
    assert codes(answer) == [("a", 0), ("a b", ErrorCode.INVALID_TOPIC_EXCEPTION)]
    # The answer says that the topic can be used.
    (topic,) = broker.call(metadata(13, ["a"])).topics
    assert (topic.topic_id, len(topic.partitions)) == (answer.topics[0].topic_id, 3)
    gone = broker.call(delete(6, topic.topic_id, "none"))
    assert outcome(gone) == [("a", 0), ("none", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)]
    assert broker.call(metadata(13, None)).topics == ()


def test_settings_are_applied_and_published_when_the_answer_comes(broker: Broker) -> None:
    broker.call(create(7, {"name": "a"}, {"name": "b"}))
    good = alter(INCREMENTAL, 1, (2, "a", [("cleanup.policy", 2, "compact")]))
    request = broker.ask(good)
    assert request.thread == "kbroker-controller"
    assert broker.reconfigured == ["a"]
    topics = broker.controller.image.topics
    assert dict(topics["a"].configs) == {"cleanup.policy": "delete,compact"}
    broker.ask(good)  # nothing changes, so nothing is stored or published
    bad: list[tuple[str, int, str | None]] = [("retention.ms", 0, "x")]
    answer = broker.call(alter(ALTER, 2, (2, "a", bad), (2, "b", [("retention.ms", 0, "5")])))
    assert [r.error_code.value for r in answer.responses] == [ErrorCode.INVALID_CONFIG, 0]
    assert broker.reconfigured == ["a", "b"]
    broker.call(alter(INCREMENTAL, 1, (2, "b", [("retention.ms", 1, None)]), validate_only=True))
    assert dict(broker.controller.image.topics["b"].configs) == {"retention.ms": "5"}


def test_auto_creation(broker: Broker) -> None:
    request = metadata(13, ["new"], create=True)
    assert broker.call(request).topics[0].error_code.value == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    broker.call(create(7, {"name": "after"}))  # the controller does one thing after the other
    (topic,) = broker.call(request).topics
    assert (topic.error_code.value, len(topic.partitions)) == (0, 2)


def test_producer_ids_never_repeat_not_even_after_a_restart(tmp_path: Path) -> None:
    seen: list[int] = []
    for _ in range(2):
        broker = Broker(tmp_path / "metadata")
        try:
            for _ in range(3):
                code, producer_id, epoch = identity(broker.call(init(5)))
                assert (code, epoch) == (0, 0)
                seen.append(producer_id)
        finally:
            broker.stop()
    assert len(set(seen)) == 6


def test_a_broker_that_is_stopping_says_so(tmp_path: Path) -> None:
    broker = Broker(tmp_path / "metadata")
    broker.stop()
    assert codes(broker.call(create(7, {"name": "a"}))) == [("a", ErrorCode.NOT_CONTROLLER)]
    assert outcome(broker.call(delete(6, "a"))) == [("a", ErrorCode.NOT_CONTROLLER)]
    assert identity(broker.call(init(5)))[0] == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
