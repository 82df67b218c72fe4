"""APIs of the transaction coordinator, in all versions, over a real one and a model of its log."""

from __future__ import annotations

from typing import Any, Final

import pytest

from kbroker.coordinator.group.expressions import NameExpression
from kbroker.coordinator.txn.image import NO_PAIR, Pair
from kbroker.coordinator.txn.states import State
from kbroker.errors import ErrorCode
from kbroker.handlers import transactions
from kbroker.handlers.registry import REGISTRY
from kbroker.limits import KEPT_CLIENT_ID_CHARS_MAX
from kbroker.metadata.controller.decisions import new_topic_image
from kbroker.metadata.image import OFFSETS_TOPIC, ZERO_UUID, BrokerImage
from kbroker.protocol import messages
from kbroker.types import ApiKey, TopicPartition
from tests.unit.coordinator.txn.world import World
from tests.unit.handlers.support import FakeBroker, FakeRequest

PAY: Final = "pay"
FIRST: Final = Pair(1_000, 0)
OLD: Final = Pair(1_000, -1)
FOREIGN: Final = Pair(7, 0)
NONE: Final = 0


class Served:
    """A broker with a coordinator, and the topics `orders` (2 partitions) and of offsets (4)."""

    def __init__(self) -> None:
        self.world = World()
        self.coordinator: Any = self.world.coordinator
        self.broker = FakeBroker()
        self.created: list[int] = []
        self.client_id = "test"
        self.broker.services.transactions = self
        topics = [
            new_topic_image(name, ZERO_UUID, [(1,)] * count, {})
            for name, count in (("orders", 2), (OFFSETS_TOPIC, 4))
        ]
        controller: Any = self.broker.services.controller
        controller.image = controller.image.with_topics(topics)

    def create_topic(self, controller: object, config: object, brokers: int) -> None:
        self.created.append(brokers)

    def ask(self, api: ApiKey, version: int, /, **fields: Any) -> Any:
        table = getattr(messages, api.name.lower())
        body = table.Request(**fields).encode(version)
        request = FakeRequest(api, version, body, client_id=self.client_id)
        REGISTRY.dispatch(self.broker.services, request)
        assert request.answer is not None
        return table.Response.decode(request.answer, version)

    def client(self) -> tuple[str, str]:
        answer = self.ask(
            ApiKey.DESCRIBE_TRANSACTIONS, 0, transactional_ids=[PAY], with_clients=True
        )
        (found,) = answer.transaction_states
        return found.client_id, found.client_host

    def init(self, version: int = 5, pair: Pair = NO_PAIR, **fields: Any) -> Any:
        fields = {"transactional_id": PAY, "transaction_timeout_ms": 60_000, **fields}
        if version >= 3:
            fields |= {"producer_id": pair.producer_id, "producer_epoch": pair.epoch}
        return self.ask(ApiKey.INIT_PRODUCER_ID, version, **fields)

    def add(self, version: int, pair: Pair = FIRST, *places: tuple[str, int]) -> list[int]:
        """Errors of the partitions, in their order."""
        table = messages.add_partitions_to_txn
        topics = [
            table.AddPartitionsToTxnTopic(name=topic, partitions=[index])
            for topic, index in places or [("orders", 0)]
        ]
        if version >= 4:
            transaction = table.AddPartitionsToTxnTransaction(
                transactional_id=PAY, producer_id=pair.producer_id, producer_epoch=pair.epoch,
                topics=topics,
            )  # fmt: skip
            answer = self.ask(ApiKey.ADD_PARTITIONS_TO_TXN, version, transactions=[transaction])
            (result,) = answer.results_by_transaction
            results = result.topic_results
        else:
            answer = self.ask(
                ApiKey.ADD_PARTITIONS_TO_TXN, version, v3_and_below_transactional_id=PAY,
                v3_and_below_producer_id=pair.producer_id, v3_and_below_producer_epoch=pair.epoch,
                v3_and_below_topics=topics,
            )  # fmt: skip
            results = answer.results_by_topic_v3_and_below
        return [
            each.partition_error_code for topic in results for each in topic.results_by_partition
        ]

    def end(self, version: int, pair: Pair = FIRST, committed: bool = True) -> Any:
        return self.ask(
            ApiKey.END_TXN, version, transactional_id=PAY, producer_id=pair.producer_id,
            producer_epoch=pair.epoch, committed=committed,
        )  # fmt: skip


