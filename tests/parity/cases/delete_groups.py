"""DeleteGroups (42): groups without members, with all they have committed."""

from __future__ import annotations

from kbroker.types import ApiKey
from tests.parity.book import Book
from tests.parity.cases._groups import (
    DELETE,
    Member,
    commit,
    delete_groups,
    describe,
    dissolved,
    fetch_offsets,
    join,
    leave,
    stable,
    synced,
    together,
    until,
)
from tests.parity.cases._shapes import add_shapes
from tests.parity.requests import Raw
from tests.parity.talk import Talk

book = Book(setup="coordinators")
cases = book.cases


@book.case("nobody", versions=DELETE)
def no_names(talk: Talk, version: int) -> None:
    talk.ask(delete_groups(version))


@book.case("a group without a name", versions=DELETE, alone=True)
def no_name(talk: Talk, version: int) -> None:
    """It may have commits, of other cases, too."""
    name = talk.topic()
    talk.quietly(commit(talk, 9, "", (name, {0: 1})))
    talk.ask(delete_groups(version, ""))
    talk.ask(delete_groups(version, "", talk.name("g")))
    talk.ask(fetch_offsets(talk, 9, "", [(name, [0])]))


@book.case("a group that is not there", versions=DELETE)
def no_group(talk: Talk, version: int) -> None:
    talk.ask(delete_groups(version, talk.name("g")))


@book.case("a group that only has commits", versions=DELETE)
def simple(talk: Talk, version: int) -> None:
    group, name = talk.name("g"), talk.topic()
    talk.quietly(commit(talk, 9, group, (name, {0: 1})))
    talk.ask(delete_groups(version, group))
    talk.ask(describe(6, group))
    talk.ask(fetch_offsets(talk, 9, group))
    talk.ask(delete_groups(version, group))


@book.case("an Empty group", versions=DELETE)
def empty(talk: Talk, version: int) -> None:
    group, name = dissolved(talk), talk.topic()
    talk.quietly(commit(talk, 9, group, (name, {0: 1})))
    talk.ask(delete_groups(version, group))
    talk.ask(describe(6, group))
    talk.ask(fetch_offsets(talk, 9, group))


@book.case("an Empty group, made again", versions=DELETE)
def made_again(talk: Talk, version: int) -> None:
    """Its generations begin anew."""
    group = dissolved(talk)
    talk.ask(delete_groups(version, group))
    Member(talk, group, record=True).join()


@book.case("Stable", versions=DELETE)
def with_members(talk: Talk, version: int) -> None:
    member = stable(talk)
    talk.ask(delete_groups(version, member.group))
    member.heartbeat()
    talk.quietly(leave(5, member.group, member.key))
    talk.ask(delete_groups(version, member.group))
    member.heartbeat()


@book.case("CompletingRebalance", versions=DELETE)
def completing(talk: Talk, version: int) -> None:
    talk.ask(delete_groups(version, together(talk, 2)[0].group))


@book.case("PreparingRebalance", versions=DELETE)
def preparing(talk: Talk, version: int) -> None:
    leader = stable(talk)
    Member(talk, leader.group).send_join()
    until(talk, leader.group, "PreparingRebalance", 2)
    talk.ask(delete_groups(version, leader.group))


@book.case("an id was given, nobody has joined", versions=DELETE)
def pending(talk: Talk, version: int) -> None:
    group = talk.name("g")
    given = talk.quietly(join(9, group)).member_id
    talk.ask(delete_groups(version, group))
    talk.ask(join(9, group, given))


@book.case("several", versions=DELETE)
def several(talk: Talk, version: int) -> None:
    held = synced(together(talk, 2))[0].group
    empty_one, simple_one, name = dissolved(talk, "e"), talk.name("s"), talk.topic()
    talk.quietly(commit(talk, 9, simple_one, (name, {0: 1})))
    talk.ask(delete_groups(version, held, empty_one, talk.name("none"), simple_one))


@book.case("twice in one request", versions=DELETE)
def twice(talk: Talk, version: int) -> None:
    group = dissolved(talk)
    talk.ask(delete_groups(version, group, group), view=lambda data: data["results"][-1])


@book.case("null names", versions=DELETE)
def null_names(talk: Talk, version: int) -> None:
    body = b"\x00\x00" if version >= 2 else b"\xff\xff\xff\xff"
    talk.ask(Raw(ApiKey.DELETE_GROUPS, version, body))


add_shapes(
    book, ApiKey.DELETE_GROUPS, DELETE, lambda talk, version: delete_groups(version, "nobody's")
)
