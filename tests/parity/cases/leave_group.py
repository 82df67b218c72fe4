"""LeaveGroup (13): one member, or several at once with an outcome for each."""

from __future__ import annotations

from typing import Any

from kbroker.types import ApiKey
from tests.parity.book import Book
from tests.parity.cases._groups import (
    LEAVE,
    STRANGER,
    Member,
    commit,
    describe,
    dissolved,
    in_one,
    join,
    leave,
    stable,
    state_of,
    synced,
    together,
    until,
)
from tests.parity.cases._shapes import add_shapes
from tests.parity.requests import Raw
from tests.parity.talk import Talk

SEVERAL = range(3, 6)
SOME = (0, 3, 5)  # one member, several, and those in the newer encoding

book = Book(setup="coordinators")
cases = book.cases


@book.case("a group without a name", versions=LEAVE)
def no_name(talk: Talk, version: int) -> None:
    talk.ask(leave(version, "", (STRANGER, None)))


@book.case("a group that is not there", versions=SOME)
def no_group(talk: Talk, version: int) -> None:
    talk.ask(leave(version, talk.name("g"), (STRANGER, None)))
    talk.ask(leave(version, talk.name("g"), ("", None)))


@book.case("an Empty group", versions=SOME)
def empty(talk: Talk, version: int) -> None:
    talk.ask(leave(version, dissolved(talk), (STRANGER, None)))


@book.case("a group that only has commits", versions=SOME)
def simple(talk: Talk, version: int) -> None:
    group, name = talk.name("g"), talk.topic()
    talk.quietly(commit(talk, 9, group, (name, {0: 1})))
    talk.ask(leave(version, group, (STRANGER, None)))


@book.case("the only member", versions=LEAVE)
def only(talk: Talk, version: int) -> None:
    member = stable(talk)
    talk.ask(leave(version, member.group, member.key))
    talk.ask(describe(5, member.group))
    talk.ask(leave(version, member.group, member.key))


@book.case("the only member before its sync", versions=SOME)
def before_sync(talk: Talk, version: int) -> None:
    member = Member(talk, talk.name("g"))
    member.join()
    talk.ask(leave(version, member.group, member.key))
    talk.ask(describe(5, member.group))
    member.sync({member.id: b"x"}, record=True)


@book.case("one of two", versions=LEAVE)
def one_of_two(talk: Talk, version: int) -> None:
    leader, follower = synced(together(talk, 2))
    talk.ask(leave(version, leader.group, follower.key))
    talk.note("state", state_of(talk, leader.group))
    leader.heartbeat()
    leader.send_join()
    leader.joined(record=True)
    talk.ask(describe(5, leader.group))


@book.case("one that waits to join", versions=SOME)
def waiting(talk: Talk, version: int) -> None:
    """Its request is answered, too."""
    leader = stable(talk)
    other = Member(talk, leader.group)
    other.send_join()
    until(talk, leader.group, "PreparingRebalance", 2)
    talk.ask(leave(version, leader.group, other.key))
    other.joined(record=True)
    talk.note("state", state_of(talk, leader.group))
    leader.send_join()
    leader.joined(record=True)


@book.case("the one that others wait for", versions=SOME)
def waited_for(talk: Talk, version: int) -> None:
    leader = stable(talk)
    other = Member(talk, leader.group)
    other.send_join()
    until(talk, leader.group, "PreparingRebalance", 2)
    talk.ask(leave(version, leader.group, leader.key))
    other.joined(record=True)


@book.case("one that waits for its assignment", versions=SOME, alone=True)
def syncing(talk: Talk, version: int) -> None:
    """A member that waits: Apache Kafka never answers its request."""
    leader, follower = together(talk, 2)
    follower.send_sync()
    follower.line.nothing(within_ms=50)
    talk.ask(leave(version, leader.group, follower.key))
    follower.line.receive(within_ms=500)
    talk.note("state", state_of(talk, leader.group))


@book.case("the leader before its sync", versions=SOME, alone=True)
def leader_before_sync(talk: Talk, version: int) -> None:
    leader, follower = together(talk, 2)
    follower.send_sync()
    follower.line.nothing(within_ms=50)
    talk.ask(leave(version, leader.group, leader.key))
    follower.line.receive()
    follower.send_join()
    follower.joined(record=True)


