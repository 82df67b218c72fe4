"""Groups over time: members lost or late, bounds of size, and the first rebalance's delay.

The brokers here allow sessions of a tenth of a second, so a case waits for a real time-out. How
long it took is not compared: a machine may be busy.
"""

from __future__ import annotations

from typing import Any, Final

from tests.parity.book import Book
from tests.parity.cases._groups import (
    MS,
    Member,
    commit,
    describe,
    in_one,
    join,
    leave,
    stable,
    state_of,
    synced,
    together,
    until,
)
from tests.parity.talk import Talk

# Long enough for a member's requests one after the other, where a machine is busy.
SHORT_MS: Final = 600
VERSIONS: Final = (1, 4, 9)
STATIC: Final = (5, 9)

book = Book(setup="short sessions")
cases = book.cases


# --- sessions -------------------------------------------------------------------------------------


@book.case("the only member is lost", versions=VERSIONS)
def only_lost(talk: Talk, version: int) -> None:
    member = stable(talk, version=version, session=SHORT_MS)
    until(talk, member.group, "Empty", 0)
    talk.ask(describe(5, member.group))
    member.heartbeat()
    member.commit(9, (talk.topic(), {0: 1}))
    member.line.ask(join(version, member.group, member.id))
    Member(talk, member.group, record=True, version=version).join()


@book.case("the only member is lost before its sync", versions=VERSIONS)
def lost_before_sync(talk: Talk, version: int) -> None:
    member = Member(talk, talk.name("g"), version=version, session=SHORT_MS)
    member.join()
    until(talk, member.group, "Empty", 0)
    member.sync({member.id: b"x"}, record=True)


@book.case("one of two is lost", versions=VERSIONS)
def one_lost(talk: Talk, version: int) -> None:
    leader, follower = synced(
        in_one(talk, [{"version": version}, {"version": version, "session": 2 * SHORT_MS}])
    )
    until(talk, leader.group, "PreparingRebalance", 1)
    leader.heartbeat()
    follower.heartbeat()
    leader.send_join(version)
    leader.joined(record=True)


@book.case("the leader is lost before its sync", versions=VERSIONS)
def leader_lost(talk: Talk, version: int) -> None:
    """A member that waits for its assignment is answered, and leads the next generation."""
    leader, follower = in_one(
        talk, [{"version": version, "session": 4 * SHORT_MS}, {"version": version}]
    )
    follower.send_sync()
    follower.line.receive()
    follower.send_join(version)
    follower.joined(record=True)
    leader.heartbeat()


@book.case("heartbeats keep a member", versions=[4])
def kept(talk: Talk, version: int) -> None:
    """For several of its sessions, beside one that is silent."""
    quiet = stable(talk, "quiet", session=SHORT_MS)
    loud = stable(talk, "loud", session=10 * SHORT_MS)

    def silent_one_gone() -> bool:
        loud.heartbeat(version, record=False)
        return state_of(talk, quiet.group) == ("Empty", 0)

    talk.until(silent_one_gone)
    loud.heartbeat(version)


@book.case("who waits to join is not lost", versions=VERSIONS)
def waiting_is_not_lost(talk: Talk, version: int) -> None:
    """However short its session."""
    leader = stable(talk)
    other = Member(talk, leader.group, version=version, session=SHORT_MS)
    other.send_join()
    until(talk, leader.group, "PreparingRebalance", 2)
    other.line.nothing(within_ms=900)
    leader.send_join(version)
    other.joined(record=True)


@book.case("a static member is lost", versions=STATIC)
def static_lost(talk: Talk, version: int) -> None:
    member = stable(talk, version=version, session=SHORT_MS, instance="one")
    until(talk, member.group, "Empty", 0)
    member.heartbeat()
    Member(talk, member.group, version=version, instance="one", record=True).join()


# --- ids that are not used ------------------------------------------------------------------------


