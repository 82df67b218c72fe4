"""A member that takes its tasks is not given what it had before them.

Kafka Streams 4.3 says what it owns when that has changed since the last time. It may be done with
both before its next heartbeat, and would not confirm that it has given up what it had in between.
"""

from __future__ import annotations

import pytest

from kbroker.coordinator.streams_group.images import TaskSet
from tests.unit.coordinator.consumer_group.world import topic_of
from tests.unit.coordinator.streams_group.world import (
    EMPTY,
    REBALANCE_MS,
    Client,
    World,
    active,
)

FOUR = active(0, 1, 2, 3)
EIGHT = active(*range(8))


@pytest.fixture
def world() -> World:
    """Of a topic with 4 partitions, which has got 4 more."""
    world = World()
    world.create(topic_of("t", 4))
    return world


def settled(world: World) -> Client:
    client = world.client("a")
    client.join()
    assert client.settle() == FOUR
    return client


def sent_to(client: Client, owned: TaskSet | None = None) -> TaskSet | None:
    """The tasks in the answer to a heartbeat."""
    answer = client.take(client.world.ask(client.beats(owned)))
    assert answer.done is not None
    return answer.done.tasks


def test_tasks_are_taken_back_once_the_member_has_said_that_it_has_them(world: World) -> None:
    a, b = settled(world), world.client("b")
    world.create(topic_of("t", 8))
    assert sent_to(a) == EIGHT
    epoch = a.epoch
    b.join()
    assert [sent_to(a) for _ in range(3)] == [None] * 3  # it is busy
    assert a.epoch == epoch
    assert sent_to(a, EIGHT) == FOUR
    assert sent_to(a, FOUR) is None
    assert (a.epoch, b.settle()) == (epoch + 1, active(4, 5, 6, 7))


def test_a_member_that_names_its_tasks_of_before_gets_the_new_ones_again(world: World) -> None:
    a = settled(world)
    world.create(topic_of("t", 8))
    sent_to(a)
    world.client("b").join()
    assert sent_to(a, FOUR) == EIGHT  # the answer was lost, or it is busy
    assert sent_to(a, EIGHT) == FOUR


def test_a_new_member_is_left_its_tasks_until_it_has_them(world: World) -> None:
    """It says that it has none with its first heartbeat, which may be before it takes them."""
    a = world.client("a")
    a.join()
    assert sent_to(a, EMPTY) == FOUR
    world.image = world.image.without_topics(["t"]).at_version(world.image.version + 1)
    assert sent_to(a) is None
    assert sent_to(a, FOUR) == EMPTY


def test_a_member_that_joins_again_is_not_waited_for(world: World) -> None:
    a = world.client("a")
    a.join()
    world.image = world.image.without_topics(["t"]).at_version(world.image.version + 1)
    again = a.join()
    assert again.done is not None
    assert again.done.tasks == EMPTY


def test_a_silent_member_is_waited_for_as_long_as_a_rebalance_may_take(world: World) -> None:
    a, b = settled(world), world.client("b")
    world.create(topic_of("t", 8))
    sent_to(a)
    b.join()
    for _ in range(REBALANCE_MS // 20_000):
        assert sent_to(a) is None
        b.beat()
        world.elapse(20_000)
    assert sent_to(a) == FOUR


def test_a_member_that_gives_a_rebalance_no_time_is_not_waited_for(world: World) -> None:
    a, b = world.client("a"), world.client("b")
    a.rebalance_ms = 0
    a.join()
    assert a.settle() == FOUR
    world.create(topic_of("t", 8))
    sent_to(a)
    b.join()
    assert sent_to(a) == FOUR


def test_the_tasks_of_a_member_at_the_load_of_its_group_count(world: World) -> None:
    """A member that had no request under way does not say what it owns."""
    a, b = settled(world), world.client("b")
    world.fail_over()
    world.create(topic_of("t", 8))
    assert sent_to(a) == EIGHT
    b.join()
    assert sent_to(a) is None
    assert sent_to(a, EIGHT) == FOUR
