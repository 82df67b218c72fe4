"""A follower and its leader: what is asked, what comes of it, and what may go wrong on the way.

The leader's answers are `tests/support/fetched_cluster.py`'s; logs, replicas and fetchers are the
real ones, on virtual time.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from tests.support.fetched_cluster import Cluster, records_of
from tests.support.virtual_loop import VirtualLoop

Story = Callable[[Cluster], Coroutine[Any, Any, None]]
Tell = Callable[..., None]


@pytest.fixture
def tell(tmp_path: Path) -> Tell:
    """Runs a story about a cluster on a loop of its own."""

    def run(story: Story, *, seed: int = 1, **how: Any) -> None:
        loop = VirtualLoop()

        async def whole() -> None:
            cluster = Cluster(tmp_path, loop, random.Random(seed), **how)
            try:
                await story(cluster)
            finally:
                cluster.close()
                await asyncio.sleep(0.001)
            assert cluster.links == 0
            assert sum(node.failures.count for node in cluster.nodes.values()) == 0

        loop.run(whole())

    return run


def values(cluster: Cluster, node_id: int, name: Any) -> list[bytes | None]:
    return [record.value for record in records_of(cluster.replica(node_id, name))]


def test_a_follower_has_what_its_leader_has(tell: Tell) -> None:
    async def story(cluster: Cluster) -> None:
        words = cluster.create("words")
        cluster.elect(words, 1)
        for number in range(100):
            cluster.append(words, b"%d" % number)
        await cluster.until(lambda: cluster.caught_up(words), 100)
        assert values(cluster, 2, words) == [b"%d" % number for number in range(100)]
        assert cluster.replica(2, words).high_watermark == 100

    tell(story)