@book.case("an id is not used in time", versions=(4, 9))
def pending_lost(talk: Talk, version: int) -> None:
    group = talk.name("g")
    given = talk.ask(join(version, group, session=SHORT_MS)).member_id
    talk.nothing(within_ms=3_000)
    talk.ask(join(version, group, given, session=SHORT_MS))
    talk.ask(describe(5, group))


@book.case("others wait for an id that is not used", versions=(4, 9))
def pending_waited_for(talk: Talk, version: int) -> None:
    leader = stable(talk)
    talk.ask(join(version, leader.group, session=2 * SHORT_MS))
    leader.send_join(version)
    leader.joined(record=True)
    talk.ask(describe(5, leader.group))


# --- rebalances that a member misses --------------------------------------------------------------
# Alone, all of them: after other cases' questions their own would come late for their times.


@book.case("a member does not come back", versions=VERSIONS, alone=True)
def absent(talk: Talk, version: int) -> None:
    """The others go on without it when its rebalance time is over."""
    short = {"version": version, "rebalance": 2 * SHORT_MS, "session": 2 * SHORT_MS}
    leader, follower = synced(in_one(talk, [short, short]))
    follower.send_join(version, protocols=(("range", b"new"),), session=MS)
    follower.joined(record=True)
    leader.heartbeat()
    talk.ask(describe(5, leader.group))


@book.case("a static member does not come back", versions=STATIC, alone=True)
def static_absent(talk: Talk, version: int) -> None:
    """It keeps its place for as long as its session lasts."""
    how = {"version": version, "rebalance": 2 * SHORT_MS}
    leader, absentee = synced(in_one(talk, [how, how | {"instance": "two"}]))
    leader.send_join(version)
    leader.joined(record=True)
    talk.ask(describe(5, leader.group))
    absentee.heartbeat()


@book.case("the leader does not come back", versions=VERSIONS, alone=True)
def leader_absent(talk: Talk, version: int) -> None:
    how = {"version": version, "rebalance": 2 * SHORT_MS, "session": 2 * SHORT_MS}
    leader, follower = synced(in_one(talk, [how, how]))
    talk.note("leader", leader.id == leader.answer.leader)
    follower.send_join(version, protocols=(("range", b"new"),), session=MS)
    answer = follower.joined(record=True)
    talk.note("leads", answer.leader == follower.id)


@book.case("the leader does not sync", versions=(4, 9), alone=True)
def no_sync(talk: Talk, version: int) -> None:
    """None gets an assignment; a member that asks for none is out after the rebalance time."""
    how = {"version": version, "rebalance": 2 * SHORT_MS}
    leader, follower = in_one(talk, [how, how])
    follower.send_sync()
    follower.line.receive()
    follower.heartbeat()
    leader.heartbeat()
    talk.note("state", state_of(talk, leader.group))


@book.case("a follower does not sync", versions=(4, 9), alone=True)
def follower_no_sync(talk: Talk, version: int) -> None:
    how = {"version": version, "rebalance": 2 * SHORT_MS}
    leader, follower = in_one(talk, [how, how])
    leader.sync({leader.id: b"l", follower.id: b"f"}, record=True)
    until(talk, leader.group, "PreparingRebalance", 1)
    leader.heartbeat()
    follower.heartbeat()
    follower.sync(record=True)


# --- bounds ---------------------------------------------------------------------------------------


@book.case("a full group", versions=VERSIONS)
def full(talk: Talk, version: int) -> None:
    """Three is the bound here."""
    members = synced(together(talk, 3))
    group = members[0].group
    talk.ask(join(version, group))
    talk.note("state", state_of(talk, group))
    talk.quietly(leave(5, group, members[2].key))
    until(talk, group, "PreparingRebalance", 2)
    talk.ask(join(9, group), view=lambda data: data["error_code"])


