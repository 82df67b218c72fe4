"""Groups with members that change their protocol, and members of both protocols in one group.

An assignment is computed at once here (`group.consumer.assignment.interval.ms=0`), so epochs do not
depend on pauses. Where several targets are equal a view of the answer counts partitions.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kbroker.coordinator.consumer_group.embedded import assignment_bytes
from tests.parity.book import Book
from tests.parity.cases._groups import (
    Member,
    commit,
    delete_groups,
    describe,
    fetch_offsets,
    heartbeat,
    join,
    leave,
    subscription,
    sync,
)
from tests.parity.cases.consumer_groups import beat, look
from tests.parity.cases.consumer_groups import join as enter
from tests.parity.talk import Talk

book = Book(setup="migration")
cases = book.cases
CONSUMER = 1  # the version of ConsumerGroupHeartbeat


def given(topic: str, *indexes: int) -> bytes:
    return assignment_bytes(1, [(topic, indexes)])


def without_ids(data: Any) -> Any:
    """The answer without the ids of members, which a broker makes in its own way."""
    if isinstance(data, dict):
        return {
            name: bool(value) if name in ("member_id", "leader") else without_ids(value)
            for name, value in data.items()
        }
    return [without_ids(each) for each in data] if isinstance(data, list) else data


def counted(data: Any) -> Any:
    """How many partitions there are, not which ones: there are several equal targets."""
    if isinstance(data, dict):
        return {
            name: len(value) if name == "partitions" else counted(value)
            for name, value in data.items()
        }
    return [counted(each) for each in data] if isinstance(data, list) else data


def size(data: Any) -> Any:
    """Of an answer to SyncGroup: how long its bytes are."""
    data = dict(data)
    data["assignment"] = len(data["assignment"])
    return data


class Mixed:
    """A classic group of one member with two partitions, and "c", which joins it."""

    def __init__(self, talk: Talk, *, version: int = 9, partitions: int = 2, **how: Any) -> None:
        self.talk = talk
        self.topic = talk.topic("t", partitions=partitions)
        self.protocols = (("range", subscription(self.topic, version=1)),)
        self.member = Member(talk, talk.name("g"), version=version, **self._how(**how))
        self.group = self.member.group
        self.member.join()
        self.member.sync({self.member.id: given(self.topic, *range(partitions))})

    def _how(self, **how: Any) -> dict[str, Any]:
        return {"protocols": self.protocols, **how}

    def another(self, **how: Any) -> Member:
        return Member(self.talk, self.group, **self._how(**how))

    def enter(self, *, record: bool = False, **how: Any) -> Any:
        request = enter(CONSUMER, self.group, "c", self.topic, **how)
        return self.talk.ask(request) if record else self.talk.quietly(request)

    def beat(self, epoch: int, **how: Any) -> Any:
        return self.talk.ask(beat(CONSUMER, self.group, "c", epoch, **how), view=counted)

    def settled(self, epoch: int = 2) -> None:
        """ "c" joins, the classic member too, and both have what they are to have."""
        self.enter()
        self.member.join()
        self.member.sync()
        self.talk.quietly(beat(CONSUMER, self.group, "c", epoch))


# --- to the consumer protocol ---------------------------------------------------------------------


@book.case("there", versions=(1, 4, 9))
def there(talk: Talk, version: int) -> None:
    mixed = Mixed(talk, version=version)
    talk.ask(describe(5, mixed.group), view=without_ids)
    mixed.enter(record=True)
    talk.ask(look(1, mixed.group), view=lambda data: without_ids(counted(data)))
    mixed.member.heartbeat()
    mixed.member.join()
    talk.note("generation", mixed.member.generation)
    mixed.member.sync(record=False)
    mixed.member.heartbeat()
    mixed.beat(2)
    talk.ask(look(1, mixed.group), view=lambda data: without_ids(counted(data)))
    talk.ask(describe(6, mixed.group))
    talk.ask(delete_groups(2, mixed.group))


@book.case("what a join and a sync answer", versions=range(10))
def answers(talk: Talk, version: int) -> None:
    mixed = Mixed(talk, version=version)
    mixed.enter()
    member = mixed.member
    member.line.send(join(version, mixed.group, member.id, protocols=mixed.protocols))
    answer = member.line.receive(view=without_ids)
    member.generation = answer.generation_id
    syncing = min(version, 5)
    member.line.ask(sync(syncing, mixed.group, member.generation, member.id), view=size)


@book.case("a group that it cannot be", over={
    "another type": {"kind": "connect"},
    "metadata that is none": {"protocols": (("range", b"\x00"),)},
    "a version below 0": {"protocols": (("range", b"\xff\xff\x00\x00\x00\x00"),)},
})  # fmt: skip
def cannot(talk: Talk, how: dict[str, Any]) -> None:
    topic = talk.topic()
    member = Member(talk, talk.name("g"), **{"protocols": (("range", subscription(topic)),), **how})
    member.join()
    member.sync({member.id: given(topic, 0)})
    talk.ask(enter(CONSUMER, member.group, "c", topic))
    member.heartbeat()


@book.case("assignments that it cannot read", over={
    "an assignor's own data": b"\x00\x01\x00\x00\x00\x00\x00\x00\x00\x01x",
    "none at all": b"x",
    "a later version": b"\x00\x09\x00\x00\x00\x00\xff\xff\xff\xff",
    "no bytes": b"",
})  # fmt: skip
def unreadable(talk: Talk, data: bytes) -> None:
    topic = talk.topic("t", partitions=2)
    member = Member(talk, talk.name("g"), protocols=(("range", subscription(topic)),))
    member.join()
    member.sync({member.id: data})
    talk.ask(enter(CONSUMER, member.group, "c", topic), view=counted)
    member.heartbeat()


@book.case("a rebalance that is not over", versions=(1, 9))
def rebalancing(talk: Talk, version: int) -> None:
    """The waiting requests are answered, and come again."""
    mixed = Mixed(talk, version=version)
    other = mixed.another(version=version)
    other.send_join()
    talk.until(lambda: _state(talk, mixed.group) == "PreparingRebalance")
    mixed.enter(record=True)
    other.line.receive(view=without_ids)
    mixed.member.heartbeat()
    mixed.member.join()
    talk.note("generation", mixed.member.generation)


def _state(talk: Talk, group: str) -> str:
    (found,) = talk.quietly(describe(5, group)).groups
    return str(found.group_state)


@book.case("a sync that waits")
def sync_waits(talk: Talk) -> None:
    mixed = Mixed(talk)
    other = mixed.another()
    other.send_join()
    talk.until(lambda: _state(talk, mixed.group) == "PreparingRebalance")
    mixed.member.send_join()
    other.joined()
    mixed.member.joined()
    other.send_sync()
    mixed.enter(record=True)
    other.line.receive()


@book.case("there, where the policy forbids it", setup="no migration")
def forbidden(talk: Talk) -> None:
    mixed = Mixed(talk)
    mixed.enter(record=True)
    mixed.member.heartbeat()


@book.case("a classic member where groups do not change", setup="no migration")
def classic_where_not(talk: Talk) -> None:
    group, topic = talk.name("g"), talk.topic("t", partitions=2)
    talk.quietly(enter(CONSUMER, group, "c", topic))
    member = Member(talk, group, protocols=(("range", subscription(topic)),))
    member.line.send(join(9, group, protocols=member.how["protocols"]))
    member.line.receive(view=without_ids)
    member.line.send(join(3, group, protocols=member.how["protocols"]))
    member.line.receive(view=without_ids)


# --- members of the classic protocol in a consumer group ------------------------------------------


@book.case("a new classic member", versions=(1, 4, 9))
def new_classic(talk: Talk, version: int) -> None:
    mixed = Mixed(talk)
    mixed.settled()
    line = talk.connect()
    line.send(join(version, mixed.group, protocols=mixed.protocols))
    line.receive(view=without_ids)
    line.send(join(version, mixed.group, "of-its-own", protocols=mixed.protocols))
    line.receive(view=without_ids)
    mixed.member.heartbeat()
    mixed.member.sync(record=True)


@book.case("protocols that the others do not have")
def other_protocols(talk: Talk) -> None:
    mixed = Mixed(talk)
    mixed.settled()
    for how in (
        {"kind": "connect"},
        {"protocols": (("roundrobin", subscription(mixed.topic)),)},
        {"protocols": ()},
        {"protocols": (("roundrobin", b""), ("range", b""))},
    ):
        line = talk.connect()
        line.send(join(9, mixed.group, "m", **{"protocols": mixed.protocols, **how}))
        line.receive(view=without_ids)


@book.case("requests that do not fit", versions=(1, 3, 5))
def do_not_fit(talk: Talk, version: int) -> None:
    mixed = Mixed(talk)
    mixed.settled()
    member, group = mixed.member, mixed.group
    beats = min(version, 4)
    for member_id, generation in (
        ("x", 2), ("c", 2), (member.id, 1), (member.id, 3), (member.id, -1), ("", 2)
    ):  # fmt: skip
        talk.ask(heartbeat(beats, group, generation, member_id))
        talk.ask(sync(version, group, generation, member_id))
    talk.ask(sync(version, group, 2, member.id, kind="connect"))
    talk.ask(sync(version, group, 2, member.id, protocol="roundrobin"))
    if version >= 3:
        talk.ask(heartbeat(beats, group, 2, member.id, instance="i"))


@book.case("commits of a classic member", versions=(2, 8, 9, 10))
def commits(talk: Talk, version: int) -> None:
    mixed = Mixed(talk)
    mixed.settled()
    for generation in (2, 1, 3, -1):
        talk.ask(
            commit(talk, version, mixed.group, (mixed.topic, {0: 1}), member=mixed.member.id,
                   generation=generation),
        )  # fmt: skip


@book.case("offsets that a classic member reads", versions=(9, 10))
def reads(talk: Talk, version: int) -> None:
    mixed = Mixed(talk)
    mixed.settled()
    for member, epoch in ((mixed.member.id, 2), (mixed.member.id, 1), (None, -1), ("x", 2)):
        talk.ask(
            fetch_offsets(talk, version, mixed.group, [(mixed.topic, [0])], member=member,
                          epoch=epoch),
        )  # fmt: skip


@book.case("offsets through both changes")
def offsets(talk: Talk) -> None:
    mixed = Mixed(talk)
    talk.quietly(
        commit(talk, 9, mixed.group, (mixed.topic, {0: 7}), member=mixed.member.id,
               generation=mixed.member.generation)
    )  # fmt: skip
    mixed.settled()
    talk.ask(fetch_offsets(talk, 9, mixed.group, [(mixed.topic, [0, 1])]))
    talk.quietly(beat(CONSUMER, mixed.group, "c", -1))
    talk.ask(fetch_offsets(talk, 9, mixed.group, [(mixed.topic, [0, 1])]))


@book.case("a member changes its protocol under its id")
def same_id(talk: Talk) -> None:
    mixed = Mixed(talk)
    mixed.settled()
    talk.ask(enter(CONSUMER, mixed.group, mixed.member.id, mixed.topic), view=_counted_without_ids)
    mixed.member.heartbeat()
    talk.ask(look(1, mixed.group), view=_counted_without_ids)


def _counted_without_ids(data: Any) -> Any:
    return without_ids(counted(data))


# --- static members -------------------------------------------------------------------------------


@book.case("a static member goes on with the other protocol", versions=(5, 9))
def static_there(talk: Talk, version: int) -> None:
    mixed = Mixed(talk, version=version, instance="i")
    talk.ask(
        enter(CONSUMER, mixed.group, "c", mixed.topic, instance_id="i"), view=_counted_without_ids
    )
    mixed.member.heartbeat()
    mixed.member.heartbeat(instance=None)
    talk.ask(look(1, mixed.group), view=_counted_without_ids)


@book.case("a static member comes back by the classic protocol", versions=(5, 9))
def static_back(talk: Talk, version: int) -> None:
    group, topic = talk.name("g"), talk.topic("t", partitions=2)
    protocols = (("range", subscription(topic, version=1)),)
    talk.quietly(enter(CONSUMER, group, "c", topic, instance_id="i"))
    talk.quietly(enter(CONSUMER, group, "d", topic))
    line = talk.connect()
    line.send(join(version, group, instance="i", protocols=protocols))
    line.receive(view=without_ids)
    talk.ask(beat(CONSUMER, group, "c", 2, instance_id="i"))
    line.send(join(version, group, "x", instance="i", protocols=protocols))
    line.receive(view=without_ids)
    line.send(join(version, group, "x", instance="j", protocols=protocols))
    line.receive(view=without_ids)


@book.case("the last consumer is replaced by a classic member", versions=(5, 9))
def last_replaced(talk: Talk, version: int) -> None:
    mixed = Mixed(talk, version=version)
    talk.quietly(enter(CONSUMER, mixed.group, "c", mixed.topic, instance_id="i"))
    mixed.member.join()
    mixed.member.sync()
    talk.quietly(beat(CONSUMER, mixed.group, "c", 2, instance_id="i"))
    back = mixed.another(version=version, instance="i")
    back.line.send(join(version, mixed.group, instance="i", protocols=mixed.protocols))
    answer = back.line.receive(view=without_ids)
    talk.ask(describe(5, mixed.group), view=_group_only)
    mixed.member.heartbeat()
    back.id, back.generation, back.answer = answer.member_id, answer.generation_id, answer
    back.line.send(sync(5, mixed.group, back.generation, back.id, instance="i"))
    back.line.receive(view=size)


def _group_only(data: Any) -> Any:
    (group,) = data["groups"]
    return {
        **{name: group[name] for name in ("group_state", "protocol_type", "protocol_data")},
        "members": len(group["members"]),
    }


# --- back to the classic protocol -----------------------------------------------------------------


@book.case("back", over={"by its own heartbeat": "heartbeat", "by LeaveGroup": "leave"})
def back(talk: Talk, how: str) -> None:
    mixed = Mixed(talk)
    mixed.settled()
    if how == "heartbeat":
        talk.ask(beat(CONSUMER, mixed.group, "c", -1))
    else:
        talk.ask(leave(5, mixed.group, ("c", None)))
    talk.ask(describe(5, mixed.group), view=_group_only)
    talk.ask(look(1, mixed.group))
    mixed.member.heartbeat()
    mixed.member.sync(record=True)
    mixed.member.join()
    talk.note("generation", mixed.member.generation)
    talk.note("leads", mixed.member.answer.leader == mixed.member.id)
    talk.ask(beat(CONSUMER, mixed.group, "c", 2))


@book.case("there, back and there")
def there_and_back(talk: Talk) -> None:
    mixed = Mixed(talk)
    mixed.settled()
    talk.quietly(beat(CONSUMER, mixed.group, "c", -1))
    mixed.member.join()
    talk.note("generation", mixed.member.generation)
    mixed.member.sync({mixed.member.id: given(mixed.topic, 0, 1)})
    mixed.member.heartbeat()
    mixed.enter(record=True)
    mixed.member.join()
    talk.note("generation", mixed.member.generation)


@book.case("a classic member leaves", versions=(1, 5))
def classic_leaves(talk: Talk, version: int) -> None:
    mixed = Mixed(talk)
    mixed.settled()
    mixed.member.line.ask(leave(version, mixed.group, mixed.member.key), view=without_ids)
    mixed.member.heartbeat()
    mixed.beat(2)
    talk.ask(look(1, mixed.group), view=counted)


# --- LeaveGroup of several ------------------------------------------------------------------------

LEAVERS: dict[str, Sequence[tuple[str, str | None]]] = {
    "two": (("a", None), ("b", None)),
    "one twice": (("a", None), ("a", None)),
    "a static one, by both of its names": (("s", "i"), ("", "i")),
    "one of them unknown": (("a", None), ("x", None)),
    "none known": (("x", None), ("", "j")),
    "all": (("a", None), ("b", None), ("", "i")),
    "a static one without its instance": (("s", None),),
    "another's instance": (("a", "i"),),
}


@book.case("members that go together", versions=(3, 5), over=LEAVERS)
def go_together(talk: Talk, version: int, leavers: Sequence[tuple[str, str | None]]) -> None:
    group, topic = talk.name("g"), talk.topic("t", partitions=3)
    talk.quietly(enter(CONSUMER, group, "a", topic))
    talk.quietly(enter(CONSUMER, group, "b", topic))
    talk.quietly(enter(CONSUMER, group, "s", topic, instance_id="i"))
    talk.ask(leave(version, group, *leavers))
    talk.ask(look(1, group), view=_who)


def _who(data: Any) -> Any:
    (group,) = data["groups"]
    return {
        "group_epoch": group["group_epoch"],
        "members": sorted(each["member_id"] for each in group["members"]),
    }


@book.case("a classic member of an empty consumer group", versions=(3, 9))
def of_an_empty_one(talk: Talk, version: int) -> None:
    group, topic = talk.name("g"), talk.topic("t", partitions=2)
    talk.quietly(enter(CONSUMER, group, "c", topic))
    talk.quietly(beat(CONSUMER, group, "c", -1))
    line = talk.connect()
    protocols = (("range", subscription(topic)),)
    line.ask(heartbeat(4, group, 1, "m"))
    line.ask(sync(5, group, 1, "m"))
    line.ask(leave(5, group, ("m", None)))
    line.send(join(version, group, "m", protocols=protocols))
    line.receive(view=without_ids)
    talk.ask(look(1, group))
    line.send(join(version, group, protocols=protocols))
    line.receive(view=without_ids)
    talk.ask(look(1, group))


@book.case("an old classic member of a consumer group with members", versions=(3, 9))
def old_classic(talk: Talk, version: int) -> None:
    group, topic = talk.name("g"), talk.topic("t", partitions=2)
    talk.quietly(enter(CONSUMER, group, "c", topic))
    line = talk.connect()
    protocols = (("range", subscription(topic)),)
    line.ask(heartbeat(4, group, 1, "m"))
    line.ask(sync(5, group, 1, "m"))
    line.ask(leave(5, group, ("m", None)))
    line.send(join(version, group, "m", protocols=protocols))
    line.receive(view=without_ids)
    talk.ask(look(1, group), view=_counted_without_ids)