@book.case("an id that has not joined", versions=SOME)
def pending(talk: Talk, version: int) -> None:
    group = talk.name("g")
    given = talk.quietly(join(9, group)).member_id
    talk.ask(leave(version, group, (given, None)))
    talk.ask(describe(5, group))
    talk.ask(join(9, group, given))


@book.case("an id that has not joined, and others wait", versions=SOME)
def pending_waited_for(talk: Talk, version: int) -> None:
    leader = stable(talk)
    given = talk.quietly(join(9, leader.group)).member_id
    other = Member(talk, leader.group)
    other.send_join()
    until(talk, leader.group, "PreparingRebalance", 2)
    leader.send_join()
    leader.line.nothing(within_ms=100)
    talk.ask(leave(version, leader.group, (given, None)))
    other.joined(record=True)
    leader.joined(record=True)


@book.case("nobody", versions=SEVERAL)
def no_member(talk: Talk, version: int) -> None:
    talk.ask(leave(version, talk.name("g")))
    member = stable(talk, "h")
    talk.ask(leave(version, member.group))
    talk.note("state", state_of(talk, member.group))


@book.case("several", versions=SEVERAL)
def several(talk: Talk, version: int) -> None:
    """Known ones, unknown ones and one that is named twice."""
    first, second, third = synced(together(talk, 3))
    asked = [first.key, (STRANGER, None), second.key, first.key, ("", None)]
    talk.ask(leave(version, first.group, *asked))
    talk.note("state", state_of(talk, first.group))
    third.heartbeat()


@book.case("all", versions=SEVERAL)
def all_members(talk: Talk, version: int) -> None:
    members = synced(together(talk, 3))
    talk.ask(leave(version, members[0].group, *(m.key for m in members)))
    talk.ask(describe(5, members[0].group))


REASONS = {"none": None, "empty": "", "long": "r" * 400}


@book.case("a reason", versions=[5], over=REASONS)
def reasons(talk: Talk, version: int, text: str | None) -> None:
    member = stable(talk)
    talk.ask(leave(version, member.group, member.key, reason=text))


STATIC: dict[str, Any] = {
    "by its instance": ("", "one"),
    "by id and instance": ("own", "one"),
    "by its id": ("own", None),
    "by its instance and another id": (STRANGER, "one"),
    "by another instance": ("own", "three"),
    "by another member's instance": ("own", "two"),
    "by an unknown instance": ("", "three"),
    "by an empty instance": ("", ""),
}


@book.case("static", versions=SEVERAL, over=STATIC)
def static(talk: Talk, version: int, given: tuple[str, str | None]) -> None:
    first, second = synced(in_one(talk, [{"instance": "one"}, {"instance": "two"}]))
    member_id, instance = given
    talk.ask(leave(version, first.group, (first.id if member_id == "own" else member_id, instance)))
    talk.note("state", state_of(talk, first.group))
    second.heartbeat()


@book.case("static ones, several", versions=SEVERAL)
def static_several(talk: Talk, version: int) -> None:
    first, second = synced(in_one(talk, [{"instance": "one"}, {"instance": "two"}]))
    asked = [("", "one"), ("", "two"), ("", "one"), (second.id, None)]
    talk.ask(leave(version, first.group, *asked))
    talk.ask(describe(5, first.group))


@book.case("a static one is gone and comes back", versions=SEVERAL)
def static_back(talk: Talk, version: int) -> None:
    member = stable(talk, instance="one")
    talk.ask(leave(version, member.group, ("", "one")))
    member.heartbeat()
    Member(talk, member.group, instance="one", record=True).join()


@book.case("null members", versions=SEVERAL)
def null_members(talk: Talk, version: int) -> None:
    name = talk.name("g").encode()
    if version >= 4:
        body = bytes([len(name) + 1]) + name + b"\x00\x00"
    else:
        body = len(name).to_bytes(2, "big") + name + b"\xff\xff\xff\xff"
    talk.ask(Raw(ApiKey.LEAVE_GROUP, version, body))


add_shapes(book, ApiKey.LEAVE_GROUP, LEAVE, lambda talk, v: leave(v, "", ("nobody", None)))
