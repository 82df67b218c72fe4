"""Whether no coordinator has a producer id: known of all of them, or not at all."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable, Coroutine, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import replace
from typing import Any

import pytest

from kbroker.cluster.transaction_inquiry import Known, TransactionInquiry, an_id_of_each
from kbroker.coordinator.txn.image import TransactionImage, created
from kbroker.coordinator.txn.states import State
from kbroker.errors import ErrorCode, KafkaError
from kbroker.metadata.image import (
    NO_LEADER,
    TRANSACTIONS_TOPIC,
    BrokerImage,
    ClusterImage,
    PartitionImage,
    TopicImage,
)
from kbroker.peer.address import Address
from kbroker.protocol.messages import describe_transactions, list_transactions
from kbroker.protocol.wire import Reader
from kbroker.types import ApiKey

OWN, OTHER = 1, 2
IDS = frozenset({7, 8})


def place(name: str, count: int) -> int:
    return int(name.rpartition("-")[2]) % count


class OwnCoordinator:
    def __init__(self) -> None:
        self.error = ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
        self.later: list[ErrorCode] = []  # of the answers that follow
        self.images: list[tuple[str, TransactionImage]] = []

    def describe(self, name: str) -> TransactionImage | ErrorCode:
        return self.later.pop(0) if self.later else self.error

    def listings(self) -> Iterator[tuple[str, TransactionImage]]:
        yield from self.images


class FakePeers:
    def __init__(self) -> None:
        self.described: list[ErrorCode] = []  # by request; then none is unknown
        self.listed: list[tuple[int, str]] = []
        self.error = ErrorCode.NONE
        self.unreachable: KafkaError | None = None
        self.sent: list[tuple[Address, ApiKey]] = []

    async def wait_ready(
        self, address: Address, *, timeout_ms: int | None = None, fail_fast: bool = False
    ) -> None:
        if self.unreachable is not None:
            raise self.unreachable

    def version(self, address: Address, api_key: ApiKey, lowest: int, highest: int) -> int:
        return highest

    async def call(self, address: Address, api_key: ApiKey, version: int, body: bytes) -> Reader:
        self.sent.append((address, api_key))
        if api_key is ApiKey.LIST_TRANSACTIONS:
            wanted = list_transactions.Request.decode(body, version)
            assert wanted.producer_id_filters == sorted(IDS)
            listed = [
                list_transactions.TransactionState(
                    transactional_id="x", producer_id=producer_id, transaction_state=state
                )
                for producer_id, state in self.listed
            ]
            answer: Any = list_transactions.Response(
                error_code=self.error, transaction_states=listed
            )
        else:
            code = self.described.pop(0) if self.described else ErrorCode.NONE
            names = describe_transactions.Request.decode(body, version).transactional_ids
            answer = describe_transactions.Response(
                transaction_states=[
                    describe_transactions.TransactionState(
                        error_code=code or ErrorCode.TRANSACTIONAL_ID_NOT_FOUND,
                        transactional_id=each,
                    )
                    for each in names
                ]
            )
        return Reader(answer.encode(version), flexible=True)


class Case:
    def __init__(self, leaders: Sequence[int]) -> None:
        name = TRANSACTIONS_TOPIC
        partitions = tuple(
            PartitionImage(name, index, (OWN, OTHER), (OWN, OTHER), leader, 0, 0)
            for index, leader in enumerate(leaders)
        )
        self.image = ClusterImage(
            brokers={OTHER: BrokerImage(OTHER, "there", 9092)},
            topics={name: TopicImage(name, uuid.uuid4(), partitions, {}, True)},
        )
        self.own: OwnCoordinator | None = OwnCoordinator()
        self.peers = FakePeers()
        self.inquiry = TransactionInquiry(
            OWN,
            lambda: self.image,
            place,
            lambda: self.own,  # type: ignore[arg-type, return-value]
            self._submit,
            lambda: self.peers,
        )

    def _submit(self, work: Coroutine[Any, Any, None]) -> Future[None]:
        asyncio.run(work)
        return Future()

    def ask(self) -> Known:
        answers: list[Known] = []
        self.inquiry.ask(IDS, answers.append)
        (answer,) = answers
        return answer


def image(producer_id: int, state: State) -> TransactionImage:
    return created(producer_id, 60_000, 0)._replace(state=state)


def test_what_is_open_at_either_broker_is_known() -> None:
    case = Case([OWN, OTHER, OWN])
    assert case.own is not None
    assert case.ask() == frozenset()
    assert [key for _, key in case.peers.sent] == [
        ApiKey.DESCRIBE_TRANSACTIONS, ApiKey.LIST_TRANSACTIONS, ApiKey.DESCRIBE_TRANSACTIONS,
    ]  # fmt: skip
    for state in State:
        if state >= 0:
            case.own.images = [("a", image(7, state)), ("b", image(9, State.ONGOING))]
            is_open = "Ongoing" in state.label or "Prepare" in state.label
            assert case.ask() == (frozenset({7}) if is_open else frozenset()), state
            case.own.images = []
            case.peers.listed = [(8, state.label)]
            assert case.ask() == (frozenset({8}) if is_open else frozenset()), state
            case.peers.listed = []


def not_loaded(case: Case) -> None:
    assert case.own is not None
    case.own.error = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS


def lost_meanwhile(case: Case) -> None:
    assert case.own is not None
    unknown = ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
    case.own.later = [unknown, unknown, ErrorCode.NOT_COORDINATOR]


def no_coordinator(case: Case) -> None:
    case.own = None


def other_not_loaded(case: Case) -> None:
    case.peers.described = [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS]


def other_lost_meanwhile(case: Case) -> None:
    case.peers.described = [ErrorCode.NONE, ErrorCode.NOT_COORDINATOR]


def other_does_not_list(case: Case) -> None:
    case.peers.error = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS


def other_away(case: Case) -> None:
    case.peers.unreachable = KafkaError(ErrorCode.NETWORK_EXCEPTION, "away")


def other_unknown(case: Case) -> None:
    case.image = replace(case.image, brokers={})


def no_topic(case: Case) -> None:
    case.image = replace(case.image, topics={})


@pytest.mark.parametrize(
    "trouble",
    [
        not_loaded, lost_meanwhile, no_coordinator, other_not_loaded, other_lost_meanwhile,
        other_does_not_list, other_away, other_unknown, no_topic,
    ],
)  # fmt: skip
def test_without_one_of_them_nothing_is_known(trouble: Callable[[Case], None]) -> None:
    case = Case([OWN, OTHER, OWN])
    trouble(case)
    assert case.ask() is None


def test_a_partition_without_a_leader_may_have_anything() -> None:
    assert Case([OWN, NO_LEADER]).ask() is None


def test_without_a_loop_nothing_is_known() -> None:
    case = Case([OTHER])

    def refuse(work: Coroutine[Any, Any, None]) -> Future[None]:
        raise RuntimeError("no loop")

    case.inquiry._submit = refuse  # type: ignore[misc]
    answers: list[Known] = []
    with pytest.raises(RuntimeError):
        case.inquiry.ask(IDS, answers.append)
    assert answers == [None]


@pytest.mark.parametrize("count", [1, 3, 50])
def test_an_id_for_each_partition(count: int) -> None:
    from kbroker.coordinator.runtime._shard_table import partition_for

    found = an_id_of_each(count, partition_for)
    assert [partition_for(each, count) for each in found] == list(range(count))
