"""The way to share coordinators: who they are, what they are sent, and what becomes of it."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from typing import Any

import pytest

from kbroker.cluster.share_coordinators import ShareCoordinators
from kbroker.coordinator.share.images import SharePartition, StateBatch
from kbroker.coordinator.share.persister import Answers
from kbroker.coordinator.share.requests import (
    Asked,
    Delete,
    Initialize,
    Read,
    Summarize,
    Write,
    failed,
)
from kbroker.coordinator.share.seams import Outcome, ReadState, Summary
from kbroker.coordinator.share.wire import OF_KEY, asked_of, response_of
from kbroker.errors import ErrorCode, KafkaError
from kbroker.failures import Failures
from kbroker.metadata.features import SHARE_VERSION, FinalizedFeatures
from kbroker.metadata.image import (
    SHARE_STATE_TOPIC,
    BrokerImage,
    ClusterImage,
    PartitionImage,
    TopicImage,
)
from kbroker.peer.address import Address
from kbroker.protocol.wire import Reader
from kbroker.types import ApiKey

OWN, OTHER = 1, 2
ONE, TWO = uuid.UUID(int=11), uuid.UUID(int=12)
PLACES = [(ONE, 0), (ONE, 3), (TWO, 0)]
KEYS = [SharePartition("g", *place) for place in PLACES]
BATCHES = (StateBatch(4, 9, 2, 1), StateBatch(10, 10, 0, 3))


class FakePeers:
    """The other broker: its handlers' reading and writing around answers of the test."""

    def __init__(self) -> None:
        self.offers = True
        self.version_max = 1
        self.answers: dict[SharePartition, Any] = {}
        self.seen: list[Asked] = []
        self.fails: KafkaError | None = None
        self.garbled = False
        self.forgotten: list[Address] = []

    async def wait_ready(
        self, address: Address, *, timeout_ms: int | None = None, fail_fast: bool = False
    ) -> None:
        if self.fails is not None:
            raise self.fails

    def version(self, address: Address, api_key: ApiKey, lowest: int, highest: int) -> int:
        if not self.offers:
            raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, "an earlier version")
        return min(self.version_max, highest)

    async def call(self, address: Address, api_key: ApiKey, version: int, body: bytes) -> Reader:
        api = OF_KEY[api_key]
        found = asked_of(api, api.table.Request.decode(body, version))
        self.seen += found.values()
        if self.garbled:
            return Reader(b"\x7f", flexible=True)
        answers = {key: self.answers[key] for key in found if key in self.answers}
        return Reader(response_of(api, answers).encode(version), flexible=True)

    def forget(self, address: Address) -> None:
        self.forgotten.append(address)


class Rig:
    def __init__(self) -> None:
        self.peers = FakePeers()
        self.failures = Failures("share state")
        self.leaders = [OTHER, OWN, -1]
        self.brokers = {OTHER: BrokerImage(OTHER, "other", 9093)}
        self.created = 0
        self.level = 1
        self.own: Any = None
        self.answers: list[Answers] = []
        self.coordinators = ShareCoordinators(
            OWN, self.image, lambda key, count: int(key[-1]) % count, lambda: self.own,
            self._create, self.submit, self.failures, lambda: self.peers,
        )  # fmt: skip

    def _create(self) -> None:
        self.created += 1

    def image(self) -> ClusterImage:
        topics = {}
        if self.leaders:
            partitions = tuple(
                PartitionImage(SHARE_STATE_TOPIC, index, (OWN,), (OWN,), leader, 0, 0)
                for index, leader in enumerate(self.leaders)
            )
            topics[SHARE_STATE_TOPIC] = TopicImage(
                SHARE_STATE_TOPIC, uuid.uuid4(), partitions, {}, True
            )
        features = FinalizedFeatures(1, {SHARE_VERSION: self.level})
        return ClusterImage(brokers=self.brokers, topics=topics, features=features)

    def submit(self, work: Coroutine[Any, Any, None]) -> Future[None]:
        asyncio.run(work)
        return Future()

    def ask(self, *asked: Asked) -> Answers:
        self.coordinators.ask(OTHER, asked, self.answers.append)
        return self.answers.pop()


@pytest.fixture
def rig() -> Rig:
    return Rig()