@book.case("a full group of joining members", versions=VERSIONS)
def full_joining(talk: Talk, version: int) -> None:
    leader = stable(talk)
    for count in (2, 3):
        Member(talk, leader.group).send_join()
        until(talk, leader.group, "PreparingRebalance", count)
    talk.send(join(version, leader.group))
    talk.receive(within_ms=None if version >= 4 else 200)
    talk.note("state", state_of(talk, leader.group))


@book.case("a full group of given ids", versions=(4, 9))
def full_pending(talk: Talk, version: int) -> None:
    group = talk.name("g")
    given = [talk.ask(join(version, group)).member_id for _ in range(4)]
    talk.ask(join(version, group, given[0]))
    talk.ask(describe(5, group))


@book.case("a full group and a static member", versions=STATIC)
def full_static(talk: Talk, version: int) -> None:
    group = synced(together(talk, 3))[0].group
    talk.ask(join(version, group, instance="one"))
    held = synced(in_one(talk, [{"instance": i} for i in "abc"], "h"))[0].group
    Member(talk, held, version=version, instance="b", record=True).join()
    talk.ask(join(version, held, instance="d"))


SESSIONS: Final[dict[str, Any]] = {str(ms): ms for ms in (99, 100, 1_800_000, 1_800_001)}


@book.case("a session of", versions=VERSIONS, over=SESSIONS)
def session(talk: Talk, version: int, ms: int) -> None:
    answer = talk.ask(join(version, talk.name("g"), session=ms), view=lambda d: d["error_code"])
    talk.note("has an id", bool(answer.member_id))


# --- the first rebalance --------------------------------------------------------------------------


@book.case("the first rebalance waits for others", versions=VERSIONS, setup="a delay")
def delayed(talk: Talk, version: int) -> None:
    """A member that joins in this time is in the first generation."""
    group = talk.name("g")
    members = [Member(talk, group, version=version) for _ in range(3)]
    for count, member in enumerate(members, 1):
        member.send_join()
        until(talk, group, "PreparingRebalance", count)
    talk.note("state", state_of(talk, group))
    for member in members[1:] + members[:1]:
        member.joined(record=True)


@book.case("the first rebalance waits no longer than the rebalance time", setup="a delay")
def delayed_at_most(talk: Talk) -> None:
    member = Member(talk, talk.name("g"), rebalance=100, record=True)
    member.join()


@book.case("an Empty group waits again", versions=VERSIONS, setup="a delay")
def delayed_again(talk: Talk, version: int) -> None:
    member = Member(talk, talk.name("g"), version=version)
    member.join()
    member.sync({member.id: b"a"})
    talk.quietly(leave(5, member.group, member.key))
    members = [Member(talk, member.group, version=version) for _ in range(2)]
    for count, each in enumerate(members, 1):
        each.send_join()
        until(talk, member.group, "PreparingRebalance", count)
    for each in members[1:] + members[:1]:
        each.joined(record=True)


@book.case("the only one leaves while it waits", versions=VERSIONS, setup="a delay")
def leaves_in_delay(talk: Talk, version: int) -> None:
    member = Member(talk, talk.name("g"), version=version)
    member.send_join()
    until(talk, member.group, "PreparingRebalance", 1)
    if version == 1:  # its id is not known yet
        member.id = talk.quietly(describe(5, member.group)).groups[0].members[0].member_id
    talk.ask(leave(3, member.group, (member.id, None)))
    member.joined(record=True)
    until(talk, member.group, "Empty", 0)
    talk.ask(describe(5, member.group))


@book.case("a commit of a group that waits", setup="a delay")
def commit_in_delay(talk: Talk) -> None:
    name = talk.topic()
    member = Member(talk, talk.name("g"))
    member.send_join()
    until(talk, member.group, "PreparingRebalance", 1)
    talk.ask(commit(talk, 9, member.group, (name, {0: 1})))
    talk.ask(commit(talk, 9, member.group, (name, {0: 1}), generation=0, member=member.id))
    member.joined(record=True)
