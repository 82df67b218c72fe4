"""The way to a coordinator: who it is, what it is sent, and what becomes of the answer."""

from __future__ import annotations

import asyncio
import datetime
import io
import uuid
from collections.abc import Callable, Coroutine, Mapping, Sequence
from concurrent.futures import Future
from functools import partial
from typing import Any

import pytest
from kio.schema.add_partitions_to_txn.v4 import request as request_v4
from kio.schema.add_partitions_to_txn.v4 import response as response_v4
from kio.schema.errors import ErrorCode as KioError
from kio.serial import entity_reader, entity_writer

from kbroker.cluster.transaction_adds import AddedTransaction, Answer, Verdict
from kbroker.cluster.transaction_coordinators import (
    STATE_TOPIC,
    TransactionCoordinators,
    encode_request,
)
from kbroker.errors import ErrorCode, KafkaError
from kbroker.failures import Failures
from kbroker.metadata.image import BrokerImage, ClusterImage, PartitionImage, TopicImage
from kbroker.peer.address import Address
from kbroker.protocol.wire import Reader
from kbroker.types import ApiKey, TopicPartition

OWN = 1
A, B = TopicPartition("t", 0), TopicPartition("u", 3)
ADDED = [
    AddedTransaction("x", 7, 2, True, (A, TopicPartition("t", 5), B)),
    AddedTransaction("y", 8, 0, False, (B,)),
]


class FakePeers:
    def __init__(self, offered: tuple[int, int] | None = (4, 5)) -> None:
        self.offered = offered
        self.sent: list[tuple[Address, int, bytes]] = []
        self.answer: bytes | KafkaError = b""
        self.unreachable: KafkaError | None = None

    async def wait_ready(
        self, address: Address, *, timeout_ms: int | None = None, fail_fast: bool = False
    ) -> None:
        if self.unreachable is not None:
            raise self.unreachable

    def version(self, address: Address, api_key: ApiKey, lowest: int, highest: int) -> int:
        assert api_key is ApiKey.ADD_PARTITIONS_TO_TXN
        if self.offered is None or self.offered[1] < lowest:
            raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, "an earlier version")
        return min(self.offered[1], highest)

    async def call(self, address: Address, api_key: ApiKey, version: int, body: bytes) -> Reader:
        self.sent.append((address, version, body))
        if isinstance(self.answer, KafkaError):
            raise self.answer
        return Reader(self.answer, flexible=True)


def written(entity: Any) -> bytes:
    buffer = io.BytesIO()
    entity_writer(type(entity))(buffer, entity)
    return buffer.getvalue()


def answered(error: int = 0) -> bytes:
    """x in t, and y, by kio."""
    results = (
        response_v4.AddPartitionsToTxnResult(
            transactional_id="x",  # type: ignore[arg-type]
            topic_results=(
                response_v4.AddPartitionsToTxnTopicResult(
                    name="t",  # type: ignore[arg-type]
                    results_by_partition=(
                        response_v4.AddPartitionsToTxnPartitionResult(
                            partition_index=0,  # type: ignore[arg-type]
                            partition_error_code=KioError.none,
                        ),
                        response_v4.AddPartitionsToTxnPartitionResult(
                            partition_index=5,  # type: ignore[arg-type]
                            partition_error_code=KioError.concurrent_transactions,
                        ),
                    ),
                ),
            ),
        ),
    )
    return written(
        response_v4.AddPartitionsToTxnResponse(
            throttle_time=datetime.timedelta(),  # type: ignore[arg-type]
            error_code=KioError(error),
            results_by_transaction=results,
        )
    )


class Rig:
    def __init__(self, peers: FakePeers) -> None:
        self.peers = peers
        self.failures = Failures("coordinators")
        self.leaders = {0: 2, 1: OWN, 2: -1, 3: 9}
        self.brokers = {2: BrokerImage(2, "other", 9093), OWN: BrokerImage(OWN, "own", 9092)}
        self.own: list[Sequence[AddedTransaction]] = []
        self.answers: list[Answer] = []
        self.loop_is_gone = False
        self.on_worker: list[tuple[TopicPartition, Callable[[], object]]] = []
        self.coordinators = TransactionCoordinators(
            OWN, self.image, lambda name, count: int(name) % count, self.submit, self.own_answers,
            self.failures, lambda: peers, lambda *work: self.on_worker.append(work),
        )  # fmt: skip

    def image(self) -> ClusterImage:
        topics = {}
        if self.leaders:
            partitions = tuple(
                PartitionImage(STATE_TOPIC, index, (2, OWN), (2, OWN), leader, 0, 0)
                for index, leader in self.leaders.items()
            )
            topics[STATE_TOPIC] = TopicImage(STATE_TOPIC, uuid.uuid4(), partitions, {}, True)
        return ClusterImage(brokers=self.brokers, topics=topics)

    def submit(self, work: Coroutine[Any, Any, None]) -> Future[None]:
        if self.loop_is_gone:
            raise RuntimeError("no loop")
        asyncio.run(work)
        return Future()

    def own_answers(
        self,
        transactions: Sequence[AddedTransaction],
        *,
        done: Callable[[Mapping[str, Verdict]], None],
    ) -> None:
        self.own.append(transactions)
        done({each.transactional_id: ErrorCode.NONE for each in transactions})

    def ask(self, node_id: int = 2) -> Answer:
        self.coordinators.ask(node_id, ADDED, self.answers.append)
        (answer,) = self.answers
        return answer


