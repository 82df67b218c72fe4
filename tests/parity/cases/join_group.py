"""JoinGroup (11): accepted members, the answers to the leader and the others, static members.

Cases of lost and late members are in group_timers.py.
"""

from __future__ import annotations

from typing import Any

from kbroker.types import ApiKey
from tests.parity.book import Book
from tests.parity.cases._groups import (
    JOIN,
    RANGE,
    STRANGER,
    Member,
    describe,
    dissolved,
    in_one,
    join,
    stable,
    state_of,
    subscription,
    synced,
    together,
    until,
)
from tests.parity.cases._shapes import add_shapes
from tests.parity.requests import Raw, body_of, build, raw
from tests.parity.talk import Talk

WITH_ID_FIRST = range(4, 10)
STATIC = range(5, 10)
SOME = (0, 4, 9)  # one without an id first, one with it, one in the newer encoding
SOME_STATIC = (5, 9)

book = Book(setup="coordinators")
cases = book.cases


# --- one member -----------------------------------------------------------------------------------


@book.case("the first", versions=JOIN)
def first(talk: Talk, version: int) -> None:
    member = Member(talk, talk.name("g"), version=version, record=True)
    member.join()
    talk.note("state", state_of(talk, member.group))


@book.case("the first, twice in one piece", versions=SOME)
def twice(talk: Talk, version: int) -> None:
    group = talk.name("g")
    talk.main.hold()
    talk.send(join(version, group, STRANGER))
    talk.send(join(version, group, STRANGER))
    talk.main.release()
    talk.receive()
    talk.receive()


NAMES = {
    "none": "",
    "a space": " ",
    "a line break": "a\nb",
    "a letter beyond ASCII": "gr\u00fcn",
    "300 characters": "n" * 300,
    "a slash": "a/b",
    "a dot": ".",
}


@book.case("a group's name", versions=SOME, over=NAMES)
def group_name(talk: Talk, version: int, name: str) -> None:
    """With the version in it, or the cases would meet."""
    full = talk.name(name) if name else name
    member = Member(talk, full, version=version, record=True)
    if name:
        member.join()
    else:
        member.line.ask(join(version, full))


@book.case("a member that is not known", versions=JOIN)
def unknown_member(talk: Talk, version: int) -> None:
    talk.ask(join(version, talk.name("g"), STRANGER))
    talk.ask(describe(5, talk.name("g")))
    member = stable(talk, "h")
    talk.ask(join(version, member.group, STRANGER))


@book.case("a kind", versions=SOME, over={"none": "", "connect": "connect", "odd": "x y\n"})
def kinds(talk: Talk, version: int, kind: str) -> None:
    group = talk.name("g")
    if kind:
        Member(talk, group, version=version, record=True, kind=kind).join()
    else:
        talk.ask(join(version, group, kind=kind))
    talk.note("state", state_of(talk, group))


@book.case("no protocols", versions=JOIN)
def no_protocols(talk: Talk, version: int) -> None:
    talk.ask(join(version, talk.name("g"), protocols=()))
    member = stable(talk, "h")
    talk.ask(join(version, member.group, protocols=()))
    talk.ask(join(version, member.group, member.id, protocols=()))


@book.case("no protocols and no kind", versions=SOME)
def no_protocols_no_kind(talk: Talk, version: int) -> None:
    talk.ask(join(version, talk.name("g"), protocols=(), kind=""))


PROTOCOLS = {
    "one without a name": (("", b"x"),),
    "one without data": (("range", b""),),
    "three": (("b", b"1"), ("a", b"2"), ("c", b"3")),
    "large data": (("range", subscription("x" * 30_000)),),
}


@book.case("protocols", versions=SOME, over=PROTOCOLS)
def protocols(talk: Talk, version: int, given: Any) -> None:
    Member(talk, talk.name("g"), version=version, record=True, protocols=given).join()


ODD_PROTOCOLS = {
    "one twice": (("a", b"1"), ("a", b"2")),
    "a subscription to two thousand million topics": (("range", b"x" * 40),),
}


