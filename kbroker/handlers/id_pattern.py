"""Patterns of transactional ids (KIP-1152): matched in time that grows with the id's length only.

Apache Kafka uses RE2/J, which has no backtracking. Python's `re` has it, and a client could keep a
handler busy for hours with `(a+)+b`. So a pattern is parsed with Python's parser and run here as a
machine of states, all of them at once. What such a machine cannot do (references to groups, looking
ahead or back) is refused, as by RE2. A pattern has STEPS_MAX steps at most, with its repeats
written out.

Pure functions; any thread.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from re import _constants as ops  # type: ignore[attr-defined]
from re import _parser as parser  # type: ignore[attr-defined]
from typing import Any, Final

from kbroker.errors import ErrorCode, KafkaError

STEPS_MAX: Final = 1_000
_UNBOUNDED: Final = parser.MAXREPEAT

Accepts = Callable[[str], bool]
# A step of the machine: takes a character, or goes on at other steps without one.
Step = tuple[Accepts | None, tuple[int, ...]]


class _Refused(Exception):
    """The pattern needs what no such machine has."""


def compiled(pattern: str) -> Callable[[str], bool]:
    """Whether a whole id matches. KafkaError INVALID_REGULAR_EXPRESSION: the pattern is none."""
    try:
        program = _Program()
        program.add(parser.parse(pattern))
    except (re.error, _Refused, RecursionError, OverflowError) as error:
        raise KafkaError(ErrorCode.INVALID_REGULAR_EXPRESSION, str(error)) from None
    steps = program.steps
    return lambda text: _matches(steps, text)


def _matches(steps: list[Step], text: str) -> bool:
    states = _closure(steps, {0})
    for character in text:
        after = {
            goal
            for each in states
            if each < len(steps) and (accepts := steps[each][0]) is not None and accepts(character)
            for goal in steps[each][1]
        }
        if not after:
            return False
        states = _closure(steps, after)
    return len(steps) in states


def _closure(steps: list[Step], states: set[int]) -> set[int]:
    found = set(states)
    left = list(states)
    while left:
        each = left.pop()
        if each < len(steps) and steps[each][0] is None:
            for goal in steps[each][1]:
                if goal not in found:
                    found.add(goal)
                    left.append(goal)
    return found


class _Program:
    """Steps in their order; the step after the last one means that all has matched."""

    def __init__(self) -> None:
        self.steps: list[Step] = []

    def _put(self, accepts: Accepts | None, *goals: int) -> int:
        if len(self.steps) >= STEPS_MAX:
            raise _Refused(f"the pattern has more than {STEPS_MAX} steps")
        self.steps.append((accepts, goals))
        return len(self.steps) - 1

    def add(self, tree: Any) -> None:
        for operation, argument in tree:
            self._add(operation, argument)

    def _add(self, operation: Any, argument: Any) -> None:
        here = len(self.steps)
        if operation in _SINGLE:
            self._put(_SINGLE[operation](argument), here + 1)
        elif operation is ops.SUBPATTERN:
            _, added, removed, inside = argument
            if added or removed:
                raise _Refused("flags within a pattern")
            self.add(inside)
        elif operation is ops.BRANCH:
            self._branch(argument[1])
        elif operation in (ops.MAX_REPEAT, ops.MIN_REPEAT):
            self._repeat(*argument)
        elif operation is not ops.AT or argument not in _ENDS:
            raise _Refused(f"{str(operation).lower()} is not supported")
        elif argument in (ops.AT_BEGINNING, ops.AT_BEGINNING_STRING) and here:
            raise _Refused("the beginning is not at the beginning")

    def _branch(self, trees: list[Any]) -> None:
        ends = []
        for tree in trees[:-1]:
            fork = self._put(None)
            self.add(tree)
            ends.append(self._put(None))
            self.steps[fork] = (None, (fork + 1, len(self.steps)))
        self.add(trees[-1])
        for end in ends:
            self.steps[end] = (None, (len(self.steps),))

    def _repeat(self, least: int, most: int, inside: Any) -> None:
        for _ in range(least):
            self.add(inside)
        if most == _UNBOUNDED:
            fork = self._put(None)
            self.add(inside)
            self._put(None, fork)
            self.steps[fork] = (None, (fork + 1, len(self.steps)))
            return
        forks = []
        for _ in range(most - least):
            forks.append(self._put(None))
            self.add(inside)
        for fork in forks:
            self.steps[fork] = (None, (fork + 1, len(self.steps)))


def _one_of(items: Any) -> Accepts:
    negated = bool(items) and items[0][0] is ops.NEGATE
    tests = [_test(kind, value) for kind, value in items if kind is not ops.NEGATE]
    return lambda character: any(test(character) for test in tests) is not negated


def _test(kind: Any, value: Any) -> Accepts:
    if kind is ops.LITERAL:
        return lambda character: ord(character) == value
    if kind is ops.RANGE:
        low, high = value
        return lambda character: low <= ord(character) <= high
    if kind is ops.CATEGORY and value in _CATEGORIES:
        found = re.compile(_CATEGORIES[value], re.ASCII)
        return lambda character: found.fullmatch(character) is not None
    raise _Refused(f"{str(kind).lower()} in a class of characters")


_CATEGORIES: Final = {
    ops.CATEGORY_DIGIT: r"\d",
    ops.CATEGORY_NOT_DIGIT: r"\D",
    ops.CATEGORY_SPACE: r"\s",
    ops.CATEGORY_NOT_SPACE: r"\S",
    ops.CATEGORY_WORD: r"\w",
    ops.CATEGORY_NOT_WORD: r"\W",
}
_SINGLE: Final[dict[Any, Callable[[Any], Accepts]]] = {
    ops.LITERAL: lambda value: lambda character: ord(character) == value,
    ops.NOT_LITERAL: lambda value: lambda character: ord(character) != value,
    ops.ANY: lambda _: lambda character: character != "\n",
    ops.IN: _one_of,
}
# The whole id has to match, so these change nothing where they are.
_ENDS: Final = (ops.AT_BEGINNING, ops.AT_BEGINNING_STRING, ops.AT_END, ops.AT_END_STRING)
