"""A group with members changes its protocol, one way and back; answers as of Apache Kafka 4.3.0."""

from __future__ import annotations

from typing import Any

import pytest

from kbroker.coordinator.consumer_group.images import ClassicMember
from kbroker.coordinator.consumer_group.states import ConsumerGroupState, MemberState
from kbroker.coordinator.group.group import Group
from kbroker.coordinator.group.messages import CommitAsked, Leaver
from kbroker.coordinator.group.states import GroupState
from kbroker.errors import ErrorCode
from tests.unit.coordinator.consumer_group.migrating import (
    GROUP,
    REBALANCE_MS,
    SESSION_MS,
    MigratingWorld,
    assignment,
    kinds,
    made,
    mixed,
    owned,
    rejoined,
    subscription,
)
from tests.unit.coordinator.consumer_group.world import Records, topic_of
from tests.unit.coordinator.group.world import Answer

NONE = ErrorCode.NONE
AGAIN = ErrorCode.REBALANCE_IN_PROGRESS
REFUSED = ErrorCode.COORDINATOR_NOT_AVAILABLE
T = topic_of("t", 4).topic_id


@pytest.fixture
def world() -> MigratingWorld:
    return made()


# --- to the consumer protocol ---


def test_a_classic_group_is_a_consumer_group_when_its_first_consumer_joins(
    world: MigratingWorld,
) -> None:
    a, b = world.stable({"t": [0, 1]}, {"t": [2, 3]})
    generation = world.classic.generation
    answer = world.enter("c")
    assert (answer.code, answer.epoch, answer.assignment) == (NONE, generation + 1, {})
    state = world.consumer._state
    assert owned(state, a) == {T: [0, 1]}
    assert state.members[a].classic == ClassicMember(SESSION_MS, (("range", subscription("t")),))
    assert state.members["c"].classic is None
    records = kinds(world.log.batches[-1])
    assert records[0] == "-CLASSIC"
    assert records.count("MEMBER") == 3
    assert records[-1] == "CURRENT_OF_MEMBER"
    assert world.classic_beat(a, generation) is AGAIN
    # It gives all up before it joins, so it has its target at once.
    assert rejoined(world, a)[0] == generation + 1
    assert rejoined(world, b)[0] == generation + 1
    assert world.classic_beat(a, generation + 1) is NONE
    assert len(world.beat("c", generation + 1).assignment[T]) == 1  # type: ignore[index]
    assert world.consumer.state is ConsumerGroupState.STABLE
    assert world.is_as_logged


def test_a_member_gives_up_partitions_before_it_gets_others(world: MigratingWorld) -> None:
    protocols = (("cooperative-sticky", subscription("t")),)
    (a,) = world.stable({"t": [0, 1, 2, 3]}, protocols=protocols)
    epoch = world.enter("c").epoch
    owns = (("cooperative-sticky", subscription("t", owned={"t": [0, 1, 2, 3]})),)
    joined = world.join(a, owns)
    assert joined.generation == epoch - 1
    kept = world.given(a, epoch - 1)["t"]
    assert len(kept) == 2
    assert world.beat("c", epoch).assignment is None
    assert world.classic_beat(a, epoch - 1) is AGAIN
    owns = (("cooperative-sticky", subscription("t", owned={"t": kept})),)
    assert world.join(a, owns).generation == epoch
    assert world.given(a, epoch)["t"] == kept
    assert world.beat("c", epoch).assignment == {T: frozenset({0, 1, 2, 3} - set(kept))}


def test_a_member_is_to_join_when_its_other_partitions_are_free(world: MigratingWorld) -> None:
    a, b = world.stable({"t": [0, 1]}, {"t": [2, 3]})
    epoch = world.enter("c").epoch
    rejoined(world, a)
    rejoined(world, b)
    world.beat("c", epoch)
    assert world.leave(b).members == (NONE,)
    assert world.classic_beat(a, epoch) is AGAIN
    assert rejoined(world, a)[0] == epoch + 1
    assert world.beat("c", epoch).epoch == epoch + 1
    assert world.consumer.state is ConsumerGroupState.STABLE


