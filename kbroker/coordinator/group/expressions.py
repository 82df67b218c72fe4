"""Regular expressions over names, and in other texts: made into an automaton, and matched in linear
time.

Place in the flow: a member of a consumer group subscribes by one; the coordinator finds the topics
that it matches, beside the requests, and again when topics come and go (KIP-848). ListTransactions
lists the transactional ids that match one (KIP-1152). Apache Kafka uses RE2/J for both; what that
accepts is accepted here, up to the bounds of `expression_parser.py`.

Memory is bounded by STATES_MAX states. Time is at most proportional to the states times the
characters of all names; it is spent without the GIL but for pieces of NAMES_AT_ONCE names, which
take a millisecond or two to put together. An expression does not change; any thread.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence as Many
from itertools import accumulate
from typing import Final

from kbroker.coordinator.group._automaton import Automaton, StateKind
from kbroker.coordinator.group.expression_parser import (
    EVERY,
    At,
    Chars,
    Choice,
    ExpressionError,
    Node,
    Place,
    Repeat,
    Sequence,
    parse,
)

__all__ = ["NAMES_AT_ONCE", "ExpressionError", "NameExpression", "TextExpression"]

NAMES_AT_ONCE: Final = 5_000
_BEYOND_ASCII: Final = 0x80
# Characters beyond ASCII are read as this one, which is in `.` and `[^a]` and is no letter.
_SUBSTITUTE: Final = 0x1A
_TEXT_BYTES: Final = bytes(range(_BEYOND_ASCII)) + bytes([_SUBSTITUTE]) * _BEYOND_ASCII

_KINDS: Final = {
    Place.BEGIN: StateKind.AT_BEGIN,
    Place.END: StateKind.AT_END,
    Place.WORD_EDGE: StateKind.AT_WORD_EDGE,
    Place.NOT_WORD_EDGE: StateKind.NOT_AT_WORD_EDGE,
}


class NameExpression:
    """Over names of topics, which are ASCII, and ids, of which few are not. ExpressionError: the
    text is no expression, or one that is not supported."""

    __slots__ = ("_automaton", "text")

    def __init__(self, text: str) -> None:
        self.text: Final = text
        states = _States()
        start = states.add(parse(text), states.accept())
        self._automaton: Final = Automaton(states.rows, start)

    def matches(self, name: str) -> bool:
        """Whether the whole name matches."""
        return bool(self.matching([name]))

    def matching(self, names: Many[str]) -> list[str]:
        """Those of the names that match, in their order."""
        found: list[str] = []
        for begin in range(0, len(names), NAMES_AT_ONCE):
            some = names[begin : begin + NAMES_AT_ONCE]
            ends = array("i", accumulate(map(len, some)))
            flags = self._automaton.matching(_in_bytes("".join(some)), ends)
            found += [name for name, matches in zip(some, flags, strict=True) if matches]
        return found


class TextExpression:
    """Searches texts for a part that matches. ExpressionError: as NameExpression, or the
    expression has letters beyond ASCII, of which the automaton knows none.

    A search takes `states` steps for each byte of the text at most.
    """

    __slots__ = ("_automaton", "states", "text")

    def __init__(self, text: str) -> None:
        if not text.isascii():
            raise ExpressionError("it has characters beyond ASCII, which are not searched for")
        self.text: Final = text
        states = _States()
        rest = states.any_number(Chars(EVERY), 0, states.accept())
        start = states.any_number(Chars(EVERY), 0, states.add(parse(text), rest))
        self.states: Final = len(states.rows)
        self._automaton: Final = Automaton(states.rows, start)

    def found_in(self, text: bytes) -> bool:
        searched = text.translate(_TEXT_BYTES)
        return self._automaton.matching(searched, array("i", [len(searched)])) != b"\0"


def _in_bytes(text: str) -> bytes:
    """A byte for each character."""
    if text.isascii():
        return text.encode()
    return bytes(code if (code := ord(each)) < _BEYOND_ASCII else _SUBSTITUTE for each in text)


class _States:
    """The states of an automaton, each made after those that it goes on to."""

    def __init__(self) -> None:
        self.rows: list[tuple[int, int, int, int]] = []

    def _put(self, kind: int, following: int, other: int = 0, characters: int = 0) -> int:
        self.rows.append((kind, following, other, characters))
        return len(self.rows) - 1

    def accept(self) -> int:
        return self._put(StateKind.ACCEPT, 0)

    def add(self, node: Node, following: int) -> int:
        """The state at which a text begins that the node accepts and `following` goes on with."""
        match node:
            case Chars(bits=bits):
                return self._put(StateKind.TAKE, following, 0, bits)
            case At(place=place):
                return self._put(_KINDS[place], following)
            case Sequence(parts=parts):
                for part in reversed(parts):
                    following = self.add(part, following)
                return following
            case Choice(parts=parts):
                start = self.add(parts[-1], following)
                for part in reversed(parts[:-1]):
                    start = self._put(StateKind.FORK, self.add(part, following), start)
                return start
            case Repeat(part=part, least=least, most=most):
                if most is None:
                    return self.any_number(part, least, following)
                end = following
                for _ in range(most - least):
                    following = self._put(StateKind.FORK, self.add(part, following), end)
                for _ in range(least):
                    following = self.add(part, following)
                return following

    def any_number(self, part: Node, least: int, following: int) -> int:
        fork = self._put(StateKind.FORK, 0, following)
        again = self.add(part, fork)
        self.rows[fork] = (StateKind.FORK, again, following, 0)
        start = again if least else fork
        for _ in range(least - 1):
            start = self.add(part, start)
        return start
