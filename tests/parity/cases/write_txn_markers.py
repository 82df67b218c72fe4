"""WriteTxnMarkers (27): of coordinators, and of an operator that ends a transaction.

The transaction version of a marker (KIP-1228) is a field of version 2 alone.
"""

from __future__ import annotations

from kbroker.types import ApiKey
from tests.parity.book import Book
from tests.parity.cases._groups import fetch_offsets
from tests.parity.cases._shapes import add_shapes
from tests.parity.cases._transactions import (
    COMMIT_OFFSETS,
    MARKERS,
    OFFSETS_TOPIC,
    STATE_TOPIC,
    Pair,
    Producer,
    add_offsets,
    commit_offsets,
    describe,
    describe_producers,
    in_transaction,
    log_of,
    marker,
    markers,
    state_of,
    with_clock,
)
from tests.parity.data import produce
from tests.parity.talk import Talk

book = Book(setup="coordinators")
cases = book.cases

SOON_MS = 300
OUTCOMES = {"commit": True, "abort": False}
# By version: the levels that it can name.
LEVELS = {"v1": (1, 0), "v2, level 0": (2, 0), "v2, level 1": (2, 1), "v2, level 2": (2, 2)}
ODD_LEVELS = {"-1": -1, "3": 3, "127": 127}


def producers_of(talk: Talk, name: str, index: int = 0) -> None:
    talk.ask(describe_producers((name, index)), view=with_clock)


def open_one(talk: Talk, name: str, *indexes: int) -> Producer:
    """A transaction with two batches in each partition."""
    one = Producer(talk)
    one.begin(name, *(indexes or (0,)))
    for index in indexes or (0,):
        one.write(name, index)
        one.write(name, index)
    return one


@book.case(
    "of an open transaction",
    over={
        f"{level}, {epochs:+} epochs, {outcome}": (*LEVELS[level], epochs, OUTCOMES[outcome])
        for level in LEVELS
        for epochs in (-1, 0, 1, 5)
        for outcome in OUTCOMES
    },
)
def of_open(talk: Talk, how: tuple[int, int, int, bool]) -> None:
    """Twice; then the producer goes on with the next sequence, and the coordinator ends it."""
    version, level, epochs, committed = how
    name = talk.topic()
    one = open_one(talk, name)
    one.renew()
    one.begin(name)
    one.write(name)
    entry = marker(one.pair.later(epochs), {name: [0]}, committed=committed, level=level)
    talk.ask(markers(version, entry))
    producers_of(talk, name)
    talk.ask(markers(version, entry))
    data = in_transaction(one.pair, 1)
    talk.ask(produce(talk, 9, (name, {0: data}), transactional_id=one.name))
    producers_of(talk, name)
    log_of(talk, name)


@book.case("then the coordinator's own", versions=MARKERS, over=OUTCOMES)
def then_its_own(talk: Talk, version: int, committed: bool) -> None:
    name = talk.topic()
    one = open_one(talk, name)
    talk.ask(markers(version, marker(one.pair, {name: [0]}, committed=committed)))
    one.commit()
    state_of(talk, one.name)
    log_of(talk, name)
    producers_of(talk, name)


@book.case(
    "a coordinator's epoch",
    versions=MARKERS,
    over={
        f"{first} then {second}": (first, second) for first in (-1, 0, 7) for second in (-1, 6, 7)
    },
)
def coordinator_epochs(talk: Talk, version: int, epochs: tuple[int, int]) -> None:
    name = talk.topic()
    one = open_one(talk, name)
    for epoch in epochs:
        entry = marker(one.pair, {name: [0]}, committed=False, coordinator_epoch=epoch)
        talk.ask(markers(version, entry))
        producers_of(talk, name)
    log_of(talk, name)


@book.case("of a producer that the partition does not know", over=LEVELS)
def unknown_producer(talk: Talk, how: tuple[int, int]) -> None:
    version, level = how
    name, one = talk.topic(), Producer(talk)
    talk.ask(markers(version, marker(one.pair, {name: [0]}, level=level)))
    producers_of(talk, name)
    talk.ask(markers(version, marker(one.pair, {name: [0]}, level=level, committed=False)))
    log_of(talk, name)
    one.begin(name)
    one.write(name)
    one.commit()
    log_of(talk, name)


@book.case("after its transaction", over=LEVELS)
def after(talk: Talk, how: tuple[int, int]) -> None:
    """An order that comes late, or twice."""
    version, level = how
    name = talk.topic()
    one = open_one(talk, name)
    one.commit()
    for epochs in (0, -1, 0, 2, 1):
        talk.ask(markers(version, marker(one.pair.later(epochs), {name: [0]}, level=level)))
    producers_of(talk, name)
    log_of(talk, name)


@book.case("late, in the next transaction", versions=MARKERS, over=OUTCOMES)
def late(talk: Talk, version: int, committed: bool) -> None:
    """A copy of a marker that was written, in the same epoch: it ends the transaction that is open.
    The producer goes on, and so does its coordinator."""
    name = talk.topic()
    one = open_one(talk, name)
    one.end(committed=committed)
    one.begin(name)
    one.write(name)
    talk.ask(markers(version, marker(one.pair, {name: [0]}, committed=committed)))
    producers_of(talk, name)
    log_of(talk, name)
    one.end(committed=not committed)
    log_of(talk, name)
    producers_of(talk, name)


