"""Heartbeat (12): the answers to a member, in each of the group's states."""

from __future__ import annotations

from typing import Any

from kbroker.types import ApiKey
from tests.parity.book import Book
from tests.parity.cases._groups import (
    HEARTBEAT,
    STRANGER,
    Member,
    commit,
    dissolved,
    heartbeat,
    in_one,
    join,
    leave,
    stable,
    synced,
    together,
    until,
)
from tests.parity.cases._shapes import add_shapes
from tests.parity.talk import Talk

STATIC = range(3, 5)
SOME = (0, 3, 4)  # without instances, with them, and in the newer encoding

book = Book(setup="coordinators")
cases = book.cases


@book.case("a group without a name", versions=HEARTBEAT)
def no_name(talk: Talk, version: int) -> None:
    talk.ask(heartbeat(version, "", 1, STRANGER))


@book.case("a group that is not there", versions=SOME)
def no_group(talk: Talk, version: int) -> None:
    talk.ask(heartbeat(version, talk.name("g"), 1, STRANGER))
    talk.ask(heartbeat(version, talk.name("g"), -1, ""))


@book.case("Empty", versions=SOME)
def empty(talk: Talk, version: int) -> None:
    member = stable(talk)
    talk.quietly(leave(5, member.group, member.key))
    member.heartbeat(version)
    talk.ask(heartbeat(version, dissolved(talk, "h"), 2, ""))


@book.case("a group that only has commits", versions=SOME)
def simple(talk: Talk, version: int) -> None:
    group, name = talk.name("g"), talk.topic()
    talk.quietly(commit(talk, 9, group, (name, {0: 1})))
    talk.ask(heartbeat(version, group, 0, ""))
    talk.ask(heartbeat(version, group, -1, ""))
    talk.ask(heartbeat(version, group, 0, STRANGER))


@book.case("Stable", versions=HEARTBEAT)
def in_stable(talk: Talk, version: int) -> None:
    leader, follower = synced(together(talk, 2))
    leader.heartbeat(version)
    follower.heartbeat(version)


@book.case("CompletingRebalance", versions=SOME)
def completing(talk: Talk, version: int) -> None:
    leader, follower = together(talk, 2)
    leader.heartbeat(version)
    follower.heartbeat(version)
    leader.heartbeat(version, generation=leader.generation - 1)


@book.case("PreparingRebalance", versions=SOME)
def preparing(talk: Talk, version: int) -> None:
    leader, follower = synced(together(talk, 2))
    newcomer = Member(talk, leader.group)
    newcomer.send_join()
    until(talk, leader.group, "PreparingRebalance", 3)
    leader.heartbeat(version)
    follower.heartbeat(version, generation=follower.generation - 1)
    follower.heartbeat(version, generation=follower.generation + 1)
    other = talk.connect()
    for generation in (-1, 0, leader.generation, leader.generation + 1):
        other.ask(heartbeat(version, leader.group, generation, newcomer.id))


@book.case("a generation", versions=SOME, over={str(g): g for g in (-2, -1, 0, 2, 2**31 - 1)})
def generations(talk: Talk, version: int, number: int) -> None:
    stable(talk).heartbeat(version, generation=number)


@book.case("a member", versions=SOME, over={"unknown": STRANGER, "empty": "", "long": "m" * 9_000})
def members(talk: Talk, version: int, name: str) -> None:
    member = stable(talk)
    talk.ask(heartbeat(version, member.group, 1, name))
    talk.ask(heartbeat(version, member.group, 2, name))


@book.case("an id that has not joined", versions=SOME)
def pending(talk: Talk, version: int) -> None:
    group = talk.name("g")
    given = talk.quietly(join(9, group)).member_id
    talk.ask(heartbeat(version, group, 0, given))
    talk.ask(heartbeat(version, group, -1, given))
    member = stable(talk, "h")
    given = talk.quietly(join(9, member.group)).member_id
    talk.ask(heartbeat(version, member.group, 1, given))


@book.case("one that left", versions=SOME)
def gone(talk: Talk, version: int) -> None:
    leader, follower = synced(together(talk, 2))
    talk.quietly(leave(5, leader.group, follower.key))
    follower.heartbeat(version)
    leader.heartbeat(version)


INSTANCES: dict[str, Any] = {
    "its own": {"instance": "one"},
    "unknown": {"instance": "three"},
    "another's": {"instance": "two"},
    "empty": {"instance": ""},
    "none": {"instance": None},
}


@book.case("an instance", versions=STATIC, over=INSTANCES)
def instances(talk: Talk, version: int, given: dict[str, str | None]) -> None:
    leader, follower = synced(in_one(talk, [{"instance": "one"}, {"instance": "two"}]))
    leader.heartbeat(version, **given)
    leader.heartbeat(version, generation=9, **given)
    talk.ask(heartbeat(version, leader.group, 2, STRANGER, **given))
    talk.ask(heartbeat(version, leader.group, 2, "", **given))
    follower.heartbeat(version)


@book.case("a dynamic member with an instance", versions=STATIC)
def dynamic(talk: Talk, version: int) -> None:
    stable(talk).heartbeat(version, instance="one")


@book.case("twenty in one piece", versions=SOME)
def pipelined(talk: Talk, version: int) -> None:
    """Good ones and bad ones, of two groups: answered in their order."""
    one, two = stable(talk), stable(talk, "h")
    talk.main.hold()
    for place in range(20):
        member = (one, two)[place % 2]
        talk.send(heartbeat(version, member.group, 1 + (place % 5 == 0), member.id))
    talk.main.release()
    answers = [talk.receive(record=False) for _ in range(20)]
    talk.note("codes", [answer.error_code.value for answer in answers])


@book.case("among other requests in one piece", versions=SOME)
def mixed(talk: Talk, version: int) -> None:
    """Heartbeats and a commit between joins of the same member, which is its group's leader."""
    member = stable(talk)
    name = talk.topic()
    talk.main.hold()
    talk.send(heartbeat(version, member.group, 1, member.id))
    talk.send(commit(talk, 9, member.group, (name, {0: 5}), generation=1, member=member.id))
    talk.send(join(9, member.group, member.id))
    talk.send(heartbeat(version, member.group, 1, member.id))
    talk.send(heartbeat(version, member.group, 2, member.id))
    talk.send(leave(5, member.group, member.key))
    talk.send(heartbeat(version, member.group, 2, member.id))
    talk.main.release()
    for _ in range(7):
        talk.receive()


add_shapes(
    book, ApiKey.HEARTBEAT, HEARTBEAT, lambda talk, version: heartbeat(version, "", 1, "nobody")
)
