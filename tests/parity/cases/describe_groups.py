"""DescribeGroups (15): a group's state, its protocol and its members."""

from __future__ import annotations

from kbroker.types import ApiKey
from tests.parity.book import Book
from tests.parity.cases._groups import (
    DESCRIBE,
    Member,
    commit,
    delete_groups,
    describe,
    dissolved,
    in_one,
    join,
    stable,
    synced,
    together,
    until,
)
from tests.parity.cases._shapes import add_shapes
from tests.parity.requests import Raw
from tests.parity.talk import Talk

OPERATIONS = range(3, 7)
STATIC = range(4, 7)

book = Book(setup="coordinators")
cases = book.cases


@book.case("nobody", versions=DESCRIBE)
def no_names(talk: Talk, version: int) -> None:
    talk.ask(describe(version))


@book.case("a group without a name", versions=DESCRIBE)
def no_name(talk: Talk, version: int) -> None:
    talk.ask(describe(version, ""))


@book.case("a group that is not there", versions=DESCRIBE)
def no_group(talk: Talk, version: int) -> None:
    talk.ask(describe(version, talk.name("g")))


@book.case("a group that only has commits", versions=DESCRIBE)
def simple(talk: Talk, version: int) -> None:
    group, name = talk.name("g"), talk.topic()
    talk.quietly(commit(talk, 9, group, (name, {0: 1})))
    talk.ask(describe(version, group))


@book.case("Empty", versions=DESCRIBE)
def empty(talk: Talk, version: int) -> None:
    talk.ask(describe(version, dissolved(talk)))


@book.case("Dead", versions=DESCRIBE)
def dead(talk: Talk, version: int) -> None:
    group = dissolved(talk)
    talk.quietly(delete_groups(2, group))
    talk.ask(describe(version, group))


@book.case("Stable", versions=DESCRIBE)
def in_stable(talk: Talk, version: int) -> None:
    talk.ask(describe(version, synced(together(talk, 3))[0].group))


@book.case("CompletingRebalance", versions=DESCRIBE)
def completing(talk: Talk, version: int) -> None:
    talk.ask(describe(version, together(talk, 3)[0].group))


@book.case("PreparingRebalance", versions=DESCRIBE)
def preparing(talk: Talk, version: int) -> None:
    leader = stable(talk)
    Member(talk, leader.group).send_join()
    until(talk, leader.group, "PreparingRebalance", 2)
    talk.ask(describe(version, leader.group))


@book.case("PreparingRebalance for the first time", versions=DESCRIBE)
def pending(talk: Talk, version: int) -> None:
    """An id was given and not used."""
    group = talk.name("g")
    talk.quietly(join(9, group))
    talk.ask(describe(version, group))


@book.case("static", versions=DESCRIBE)
def static(talk: Talk, version: int) -> None:
    members = synced(in_one(talk, [{"instance": "one"}, {"instance": "two"}]))
    talk.ask(describe(version, members[0].group))


@book.case("of connect", versions=DESCRIBE)
def connect(talk: Talk, version: int) -> None:
    member = stable(talk, kind="connect", protocols=(("one", b"1"), ("two", b"2")))
    talk.ask(describe(version, member.group))


CLIENTS = {"null": None, "empty": "", "odd": "a b\n\u00fc"}


@book.case("a client", versions=DESCRIBE, over=CLIENTS)
def clients(talk: Talk, version: int, client_id: str | None) -> None:
    talk.ask(describe(version, stable(talk, client_id=client_id).group))


@book.case("who may do what", versions=OPERATIONS)
def operations(talk: Talk, version: int) -> None:
    group, name = talk.name("g"), talk.topic()
    talk.quietly(commit(talk, 9, group, (name, {0: 1})))
    talk.ask(describe(version, group, operations=True))
    talk.ask(describe(version, talk.name("none"), operations=True))
    talk.ask(describe(version, "", operations=True))


@book.case("several", versions=DESCRIBE)
def several(talk: Talk, version: int) -> None:
    groups = [stable(talk, "a").group, dissolved(talk, "b"), talk.name("none"), ""]
    talk.ask(describe(version, *groups))


@book.case("one twice", versions=DESCRIBE)
def twice(talk: Talk, version: int) -> None:
    group = dissolved(talk)
    talk.ask(describe(version, group, group))


@book.case("null names", versions=DESCRIBE)
def null_names(talk: Talk, version: int) -> None:
    body = b"\x00\x00\x00" if version >= 5 else b"\xff\xff\xff\xff"
    talk.ask(Raw(ApiKey.DESCRIBE_GROUPS, version, body + (b"\x00" if 3 <= version < 5 else b"")))


@book.case("more names than bytes", versions=DESCRIBE)
def too_many(talk: Talk, version: int) -> None:
    body = b"\xff\xff\xff\xff\x07" if version >= 5 else b"\x7f\xff\xff\xff"
    talk.ask(Raw(ApiKey.DESCRIBE_GROUPS, version, body))


add_shapes(
    book, ApiKey.DESCRIBE_GROUPS, DESCRIBE, lambda talk, version: describe(version, "nobody's")
)