@book.case("a level that there is not", over=ODD_LEVELS)
def odd_level(talk: Talk, level: int) -> None:
    name = talk.topic()
    one = open_one(talk, name)
    talk.ask(markers(2, marker(one.pair, {name: [0]}, level=level)))
    talk.ask(markers(2, marker(one.pair.later(), {name: [0]}, level=level)))


@book.case("an epoch at the end", versions=MARKERS)
def last_epoch(talk: Talk, version: int) -> None:
    name = talk.topic()
    one = open_one(talk, name)
    for epoch in (32_767, 32_766, -1, 32_767):
        talk.ask(markers(version, marker(Pair(one.pair.producer_id, epoch), {name: [0]})))
    producers_of(talk, name)


@book.case("a producer id below zero", versions=MARKERS)
def no_producer(talk: Talk, version: int) -> None:
    name = talk.topic()
    talk.ask(markers(version, marker(Pair(-1, -1), {name: [0]})))
    log_of(talk, name)


WAYS: dict[str, list[tuple[str, list[int]]]] = {
    "no topic": [],
    "no partition": [("t", [])],
    "a partition that is not there": [("t", [0, 9])],
    "below zero": [("t", [-1])],
    "a topic twice": [("t", [0]), ("t", [1])],
    "a topic that is not there": [("none", [0]), ("t", [1])],
    "an empty name": [("", [0])],
    "the metadata log": [("__cluster_metadata", [0])],
    "the coordinators' own log": [(STATE_TOPIC, [99])],
}


@book.case("where to", versions=MARKERS, over=WAYS)
def where_to(talk: Talk, version: int, topics: list[tuple[str, list[int]]]) -> None:
    name = talk.topic(partitions=2)
    own = {each: talk.name(each) for each in ("t", "none")}
    one = open_one(talk, name, 0, 1)
    wanted = [(own.get(each, each), indexes) for each, indexes in topics]
    talk.ask(markers(version, marker(one.pair, wanted)))
    log_of(talk, name, 0)
    log_of(talk, name, 1)


@book.case("a partition twice", versions=MARKERS)
def twice(talk: Talk, version: int) -> None:
    name = talk.topic()
    one = open_one(talk, name)
    talk.send(markers(version, marker(one.pair, {name: [0, 0]})))
    talk.nothing(within_ms=SOON_MS)


@book.case("no marker", versions=MARKERS)
def none(talk: Talk, version: int) -> None:
    talk.ask(markers(version))


@book.case("two producers", versions=MARKERS)
def two_producers(talk: Talk, version: int) -> None:
    name = talk.topic(partitions=2)
    one, two = Producer(talk, "a"), Producer(talk, "b")
    for each in (one, two):
        each.begin(name, 0, 1)
        each.write(name, 0)
    to_both = marker(one.pair, {name: [0, 1]}), marker(two.pair, {name: [1, 0]}, committed=False)
    talk.ask(markers(version, *to_both))
    log_of(talk, name)


@book.case("two of one producer", versions=MARKERS, over={"apart": 1, "in one partition": 0})
def two_of_one(talk: Talk, version: int, second: int) -> None:
    name = talk.topic(partitions=2)
    one = open_one(talk, name, 0, 1)
    entries = marker(one.pair, {name: [0]}), marker(one.pair, {name: [second]}, committed=False)
    talk.ask(markers(version, *entries))
    log_of(talk, name, 0)
    log_of(talk, name, 1)


@book.case("two of one producer, one refused", versions=MARKERS)
def one_refused(talk: Talk, version: int) -> None:
    name = talk.topic()
    one = open_one(talk, name)
    one.renew()
    one.begin(name)
    one.write(name)
    good, bad = marker(one.pair, {name: [0]}), marker(one.pair.later(-1), {name: [0]})
    talk.ask(markers(version, good, bad))
    talk.ask(markers(version, bad, good))
    log_of(talk, name)


@book.case("of offsets", versions=MARKERS, over=OUTCOMES)
def of_offsets(talk: Talk, version: int, committed: bool) -> None:
    """Which count, or do not, from the marker on."""
    name, group, one = talk.topic(), talk.name("g"), Producer(talk)
    talk.quietly(add_offsets(3, one.name, one.pair, group))
    talk.quietly(commit_offsets(COMMIT_OFFSETS[3], one.name, one.pair, group, name, {0: 7}))
    found = talk.quietly(describe(one.name)).transaction_states[0].topics
    places = {each.topic: list(each.partitions) for each in found}
    assert list(places) == [OFFSETS_TOPIC]
    talk.ask(fetch_offsets(talk, 7, group, [(name, [0])], stable=True))
    talk.ask(markers(version, marker(one.pair, places, committed=committed)))
    talk.ask(fetch_offsets(talk, 7, group, [(name, [0])], stable=True))


add_shapes(
    book,
    ApiKey.WRITE_TXN_MARKERS,
    MARKERS,
    lambda talk, version: markers(version, marker(Pair(5, 0), {"none": [0]})),
)
