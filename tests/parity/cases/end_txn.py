"""EndTxn (26): each outcome in each state, up to version 4 with the epoch kept, then with another.

A request is asked again once the markers are written, as a client does that has lost the answer.
"""

from __future__ import annotations

from collections.abc import Callable

from kbroker.types import ApiKey
from tests.parity.book import Book
from tests.parity.cases._shapes import add_shapes
from tests.parity.cases._transactions import (
    END,
    END_AND_RAISE,
    INIT,
    Pair,
    Producer,
    end,
    init,
    log_of,
    state_of,
)
from tests.parity.cases.add_partitions_to_txn import PAIRS
from tests.parity.talk import Talk

book = Book(setup="coordinators")
cases = book.cases


def nothing_yet(one: Producer, name: str) -> None:
    pass


def ongoing(one: Producer, name: str) -> None:
    one.begin(name, 0, 1)
    one.write(name, 0)
    one.write(name, 0)


def nothing_written(one: Producer, name: str) -> None:
    one.begin(name, 0)


def committed_before(one: Producer, name: str) -> None:
    ongoing(one, name)
    one.commit()


def aborted_before(one: Producer, name: str) -> None:
    ongoing(one, name)
    one.abort()


def committed_and_raised(one: Producer, name: str) -> None:
    ongoing(one, name)
    one.commit(version=END_AND_RAISE)


def aborted_and_raised(one: Producer, name: str) -> None:
    ongoing(one, name)
    one.abort(version=END_AND_RAISE)


def renewed_after_commit(one: Producer, name: str) -> None:
    committed_before(one, name)
    one.renew()


Before = Callable[[Producer, str], None]
STATES: dict[str, Before] = {
    "nothing yet": nothing_yet,
    "ongoing": ongoing,
    "nothing written": nothing_written,
    "committed": committed_before,
    "aborted": aborted_before,
    "committed and raised": committed_and_raised,
    "aborted and raised": aborted_and_raised,
    "renewed": renewed_after_commit,
}
OUTCOMES = {"commit": True, "abort": False}


@book.case(
    "each outcome",
    versions=END,
    over={f"{s}, {o}": (STATES[s], OUTCOMES[o]) for s in STATES for o in OUTCOMES},
)
def outcomes(talk: Talk, version: int, how: tuple[Before, bool]) -> None:
    """The request, itself again, and then the other outcome, all with the first pair."""
    before, committed = how
    name, one = talk.topic(partitions=2), Producer(talk)
    before(one, name)
    for outcome in (committed, committed, not committed):
        talk.ask(end(version, one.name, one.pair, committed=outcome))
        one.over()
    state_of(talk, one.name)
    log_of(talk, name, 0)
    log_of(talk, name, 1)


@book.case(
    "not its pair",
    versions=END,
    over={f"{p}, {o}": (PAIRS[p], OUTCOMES[o]) for p in PAIRS for o in OUTCOMES},
)
def pairs(talk: Talk, version: int, how: tuple[Callable[[Pair], Pair], bool]) -> None:
    """Before a transaction, within one, and after another outcome by the version of its own."""
    name, one = talk.topic(partitions=2), Producer(talk)
    one.renew()
    of, committed = how
    for step in (nothing_yet, ongoing, committed_before, aborted_before, committed_and_raised):
        step(one, name)
        talk.ask(end(version, one.name, of(one.pair), committed=committed))
        one.over()
        if step is ongoing:
            one.commit()
    state_of(talk, one.name)


@book.case("an id that is unknown", versions=END, over=OUTCOMES)
def unknown(talk: Talk, version: int, committed: bool) -> None:
    talk.ask(end(version, talk.name("tx"), Pair(5, 0), committed=committed))


@book.case("an empty id", versions=END, over=OUTCOMES)
def empty(talk: Talk, version: int, committed: bool) -> None:
    talk.ask(end(version, "", Pair(5, 0), committed=committed))


@book.case("a topic that is gone", versions=END, over=OUTCOMES)
def gone(talk: Talk, version: int, committed: bool) -> None:
    name, other, one = talk.topic(), talk.topic("u"), Producer(talk)
    one.begin(name)
    one.begin(other)
    one.write(name)
    one.write(other)
    talk.delete(name)
    talk.ask(end(version, one.name, one.pair, committed=committed))
    one.over()
    state_of(talk, one.name)
    log_of(talk, other)


@book.case("replaced by another process", versions=END, over=OUTCOMES)
def replaced(talk: Talk, version: int, committed: bool) -> None:
    """Its open transaction was aborted, and it does not know yet."""
    name, one = talk.topic(partitions=2), Producer(talk)
    ongoing(one, name)
    old = one.pair
    one.renew()
    talk.ask(end(version, one.name, old, committed=committed))
    one.over()
    talk.ask(end(version, one.name, one.pair, committed=committed))
    one.over()
    state_of(talk, one.name)


@book.case("ended by clients of both kinds in turn")
def both_kinds(talk: Talk) -> None:
    name, one = talk.topic(partitions=2), Producer(talk)
    for version in (4, 5, 3, 5, 5, 0):
        ongoing(one, name)
        one.commit(version)
        talk.note(f"epoch after v{version}", one.pair.epoch)
    state_of(talk, one.name)
    log_of(talk, name)


@book.case("InitProducerId with its pair afterwards", versions=INIT[3:], over={"v4": 4, "v5": 5})
def init_afterwards(talk: Talk, version: int, ended_by: int) -> None:
    name, one = talk.topic(partitions=2), Producer(talk)
    ongoing(one, name)
    before = one.pair
    one.abort(ended_by)
    for pair in (before, one.pair, one.pair, one.pair.later()):
        talk.ask(init(version, one.name, pair))
    state_of(talk, one.name)


add_shapes(
    book,
    ApiKey.END_TXN,
    END,
    lambda talk, version: end(version, "never-used", Pair(5, 0), committed=True),
)