@book.case("odd protocols", versions=SOME, over=ODD_PROTOCOLS)
def odd_protocols(talk: Talk, version: int, given: Any) -> None:
    """Which Apache Kafka never answers."""
    member = Member(talk, talk.name("g"), version=version, record=True, protocols=given)
    member.send_join()
    member.line.receive(within_ms=1_000)


BOUNDS = {str(ms): ms for ms in (-1, 0, 5_999, 6_000, 1_800_000, 1_800_001, 2**31 - 1)}


@book.case("a session of", versions=SOME, over=BOUNDS)
def session(talk: Talk, version: int, ms: int) -> None:
    talk.ask(join(version, talk.name("g"), session=ms))
    member = stable(talk, "h")
    talk.ask(join(version, member.group, member.id, session=ms))


@book.case(
    "a rebalance time-out of",
    versions=range(1, 10),
    over={str(ms): ms for ms in (-1, 0, 1, 2**31 - 1)},
)
def rebalance(talk: Talk, version: int, ms: int) -> None:
    Member(talk, talk.name("g"), version=version, record=True, rebalance=ms).join()


@book.case("a reason", versions=[8, 9], over={"none": None, "empty": "", "long": "r" * 400})
def reason(talk: Talk, version: int, text: str | None) -> None:
    Member(talk, talk.name("g"), version=version, record=True, reason=text).join()


@book.case(
    "a client",
    versions=SOME,
    over={"null": None, "empty": "", "odd": "a b\n\u00fc", "long": "c" * 300},
)
def client(talk: Talk, version: int, client_id: str | None) -> None:
    """Its id is the front of the member's."""
    member = Member(talk, talk.name("g"), version=version, record=True, client_id=client_id)
    member.join()
    talk.ask(describe(5, member.group))


@book.case("an id is given first", versions=WITH_ID_FIRST)
def given_first(talk: Talk, version: int) -> None:
    """The group knows of it and has no member yet; each asking gives another id."""
    group = talk.name("g")
    found = talk.ask(join(version, group))
    talk.ask(describe(5, group))
    talk.ask(join(version, group))
    talk.ask(join(version, group, found.member_id))
    talk.ask(describe(5, group))


@book.case("an id given first, used by an older version", versions=range(4))
def given_then_older(talk: Talk, version: int) -> None:
    group = talk.name("g")
    found = talk.ask(join(9, group))
    talk.ask(join(version, group, found.member_id))


# --- the same one again ---------------------------------------------------------------------------


@book.case("again before the sync", versions=JOIN)
def again_before_sync(talk: Talk, version: int) -> None:
    """A lost answer: the same generation, unless the member's protocols have changed."""
    member = Member(talk, talk.name("g"), version=version, record=True)
    member.join()
    member.join()
    member.join(protocols=(("range", b"other"),))
    talk.ask(describe(5, member.group))


@book.case("the leader again", versions=SOME)
def leader_again(talk: Talk, version: int) -> None:
    """Which rebalances the group."""
    member = stable(talk, version=version, record=True)
    member.join()
    talk.ask(describe(5, member.group))


@book.case("a follower again", versions=SOME)
def follower_again(talk: Talk, version: int) -> None:
    """It gets the generation that it has."""
    leader, follower = synced(together(talk, 2))
    follower.line.ask(join(version, leader.group, follower.id))
    talk.note("state", state_of(talk, leader.group))


@book.case("a follower again, with another protocol", versions=SOME)
def follower_changed(talk: Talk, version: int) -> None:
    leader, follower = synced(together(talk, 2))
    follower.send_join(version, protocols=(("range", b"new"),))
    until(talk, leader.group, "PreparingRebalance")
    leader.heartbeat()
    leader.send_join(version)
    follower.joined(record=True)
    leader.joined(record=True)


@book.case("a follower again before the sync", versions=SOME)
def follower_again_before_sync(talk: Talk, version: int) -> None:
    leader, follower = together(talk, 2)
    follower.line.ask(join(version, leader.group, follower.id))
    leader.line.ask(join(version, leader.group, leader.id))
    talk.note("state", state_of(talk, leader.group))


