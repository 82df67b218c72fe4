"""The filters of the messages page: which records of a topic a visitor looks for.

A filter's text is a visitor's and hostile, and so are the records. `contains` and `equals` compare
bytes; an expression is RE2's syntax on an automaton of ours, so no text takes longer than its bytes
times the expression's states; of a longer text the beginning is searched. No part of a filter is
ever run as code. Owner: the console's thread.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Final, NamedTuple

from kbroker.console.asked import Refused
from kbroker.coordinator.group.expressions import ExpressionError, TextExpression

if TYPE_CHECKING:
    from kbroker.protocol.record_batch import Record

# Of one filter's text.
TEXT_CHARS_MAX: Final = 1_000
# Steps of an automaton for one text: some 20 ms, in which the GIL is free.
STEPS_MAX: Final = 4_000_000
# That are searched for a text between two pauses.
BYTES_AT_ONCE: Final = 256 * 1024
# Between two pauses of the search.
STEPS_AT_ONCE: Final = 16_000_000


class Match(StrEnum):
    CONTAINS = "contains"
    EQUALS = "equals"
    EXPRESSION = "expression"


class Values(StrEnum):
    """Which records by their value."""

    ANY = "any"
    NULL = "null"
    NOT_NULL = "not_null"


class Wanted(NamedTuple):
    """The texts are empty where nothing is asked of that part. Times: from `since_ms` on and before
    `until_ms`; None: of any time."""

    key: str = ""
    value: str = ""
    header: str = ""  # compared with name=value of each header
    match: Match = Match.CONTAINS
    values: Values = Values.ANY
    since_ms: int | None = None
    until_ms: int | None = None


Holds = Callable[[bytes], bool]


class Filters:
    """`pause` is called after each STEPS_AT_ONCE steps, then the `check` of `match`; and after each
    BYTES_AT_ONCE of a long text. Refused: a text is no expression, or too long."""

    def __init__(self, wanted: Wanted, pause: Callable[[], None]) -> None:
        self.cut = 0  # texts of which the beginning alone was searched
        self._wanted: Final = wanted
        self._pause: Final = pause
        self._check: Callable[[], None] = pause
        self._steps = 0
        self._key: Final = self._compiled("key", wanted.key)
        self._value: Final = self._compiled("value", wanted.value)
        self._header: Final = self._compiled("header", wanted.header)
        self._needles: Final = _needles(wanted)
        # An expression may take long for a record; other filters take as long as the batch is.
        self.is_slow: Final = wanted.match is Match.EXPRESSION and bool(
            wanted.key or wanted.value or wanted.header
        )

    def may_match(self, payload: bytes) -> bool:
        """Whether a batch of these records may have a match: the quick look before they are made.
        Whatever is looked for as it is must be in their bytes."""
        return all(self._contains(payload, needle) for needle in self._needles)

    def match(self, record: Record, check: Callable[[], None] = lambda: None) -> bool:
        """`check` may raise, to end the search within a record."""
        wanted = self._wanted
        self._check = check
        if wanted.since_ms is not None and record.timestamp_ms < wanted.since_ms:
            return False
        if wanted.until_ms is not None and record.timestamp_ms >= wanted.until_ms:
            return False
        if wanted.values is not Values.ANY and (record.value is None) != (
            wanted.values is Values.NULL
        ):
            return False
        return (
            _holds(self._key, record.key)
            and _holds(self._value, record.value)
            and (self._header is None or self._in_a_header(self._header, record))
        )

    def _in_a_header(self, holds: Holds, record: Record) -> bool:
        return any(
            holds(name.encode(errors="replace") + b"=" + (value or b""))
            for name, value in record.headers
        )

    def _compiled(self, part: str, text: str) -> Holds | None:
        if not text:
            return None
        if len(text) > TEXT_CHARS_MAX:
            raise Refused(f"the filter of the {part} has more than {TEXT_CHARS_MAX} characters")
        wanted = text.encode(errors="replace")
        match self._wanted.match:
            case Match.CONTAINS:
                return lambda searched: self._contains(searched, wanted)
            case Match.EQUALS:
                return lambda searched: wanted == searched
            case Match.EXPRESSION:
                return self._expression(part, text)

    def _contains(self, searched: bytes, wanted: bytes) -> bool:
        """A look holds the GIL, and some texts take 4 ns for a byte."""
        for begin in range(0, max(len(searched), 1), BYTES_AT_ONCE):
            if begin:
                self._pause()
            if searched.find(wanted, begin, begin + BYTES_AT_ONCE + len(wanted) - 1) >= 0:
                return True
        return False

    def _expression(self, part: str, text: str) -> Holds:
        try:
            expression = TextExpression(text)
        except ExpressionError as error:
            raise Refused(
                f"the expression of the {part}: {error}", "the syntax is RE2's: a|b, [0-9]+, (?i)x"
            ) from None
        bytes_max = STEPS_MAX // expression.states

        def holds(searched: bytes) -> bool:
            if len(searched) > bytes_max:
                self.cut += 1
                searched = searched[:bytes_max]
            self._steps += len(searched) * expression.states
            if self._steps >= STEPS_AT_ONCE:
                self._steps = 0
                self._pause()
                self._check()
            return expression.found_in(searched)

        return holds


def _holds(compiled: Holds | None, text: bytes | None) -> bool:
    """A null is no text: nothing is in it."""
    return compiled is None or (text is not None and compiled(text))


def _needles(wanted: Wanted) -> Sequence[bytes]:
    """A header's name and its value do not follow each other in a record: so they are looked for
    by themselves, whichever `=` is between them."""
    if wanted.match is Match.EXPRESSION:
        return ()
    parts = [wanted.key, wanted.value, *wanted.header.split("=")]
    return [part.encode(errors="replace") for part in parts if part]
