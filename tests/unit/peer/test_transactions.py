"""Transactions from outside: what is sent, what of several brokers' answers counts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from types import SimpleNamespace
from typing import Any

import pytest

from kbroker.errors import ErrorCode, KafkaError
from kbroker.peer import transaction_messages as messages
from kbroker.peer.cluster import Cluster
from kbroker.peer.transaction_messages import Filter
from kbroker.peer.transactions import Transactions
from kbroker.protocol.messages import describe_producers, describe_transactions, list_transactions
from kbroker.protocol.wire import Reader
from kbroker.types import ApiKey, TopicPartition

A, B = TopicPartition("a", 0), TopicPartition("b", 3)
NOT_HERE = ErrorCode.NOT_COORDINATOR
UNKNOWN = ErrorCode.TRANSACTIONAL_ID_NOT_FOUND


class FakeCluster:
    """Of brokers that answer with bodies; a body may be an error."""

    listed_everywhere: Any = Cluster.listed_everywhere

    def __init__(self) -> None:
        self.answers: dict[int, Callable[[bytes, int], bytes] | KafkaError] = {}
        self.has_topic = True
        self.tries = 0

    def everywhere(
        self, api_key: ApiKey, encode: Callable[[int], bytes], decode: Callable[..., Any], **_: Any
    ) -> Mapping[int, Any]:
        version = {ApiKey.LIST_TRANSACTIONS: 2}.get(api_key, 0)
        found: dict[int, Any] = {}
        for node_id, answer in self.answers.items():
            if isinstance(answer, KafkaError):
                found[node_id] = answer
            else:
                body = answer(encode(version), version)
                found[node_id] = decode(Reader(body, flexible=True), version)
        return found

    def retrying(self, attempt: Callable[[], Any]) -> Any:
        while True:
            self.tries += 1
            try:
                return attempt()
            except KafkaError as error:
                if not error.code.retriable or self.tries > 2:
                    raise

    def metadata(self, topics: Iterable[str]) -> Any:
        error = ErrorCode.NONE if self.has_topic else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return SimpleNamespace(topics={name: SimpleNamespace(error=error) for name in topics})


@pytest.fixture
def cluster() -> FakeCluster:
    return FakeCluster()


@pytest.fixture
def asked(cluster: FakeCluster) -> Transactions:
    client: Any = SimpleNamespace(cluster=cluster)
    return Transactions(client)


def listing(*entries: tuple[str, int, str], error: int = 0) -> Callable[[bytes, int], bytes]:
    def answer(body: bytes, version: int) -> bytes:
        table = list_transactions
        request = table.Request.decode(body, version)
        states = [
            table.TransactionState(
                transactional_id=name, producer_id=producer_id, transaction_state=state
            )
            for name, producer_id, state in entries
            if not request.producer_id_filters or producer_id in request.producer_id_filters
        ]
        return table.Response(error_code=error, transaction_states=states).encode(version)

    return answer


def describing(errors: Mapping[str, ErrorCode]) -> Callable[[bytes, int], bytes]:
    def answer(body: bytes, version: int) -> bytes:
        table = describe_transactions
        names = table.Request.decode(body, version).transactional_ids
        states = [
            table.TransactionState(
                error_code=errors.get(name, NOT_HERE),
                transactional_id=name,
                transaction_state="Ongoing",
                producer_id=7,
                topics=[table.TopicData(topic="a", partitions=[0, 2])],
            )
            for name in names
        ]
        return table.Response(transaction_states=states).encode(version)

    return answer


def test_ids_of_every_broker_by_name(cluster: FakeCluster, asked: Transactions) -> None:
    cluster.answers = {1: listing(("z", 7, "Ongoing")), 2: listing(("b", 8, "Empty"))}
    found = asked.list_transactions()
    assert [(each.coordinator, each.transaction.transactional_id) for each in found] == [
        (2, "b"), (1, "z"),
    ]  # fmt: skip
    assert [each.coordinator for each in asked.list_transactions(Filter(producer_ids=(7,)))] == [1]


def test_one_broker_that_does_not_list_is_an_error(
    cluster: FakeCluster, asked: Transactions
) -> None:
    cluster.answers = {1: listing(), 2: listing(error=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)}
    with pytest.raises(KafkaError, match="did not list"):
        asked.list_transactions()
    assert cluster.tries == 3
    cluster.answers[2] = KafkaError(ErrorCode.NETWORK_EXCEPTION, "away")
    with pytest.raises(KafkaError, match="away"):
        asked.list_transactions()


def test_the_coordinator_of_each_id_describes_it(cluster: FakeCluster, asked: Transactions) -> None:
    cluster.answers = {
        1: describing({"x": ErrorCode.NONE}),
        2: describing({"y": UNKNOWN}),
        3: KafkaError(ErrorCode.NETWORK_EXCEPTION, "away"),
    }
    found = asked.describe(["x", "y"])
    assert found["x"].coordinator == 1 and found["x"].transaction.producer_id == 7
    assert found["x"].transaction.partitions == (A, TopicPartition("a", 2))
    assert found["y"].transaction.error is UNKNOWN
    assert asked.describe([]) == {}


def test_an_id_that_no_broker_coordinates(cluster: FakeCluster, asked: Transactions) -> None:
    cluster.answers = {1: describing({}), 2: describing({"x": ErrorCode.NOT_COORDINATOR})}
    with pytest.raises(KafkaError, match="NOT_COORDINATOR"):
        asked.describe(["x"])
    cluster.answers[2] = KafkaError(ErrorCode.NETWORK_EXCEPTION, "away")
    with pytest.raises(KafkaError, match="away"):
        asked.describe(["x"])
    cluster.has_topic = False  # there has been no transaction
    assert asked.describe(["x"])["x"].transaction.error is UNKNOWN


def test_filters_that_a_broker_does_not_have() -> None:
    assert messages.encode_list_transactions(0, Filter(states=("Ongoing",)))
    for version, wanted in ((0, Filter(open_for_ms=5)), (1, Filter(pattern="a.*"))):
        with pytest.raises(KafkaError, match=rf"ListTransactions {version}\)"):
            messages.encode_list_transactions(version, wanted)
        sent = messages.encode_list_transactions(version + 1, wanted)
        request = list_transactions.Request.decode(sent, version + 1)
        assert (request.duration_filter, request.transactional_id_pattern) == (
            wanted.open_for_ms, wanted.pattern,
        )  # fmt: skip


def test_states_that_a_broker_does_not_know() -> None:
    body = list_transactions.Response(error_code=0, unknown_state_filters=["Gone"]).encode(2)
    with pytest.raises(KafkaError, match="Gone"):
        messages.decode_list_transactions(Reader(body, flexible=True), 2)


def test_producers_of_partitions() -> None:
    table = describe_producers
    sent = table.Request.decode(messages.encode_describe_producers(0, [A, B]), 0)
    assert [(each.name, list(each.partition_indexes)) for each in sent.topics] == [
        ("a", [0]), ("b", [3]),
    ]  # fmt: skip
    state = table.ProducerState(
        producer_id=7, producer_epoch=2, last_sequence=4, last_timestamp=99, coordinator_epoch=3,
        current_txn_start_offset=12,
    )  # fmt: skip
    answer = table.Response(
        topics=[
            table.TopicResponse(
                name="a",
                partitions=[
                    table.PartitionResponse(
                        partition_index=0, error_code=0, active_producers=[state]
                    )
                ],
            )
        ]
    ).encode(0)
    found = messages.decode_describe_producers(Reader(answer, flexible=True), 0)
    assert found[A].producers == (messages.DescribedProducer(7, 2, 4, 99, 3, 12),)
