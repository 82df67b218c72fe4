"""A streams group after the last epoch that a message can say: epochs begin again."""

from __future__ import annotations

import pytest

from kbroker.coordinator.consumer_group.decisions import EPOCH_MAX
from kbroker.coordinator.consumer_group.drafts import AnyChange
from kbroker.coordinator.streams_group.images import Kind
from kbroker.coordinator.streams_group.records import records_of
from kbroker.coordinator.streams_group.state import StreamsGroupLabel
from kbroker.errors import ErrorCode
from tests.unit.coordinator.consumer_group.world import topic_of
from tests.unit.coordinator.streams_group.world import EMPTY, GROUP, NONE, Client, World, active


@pytest.fixture
def world() -> World:
    world = World()
    world.create(topic_of("t", 4))
    return world


def at_epoch(world: World, epoch: int) -> None:
    """The group has had so many epochs."""
    state = world.group._state
    shift = epoch - state.epoch
    assert state.group is not None
    assert state.target_epoch is not None
    changes = [
        AnyChange(Kind.GROUP, "", state.group._replace(epoch=epoch)),
        AnyChange(Kind.TARGET_EPOCH, "", state.target_epoch._replace(epoch=epoch)),
        *(
            AnyChange(Kind.CURRENT, member_id, current._replace(epoch=current.epoch + shift))
            for member_id, current in state.current.items()
        ),
    ]
    world.log.batches.append(records_of(GROUP, changes))
    world.fail_over()


def two_at(world: World, epoch: int) -> tuple[Client, Client]:
    a, b = world.client("a"), world.client("b")
    a.join()
    b.join()
    a.settle()
    b.settle()
    a.settle()
    at_epoch(world, epoch)
    a.epoch = b.epoch = epoch
    return a, b


def values(world: World) -> object:
    return world.group._state.values()


@pytest.mark.parametrize("same_process", [True, False])
def test_epochs_begin_again_after_the_last_one(world: World, same_process: bool) -> None:
    a, b = two_at(world, EPOCH_MAX)
    had, mine = b.owned, a.owned
    if not same_process:
        a.process_id = "another"
    joined = a.joins()._replace(client_host="/another")
    a.epoch, a.owned = 0, EMPTY
    assert a.take(world.ask(joined)).epoch == 2
    state = world.group._state
    assert (state.epoch, state.assignment_epoch) == (2, 2)
    assert a.owned == mine
    # The other one has what it had until it says that it owns nothing.
    assert state.current_of("b").assigned.plain() == had
    assert b.beat().code is ErrorCode.FENCED_MEMBER_EPOCH
    assert (b.join().epoch, b.owned) == (2, had)
    assert world.group.state is StreamsGroupLabel.STABLE
    before = values(world)
    world.fail_over()
    assert values(world) == before


def test_a_member_leaves_in_the_last_epoch(world: World) -> None:
    a, b = two_at(world, EPOCH_MAX)
    assert world.ask(b.beats()._replace(epoch=-1)).code is NONE
    assert world.group._state.epoch == 2
    assert a.beat().code is ErrorCode.FENCED_MEMBER_EPOCH
    assert (a.join().epoch, a.settle()) == (2, active(0, 1, 2, 3))
    assert not world.failures.count


def test_a_topic_grows_in_the_last_epoch(world: World) -> None:
    a, b = two_at(world, EPOCH_MAX)
    world.create(topic_of("t", 6))
    assert a.beat().code is NONE
    assert a.epoch == 2
    assert b.beat().code is ErrorCode.FENCED_MEMBER_EPOCH
    b.join()
    a.settle()
    b.settle()
    assert sorted(at for each in (a.settle(), b.settle()) for at in each.active["0"]) == [*range(6)]
    assert world.group._state.epoch == 2