@book.case("a follower changes before the sync", versions=SOME)
def follower_changes_before_sync(talk: Talk, version: int) -> None:
    """The leader, which is about to sync, is answered."""
    leader, follower = together(talk, 2)
    follower.send_join(version, protocols=(("range", b"new"),))
    until(talk, leader.group, "PreparingRebalance")
    leader.sync({leader.id: b"x"}, record=True)
    leader.heartbeat()
    leader.send_join(version)
    follower.joined(record=True)
    leader.joined(record=True)


@book.case("from another connection while waiting", versions=SOME, alone=True)
def waiting_twice(talk: Talk, version: int) -> None:
    """The same member asks twice; the last one is answered when the other one comes."""
    leader = stable(talk)
    second = Member(talk, leader.group)
    second.send_join()
    until(talk, leader.group, "PreparingRebalance", 2)
    again = talk.connect()
    again.send(join(version, leader.group, second.id))
    again.nothing(within_ms=100)
    second.line.receive(within_ms=500)
    leader.send_join()
    again.receive()
    leader.joined(record=True)


# --- several --------------------------------------------------------------------------------------


@book.case("a second one", versions=JOIN)
def second(talk: Talk, version: int) -> None:
    """It waits for the first, which learns of it by its heartbeat."""
    leader = stable(talk)
    other = Member(talk, leader.group, version=version)
    other.send_join()
    until(talk, leader.group, "PreparingRebalance", 2)
    talk.ask(describe(5, leader.group))
    leader.heartbeat()
    leader.send_join(version)
    other.joined(record=True)
    leader.joined(record=True)
    talk.note("state", state_of(talk, leader.group))


@book.case("a second one while the first has not synced", versions=SOME)
def second_before_sync(talk: Talk, version: int) -> None:
    leader = Member(talk, talk.name("g"))
    leader.join()
    other = Member(talk, leader.group, version=version)
    other.send_join()
    until(talk, leader.group, "PreparingRebalance", 2)
    leader.sync({leader.id: b"x"}, record=True)
    leader.send_join(version)
    other.joined(record=True)
    leader.joined(record=True)


@book.case("another kind", versions=SOME)
def another_kind(talk: Talk, version: int) -> None:
    member = stable(talk)
    Member(talk, member.group, version=version, record=True, kind="connect").send_join()
    other = talk.connect()
    other.ask(join(version, member.group, kind="connect"))
    other.ask(join(version, member.group, member.id, kind="connect"))
    talk.note("state", state_of(talk, member.group))


@book.case("no protocol in common", versions=SOME)
def nothing_in_common(talk: Talk, version: int) -> None:
    member = stable(talk)
    given = (("roundrobin", b""),)
    talk.ask(join(version, member.group, protocols=given))
    talk.ask(join(version, member.group, member.id, protocols=given))
    talk.note("state", state_of(talk, member.group))


@book.case("no protocol in common with a group of two", versions=SOME)
def nothing_in_common_with_two(talk: Talk, version: int) -> None:
    leader, follower = synced(together(talk, 2))
    given = (("roundrobin", b""),)
    follower.line.ask(join(version, leader.group, follower.id, protocols=given))
    talk.note("state", state_of(talk, leader.group))


@book.case("into an Empty group", versions=SOME)
def into_empty(talk: Talk, version: int) -> None:
    group = dissolved(talk)
    Member(talk, group, version=version, record=True).join()


@book.case("into an Empty group, as another kind", versions=SOME)
def into_empty_as_another(talk: Talk, version: int) -> None:
    group = dissolved(talk)
    Member(
        talk, group, version=version, record=True, kind="connect", protocols=(("p", b"d"),)
    ).join()
    talk.ask(describe(5, group))


VOTES: dict[str, tuple[str, ...]] = {
    "all first": ("ab", "ab", "ab"),
    "two against one": ("ab", "ba", "ba"),
    "one in common": ("abc", "bd", "eb"),
    "the first choice is not common": ("ab", "cb"),
    "many": ("abcd", "dcba", "cd", "dc", "cdab"),
}


@book.case("votes", versions=[0, 4, 7, 9], over=VOTES)
def votes(talk: Talk, version: int, ballots: tuple[str, ...]) -> None:
    """The protocol that is chosen, and the metadata that the leader gets for it."""
    hows = [
        {"protocols": [(p, subscription(f"{p}{place}")) for p in ballot]}
        for place, ballot in enumerate(ballots)
    ]
    members = in_one(talk, hows)
    members[1].send_join(version, protocols=[(p, subscription("new")) for p in ballots[1]])
    until(talk, members[0].group, "PreparingRebalance")
    for member in members[2:] + members[:1]:
        member.send_join(version)
    for member in members[1:] + members[:1]:
        member.joined(record=True)


