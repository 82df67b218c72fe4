"""A partition on its way to other replicas: what each step leaves, by hand and by the dice."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from kbroker.errors import ErrorCode, KafkaError
from kbroker.metadata.controller.partition_states import ElectionRules
from kbroker.metadata.controller.reassignment import (
    cancelled,
    check_target,
    finished,
    reassigned,
)
from kbroker.metadata.image import NO_LEADER, BrokerImage, ClusterImage, PartitionImage

ALIVE = (1, 2, 3, 4, 5)
ONE = ElectionRules()
TWO = ElectionRules(min_in_sync=2)
HELD = PartitionImage("t", 0, (1, 2, 3), (1, 2, 3), 1, 7, 9)


def refused(code: ErrorCode, call: object, *how: object) -> None:
    with pytest.raises(KafkaError) as found:
        call(*how)  # type: ignore[operator]
    assert found.value.code is code


def test_those_to_come_and_those_to_go_are_both_there_until_the_end() -> None:
    moving = reassigned(HELD, [4, 2, 5], ALIVE, TWO)
    assert moving == replace(HELD, replicas=(4, 2, 5, 1, 3), adding=(4, 5), removing=(1, 3))
    assert moving.replication_factor == 3
    half = replace(moving, isr=(4, 2, 1, 3))
    assert finished(half, ALIVE, TWO) is half
    there = finished(replace(half, isr=(4, 2, 5, 1, 3)), ALIVE, TWO)
    assert there == PartitionImage("t", 0, (4, 2, 5), (4, 2, 5), 4, 8, 9)


def test_a_leader_that_stays_leads_on_in_another_epoch() -> None:
    moving = reassigned(HELD, [4, 1], ALIVE, TWO)
    there = finished(replace(moving, isr=(4, 1, 2, 3)), ALIVE, TWO)
    assert (there.leader, there.leader_epoch) == (1, 8)


def test_nothing_to_copy_is_there_at_once() -> None:
    assert reassigned(HELD, HELD.replicas, ALIVE, TWO) == HELD
    assert reassigned(HELD, (3, 2, 1), ALIVE, TWO) == replace(HELD, replicas=(3, 2, 1))
    fewer = reassigned(HELD, (3,), ALIVE, TWO)  # more in sync than there are cannot be asked for
    assert fewer == PartitionImage("t", 0, (3,), (3,), 3, 8, 9)


def test_an_addition_alone_makes_no_epoch() -> None:
    moving = reassigned(HELD, (1, 2, 3, 4), ALIVE, TWO)
    assert finished(replace(moving, isr=(1, 2, 3, 4)), ALIVE, TWO) == replace(
        HELD, replicas=(1, 2, 3, 4), isr=(1, 2, 3, 4)
    )


def test_the_end_waits_for_as_many_as_must_be_in_sync() -> None:
    moving = reassigned(replace(HELD, isr=(3,), leader=3), (1, 4), ALIVE, ONE)
    assert (moving.adding, moving.removing) == ((4,), (2, 3))
    for isr, rules, ends in (
        ((1, 3), ONE, False),
        ((4, 3), ONE, False),  # more go than come: those that stay are awaited as well
        ((1, 4, 3), TWO, True),
    ):
        assert finished(replace(moving, isr=isr), ALIVE, rules).is_reassigned is not ends
    moving = reassigned(replace(HELD, isr=(3,), leader=3), (1, 4, 5), ALIVE, ONE)
    one_for_one = replace(moving, adding=(4,), removing=(3,), replicas=(1, 4, 3), isr=(4, 3))
    assert not finished(one_for_one, ALIVE, ONE).is_reassigned
    assert finished(one_for_one, ALIVE, TWO).is_reassigned


def test_no_dead_broker_is_elected_by_the_end() -> None:
    moving = reassigned(HELD, (4,), ALIVE, ONE)
    there = replace(moving, isr=(1, 4))
    assert finished(there, (1, 2, 3), ONE) is there
    leaderless = replace(there, leader=NO_LEADER)
    assert finished(leaderless, ALIVE, ONE) is leaderless


def test_a_cancellation_leaves_the_former_replicas() -> None:
    moving = reassigned(HELD, (4, 5), ALIVE, TWO)
    back = cancelled(moving, ALIVE, TWO)
    assert {*back.replicas} == {1, 2, 3} and not back.is_reassigned
    assert (back.isr, back.leader, back.leader_epoch) == ((1, 2, 3), 1, 8)
    led_by_the_new = replace(moving, isr=(4, 1, 2), leader=4)
    back = cancelled(led_by_the_new, ALIVE, TWO)
    assert (back.isr, back.leader, back.leader_epoch) == ((1, 2), 1, 8)
    refused(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, cancelled, HELD, ALIVE, TWO)


def test_no_cancellation_leaves_too_few_in_sync() -> None:
    moving = reassigned(HELD, (4, 5), ALIVE, TWO)
    for isr in ((4,), (4, 1)):
        state = replace(moving, isr=isr, leader=4)
        refused(ErrorCode.INVALID_REPLICA_ASSIGNMENT, cancelled, state, ALIVE, TWO)
    few = replace(moving, isr=(1,))  # as few as there were: it takes none away
    assert cancelled(few, ALIVE, TWO).isr == (1,)


def test_another_target_is_of_the_former_replicas() -> None:
    moving = replace(reassigned(HELD, (4, 5), ALIVE, TWO), isr=(4, 1, 2, 3))
    other = reassigned(moving, (5, 2), ALIVE, TWO)
    assert (other.replicas, other.adding, other.removing) == ((5, 2, 1, 3), (5,), (1, 3))
    assert 4 not in other.isr and other.leader_epoch == moving.leader_epoch + 1
    assert reassigned(moving, (4, 5), ALIVE, TWO) == moving  # it goes on as it was
    back = reassigned(moving, (1, 2, 3), ALIVE, TWO)
    assert not back.is_reassigned and back.leader_epoch == moving.leader_epoch + 1


def test_a_replica_that_was_added_and_is_needed_goes_when_others_have_come() -> None:
    """The replicas that there were are dead: what is left can be moved all the same."""
    moving = replace(reassigned(HELD, (4, 5), ALIVE, TWO), isr=(4,), leader=4)
    other = reassigned(moving, (5, 2), ALIVE, TWO)
    assert other.isr == (4,) and (other.adding, other.removing) == ((5,), (1, 3, 4))
    assert other.leader_epoch == moving.leader_epoch
    lone = replace(PartitionImage("t", 0, (4, 5, 1), (4,), 4, 7, 9), adding=(4, 5), removing=(1,))
    assert not reassigned(lone, (4,), ALIVE, ONE).is_reassigned


def test_the_dice() -> None:
    """Whatever comes and goes: sets are sets of replicas, and what is in sync is not given away."""
    for seed in range(2_000):
        dice = random.Random(seed)
        rules = ElectionRules(dice.randint(1, 3))
        state = HELD
        for _ in range(12):
            before = state
            state = _step(state, dice, rules)
            assert len({*state.replicas}) == len(state.replicas)
            members = {*state.isr, *state.eligible, *state.adding, *state.removing}
            assert members <= {*state.replicas} and state.leader in state.isr, seed
            assert not {*state.adding} & {*state.removing}
            assert state.leader == before.leader or state.leader_epoch > before.leader_epoch
            left = {*before.isr} - {*state.isr}
            assert not left or rules.enough(state, len(state.isr)) or len(left) == 1, seed


def _step(state: PartitionImage, dice: random.Random, rules: ElectionRules) -> PartitionImage:
    try:
        match dice.randrange(4):
            case 0:
                return reassigned(state, dice.sample(ALIVE, dice.randint(1, 4)), ALIVE, rules)
            case 1:
                return cancelled(state, ALIVE, rules)
    except KafkaError:
        return state
    joins = {dice.choice(state.replicas)}
    leaves = {dice.choice(state.replicas)} - {state.leader} if dice.random() < 0.3 else set()
    isr = ({*state.isr} | joins) - leaves
    state = replace(state, isr=tuple(each for each in state.replicas if each in isr))
    return finished(state, ALIVE, rules)


def test_targets_that_none_can_have() -> None:
    image = ClusterImage().with_brokers(BrokerImage(each) for each in ALIVE)
    wrong = ErrorCode.INVALID_REPLICA_ASSIGNMENT
    for target in ((), (1, 1), (1, 9), (-1,)):
        refused(wrong, check_target, image, HELD, target, True)
    refused(ErrorCode.INVALID_REPLICATION_FACTOR, check_target, image, HELD, (1, 2), False)
    check_target(image, HELD, (1, 2), True)
    check_target(image, reassigned(HELD, (4, 5, 1), ALIVE, TWO), (3, 2, 1), False)
    fewer = reassigned(HELD, (4, 5), ALIVE, TWO)  # where it goes counts
    check_target(image, fewer, (4, 1), False)
    refused(ErrorCode.INVALID_REPLICATION_FACTOR, check_target, image, fewer, (4, 5, 1), False)
    without_three = image.with_brokers(BrokerImage(each) for each in (1, 2, 4))
    check_target(without_three, HELD, (3, 4), True)  # one that has a replica may be away
    refused(wrong, check_target, without_three, HELD, (5, 4), True)
