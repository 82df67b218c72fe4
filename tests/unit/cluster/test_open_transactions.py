"""Open transactions over a clock that the test moves: what is named, asked about, aborted."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from kbroker.clock import ManualClock
from kbroker.cluster.open_transactions import (
    ENABLED,
    MARGIN_MS,
    MAX_TIMEOUT,
    OpenTransactions,
)
from kbroker.cluster.transaction_inquiry import Asked, Known, OpenIn
from kbroker.errors import ErrorCode, KafkaError
from kbroker.log.engine._results import MarkerAppended
from kbroker.replica._open_transactions import OpenTransaction
from kbroker.types import TopicPartition

A, B = TopicPartition("a", 0), TopicPartition("b", 3)
TIMEOUT_MS = 900_000
LIMIT_MS = TIMEOUT_MS + MARGIN_MS
SEVEN = OpenTransaction(7, 1, 4, 10, 12)
EIGHT = OpenTransaction(8, 0, -1, 20, 20)
SEVEN_A, SEVEN_B, EIGHT_B = OpenIn(7, A), OpenIn(7, B), OpenIn(8, B)


class Leader:
    """Partitions with their open transactions; a replica is its name here."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.config: dict[str, Any] = {MAX_TIMEOUT: TIMEOUT_MS, ENABLED: True}
        self.open: dict[TopicPartition, list[OpenTransaction]] = {}
        self.asked: list[Asked] = []
        self.answer: Callable[[Known], None] = lambda known: None
        self.ended: list[tuple[TopicPartition, OpenTransaction]] = []
        self.error = ErrorCode.NONE
        self.watched = OpenTransactions(
            lambda: self.config,
            self.clock,
            lambda: [(name, name) for name in self.open],  # type: ignore[misc, list-item]
            lambda replica: list(self.open[replica]),  # type: ignore[index]
            self._ask,
            self._end,
        )

    def _ask(self, asked: Asked, done: Callable[[Known], None]) -> Iterator[None]:
        self.asked.append(asked)
        self.answer = done
        yield

    def _end(self, name: TopicPartition, transaction: OpenTransaction) -> MarkerAppended:
        if self.error is ErrorCode.NOT_LEADER_OR_FOLLOWER:
            raise KafkaError(self.error)
        if self.error is ErrorCode.NONE:
            self.ended.append((name, transaction))
            self.open[name].remove(transaction)
        return MarkerAppended(self.error, 99, -1)

    def look(self, after_ms: int = 0) -> None:
        self.clock.advance(after_ms)
        for _ in self.watched.look():
            pass


@pytest.fixture
def leader() -> Leader:
    return Leader()


def test_an_age_is_counted_from_the_first_look(leader: Leader) -> None:
    leader.open = {A: [SEVEN, EIGHT], B: []}
    leader.look()
    assert leader.watched.figures() == ({A: 0.0}, 0, 0)
    leader.clock.advance(2_500)
    assert leader.watched.figures().ages == {A: 2.5}
    leader.open[A].remove(SEVEN)
    leader.look()
    assert leader.watched.figures().ages == {A: 2.5}  # the other one holds it now, and was there
    leader.open = {}  # led by another broker for a while
    leader.look()
    leader.open = {A: [EIGHT]}
    leader.look()
    assert leader.watched.figures().ages == {A: 0.0}


def test_a_hanging_transaction_is_aborted_when_no_coordinator_has_it(
    leader: Leader, caplog: pytest.LogCaptureFixture
) -> None:
    leader.open = {A: [SEVEN], B: [EIGHT]}
    leader.look()
    leader.look(LIMIT_MS)
    assert not leader.asked and leader.watched.figures().late == 0
    leader.look(1)
    assert leader.asked == [{SEVEN_A, EIGHT_B}]
    assert leader.watched.figures().late == 2
    leader.look(10_000)
    assert len(leader.asked) == 1  # it is still under way
    leader.answer(frozenset({EIGHT_B}))
    caplog.clear()
    leader.look(10_000)
    assert leader.ended == [(A, SEVEN)]
    assert leader.watched.figures().aborted == 1
    assert leader.watched.figures().ages == {B: (LIMIT_MS + 20_001) / 1000}
    (line,) = [each for each in caplog.messages if "aborted" in each]
    assert "producer id 7, epoch 1, was aborted in a-0" in line
    assert "offset 10 on for 1220 s" in line and "marker is at offset 99" in line
    assert leader.asked[1:] == [{EIGHT_B}]  # what is left is asked about again


def test_nothing_is_aborted_while_a_coordinator_does_not_answer(leader: Leader) -> None:
    leader.open = {A: [SEVEN]}
    leader.look()
    for times in range(1, 4):
        leader.look(LIMIT_MS + 1)
        assert len(leader.asked) == times
        leader.answer(None)
    assert not leader.ended