@book.case("five", versions=SOME)
def five(talk: Talk, version: int) -> None:
    members = together(talk, 5, version=version)
    talk.ask(describe(5, members[0].group))
    talk.note("generation", {m.generation for m in members} == {2})
    talk.note("leader", {m.answer.leader for m in members} == {members[0].id})
    talk.note("told", [len(m.answer.members) for m in members])


@book.case("the leader leaves", versions=SOME)
def leader_leaves(talk: Talk, version: int) -> None:
    leader, follower = synced(together(talk, 2))
    leader.line.ask(leave_of(leader), record=False)
    until(talk, leader.group, "PreparingRebalance", 1)
    follower.heartbeat()
    follower.send_join(version)
    follower.joined(record=True)


def leave_of(member: Member) -> Any:
    member_id, instance = member.key
    return build(
        ApiKey.LEAVE_GROUP,
        5,
        group_id=member.group,
        members=[{"member_id": member_id, "group_instance_id": instance, "reason": None}],
    )


# --- static members -------------------------------------------------------------------------------

INSTANCES = {
    "empty": "",
    "a dot": ".",
    "two dots": "..",
    "a space": "a b",
    "a slash": "a/b",
    "249 characters": "i" * 249,
    "250 characters": "i" * 250,
    "a letter beyond ASCII": "\u00fc",
}


@book.case("an instance's name", versions=(5, 9), over=INSTANCES)
def instance_name(talk: Talk, version: int, name: str) -> None:
    talk.ask(join(version, talk.name("g"), instance=name))


@book.case("static", versions=STATIC)
def static(talk: Talk, version: int) -> None:
    """It is in at once, and its instance is in the leader's answer."""
    member = Member(talk, talk.name("g"), version=version, record=True, instance="one")
    member.join()
    talk.ask(describe(5, member.group))


@book.case("static, with an id that is not known", versions=SOME_STATIC)
def static_unknown(talk: Talk, version: int) -> None:
    talk.ask(join(version, talk.name("g"), STRANGER, instance="one"))
    member = stable(talk, "h", instance="one")
    talk.ask(join(version, member.group, STRANGER, instance="two"))
    talk.ask(join(version, member.group, STRANGER, instance="one"))
    talk.ask(join(version, member.group, member.id, instance="two"))
    talk.ask(join(version, member.group, member.id))


@book.case("static, with an id given before", versions=SOME_STATIC)
def static_pending(talk: Talk, version: int) -> None:
    group = talk.name("g")
    found = talk.ask(join(version, group))
    talk.ask(join(version, group, found.member_id, instance="one"))


@book.case("static, back again as the leader", versions=SOME_STATIC)
def static_leader_back(talk: Talk, version: int) -> None:
    """Another id, no rebalance; the old id is fenced."""
    old = stable(talk, instance="one")
    new = Member(talk, old.group, version=version, record=True, instance="one")
    new.join()
    new.sync(record=True)
    talk.note("state", state_of(talk, old.group))
    old.heartbeat()
    old.sync(record=True)
    old.line.ask(join(version, old.group, old.id, instance="one"))
    old.line.ask(join(version, old.group, old.id))
    new.heartbeat()


@book.case("static, back again with another protocol", versions=SOME_STATIC)
def static_back_changed(talk: Talk, version: int) -> None:
    old = stable(talk, instance="one")
    new = Member(
        talk,
        *(old.group,),
        version=version,
        record=True,
        instance="one",
        protocols=(("range", b"other"),),
    )
    new.join()
    talk.note("state", state_of(talk, old.group))


@book.case("static, back again as a follower", versions=SOME_STATIC)
def static_follower_back(talk: Talk, version: int) -> None:
    leader, old = synced(in_one(talk, [{"instance": "one"}, {"instance": "two"}]))
    new = Member(talk, leader.group, version=version, record=True, instance="two")
    new.join()
    new.sync(record=True)
    talk.ask(describe(5, leader.group))
    leader.heartbeat()
    old.heartbeat()


