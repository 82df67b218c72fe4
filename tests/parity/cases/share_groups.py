"""ShareGroupHeartbeat (76), ShareGroupDescribe (77), and share groups in other APIs.

A group has one member here: when a second one gets its partitions depends on pauses that are ours.
"""

from __future__ import annotations

from typing import Any

from kbroker.types import ApiKey
from tests.parity.book import Book
from tests.parity.cases._groups import (
    commit,
    delete_groups,
    delete_offsets,
    describe,
    fetch_offsets,
    heartbeat,
    join,
    leave,
    sync,
)
from tests.parity.data import topic
from tests.parity.requests import build
from tests.parity.talk import Talk

book = Book(setup="share groups")
cases = book.cases


def beat(group: str, member: str, epoch: int, **how: Any) -> Any:
    return build(
        ApiKey.SHARE_GROUP_HEARTBEAT, 1, group_id=group, member_id=member, member_epoch=epoch, **how
    )


def look(*groups: str) -> Any:
    return build(
        ApiKey.SHARE_GROUP_DESCRIBE, 1, group_ids=list(groups), include_authorized_operations=False
    )


INVALID: dict[str, dict[str, Any]] = {
    "no group": {"group_id": ""},
    "a blank group": {"group_id": " "},
    "no member": {"member_id": ""},
    "a blank member": {"member_id": " "},
    "a member of 36": {"member_id": "m" * 36},
    "a member of 37": {"member_id": "m" * 37},
    "no rack": {"rack_id": ""},
    "no names": {"subscribed_topic_names": None},
    "empty names": {"subscribed_topic_names": []},
    "an epoch": {"member_epoch": -2},
}


@book.case("a first request", over=INVALID)
def invalid(talk: Talk, wrong: dict[str, Any]) -> None:
    fields = {"group_id": talk.name("g"), "member_id": "m", "member_epoch": 0,
              "subscribed_topic_names": ["t"], **wrong}  # fmt: skip
    talk.ask(build(ApiKey.SHARE_GROUP_HEARTBEAT, 1, **fields))


@book.case("a group that there is none of")
def nothing(talk: Talk) -> None:
    group = talk.name("g")
    talk.ask(beat(group, "m", 3))
    talk.ask(beat(group, "m", -1))
    talk.ask(look(group, ""))


@book.case("the life of a member")
def life(talk: Talk) -> None:
    group, name = talk.name("g"), topic(talk, partitions=2)
    joins = beat(group, "m", 0, subscribed_topic_names=[name])
    talk.ask(joins)

    seen = [talk.quietly(beat(group, "m", 2))]

    def has_partitions() -> bool:
        seen.append(talk.quietly(beat(group, "m", seen[-1].member_epoch)))
        return any(each.assignment and each.assignment.topic_partitions for each in seen)

    talk.until(has_partitions)
    found = next(e for e in seen if e.assignment and e.assignment.topic_partitions)
    talk.note("epoch with partitions", found.member_epoch)
    talk.note("partitions", [sorted(map(int, each.partitions))
                             for each in found.assignment.topic_partitions])  # fmt: skip
    epoch = found.member_epoch
    talk.ask(beat(group, "m", epoch))
    talk.ask(look(group))
    talk.ask(beat(group, "m", epoch, subscribed_topic_names=[name]))
    talk.ask(beat(group, "m", epoch + 1))
    talk.ask(beat(group, "m", 1))
    talk.ask(beat(group, "other", epoch))
    talk.ask(describe(6, group))
    talk.ask(build(ApiKey.LIST_GROUPS, 5, states_filter=[], types_filter=["share"]),
             view=lambda answer: [each for each in answer["groups"]
                                  if each["group_id"] == group])  # fmt: skip
    talk.ask(delete_groups(2, group))
    talk.ask(beat(group, "m", -1))
    talk.ask(look(group))
    talk.ask(beat(group, "m", -1))
    talk.ask(delete_groups(2, group))
    talk.ask(look(group))


@book.case("requests of other protocols")
def others(talk: Talk) -> None:
    group, name = talk.name("g"), topic(talk)
    talk.quietly(beat(group, "m", 0, subscribed_topic_names=[name]))
    for version in (3, 9):
        talk.ask(join(version, group))
        talk.ask(join(version, group, "m"))
    talk.ask(sync(5, group, 1, "m"))
    talk.ask(heartbeat(4, group, 1, "m"))
    talk.ask(leave(5, group, ("m", None)))
    for version in (2, 8, 9):
        talk.ask(commit(talk, version, group, (name, {0: 5})))
        talk.ask(commit(talk, version, group, (name, {0: 5}), generation=1, member="m"))
    for version in (5, 7, 8, 9):
        talk.ask(fetch_offsets(talk, version, group, [(name, [0])]))
        talk.ask(fetch_offsets(talk, version, group))
    talk.ask(fetch_offsets(talk, 9, group, [(name, [0])], member="m", epoch=2))
    talk.ask(delete_offsets(group, (name, [0])))


def partitions_of(found: Any) -> list[list[int]]:
    parts = found.assignment.topic_partitions if found.assignment else ()
    return sorted(sorted(map(int, each.partitions)) for each in parts)


def joined(talk: Talk, group: str, *names: str, partitions: list[list[int]]) -> Any:
    """A member that has these partitions; its last answer."""
    seen = [talk.quietly(beat(group, "m", 0, subscribed_topic_names=list(names)))]

    def has_them() -> bool:
        again = beat(group, "m", seen[-1].member_epoch, subscribed_topic_names=list(names))
        seen.append(talk.quietly(again))
        return partitions_of(seen[-1]) == partitions

    talk.until(has_them)
    return seen[-1]


@book.case("a topic is deleted")
def deleted(talk: Talk) -> None:
    group, name, other = talk.name("g"), topic(talk, "t"), topic(talk, "u", partitions=2)
    found = joined(talk, group, name, other, partitions=[[0], [0, 1]])
    talk.delete(name)
    seen = [found]

    def has_lost_it() -> bool:
        seen.append(talk.quietly(beat(group, "m", seen[-1].member_epoch)))
        return partitions_of(seen[-1]) == [[0, 1]]

    talk.until(has_lost_it)
    talk.ask(beat(group, "m", -1))
    talk.ask(delete_groups(2, group))
    talk.ask(look(group))


@book.case("topics are deleted before their group")
def deleted_before(talk: Talk) -> None:
    group, name, other = talk.name("g"), topic(talk, "t"), topic(talk, "u", partitions=2)
    joined(talk, group, name, other, partitions=[[0], [0, 1]])
    talk.ask(beat(group, "m", -1))
    talk.delete(name)
    talk.ask(delete_groups(2, group))
    talk.ask(look(group))


@book.case("a group of the same name")
def same_name(talk: Talk) -> None:
    group, name = talk.name("g"), topic(talk)
    for _ in range(2):
        found = joined(talk, group, name, partitions=[[0]])
        talk.note("epoch", found.member_epoch)
        talk.ask(beat(group, "m", -1))
        talk.ask(delete_groups(2, group))
