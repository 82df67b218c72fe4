"""SyncGroup (14): the leader's assignment, for members that wait and for members that ask later."""

from __future__ import annotations

from typing import Any

from kbroker.types import ApiKey
from tests.parity.book import Book
from tests.parity.cases._groups import (
    STRANGER,
    SYNC,
    Member,
    describe,
    dissolved,
    in_one,
    stable,
    state_of,
    sync,
    together,
    until,
)
from tests.parity.cases._shapes import add_shapes
from tests.parity.talk import Talk

STATIC = range(3, 6)
NAMED = range(5, 6)
SOME = (0, 3, 5)  # without instances, with them, and in the newer encoding

book = Book(setup="coordinators")
cases = book.cases


@book.case("a group without a name", versions=SYNC)
def no_name(talk: Talk, version: int) -> None:
    talk.ask(sync(version, "", 1, STRANGER))


@book.case("a group that is not there", versions=SOME, over={"named": STRANGER, "nobody": ""})
def no_group(talk: Talk, version: int, member: str) -> None:
    talk.ask(sync(version, talk.name("g"), 1, member))
    talk.ask(sync(version, talk.name("g"), -1, member))


@book.case("an Empty group", versions=SOME)
def empty(talk: Talk, version: int) -> None:
    group = dissolved(talk)
    talk.ask(sync(version, group, 1, STRANGER))
    talk.ask(sync(version, group, 2, ""))


@book.case("the only member", versions=SYNC)
def only(talk: Talk, version: int) -> None:
    member = Member(talk, talk.name("g"))
    member.join()
    member.sync({member.id: b"mine"}, version=version, record=True)
    member.sync(version=version, record=True)
    member.sync({member.id: b"other"}, version=version, record=True)
    talk.ask(describe(5, member.group))


ASSIGNMENTS: dict[str, Any] = {
    "nothing": [],
    "nobody's": [(STRANGER, b"x")],
    "empty bytes": [("self", b"")],
    "long": [("self", b"x" * 50_000)],
    "twice": [("self", b"one"), ("self", b"two")],
    "and nobody's": [("self", b"mine"), (STRANGER, b"x"), ("", b"y")],
}


@book.case("an assignment", versions=(0, 5), over=ASSIGNMENTS)
def assignments(talk: Talk, version: int, given: Any) -> None:
    member = Member(talk, talk.name("g"))
    member.join()
    own = [(member.id if name == "self" else name, data) for name, data in given]
    member.sync(own, version=version, record=True)
    talk.ask(describe(5, member.group))


@book.case("a generation", versions=SOME, over={str(g): g for g in (-1, 0, 2, 2**31 - 1)})
def generation(talk: Talk, version: int, number: int) -> None:
    member = Member(talk, talk.name("g"))
    member.join()
    member.line.ask(sync(version, member.group, number, member.id))
    member.sync({member.id: b"a"})
    member.line.ask(sync(version, member.group, number, member.id))


@book.case("another member's id", versions=SOME, over={"unknown": STRANGER, "empty": ""})
def unknown(talk: Talk, version: int, name: str) -> None:
    member = Member(talk, talk.name("g"))
    member.join()
    talk.ask(sync(version, member.group, 1, name))
    member.sync({member.id: b"a"})
    talk.ask(sync(version, member.group, 1, name))


@book.case("a follower waits for the leader", versions=SYNC)
def follower_waits(talk: Talk, version: int) -> None:
    leader, follower = together(talk, 2)
    follower.send_sync(version=version)
    follower.line.nothing(within_ms=100)
    leader.sync({leader.id: b"l", follower.id: b"f"}, version=version, record=True)
    follower.line.receive()
    talk.note("state", state_of(talk, leader.group))


@book.case("a follower that is not in the assignment", versions=SOME)
def left_out(talk: Talk, version: int) -> None:
    leader, follower = together(talk, 2)
    leader.sync({leader.id: b"l"}, version=version, record=True)
    follower.sync(version=version, record=True)
    talk.ask(describe(5, leader.group))


@book.case("a follower's own assignment", versions=SOME)
def followers_own(talk: Talk, version: int) -> None:
    """Only the leader's counts."""
    leader, follower = together(talk, 2)
    follower.send_sync({leader.id: b"no", follower.id: b"no"}, version=version)
    leader.sync({leader.id: b"l", follower.id: b"f"}, version=version, record=True)
    follower.line.receive()