def test_the_coordinator_is_the_leader_of_the_key_s_partition(rig: Rig) -> None:
    found = [rig.coordinators.coordinator_of(KEYS[0]._replace(partition=n)) for n in range(3)]
    assert found == [OTHER, OWN, None]
    assert [rig.coordinators.is_local(node) for node in (OWN, OTHER)] == [True, False]
    assert rig.created == 0
    rig.leaders = []
    assert rig.coordinators.coordinator_of(KEYS[0]) is None
    assert rig.created == 1
    rig.level = 0
    assert rig.coordinators.coordinator_of(KEYS[0]) is None
    assert rig.created == 1


KINDS: list[tuple[Callable[[SharePartition], Asked], Any]] = [
    (lambda key: Initialize(key, 4, -1), Outcome()),
    (lambda key: Read(key, 6), ReadState(state_epoch=4, start_offset=2, batches=BATCHES)),
    (lambda key: Write(key, 4, 6, 2, BATCHES, 5), Outcome(ErrorCode.FENCED_STATE_EPOCH, "why")),
    (Delete, Outcome()),
    (lambda key: Summarize(key, 6), Summary(ErrorCode.NONE, None, 4, 6, 2, 5)),
]


@pytest.mark.parametrize(("make", "answer"), KINDS)
def test_both_ends_understand_each_other(rig: Rig, make: Any, answer: Any) -> None:
    asked = [make(key) for key in KEYS]
    rig.peers.answers = dict.fromkeys(KEYS, answer)
    rig.peers.answers[KEYS[1]] = failed(asked[1], ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "gone")
    found = rig.ask(*asked)
    assert rig.peers.seen == asked
    assert not isinstance(found, ErrorCode)
    assert list(found[::2]) == [answer] * 2
    assert (found[1].code, found[1].message) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "gone")


def test_an_older_coordinator_knows_no_count(rig: Rig) -> None:
    rig.peers.version_max = 0
    rig.peers.answers = {KEYS[0]: Outcome()}
    assert rig.ask(Write(KEYS[0], 4, 6, 2, BATCHES, 5)) == [Outcome()]
    assert rig.peers.seen == [Write(KEYS[0], 4, 6, 2, BATCHES, -1)]


def test_a_partition_that_is_left_out_is_not_known(rig: Rig) -> None:
    found = rig.ask(Read(KEYS[0], 1))
    assert found == [ReadState(ErrorCode.NETWORK_EXCEPTION)]


def test_a_broker_without_the_api_coordinates_nothing(rig: Rig) -> None:
    """The next request opens a connection, and reads the APIs that the broker lists by then."""
    rig.peers.offers = False
    assert rig.ask(Delete(KEYS[0])) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert rig.peers.forgotten == [Address("other", 9093)]


def test_a_way_that_fails_is_not_known(rig: Rig) -> None:
    rig.peers.fails = KafkaError(ErrorCode.REQUEST_TIMED_OUT, "late")
    assert rig.ask(Delete(KEYS[0])) is ErrorCode.NETWORK_EXCEPTION
    assert rig.failures.count == 0
    rig.peers.fails = None
    rig.peers.garbled = True
    assert rig.ask(Delete(KEYS[0])) is ErrorCode.NETWORK_EXCEPTION
    assert rig.failures.count == 1


def test_a_broker_that_is_gone_is_not_asked(rig: Rig) -> None:
    rig.brokers = {}
    assert rig.ask(Delete(KEYS[0])) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert not rig.peers.seen


def test_without_a_loop_the_caller_has_the_error(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(work: Coroutine[Any, Any, None]) -> Future[None]:
        raise RuntimeError("dead")

    monkeypatch.setattr(rig.coordinators, "_submit", fails)
    with pytest.raises(RuntimeError):
        rig.ask(Delete(KEYS[0]))


def test_this_broker_is_asked_directly_when_it_has_a_coordinator(rig: Rig) -> None:
    answers: list[Any] = []
    rig.coordinators.ask_own(Delete(KEYS[0]), answers.append)
    assert answers == [Outcome(ErrorCode.COORDINATOR_NOT_AVAILABLE)]
    asked: list[Any] = []

    class Own:
        def ask(self, *of: Any) -> None:
            asked.append(of)

    rig.own = Own()
    rig.coordinators.ask_own(Delete(KEYS[0]), answers.append)
    assert asked == [(Delete(KEYS[0]), answers.append)]