def test_requests_that_wait_in_the_classic_group_are_to_come_again(world: MigratingWorld) -> None:
    a, b = world.stable({"t": [0, 1]}, {"t": [2, 3]})
    new = world.join()
    waiting = world.ask_to_join(a), world.ask_to_join(new.member_id)
    assert all(each.waits for each in waiting)
    assert world.enter("c").code is NONE
    assert [each.got.code for each in waiting] == [AGAIN, AGAIN]
    assert [each.got.member_id for each in waiting] == [a, new.member_id]
    # The one that was in no generation yet is new here, under the id that it has.
    assert new.member_id not in world.consumer._state.members
    assert world.join(new.member_id).code is NONE
    assert {a, b, "c", new.member_id} == set(world.consumer._state.members)


def test_a_member_without_an_assignment_may_own_its_subscription(world: MigratingWorld) -> None:
    """Its group was forming a generation, which was given up."""
    owns = (("cooperative-sticky", subscription("t", owned={"t": [0, 1]})),)
    (a,) = world.stable({"t": [0, 1]}, protocols=owns)
    world.classic.roster.members[a].assignment = b""
    world.enter("c")
    assert owned(world.consumer._state, a) == {T: [0, 1]}


def test_a_partition_of_two_members_is_the_first_ones(world: MigratingWorld) -> None:
    a, b = world.stable({"t": [0, 1, 7]}, {"t": [1, 2], "u": [0]})
    world.enter("c")
    state = world.consumer._state
    assert (owned(state, a), owned(state, b)) == ({T: [0, 1]}, {T: [2]})


@pytest.mark.parametrize("policy", ["disabled", "DOWNGRADE"])
def test_a_policy_may_forbid_it(policy: str) -> None:
    world = made(f"group.consumer.migration.policy={policy}")
    (a,) = world.stable({"t": [0, 1, 2, 3]})
    generation = world.classic.generation
    answer = world.enter("c")
    assert answer.code is ErrorCode.GROUP_ID_NOT_FOUND
    assert answer.message == (
        "Cannot upgrade classic group g to consumer group because online upgrade is disabled."
    )
    assert world.classic_beat(a, generation) is NONE


@pytest.mark.parametrize(
    ("metadata", "given", "words"),
    [
        (b"\0", {"t": [0]}, "the embedded consumer protocol is malformed"),
        (b"\xff\xff\0\0\0\0", {"t": [0]}, "the embedded consumer protocol is malformed"),
        (b"\0\0\x7f\xff\xff\xff", {"t": [0]}, "the embedded consumer protocol is malformed"),
        (None, b"\0", "the embedded consumer protocol is malformed"),
        (None, assignment({"t": [0]})[:-4] + b"\0\0\0\x01x", "an unsupported custom assignor"),
    ],
)
def test_bytes_that_no_consumer_sends(
    world: MigratingWorld, metadata: bytes | None, given: object, words: str
) -> None:
    protocols = None if metadata is None else (("range", metadata),)
    (a,) = world.stable({"t": [0]}, protocols=protocols)
    if isinstance(given, bytes):
        world.classic.roster.members[a].assignment = given
    answer = world.enter("c")
    assert answer.code is ErrorCode.GROUP_ID_NOT_FOUND
    assert words in (answer.message or "")
    assert world.classic.state is GroupState.STABLE


def test_a_group_of_another_type_stays(world: MigratingWorld) -> None:
    world.stable({}, protocol_type="connect")
    assert "consumer embedded protocol" in (world.enter("c").message or "")


def test_a_group_that_is_too_large_stays() -> None:
    world = made("group.consumer.max.size=1")
    a, _ = world.stable({"t": [0]}, {"t": [1]})
    assert "exceeds the consumer group maximum size" in (world.enter("c").message or "")
    world.leave(a)
    world.pass_ms(1)
    world = made("group.consumer.max.size=1")
    (a,) = world.stable({"t": [0]})
    assert world.enter("c").code is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert world.classic_beat(a, world.classic.generation) is NONE
    assert world.enter(a).code is NONE  # it is that member, of the other protocol now


