"""Since when partitions have been without a leader or with replicas missing."""

from __future__ import annotations

from dataclasses import replace
from uuid import UUID

import pytest

from kbroker.clock import ManualClock
from kbroker.metadata.image import NO_CONFIGS, NO_LEADER, PartitionImage, TopicImage
from kbroker.observe.impaired import ImpairedPartitions
from kbroker.types import TopicPartition

NAME = TopicPartition("orders", 1)


def topic(leader: int = 1, isr: tuple[int, ...] = (1, 2)) -> TopicImage:
    """Its partition 0 is well."""
    partitions = (
        PartitionImage("orders", 0, (1, 2), (1, 2), 1, 0, 0),
        PartitionImage("orders", 1, (1, 2), isr, leader, 0, 0),
    )
    return TopicImage("orders", UUID(int=7), partitions, NO_CONFIGS, internal=False)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def impaired(clock: ManualClock) -> ImpairedPartitions:
    made = ImpairedPartitions(clock)
    made.follow([], [])
    clock.advance(1_000)
    return made


def test_a_state_counts_from_its_beginning(
    impaired: ImpairedPartitions, clock: ManualClock
) -> None:
    impaired.follow([topic()], [])
    assert impaired.since(NAME) is None
    clock.advance(1_000)
    impaired.follow([topic(isr=(1,))], [])
    shrank_ms = clock.wall_ms()
    clock.advance(1_000)
    impaired.follow([topic(isr=(1,))], [])
    assert impaired.since(NAME) == shrank_ms
    impaired.follow([topic(NO_LEADER, isr=(1,))], [])
    assert impaired.since(NAME) == clock.wall_ms()
    assert impaired.since(TopicPartition("orders", 0)) is None
    impaired.follow([topic()], [])
    assert impaired.since(NAME) is None


def test_a_topic_that_goes_is_forgotten(impaired: ImpairedPartitions, clock: ManualClock) -> None:
    impaired.follow([topic(NO_LEADER)], [])
    impaired.follow([], ["orders"])
    assert impaired.since(NAME) is None
    clock.advance(1_000)
    impaired.follow([topic(NO_LEADER)], [])  # another one of its name
    assert impaired.since(NAME) == clock.wall_ms()


def test_a_topic_that_comes_again_with_fewer_partitions(
    impaired: ImpairedPartitions,
) -> None:
    impaired.follow([topic(NO_LEADER)], [])
    (first, _) = (again := topic()).partitions
    impaired.follow([replace(again, partitions=(first,))], [])
    assert impaired.since(NAME) is None


class Counted(str):
    """A name that counts how often it is looked up."""

    __slots__ = ()
    looked_up = 0

    def __hash__(self) -> int:
        Counted.looked_up += 1
        return super().__hash__()


def test_a_topic_that_goes_costs_no_look_at_the_others(impaired: ImpairedPartitions) -> None:
    """Thousands go at once where many are impaired: on the controller's thread."""
    first, second = topic(NO_LEADER).partitions
    others = [
        TopicImage(Counted(f"t{at}"), UUID(int=at), (first, second), NO_CONFIGS, internal=False)
        for at in range(100)
    ]
    impaired.follow([topic(NO_LEADER), *others], [])
    Counted.looked_up = 0
    impaired.follow([], ["orders"])
    assert Counted.looked_up == 0


def test_the_age_of_a_state_that_was_there_first_is_not_known(clock: ManualClock) -> None:
    impaired = ImpairedPartitions(clock)
    impaired.follow([topic(NO_LEADER)], [])
    clock.advance(1_000)
    impaired.follow([topic(NO_LEADER)], [])
    assert impaired.since(NAME) is None
