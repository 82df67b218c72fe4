"""DescribeTransactions (65), in each state, and where there has been no transaction."""

from __future__ import annotations

from typing import Any

from kbroker.types import ApiKey
from tests.parity.book import Book
from tests.parity.cases._shapes import add_shapes
from tests.parity.cases._transactions import Producer, add_offsets, state_of
from tests.parity.requests import build
from tests.parity.talk import Talk

# Where Apache Kafka has a coordinator of transactions; elsewhere it names another broker.
book = Book(setup="coordinators")
cases = book.cases

IDS: dict[str, tuple[str, ...]] = {
    "none": (),
    "one": ("never-used",),
    "several": ("zz-never", "never-used", "a"),
    "one twice": ("never-used", "never-used"),
    "an empty one": ("",),
    "an empty one among others": ("zz-never", "", "never-used"),
}


def ask(ids: tuple[str, ...]) -> Any:
    return build(ApiKey.DESCRIBE_TRANSACTIONS, 0, transactional_ids=ids)


@book.case("ids", over=IDS)
def described(talk: Talk, ids: tuple[str, ...]) -> None:
    talk.ask(ask(ids))


@book.case("each state", over={"v4": 4, "v5": 5})
def states(talk: Talk, ended_by: int) -> None:
    """Markers are written before the next question: Prepare is in no answer."""
    name, other, one = talk.topic(partitions=3), talk.topic("a"), Producer(talk, timeout_ms=61_000)
    state_of(talk, one.name)
    for committed in (True, False):
        one.begin(name, 2, 0)
        one.begin(other)
        talk.quietly(add_offsets(3, one.name, one.pair, talk.name("g")))
        state_of(talk, one.name)
        one.end(committed=committed, version=ended_by)
        state_of(talk, one.name)
    one.renew()
    state_of(talk, one.name)


@book.case("several in one request")
def several(talk: Talk) -> None:
    name = talk.topic()
    one, two = Producer(talk, "a"), Producer(talk, "b")
    two.begin(name)
    state_of(talk, two.name, talk.name("none"), one.name, "", two.name)


add_shapes(book, ApiKey.DESCRIBE_TRANSACTIONS, [0], lambda talk, version: ask(("never-used",)))
