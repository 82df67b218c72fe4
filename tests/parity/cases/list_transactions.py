"""ListTransactions (66), by state, producer, time and pattern.

Other cases' transactions are left out."""

from __future__ import annotations

from typing import Any

from kbroker.types import ApiKey
from tests.parity.book import Book
from tests.parity.cases._shapes import add_shapes
from tests.parity.cases._transactions import END_AND_RAISE, Producer
from tests.parity.requests import build
from tests.parity.talk import Talk, View

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


# --- with transactions ----------------------------------------------------------------------------

IN_USE = "coordinators"


def mine(talk: Talk) -> View:
    def view(data: Any) -> Any:
        own = [each for each in data["transaction_states"] if talk.mine(each["transactional_id"])]
        data["transaction_states"] = sorted(own, key=lambda each: str(each["transactional_id"]))
        return data

    return view


def one_of_each(talk: Talk) -> dict[str, Producer]:
    """By state; "later" is CompleteCommit with another epoch."""
    name = talk.topic()
    states = ("Empty", "Ongoing", "CompleteCommit", "CompleteAbort", "later")
    found = {state: Producer(talk, state) for state in states}
    for state in states[1:]:
        found[state].begin(name)
        found[state].write(name)
    found["CompleteCommit"].commit()
    found["CompleteAbort"].abort()
    found["later"].commit(END_AND_RAISE)
    return found


@book.case("of each state", versions=VERSIONS, over=STATES, setup=IN_USE)
def in_states(talk: Talk, version: int, named: tuple[str, ...]) -> None:
    one_of_each(talk)
    talk.ask(ask(version, state_filters=named), view=mine(talk))
    for state in named:
        talk.ask(ask(version, state_filters=[state]), view=mine(talk))


@book.case("of producers", versions=VERSIONS, setup=IN_USE)
def of_producers(talk: Talk, version: int) -> None:
    found = one_of_each(talk)
    ids = [found[state].pair.producer_id for state in ("Ongoing", "Empty", "Ongoing")]
    talk.ask(ask(version, producer_id_filters=[*ids, -1]), view=mine(talk))
    both = ask(version, producer_id_filters=ids, state_filters=["Ongoing", "CompleteCommit"])
    talk.ask(both, view=mine(talk))


DURATIONS = {str(ms): ms for ms in (-1, 3_600_000, 2**62)}


@book.case("open for longer than", versions=VERSIONS[1:], over=DURATIONS, setup=IN_USE)
def open_for(talk: Talk, version: int, duration_ms: int) -> None:
    """An id without a transaction counts as one that has been open since the beginning of time."""
    one_of_each(talk)
    talk.ask(ask(version, duration_filter=duration_ms), view=mine(talk))


OWN_PATTERNS = {"the whole id": "Ongoing-.*", "a part": "ngoing", "two": "(Empty|later)-[0-9a-f]+"}


@book.case("of a pattern", versions=PATTERNED, over=PATTERNS | OWN_PATTERNS, setup=IN_USE)
def of_pattern(talk: Talk, version: int, text: str) -> None:
    one_of_each(talk)
    talk.ask(ask(version, transactional_id_pattern=text), view=mine(talk))
    talk.ask(ask(version, transactional_id_pattern=text, state_filters=["x"]), view=mine(talk))


add_shapes(
    book,
    ApiKey.LIST_TRANSACTIONS,
    VERSIONS,
    lambda talk, version: ask(version, state_filters=["Ongoing", "x"], producer_id_filters=[5]),
)
