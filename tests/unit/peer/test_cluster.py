"""Several brokers asked at a time: one that hangs, one that is lost, one of another certificate."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from kbroker.clock import ManualClock
from kbroker.errors import ErrorCode, KafkaError, UserError
from kbroker.peer.address import Address
from kbroker.peer.cluster import Ask, Cluster
from kbroker.peer.link import network_error
from kbroker.peer.links import SILENCE_MS
from kbroker.peer.messages import (
    BrokerAddress,
    ClusterMetadata,
    PartitionMetadata,
    TopicMetadata,
)
from kbroker.protocol.wire import Reader
from kbroker.types import ApiKey, TopicPartition

A, B, C = Address("a", 1), Address("b", 1), Address("c", 1)
TIMEOUT_MS = 5_000


class FakeLink:
    """Its broker sends each request back."""

    def __init__(self, brokers: Brokers, address: Address) -> None:
        self.address = address
        self.usable = True
        self.was_late = False
        self.is_lost = False
        self._clock = brokers.clock
        self._sent = brokers.sent
        self._brokers = brokers
        self._due: list[bytes] = []

    @property
    def is_waiting(self) -> bool:
        return bool(self._due)

    def version(self, api_key: ApiKey) -> int:
        return 0

    def send(self, api_key: ApiKey, version: int, body: bytes, deadline_ns: int) -> None:
        if self.address in self._brokers.not_renewed:
            self.close()
            raise KafkaError(ErrorCode.SASL_AUTHENTICATION_FAILED, "no such user")
        self._sent.append(body)
        self._due.append(body)

    def receive(self, deadline_ns: int) -> Reader:
        if not self._due:
            raise network_error(f"{self.address} is closed")
        body = self._due.pop(0)
        if self.is_lost:
            self.close()
            raise network_error(f"{self.address} closed the connection")
        if self._clock.monotonic_ns() >= deadline_ns:
            self.was_late = True
            self.close()
            raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, f"{self.address} did not answer")
        return Reader(body, flexible=False)

    def close(self) -> None:
        self.usable = False
        self._due.clear()


class Brokers:
    """Opens links. A broker of `hung` takes the whole time and fails; `failing` fail at once."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.hung: set[Address] = set()
        self.failing: dict[Address, Exception] = {}
        self.not_renewed: set[Address] = set()
        self.tries: list[tuple[Address, int]] = []
        self.sent: list[bytes] = []

    def open(self, address: Address, client_id: str, timeout_ms: int, *_: Any) -> FakeLink:
        self.tries.append((address, timeout_ms))
        if address in self.hung:
            self.clock.advance(timeout_ms)
            raise network_error(f"cannot connect to {address}")
        if address in self.failing:
            raise self.failing[address]
        return FakeLink(self, address)


@pytest.fixture
def brokers(monkeypatch: pytest.MonkeyPatch) -> Brokers:
    brokers = Brokers()
    monkeypatch.setattr("kbroker.peer.links.open_link", brokers.open)
    return brokers


@pytest.fixture
def cluster(brokers: Brokers) -> Cluster:
    return Cluster("a:1", client_id="test", timeout_ms=TIMEOUT_MS, clock=brokers.clock)


def _number(reader: Reader, version: int) -> int:
    return reader.int32()


def ask(
    address: Address,
    number: int,
    api_key: ApiKey = ApiKey.LIST_GROUPS,
    decode: Callable[[Reader, int], Any] = _number,
) -> Ask:
    return Ask(address, api_key, lambda version: number.to_bytes(4, "big"), decode)


def codes(results: Sequence[Any]) -> list[Any]:
    return [each.code if isinstance(each, KafkaError) else each for each in results]


def test_leaders_of_many_topics_are_forgotten(brokers: Brokers, cluster: Cluster) -> None:
    cluster._leaders = {str(number): {0: 1} for number in range(5)}
    cluster.bound_leaders(5)
    assert cluster._leader(TopicPartition("3", 0)) == 1
    cluster.bound_leaders(4)
    assert cluster._leader(TopicPartition("3", 0)) == -1


# --- brokers that do not know the user ---


REFUSED = KafkaError(ErrorCode.SASL_AUTHENTICATION_FAILED, "no such user")


def logged_in_at_a(brokers: Brokers) -> Cluster:
    """As the console's client: broker 1 has taken the name and password."""
    found = Cluster("a:1", client_id="test", timeout_ms=TIMEOUT_MS, clock=brokers.clock, home=1)
    found.brokers = {1: A, 2: B}
    return found