def test_a_write_that_fails_leaves_a_stable_group_as_it_was(world: MigratingWorld) -> None:
    a, b = world.stable({"t": [0, 1]}, {"t": [2, 3]})
    generation = world.classic.generation
    world.log.refuses = REFUSED
    for _ in range(2):
        assert world.enter("c").code is REFUSED
    world.log.refuses = NONE
    assert (world.classic.state, world.classic.roster.leader) == (GroupState.STABLE, a)
    assert [world.classic_beat(each, generation) for each in (a, b)] == [NONE, NONE]
    assert world.given(b, generation) == {"t": [2, 3]}
    assert world.enter("c").code is NONE
    assert {a, b, "c"} == set(world.consumer._state.members)


def test_a_write_that_fails_has_the_members_of_a_rebalance_join_again(
    world: MigratingWorld,
) -> None:
    a, b = world.stable({"t": [0, 1]}, {"t": [2, 3]})
    generation = world.classic.generation
    assert world.ask_to_join(a).waits
    world.log.refuses = REFUSED
    assert world.enter("c").code is REFUSED
    world.log.refuses = NONE
    assert world.classic.state is GroupState.PREPARING_REBALANCE
    assert [world.classic_beat(each, generation) for each in (a, b)] == [AGAIN, AGAIN]
    first, second = world.ask_to_join(a), world.ask_to_join(b)
    assert first.got.generation == second.got.generation == generation + 1