@book.case("static, back again as a follower with other data", versions=SOME_STATIC)
def static_follower_back_changed(talk: Talk, version: int) -> None:
    """The chosen protocol is the same as before, and only that matters."""
    leader, old = synced(in_one(talk, [{"instance": "one"}, {"instance": "two"}]))
    new = Member(
        talk,
        *(leader.group,),
        version=version,
        record=True,
        instance="two",
        protocols=(("range", b"other"),),
    )
    new.join()
    talk.note("state", state_of(talk, leader.group))
    leader.heartbeat()
    old.heartbeat()


@book.case("static, back again before the sync", versions=SOME_STATIC)
def static_back_before_sync(talk: Talk, version: int) -> None:
    """The group prepares once more."""
    old = Member(talk, talk.name("g"), instance="one")
    old.join()
    new = Member(talk, old.group, version=version, record=True, instance="one")
    new.join()
    talk.note("state", state_of(talk, old.group))
    old.sync({old.id: b"x"}, record=True)


@book.case("static, back again while it waits to join", versions=SOME_STATIC)
def static_back_while_waiting(talk: Talk, version: int) -> None:
    """The older request is answered: it is fenced."""
    leader = stable(talk)
    old = Member(talk, leader.group, instance="two")
    old.send_join()
    until(talk, leader.group, "PreparingRebalance", 2)
    new = Member(talk, leader.group, version=version, instance="two")
    new.send_join()
    old.joined(record=True)
    leader.send_join()
    new.joined(record=True)
    leader.joined(record=True)


@book.case("static, back again while it waits for its assignment", versions=SOME_STATIC, alone=True)
def static_back_while_syncing(talk: Talk, version: int) -> None:
    leader, old = in_one(talk, [{}, {"instance": "two"}])
    old.send_sync()
    new = Member(talk, leader.group, version=version, instance="two")
    until(talk, leader.group, "CompletingRebalance")
    old.line.nothing(within_ms=50)
    new.send_join()
    old.line.receive()
    until(talk, leader.group, "PreparingRebalance")
    leader.send_join()
    new.joined(record=True)
    leader.joined(record=True)


@book.case("static and the leader, again with its id", versions=SOME_STATIC)
def static_again_with_id(talk: Talk, version: int) -> None:
    member = stable(talk, instance="one", version=version, record=True)
    member.join()
    talk.note("state", state_of(talk, member.group))


@book.case("a static and a dynamic one", versions=SOME_STATIC)
def static_and_dynamic(talk: Talk, version: int) -> None:
    static_one, dynamic = in_one(talk, [{"instance": "one"}, {}])
    static_one.line.ask(join(version, static_one.group, dynamic.id, instance="one"))
    dynamic.line.ask(join(version, static_one.group, dynamic.id))
    talk.note("state", state_of(talk, static_one.group))


# --- bytes ----------------------------------------------------------------------------------------


@book.case("null protocols", versions=JOIN)
def null_protocols(talk: Talk, version: int) -> None:
    whole = body_of(join(version, talk.name("g"), protocols=()))
    count = b"\x01" if version >= 6 else b"\x00\x00\x00\x00"
    null = b"\x00" if version >= 6 else b"\xff\xff\xff\xff"
    place = whole.rindex(count) if version < 6 else whole.rindex(b"\x09consumer") + 9
    talk.ask(raw(join(version, "g"), whole[:place] + null + whole[place + len(count) :]))


@book.case("more protocols than bytes", versions=JOIN)
def too_many_protocols(talk: Talk, version: int) -> None:
    whole = body_of(join(version, talk.name("g"), protocols=RANGE))
    start = whole.index(b"consumer") + len(b"consumer")
    count = b"\xff\xff\xff\xff\x07" if version >= 6 else b"\x7f\xff\xff\xff"
    rest = whole[start + (1 if version >= 6 else 4) :]
    talk.ask(Raw(ApiKey.JOIN_GROUP, version, whole[:start] + count + rest))


add_shapes(book, ApiKey.JOIN_GROUP, JOIN, lambda talk, version: join(version, ""))
