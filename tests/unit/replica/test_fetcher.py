"""A follower and its leader: what is asked, what comes of it, and what may go wrong on the way.

The leader's answers are `tests/support/fetched_cluster.py`'s; logs, replicas and fetchers are the
real ones, on virtual time.
"""

from __future__ import annotations

import asyncio
import errno
import logging
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest

from kbroker.replica.fetcher_partition import FollowedPartition, Outcome
from kbroker.testing.file_faults import Fault, FileFaults
from kbroker.types import TopicPartition
from tests.support.fetched_cluster import (
    LIMITS,
    SETTINGS,
    SMALL_SEGMENTS,
    Cluster,
    records_of,
)
from tests.support.record_batches import build_batch
from tests.unit.replica.conftest import Tell


def values(cluster: Cluster, node_id: int, name: Any) -> list[bytes | None]:
    return [record.value for record in records_of(cluster.replica(node_id, name))]


def fill(cluster: Cluster, name: TopicPartition, count: int, first: int = 0) -> None:
    for number in range(first, first + count):
        cluster.append(name, b"%06d" % number)


def numbered(*numbers: int) -> list[bytes]:
    return [b"%06d" % number for number in numbers]


def test_a_follower_has_the_records_of_its_leader(tell: Tell) -> None:
    async def story(cluster: Cluster) -> None:
        words = cluster.create("words")
        cluster.elect(words, 1)
        fill(cluster, words, 100)
        await cluster.until(lambda: cluster.caught_up(words), 100)
        assert values(cluster, 2, words) == numbered(*range(100))
        assert records_of(cluster.replica(2, words)) == records_of(cluster.replica(1, words))
        assert cluster.replica(2, words).high_watermark == 100

    tell(story)


def test_later_records_are_there_soon_and_empty_fetches_cost_little(tell: Tell) -> None:
    async def story(cluster: Cluster) -> None:
        words = cluster.create("words")
        cluster.elect(words, 1)
        await asyncio.sleep(10)
        assert len(cluster.fetches) <= 23  # two a second, but for the first
        cluster.append(words, b"late")
        assert await cluster.until(lambda: cluster.caught_up(words)) <= 10

    tell(story)


def test_the_answer_after_the_records_has_the_high_watermark(tell: Tell) -> None:
    """Two fetches: the first brings the record, the second tells the leader, who tells all."""

    async def story(cluster: Cluster) -> None:
        words = cluster.create("words")
        cluster.elect(words, 1)
        cluster.append(words, b"v")
        await cluster.until(lambda: cluster.replica(2, words).log_end_offset == 1)
        assert cluster.replica(1, words).high_watermark == 0
        await cluster.until(lambda: cluster.replica(1, words).high_watermark == 1)
        assert cluster.replica(2, words).high_watermark == 0
        await cluster.until(lambda: cluster.replica(2, words).high_watermark == 1)

    tell(story)


def test_a_former_leader_loses_records_that_no_other_has(tell: Tell) -> None:
    async def story(cluster: Cluster) -> None:
        words = cluster.create("words")
        cluster.elect(words, 1)
        fill(cluster, words, 5)
        await cluster.until(lambda: cluster.caught_up(words))
        cluster.nodes[2].up = False
        fill(cluster, words, 20, first=100)
        cluster.nodes[2].up, cluster.nodes[1].up = True, False
        cluster.elect(words, 2)
        fill(cluster, words, 3, first=200)
        cluster.nodes[1].up = True
        cluster.tell(cluster.nodes[1], words)
        await cluster.until(lambda: cluster.caught_up(words), 3_000)
        assert values(cluster, 1, words) == numbered(*range(5), 200, 201, 202)
        assert cluster.replica(1, words).epochs.entries == [(0, 0), (1, 5)]

    tell(story)


def test_a_leader_that_wrote_nothing_in_its_epoch_follows_at_once(tell: Tell) -> None:
    async def story(cluster: Cluster) -> None:
        words = cluster.create("words")
        for leader in (1, 2, 1, 2):
            cluster.elect(words, leader)
        assert cluster.replica(1, words).epochs.latest == 2  # which no other replica knows
        fill(cluster, words, 1)
        await cluster.until(lambda: cluster.caught_up(words), 100)
        assert cluster.replica(1, words).epochs.entries == [(3, 0)]

    tell(story)