@pytest.fixture
def rig() -> Rig:
    return Rig(FakePeers())


def test_the_leader_of_its_partition_coordinates_an_id(rig: Rig) -> None:
    assert [rig.coordinators.coordinator_of(str(at)) for at in range(5)] == [2, OWN, None, 9, 2]
    assert [rig.coordinators.is_local(node) for node in (OWN, 2)] == [True, False]
    rig.leaders = {}
    assert rig.coordinators.coordinator_of("0") is None  # there has been no transaction yet


def test_this_broker_is_asked_without_a_socket(rig: Rig) -> None:
    assert rig.ask(OWN) == {"x": ErrorCode.NONE, "y": ErrorCode.NONE}
    assert rig.own == [ADDED]
    assert rig.peers.sent == []


@pytest.mark.parametrize(("offered", "version"), [((0, 4), 4), ((0, 5), 5), ((4, 9), 5)])
def test_the_request_that_is_sent(rig: Rig, offered: tuple[int, int], version: int) -> None:
    rig.peers.offered = offered
    rig.peers.answer = answered()
    rig.ask()
    ((address, sent_version, body),) = rig.peers.sent
    assert (address, sent_version) == (Address("other", 9093), version)
    entity, size = entity_reader(request_v4.AddPartitionsToTxnRequest)(body, 0)
    assert size == len(body)
    got = [
        (
            each.transactional_id, each.producer_id, each.producer_epoch, each.verify_only,
            {topic.name: list(topic.partitions) for topic in each.topics},
        )
        for each in entity.transactions
    ]  # fmt: skip
    assert got == [("x", 7, 2, True, {"t": [0, 5], "u": [3]}), ("y", 8, 0, False, {"u": [3]})]
    assert encode_request(ADDED, 4) == encode_request(ADDED, 5)


def test_the_answers_of_a_coordinator(rig: Rig) -> None:
    rig.peers.answer = answered()
    concurrent = ErrorCode.CONCURRENT_TRANSACTIONS
    assert rig.ask() == {"x": {A: ErrorCode.NONE, TopicPartition("t", 5): concurrent}}


def test_a_request_that_was_not_looked_at(rig: Rig) -> None:
    rig.peers.answer = answered(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    assert rig.ask() is ErrorCode.INVALID_TXN_STATE


def test_an_error_of_the_coordinator_is_not_the_producers(rig: Rig) -> None:
    rig.peers.answer = answered(ErrorCode.UNKNOWN_SERVER_ERROR)
    assert rig.ask() is ErrorCode.NETWORK_EXCEPTION


@pytest.mark.parametrize("offered", [None, (0, 3)])
def test_a_broker_of_an_earlier_version_coordinates_nothing(
    rig: Rig, offered: tuple[int, int] | None
) -> None:
    rig.peers.offered = offered
    assert rig.ask() is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert rig.peers.sent == []


@pytest.mark.parametrize("node", [3, 4])
def test_a_broker_that_is_away(rig: Rig, node: int) -> None:
    rig.brokers[3] = BrokerImage(3, "other", -1)
    assert rig.ask(node) is ErrorCode.COORDINATOR_NOT_AVAILABLE


@pytest.mark.parametrize("code", [ErrorCode.NETWORK_EXCEPTION, ErrorCode.REQUEST_TIMED_OUT])
def test_an_answer_that_does_not_come(rig: Rig, code: ErrorCode) -> None:
    rig.peers.answer = KafkaError(code, "lost")
    assert rig.ask() is ErrorCode.NETWORK_EXCEPTION


def test_no_connection(rig: Rig) -> None:
    rig.peers.unreachable = KafkaError(ErrorCode.NETWORK_EXCEPTION, "refused")
    assert rig.ask() is ErrorCode.NETWORK_EXCEPTION


def test_an_answer_that_is_none(rig: Rig) -> None:
    whole = answered()
    for size in range(len(whole)):
        rig.answers.clear()
        rig.peers.answer = whole[:size]
        assert rig.ask() is ErrorCode.NETWORK_EXCEPTION
    assert rig.failures.count == len(whole)


def test_without_the_loop_a_caller_gets_an_error(rig: Rig) -> None:
    rig.loop_is_gone = True
    with pytest.raises(RuntimeError, match="no loop"):
        rig.ask()
    with pytest.raises(RuntimeError, match="no loop"):
        rig.coordinators.later(5, "0", lambda: None)


def test_a_later_request_is_made_by_the_loop_but_for_the_coordinator_here(rig: Rig) -> None:
    """Which appends to a log, for which the loop may not wait."""
    called: list[str] = []
    for name in ("0", "1", "2"):
        rig.coordinators.later(0, name, partial(called.append, name))
    assert called == ["0", "2"]
    ((place, call),) = rig.on_worker
    call()
    assert place == (STATE_TOPIC, 1) and called[-1] == "1"
    rig.leaders = {}
    rig.coordinators.later(0, "1", partial(called.append, "no topic"))
    assert called[-1] == "no topic"
