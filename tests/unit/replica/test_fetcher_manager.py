"""The controller's decisions and the fetchers: which partitions they fetch, and from which
leader."""

from __future__ import annotations

import asyncio
import random
import threading
from typing import Any
from uuid import UUID

import pytest

from kbroker.errors import ErrorCode
from kbroker.log_lines import LogLines
from kbroker.peer.address import Address
from kbroker.peer.replica_fetch import Fetched
from kbroker.replica.fetcher_manager import Leader
from kbroker.replica.fetcher_partition import FollowedPartition, Outcome, logger
from kbroker.types import TopicPartition
from tests.support.fetched_cluster import SETTINGS, Cluster, records_of
from tests.unit.replica.conftest import Tell


def test_the_same_word_again_changes_nothing(tell: Tell) -> None:
    async def story(cluster: Cluster) -> None:
        words = cluster.create("words")
        cluster.elect(words, 1)
        await asyncio.sleep(0.1)
        links, fetches = cluster.links, len(cluster.fetches)
        for _ in range(10):
            cluster.tell(cluster.nodes[2], words)
        await asyncio.sleep(0.1)
        assert (cluster.links, len(cluster.fetches)) == (links, fetches)

    tell(story)


def test_a_removed_partition_is_fetched_no_more(tell: Tell) -> None:
    async def story(cluster: Cluster) -> None:
        words, others = cluster.create("words"), cluster.create("others")
        cluster.elect(words, 1)
        cluster.elect(others, 1)
        await cluster.until(lambda: cluster.nodes[2].manager.statistics().partitions == 2)
        cluster.nodes[2].manager.remove([words])
        cluster.append(words, b"v")
        cluster.append(others, b"v")
        await cluster.until(lambda: cluster.caught_up(others))
        assert records_of(cluster.replica(2, words)) == []
        cluster.nodes[2].manager.remove([others, TopicPartition("never", 0)])
        await asyncio.sleep(0.01)
        assert cluster.links == 0 and cluster.nodes[2].manager.statistics().fetchers == 0

    tell(story)


def test_a_leader_at_another_address_is_asked_there(tell: Tell) -> None:
    async def story(cluster: Cluster) -> None:
        words = cluster.create("words")
        cluster.elect(words, 1)
        cluster.nodes[1].address = Address("elsewhere", 1)
        cluster.tell(cluster.nodes[2], words)
        cluster.append(words, b"v")
        await cluster.until(lambda: cluster.caught_up(words), 100)
        assert cluster.nodes[2].manager.statistics().fetchers == 1

    tell(story)


def test_partitions_of_one_source_are_spread_and_stay_where_they_are(tell: Tell) -> None:
    settings = SETTINGS._replace(fetchers_per_source=3)

    async def story(cluster: Cluster) -> None:
        names = [cluster.create("words", index) for index in range(24)]
        for name in names:
            cluster.elect(name, 1)

        def groups() -> set[frozenset[int]]:
            recent = cluster.fetches[-40:]
            return {frozenset(at.partition for at in each[2]) for each in recent}

        await asyncio.sleep(20)
        before = groups()
        assert len(before) == 3 and sum(map(len, before)) == 24 and min(map(len, before)) == 8
        for name in names:
            cluster.elect(name, 1)
        await asyncio.sleep(20)
        assert groups() == before
        cluster.nodes[2].manager.resize(1)
        await asyncio.sleep(25)
        assert groups() == {frozenset(range(24))}
        assert cluster.nodes[2].manager.statistics().fetchers == 1
        for name in names:
            cluster.append(name, b"v")
        await cluster.until(lambda: all(cluster.caught_up(name) for name in names), 1_000)

    tell(story, settings=settings)


def test_each_leader_has_its_fetcher(tell: Tell) -> None:
    async def story(cluster: Cluster) -> None:
        names = [cluster.create("words", index) for index in range(3)]
        for name in names:
            cluster.elect(name, name.partition + 1)
            cluster.append(name, b"v")
        await cluster.until(lambda: all(cluster.caught_up(name) for name in names), 1_000)
        assert [each.manager.statistics().fetchers for each in cluster.nodes.values()] == [2] * 3

    tell(story, node_count=3)