def test_a_question_that_raises_is_asked_again(
    leader: Leader, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(asked: Asked, done: object) -> Iterator[None]:
        yield
        raise RuntimeError("no thread")

    leader.open = {A: [SEVEN]}
    leader.look()
    monkeypatch.setattr(leader.watched, "_ask", fails)
    with pytest.raises(RuntimeError, match="no thread"):
        leader.look(LIMIT_MS + 1)
    monkeypatch.undo()
    leader.look(10_000)
    leader.answer(frozenset())
    leader.look(10_000)
    assert leader.ended == [(A, SEVEN)]


def test_a_hanging_transaction_of_a_producer_that_is_busy_elsewhere_is_aborted(
    leader: Leader,
) -> None:
    leader.open = {A: [SEVEN], B: [SEVEN]}
    leader.look()
    leader.look(LIMIT_MS + 1)
    assert leader.asked == [{SEVEN_A, SEVEN_B}]
    leader.answer(frozenset({SEVEN_B}))
    leader.look(10_000)
    assert leader.ended == [(A, SEVEN)]


def test_an_answer_that_comes_after_its_question_was_given_up_is_none(
    leader: Leader, monkeypatch: pytest.MonkeyPatch
) -> None:
    late: list[Callable[[Known], None]] = []

    def fails(asked: Asked, done: Callable[[Known], None]) -> Iterator[None]:
        late.append(done)
        yield
        raise RuntimeError("no thread")

    leader.open = {A: [SEVEN]}
    leader.look()
    with monkeypatch.context() as patched:
        patched.setattr(leader.watched, "_ask", fails)
        with pytest.raises(RuntimeError, match="no thread"):
            leader.look(LIMIT_MS + 1)
    leader.look()
    late[0](frozenset())
    leader.look()
    assert not leader.ended and len(leader.asked) == 1


def test_a_younger_one_of_the_same_producer_is_not_in_the_question(leader: Leader) -> None:
    """The answer is about the producer; only what was late when it was asked is aborted."""
    leader.open = {A: [SEVEN]}
    leader.look()
    leader.clock.advance(LIMIT_MS + 1)
    young = SEVEN._replace(first_offset=30, last_offset=30)
    leader.open[B] = [young]
    leader.look()
    leader.answer(frozenset())
    leader.look()
    assert leader.ended == [(A, SEVEN)]


def test_only_the_batches_seen_at_the_request_are_aborted(leader: Leader) -> None:
    """A batch that came since is in no answer: the append compares the last offset."""
    leader.open = {A: [SEVEN]}
    leader.look()
    leader.look(LIMIT_MS + 1)
    leader.answer(frozenset())
    leader.open[A] = [SEVEN._replace(last_offset=40)]
    leader.error = ErrorCode.INVALID_TXN_STATE
    seen: list[OpenTransaction] = []
    end = leader.watched._end
    leader.watched._end = lambda name, each: (seen.append(each), end(name, each))[1]
    leader.look()
    assert seen == [SEVEN] and leader.watched.figures().aborted == 0


@pytest.mark.parametrize("error", [ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.INVALID_TXN_STATE])
def test_an_abort_that_is_refused_is_tried_with_the_next_answer(
    leader: Leader, caplog: pytest.LogCaptureFixture, error: ErrorCode
) -> None:
    leader.open = {A: [SEVEN]}
    leader.look()
    leader.look(LIMIT_MS + 1)
    leader.answer(frozenset())
    leader.error = error
    leader.look(1)
    assert error.name in caplog.messages[-1] and not leader.watched.figures().aborted
    leader.error = ErrorCode.NONE
    leader.answer(frozenset())
    leader.look(1)
    assert leader.ended == [(A, SEVEN)]


def test_it_can_be_switched_off(leader: Leader) -> None:
    leader.open = {A: [SEVEN]}
    leader.config[ENABLED] = False
    leader.look()
    leader.look(LIMIT_MS + 1)
    assert not leader.asked and leader.watched.figures().late == 1
    leader.config[ENABLED] = True
    leader.look()
    leader.answer(frozenset())
    leader.config[ENABLED] = False
    leader.look()
    assert not leader.ended


def test_a_transaction_that_holds_consumers_for_long_is_named_and_again_at_twice_the_time(
    leader: Leader, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    leader.open = {A: [SEVEN, EIGHT]}
    leader.look()
    leader.look(59_999)
    assert not caplog.messages
    leader.look(1)
    (line,) = caplog.messages
    assert "stand at offset 10 of a-0" in line and "producer id 7, epoch 1" in line
    assert "kbroker explain a/0 --isolation read_committed" in line
    leader.look(59_999)
    assert len(caplog.messages) == 1
    leader.look(1)
    assert len(caplog.messages) == 2
    leader.look(100_000)
    assert len(caplog.messages) == 2


def test_many_partitions_are_looked_at_in_steps(leader: Leader) -> None:
    leader.open = {TopicPartition("t", number): [] for number in range(300)}
    assert sum(1 for _ in leader.watched.look()) == 2