def test_histories_that_alternate_meet_at_the_largest_epoch_both_know(tell: Tell) -> None:
    """KIP-279: either wrote while the other was away, twice over, on a common beginning."""

    async def story(cluster: Cluster) -> None:
        words = cluster.create("words")
        cluster.elect(words, 1)
        fill(cluster, words, 4)
        await cluster.until(lambda: cluster.caught_up(words))
        for round_ in range(2):
            for leader, other in ((1, 2), (2, 1)):
                cluster.nodes[leader].up, cluster.nodes[other].up = True, False
                cluster.elect(words, leader)
                fill(cluster, words, 3, first=100 * (round_ * 2 + leader))
        cluster.nodes[1].up = True
        cluster.tell(cluster.nodes[1], words)
        await cluster.until(lambda: cluster.caught_up(words), 3_000)
        assert values(cluster, 1, words) == numbered(
            *range(4), 200, 201, 202, 400, 401, 402
        )  # fmt: skip

    tell(story)


def test_a_leader_that_lost_everything_is_followed(tell: Tell) -> None:
    """Unclean, and the controller's choice: the leader's log is what holds."""

    async def story(cluster: Cluster) -> None:
        words = cluster.create("words")
        cluster.elect(words, 1)
        fill(cluster, words, 30)
        await cluster.until(lambda: cluster.caught_up(words))
        cluster.replica(1, words).begin_again(0)
        cluster.elect(words, 1)
        fill(cluster, words, 2, first=500)
        await cluster.until(lambda: cluster.caught_up(words), 1_000)
        assert values(cluster, 2, words) == numbered(500, 501)

    tell(story)


# --- out of range ---


