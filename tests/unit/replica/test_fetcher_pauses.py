"""What does not succeed is asked again after a pause that gets longer: partitions, and sources."""

from __future__ import annotations

import asyncio

import pytest

from kbroker.replica.fetcher import BACKOFF_MS_MIN
from kbroker.types import ApiKey
from tests.support.fetched_cluster import Cluster
from tests.unit.replica.conftest import Tell
from tests.unit.replica.test_fetcher import fill


def test_a_leader_that_does_not_know_yet_is_asked_soon_again(tell: Tell) -> None:
    async def story(cluster: Cluster) -> None:
        words = cluster.create("words")
        cluster.elect(words, 1)
        fill(cluster, words, 1)
        await cluster.until(lambda: cluster.caught_up(words))
        cluster.elect(words, 1, unaware=True)
        await asyncio.sleep(0.03)
        cluster.tell(cluster.nodes[1], words)
        cluster.append(words, b"w")
        assert await cluster.until(lambda: cluster.caught_up(words)) <= 60

    tell(story)


def test_pauses_get_longer_while_it_does_not_answer(tell: Tell) -> None:
    async def story(cluster: Cluster) -> None:
        words = cluster.create("words")
        cluster.elect(words, 1, unaware=True)
        await asyncio.sleep(20)
        assert 15 <= len(cluster.fetches) <= 35
        assert cluster.nodes[2].manager.statistics().failed == [words]
        cluster.tell(cluster.nodes[1], words)
        cluster.append(words, b"v")
        await cluster.until(lambda: cluster.caught_up(words), 1_500)
        assert cluster.nodes[2].manager.statistics().failed == []

    tell(story)


def test_a_pause_that_ends_between_two_looks_at_the_clock_ends(tell: Tell) -> None:
    """No other partition is followed there, so nothing but the pause's end asks again."""

    async def story(cluster: Cluster) -> None:
        words = cluster.create("words")
        cluster.elect(words, 1, unaware=True)
        for _ in range(100):
            asked = len(cluster.fetches)
            await cluster.until(lambda asked=asked: len(cluster.fetches) > asked, 2_000)

    tell(story, hasty=True)


def test_a_pause_that_ends_does_not_wait_for_a_fetch_that_does(tell: Tell) -> None:
    async def story(cluster: Cluster) -> None:
        idle, words = cluster.create("idle"), cluster.create("words")
        cluster.elect(idle, 1)
        cluster.elect(words, 1, unaware=True)
        await cluster.until(lambda: cluster.caught_up(idle))
        await asyncio.sleep(0.01)  # `words` has been refused, and `idle` alone waits at the leader
        cluster.tell(cluster.nodes[1], words)
        cluster.append(words, b"v")
        assert await cluster.until(lambda: cluster.caught_up(words)) <= 100

    tell(story)


def test_a_source_that_is_away_is_asked_seldom_and_keeps_its_partitions(tell: Tell) -> None:
    async def story(cluster: Cluster) -> None:
        words = cluster.create("words")
        cluster.elect(words, 1)
        fill(cluster, words, 5)
        await cluster.until(lambda: cluster.caught_up(words))
        cluster.nodes[1].up = False
        await asyncio.sleep(20)
        before = cluster.nodes[2].manager.statistics().requests
        await asyncio.sleep(20)
        assert 15 <= cluster.nodes[2].manager.statistics().requests - before <= 30
        fill(cluster, words, 5)
        cluster.nodes[1].up = True
        await cluster.until(lambda: cluster.caught_up(words), 1_500)

    tell(story)


def test_a_partition_whose_offsets_cannot_be_read_is_asked_seldom_and_stops_no_other(
    tell: Tell, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its fetches succeed: each round would go on with the next one, and read the offsets again."""

    async def story(cluster: Cluster) -> None:
        words, others = cluster.create("words"), cluster.create("others")
        cluster.elect(others, 1)
        cluster.replica(2, words).begin_again(50)  # out of the leader's range
        answer = cluster.nodes[1].answer

        async def no_offsets(api_key: ApiKey, body: bytes) -> bytes:
            return b"" if api_key is ApiKey.LIST_OFFSETS else await answer(api_key, body)

        with monkeypatch.context() as patch:
            patch.setattr(cluster.nodes[1], "answer", no_offsets)
            cluster.elect(words, 1)
            await asyncio.sleep(2)
            assert len(cluster.fetches) <= 25
            for _ in range(20):
                cluster.append(others, b"v")
                await cluster.until(lambda: cluster.caught_up(others), 2 * BACKOFF_MS_MIN)
                await asyncio.sleep(0.1)
            assert cluster.nodes[2].manager.statistics().failed == [words]
        fill(cluster, words, 3)
        await cluster.until(lambda: cluster.caught_up(words), 2_000)

    tell(story)


def test_the_pause_of_a_source_does_not_wait_for_that_of_a_partition(
    tell: Tell, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of `words` the leader knows nothing for long; a fetch fails once, and `others` go on soon."""

    async def story(cluster: Cluster) -> None:
        words, others = cluster.create("words"), cluster.create("others")
        cluster.elect(others, 1)
        cluster.elect(words, 1, unaware=True)
        await asyncio.sleep(5)
        answer = cluster.nodes[1].answer
        failures = 0

        async def fails(api_key: ApiKey, body: bytes) -> bytes:
            nonlocal failures
            found = await answer(api_key, body)
            if failures == 0:
                return found
            failures -= 1
            return b""

        monkeypatch.setattr(cluster.nodes[1], "answer", fails)
        await asyncio.sleep(1)  # the fetch that waits is answered by this one
        for _ in range(10):
            failures = 1
            cluster.append(others, b"v")
            await cluster.until(lambda: cluster.caught_up(others), 2 * BACKOFF_MS_MIN)
            await asyncio.sleep(0.37)

    tell(story)
