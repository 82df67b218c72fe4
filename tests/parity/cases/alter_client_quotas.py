"""AlterClientQuotas (49), and the answers of DescribeClientQuotas (48) afterwards."""

from __future__ import annotations

import itertools
from typing import Any

from kbroker.types import ApiKey
from tests.parity.book import Book
from tests.parity.cases._shapes import add_shapes
from tests.parity.requests import build
from tests.parity.talk import Talk

VERSIONS = range(2)
EXACT, DEFAULT, ANY = 0, 1, 2
PRODUCER, CONSUMER = "producer_byte_rate", "consumer_byte_rate"
PERCENTAGE, MUTATIONS = "request_percentage", "controller_mutation_rate"
CONNECTIONS = "connection_creation_rate"

book = Book(setup="quotas")
cases = book.cases

Names = list[tuple[str, str | None]]
Ops = list[tuple[str, float | None]]


def change(names: Names, ops: Ops) -> dict[str, Any]:
    return {
        "entity": [{"entity_type": kind, "entity_name": name} for kind, name in names],
        "ops": [{"key": key, "value": value or 0.0, "remove": value is None} for key, value in ops],
    }


def alter(version: int, *changes: dict[str, Any], validate_only: bool = False) -> Any:
    return build(
        ApiKey.ALTER_CLIENT_QUOTAS, version, entries=list(changes), validate_only=validate_only
    )


_marks = itertools.count(1)


def settle(talk: Talk) -> None:
    """Wait until the alteration is in force: in Apache Kafka that is a moment after the answer."""
    name, value = talk.name("mark"), float(next(_marks))
    talk.quietly(alter(1, change([("user", name)], [(PRODUCER, value)])))
    component = {"entity_type": "user", "match_type": EXACT, "match": name}
    asked = build(ApiKey.DESCRIBE_CLIENT_QUOTAS, 1, components=[component], strict=True)
    talk.until(
        lambda: [value] == [each.value for e in talk.quietly(asked).entries for each in e.values]
    )


def describe(talk: Talk, *components: tuple[str, int, str | None], strict: bool = False) -> None:
    named = [
        {"entity_type": kind, "match_type": match, "match": name}
        for kind, match, name in components
    ]
    settle(talk)
    talk.ask(build(ApiKey.DESCRIBE_CLIENT_QUOTAS, 1, components=named, strict=strict))


# --- keys and values, of an entity of the case's own ----------------------------------------------

VALUES: dict[str, Ops] = {
    "a byte rate": [(PRODUCER, 1024.0)],
    "all of a client": [(PRODUCER, 1.0), (CONSUMER, 2.0), (PERCENTAGE, 3.5), (MUTATIONS, 0.25)],
    "nothing": [],
    "zero": [(PRODUCER, 0.0)],
    "below zero": [(CONSUMER, -1.0)],
    "a fraction of a byte": [(PRODUCER, 1.5)],
    "almost whole": [(PRODUCER, 5.0000000001)],
    "a tiny byte rate": [(PRODUCER, 1e-9)],
    "a tiny percentage": [(PERCENTAGE, 1e-9)],
    "a huge byte rate": [(PRODUCER, 1e300)],
    "the largest byte rate": [(PRODUCER, 9.223372036854775807e18)],
    "beyond the largest byte rate": [(PRODUCER, 1e19)],
    "a huge percentage": [(PERCENTAGE, 1e300)],
    "infinity": [(PERCENTAGE, float("inf"))],
    "no number": [(PERCENTAGE, float("nan"))],
    "no number of bytes": [(PRODUCER, float("nan"))],
    "an unknown key": [("speed", 1.0)],
    "a key of addresses": [(CONNECTIONS, 1.0)],
    "a password": [("SCRAM-SHA-256", 1.0)],
    "an empty key": [("", 1.0)],
    "a key twice": [(PRODUCER, 1.0), (PRODUCER, 2.0)],
    "a key set and removed": [(PRODUCER, 1.0), (PRODUCER, None)],
    "a removal of a key that is not set": [(PRODUCER, None)],
    "a removal of an unknown key": [("speed", None)],
    "a wrong one beside a right one": [(PRODUCER, 1.0), (CONSUMER, -1.0)],
}


@book.case("a user", versions=VERSIONS, over=VALUES)
def of_a_user(talk: Talk, version: int, ops: Ops) -> None:
    name = talk.name("u")
    talk.ask(alter(version, change([("user", name)], ops)))
    describe(talk, ("user", EXACT, name))


@book.case("a client of a user", versions=[1], over=VALUES)
def of_a_client(talk: Talk, version: int, ops: Ops) -> None:
    name = talk.name("u")
    talk.ask(alter(version, change([("user", name), ("client-id", "c")], ops)))
    describe(talk, ("user", EXACT, name))


ADDRESS_VALUES: dict[str, Ops] = {
    "a rate": [(CONNECTIONS, 5.0)],
    "a fraction": [(CONNECTIONS, 1.5)],
    "too much": [(CONNECTIONS, 2.0**31)],
    "zero": [(CONNECTIONS, 0.0)],
    "a key of clients": [(PRODUCER, 5.0)],
}


@book.case("an address", versions=[1], over=ADDRESS_VALUES, alone=True)
def of_an_address(talk: Talk, version: int, ops: Ops) -> None:
    names: Names = [("ip", "192.0.2.7")]
    talk.ask(alter(version, change(names, ops)))
    describe(talk, ("ip", EXACT, "192.0.2.7"))
    talk.ask(alter(version, change(names, [(CONNECTIONS, None)])))
    describe(talk, ("ip", EXACT, "192.0.2.7"))


# --- entities -------------------------------------------------------------------------------------

