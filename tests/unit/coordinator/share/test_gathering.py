"""Many questions, a few at a time."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from typing import Any

import pytest

from kbroker.coordinator.share import gathering as module
from kbroker.coordinator.share.gathering import Gathering
from kbroker.failures import Failures


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


def gather(
    keys: Iterable[int], ask: Any, done: Any, window: int | None = None, **more: Any
) -> Failures:
    """Begin; what is noted."""
    failures = Failures("questions")
    Gathering(keys, ask, done, "failed on {}".format, failures, window, **more).begin()
    return failures


@pytest.mark.parametrize("at", [0, -1])
def test_a_window_of_questions_is_under_way(at: int) -> None:
    asked = Asked()
    gather(range(10), asked.ask, asked.done.append, window=3)
    for _ in range(10):
        assert not asked.done
        asked.answer(at)
    assert asked.most == 3
    assert asked.done == [{key: f"of {key}" for key in range(10)}]
    assert list(asked.done[0]) == list(range(10))


def test_no_question_is_answered_at_once() -> None:
    asked = Asked()
    gather([], asked.ask, asked.done.append)
    assert asked.done == [{}]


def test_answers_at_once_need_no_stack() -> None:
    done: list[dict[int, int]] = []
    gather(range(20_000), lambda key, done: done(key), done.append, window=2)
    assert [len(each) for each in done] == [20_000]


def test_a_key_that_is_named_twice_is_asked_once_and_a_late_answer_is_none() -> None:
    asked = Asked()
    gather([1, 1, 2], asked.ask, asked.done.append)
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

    gather(range(500), ask, done, window=7)
    assert over.wait(60)
    assert found == {key: key for key in range(500)}


def test_a_question_that_raises_is_answered_like_the_others() -> None:
    asked = Asked()

    def ask(key: int, done: Callable[[str], None]) -> None:
        if key == 1:
            raise MemoryError
        asked.ask(key, done)
        if key == 2:
            done("of 2, before")
            raise MemoryError

    failures = gather(range(4), ask, asked.done.append, window=2)
    while asked.waiting:
        asked.answer()
    assert asked.done == [{0: "of 0", 1: "failed on 1", 2: "of 2, before", 3: "of 3"}]
    assert failures.count == 2


def test_a_question_that_cannot_be_made_is_answered_like_the_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Else those after it are never asked, and what waits for the answers waits for ever."""
    asked, made = Asked(), list[object]()

    def once(call: Callable[..., object]) -> Callable[..., object]:
        made.append(call)
        if len(made) == 2:
            raise MemoryError
        return call

    monkeypatch.setattr(module, "once", once)
    failures = gather(range(3), asked.ask, asked.done.append)
    while asked.waiting:
        asked.answer()
    assert asked.done == [{0: "of 0", 1: "failed on 1", 2: "of 2"}]
    assert failures.count == 1


def test_after_the_time_is_over_nothing_more_is_asked() -> None:
    asked = Asked()
    is_over = False
    late = "too late for {}".format
    gather(range(5), asked.ask, asked.done.append, 2, is_late=lambda: is_over, late=late)
    is_over = True
    for _ in range(2):
        assert not asked.done  # those under way have answers of their own
        asked.answer()
    assert not asked.waiting
    (found,) = asked.done
    assert list(found.items()) == [
        (0, "of 0"), (1, "of 1"), (2, "too late for 2"), (3, "too late for 3"),
        (4, "too late for 4"),
    ]  # fmt: skip


def test_an_exception_for_those_that_are_left_keeps_no_answer_back() -> None:
    """The requests that wait for this one would wait for ever."""
    asked = Asked()

    def late(key: int) -> str:
        if key == 2:
            raise MemoryError
        return f"too late for {key}"

    failures = gather(range(4), asked.ask, asked.done.append, is_late=lambda: True, late=late)
    assert asked.done == [
        {0: "too late for 0", 1: "too late for 1", 2: "failed on 2", 3: "failed on 3"}
    ]
    assert failures.count == 1


def test_a_time_that_is_over_before_the_first_question() -> None:
    asked = Asked()
    gather([1], asked.ask, asked.done.append, is_late=lambda: True)
    assert asked.done == [{1: "failed on 1"}]


def test_a_look_at_the_time_that_raises_ends_the_questions() -> None:
    asked = Asked()

    def is_late() -> bool:
        raise MemoryError

    failures = gather([1], asked.ask, asked.done.append, is_late=is_late)
    assert asked.done == [{1: "failed on 1"}]
    assert failures.count == 1


@pytest.mark.parametrize("raises", [False, True])
def test_all_answers_are_handed_over(raises: bool) -> None:
    asked = Asked()
    handed_over: list[Callable[[], object]] = []

    def hand_over(call: Callable[[], object]) -> None:
        if raises:
            raise MemoryError
        handed_over.append(call)

    gather([1], asked.ask, asked.done.append, hand_over=hand_over)
    asked.answer()
    if not raises:
        assert not asked.done
        handed_over.pop()()
    assert asked.done == [{1: "of 1"}]
