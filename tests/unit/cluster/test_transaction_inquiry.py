"""In which partitions coordinators have a producer's transaction: known of all of them, or not at
all."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable, Coroutine, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import replace
from typing import Any

import pytest

from kbroker.cluster.transaction_inquiry import (
    Known,
    OpenIn,
    TransactionInquiry,
    an_id_of_each,
)
from kbroker.coordinator.txn.image import TransactionImage
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
from kbroker.types import ApiKey, TopicPartition

OWN, OTHER = 1, 2
A, B = TopicPartition("a", 0), TopicPartition("b", 3)
SEVEN_A, SEVEN_B, EIGHT_A = OpenIn(7, A), OpenIn(7, B), OpenIn(8, A)
ASKED = frozenset({SEVEN_A, SEVEN_B, EIGHT_A})


def place(name: str, count: int) -> int:
    return int(name.rpartition("-")[2]) % count


class OwnCoordinator:
    def __init__(self) -> None:
        self.error = ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
        self.later: list[ErrorCode] = []  # of the answers that follow
        self.pieces: list[list[tuple[int, frozenset[TopicPartition] | None]]] = []

    def describe(self, name: str) -> TransactionImage | ErrorCode:
        return self.later.pop(0) if self.later else self.error

    def unfinished(
        self, producer_ids: frozenset[int]
    ) -> Iterator[list[tuple[int, frozenset[TopicPartition] | None]]]:
        assert producer_ids == {7, 8}
        yield from self.pieces


class FakePeers:
    def __init__(self) -> None:
        self.described: list[ErrorCode] = []  # by request; then none is unknown
        self.listed: dict[str, tuple[int, str]] = {}
        # What an id is when it is described, which comes after the list.
        self.then: dict[str, tuple[int, str, list[TopicPartition]]] = {}
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
            assert wanted.producer_id_filters == [7, 8]
            listed = [
                list_transactions.TransactionState(
                    transactional_id=name, producer_id=producer_id, transaction_state=state
                )
                for name, (producer_id, state) in self.listed.items()
            ]
            answer: Any = list_transactions.Response(
                error_code=self.error, transaction_states=listed
            )
        else:
            code = self.described.pop(0) if self.described else ErrorCode.NONE
            names = describe_transactions.Request.decode(body, version).transactional_ids
            answer = describe_transactions.Response(
                transaction_states=[self._described(each, code) for each in names]
            )
        return Reader(answer.encode(version), flexible=True)

    def _described(self, name: str, code: ErrorCode) -> describe_transactions.TransactionState:
        if code or name not in self.then:
            return describe_transactions.TransactionState(
                error_code=code or ErrorCode.TRANSACTIONAL_ID_NOT_FOUND, transactional_id=name
            )
        producer_id, state, partitions = self.then[name]
        return describe_transactions.TransactionState(
            error_code=ErrorCode.NONE,
            transactional_id=name,
            transaction_state=state,
            producer_id=producer_id,
            topics=[
                describe_transactions.TopicData(topic=topic, partitions=[index])
                for topic, index in partitions
            ],
        )


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
        for _ in self.inquiry.ask(ASKED, answers.append):
            assert not answers
        (answer,) = answers
        return answer


def at_the_other(
    case: Case, state: str, *partitions: TopicPartition, listed: str = "Ongoing"
) -> Known:
    """What is known where it has one id of producer id 7, in one state as it is listed and in
    another one as it is described."""
    case.peers.listed = {"pay": (7, listed), "over": (8, "CompleteCommit")}
    case.peers.then = {"pay": (7, state, list(partitions)), "over": (8, "Ongoing", [A])}
    return case.ask()


def test_the_partitions_at_this_broker_are_known() -> None:
    case = Case([OWN, OTHER, OWN])
    assert case.own is not None
    assert case.ask() == frozenset()
    assert [key for _, key in case.peers.sent] == [
        ApiKey.DESCRIBE_TRANSACTIONS, ApiKey.LIST_TRANSACTIONS, ApiKey.DESCRIBE_TRANSACTIONS,
    ]  # fmt: skip
    case.own.pieces = [[], [(7, frozenset({B, TopicPartition("c", 0)}))], [(8, frozenset())]]
    assert case.ask() == {SEVEN_B}
    case.own.pieces = [[(7, frozenset({A}))], [(8, None)]]
    assert case.ask() == {SEVEN_A, EIGHT_A}
    case.own.pieces = [[(7, None)]]
    assert case.ask() == {SEVEN_A, SEVEN_B}


def test_the_partitions_at_another_broker_are_known() -> None:
    case = Case([OWN, OTHER, OWN])
    for state in State:
        if state >= 0:
            is_open = "Ongoing" in state.label or "Prepare" in state.label
            expected = frozenset({SEVEN_B}) if is_open else frozenset()
            assert at_the_other(case, state.label, B) == expected, state
            assert at_the_other(case, "Ongoing", B, listed=state.label) == expected, state
    assert at_the_other(case, "Ongoing", A, B) == {SEVEN_A, SEVEN_B}
    assert at_the_other(case, "PrepareAbort", B, listed="StateOfALaterVersion") == {SEVEN_B}


def test_an_id_that_goes_on_between_its_list_and_its_description() -> None:
    """Its transaction with partition a was over in between: what lay there before hangs, or has its
    marker. An id that is forgotten, or has another producer id by then, is over as well."""
    case = Case([OTHER])
    assert at_the_other(case, "CompleteCommit") == frozenset()
    assert at_the_other(case, "Ongoing", B, listed="PrepareCommit") == {SEVEN_B}
    case.peers.then = {"pay": (9, "Ongoing", [A])}
    assert case.ask() == frozenset()
    case.peers.then = {}
    assert case.ask() == frozenset()


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


def other_lost_one_that_it_listed(case: Case) -> None:
    case.peers.listed = {"pay": (7, "Ongoing")}
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
        other_lost_one_that_it_listed, other_does_not_list, other_away, other_unknown, no_topic,
    ],
)  # fmt: skip
def test_without_one_of_them_nothing_is_known(trouble: Callable[[Case], None]) -> None:
    case = Case([OWN, OTHER, OWN])
    trouble(case)
    assert case.ask() is None


def test_a_partition_without_a_leader_may_have_anything() -> None:
    assert Case([OWN, NO_LEADER]).ask() is None


def test_without_a_loop_the_question_raises() -> None:
    case = Case([OTHER])

    def refuse(work: Coroutine[Any, Any, None]) -> Future[None]:
        raise RuntimeError("no loop")

    case.inquiry._submit = refuse  # type: ignore[misc]
    answers: list[Known] = []
    with pytest.raises(RuntimeError):
        list(case.inquiry.ask(ASKED, answers.append))
    assert answers == []


@pytest.mark.parametrize("count", [1, 3, 50])
def test_an_id_for_each_partition(count: int) -> None:
    from kbroker.coordinator.runtime._shard_table import partition_for

    found = an_id_of_each(count, partition_for)
    assert [partition_for(each, count) for each in found] == list(range(count))
