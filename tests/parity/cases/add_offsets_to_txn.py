"""AddOffsetsToTxn (25): the partition of a group's offsets goes into a transaction."""

from __future__ import annotations

from collections.abc import Callable

from kbroker.types import ApiKey
from tests.parity.book import Book
from tests.parity.cases._shapes import add_shapes
from tests.parity.cases._transactions import (
    ADD_OFFSETS,
    Pair,
    Producer,
    add_offsets,
    state_of,
)
from tests.parity.cases.add_partitions_to_txn import PAIRS
from tests.parity.talk import Talk

book = Book(setup="coordinators")
cases = book.cases


@book.case("one after the other", versions=ADD_OFFSETS)
def one_by_one(talk: Talk, version: int) -> None:
    """A group, the same again, another; and one without a name."""
    name, one = talk.topic(), Producer(talk)
    for group in (talk.name("g"), talk.name("g"), talk.name("h"), ""):
        talk.ask(add_offsets(version, one.name, one.pair, group))
    one.begin(name)
    state_of(talk, one.name)


@book.case("after an outcome", versions=ADD_OFFSETS, over={"commit": True, "abort": False})
def after(talk: Talk, version: int, committed: bool) -> None:
    name, one = talk.topic(), Producer(talk)
    one.begin(name)
    one.end(committed=committed)
    talk.ask(add_offsets(version, one.name, one.pair, talk.name("g")))
    state_of(talk, one.name)


@book.case("not its pair", versions=ADD_OFFSETS, over=PAIRS)
def pairs(talk: Talk, version: int, of: Callable[[Pair], Pair]) -> None:
    name, one = talk.topic(), Producer(talk)
    one.renew()
    pair = of(one.pair)
    talk.ask(add_offsets(version, one.name, pair, talk.name("g")))
    one.begin(name)
    talk.ask(add_offsets(version, one.name, pair, talk.name("g")))
    one.commit()
    talk.ask(add_offsets(version, one.name, pair, talk.name("g")))


@book.case("an id that is unknown", versions=ADD_OFFSETS)
def unknown(talk: Talk, version: int) -> None:
    talk.ask(add_offsets(version, talk.name("tx"), Pair(5, 0), talk.name("g")))


@book.case("an empty id", versions=ADD_OFFSETS)
def empty(talk: Talk, version: int) -> None:
    talk.ask(add_offsets(version, "", Pair(5, 0), talk.name("g")))


add_shapes(
    book,
    ApiKey.ADD_OFFSETS_TO_TXN,
    ADD_OFFSETS,
    lambda talk, version: add_offsets(version, "never-used", Pair(5, 0), "g"),
)
