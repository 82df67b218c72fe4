"""A group after the last epoch that a message can say: epochs begin again."""

from __future__ import annotations

import pytest

from kbroker.coordinator.consumer_group.decisions import EPOCH_MAX
from kbroker.coordinator.consumer_group.images import Change, Kind
from kbroker.coordinator.consumer_group.records import records_of
from kbroker.coordinator.consumer_group.states import ConsumerGroupState
from kbroker.coordinator.group.group_records import encode_group, group_key
from kbroker.errors import ErrorCode
from tests.unit.coordinator.consumer_group.migrating import (
    GROUP,
    MigratingWorld,
    made,
    owned,
    rejoined,
)
from tests.unit.coordinator.consumer_group.world import topic_of

NONE = ErrorCode.NONE
T = topic_of("t", 4).topic_id


@pytest.fixture
def world() -> MigratingWorld:
    return made()


def at_epoch(world: MigratingWorld, epoch: int) -> None:
    """The group has had so many epochs."""
    state = world.consumer._state
    shift = epoch - state.epoch
    assert state.group is not None
    assert state.target_epoch is not None
    records = [
        Change(Kind.GROUP, "", state.group._replace(epoch=epoch)),
        Change(Kind.TARGET_EPOCH, "", state.target_epoch._replace(epoch=epoch)),
        *(
            Change(Kind.CURRENT, member_id, current._replace(epoch=current.epoch + shift))
            for member_id, current in state.current.items()
        ),
    ]
    world.log.batches.append(records_of(GROUP, records))
    world.fail_over()


def test_epochs_begin_again_after_the_last_one(world: MigratingWorld) -> None:
    world.enter("c")
    epoch = world.enter("d").epoch
    world.beat("c", 2, owned={T: frozenset(range(4))})
    mine = frozenset(owned(world.consumer._state, "c")[T])
    world.beat("c", 2, owned={T: mine})
    world.beat("d", epoch)
    at_epoch(world, EPOCH_MAX)
    had = owned(world.consumer._state, "d")
    assert world.beat("c", EPOCH_MAX, topics=("t", "u")).epoch == 2
    state = world.consumer._state
    assert (state.epoch, state.assignment_epoch) == (2, 2)
    assert world.is_as_logged
    # The other one has what it had until it says that it owns nothing.
    assert owned(state, "d") == had
    assert world.beat("d", EPOCH_MAX, owned={}).code is ErrorCode.FENCED_MEMBER_EPOCH
    answer = world.enter("d")
    assert (answer.code, answer.epoch) == (NONE, 2)
    assert world.consumer.state is ConsumerGroupState.STABLE
    assert world.beat("d", -1).code is NONE
    assert world.consumer._state.epoch == 3


def test_an_assignment_of_before_is_none_of_the_epochs_that_began_again(
    world: MigratingWorld,
) -> None:
    world.enter("c")
    at_epoch(world, EPOCH_MAX - 1)
    world.create(topic_of("t", 4_000))
    assert world.beat("c", EPOCH_MAX - 1).epoch == EPOCH_MAX - 1
    assert world.jobs
    world.beat("c", EPOCH_MAX - 1, topics=("t", "u"))
    assert world.consumer._state.epoch == 2
    world.work_beside()
    state = world.consumer._state
    assert state.assignment_epoch <= state.epoch
    world.beat("c", state.current_of("c").epoch, topics=("t",))
    world.work_beside()
    state = world.consumer._state
    assert state.assignment_epoch <= state.epoch
    assert world.is_as_logged


def test_a_classic_group_in_its_last_generation(world: MigratingWorld) -> None:
    (a,) = world.stable({"t": [0, 1, 2, 3]})
    image = world.loaded().image
    assert image is not None
    record = (group_key(GROUP), encode_group(image._replace(generation=EPOCH_MAX)))
    world.log.batches.append([record])
    world.fail_over()
    assert world.enter("c").epoch == 2
    assert owned(world.consumer._state, a) == {T: [0, 1, 2, 3]}
    assert world.classic_beat(a, EPOCH_MAX) is ErrorCode.ILLEGAL_GENERATION
    assert rejoined(world, a)[0] == 2


@pytest.mark.parametrize("generation", [-5, 0])
def test_a_generation_that_is_no_epoch(world: MigratingWorld, generation: int) -> None:
    (a,) = world.stable({"t": [0]})
    image = world.loaded().image
    assert image is not None
    record = (group_key(GROUP), encode_group(image._replace(generation=generation)))
    world.log.batches.append([record])
    world.fail_over()
    assert world.enter("c").epoch == 2
    assert world.classic_beat(a, generation) is ErrorCode.ILLEGAL_GENERATION
