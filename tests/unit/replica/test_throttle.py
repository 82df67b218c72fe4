"""Replicas that are out of sync come no faster than they may; those in sync are never held back."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest

from kbroker.clock import ManualClock
from kbroker.metadata.image import PartitionImage, TopicImage
from kbroker.replica.throttle import PAUSE_MS_MAX, UNLIMITED, FollowerThrottle
from kbroker.replica.throttled_replicas import REPLICAS, is_throttled
from kbroker.types import TopicPartition
from tests.support.fetched_cluster import LIMITS, SETTINGS, Cluster
from tests.unit.replica.conftest import Tell

NAME = TopicPartition("words", 0)
HERE = 2


def throttle(bytes_per_s: int, **more: Any) -> tuple[FollowerThrottle, ManualClock]:
    clock = ManualClock()
    clock.advance(10_000)
    return FollowerThrottle(clock, lambda name: name == NAME, bytes_per_s), clock


def test_bytes_are_paid_for_after_they_came() -> None:
    held, clock = throttle(1_000)
    assert held.pause_ms(NAME) == 0
    held.note_copied(NAME, 1_500)  # of which a second's worth was saved up
    assert held.pause_ms(NAME) == 500
    clock.advance(499)
    assert held.pause_ms(NAME) == 1
    clock.advance(1)
    assert held.pause_ms(NAME) == 0
    held.note_copied(NAME, 250)
    assert held.pause_ms(NAME) == 250


def test_others_are_not_held_back_and_cost_nothing() -> None:
    held, _ = throttle(1_000)
    held.note_copied(TopicPartition("words", 1), 10**9)
    assert held.pause_ms(NAME) == 0
    held.note_copied(NAME, 10**6)
    assert held.pause_ms(TopicPartition("words", 1)) == 0


def test_a_pause_ends_with_its_rate() -> None:
    held, clock = throttle(10)
    held.note_copied(NAME, 10**6)
    assert held.pause_ms(NAME) == PAUSE_MS_MAX
    held.bytes_per_s = UNLIMITED
    assert held.pause_ms(NAME) == 0
    held.bytes_per_s = 0
    clock.advance(10**9)
    assert held.pause_ms(NAME) == PAUSE_MS_MAX


@pytest.mark.parametrize("between", [(), (UNLIMITED,), (0,), (UNLIMITED, 0)])
def test_owed_bytes_are_paid_at_the_rate_that_holds_now(between: tuple[int, ...]) -> None:
    """Else a rate that was one by mistake would hold copies up for days after it was mended."""
    held, clock = throttle(1)
    held.note_copied(NAME, 1_000_001)
    for rate in between:
        held.bytes_per_s = rate
        held.pause_ms(NAME)
    held.bytes_per_s = 4_000_000
    assert held.pause_ms(NAME) == 250
    clock.advance(125)
    held.bytes_per_s = 1_000_000
    held.note_copied(NAME, 250_000)
    assert held.pause_ms(NAME) == 750
    clock.advance(750)
    assert held.pause_ms(NAME) == 0


@pytest.mark.parametrize(
    ("replicas", "held_back"),
    [
        ("", False),
        ("*", True),
        ("1:2", True),
        ("0:1, 1:2", True),
        ("1:3", False),
        ("11:2", False),
    ],
)
def test_replicas_that_the_topic_names(replicas: str, held_back: bool) -> None:
    partition = PartitionImage("words", 0, (1, 2), (1, 2), 1, 0, 0)
    lagging = replace(partition, index=1, isr=(1,))
    topic = TopicImage("words", UUID(int=1), (partition, lagging), {REPLICAS: replicas}, False)
    assert is_throttled(topic, 1, HERE) is held_back
    assert not is_throttled(topic, 0, HERE)  # it is in sync
    assert not is_throttled(topic, 2, HERE)
    assert not is_throttled(None, 0, HERE)


def test_a_replica_comes_as_fast_as_it_may_and_its_neighbour_at_once(tell: Tell) -> None:
    async def story(cluster: Cluster) -> None:
        words, others = cluster.create("words"), cluster.create("others")
        held = cluster.nodes[HERE].manager.throttle
        cluster.throttled = {words}
        held.bytes_per_s = 10_000
        for name in (words, others):
            cluster.elect(name, 1)
        cluster.nodes[HERE].up = False
        for name in (words, others):
            for number in range(400):
                cluster.append(name, b"%0100d" % number)
        lagging = cluster.replica(1, words).size_bytes
        cluster.nodes[HERE].up = True
        await cluster.until(lambda: cluster.caught_up(others), 5_000)
        took_ms = await cluster.until(lambda: cluster.caught_up(words), 60_000)
        # A second's worth is there from the start, and what is asked for comes whole.
        least_ms = (lagging - 10_000 - cluster.settings.limits.partition_max_bytes) / 10
        assert least_ms - 1_000 <= took_ms <= lagging / 10 + 2_000
        # In sync it is not held back, nor without a rate.
        cluster.throttled = set()
        for number in range(400):
            cluster.append(words, b"%0100d" % number)
        await cluster.until(lambda: cluster.caught_up(words), 5_000)
        cluster.throttled = {words}
        held.bytes_per_s = 1  # so the first of them takes it for half an hour
        cluster.append(words, b"x" * 1_500)
        cluster.append(words, b"y" * 1_500)
        await asyncio.sleep(20)
        assert not cluster.caught_up(words)
        held.bytes_per_s = UNLIMITED
        await cluster.until(lambda: cluster.caught_up(words), 2 * PAUSE_MS_MAX)

    tell(story, settings=SETTINGS._replace(limits=LIMITS._replace(partition_max_bytes=4_000)))


def test_a_throttled_copy_does_not_wait_for_a_fetch_that_does(tell: Tell) -> None:
    async def story(cluster: Cluster) -> None:
        idle, words = cluster.create("idle"), cluster.create("words")
        for name in (idle, words):
            cluster.elect(name, 1)
        await asyncio.sleep(5)
        cluster.throttled = {words}
        held = cluster.nodes[HERE].manager.throttle
        held.bytes_per_s = 1_000
        cluster.append(words, b"x" * 1_000)  # a second is there: what a batch has besides is owed
        await cluster.until(lambda: cluster.replica(HERE, words).log_end_offset == 1)
        cluster.append(words, b"y")
        took_ms = await cluster.until(lambda: cluster.replica(HERE, words).log_end_offset == 2)
        assert took_ms <= 150  # the fetch of `idle` waits for 500

    tell(story)