@pytest.mark.parametrize("away", [False, True])
def test_below_the_leader_s_start_it_empties_itself_and_begins_there(
    tell: Tell, away: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """A replica that is new, or was away while its leader deleted what it had: then records go here
    that an operator may look for."""

    async def story(cluster: Cluster) -> None:
        words = cluster.create("words")
        if away:
            cluster.elect(words, 1)
            fill(cluster, words, 20)
            await cluster.until(lambda: cluster.caught_up(words))
        cluster.nodes[2].up = False
        cluster.elect(words, 1, in_sync=False)
        fill(cluster, words, 80, first=100)
        leader = cluster.replica(1, words)
        start = leader.delete_records(leader.log_end_offset - 10)
        leader.trim()
        cluster.nodes[2].up = True
        cluster.tell(cluster.nodes[2], words)
        await cluster.until(lambda: cluster.caught_up(words), 1_000)
        follower = cluster.replica(2, words)
        assert follower.log_start_offset == start and follower.epochs.latest == (1 if away else 0)
        assert values(cluster, 2, words) == numbered(*range(170, 180))

    caplog.set_level(logging.INFO, "kbroker")
    tell(story)
    (line,) = (each for each in caplog.records if "lets go of its whole log" in each.getMessage())
    assert line.levelno == (logging.WARNING if away else logging.INFO)


@pytest.mark.parametrize("start", [20, 22, 24])
def test_a_log_that_begins_within_a_batch_has_the_batch(tell: Tell, start: int) -> None:
    """Records were deleted up to there; a follower that has none would never be in sync."""

    async def story(cluster: Cluster) -> None:
        words = cluster.create("words")
        cluster.nodes[2].up = False
        cluster.elect(words, 1, in_sync=False)
        leader = cluster.replica(1, words)
        for first in range(0, 30, 5):
            leader.append(build_batch(numbered(*range(first, first + 5))))
        assert leader.delete_records(start) == start
        cluster.nodes[2].up = True
        cluster.tell(cluster.nodes[2], words)
        await cluster.until(lambda: cluster.caught_up(words), 1_000)
        follower = cluster.replica(2, words)
        await cluster.until(lambda: follower.log_start_offset == start, 1_000)
        assert follower.log_end_offset == 30
        assert values(cluster, 2, words) == numbered(20, 25)  # the first of each batch

    tell(story)


def test_an_empty_log_beyond_the_leader_s_end_goes_back(tell: Tell) -> None:
    async def story(cluster: Cluster) -> None:
        words = cluster.create("words")
        cluster.replica(2, words).begin_again(50)
        cluster.elect(words, 1)
        fill(cluster, words, 3)
        await cluster.until(lambda: cluster.replica(2, words).log_end_offset == 3, 1_000)
        cluster.append(words, b"more")
        await cluster.until(lambda: cluster.replica(2, words).log_end_offset == 4, 1_000)
        assert cluster.replica(2, words).log_start_offset == 3

    tell(story)


def test_the_leader_s_start_is_followed(tell: Tell) -> None:
    async def story(cluster: Cluster) -> None:
        words = cluster.create("words")
        cluster.elect(words, 1)
        fill(cluster, words, 50)
        await cluster.until(lambda: cluster.caught_up(words))
        cluster.replica(1, words).delete_records(30)
        await cluster.until(lambda: cluster.replica(2, words).log_start_offset == 30, 1_000)

    tell(story)


def test_a_start_is_sent_when_it_is_on_file(tell: Tell) -> None:
    """Or a leader says that records are deleted of which a start of this broker knows nothing."""

    async def story(cluster: Cluster) -> None:
        words = cluster.create("words")
        cluster.elect(words, 1)
        fill(cluster, words, 50)
        await cluster.until(lambda: cluster.caught_up(words))
        cluster.nodes[2].keeps_starts = False
        cluster.replica(1, words).delete_records(30)
        await cluster.until(lambda: cluster.replica(2, words).log_start_offset == 30, 1_000)
        cluster.append(words, b"one")
        await cluster.until(lambda: cluster.caught_up(words))
        starts = [at.log_start for _, _, asked, _ in cluster.fetches for at in asked]
        assert {*starts} == {0}
        cluster.nodes[2].keeps_starts = True
        cluster.append(words, b"two")
        await cluster.until(lambda: cluster.fetches[-1][2][0].log_start == 30, 1_000)

    tell(story)


# --- what goes wrong on one partition ---


def test_a_topic_that_the_leader_does_not_know_stops_no_other(tell: Tell) -> None:
    async def story(cluster: Cluster) -> None:
        words, gone = cluster.create("words"), cluster.create("gone")
        cluster.elect(words, 1)
        cluster.elect(gone, 1)
        del cluster.topic_ids["gone"]
        fill(cluster, words, 10)
        await cluster.until(lambda: cluster.caught_up(words), 1_000)
        await asyncio.sleep(5)
        fill(cluster, words, 10)
        assert await cluster.until(lambda: cluster.caught_up(words)) <= 20
        assert cluster.nodes[2].manager.statistics().failed == [gone]

    tell(story)


def test_a_damaged_batch_stops_its_partition_until_it_is_mended(
    tell: Tell, caplog: pytest.LogCaptureFixture
) -> None:
    async def story(cluster: Cluster) -> None:
        words, others = cluster.create("words"), cluster.create("others")
        cluster.elect(words, 1)
        cluster.elect(others, 1)
        fill(cluster, words, 3)
        (path,) = cluster.replica(1, words).path.glob("*.log")
        sound = path.read_bytes()
        path.write_bytes(sound[:-1] + bytes([sound[-1] ^ 1]))
        cluster.nodes[1].wake()
        fill(cluster, others, 10)
        await cluster.until(lambda: cluster.caught_up(others), 1_000)
        await asyncio.sleep(10)
        assert len(values(cluster, 2, words)) < 3
        asked = [each for each in cluster.fetches if each[2][0].topic_id == UUID(int=1)]
        assert len(asked) <= 40
        path.write_bytes(sound)
        await cluster.until(lambda: cluster.caught_up(words), 2_000)

    tell(story)
    assert "words-0: what the leader sends is refused: a batch's CRC is wrong" in caplog.text


def test_a_failing_disk_stops_its_partition_alone(
    tell: Tell, caplog: pytest.LogCaptureFixture
) -> None:
    async def story(cluster: Cluster) -> None:
        words, others = cluster.create("words"), cluster.create("others")
        for name in (words, others):
            cluster.elect(name, 1)
            fill(cluster, name, 1)
        await cluster.until(lambda: cluster.caught_up(words))
        fault = Fault(("write", "truncate"), "/2/words-0/", times=100, error=errno.EIO)
        with FileFaults(fault):
            fill(cluster, words, 1)
            fill(cluster, others, 10)
            await cluster.until(lambda: cluster.caught_up(others), 1_000)
            await cluster.until(lambda: not cluster.replica(2, words).online, 1_000)
        count = len(cluster.fetches)
        await asyncio.sleep(10)
        assert all(len(each[2]) == 1 for each in cluster.fetches[count + 1 :])
        assert cluster.nodes[2].manager.statistics().failed == [words]

    tell(story, failures=1)
    assert "words-0: it is offline, and follows no more" in caplog.text


def test_a_full_disk_is_tried_again(tell: Tell) -> None:
    async def story(cluster: Cluster) -> None:
        words = cluster.create("words")
        cluster.elect(words, 1)
        fault = Fault(("write",), ".log", times=3, error=errno.ENOSPC)
        fill(cluster, words, 3)
        with FileFaults(fault) as faults:
            await cluster.until(lambda: cluster.caught_up(words), 6_000)
        assert sum(each.failed for each in faults.seen) == 3
        assert values(cluster, 2, words) == numbered(*range(3))
        assert len(cluster.fetches) <= 10

    tell(story)


def test_a_batch_above_every_bound_comes_whole(tell: Tell) -> None:
    settings = SETTINGS._replace(limits=LIMITS._replace(max_bytes=100, partition_max_bytes=100))

    async def story(cluster: Cluster) -> None:
        words = cluster.create("words")
        cluster.elect(words, 1)
        for number in range(5):
            cluster.append(words, b"%d" % number * 1_500)
        await cluster.until(lambda: cluster.caught_up(words), 1_000)
        assert values(cluster, 2, words) == [b"%d" % number * 1_500 for number in range(5)]

    tell(story, settings=settings)


def test_a_served_partition_goes_after_the_others(tell: Tell) -> None:
    """Thirty partitions of which one answer holds a few: none waits for the last byte of one."""
    settings = SETTINGS._replace(limits=LIMITS._replace(max_bytes=3_000, partition_max_bytes=1_000))

    async def story(cluster: Cluster) -> None:
        names = [cluster.create(f"t{index % 3}", index // 3) for index in range(30)]
        for name in names:
            cluster.elect(name, 1)
            fill(cluster, name, 40)
        await cluster.until(
            lambda: all(cluster.replica(2, name).log_end_offset > 0 for name in names), 100
        )
        least = min(cluster.replica(2, name).log_end_offset for name in names)
        most = max(cluster.replica(2, name).log_end_offset for name in names)
        assert most <= 4 * max(least, 10)
        await cluster.until(lambda: all(cluster.caught_up(name) for name in names), 2_000)

    tell(story, settings=settings)


# --- what goes wrong with the source ---


@pytest.mark.parametrize("answer", [b"", bytes(10), b"\0" * 4 + b"\0\x4d" + bytes(6)])
def test_an_answer_that_is_none_is_no_answer(
    tell: Tell, answer: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Empty, cut off, and one that refuses the request: 77, the broker epoch is stale."""

    async def story(cluster: Cluster) -> None:
        words = cluster.create("words")

        async def nonsense(*_: Any) -> bytes:
            return answer

        with monkeypatch.context() as patch:
            patch.setattr(cluster.nodes[1], "answer", nonsense)
            cluster.elect(words, 1)
            fill(cluster, words, 5)
            await asyncio.sleep(10)
            assert cluster.nodes[2].manager.statistics().requests <= 25
        await cluster.until(lambda: cluster.caught_up(words), 1_500)

    tell(story)


def test_partitions_that_were_not_requested_or_are_left_out_do_no_harm(
    tell: Tell, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story(cluster: Cluster) -> None:
        words, others = cluster.create("words"), cluster.create("others")
        cluster.elect(words, 1)
        cluster.elect(others, 1)
        real = cluster.nodes[1]._fetched

        def swapped(follower: int, session: Any, *rest: Any, **how: Any) -> Any:
            """A full answer, in which one partition comes twice and the other is missing."""
            kept = [it for it in session.positions.values() if it.topic_id == UUID(int=1)]
            twice = SimpleNamespace(
                session_id=0, positions=dict(enumerate([*kept, *kept])), remember=lambda *_, **__: 0
            )
            return real(follower, twice, *rest, **how)

        with monkeypatch.context() as patch:
            patch.setattr(cluster.nodes[1], "_fetched", swapped)
            fill(cluster, words, 5)
            fill(cluster, others, 5)
            await cluster.until(lambda: cluster.caught_up(words), 2_000)
            assert values(cluster, 2, others) == []
        await cluster.until(lambda: cluster.caught_up(others), 2_000)
        assert values(cluster, 2, words) == numbered(*range(5))

    tell(story)


# --- what cannot wait ---


@pytest.mark.usefixtures("one_by_one")
def test_a_large_answer_does_not_keep_the_loop(tell: Tell, monkeypatch: pytest.MonkeyPatch) -> None:
    applied: list[int] = []
    turns: list[int] = []
    apply = FollowedPartition.apply

    async def story(cluster: Cluster) -> None:
        def slow(partition: FollowedPartition, *what: Any) -> Outcome:
            cluster.clock.worked_ms += 2
            if not applied:
                cluster.loop.call_soon(lambda: turns.append(len(applied)))
            applied.append(partition.name.partition)
            return apply(partition, *what)

        names = [cluster.create("words", index) for index in range(30)]
        for name in names:
            cluster.elect(name, 1)
            fill(cluster, name, 1)
        with monkeypatch.context() as patch:
            patch.setattr(FollowedPartition, "apply", slow)
            await cluster.until(lambda: len(applied) >= 30)
        assert turns and turns[0] <= 4

    tell(story)


def test_a_partition_that_is_new_does_not_wait_for_a_fetch_that_does(tell: Tell) -> None:
    async def story(cluster: Cluster) -> None:
        idle, words = cluster.create("idle"), cluster.create("words")
        cluster.elect(idle, 1)
        cluster.elect(words, 2)
        await asyncio.sleep(5.1)  # a fetch of `idle` has just begun to wait
        cluster.elect(words, 1)
        cluster.append(words, b"v")
        assert await cluster.until(lambda: cluster.caught_up(words)) <= 50
        await asyncio.sleep(1)
        before = len(cluster.fetches)
        await asyncio.sleep(10)
        recent = cluster.fetches[before:]
        assert len(recent) <= 21  # and then they go together again, in one fetch
        assert all(len(each[2]) == 2 for each in recent[1:])

    tell(story)


def test_an_answer_under_way_is_dropped_when_another_leads(tell: Tell) -> None:
    async def story(cluster: Cluster) -> None:
        words = cluster.create("words")
        cluster.elect(words, 1)
        fill(cluster, words, 5)
        await cluster.until(lambda: cluster.caught_up(words))
        cluster.faults.slow = 100
        await asyncio.sleep(1)
        cluster.append(words, b"of the first")
        await asyncio.sleep(0.1)  # the answer is between the two
        cluster.faults.slow = 0
        cluster.elect(words, 2)
        await asyncio.sleep(1)
        assert values(cluster, 2, words) == numbered(*range(5))
        cluster.append(words, b"of the second")
        await cluster.until(lambda: cluster.caught_up(words), 1_000)
        assert values(cluster, 1, words) == [*numbered(*range(5)), b"of the second"]

    tell(story)


def test_flushed_records_are_on_the_disk_before_they_are_acknowledged(tell: Tell) -> None:
    async def story(cluster: Cluster) -> None:
        words = cluster.create("words")
        cluster.replica(2, words).configure(**SMALL_SEGMENTS, flush_messages=1)
        cluster.elect(words, 1)
        fill(cluster, words, 20)
        follower = cluster.replica(2, words)
        await cluster.until(lambda: cluster.replica(1, words).high_watermark == 20)
        assert follower.recovery_point == 20

    tell(story)
