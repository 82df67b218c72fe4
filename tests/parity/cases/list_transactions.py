"""ListTransactions (66), where there has been no transaction."""

from __future__ import annotations

from typing import Any

from kbroker.types import ApiKey
from tests.parity.book import Book
from tests.parity.cases._shapes import add_shapes
from tests.parity.requests import build
from tests.parity.talk import Talk

VERSIONS = range(3)
PATTERNED = (2,)

book = Book()
cases = book.cases


def ask(version: int, **fields: Any) -> Any:
    return build(ApiKey.LIST_TRANSACTIONS, version, **fields)


STATES: dict[str, tuple[str, ...]] = {
    "none": (),
    "each": (
        *("Empty", "Ongoing", "PrepareCommit", "PrepareAbort", "CompleteCommit"),
        *("CompleteAbort", "Dead", "PrepareEpochFence"),
    ),
    "one that there is not": ("Bogus",),
    "one in other letters": ("ongoing", "ONGOING"),
    "some that there are not": ("Zz", "Ongoing", "Bogus", "", "Zz", "a-longer-one", "x"),
}


@book.case("states", versions=VERSIONS, over=STATES)
def states(talk: Talk, version: int, named: tuple[str, ...]) -> None:
    talk.ask(ask(version, state_filters=named))


@book.case("producers", versions=VERSIONS)
def producers(talk: Talk, version: int) -> None:
    talk.ask(ask(version, producer_id_filters=[5, 5, -1]))


@book.case("longer than", versions=VERSIONS[1:], over={str(ms): ms for ms in (0, -7, 2**63 - 1)})
def longer_than(talk: Talk, version: int, duration_ms: int) -> None:
    talk.ask(ask(version, duration_filter=duration_ms))


PATTERNS = {"empty": "", "a word": "orders", "any": ".*", "no pattern": "(", "too many": "a{2,1}"}


@book.case("a pattern", versions=PATTERNED, over=PATTERNS)
def pattern(talk: Talk, version: int, text: str) -> None:
    talk.ask(ask(version, transactional_id_pattern=text))


add_shapes(
    book,
    ApiKey.LIST_TRANSACTIONS,
    VERSIONS,
    lambda talk, version: ask(version, state_filters=["Ongoing", "x"], producer_id_filters=[5]),
)
