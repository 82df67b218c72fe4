"""Two producers of one id in any order: whose pair an answer has, and which retries are answered.

A retry of EndTxn 5 has the epoch before the current one. So has a producer that was replaced, after
a transaction of its successor that EndTxn 4 has ended: Apache Kafka 4.3.0 answers it with the pair
of its successor. Here an older epoch is that of a retry only where EndTxn 5 has raised it.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any, Final

import pytest

from kbroker.coordinator.txn import decisions
from kbroker.coordinator.txn.decisions import Decision
from kbroker.coordinator.txn.image import (
    NO_PAIR,
    RAISES_EPOCHS,
    Limits,
    Pair,
    TransactionImage,
    require_sound,
)
from kbroker.coordinator.txn.states import PREPARED, Do, Event, State
from kbroker.types import TopicPartition

WALKS, STEPS = 500, 24
LIMITS: Final = Limits(4)
COMPLETE: Final = (State.COMPLETE_COMMIT, State.COMPLETE_ABORT)
ORDERS: Final = frozenset({TopicPartition("orders", 0)})


class Producer:
    """One process: the pair that it knows, and its EndTxn 5 whose answer was lost."""

    def __init__(self) -> None:
        self.pair = NO_PAIR
        self.lost: tuple[Pair, bool, Pair] | None = None  # sent, committed, the answer


class World:
    """An id at its coordinator, in virtual time, with two producers that may each be replaced."""

    def __init__(self, dice: random.Random) -> None:
        self.dice = dice
        self.image: TransactionImage | None = None
        self.producers = [Producer(), Producer()]
        self.given: dict[Pair, Producer] = {}
        self.now_ms = self.last_id = 0
        self.retries = 0

    def step(self) -> None:
        self.now_ms += 1
        at, version = self.dice.randrange(2), self.dice.choice((0, RAISES_EPOCHS))
        producer = self.producers[at]
        match self.dice.randrange(12):
            case 0:
                self.producers[at] = Producer()
                self.init(self.producers[at], version)
            case 1:
                self.init(producer, version)
            case 2 | 3 | 4 | 5:
                decided = decisions.add(self.image, producer.pair, ORDERS, version, self.now_ms)
                self.follow(decided)
            case 6 | 7 | 8 | 9:
                self.end(producer, version, committed=self.dice.random() < 0.5)
            case 10 if producer.lost is not None:
                self.end_again(producer)
            case 11 if self.image is not None:
                self.time_out(version)

    def init(self, producer: Producer, version: int) -> None:
        decided = self.decide(decisions.init, self.image, producer.pair, 1, version, self.now_ms)
        if self.follow(decided) and self.gives(decided.answer, producer):
            producer.pair, producer.lost = decided.answer, None

    def end(self, producer: Producer, version: int, *, committed: bool) -> None:
        sent, now_ms = producer.pair, self.now_ms
        decided = self.decide(decisions.end, self.image, sent, version, now_ms, committed=committed)
        is_done = self.follow(decided)
        self.complete()
        if not is_done or version < RAISES_EPOCHS:
            return
        if self.gives(decided.answer, producer):
            producer.pair, producer.lost = decided.answer, None
        else:
            producer.lost = sent, committed, decided.answer

    def end_again(self, producer: Producer) -> None:
        """The answer is the one that was lost, unless the other producer has asked since."""
        assert producer.lost is not None
        sent, committed, answer = producer.lost
        decided = self.decide(
            decisions.end, self.image, sent, RAISES_EPOCHS, self.now_ms, committed=committed
        )
        if decided.do is Do.ANSWER:
            assert decided.answer == answer
            self.gives(decided.answer, producer)
            self.retries += 1
        else:
            assert self.image is not None
            assert decided.do is Do.REFUSE
            assert self.image.pair != answer or self.image.state not in COMPLETE

    def time_out(self, version: int) -> None:
        assert self.image is not None
        decided = self.decide(decisions.time_out, self.image, version, self.now_ms)
        if decided.do is Do.FENCE:
            self.follow(decided)
            self.complete()

    # --- what a coordinator does ---

    def decide(self, decision: Callable[..., Decision], *how: Any, **more: Any) -> Decision:
        decided = decision(*how, **more, limits=LIMITS)
        if decided.needs_producer_id:
            self.last_id += 1
            decided = decision(*how, **more, limits=LIMITS, fresh_id=self.last_id)
        return decided

    def follow(self, decided: Decision) -> bool:
        """Whether the request was done."""
        if decided.image is not None:
            self.image = require_sound(decided.image, LIMITS)
        if decided.do is Do.FENCE:
            self.complete()
        return decided.do not in (Do.REFUSE, Do.FENCE)

    def complete(self) -> None:
        if self.image is not None and self.image.state in PREPARED:
            self.follow(decisions.complete(self.image, self.now_ms))

    def gives(self, pair: Pair, producer: Producer) -> bool:
        """It is the pair of one producer for good; whether the answer arrives."""
        assert self.given.setdefault(pair, producer) is producer, pair
        return self.dice.random() < 0.7


def _by_the_epoch_alone(image: Any, pair: Pair, **how: Any) -> Event:
    known = image if image is None else image._replace(client_version=RAISES_EPOCHS)
    return _end_event(known, pair, **how)


_end_event = decisions.end_event


def walk(seed: int) -> World:
    world = World(random.Random(seed))
    for _ in range(STEPS):
        world.step()
    return world


def test_a_pair_is_given_to_one_producer_and_a_lost_answer_is_given_again() -> None:
    assert sum(walk(seed).retries for seed in range(WALKS)) > WALKS / 100


def test_a_retry_by_the_epoch_alone_is_given_the_pair_of_another(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As Apache Kafka tells a retry."""
    monkeypatch.setattr(decisions, "end_event", _by_the_epoch_alone)
    with pytest.raises(AssertionError, match="Pair"):
        for seed in range(WALKS):
            walk(seed)
