"""What coordinators are asked: one request at a time, newer transactions, retries, lost answers."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kbroker.clock import ManualClock
from kbroker.cluster.transaction_adds import (
    AddedTransaction,
    Answer,
    Errors,
    TransactionAdds,
    Verdict,
)
from kbroker.errors import ErrorCode
from kbroker.failures import Failures
from kbroker.types import TopicPartition

OWN = 1
A = TopicPartition("t", 0)
B = TopicPartition("t", 1)


@dataclass
class Asked:
    node_id: int
    transactions: list[AddedTransaction]
    done: Callable[[Answer], None]


@dataclass
class FakeCoordinators:
    clock: ManualClock
    nodes: dict[str, int | None] = field(default_factory=dict)
    asked: list[Asked] = field(default_factory=list)  # and not answered
    timers: list[tuple[int, Callable[[], None]]] = field(default_factory=list)
    later_ids: list[str] = field(default_factory=list)
    total: int = 0

    def coordinator_of(self, transactional_id: str) -> int | None:
        return self.nodes.get(transactional_id, 2)

    def is_local(self, node_id: int) -> bool:
        return node_id == OWN

    def ask(
        self,
        node_id: int,
        transactions: Sequence[AddedTransaction],
        done: Callable[[Answer], None],
    ) -> None:
        self.total += 1
        self.asked.append(Asked(node_id, list(transactions), done))

    def later(self, delay_ms: int, transactional_id: str, call: Callable[[], None]) -> None:
        self.later_ids.append(transactional_id)
        self.timers.append((self.clock.monotonic_ms() + delay_ms, call))

    def answer(self, answer: Answer, at: int = 0) -> None:
        self.asked.pop(at).done(answer)

    def answer_all(self, code: ErrorCode, at: int = 0) -> None:
        """The same for every partition of a request."""
        answer: dict[str, Verdict] = {}
        for transaction in self.asked[at].transactions:
            answer[transaction.transactional_id] = dict.fromkeys(transaction.partitions, code)
        self.answer(answer, at)

    def advance(self, ms: int) -> None:
        self.clock.advance(ms)
        due = [timer for timer in self.timers if timer[0] <= self.clock.monotonic_ms()]
        self.timers = [timer for timer in self.timers if timer not in due]
        for _, call in due:
            call()


class Rig:
    def __init__(self) -> None:
        self.clock = ManualClock()
        self.coordinators = FakeCoordinators(self.clock)
        self.failures = Failures("adds")
        self.adds = TransactionAdds(
            self.coordinators, self.clock, self.failures, lambda: 20, lambda: 100
        )
        self.answers: list[tuple[str, Errors]] = []

    def verify(
        self, transactional_id: str, *partitions: TopicPartition, epoch: int = 0, adds: bool = False
    ) -> None:
        self.adds.verify(
            transactional_id,
            7,
            epoch,
            partitions or (A,),
            adds=adds,
            done=lambda errors: self.answers.append((transactional_id, errors)),
        )

    @property
    def asked(self) -> list[list[str]]:
        return [[each.transactional_id for each in a.transactions] for a in self.coordinators.asked]

    def take(self) -> list[tuple[str, Errors]]:
        answers, self.answers = self.answers, []
        return answers


@pytest.fixture
def rig() -> Rig:
    return Rig()


def test_each_partition_gets_its_own_answer(rig: Rig) -> None:
    rig.verify("x", A, B, epoch=3)
    (asked,) = rig.coordinators.asked
    assert asked.node_id == 2
    assert asked.transactions == [AddedTransaction("x", 7, 3, True, (A, B))]
    rig.coordinators.answer({"x": {A: ErrorCode.NONE, B: ErrorCode.TRANSACTION_ABORTABLE}})
    assert rig.take() == [("x", {A: ErrorCode.NONE, B: ErrorCode.TRANSACTION_ABORTABLE})]


def test_partitions_are_added_where_that_is_wanted(rig: Rig) -> None:
    rig.verify("x", adds=True)
    assert not rig.coordinators.asked[0].transactions[0].verify_only


def test_requests_that_come_meanwhile_leave_together(rig: Rig) -> None:
    for name in "xyz":
        rig.verify(name)
    assert rig.asked == [["x"]]
    rig.coordinators.answer_all(ErrorCode.NONE)
    assert rig.asked == [["y", "z"]]
    assert rig.take() == [("x", {A: ErrorCode.NONE})]
    rig.coordinators.answer_all(ErrorCode.NONE)
    assert rig.asked == []
    assert [name for name, _ in rig.take()] == ["y", "z"]


def test_coordinators_do_not_wait_for_each_other(rig: Rig) -> None:
    rig.coordinators.nodes["y"] = 3
    rig.verify("x")
    rig.verify("y")
    assert rig.asked == [["x"], ["y"]]


def test_ids_of_this_broker_do_not_wait_for_each_other(rig: Rig) -> None:
    rig.coordinators.nodes.update(x=OWN, y=OWN)
    rig.verify("x")
    rig.verify("y")
    rig.verify("x", B)
    assert rig.asked == [["x"], ["y"]]
    rig.coordinators.answer_all(ErrorCode.NONE)
    assert rig.asked == [["y"], ["x"]]


@pytest.mark.parametrize("node", [OWN, 2])
@pytest.mark.parametrize(
    ("epochs", "loser", "code"),
    [
        ((3, 3), 0, ErrorCode.NETWORK_EXCEPTION),
        ((3, 4), 0, ErrorCode.INVALID_PRODUCER_EPOCH),
        ((4, 3), 1, ErrorCode.INVALID_PRODUCER_EPOCH),
    ],
)
def test_of_two_that_wait_for_one_id_one_stays(
    rig: Rig, node: int, epochs: tuple[int, int], loser: int, code: ErrorCode
) -> None:
    rig.coordinators.nodes["x"] = node
    rig.verify("x", epoch=3)  # under way: nothing takes its place
    partitions = [TopicPartition("t", 10), TopicPartition("t", 11)]
    for epoch, partition in zip(epochs, partitions, strict=True):
        rig.verify("x", partition, epoch=epoch)
    assert rig.take() == [("x", {partitions[loser]: code})]
    rig.coordinators.answer_all(ErrorCode.NONE)
    assert rig.take() == [("x", {A: ErrorCode.NONE})]
    rig.coordinators.answer_all(ErrorCode.NONE)
    assert rig.take() == [("x", {partitions[1 - loser]: ErrorCode.NONE})]
    assert rig.adds.replaced == 1


@pytest.mark.parametrize("adds", [False, True])
@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
        ErrorCode.INVALID_TXN_STATE,
    ],
)
def test_an_error_of_a_whole_transaction_is_that_of_each_partition(
    rig: Rig, code: ErrorCode, adds: bool
) -> None:
    rig.verify("x", A, B, adds=adds)
    rig.coordinators.answer({"x": code})
    assert rig.take() == [("x", {A: code, B: code})]


def test_an_answer_that_is_lost(rig: Rig) -> None:
    rig.verify("x", A, B)
    rig.coordinators.answer(ErrorCode.NETWORK_EXCEPTION)
    lost = ErrorCode.NETWORK_EXCEPTION
    assert rig.take() == [("x", {A: lost, B: lost})]


def test_an_answer_that_leaves_something_out(rig: Rig) -> None:
    for name in "wxy":
        rig.verify(name, A, B)
    rig.coordinators.answer_all(ErrorCode.NONE)
    rig.take()
    rig.coordinators.answer({"x": {B: ErrorCode.NONE}, "z": ErrorCode.NONE})
    lost = ErrorCode.NETWORK_EXCEPTION
    assert rig.take() == [("x", {A: lost, B: ErrorCode.NONE}), ("y", {A: lost, B: lost})]


def test_a_fenced_producer_has_an_old_epoch(rig: Rig) -> None:
    """Produce never answers PRODUCER_FENCED."""
    rig.verify("x")
    rig.coordinators.answer_all(ErrorCode.PRODUCER_FENCED)
    assert rig.take() == [("x", {A: ErrorCode.INVALID_PRODUCER_EPOCH})]


def test_no_coordinator_is_known(rig: Rig) -> None:
    rig.coordinators.nodes["x"] = None
    rig.verify("x")
    assert rig.asked == []
    assert rig.take() == [("x", {A: ErrorCode.COORDINATOR_NOT_AVAILABLE})]


def test_a_transaction_that_is_still_busy_is_added_again(rig: Rig) -> None:
    rig.verify("x", adds=True)
    for pause_ms in (1, 2, 4, 8, 16, 20, 20):
        rig.coordinators.answer_all(ErrorCode.CONCURRENT_TRANSACTIONS)
        assert rig.asked == []
        rig.coordinators.advance(pause_ms - 1)
        assert rig.asked == []
        rig.coordinators.advance(1)
        assert rig.asked == [["x"]]
    assert rig.take() == []
    rig.coordinators.answer_all(ErrorCode.NONE)
    assert rig.take() == [("x", {A: ErrorCode.NONE})]


def test_a_transaction_that_stays_busy_is_an_error_in_the_end(rig: Rig) -> None:
    rig.verify("x", adds=True)
    for _ in range(5):
        rig.coordinators.answer_all(ErrorCode.CONCURRENT_TRANSACTIONS)
        rig.coordinators.advance(20)
    assert rig.take() == []
    rig.coordinators.answer_all(ErrorCode.CONCURRENT_TRANSACTIONS)  # 100 ms are over
    assert rig.take() == [("x", {A: ErrorCode.CONCURRENT_TRANSACTIONS})]
    assert rig.coordinators.timers == []


def test_a_partition_that_is_only_verified_is_not_asked_for_again(rig: Rig) -> None:
    rig.verify("x")
    rig.coordinators.answer_all(ErrorCode.CONCURRENT_TRANSACTIONS)
    assert rig.take() == [("x", {A: ErrorCode.CONCURRENT_TRANSACTIONS})]
    assert rig.coordinators.timers == []


def test_a_retry_goes_to_the_coordinator_of_that_time(rig: Rig) -> None:
    rig.verify("x", adds=True)
    rig.coordinators.answer_all(ErrorCode.CONCURRENT_TRANSACTIONS)
    rig.coordinators.nodes["x"] = 3
    rig.coordinators.advance(20)
    assert [asked.node_id for asked in rig.coordinators.asked] == [3]


def test_a_transport_that_raises_is_a_lost_answer(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError("no loop")

    with monkeypatch.context() as patched:
        patched.setattr(rig.coordinators, "ask", broken)
        rig.verify("x")
    assert rig.take() == [("x", {A: ErrorCode.NETWORK_EXCEPTION})]
    assert rig.failures.count == 1
    rig.verify("x")
    assert rig.asked == [["x"]]


def test_a_callback_that_raises_keeps_no_other_waiting(rig: Rig) -> None:
    def broken(errors: Errors) -> None:
        raise RuntimeError("its handler")

    rig.verify("w")
    rig.adds.verify("x", 7, 0, [A], adds=False, done=broken)
    rig.verify("y")
    rig.coordinators.answer_all(ErrorCode.NONE)
    rig.coordinators.answer_all(ErrorCode.NONE)
    assert [name for name, _ in rig.take()] == ["w", "y"]
    assert rig.failures.count == 1


# --- any order of events --------------------------------------------------------------------------

CODES = [
    ErrorCode.NONE,
    ErrorCode.CONCURRENT_TRANSACTIONS,
    ErrorCode.PRODUCER_FENCED,
    ErrorCode.TRANSACTION_ABORTABLE,
]


def check_asked(rig: Rig) -> None:
    """One request at a time for each other broker, and for each id here; an id once in each."""
    places: list[object] = []
    for asked in rig.coordinators.asked:
        names = [each.transactional_id for each in asked.transactions]
        assert len(names) == len(set(names))
        places += names if asked.node_id == OWN else [asked.node_id]
    assert max(Counter(places).values(), default=0) <= 1


@settings(deadline=None, max_examples=200)
@given(seed=st.integers(0, 2**32))
def test_every_caller_is_answered_once_in_any_order_of_events(seed: int) -> None:
    dice = random.Random(seed)
    rig = Rig()
    names = [f"id{number}" for number in range(6)]
    called = 0
    done: Counter[int] = Counter()

    def caller(number: int) -> Callable[[Errors], None]:
        def answered(errors: Errors) -> None:
            assert set(errors) == {A, B}
            done[number] += 1

        return answered

    for _ in range(120):
        step = dice.random()
        if step < 0.45:
            rig.coordinators.nodes[dice.choice(names)] = dice.choice([None, OWN, 2, 3])
            rig.adds.verify(
                dice.choice(names), 7, dice.randrange(3), [A, B],
                adds=dice.random() < 0.5, done=caller(called),
            )  # fmt: skip
            called += 1
        elif step < 0.85 and rig.coordinators.asked:
            at = dice.randrange(len(rig.coordinators.asked))
            if dice.random() < 0.2:
                rig.coordinators.answer(ErrorCode.NETWORK_EXCEPTION, at)
            else:
                rig.coordinators.answer_all(dice.choice(CODES), at)
        else:
            rig.coordinators.advance(dice.randrange(50))
        check_asked(rig)
    while rig.coordinators.asked or rig.coordinators.timers:
        while rig.coordinators.asked:
            rig.coordinators.answer_all(dice.choice(CODES))
        rig.coordinators.advance(20)
    assert done == Counter(range(called))