def test_figures(tell: Tell) -> None:
    async def story(cluster: Cluster) -> None:
        words = cluster.create("words")
        cluster.elect(words, 1, in_sync=False)
        for _ in range(10):
            cluster.append(words, b"v")
        await cluster.until(lambda: cluster.replica(2, words).log_end_offset == 10)
        size = cluster.replica(2, words).path.joinpath(f"{0:020d}.log").stat().st_size
        figures = cluster.nodes[2].manager.statistics()
        assert (figures.fetchers, figures.partitions, figures.failed) == (1, 1, [])
        assert figures.lag == {words: 0} and figures.bytes_fetched == size
        (partition,) = cluster.nodes[2].manager.followed()
        assert partition.lag_bytes == 0
        partition.leader_high_watermark = 15  # five records more, of the size of these
        assert (partition.lag, partition.lag_bytes) == (5, size // 2)
        partition.replica.begin_again(10)
        assert (partition.lag, partition.lag_bytes) == (5, 5)
        cluster.nodes[2].manager.remove([words])
        await asyncio.sleep(0.1)
        assert cluster.nodes[2].manager.statistics().bytes_fetched == size

    tell(story)


def test_a_partition_without_a_log_here_is_not_followed(tell: Tell) -> None:
    async def story(cluster: Cluster) -> None:
        words = cluster.create("words", nodes=[1])
        cluster.elect(words, 1)
        leader = Leader(UUID(int=1), 1, cluster.nodes[1].address, 0)
        cluster.nodes[2].manager.follow({words: leader})
        await asyncio.sleep(1)
        assert cluster.fetches == []

    tell(story)


# --- between threads ---


class SlowReplica:
    """An append that waits until it may go on."""

    def __init__(self) -> None:
        self.leader_epoch, self.log_end_offset = 3, 10
        self.appending, self.go_on = threading.Event(), threading.Event()
        self.online = True
        self.log_start_offset = self.high_watermark = 0
        self.has_watchers = False

    def append_as_follower(self, *_: Any) -> int:
        self.appending.set()
        assert self.go_on.wait(10)
        self.log_end_offset = 11
        return 11

    flush_is_due = False

    def flush_if_due(self) -> None: ...
    def follow_bounds(self, *_: Any) -> None: ...


def test_an_end_waits_for_the_append_that_is_under_way_and_nothing_comes_after_it() -> None:
    replica: Any = SlowReplica()
    name = TopicPartition("words", 0)
    partition = FollowedPartition(name, UUID(int=1), 3, replica, LogLines(logger), lambda _: None)
    fetched = Fetched(1, 0, ErrorCode.NONE, 11, 0, None, memoryview(b"batch"))
    asked: Any = type("Position", (), {"fetch_offset": 10})
    outcomes: list[Outcome] = []
    loop = threading.Thread(target=lambda: outcomes.append(partition.apply(asked, fetched, 0)))
    loop.start()
    assert replica.appending.wait(10)
    controller = threading.Thread(target=partition.end)
    controller.start()
    controller.join(0.05)
    assert controller.is_alive()
    assert not partition.is_over() and not partition.end(wait_s=0)
    after = FollowedPartition(
        name, UUID(int=1), 4, replica, LogLines(logger), lambda _: None, partition
    )
    assert after.apply(asked, fetched, 0) is Outcome.NOT_YET
    replica.go_on.set()
    loop.join(10)
    controller.join(10)
    assert partition.ended and outcomes == [Outcome.APPENDED]
    asked.fetch_offset = 11
    assert partition.apply(asked, fetched, 0) is Outcome.DROPPED
    assert partition.enter_range(asked, 0, 5) is Outcome.DROPPED


# --- everything at once ---

CALM_MS = 60_000
NODES = (1, 2, 3)


class History:
    """The records of the leader of each epoch, and those that it answered as safe."""

    def __init__(self, cluster: Cluster, name: TopicPartition) -> None:
        self.cluster = cluster
        self.name = name
        self.by_epoch: dict[int, list[Any]] = {}
        self.safe: list[Any] = []
        self.marks: dict[tuple[int, int], int] = {}

    def look(self) -> None:
        leader = self.cluster.replica(self.cluster.leaders[self.name], self.name)
        mine = records_of(leader)
        self.by_epoch[self.cluster.epochs[self.name]] = mine
        if leader.high_watermark > len(self.safe):
            self.safe = mine[: leader.high_watermark]
        assert mine[: len(self.safe)] == self.safe, "a record below the high watermark is gone"
        for node_id in NODES:
            self._look_at(node_id)

    def _look_at(self, node_id: int) -> None:
        replica = self.cluster.replica(node_id, self.name)
        found = records_of(replica)
        assert [each.offset for each in found] == list(range(len(found))), "a gap"
        if found:
            of_leader = self.by_epoch[found[-1].epoch]
            assert found == of_leader[: len(found)], f"broker {node_id} has what no leader had"
        mark, where = replica.high_watermark, (node_id, replica.leader_epoch)
        assert mark <= replica.log_end_offset
        assert mark >= self.marks.get(where, 0), "a high watermark went back"
        self.marks[where] = mark


@pytest.mark.parametrize("seed", range(18))
def test_whatever_happens_followers_have_the_records_that_a_leader_had(
    tell: Tell, seed: int, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    if seed % 3:
        request.getfixturevalue("one_by_one")  # else few answers come twice
    dice = random.Random(seed)
    late: list[tuple[Any, ...]] = []
    apply = FollowedPartition.apply

    def applied(partition: FollowedPartition, *what: Any) -> Outcome:
        """Answers come twice, and long after."""
        late.append((partition, *what))
        if dice.randrange(10) == 0:
            old, *those = late.pop(dice.randrange(len(late)))
            apply(old, *those)
        return apply(partition, *what)

    monkeypatch.setattr(FollowedPartition, "apply", applied)

    async def story(cluster: Cluster) -> None:
        names = [cluster.create("words", index) for index in range(2)]
        histories = [History(cluster, name) for name in names]
        for name in names:
            cluster.elect(name, 1)
        cluster.faults.refused, cluster.faults.request_lost = 5, 3
        cluster.faults.answer_lost, cluster.faults.slow = 5, 20
        for step in range(150):
            name = dice.choice(names)
            match dice.randrange(10):
                case 0 | 1:
                    up = [each for each in NODES if cluster.nodes[each].up]
                    cluster.elect(name, dice.choice(up), unaware=dice.randrange(4) == 0)
                case 2:
                    node = cluster.nodes[dice.choice(NODES)]
                    node.up = not node.up or sum(it.up for it in cluster.nodes.values()) == 1
                case 3:
                    node = cluster.nodes[dice.choice(NODES)]
                    if node.up:
                        cluster.tell(node, name)
                case 4 | 5:
                    await asyncio.sleep(dice.choice((0.001, 0.01, 0.1, 1.0)))
                case _:
                    leader = cluster.nodes[cluster.leaders[name]]
                    if (
                        leader.leading.get(name)
                        and leader.replicas[name].leader_epoch == (cluster.epochs[name])
                    ):
                        for number in range(dice.randrange(1, 6)):
                            cluster.append(name, b"%d-%d" % (step, number))
            await asyncio.sleep(0.001)
            for history in histories:
                history.look()
        cluster.faults = type(cluster.faults)()
        for node in cluster.nodes.values():
            node.up = True
            for name in names:
                cluster.tell(node, name)
        took = await cluster.until(lambda: all(map(cluster.caught_up, names)), CALM_MS)
        assert took <= CALM_MS
        for name, history in zip(names, histories, strict=True):
            history.look()
            assert all(records_of(cluster.replica(each, name)) == history.safe for each in NODES)

    tell(story, seed=seed, node_count=3)
