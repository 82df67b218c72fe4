"""Dead-letter topics: which may be used, and what their leaders are sent."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Coroutine
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest

from kbroker.cluster.dead_letter_topics import DeadLetterTopics, TopicsCreation
from kbroker.config import BrokerConfig
from kbroker.engine.share.dead_letters import Destination, Refused
from kbroker.errors import ErrorCode, KafkaError
from kbroker.failures import Failures
from kbroker.metadata.image import NO_LEADER, BrokerImage, ClusterImage, PartitionImage, TopicImage
from kbroker.peer.address import Address
from kbroker.protocol.messages import produce
from kbroker.protocol.wire import Reader
from kbroker.types import ApiKey, TopicPartition

NAME = "dlq.orders"
ENABLED = {"errors.deadletterqueue.group.enable": "true"}
PLACE = TopicPartition(NAME, 1)


class FakePeers:
    """The leader."""

    def __init__(self) -> None:
        self.code = ErrorCode.NONE
        self.fails: Exception | None = None
        self.garbled = False
        self.seen: list[tuple[Address, int, int, bytes]] = []

    async def wait_ready(
        self, address: Address, *, timeout_ms: int | None = None, fail_fast: bool = False
    ) -> None:
        if self.fails is not None:
            raise self.fails

    def version(self, address: Address, api_key: ApiKey, lowest: int, highest: int) -> int:
        assert api_key is ApiKey.PRODUCE
        return highest

    async def call(self, address: Address, api_key: ApiKey, version: int, body: bytes) -> Reader:
        request = produce.Request.decode(body, version)
        (topic,) = request.topic_data
        (part,) = topic.partition_data
        assert topic.name == NAME
        self.seen.append((address, request.acks, part.index, bytes(part.records or b"")))
        if self.garbled:
            return Reader(b"\x7f", flexible=True)
        answer = produce.PartitionResponse(
            index=part.index, error_code=self.code, base_offset=0, log_append_time_ms=-1,
            current_leader=None,
        )  # fmt: skip
        responses = [produce.TopicResponse(name=NAME, partition_responses=[answer])]
        return Reader(produce.Response(responses=responses).encode(version), flexible=True)


class Rig:
    def __init__(self) -> None:
        self.peers, self.failures = FakePeers(), Failures("share state")
        self.created: list[str] = []
        self.leaders = [1, 2]
        self.configs: dict[str, str] = dict(ENABLED)
        self.internal = False
        self.brokers = {2: BrokerImage(2, "other", 9093)}
        self.config = BrokerConfig.load()
        self.topics = DeadLetterTopics(
            self.image, lambda: self.config, self.created.append, self.submit, self.failures,
            lambda: self.peers,
        )  # fmt: skip

    def image(self) -> ClusterImage:
        topics = {}
        if self.leaders:
            partitions = tuple(
                PartitionImage(NAME, index, (1, 2), (1, 2), leader, 0, 0)
                for index, leader in enumerate(self.leaders)
            )
            topics[NAME] = TopicImage(NAME, uuid.uuid4(), partitions, self.configs, self.internal)
        return ClusterImage(brokers=self.brokers, topics=topics)

    def submit(self, work: Coroutine[Any, Any, None]) -> Future[None]:
        asyncio.run(work)
        return Future()

    def write(self) -> list[ErrorCode]:
        codes: list[ErrorCode] = []
        self.topics.write(PLACE, b"a batch", codes.append)
        return codes

    def set(self, key: str, value: object) -> None:
        self.config = BrokerConfig.load(overrides=[f"errors.deadletterqueue.{key}={value}"])


@pytest.fixture
def rig() -> Rig:
    return Rig()


def test_the_partition_is_that_of_the_record(rig: Rig) -> None:
    for partition in range(5):
        to = rig.topics.destination(NAME, partition)
        assert to == Destination(TopicPartition(NAME, partition % 2), 1_048_588)
    rig.configs["max.message.bytes"] = "1000"
    assert rig.topics.destination(NAME, 0) == Destination(TopicPartition(NAME, 0), 1_000)


def test_a_topic_has_to_be_meant_for_it(rig: Rig) -> None:
    def refused(name: str = NAME) -> str:
        to = rig.topics.destination(name, 0)
        assert isinstance(to, Refused)
        assert not to.waits
        return to.words

    assert refused("orders").startswith("the name of topic orders does not begin with dlq. ")
    assert refused("__share_group_state") == "topic __share_group_state is internal"
    rig.configs = {}
    assert refused() == f"topic {NAME} does not have errors.deadletterqueue.group.enable=true"
    rig.internal = True
    assert refused() == f"topic {NAME} is internal"
    rig.internal, rig.leaders = False, []
    assert refused() == f"there is no topic {NAME}"
    rig.set("topic.name.prefix", "dead.")
    assert refused().startswith(f"the name of topic {NAME} does not begin with dead. ")
    rig.set("topic.name.prefix", "")
    assert refused("orders") == "there is no topic orders"
    assert rig.created == []


def test_a_topic_that_is_created_or_has_no_leader_is_waited_for(rig: Rig) -> None:
    rig.leaders = [NO_LEADER, 1]
    assert rig.topics.destination(NAME, 0) == Refused(f"partition {NAME}-0 has no leader", True)
    rig.leaders = []
    rig.set("auto.create.topics.enable", "true")
    assert rig.topics.destination(NAME, 0) == Refused(f"topic {NAME} is being created", True)
    assert rig.created == [NAME]


def test_a_created_topic_may_be_used() -> None:
    asked: list[Any] = []
    controller: Any = SimpleNamespace(create_topics=lambda specs, *_: asked.extend(specs))
    TopicsCreation().begin(controller, NAME)
    (spec,) = asked
    assert (spec.name, dict(spec.configs)) == (NAME, ENABLED)


def test_the_leader_gets_the_batch(rig: Rig) -> None:
    assert rig.write() == [ErrorCode.NONE]
    assert rig.peers.seen == [(Address("other", 9093), -1, 1, b"a batch")]
    rig.peers.code = ErrorCode.NOT_ENOUGH_REPLICAS
    assert rig.write() == [ErrorCode.NOT_ENOUGH_REPLICAS]


def test_each_failure_has_a_code(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    rig.peers.fails = KafkaError(ErrorCode.SASL_AUTHENTICATION_FAILED, "no")
    assert rig.write() == [ErrorCode.SASL_AUTHENTICATION_FAILED]
    rig.peers.fails = OSError("no descriptor")
    assert rig.write() == [ErrorCode.NETWORK_EXCEPTION]
    rig.peers.fails, rig.peers.garbled = None, True
    assert rig.write() == [ErrorCode.NETWORK_EXCEPTION]
    assert rig.failures.count == 2
    rig.brokers = {}
    assert rig.write() == [ErrorCode.LEADER_NOT_AVAILABLE]
    rig.brokers = {2: BrokerImage(2, "other", 9093)}

    def no_loop(work: Coroutine[Any, Any, None]) -> Future[None]:
        raise RuntimeError("no loop")

    monkeypatch.setattr(rig.topics, "_submit", no_loop)
    with pytest.raises(RuntimeError, match="no loop"):
        rig.write()