@pytest.fixture
def served() -> Served:
    served = Served()
    assert served.init().producer_id == FIRST.producer_id
    return served


@pytest.mark.parametrize("version", range(6))
def test_a_producer_gets_its_pair(version: int) -> None:
    served = Served()
    for epoch in range(2):
        answer = served.init(version)
        assert (answer.error_code, answer.producer_id, answer.producer_epoch) == (
            NONE,
            1_000,
            epoch,
        )
    assert served.init(version, transactional_id="").error_code == ErrorCode.INVALID_REQUEST
    wrong = served.init(version, transaction_timeout_ms=900_001)
    assert (wrong.error_code, wrong.producer_id) == (ErrorCode.INVALID_TRANSACTION_TIMEOUT, -1)


@pytest.mark.parametrize(("version", "code"), [(3, 47), (4, 90), (5, 90)])
def test_the_error_of_a_fence_goes_by_the_version(served: Served, version: int, code: int) -> None:
    assert served.init(version, FOREIGN).error_code == code


def test_a_producer_id_and_an_epoch_come_together(served: Served) -> None:
    assert served.init(5, Pair(1_000, -1)).error_code == ErrorCode.INVALID_REQUEST
    assert served.init(5, Pair(-1, 0)).error_code == ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize("version", range(6))
def test_partitions_are_added(served: Served, version: int) -> None:
    assert served.add(version, FIRST, ("orders", 0), ("orders", 1)) == [NONE, NONE]
    image = served.coordinator.find(PAY)
    assert image.partitions == {TopicPartition("orders", 0), TopicPartition("orders", 1)}
    assert image.client_version == (2 if version >= 4 else 0)
    assert served.add(version, FOREIGN) == [49]
    assert served.add(version, OLD) == [90 if version >= 2 else 47]


@pytest.mark.parametrize("version", range(6))
def test_one_partition_that_is_unknown_keeps_the_others_out(served: Served, version: int) -> None:
    places = ("orders", 0), ("none", 0), ("orders", 9)
    assert served.add(version, FIRST, *places) == [55, 3, 3]
    assert served.coordinator.find(PAY).state is State.EMPTY


def test_partitions_are_looked_up_before_the_id_is(served: Served) -> None:
    """In each topic once, however often it was named."""
    table = messages.add_partitions_to_txn
    topics = [
        table.AddPartitionsToTxnTopic(name=name, partitions=[index])
        for name, index in (("orders", 0), ("none", 0), ("orders", 1))
    ]
    answer = served.ask(
        ApiKey.ADD_PARTITIONS_TO_TXN, 3, v3_and_below_transactional_id="",
        v3_and_below_producer_id=5, v3_and_below_producer_epoch=0, v3_and_below_topics=topics,
    )  # fmt: skip
    assert {
        topic.name: [each.partition_error_code for each in topic.results_by_partition]
        for topic in answer.results_by_topic_v3_and_below
    } == {"orders": [55, 55], "none": [3]}


def test_a_client_may_not_write_to_internal_topics(served: Served) -> None:
    assert served.add(3, FIRST, ("orders", 0), (OFFSETS_TOPIC, 0)) == [55, 29]
    assert served.add(4, FIRST, ("orders", 0), (OFFSETS_TOPIC, 0)) == [NONE, NONE]