def test_the_broker_at_home_is_not_asked_where_it_is_advertised(
    brokers: Brokers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another machine may be there, and would get the name and the password."""
    advertised = {1: Address("balancer", 1), 2: B}
    answer = SimpleNamespace(brokers=advertised, controller_id=1, topics={})
    monkeypatch.setattr(
        "kbroker.peer.messages.decode_metadata", lambda reader, version: (reader.int32(), answer)[1]
    )
    monkeypatch.setattr("kbroker.peer.messages.encode_metadata", lambda *_, **__: bytes(4))
    cluster = logged_in_at_a(brokers)
    cluster.metadata([])
    assert cluster.brokers == {1: A, 2: B}
    assert cluster.any_broker() == A


def test_another_broker_that_refuses_the_login_counts_as_away(brokers: Brokers) -> None:
    cluster = logged_in_at_a(brokers)
    brokers.failing[B] = REFUSED
    for _ in range(3):
        away, answer = cluster.ask_all([ask(B, 1), ask(A, 2)])
        assert away.code is ErrorCode.NETWORK_EXCEPTION and answer == 2
        assert away.message == "b:1 refuses the login: no such user"
    assert [address for address, _ in brokers.tries] == [B, A], "not a login for each question"
    brokers.clock.advance(SILENCE_MS)
    del brokers.failing[B]
    assert cluster.ask_all([ask(B, 1)]) == [1]


def test_the_broker_that_has_logged_in_the_user_refuses_for_all(brokers: Brokers) -> None:
    cluster = logged_in_at_a(brokers)
    brokers.failing = {A: REFUSED}
    for question in (lambda: cluster.ask_all([ask(A, 1)]), cluster.any_broker):
        with pytest.raises(KafkaError) as refused:
            question()
        assert refused.value.code is ErrorCode.SASL_AUTHENTICATION_FAILED
    brokers.failing = {B: REFUSED}
    assert cluster.any_broker() == A


def test_a_session_that_another_broker_does_not_renew_costs_its_answer(brokers: Brokers) -> None:
    cluster = logged_in_at_a(brokers)
    assert cluster.ask_all([ask(A, 1), ask(B, 2)]) == [1, 2]
    brokers.not_renewed = {B}
    assert codes(cluster.ask_all([ask(A, 1), ask(B, 2)])) == [1, ErrorCode.NETWORK_EXCEPTION]
    brokers.not_renewed = {A}
    with pytest.raises(KafkaError) as refused:
        cluster.ask_all([ask(A, 1)])
    assert refused.value.code is ErrorCode.SASL_AUTHENTICATION_FAILED


# --- brokers that hang ---


def test_a_broker_that_hangs_does_not_make_the_others_late(
    brokers: Brokers, cluster: Cluster
) -> None:
    brokers.hung = {A}
    results = cluster.ask_all([ask(A, 1), ask(B, 2), ask(C, 3), ask(B, 4)])
    assert codes(results) == [ErrorCode.NETWORK_EXCEPTION, 2, 3, 4]


def test_a_broker_that_hangs_costs_the_time_of_one_question(
    brokers: Brokers, cluster: Cluster
) -> None:
    brokers.hung = {A}
    for _ in range(3):
        (result,) = cluster.ask_all([ask(A, 1)])
        assert result.message == "cannot connect to a:1"
    assert brokers.tries == [(A, TIMEOUT_MS)]
    assert brokers.clock.monotonic_ms() == TIMEOUT_MS


def test_a_broker_that_hung_is_tried_for_a_short_time_until_it_answers(
    brokers: Brokers, cluster: Cluster
) -> None:
    brokers.hung = {A}
    for _ in range(2):
        cluster.ask_all([ask(A, 1)])
        brokers.clock.advance(SILENCE_MS)
    brokers.hung = set()
    assert cluster.ask_all([ask(A, 2)]) == [2]
    assert brokers.tries == [(A, TIMEOUT_MS), (A, 1_000), (A, 2_000)]
    brokers.hung = {A}
    cluster.link(A).close()
    cluster.ask_all([ask(A, 3)])
    assert brokers.tries[3:] == [(A, TIMEOUT_MS)]


def test_a_broker_whose_response_was_late_is_tried_for_a_short_time(
    brokers: Brokers, cluster: Cluster
) -> None:
    assert cluster.ask_all([ask(A, 1)]) == [1]

    def late(reader: Reader, version: int) -> int:
        brokers.clock.advance(TIMEOUT_MS)
        return reader.int32()

    results = cluster.ask_all([ask(B, 2, decode=late), ask(A, 3)])
    assert codes(results) == [2, ErrorCode.REQUEST_TIMED_OUT]
    brokers.failing = {A: network_error("refused")}
    cluster.ask_all([ask(A, 4)])
    brokers.failing = {}
    assert cluster.ask_all([ask(A, 5)]) == [5]
    assert [timeout_ms for address, timeout_ms in brokers.tries if address == A] == [
        TIMEOUT_MS, 1_000, TIMEOUT_MS,
    ]  # fmt: skip


def test_a_broker_that_refuses_connections_is_tried_each_time(
    brokers: Brokers, cluster: Cluster
) -> None:
    brokers.failing = {A: network_error("cannot connect: Connection refused")}
    assert codes(cluster.ask_all([ask(A, 1)])) == [ErrorCode.NETWORK_EXCEPTION]
    brokers.failing = {}
    assert cluster.ask_all([ask(A, 2)]) == [2]


def test_to_a_broker_that_is_late_nothing_is_sent_again(brokers: Brokers, cluster: Cluster) -> None:
    assert cluster.ask_all([ask(A, 1)]) == [1]

    def late(reader: Reader, version: int) -> int:
        brokers.clock.advance(TIMEOUT_MS)
        return reader.int32()

    results = cluster.ask_all([ask(B, 2, decode=late), ask(A, 3), ask(A, 4)])
    assert codes(results) == [2, ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NETWORK_EXCEPTION]
    assert [int.from_bytes(each, "big") for each in brokers.sent] == [1, 2, 3, 4]


# --- answers that are due when something fails ---


def test_a_certificate_that_is_not_accepted_leaves_no_answer_due(
    brokers: Brokers, cluster: Cluster
) -> None:
    brokers.failing = {B: UserError("its certificate has expired")}
    with pytest.raises(UserError, match="has expired"):
        cluster.ask_all([ask(A, 1), ask(B, 2)])
    assert cluster.ask_all([ask(A, 3)]) == [3]
    results = cluster.ask_all([ask(A, 4), ask(B, 5)], of_all=False)
    assert codes(results) == [4, ErrorCode.NETWORK_EXCEPTION]
    assert results[1].message == "its certificate has expired"


def test_another_broker_is_asked_where_the_first_has_a_bad_certificate(brokers: Brokers) -> None:
    cluster = Cluster("a:1,b:1", client_id="test", timeout_ms=TIMEOUT_MS, clock=brokers.clock)
    brokers.failing = {A: UserError("its certificate has expired")}
    assert cluster.any_broker() == B
    cluster.link(B).close()
    brokers.failing[B] = network_error("refused")
    with pytest.raises(UserError, match="has expired"):
        cluster.any_broker()


def test_an_answer_that_nothing_reads_is_not_taken_for_a_later_one(cluster: Cluster) -> None:
    def fails(reader: Reader, version: int) -> int:
        raise ValueError("not the broker's fault")

    kept = cluster.link(A)
    with pytest.raises(ValueError, match="fault"):
        cluster.ask_all([ask(A, 1, decode=fails), ask(B, 2)])
    assert cluster.ask_all([ask(B, 3), ask(A, 4)]) == [3, 4]
    assert cluster.link(A) is kept


# --- links that were opened before ---


@pytest.mark.parametrize(
    ("api_key", "sent"), [(ApiKey.LIST_GROUPS, 2), (ApiKey.PRODUCE, 1), (ApiKey.DELETE_RECORDS, 1)]
)
def test_a_read_is_sent_again_after_an_earlier_link_was_lost(
    brokers: Brokers, cluster: Cluster, api_key: ApiKey, sent: int
) -> None:
    kept: Any = cluster.link(A)
    kept.is_lost = True
    (result,) = cluster.ask_all([ask(A, 1, api_key)])
    assert codes([result]) == [1 if sent == 2 else ErrorCode.NETWORK_EXCEPTION]
    assert len(brokers.sent) == sent


def test_a_request_on_a_new_link_is_sent_once(brokers: Brokers, cluster: Cluster) -> None:
    brokers.failing = {A: network_error("refused")}
    assert codes(cluster.ask_all([ask(A, 1), ask(B, 2)])) == [ErrorCode.NETWORK_EXCEPTION, 2]
    assert [address for address, _ in brokers.tries] == [A, B]


# --- leaders ---


def metadata(*topics: str) -> ClusterMetadata:
    found = {
        name: TopicMetadata(name, ErrorCode.NONE, None, False, (_partition(0),)) for name in topics
    }
    return ClusterMetadata("id", 7, {7: BrokerAddress(7, "a", 1, None)}, found)


def _partition(index: int) -> PartitionMetadata:
    return PartitionMetadata(
        index=index, error=ErrorCode.NONE, leader=7, leader_epoch=0, replicas=(7,), isr=(7,),
        offline=(),
    )  # fmt: skip


@pytest.mark.parametrize("asked", [None, ["t"]])
def test_the_leaders_of_a_deleted_topic_are_forgotten(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, asked: list[str] | None
) -> None:
    answers = [metadata("t", "u"), metadata("u"), metadata("u")]
    monkeypatch.setattr(cluster, "anywhere", lambda *_: answers.pop(0))
    cluster.metadata(None)
    cluster.metadata(asked)

    def leaders(name: str) -> dict[TopicPartition, Any]:
        partition = TopicPartition(name, 0)
        return cluster.ask_leaders(
            {partition: 1},
            ApiKey.LIST_OFFSETS,
            lambda version, share: bytes(4),
            lambda reader, version: {partition: SimpleNamespace(error=ErrorCode.NONE)},
        )

    assert leaders("t") == {} and not answers
    assert leaders("u").keys() == {TopicPartition("u", 0)}