@book.case("a follower asks twice", versions=SOME, alone=True)
def follower_twice(talk: Talk, version: int) -> None:
    """From two connections; the first one's answer."""
    leader, follower = together(talk, 2)
    follower.send_sync(version=version)
    follower.line.nothing(within_ms=100)
    again = talk.connect()
    again.send(sync(version, leader.group, follower.generation, follower.id))
    again.nothing(within_ms=100)
    leader.sync({follower.id: b"f"}, version=version)
    again.receive()
    follower.line.nothing(within_ms=100)


@book.case("five followers", versions=SOME)
def five(talk: Talk, version: int) -> None:
    leader, *others = together(talk, 6)
    for other in others:
        other.send_sync(version=version)
    leader.sync({m.id: b"p%d" % i for i, m in enumerate(others)}, version=version, record=True)
    for other in others:
        other.line.receive()
    talk.ask(describe(5, leader.group))


@book.case("while the group prepares", versions=SOME)
def preparing(talk: Talk, version: int) -> None:
    leader = stable(talk)
    Member(talk, leader.group).send_join()
    until(talk, leader.group, "PreparingRebalance", 2)
    leader.sync(version=version, record=True)
    leader.sync({leader.id: b"x"}, version=version, record=True)


@book.case("a waiting follower and a new member", versions=SOME, alone=True)
def interrupted(talk: Talk, version: int) -> None:
    """A member that waits for an assignment is answered that there is another rebalance."""
    leader, follower = together(talk, 2)
    follower.send_sync(version=version)
    follower.line.nothing(within_ms=50)
    Member(talk, leader.group).send_join()
    follower.line.receive()
    talk.note("state", state_of(talk, leader.group))


@book.case("an older generation", versions=SOME)
def older(talk: Talk, version: int) -> None:
    leader, follower = together(talk, 2)
    leader.line.ask(sync(version, leader.group, leader.generation - 1, leader.id))
    leader.sync({leader.id: b"l", follower.id: b"f"})
    leader.line.ask(sync(version, leader.group, leader.generation - 1, leader.id))


NAMES: dict[str, Any] = {
    "another kind": {"kind": "connect"},
    "no kind": {"kind": None},
    "an empty kind": {"kind": ""},
    "another protocol": {"protocol": "roundrobin"},
    "no protocol": {"protocol": None},
    "an empty protocol": {"protocol": ""},
    "neither": {"kind": None, "protocol": None},
}


@book.case("in the name of", versions=NAMED, over=NAMES)
def in_the_name(talk: Talk, version: int, names: dict[str, str | None]) -> None:
    member = Member(talk, talk.name("g"))
    member.join()
    member.sync({member.id: b"x"}, version=version, record=True, **names)
    member.sync({member.id: b"x"}, version=version, record=True)
    member.sync(version=version, record=True, **names)


@book.case("static", versions=STATIC)
def static(talk: Talk, version: int) -> None:
    leader, follower = in_one(talk, [{"instance": "one"}, {"instance": "two"}])
    follower.send_sync(version=version)
    leader.sync({leader.id: b"l", follower.id: b"f"}, version=version, record=True)
    follower.line.receive()


INSTANCES: dict[str, Any] = {
    "unknown": {"instance": "three"},
    "another's": {"instance": "two"},
    "empty": {"instance": ""},
    "none": {"instance": None},
}


@book.case("an instance", versions=STATIC, over=INSTANCES)
def instances(talk: Talk, version: int, given: dict[str, str | None]) -> None:
    leader, _ = in_one(talk, [{"instance": "one"}, {"instance": "two"}])
    leader.sync({leader.id: b"l"}, version=version, record=True, **given)


@book.case("a dynamic member with an instance", versions=STATIC)
def dynamic_with_instance(talk: Talk, version: int) -> None:
    member = Member(talk, talk.name("g"))
    member.join()
    member.sync({member.id: b"l"}, version=version, record=True, instance="one")


add_shapes(book, ApiKey.SYNC_GROUP, SYNC, lambda talk, version: sync(version, "", 1, ""))