ENTITIES: dict[str, Names] = {
    "no part": [],
    "an empty user": [("user", "")],
    "an empty client": [("client-id", "")],
    "an unknown kind": [("group", "g")],
    "an empty kind": [("", "x")],
    "a kind in capitals": [("USER", "x")],
    "a user and an address": [("user", "x"), ("ip", "192.0.2.1")],
    "a client and an address": [("client-id", "x"), ("ip", "192.0.2.1")],
    "a user and an unknown kind": [("user", "x"), ("group", "g")],
    "a host that does not exist": [("ip", "no-such-host.invalid")],
    "an empty address": [("ip", "")],
    "a user twice": [("user", "first"), ("user", "")],
}


@book.case("an entity that is none", versions=VERSIONS, over=ENTITIES)
def of_no_entity(talk: Talk, version: int, names: Names) -> None:
    key = (
        CONNECTIONS
        if ("ip", "") in names or (len(names) == 1 and names[0][0] == "ip")
        else PRODUCER
    )
    talk.ask(alter(version, change(names, [(key, 1024.0)])))


@book.case("kinds of entities", versions=VERSIONS)
def kinds(talk: Talk, version: int) -> None:
    user, client = talk.name("u"), talk.name("c")
    named: list[Names] = [
        [("user", user)],
        [("client-id", client)],
        [("client-id", client), ("user", user)],
        [("user", user), ("client-id", None)],
        [("user", None), ("client-id", client)],
    ]
    talk.ask(alter(version, *(change(each, [(PRODUCER, 7.0)]) for each in named)))
    for strict in (False, True):
        describe(talk, ("user", EXACT, user), strict=strict)
        describe(talk, ("client-id", EXACT, client), strict=strict)
        describe(talk, ("user", EXACT, user), ("client-id", ANY, None), strict=strict)
        describe(talk, ("user", DEFAULT, None), ("client-id", EXACT, client), strict=strict)
        describe(talk, ("user", EXACT, user), ("client-id", DEFAULT, None), strict=strict)
        describe(talk, ("user", ANY, None), ("client-id", EXACT, client), strict=strict)


@book.case("the default entities", versions=VERSIONS, alone=True)
def defaults(talk: Talk, version: int) -> None:
    for names, key in (
        ([("user", None)], PRODUCER),
        ([("client-id", None)], CONSUMER),
        ([("user", None), ("client-id", None)], PERCENTAGE),
        ([("ip", None)], CONNECTIONS),
    ):
        talk.ask(alter(version, change(names, [(key, 1e6)])))
        describe(talk, *((kind, DEFAULT, None) for kind, _ in names), strict=True)
        talk.ask(alter(version, change(names, [(key, None)])))
        describe(talk, *((kind, DEFAULT, None) for kind, _ in names), strict=True)


# --- several at once ------------------------------------------------------------------------------


@book.case("one wrong among others", versions=VERSIONS)
def one_wrong(talk: Talk, version: int) -> None:
    names = [talk.name(each) for each in "abc"]
    rates = (1.0, -1.0, 3.0)
    changes = (
        change([("user", name)], [(PRODUCER, rate)])
        for name, rate in zip(names, rates, strict=True)
    )
    talk.ask(alter(version, *changes))
    for name in names:
        describe(talk, ("user", EXACT, name))


@book.case("an entity twice", versions=VERSIONS)
def twice(talk: Talk, version: int) -> None:
    name = talk.name("u")
    changes = [change([("user", name)], [(PRODUCER, rate)]) for rate in (1.0, 2.0)]
    talk.ask(alter(version, *changes))
    describe(talk, ("user", EXACT, name))


@book.case("an entity twice, its parts in another order", versions=[1])
def twice_turned(talk: Talk, version: int) -> None:
    names: Names = [("user", talk.name("u")), ("client-id", "c")]
    first = change(names, [(PRODUCER, 1.0)])
    talk.ask(alter(version, first, change(names[::-1], [(CONSUMER, 2.0)])))
    describe(talk, ("user", EXACT, names[0][1]))


@book.case("no entity at all", versions=VERSIONS)
def nothing(talk: Talk, version: int) -> None:
    talk.ask(alter(version))


@book.case("validation only", versions=VERSIONS)
def validated(talk: Talk, version: int) -> None:
    good, bad = talk.name("g"), talk.name("b")
    fine = change([("user", good)], [(PRODUCER, 1.0)])
    wrong = change([("user", bad)], [(PRODUCER, -1.0)])
    talk.ask(alter(version, fine, wrong, validate_only=True))
    describe(talk, ("user", EXACT, good))


@book.case("set, altered and removed", versions=VERSIONS)
def steps(talk: Talk, version: int) -> None:
    name = talk.name("u")
    for ops in (
        [(PRODUCER, 1.0), (CONSUMER, 2.0)],
        [(PRODUCER, 5.0)],
        [(CONSUMER, None), (PERCENTAGE, 50.0)],
        [(PRODUCER, None), (PERCENTAGE, None)],
    ):
        talk.ask(alter(version, change([("user", name)], ops)))
        describe(talk, ("user", EXACT, name))


@book.case("names with signs", versions=[1])
def signs(talk: Talk, version: int) -> None:
    name = talk.name("u") + "/ <default> * %2F \u20ac"
    talk.ask(alter(version, change([("user", name), ("client-id", "..")], [(PRODUCER, 1.0)])))
    talk.ask(alter(version, change([("user", name), ("client-id", "a..")], [(PRODUCER, 1.0)])))
    describe(talk, ("user", EXACT, name))


def _one(talk: Talk, version: int) -> Any:
    return alter(version, change([("user", talk.name("u"))], [(PRODUCER, 1024.0)]))


add_shapes(book, ApiKey.ALTER_CLIENT_QUOTAS, list(VERSIONS), _one)
