"""OffsetDelete (47): commits of one group, of topics that no member reads."""

from __future__ import annotations

from typing import Any

from kbroker.types import ApiKey
from tests.parity.book import Book
from tests.parity.cases._groups import (
    Member,
    commit,
    delete_groups,
    delete_offsets,
    describe,
    dissolved,
    fetch_offsets,
    stable,
    subscription,
    synced,
    together,
    until,
)
from tests.parity.cases._shapes import add_shapes
from tests.parity.requests import body_of, raw
from tests.parity.talk import Talk

book = Book(setup="coordinators")
cases = book.cases


def seen(talk: Talk, group: str) -> None:
    talk.ask(fetch_offsets(talk, 9, group))


def committed(talk: Talk) -> tuple[str, str]:
    name, group = talk.topic(partitions=3), talk.name("g")
    talk.quietly(commit(talk, 9, group, (name, {0: 5, 1: 6})))
    return group, name


@book.case("a group without a name")
def no_name(talk: Talk) -> None:
    talk.ask(delete_offsets("", (talk.topic(), [0])))


@book.case("a group that is not there")
def no_group(talk: Talk) -> None:
    talk.ask(delete_offsets(talk.name("g"), (talk.topic(), [0])))
    talk.ask(delete_offsets(talk.name("g")))


@book.case("a group that was deleted")
def deleted(talk: Talk) -> None:
    group, name = committed(talk)
    talk.ask(delete_groups(2, group))
    talk.ask(delete_offsets(group, (name, [0])))
    seen(talk, group)


ASKED: dict[str, Any] = {
    "one": [("t", [0])],
    "all there are": [("t", [0, 1])],
    "one without a commit": [("t", [2])],
    "one that is not there": [("t", [9, -1, 0])],
    "one twice": [("t", [0, 0])],
    "none": [("t", [])],
    "no topics": [],
    "a topic that is not there": [("none", [0]), ("t", [1])],
    "a topic twice": [("t", [0]), ("t", [1])],
}


@book.case("partitions", over=ASKED)
def partitions(talk: Talk, asked: Any) -> None:
    group, _ = committed(talk)
    wanted = [(talk.name(name), list(parts)) for name, parts in asked]
    talk.ask(delete_offsets(group, *wanted))
    seen(talk, group)
    talk.ask(describe(6, group))


@book.case("names that no topic can have", over={"empty": "", "odd": "a b"})
def odd_names(talk: Talk, name: str) -> None:
    group, _ = committed(talk)
    talk.ask(delete_offsets(group, (name, [0])))


@book.case("a topic that is gone")
def gone(talk: Talk) -> None:
    group, name = committed(talk)
    talk.delete(name)
    talk.ask(delete_offsets(group, (name, [0])))


@book.case("an Empty group")
def empty(talk: Talk) -> None:
    group, name = dissolved(talk), talk.topic()
    talk.quietly(commit(talk, 9, group, (name, {0: 5})))
    talk.ask(delete_offsets(group, (name, [0])))
    seen(talk, group)


DATA: dict[str, Any] = {
    "topics it reads": lambda name: subscription(name),
    "topics it reads, version 1": lambda name: subscription(name, version=1),
    "other topics": lambda name: subscription("other"),
    "no topics": lambda name: subscription(),
    "bytes that are no subscription": lambda name: b"\x00\x00\x7f",
    "no bytes": lambda name: b"",
}


@book.case("a stable group of consumers that says", over=DATA)
def consumers(talk: Talk, data: Any) -> None:
    name = talk.topic(partitions=2)
    member = stable(talk, protocols=(("range", data(name)),))
    member.commit(9, (name, {0: 5, 1: 6}))
    talk.ask(delete_offsets(member.group, (name, [0])))
    seen(talk, member.group)


@book.case("a group that is not one of consumers")
def connect(talk: Talk) -> None:
    name = talk.topic()
    member = stable(talk, kind="connect", protocols=(("p", b"d"),))
    member.commit(9, (name, {0: 5}))
    talk.ask(delete_offsets(member.group, (name, [0])))
    seen(talk, member.group)


@book.case("while the group prepares")
def preparing(talk: Talk) -> None:
    name, other = talk.topic(), talk.topic("other")
    data = (("range", subscription(name)),)
    member = stable(talk, protocols=data)
    member.commit(9, (name, {0: 5}), (other, {0: 6}))
    Member(talk, member.group, protocols=data).send_join()
    until(talk, member.group, "PreparingRebalance", 2)
    talk.ask(delete_offsets(member.group, (name, [0]), (other, [0])))
    seen(talk, member.group)


@book.case("while the group completes")
def completing(talk: Talk) -> None:
    name, other = talk.topic(), talk.topic("other")
    leader, _ = together(talk, 2, protocols=(("range", subscription(name)),))
    talk.ask(delete_offsets(leader.group, (name, [0]), (other, [0])))


@book.case("one of two reads it")
def one_of_two(talk: Talk) -> None:
    name, other = talk.topic(), talk.topic("other")
    leader, follower = synced(together(talk, 2, protocols=(("range", subscription(other)),)))
    follower.send_join(protocols=(("range", subscription(name)),))
    until(talk, leader.group, "PreparingRebalance")
    leader.send_join()
    follower.joined()
    leader.joined()
    synced([leader, follower])
    follower.commit(9, (name, {0: 1}), (other, {0: 2}))
    talk.ask(delete_offsets(leader.group, (name, [0]), (other, [0])))
    seen(talk, leader.group)


@book.case("null topics")
def null_topics(talk: Talk) -> None:
    request = delete_offsets(talk.name("g"))
    talk.ask(raw(request, body_of(request)[:-4] + b"\xff\xff\xff\xff"))


@book.case("more topics than bytes")
def too_many(talk: Talk) -> None:
    request = delete_offsets(talk.name("g"))
    talk.ask(raw(request, body_of(request)[:-4] + b"\x7f\xff\xff\xff"))


add_shapes(
    *(book, ApiKey.OFFSET_DELETE, range(1)),
    lambda talk, version: delete_offsets("nobody's", ("none", [0])),
)