def test_an_error_in_the_conversion_costs_no_member(
    world: MigratingWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    (a,) = world.stable({"t": [0]})

    def fails(*_: object, **__: object) -> None:
        raise ArithmeticError

    monkeypatch.setattr("kbroker.coordinator.consumer_group.coordinator.upgraded", fails)
    assert world.enter("c").code is REFUSED
    assert world.classic_beat(a, world.classic.generation) is NONE


# --- members of the classic protocol in a consumer group ---


def test_a_new_member_of_the_classic_protocol(world: MigratingWorld) -> None:
    a, b, epoch = mixed(world)
    new = world.join()
    assert new.code is ErrorCode.MEMBER_ID_REQUIRED
    joined = world.join(new.member_id)
    assert (joined.code, joined.generation, joined.protocol) == (NONE, epoch + 1, "range")
    assert world.given(new.member_id, epoch + 1) == {}
    for each in (a, b):
        assert world.classic_beat(each, epoch) is AGAIN
        rejoined(world, each)
    world.beat("c", epoch)
    world.beat("c", epoch, owned={})
    assert world.join(needs_id=False).code is NONE


def test_protocols_that_the_others_do_not_have(world: MigratingWorld) -> None:
    a, _, epoch = mixed(world)
    other = (("roundrobin", subscription("t")),)
    assert world.join(protocols=other).code is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert world.join(protocol_type="connect").code is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    malformed = (("range", b"\0"),)
    assert world.join(a, malformed).code is ErrorCode.UNKNOWN_SERVER_ERROR
    assert world.classic_beat(a, epoch) is NONE


def test_requests_that_do_not_fit(world: MigratingWorld) -> None:
    a, _, epoch = mixed(world)
    unknown, other = ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION
    assert world.classic_beat("x", epoch) is unknown
    assert world.classic_beat("c", epoch) is unknown
    assert world.classic_beat(a, epoch - 1) is other
    assert world.classic_beat(a, epoch, "i") is unknown
    assert world.sync("x", epoch).code is unknown
    assert world.sync("c", epoch).code is unknown
    assert world.sync(a, epoch + 1).code is other
    inconsistent = ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert world.sync(a, epoch, protocol_type="connect").code is inconsistent
    assert world.sync(a, epoch, protocol="roundrobin").code is inconsistent
    assert world.sync(a, epoch, protocol_type="consumer", protocol="range").code is NONE


def test_a_sync_while_a_newer_target_is_there(world: MigratingWorld) -> None:
    a, _, epoch = mixed(world)
    world.enter("d")
    assert world.sync(a, epoch).code is AGAIN


@pytest.mark.parametrize("how", ["asked to join", "joined"])
def test_a_member_that_owes_something_for_too_long_goes(world: MigratingWorld, how: str) -> None:
    a, b, epoch = mixed(world)
    world.enter("d")
    if how == "joined":
        epoch = world.join(a).generation
    passed = 0
    while passed <= REBALANCE_MS + 10_000:
        said = world.classic_beat(a, epoch)
        assert said is not ErrorCode.UNKNOWN_MEMBER_ID or passed >= REBALANCE_MS - 10_000
        rejoined(world, b)
        for each in ("c", "d"):
            world.beat(each, world.consumer._state.current_of(each).epoch)
        world.pass_ms(10_000)
        passed += 10_000
    assert a not in world.consumer._state.members
    assert b in world.consumer._state.members


def test_each_member_has_the_session_of_its_own(world: MigratingWorld) -> None:
    a, _ = world.stable({"t": [0, 1]}, {"t": [2, 3]}, session_timeout_ms=10_000)
    epoch = world.enter("c").epoch
    world.pass_ms(9_000)
    world.classic_beat(a, epoch - 1)
    world.pass_ms(2_000)
    assert set(world.consumer._state.members) == {a, "c"}
    world.fail_over()
    world.pass_ms(9_000)
    assert set(world.consumer._state.members) == {a, "c"}
    world.pass_ms(2_000)
    assert set(world.consumer._state.members) == {"c"}


def test_commits_of_a_classic_member(world: MigratingWorld) -> None:
    a, _, epoch = mixed(world)
    (index, *_) = owned(world.consumer._state, a)[T]

    def commits(generation: int, at: int, version: int = 6) -> ErrorCode:
        asked = CommitAsked(GROUP, a, None, generation, lambda: [(T, at)], version)
        return world.coordinator.admit_commit(asked).code

    assert commits(epoch, index) is NONE
    assert commits(epoch - 1, index) is NONE  # it has had the partition since then
    assert commits(epoch + 1, index) is ErrorCode.ILLEGAL_GENERATION
    assert commits(epoch - 1, 3 - index) in (NONE, ErrorCode.ILLEGAL_GENERATION)
    assert commits(epoch - 2, index) is ErrorCode.ILLEGAL_GENERATION
    assert world.coordinator.fetch_error(GROUP, a, epoch) is NONE
    assert world.coordinator.fetch_error(GROUP, a, epoch - 1) is ErrorCode.ILLEGAL_GENERATION


def test_topics_that_grow_are_seen_by_heartbeats_of_classic_members(world: MigratingWorld) -> None:
    a, _, epoch = mixed(world)
    world.create(topic_of("t", 8))
    assert world.classic_beat(a, epoch) is AGAIN
    assert len(rejoined(world, a)[1]) >= 2


def test_a_member_changes_its_protocol_under_its_id(world: MigratingWorld) -> None:
    a, _, epoch = mixed(world)
    before = owned(world.consumer._state, a)
    answer = world.enter(a)
    assert (answer.code, answer.epoch) == (NONE, epoch)
    assert world.consumer._state.members[a].classic is None
    assert owned(world.consumer._state, a) == before
    assert world.classic_beat(a, epoch) is ErrorCode.UNKNOWN_MEMBER_ID


# --- static members ---


def static_pair(world: MigratingWorld) -> tuple[str, int]:
    """A static classic member `i` that leads, in a group with "c"; its id and the epoch."""
    joined = world.join(instance_id="i")
    given = {joined.member_id: assignment({"t": [0, 1, 2, 3]})}
    world.sync(joined.member_id, joined.generation, given=given, instance_id="i")
    epoch = world.enter("c").epoch
    assert world.join(joined.member_id, instance_id="i").generation == epoch
    assert world.sync(joined.member_id, epoch, instance_id="i").code is NONE
    world.beat("c", epoch)
    return joined.member_id, epoch


def test_a_static_member_goes_on_with_the_other_protocol(world: MigratingWorld) -> None:
    old, epoch = static_pair(world)
    had = owned(world.consumer._state, old)
    answer = world.enter("new", instance_id="i")
    assert (answer.code, answer.epoch) == (NONE, epoch)
    assert owned(world.consumer._state, "new") == had
    assert world.classic_beat(old, epoch, "i") is ErrorCode.FENCED_INSTANCE_ID
    assert world.classic_beat(old, epoch) is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_static_member_that_comes_back_by_the_classic_protocol(world: MigratingWorld) -> None:
    old, epoch = static_pair(world)
    joined = world.join(instance_id="i")
    assert joined.code is NONE
    assert joined.member_id != old
    assert joined.generation == epoch
    assert len(world.given(joined.member_id, epoch, instance_id="i")["t"]) == 2
    assert world.join(old, instance_id="i").code is ErrorCode.FENCED_INSTANCE_ID
    assert world.join("x", instance_id="j").code is ErrorCode.UNKNOWN_MEMBER_ID


def test_the_last_consumer_is_replaced_by_a_classic_member(world: MigratingWorld) -> None:
    (a,) = world.stable({"t": [0, 1, 2, 3]})
    epoch = world.enter("c", instance_id="i").epoch
    rejoined(world, a)
    world.beat("c", epoch, instance_id="i")
    had = owned(world.consumer._state, "c")[T]
    joined = world.join(instance_id="i")
    assert (joined.code, joined.generation) == (NONE, epoch)
    assert world.classic.state is GroupState.STABLE
    assert world.classic.generation == epoch
    assert world.given(joined.member_id, epoch, instance_id="i") == {"t": had}
    assert world.classic_beat(a, epoch) is NONE
    assert world.loaded().state is None
    world.fail_over()
    assert world.classic.state is GroupState.STABLE


# --- back to the classic protocol ---


@pytest.mark.parametrize("how", ["leaves", "is put out", "is lost"])
def test_a_group_whose_last_consumer_goes_is_a_classic_one(world: MigratingWorld, how: str) -> None:
    a, b, epoch = mixed(world)
    if how == "leaves":
        assert world.beat("c", -1).code is NONE
    elif how == "is put out":
        assert world.leave("c").members == (NONE,)
    else:
        for _ in range(5):
            world.pass_ms(10_000)
            if isinstance(world.group, Group):
                break
            assert world.classic_beat(a, epoch) is world.classic_beat(b, epoch) is NONE
    group = world.classic
    assert group.state is GroupState.PREPARING_REBALANCE
    assert group.generation == epoch
    records = kinds(world.log.batches[-1])
    assert records[-1] == "CLASSIC"
    assert set(records[:-1]) == {
        "-CURRENT_OF_MEMBER", "-TARGET_OF_MEMBER", "-TARGET", "-MEMBER", "-GROUP"}  # fmt: skip
    assert world.loaded().state is None
    assert world.classic_beat(a, epoch) is AGAIN
    first, second = world.ask_to_join(a), world.ask_to_join(b)
    assert first.got.generation == second.got.generation == epoch + 1
    assert first.got.leader in (a, b)
    assert len(first.got.members or second.got.members) == 2


def test_there_and_back_again_and_there(world: MigratingWorld) -> None:
    """What members have is kept while they are between the two."""
    a, _, epoch = mixed(world)
    had = owned(world.consumer._state, a)
    world.beat("c", -1)
    assert world.classic.state is GroupState.PREPARING_REBALANCE
    assert world.enter("d").epoch == epoch + 1
    assert owned(world.consumer._state, a) == had


def test_partitions_to_be_given_up_are_not_free_meanwhile(world: MigratingWorld) -> None:
    protocols = (("cooperative-sticky", subscription("t")),)
    (a,) = world.stable({"t": [0, 1, 2, 3]}, protocols=protocols)
    epoch = world.enter("c").epoch
    owns = (("cooperative-sticky", subscription("t", owned={"t": [0, 1, 2, 3]})),)
    world.join(a, owns)
    assert world.consumer._state.current_of(a).state is MemberState.UNREVOKED
    world.beat("c", -1)
    assert world.enter("d").epoch == epoch + 1
    assert owned(world.consumer._state, a) == {T: [0, 1, 2, 3]}


@pytest.mark.parametrize("policy", ["disabled", "upgrade"])
def test_a_policy_may_forbid_the_way_back(policy: str) -> None:
    world = made("group.consumer.migration.policy=upgrade")
    a, b, epoch = mixed(world)
    if policy == "disabled":
        world.config = made("group.consumer.migration.policy=disabled").config
    assert world.beat("c", -1).code is NONE
    for each in (a, b):
        assert world.classic_beat(each, epoch) is AGAIN
        rejoined(world, each)
    assert world.consumer.state is ConsumerGroupState.STABLE


def test_a_group_that_is_too_large_for_the_way_back() -> None:
    world = made("group.max.size=2")
    mixed(world)
    world.config = made("group.max.size=1").config
    world.beat("c", -1)
    assert world.consumer.member_count == 2


def test_a_static_member_comes_back_to_a_full_group() -> None:
    world = made("group.consumer.max.size=2")
    old, epoch = static_pair(world)
    assert world.join(needs_id=False).code is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert world.join(instance_id="i").generation == epoch
    assert old not in world.consumer._state.members


def test_a_way_back_that_cannot_be_written(world: MigratingWorld) -> None:
    a, b, epoch = mixed(world)
    world.log.refuses = REFUSED
    assert world.beat("c", -1).code is REFUSED
    world.log.refuses = NONE
    assert world.consumer.member_count == 3
    assert world.is_as_logged
    assert [world.classic_beat(each, epoch) for each in (a, b)] == [NONE, NONE]
    # Sessions go on: the member is lost in the end, and then it can be written.
    for _ in range(5):
        world.pass_ms(10_000)
        for each in (a, b):
            world.classic_beat(each, epoch)
    assert world.classic.state is GroupState.PREPARING_REBALANCE


@pytest.mark.parametrize(
    "code",
    [ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.UNKNOWN_SERVER_ERROR],
    ids=lambda code: code.name,
)
def test_a_consumer_goes_though_the_log_never_takes_the_way_back(
    world: MigratingWorld, code: ErrorCode
) -> None:
    a, b, epoch = mixed(world)

    def limited(records: Records) -> ErrorCode:
        return code if kinds(records)[-1] == "CLASSIC" else NONE

    world.log.refuses_batch = limited
    for _ in range(10):
        world.pass_ms(10_000)
        for each in (a, b):
            world.classic_beat(each, world.consumer._state.current_of(each).epoch)
    assert set(world.consumer._state.members) == {a, b}
    assert [rejoined(world, each)[0] for each in (a, b)] == [epoch + 1, epoch + 1]
    assert world.is_as_logged


def test_requests_while_the_way_back_is_being_written(world: MigratingWorld) -> None:
    a, _, epoch = mixed(world)
    group = world.consumer
    asked: list[Answer[Any]] = []
    seen: list[ErrorCode] = []

    def meanwhile(_: object) -> None:
        seen.append(world.classic_beat(a, epoch))
        seen.append(world.coordinator.fetch_error(GROUP, a, epoch))
        asked.append(world.ask_to_join(a))
        asked.append(world.ask_to_sync(a, epoch))
        asked.append(world.ask("d", 0, topics=("t",), owned={}, rebalance_timeout_ms=1))

    world.log.on_append = meanwhile
    world.beat("c", -1)
    assert {*seen, *(each.got.code for each in asked)} == {REFUSED}
    world.log.on_append = lambda _: None
    assert group.lost
    assert world.classic_beat(a, epoch) is AGAIN


def test_another_coordinator_has_the_members_join_too(world: MigratingWorld) -> None:
    """Else none would read what the one that left has read."""
    a, b, epoch = mixed(world)
    world.beat("c", -1)
    world.fail_over()
    assert world.classic.state is GroupState.PREPARING_REBALANCE
    assert [world.classic_beat(each, epoch) for each in (a, b)] == [AGAIN, AGAIN]


def test_a_member_that_is_named_twice_goes_once(world: MigratingWorld) -> None:
    world.enter("c")
    epoch = world.enter("d").epoch
    world.enter("e")
    answer = world.leave("c", "c", "x", Leaver("", "i"))
    unknown = ErrorCode.UNKNOWN_MEMBER_ID
    assert answer.members == (NONE, NONE, unknown, unknown)
    assert world.consumer._state.epoch == epoch + 2
    assert world.leave("d", "e").members == (NONE, NONE)
    assert world.consumer._state.epoch == epoch + 3
