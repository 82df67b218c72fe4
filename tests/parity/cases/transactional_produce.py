"""Produce (0) in transactions: verified batches, partitions that it adds by itself, refusals."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.parity.book import Book
from tests.parity.cases._transactions import (
    END_AND_RAISE,
    TRANSACTIONAL,
    Pair,
    Producer,
    control_batch,
    describe_producers,
    in_transaction,
    log_of,
    state_of,
    with_clock,
)
from tests.parity.cases.add_partitions_to_txn import PAIRS
from tests.parity.data import PRODUCE_VERSIONS, batch, changed, in_short, produce
from tests.parity.talk import Talk

# 10: 48 where a partition was not added; 11: 120; 12: added by itself; 13: with the topic's id.
KINDS = (3, 10, 11, 12, 13)

book = Book(setup="coordinators")
cases = book.cases


def put(
    talk: Talk, version: int, one: Producer | str | None, name: str, *data: bytes, acks: int = -1
) -> Any:
    """The batches to partition 0, 1 and so on."""
    asked = produce(
        talk,
        version,
        (name, dict(enumerate(data))),
        transactional_id=one.name if isinstance(one, Producer) else one,
        acks=acks,
    )
    return talk.ask(asked, view=in_short)


@book.case("to a partition that was added", versions=PRODUCE_VERSIONS)
def to_added(talk: Talk, version: int) -> None:
    name, one = talk.topic(), Producer(talk)
    one.begin(name)
    for sequence in range(3):
        put(talk, version, one, name, in_transaction(one.pair, sequence))
    talk.ask(describe_producers((name, 0)), view=with_clock)
    one.commit()
    log_of(talk, name)


@book.case("to a partition that was not added", versions=PRODUCE_VERSIONS)
def to_another(talk: Talk, version: int) -> None:
    """Before the transaction, within it, and after its outcome."""
    name, one = talk.topic(partitions=2), Producer(talk)
    put(talk, version, one, name, in_transaction(one.pair, 0))
    one.begin(name, 1)
    put(talk, version, one, name, in_transaction(one.pair, 1), in_transaction(one.pair, 0))
    state_of(talk, one.name)
    one.commit()
    put(talk, version, one, name, in_transaction(one.pair, 2))
    state_of(talk, one.name)
    log_of(talk, name)


@book.case("not its pair", versions=KINDS, over=PAIRS)
def pairs(talk: Talk, version: int, of: Callable[[Pair], Pair]) -> None:
    name, one = talk.topic(partitions=2), Producer(talk)
    one.renew()
    pair = of(one.pair)
    put(talk, version, one, name, in_transaction(pair, 0))
    one.begin(name)
    put(talk, version, one, name, in_transaction(pair, 0))
    one.write(name)
    put(talk, version, one, name, in_transaction(pair, 0))
    one.commit()
    put(talk, version, one, name, in_transaction(pair, 0))
    state_of(talk, one.name)
    log_of(talk, name)


@book.case("an id that is unknown", versions=KINDS)
def unknown(talk: Talk, version: int) -> None:
    name, one = talk.topic(), Producer(talk)
    put(talk, version, talk.name("other"), name, in_transaction(one.pair, 0))


@book.case("without an id in the request", versions=KINDS)
def without_id(talk: Talk, version: int) -> None:
    name, one = talk.topic(partitions=2), Producer(talk)
    one.begin(name)
    put(talk, version, None, name, in_transaction(one.pair, 0), batch())
    put(talk, version, "", name, in_transaction(one.pair, 0))


def plain(pair: Pair, sequence: int) -> bytes:
    return changed(in_transaction(pair, sequence), attributes=0)


@book.case("a batch that is not transactional", versions=KINDS)
def not_transactional(talk: Talk, version: int) -> None:
    """With the id in the request: of no producer, of this one before, within and after."""
    name, one = talk.topic(), Producer(talk)
    put(talk, version, one, name, batch(b"of none"))
    put(talk, version, one, name, plain(one.pair, 0))
    one.begin(name)
    put(talk, version, one, name, plain(one.pair, 1))
    put(talk, version, one, name, in_transaction(one.pair, 2))
    put(talk, version, one, name, plain(one.pair, 3))
    put(talk, version, None, name, plain(one.pair, 3))
    one.commit()
    put(talk, version, one, name, plain(one.pair, 3))
    log_of(talk, name)


@book.case("a first sequence of 5", versions=KINDS, over={"added": True, "not added": False})
def first_sequence(talk: Talk, version: int, is_added: bool) -> None:
    name, one = talk.topic(), Producer(talk)
    if is_added:
        one.begin(name)
    put(talk, version, one, name, in_transaction(one.pair, 5))
    put(talk, version, one, name, in_transaction(one.pair, 0))
    log_of(talk, name)


@book.case("gaps and duplicates", versions=KINDS)
def gaps(talk: Talk, version: int) -> None:
    name, one = talk.topic(), Producer(talk)
    one.begin(name)
    for sequence in (0, 2, 1, 0, 1, 2, 2):
        put(talk, version, one, name, in_transaction(one.pair, sequence))
    one.commit()
    for sequence in (2, 0, 3):
        put(talk, version, one, name, in_transaction(one.pair, sequence))
    log_of(talk, name)


@book.case("after an outcome that raised the epoch", versions=KINDS, over={"commit": 1, "abort": 0})
def raised(talk: Talk, version: int, committed: int) -> None:
    name, one = talk.topic(), Producer(talk)
    one.begin(name)
    one.write(name)
    before = one.pair
    one.end(committed=bool(committed), version=END_AND_RAISE)
    put(talk, version, one, name, in_transaction(before, 0))
    put(talk, version, one, name, in_transaction(before, 1))
    put(talk, version, one, name, in_transaction(one.pair, 1))
    put(talk, version, one, name, in_transaction(one.pair, 0))
    one.begin(name)
    put(talk, version, one, name, in_transaction(one.pair, 1))
    put(talk, version, one, name, in_transaction(one.pair, 0))
    log_of(talk, name)


@book.case("replaced by another process", versions=KINDS)
def replaced(talk: Talk, version: int) -> None:
    name, one = talk.topic(), Producer(talk)
    one.begin(name)
    one.write(name)
    before = one.pair
    one.renew()
    put(talk, version, one, name, in_transaction(before, 1))
    put(talk, version, one, name, in_transaction(one.pair, 0))
    one.begin(name)
    put(talk, version, one, name, in_transaction(one.pair, 0))
    put(talk, version, one, name, in_transaction(before, 1))
    log_of(talk, name)


@book.case("two producers in one request", versions=KINDS)
def two_producers(talk: Talk, version: int) -> None:
    name = talk.topic(partitions=2)
    one, two = Producer(talk, "a"), Producer(talk, "b")
    one.begin(name, 0)
    two.begin(name, 1)
    put(talk, version, one, name, in_transaction(one.pair, 0), in_transaction(two.pair, 0))
    put(talk, version, one, name, in_transaction(one.pair, 0), plain(two.pair, 0))


@book.case("another's id", versions=KINDS)
def anothers(talk: Talk, version: int) -> None:
    name = talk.topic()
    one, two = Producer(talk, "a"), Producer(talk, "b")
    two.begin(name)
    put(talk, version, one, name, in_transaction(two.pair, 0))
    put(talk, version, two, name, in_transaction(two.pair, 0))
    put(talk, version, one, name, in_transaction(two.pair, 1))
    log_of(talk, name)


@book.case("a marker", versions=KINDS)
def a_marker(talk: Talk, version: int) -> None:
    name, one = talk.topic(partitions=2), Producer(talk)
    one.begin(name)
    put(talk, version, one, name, control_batch(one.pair), in_transaction(one.pair, 0))
    log_of(talk, name)


@book.case("without a producer id", versions=KINDS)
def no_producer(talk: Talk, version: int) -> None:
    name, one = talk.topic(), Producer(talk)
    put(talk, version, one, name, batch(attributes=TRANSACTIONAL))


@book.case("to what is not there", versions=KINDS[:-1])
def not_there(talk: Talk, version: int) -> None:
    one = Producer(talk)
    put(talk, version, one, talk.name("none"), in_transaction(one.pair, 0))
    name = talk.topic()
    put(talk, version, one, name, in_transaction(one.pair, 0), in_transaction(one.pair, 0))
    state_of(talk, one.name)


@book.case("with one acknowledgement", versions=KINDS)
def one_ack(talk: Talk, version: int) -> None:
    name, one = talk.topic(partitions=2), Producer(talk)
    one.begin(name)
    put(talk, version, one, name, in_transaction(one.pair, 0), acks=1)
    put(talk, version, one, name, in_transaction(one.pair, 1), in_transaction(one.pair, 0), acks=1)


@book.case(
    "the broker's time, and compressed", over={"gzip": "gzip", "zstd": "zstd", "none": "none"}
)
def other_ways(talk: Talk, codec: str) -> None:
    name = talk.topic(
        configs={"message.timestamp.type": "LogAppendTime", "compression.type": "producer"}
    )
    one = Producer(talk)
    one.begin(name)
    one.write(name, 0, b"a", b"b", codec=codec)
    one.commit()
    one.begin(name)
    one.write(name, 0, b"c", codec=codec)
    one.abort()
    log_of(talk, name)
