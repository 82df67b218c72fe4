"""What is refused or raises while a group with members changes its protocol, or comes between."""

from __future__ import annotations

import pytest

from kbroker.coordinator.group.departures import Why
from kbroker.coordinator.group.group import Group
from kbroker.coordinator.group.states import GroupState
from kbroker.errors import ErrorCode
from tests.unit.coordinator.consumer_group.migrating import (
    GROUP,
    MigratingWorld,
    made,
    mixed,
    rejoined,
    subscription,
)

NONE = ErrorCode.NONE
AGAIN = ErrorCode.REBALANCE_IN_PROGRESS
REFUSED = ErrorCode.COORDINATOR_NOT_AVAILABLE


@pytest.fixture
def world() -> MigratingWorld:
    return made()


# --- to the consumer protocol ---


@pytest.mark.parametrize("topics", [5_000, 2_500])
def test_members_that_do_not_fit_into_one_batch_stay(world: MigratingWorld, topics: int) -> None:
    """The subscription of the smaller one fits, its records do not."""
    names = [f"{'x' * 200}{number}" for number in range(topics)]
    world.stable({"t": [0]}, protocols=(("range", subscription("t", *names)),))
    assert "one batch" in (world.enter("c").message or "")
    assert world.classic.state is GroupState.STABLE


def test_members_that_are_too_large_are_not_read(
    world: MigratingWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = [f"{'x' * 200}{number}" for number in range(5_000)]
    world.stable({"t": [0]}, protocols=(("range", subscription("t", *names)),))
    read: list[bytes] = []
    monkeypatch.setattr("kbroker.coordinator.consumer_group.migration.subscription_of", read.append)
    assert "one batch" in (world.enter("c").message or "")
    assert read == []


@pytest.mark.parametrize("fails", ["once", "for ever"])
def test_an_upgrade_that_raises_leaves_no_dead_group(
    world: MigratingWorld, monkeypatch: pytest.MonkeyPatch, fails: str
) -> None:
    (a,) = world.stable({"t": [0, 1, 2, 3]})
    generation = world.classic.generation
    with monkeypatch.context() as patched:
        patched.setattr(world.consumers, "_new_in_its_place", None)
        if fails == "for ever":
            patched.setattr(world.coordinator, "make_classic", None)
        assert world.enter("c").code is REFUSED
    if fails == "once":
        assert world.classic_beat(a, generation) is NONE
        assert world.enter("c").code is NONE
    else:
        assert world.classic_beat(a, generation) is ErrorCode.UNKNOWN_MEMBER_ID
        assert world.join().code is ErrorCode.MEMBER_ID_REQUIRED


# --- back to the classic protocol ---


def test_offsets_stay_while_the_way_back_is_being_written(world: MigratingWorld) -> None:
    mixed(world)
    read: list[tuple[ErrorCode, frozenset[str] | None]] = []
    topics: list[frozenset[str] | None] = []

    def meanwhile(_: object) -> None:
        read.append(world.coordinator.readers(GROUP))
        age = world.coordinator.age_of(GROUP)
        assert age is not None
        topics.append(age.topics)

    world.log.on_append = meanwhile
    assert world.beat("c", -1).code is NONE
    assert read == [(REFUSED, None)]
    assert topics == [None]
    assert isinstance(world.group, Group)


def test_members_without_the_protocol_of_the_classic_group_join_again(
    world: MigratingWorld,
) -> None:
    data = subscription("t")
    first, other = ("range", data), ("roundrobin", data)
    (a,) = world.stable({"t": [0, 1, 2, 3]}, protocols=(first, other))
    epoch = world.enter("c", instance_id="i").epoch
    rejoined(world, a, protocols=(first, other))
    world.beat("c", epoch, instance_id="i")
    # A sync with "roundrobin" would not fit the group, and end its client.
    assert world.join(protocols=(other, first), instance_id="i").code is AGAIN
    assert world.classic.state is GroupState.PREPARING_REBALANCE
    assert world.classic_beat(a, epoch) is AGAIN
    joined = world.ask_to_join(protocols=(other, first), instance_id="i")
    assert world.join(a, (first, other)).generation == epoch + 1
    assert joined.got.protocol == "range"


def test_a_way_back_that_raises_leaves_no_lost_group(
    world: MigratingWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    a, _, epoch = mixed(world)
    with monkeypatch.context() as patched:
        patched.setattr(world.coordinator, "make_classic", None)
        assert world.beat("c", -1).code is NONE
    assert world.classic_beat(a, epoch) is ErrorCode.UNKNOWN_MEMBER_ID
    assert world.join().code is ErrorCode.MEMBER_ID_REQUIRED


def test_a_consumer_that_cannot_go_is_noted_once(world: MigratingWorld) -> None:
    a, b, epoch = mixed(world)
    world.log.refuses = REFUSED
    for _ in range(15):
        world.pass_ms(10_000)
        for each in (a, b):
            assert world.classic_beat(each, epoch) is NONE
    (one,) = world.coordinator.departures.of(GROUP)
    assert (one.member_id, one.why) == ("c", Why.SESSION_OVER)