@pytest.mark.parametrize("version", [4, 5])
def test_brokers_verify_many_transactions_at_once(served: Served, version: int) -> None:
    table = messages.add_partitions_to_txn
    served.init(transactional_id="other")
    served.add(3)

    def asked(name: str, pair: Pair, *indexes: int) -> Any:
        topic = table.AddPartitionsToTxnTopic(name="orders", partitions=list(indexes))
        return table.AddPartitionsToTxnTransaction(
            transactional_id=name, producer_id=pair.producer_id, producer_epoch=pair.epoch,
            verify_only=True, topics=[topic],
        )  # fmt: skip

    answer = served.ask(
        ApiKey.ADD_PARTITIONS_TO_TXN, version,
        transactions=[
            asked("other", Pair(1_001, 5), 0), asked(PAY, FIRST, 0), asked(PAY, FIRST, 0, 1),
            asked("none", FIRST, 0),
        ],
    )  # fmt: skip
    found = {
        each.transactional_id: [
            result.partition_error_code for result in each.topic_results[0].results_by_partition
        ]
        for each in answer.results_by_transaction
    }
    assert found == {"other": [90], PAY: [NONE, 120], "none": [49]}
    assert served.coordinator.find(PAY).partitions == {TopicPartition("orders", 0)}
    empty = served.ask(ApiKey.ADD_PARTITIONS_TO_TXN, version, transactions=[])
    assert (empty.error_code, empty.results_by_transaction) == (NONE, [])


