"""ConsumerGroupHeartbeat (68), ConsumerGroupDescribe (69), and consumer groups in other APIs.

A group has one member here: when a second one gets its partitions depends on pauses that are ours.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from uuid import UUID

from kbroker.types import ApiKey
from tests.parity.book import Book
from tests.parity.cases._groups import (
    commit,
    delete_groups,
    delete_offsets,
    describe,
    dissolved,
    fetch_offsets,
    heartbeat,
    leave,
    stable,
)
from tests.parity.requests import build
from tests.parity.talk import Talk

book = Book(setup="coordinators")
cases = book.cases
VERSIONS = range(2)
OWNED: list[Any] = []


def beat(version: int, group: str, member: str, epoch: int, **how: Any) -> Any:
    return build(
        ApiKey.CONSUMER_GROUP_HEARTBEAT, version, group_id=group, member_id=member,
        member_epoch=epoch, **how,
    )  # fmt: skip


def join(version: int, group: str, member: str, *topics: str, **how: Any) -> Any:
    first = {"rebalance_timeout": 60_000, "topic_partitions": OWNED}
    first["subscribed_topic_names"] = list(topics)
    return beat(version, group, member, 0, **{**first, **how})


def owned(topic_id: UUID, indexes: Sequence[int]) -> list[dict[str, Any]]:
    return [{"topic_id": topic_id, "partitions": list(indexes)}]


def look(version: int, *groups: str) -> Any:
    return build(
        ApiKey.CONSUMER_GROUP_DESCRIBE, version, group_ids=list(groups),
        include_authorized_operations=False,
    )  # fmt: skip


INVALID: dict[str, dict[str, Any]] = {
    "no group": {"group_id": ""},
    "no instance": {"instance_id": ""},
    "no rack": {"rack_id": ""},
    "no timeout": {"rebalance_timeout": -1},
    "no partitions": {"topic_partitions": None},
    "partitions": {"topic_partitions": [{"topic_id": UUID(int=5), "partitions": [0]}]},
    "no names": {"subscribed_topic_names": None},
    "an assignor": {"server_assignor": "another"},
    "an epoch": {"member_epoch": -3},
    "for now": {"member_epoch": -2},
}


@book.case("a first request that is invalid", versions=VERSIONS, over=INVALID)
def invalid(talk: Talk, version: int, wrong: dict[str, Any]) -> None:
    fields = {"group_id": talk.name("g"), "member_id": "m", "member_epoch": 0,
              "rebalance_timeout": 60_000, "topic_partitions": OWNED,
              "subscribed_topic_names": ["t"], **wrong}  # fmt: skip
    talk.ask(build(ApiKey.CONSUMER_GROUP_HEARTBEAT, version, **fields))


@book.case("no member id", versions=[1])
def no_member_id(talk: Talk, version: int) -> None:
    talk.ask(join(version, talk.name("g"), "", talk.topic()))


@book.case("no member id, later", versions=VERSIONS)
def no_member_id_later(talk: Talk, version: int) -> None:
    for epoch in (1, -1):
        talk.ask(beat(version, talk.name("g"), "", epoch))


@book.case("patterns", versions=[1])
def patterns(talk: Talk, version: int) -> None:
    for number, pattern in enumerate(("(", "a(?=b)", "", "[", r"(a)\1")):
        how = {"subscribed_topic_names": None, "subscribed_topic_regex": pattern}
        talk.ask(join(version, talk.name(f"g{number}"), "m", **how))


@book.case("a member", versions=VERSIONS)
def member(talk: Talk, version: int) -> None:
    group, topic = talk.name("g"), talk.topic("t", partitions=2)
    talk.ask(join(version, group, "m", topic))
    talk.ask(join(version, group, "m", topic))
    for epoch in (2, 3, 1):
        talk.ask(beat(version, group, "m", epoch))
    talk.ask(beat(version, group, "another", 2))
    mine = owned(talk.topic_id(topic), [0, 1])
    talk.ask(beat(version, group, "m", 2, rebalance_timeout=60_000,
                  subscribed_topic_names=[topic], topic_partitions=mine))  # fmt: skip
    talk.ask(look(version, group))
    talk.ask(beat(version, group, "m", -1))
    talk.ask(beat(version, group, "m", 2))
    talk.ask(look(version, group))
    talk.ask(beat(version, group, "m", -1))


@book.case("a topic that does not exist", versions=VERSIONS)
def no_topic(talk: Talk, version: int) -> None:
    group = talk.name("g")
    talk.ask(join(version, group, "m", talk.name("t")))
    talk.ask(look(version, group))


@book.case("a group that is not there", versions=VERSIONS)
def no_group(talk: Talk, version: int) -> None:
    group = talk.name("g")
    for epoch in (1, -1):
        talk.ask(beat(version, group, "m", epoch))
    talk.ask(look(version, group))
    talk.ask(look(version))


@book.case("a classic group", versions=VERSIONS)
def classic(talk: Talk, version: int) -> None:
    member = stable(talk)
    for epoch in (1, -1):
        talk.ask(beat(version, member.group, "m", epoch))
    talk.ask(look(version, member.group))


@book.case("a static member", versions=VERSIONS)
def static(talk: Talk, version: int) -> None:
    group, topic, instance = talk.name("g"), talk.topic("t", partitions=2), {"instance_id": "i"}
    talk.ask(join(version, group, "a", topic, **instance))
    talk.ask(join(version, group, "b", topic, **instance))
    talk.ask(beat(version, group, "a", 2, **instance))
    talk.ask(beat(version, group, "a", 2, instance_id="j"))
    talk.ask(beat(version, group, "b", -2, **instance))
    talk.ask(beat(version, group, "a", -2, **instance))
    talk.ask(look(version, group))
    talk.ask(beat(version, group, "a", 2, **instance))
    talk.ask(join(version, group, "b", topic, **instance))
    talk.ask(beat(version, group, "a", 2, **instance))
    talk.ask(beat(version, group, "b", -1, **instance))
    talk.ask(look(version, group))


@book.case("an assignor and a rack", versions=VERSIONS)
def assignor(talk: Talk, version: int) -> None:
    group, topic = talk.name("g"), talk.topic("t", partitions=2)
    talk.ask(join(version, group, "m", topic, server_assignor="range", rack_id="r"))
    talk.ask(look(version, group))
    talk.ask(beat(version, group, "m", 2, subscribed_topic_names=[]))


@book.case("its name in other APIs", versions=[1])
def other_apis(talk: Talk, version: int) -> None:
    group, topic = talk.name("g"), talk.topic("t", partitions=2)
    talk.quietly(join(version, group, "m", topic))
    talk.ask(describe(5, group))
    talk.ask(describe(6, group))
    talk.ask(delete_groups(2, group))
    talk.ask(delete_offsets(group, (topic, [0])))
    talk.quietly(beat(version, group, "m", -1))
    talk.ask(delete_offsets(group, (topic, [0])))
    talk.ask(delete_groups(2, group))


@book.case("commits", versions=[8, 9, 10])
def commits(talk: Talk, version: int) -> None:
    group, topic = talk.name("g"), talk.topic("t", partitions=2)
    talk.quietly(join(1, group, "m", topic))
    for name, epoch in (("m", 2), ("m", 1), ("m", 3), ("m", -1), ("", -1), ("x", 2)):
        talk.ask(commit(talk, version, group, (topic, {0: 1}), member=name, generation=epoch))
    talk.quietly(beat(1, group, "m", -1))
    talk.ask(commit(talk, version, group, (topic, {0: 1})))
    talk.ask(fetch_offsets(talk, version, group, [(topic, [0])]))


@book.case("a static member that joins again", versions=VERSIONS)
def static_again(talk: Talk, version: int) -> None:
    group, topic, instance = talk.name("g"), talk.topic("t", partitions=2), {"instance_id": "i"}
    for _ in range(2):
        talk.ask(join(version, group, "a", topic, **instance))
    talk.ask(beat(version, group, "a", 2, **instance))


@book.case("requests of the classic protocol", versions=[1])
def of_the_classic_protocol(talk: Talk, version: int) -> None:
    group, topic = talk.name("g"), talk.topic("t", partitions=2)
    talk.quietly(join(version, group, "m", topic, instance_id="i"))
    talk.ask(heartbeat(4, group, 2, "m"))
    talk.ask(leave(5, group, ("m", None), ("another", None), ("", "j")))
    talk.ask(look(version, group))


@book.case("an empty classic group", versions=[1])
def empty_classic(talk: Talk, version: int) -> None:
    group, topic = dissolved(talk), talk.topic("t", partitions=2)
    talk.quietly(commit(talk, 9, group, (topic, {0: 7})))
    talk.ask(join(version, group, "m", topic))
    talk.ask(look(version, group))
    talk.ask(fetch_offsets(talk, 9, group, [(topic, [0])]))
    talk.quietly(beat(version, group, "m", -1))
    talk.ask(fetch_offsets(talk, 9, group, [(topic, [0])]))
