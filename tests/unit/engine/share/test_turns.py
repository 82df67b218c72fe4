"""Turns for copies to dead-letter topics: a bound on all, and fair between topics."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest

from kbroker.engine.share.turns import Turns


class Played:
    """Turns, each of which is named as its topic and a number."""

    def __init__(self, turns_max: int) -> None:
        self.turns = Turns(turns_max, lambda call: call())
        self.began: list[str] = []
        self._count = 0

    def take(self, topic: str, times: int = 1, *, fails: bool = False) -> None:
        for _ in range(times):
            self._count += 1
            name = f"{topic}{self._count}"
            self.turns.take(topic, partial(self._begin, name), fail, fails=fails)

    def _begin(self, name: str) -> None:
        self.began.append(name)

    def new(self) -> list[str]:
        began, self.began = self.began, []
        return began


def fail(error: Exception) -> None:
    raise AssertionError(error)


def test_turns_of_a_topic_are_taken_in_their_order_and_one_that_cannot_begin_is_over() -> None:
    began: list[str] = []
    failed: list[str] = []

    def call_soon(call: Callable[[], object]) -> None:
        if len(began) == 1 and not failed:
            raise MemoryError
        call()

    turns = Turns(1, call_soon)
    for name in ("one", "two", "three"):
        turns.take(
            "t",
            lambda name=name: began.append(name),  # type: ignore[misc]
            lambda error, name=name: failed.append(name),  # type: ignore[misc]
        )
    turns.give_back("t")
    assert (began, failed) == (["one", "three"], ["two"])


def test_topics_take_turns_and_none_has_all() -> None:
    played = Played(4)
    played.take("a", 5)
    assert played.new() == ["a1", "a2"]
    played.take("b")
    played.take("c", 2)
    assert played.new() == ["b6", "c7"]
    played.turns.give_back("b")
    assert played.new() == ["c8"]
    played.take("b", 2)
    played.turns.give_back("a")
    assert played.new() == ["b9"]  # a has had its two
    for _ in range(2):
        played.turns.give_back("c")
    assert played.new() == ["a3", "b10"]


@pytest.mark.parametrize("says", ["answer", "owner"])
def test_a_topic_that_fails_has_one_turn_until_it_does_not(says: str) -> None:
    played = Played(8)
    if says == "answer":
        played.take("bad", 6)
        assert len(played.new()) == 4
        for _ in range(4):
            played.turns.give_back("bad", fails=True)
        assert played.new() == ["bad5"]
    else:
        played.take("bad", 6, fails=True)
        assert played.new() == ["bad1"]
    played.take("good", 9)
    assert len(played.new()) == 4
    played.turns.give_back("bad")  # without a write
    (began,) = played.new()
    assert began.startswith("bad")
    played.take("bad", 9)
    played.turns.give_back("bad", fails=False)
    assert len(played.new()) == 4
    assert played.turns._left == 0


def test_nothing_is_kept_of_topics_without_turns() -> None:
    played = Played(2)
    for topic in "abc":
        played.take(topic, fails=True)
    for topic in "abc":
        played.turns.give_back(topic, fails=True)
    assert not played.turns._topics and not played.turns._ready
    assert played.turns._left == 2