def test_a_transaction_that_raises_takes_no_answer_from_others(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    served.add(3)
    verify = served.coordinator.verify_partitions

    def raises(name: str, *how: Any) -> Any:
        if name == "broken":
            raise OSError("no memory")
        return verify(name, *how)

    monkeypatch.setattr(served.coordinator, "verify_partitions", raises)
    table = messages.add_partitions_to_txn
    topic = table.AddPartitionsToTxnTopic(name="orders", partitions=[0])
    answer = served.ask(
        ApiKey.ADD_PARTITIONS_TO_TXN, 5,
        transactions=[
            table.AddPartitionsToTxnTransaction(
                transactional_id=name, producer_id=FIRST.producer_id, producer_epoch=0,
                verify_only=True, topics=[topic],
            )
            for name in ("broken", PAY)
        ],
    )  # fmt: skip
    assert [
        each.topic_results[0].results_by_partition[0].partition_error_code
        for each in answer.results_by_transaction
    ] == [-1, NONE]


@pytest.mark.parametrize("version", range(5))
def test_the_partition_of_a_group_is_added(served: Served, version: int) -> None:
    def add(pair: Pair) -> int:
        answer = served.ask(
            ApiKey.ADD_OFFSETS_TO_TXN, version, transactional_id=PAY,
            producer_id=pair.producer_id, producer_epoch=pair.epoch, group_id="g",
        )  # fmt: skip
        code: int = answer.error_code
        return code

    assert add(FIRST) == NONE
    # "g" is 103, and there are 4 partitions.
    assert served.coordinator.find(PAY).partitions == {TopicPartition(OFFSETS_TOPIC, 3)}
    assert (add(FOREIGN), add(OLD)) == (49, 90 if version >= 2 else 47)


@pytest.mark.parametrize("version", range(6))
def test_a_transaction_ends(served: Served, version: int) -> None:
    served.add(3)
    answer = served.end(version)
    assert answer.error_code == NONE
    pair = Pair(answer.producer_id, answer.producer_epoch)
    assert pair == (Pair(1_000, 1) if version >= 5 else Pair(-1, -1))
    assert served.coordinator.find(PAY).state is State.COMPLETE_COMMIT
    refused = served.end(version, OLD, committed=False)
    assert refused.error_code == (90 if version >= 2 else 47)
    assert (refused.producer_id, refused.producer_epoch) == (-1, -1)


def test_ids_are_described(served: Served) -> None:
    served.add(3, FIRST, ("orders", 1), ("orders", 0))
    answer = served.ask(ApiKey.DESCRIBE_TRANSACTIONS, 0, transactional_ids=[PAY, "none", ""])
    pay, none, empty = answer.transaction_states
    assert (none.error_code, empty.error_code) == (105, 42)
    assert (pay.error_code, pay.transaction_state, pay.producer_id) == (NONE, "Ongoing", 1_000)
    assert (pay.transaction_timeout_ms, pay.producer_epoch) == (60_000, 0)
    assert [(each.topic, each.partitions) for each in pay.topics] == [("orders", [0, 1])]
    assert (pay.client_id, pay.client_host) == ("", "")  # not asked for, so not sent


@pytest.mark.parametrize("step", ["init", "add", "add offsets", "end"])
def test_the_client_of_an_id_is_described_on_request(served: Served, step: str) -> None:
    served.add(3)
    served.coordinator.load({PAY: served.coordinator.find(PAY)}, served.world.log.term)
    assert served.client() == ("", "")
    served.client_id = "cashier"
    served.add(4)  # of a broker
    assert served.client() == ("", "")
    match step:
        case "init":
            assert served.init().error_code == 51  # the transaction is aborted first
            assert served.client() == ("", "")
            served.init()
        case "add":
            served.add(3, OLD)
            assert served.client() == ("", "")
            served.add(3, FIRST, ("orders", 1))
        case "add offsets":
            served.ask(ApiKey.ADD_OFFSETS_TO_TXN, 4, transactional_id=PAY, producer_id=1_000,
                       producer_epoch=0, group_id="g")  # fmt: skip
        case "end":
            served.end(5)
    assert served.client() == ("cashier", "127.0.0.1")


def test_a_long_client_id_is_kept_in_part(served: Served) -> None:
    served.client_id = "c" * 30_000
    served.end(5, committed=False)
    assert served.client() == ("c" * KEPT_CLIENT_ID_CHARS_MAX, "127.0.0.1")


@pytest.mark.parametrize(
    ("version", "filters", "found"),
    [
        (0, {}, ["open", PAY]),
        (0, {"state_filters": ["Ongoing"]}, ["open"]),
        (0, {"producer_id_filters": [1_000, 5]}, [PAY]),
        (1, {"duration_filter": 0}, [PAY]),
        (1, {"duration_filter": -1}, ["open", PAY]),
        (2, {"transactional_id_pattern": "p.*"}, [PAY]),
        (2, {"transactional_id_pattern": "pe"}, []),
        (2, {"transactional_id_pattern": ""}, ["open", PAY]),
        (2, {"transactional_id_pattern": "o.*|(?i)PAY.*"}, ["open", PAY]),
    ],
)
def test_a_list_with_filters(
    served: Served, version: int, filters: dict[str, Any], found: list[str]
) -> None:
    """An id without a transaction counts as one that is open for long."""
    served.init(transactional_id="open")
    served.world.add(Pair(1_001, 0), name="open")
    clock: Any = served.broker.services.clock
    clock.set_wall_ms(served.world.clock.wall_ms())
    request = {"state_filters": [], "producer_id_filters": [], **filters}
    answer = served.ask(ApiKey.LIST_TRANSACTIONS, version, **request)
    assert answer.error_code == NONE
    assert sorted(each.transactional_id for each in answer.transaction_states) == found


@pytest.mark.parametrize("version", range(3))
def test_there_is_no_list_while_ids_are_loaded(
    served: Served, version: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    request: dict[str, Any] = {"state_filters": ["none"], "producer_id_filters": []}
    served.world.log.code = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    before = served.ask(ApiKey.LIST_TRANSACTIONS, version, **request)
    served.world.log.code = ErrorCode.NONE

    def begins_meanwhile() -> Any:
        served.world.log.code = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        yield from ()

    monkeypatch.setattr(served.coordinator, "listings", begins_meanwhile)
    for answer in (before, served.ask(ApiKey.LIST_TRANSACTIONS, version, **request)):
        assert answer.error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        assert (answer.unknown_state_filters, answer.transaction_states) == ([], [])


def test_names_of_states_that_do_not_exist_and_patterns_that_are_none(served: Served) -> None:
    answer = served.ask(
        ApiKey.LIST_TRANSACTIONS, 0, state_filters=["ongoing", "Dead"], producer_id_filters=[]
    )
    assert answer.unknown_state_filters == ["ongoing"]
    answer = served.ask(
        ApiKey.LIST_TRANSACTIONS, 2, state_filters=[], producer_id_filters=[],
        transactional_id_pattern="(",
    )  # fmt: skip
    assert answer.error_code == ErrorCode.INVALID_REGULAR_EXPRESSION


@pytest.mark.parametrize(
    "pattern",
    ["(?:(?:){4000000000}){4000000000}", "a{1001}", "(a)\\1", "(?=a)b", "\u00e9", "(" * 30_000],
)
def test_a_pattern_that_the_automaton_does_not_take_is_an_error(
    served: Served, pattern: str
) -> None:
    """The first one, of 60 bytes, kept a handler busy for ever."""
    answer = served.ask(
        ApiKey.LIST_TRANSACTIONS, 2, state_filters=[], producer_id_filters=[],
        transactional_id_pattern=pattern,
    )  # fmt: skip
    assert answer.error_code == ErrorCode.INVALID_REGULAR_EXPRESSION


def test_a_pattern_is_held_against_the_ids_alone_that_the_client_may_see(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("p-1", "p-2"):
        served.init(transactional_id=name)
    monkeypatch.setattr(transactions, "denied", lambda *_, **__: frozenset({"p-1"}))
    looked_at: list[str] = []
    matching = NameExpression.matching

    def noted(expression: NameExpression, names: list[str]) -> list[str]:
        looked_at.extend(names)
        return matching(expression, names)

    monkeypatch.setattr(NameExpression, "matching", noted)
    answer = served.ask(
        ApiKey.LIST_TRANSACTIONS, 2, state_filters=[], producer_id_filters=[],
        transactional_id_pattern="p-.",
    )  # fmt: skip
    assert [each.transactional_id for each in answer.transaction_states] == ["p-2"]
    assert "p-1" not in looked_at


@pytest.mark.parametrize("version", range(7))
def test_the_coordinator_is_found_once_the_topic_is_there(served: Served, version: int) -> None:
    def find() -> tuple[int, int]:
        fields: dict[str, Any] = {} if version == 0 else {"key_type": 1}
        if version == 0:
            return 0, 1
        if version >= 4:
            answer = served.ask(ApiKey.FIND_COORDINATOR, version, coordinator_keys=[PAY], **fields)
            (answer,) = answer.coordinators
        else:
            answer = served.ask(ApiKey.FIND_COORDINATOR, version, key=PAY, **fields)
        return answer.error_code, answer.node_id

    if version:
        assert find() == (ErrorCode.COORDINATOR_NOT_AVAILABLE, -1)
        assert served.created == [1]
    topic = new_topic_image("__transaction_state", ZERO_UUID, [(1,)] * 50, {})
    controller: Any = served.broker.services.controller
    controller.image = controller.image.with_topics([topic])
    assert find() == (NONE, 1)


def test_the_topic_waits_for_brokers_of_an_earlier_kbroker(served: Served) -> None:
    """A rolling restart: one of them would return aborted records as committed ones."""
    controller: Any = served.broker.services.controller
    new = controller.image
    controller.image = new.with_brokers([*new.brokers.values(), BrokerImage(2, "old", 9093)])
    for image, created in ((controller.image, []), (new, [1])):
        controller.image = image
        answer = served.ask(ApiKey.FIND_COORDINATOR, 3, key=PAY, key_type=1)
        assert answer.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert served.created == created


def test_a_broker_that_coordinates_nothing(served: Served) -> None:
    served.coordinator = None
    assert served.init().error_code == ErrorCode.NOT_COORDINATOR
    assert served.add(3) == [ErrorCode.NOT_COORDINATOR]
    assert served.end(5).error_code == ErrorCode.NOT_COORDINATOR
    answer = served.ask(ApiKey.DESCRIBE_TRANSACTIONS, 0, transactional_ids=[PAY])
    assert answer.transaction_states[0].error_code == ErrorCode.NOT_COORDINATOR
    assert served.add(4) == [ErrorCode.NOT_COORDINATOR]


def test_a_broker_that_does_not_serve_transactions(served: Served) -> None:
    served.broker.services.transactions = None
    assert served.add(3, FIRST, ("orders", 0), ("orders", 1)) == [35, 35]
    answer = served.ask(ApiKey.ADD_PARTITIONS_TO_TXN, 5, transactions=[])
    assert answer.error_code == ErrorCode.UNSUPPORTED_VERSION
    assert served.end(5).error_code == ErrorCode.UNSUPPORTED_VERSION
