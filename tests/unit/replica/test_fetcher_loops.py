"""A fetchers' loop that does not take its work: it is given the work again until it does."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Coroutine
from typing import Any
from unittest.mock import Mock

import pytest

from kbroker.limits import TASK_RETRY_MS
from kbroker.replica.fetcher_manager import HANGS_MS, FetcherManager, _Crew
from tests.support.fetched_cluster import Cluster
from tests.unit.replica.conftest import Tell

NO_THREAD = RuntimeError("can't start new thread")
NO_FILES = OSError(errno.EMFILE, "Too many open files")


class Broken:
    """The way to a loop: it raises as long as there is an `error`."""

    def __init__(self, crew: _Crew, error: Exception | None) -> None:
        self.error = error
        self.calls = 0
        self._submit = crew.submit
        crew.submit = self.submit

    def submit(self, work: Coroutine[Any, Any, None]) -> Any:
        self.calls += 1
        if self.error is not None:
            raise self.error
        return self._submit(work)


async def looks(manager: FetcherManager, pause_ms: int = TASK_RETRY_MS) -> None:
    await asyncio.sleep(pause_ms / 1000)
    manager.look()


@pytest.mark.parametrize("error", [NO_THREAD, NO_FILES, MemoryError()])
def test_work_that_the_loop_did_not_take_is_given_to_it_again(tell: Tell, error: Exception) -> None:
    async def story(cluster: Cluster) -> None:
        words, node = cluster.create("words"), cluster.nodes[2]
        broken = Broken(node.manager._crew, error)
        cluster.elect(words, 1)
        cluster.append(words, b"v")
        await looks(node.manager, TASK_RETRY_MS - 1)
        assert (broken.calls, node.failures.count) == (1, 1)  # not with every look
        assert node.manager.failing == f"{type(error).__name__}: {error}"
        assert node.manager.statistics().failed == [words]
        await looks(node.manager, 1)
        assert broken.calls == 2 and not cluster.caught_up(words)
        broken.error = None
        await looks(node.manager)
        await cluster.until(lambda: cluster.caught_up(words), 1_000)
        assert node.manager.failing == "" and node.manager.statistics().failed == []
        await looks(node.manager)
        assert broken.calls == 3

    tell(story, failures=2)


def test_changes_in_between_are_taken_together(tell: Tell) -> None:
    """Of a partition only the last change counts; an end is not lost."""

    async def story(cluster: Cluster) -> None:
        names = [cluster.create("words", index) for index in range(3)]
        kept, gone, moved = names
        for name in (kept, gone):
            cluster.elect(name, 1)
        await asyncio.sleep(1)
        node = cluster.nodes[2]
        broken = Broken(node.manager._crew, NO_THREAD)
        node.manager.remove([gone])
        cluster.elect(moved, 1)
        cluster.elect(moved, 3)
        cluster.elect(kept, 3)
        cluster.elect(kept, 1)
        assert node.manager._to_end and len(node.manager._to_begin) == 2
        for _ in range(50):
            cluster.elect(moved, 3)
        assert len(node.manager._to_end) == 2 and len(node.manager._to_begin) == 2
        broken.error = None
        cluster.append(moved, b"v")
        cluster.append(kept, b"v")
        cluster.append(gone, b"v")
        await looks(node.manager)
        for name in (kept, moved):
            replica = cluster.replica(2, name)
            await cluster.until(lambda replica=replica: replica.log_end_offset == 1, 2_000)
        await asyncio.sleep(1)
        assert cluster.replica(2, gone).log_end_offset == 0
        assert node.manager.statistics().fetchers == 2
        assert (node.manager._to_end, node.manager._to_begin) == ([], [])

    tell(story, node_count=3, failures=55)


def test_a_partition_that_is_not_followed_any_more_is_no_trouble(tell: Tell) -> None:
    async def story(cluster: Cluster) -> None:
        words, node = cluster.create("words"), cluster.nodes[2]
        broken = Broken(node.manager._crew, NO_THREAD)
        cluster.elect(words, 1)
        node.manager.remove([words])
        assert node.manager.failing == "" and broken.calls == 1
        await looks(node.manager)
        assert broken.calls == 1

    tell(story, failures=1)


def test_a_loop_that_takes_the_place_of_one_that_hangs_is_given_all_again(tell: Tell) -> None:
    async def story(cluster: Cluster) -> None:
        names = [cluster.create("words", index) for index in range(2)]
        for name in names:
            cluster.elect(name, 1)
        await asyncio.sleep(1)
        manager = cluster.nodes[2].manager
        hangs = manager._crew
        next_loop = Broken(_Crew(hangs.submit, hangs.stop), NO_THREAD)
        left = Broken(hangs, None)
        loop: Any = Mock(submit=next_loop.submit)
        manager._loops = lambda: loop
        next(manager.followed()).changes = 1
        await looks(manager, 1)
        left.error = NO_THREAD
        await looks(manager, HANGS_MS)
        assert manager.statistics().failed == names and not hangs.leaves
        await looks(manager)
        assert (next_loop.calls, left.calls) == (2, 2)
        next_loop.error = None
        await looks(manager)
        assert manager.failing and not hangs.leaves  # its fetchers have not ended yet
        left.error = None
        await looks(manager)
        assert hangs.leaves and not manager.failing
        await looks(manager, 1)
        assert manager._left == []
        for name in names:
            cluster.append(name, b"v")
        await cluster.until(lambda: all(map(cluster.caught_up, names)), 2_000)

    tell(story, failures=5)
