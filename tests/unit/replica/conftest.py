"""The rig of the network tests: sessions and snapshots are used through the hot path. And stories
about brokers that follow each other, on virtual time."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from kbroker.replica.fetcher import ReplicaFetcher
from tests.support.fetched_cluster import Cluster
from tests.support.virtual_loop import HastyLoop, VirtualLoop
from tests.unit.log.conftest import open_log
from tests.unit.net.conftest import make_rig, rig

__all__ = ["make_rig", "open_log", "rig"]

Story = Callable[[Cluster], Coroutine[Any, Any, None]]
Tell = Callable[..., None]


@pytest.fixture
def one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every part of an answer is taken in by Python's `FollowedPartition`."""
    monkeypatch.setattr(ReplicaFetcher, "_in_one_call", lambda _: False)


@pytest.fixture
def tell(tmp_path: Path) -> Tell:
    """Runs a story about a cluster on a loop of its own."""

    def run(
        story: Story, *, seed: int = 1, failures: int = 0, hasty: bool = False, **how: Any
    ) -> None:
        loop = HastyLoop(random.Random(seed)) if hasty else VirtualLoop()

        async def whole() -> None:
            cluster = Cluster(tmp_path, loop, random.Random(seed), **how)
            try:
                await story(cluster)
            finally:
                cluster.close()
                await asyncio.sleep(0.01)
            assert cluster.links == 0
            assert sum(node.failures.count for node in cluster.nodes.values()) == failures

        loop.run(whole())

    return run
