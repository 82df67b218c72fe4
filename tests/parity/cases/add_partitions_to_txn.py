"""AddPartitionsToTxn (24): of clients up to version 3, of brokers from version 4 on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kbroker.types import ApiKey
from tests.parity.book import Book
from tests.parity.cases._shapes import add_shapes
from tests.parity.cases._transactions import (
    ADD,
    ADD_BY_BROKERS,
    OFFSETS_TOPIC,
    STATE_TOPIC,
    Pair,
    Partitions,
    Producer,
    add,
    add_many,
    added,
    state_of,
)
from tests.parity.talk import Talk

book = Book(setup="coordinators")
cases = book.cases


# --- of clients -----------------------------------------------------------------------------------


@book.case("one after the other", versions=ADD)
def one_by_one(talk: Talk, version: int) -> None:
    name, other, one = talk.topic(partitions=3), talk.topic("u"), Producer(talk)
    for each in ({name: [0]}, {name: [0]}, {name: [2, 1]}, {other: [0], name: [0]}):
        talk.ask(add(version, one.name, one.pair, each))
    state_of(talk, one.name)


@book.case("after an outcome", versions=ADD, over={"commit": True, "abort": False})
def after(talk: Talk, version: int, committed: bool) -> None:
    name, one = talk.topic(partitions=2), Producer(talk)
    one.begin(name, 0)
    one.write(name, 0)
    one.end(committed=committed)
    talk.ask(add(version, one.name, one.pair, {name: [1]}))
    state_of(talk, one.name)


# From the producer's own pair to the one that asks.
PAIRS: dict[str, Callable[[Pair], Pair]] = {
    "another id": lambda own: Pair(own.producer_id + 1_000_000, own.epoch),
    "another id and epoch": lambda own: Pair(own.producer_id + 1_000_000, own.epoch + 1),
    "no id": lambda own: Pair(-1, -1),
    "an older epoch": lambda own: own.later(-1),
    "a newer epoch": lambda own: own.later(),
    "epoch -1": lambda own: Pair(own.producer_id, -1),
}


@book.case("not its pair", versions=ADD, over=PAIRS)
def pairs(talk: Talk, version: int, of: Callable[[Pair], Pair]) -> None:
    name, one = talk.topic(partitions=2), Producer(talk)
    one.renew()
    pair = of(one.pair)
    talk.ask(add(version, one.name, pair, {name: [0]}))
    one.begin(name, 0)
    talk.ask(add(version, one.name, pair, {name: [0]}))
    one.commit()
    talk.ask(add(version, one.name, pair, {name: [0]}))


@book.case("an id that is unknown", versions=ADD)
def unknown_id(talk: Talk, version: int) -> None:
    talk.ask(add(version, talk.name("tx"), Pair(5, 0), {talk.topic(): [0]}))


@book.case("an empty id", versions=ADD)
def empty_id(talk: Talk, version: int) -> None:
    talk.ask(add(version, "", Pair(5, 0), {talk.topic(): [0], talk.name("none"): [0]}))
    talk.ask(add(version, "", Pair(5, 0), {}))


# "t" has two partitions, "none" is not there.
ODD: dict[str, list[tuple[str, list[int]]]] = {
    "no topic": [],
    "no partition": [("t", [])],
    "a topic that is not there": [("none", [0])],
    "one that is not there among others": [("t", [1, 0]), ("none", [0, 1])],
    "a partition that is not there": [("t", [0, 2])],
    "below zero": [("t", [-1, 1])],
    "a partition twice": [("t", [0, 0])],
    "a topic twice": [("t", [0]), ("t", [1])],
    "the topic of offsets": [(OFFSETS_TOPIC, [0])],
    "an internal topic among others": [("t", [0]), (STATE_TOPIC, [0]), ("t", [1])],
    "all at once": [("none", [0]), (OFFSETS_TOPIC, [0]), ("t", [0, 7])],
    "an empty name": [("", [0])],
    "the metadata log": [("__cluster_metadata", [0])],
}


def odd_of(talk: Talk, odd: list[tuple[str, list[int]]]) -> Partitions:
    talk.topic(partitions=2)
    own = {name: talk.name(name) for name in ("t", "none")}
    return [(own.get(name, name), indexes) for name, indexes in odd]


@book.case("partitions", versions=ADD, over=ODD)
def partitions(talk: Talk, version: int, odd: list[tuple[str, list[int]]]) -> None:
    wanted, one = odd_of(talk, odd), Producer(talk)
    talk.ask(add(version, one.name, one.pair, wanted))
    state_of(talk, one.name)


@book.case("partitions before the id is looked at", versions=ADD)
def order(talk: Talk, version: int) -> None:
    """Which of two errors is the answer."""
    name, none, one = talk.topic(), talk.name("none"), Producer(talk)
    both = {name: [0], none: [0]}
    talk.ask(add(version, talk.name("other"), Pair(5, 0), both))
    talk.ask(add(version, one.name, one.pair.later(), both))
    talk.ask(add(version, one.name, one.pair.later(), {OFFSETS_TOPIC: [0]}))


@book.case("a topic that is deleted afterwards", versions=ADD)
def deleted(talk: Talk, version: int) -> None:
    name, one = talk.topic(), Producer(talk)
    talk.ask(add(version, one.name, one.pair, {name: [0]}))
    talk.delete(name)
    state_of(talk, one.name)
    talk.ask(add(version, one.name, one.pair, {name: [0]}))
    one.commit()
    state_of(talk, one.name)


# --- of brokers -----------------------------------------------------------------------------------


@book.case("brokers: one after the other", versions=ADD_BY_BROKERS)
def brokers_one_by_one(talk: Talk, version: int) -> None:
    name, other, one = talk.topic(partitions=3), talk.topic("u"), Producer(talk)
    for each in ({name: [0]}, {name: [0]}, {name: [2, 1]}, {other: [0], name: [0]}):
        talk.ask(add_many(version, added(one.name, one.pair, each)))
    state_of(talk, one.name)


@book.case("brokers: partitions", versions=ADD_BY_BROKERS, over=ODD)
def brokers_partitions(talk: Talk, version: int, odd: list[tuple[str, list[int]]]) -> None:
    wanted, one = odd_of(talk, odd), Producer(talk)
    talk.ask(add_many(version, added(one.name, one.pair, wanted)))
    state_of(talk, one.name)
    talk.ask(add_many(version, added(one.name, one.pair, wanted, verify=True)))


@book.case(
    "brokers: not its pair",
    versions=ADD_BY_BROKERS,
    over={
        f"{tag}, {'verify' if v else 'add'}": (of, v) for tag, of in PAIRS.items() for v in (0, 1)
    },
)
def brokers_pairs(talk: Talk, version: int, how: tuple[Callable[[Pair], Pair], int]) -> None:
    name, one = talk.topic(partitions=2), Producer(talk)
    one.renew()
    pair, verify = how[0](one.pair), bool(how[1])
    talk.ask(add_many(version, added(one.name, pair, {name: [0]}, verify=verify)))
    one.begin(name, 0)
    talk.ask(add_many(version, added(one.name, pair, {name: [0, 1]}, verify=verify)))
    one.commit()
    talk.ask(add_many(version, added(one.name, pair, {name: [0]}, verify=verify)))


@book.case("brokers: verified", versions=ADD_BY_BROKERS)
def verified(talk: Talk, version: int) -> None:
    """Before a partition is in, while it is, and after the outcome; nothing is added."""
    name, one = talk.topic(partitions=3), Producer(talk)

    def verify(*indexes: int) -> Any:
        return add_many(version, added(one.name, one.pair, {name: indexes}, verify=True))

    talk.ask(verify(0))
    one.begin(name, 0, 1)
    talk.ask(verify(0))
    talk.ask(verify(1, 2, 0))
    talk.ask(verify())
    state_of(talk, one.name)
    one.commit()
    talk.ask(verify(0))
    one.begin(name, 2)
    one.abort(version=5)
    talk.ask(verify(2))


@book.case("brokers: several", versions=ADD_BY_BROKERS)
def several(talk: Talk, version: int) -> None:
    name = talk.topic(partitions=2)
    one, two, three = (Producer(talk, each) for each in ("a", "b", "c"))
    two.begin(name, 1)
    talk.ask(
        add_many(
            version,
            added(one.name, one.pair, {name: [0, 1]}),
            added(two.name, two.pair, {name: [0, 1]}, verify=True),
            added(three.name, three.pair.later(), {name: [0]}),
            added(talk.name("none"), Pair(5, 0), {name: [0]}),
            added(talk.name("none-2"), Pair(5, 0), {talk.name("none"): [0], name: [0]}),
        )
    )
    state_of(talk, one.name, two.name, three.name)


@book.case("brokers: an id twice", versions=ADD_BY_BROKERS)
def twice(talk: Talk, version: int) -> None:
    name, one = talk.topic(partitions=2), Producer(talk)
    first = added(one.name, one.pair, {name: [0]})
    second = added(one.name, one.pair, {name: [1]})
    talk.ask(add_many(version, first, second))
    state_of(talk, one.name)


@book.case("brokers: an empty id", versions=ADD_BY_BROKERS, over={"add": False, "verify": True})
def brokers_empty_id(talk: Talk, version: int, verify: bool) -> None:
    talk.ask(add_many(version, added("", Pair(5, 0), {talk.topic(): [0]}, verify=verify)))


@book.case("brokers: none", versions=ADD_BY_BROKERS)
def brokers_none(talk: Talk, version: int) -> None:
    talk.send(add_many(version))
    talk.nothing(within_ms=300)


add_shapes(
    book,
    ApiKey.ADD_PARTITIONS_TO_TXN,
    ADD,
    lambda talk, version: add(version, "never-used", Pair(5, 0), {"none": [0]}),
)
add_shapes(
    book,
    ApiKey.ADD_PARTITIONS_TO_TXN,
    ADD_BY_BROKERS,
    lambda talk, version: add_many(version, added("never-used", Pair(5, 0), {"none": [0]})),
    title="brokers",
)
