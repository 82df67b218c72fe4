"""Many questions, a few at a time."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from kbroker.coordinator.share.gathering import Gathering


class Asked:
    """Answers when the test says so."""

    def __init__(self) -> None:
        self.waiting: list[tuple[int, Callable[[str], None]]] = []
        self.most = 0
        self.done: list[dict[int, str]] = []

    def ask(self, key: int, done: Callable[[str], None]) -> None:
        self.waiting.append((key, done))
        self.most = max(self.most, len(self.waiting))

    def answer(self, at: int = 0) -> None:
        key, done = self.waiting.pop(at)
        done(f"of {key}")


@pytest.mark.parametrize("at", [0, -1])
def test_a_window_of_questions_is_under_way(at: int) -> None:
    asked = Asked()
    Gathering(range(10), asked.ask, asked.done.append, window=3).begin()
    for _ in range(10):
        assert not asked.done
        asked.answer(at)
    assert asked.most == 3
    assert asked.done == [{key: f"of {key}" for key in range(10)}]
    assert list(asked.done[0]) == list(range(10))


def test_no_question_is_answered_at_once() -> None:
    asked = Asked()
    Gathering([], asked.ask, asked.done.append).begin()
    assert asked.done == [{}]


def test_answers_at_once_need_no_stack() -> None:
    done: list[dict[int, int]] = []
    Gathering(range(20_000), lambda key, done: done(key), done.append, window=2).begin()
    assert [len(each) for each in done] == [20_000]


def test_a_key_that_is_named_twice_is_asked_once_and_a_late_answer_is_none() -> None:
    asked = Asked()
    Gathering([1, 1, 2], asked.ask, asked.done.append).begin()
    (_, first), (_, second) = asked.waiting
    first("a")
    first("b")
    assert not asked.done
    second("c")
    second("d")
    assert asked.done == [{1: "a", 2: "c"}]


def test_answers_of_many_threads_come_together() -> None:
    found: dict[int, int] = {}
    over = threading.Event()

    def ask(key: int, came: Callable[[int], None]) -> None:
        threading.Thread(target=came, args=(key,)).start()

    def done(answers: dict[int, int]) -> None:
        assert not over.is_set()
        found.update(answers)
        over.set()

    Gathering(range(500), ask, done, window=7).begin()
    assert over.wait(60)
    assert found == {key: key for key in range(500)}
