"""A follower's fetch session: what its requests name, and when it begins again."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any
from uuid import UUID

import pytest

from kbroker.errors import ErrorCode, KafkaError
from kbroker.peer.replica_fetch import Asked, FetchMetadata
from kbroker.protocol.wire import ProtocolError
from kbroker.replica.fetcher_partition import FollowedPartition, Outcome
from kbroker.replica.fetcher_session import EPOCH_MAX, FetchSession, key_of
from kbroker.types import TopicPartition
from tests.support.fetched_cluster import SETTINGS, Cluster, FakeLink
from tests.unit.replica.conftest import Tell

TOPIC = UUID(int=1)


def asked(index: int, offset: int = 0, **how: int) -> Asked:
    return Asked(TOPIC, index, 0, offset, -1, 0)._replace(**how)


def begun(*positions: Asked) -> FetchSession:
    session = FetchSession()
    for position in positions:
        session.ask(position)
    assert session.next_request().metadata == (0, 0)
    session.answered(5)
    return session


def test_the_first_request_is_full_and_the_next_name_changed_partitions() -> None:
    session = FetchSession()
    session.ask(asked(0))
    session.ask(asked(1))
    first = session.next_request()
    assert first.is_full and first == (FetchMetadata(0, 0), [asked(0), asked(1)], [])
    session.answered(5)
    for change in (
        {"fetch_offset": 7}, {"log_start_offset": 3}, {"last_fetched_epoch": 2}, {"leader_epoch": 2}
    ):  # fmt: skip
        session.ask(asked(0, **change))
        request = session.next_request()
        assert request.asked == [asked(0, **change)] and not request.is_full
        session.answered(5)
        session.ask(asked(0, **change))  # the same again
    assert session.next_request() == (FetchMetadata(5, 5), [], [])


def test_partitions_join_and_leave() -> None:
    session = begun(asked(0), asked(1))
    session.forget(key_of(TOPIC, 0))
    session.ask(asked(2))
    assert session.may_answer(key_of(TOPIC, 0)), "the leader does not know it yet"
    assert session.next_request() == (FetchMetadata(5, 1), [asked(2)], [(TOPIC, 0)])
    session.answered(5)
    assert session.position(key_of(TOPIC, 0)) is None and not session.may_answer(key_of(TOPIC, 0))


def test_a_partition_that_joins_again_is_sent_whole() -> None:
    """One request cannot say both, and the leader would not repeat what was not taken in."""
    session = begun(asked(0), asked(1))
    session.forget(key_of(TOPIC, 0))
    session.ask(asked(0))
    assert session.next_request() == (FetchMetadata(5, 0), [asked(1), asked(0)], [])
    session.answered(6)
    session.forget(key_of(TOPIC, 0))
    session.next_request()
    session.answered(6)
    session.ask(asked(0))  # the leader knows
    assert session.next_request() == (FetchMetadata(6, 2), [asked(0)], [])


def test_epochs_go_round() -> None:
    session = begun(asked(0))
    session.epoch = EPOCH_MAX
    session.next_request()
    session.answered(5)
    assert session.next_request().metadata == (5, 1)


@pytest.mark.parametrize(
    ("error", "session_id"),
    [
        (None, 5),
        (ErrorCode.INVALID_FETCH_SESSION_EPOCH, 5),
        (ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR, 5),
        (ErrorCode.FETCH_SESSION_ID_NOT_FOUND, 0),
    ],
)
def test_it_begins_again_with_everything(error: ErrorCode | None, session_id: int) -> None:
    """And names the session that the leader may have, which ends with that."""
    session = begun(asked(0), asked(1))
    session.ask(asked(0, 9))
    session.forget(key_of(TOPIC, 1))
    session.next_request()
    session.begin_again(error)
    assert session.next_request() == (FetchMetadata(session_id, 0), [asked(0, 9)], [])
    session.answered(6)
    assert session.next_request() == (FetchMetadata(6, 1), [], [])


def test_a_leader_without_room_gets_everything_each_time_in_turn() -> None:
    session = FetchSession()
    for index in range(3):
        session.ask(asked(index))
    session.next_request()
    session.answered(0)
    session.to_the_end(key_of(TOPIC, 0))
    session.ask(asked(0, 4))
    request = session.next_request()
    assert request == (FetchMetadata(0, 0), [asked(1), asked(2), asked(0, 4)], [])


def test_an_answer_of_another_session_is_none() -> None:
    session = begun(asked(0))
    session.next_request()
    with pytest.raises(ProtocolError, match="another fetch session"):
        session.answered(6)


# --- in a fetcher ---------------------------------------------------------------------------------


def fill(cluster: Cluster, count: int, topic: str = "words") -> list[TopicPartition]:
    names = [cluster.create(topic, index) for index in range(count)]
    for name in names:
        cluster.elect(name, 1)
    return names


async def settled(cluster: Cluster, names: list[TopicPartition]) -> None:
    await cluster.until(lambda: all(map(cluster.caught_up, names)), 5_000)
    await asyncio.sleep(2)
    cluster.named.clear()


def test_an_unmoved_partition_is_not_looked_at(tell: Tell, monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(cluster: Cluster) -> None:
        names = fill(cluster, 50)
        await settled(cluster, names)
        looked: list[int] = []

        def counted(which: Any) -> Any:
            def call(partition: FollowedPartition, *how: Any) -> Any:
                looked.append(partition.name.partition)
                return which(partition, *how)

            return call

        with monkeypatch.context() as patch:
            for method in ("asked", "apply", "bring_to_disk"):
                patch.setattr(
                    FollowedPartition, method, counted(getattr(FollowedPartition, method))
                )
            await asyncio.sleep(10)
            assert cluster.named and not any(cluster.named) and None not in cluster.named
            assert looked == []
            cluster.append(names[7], b"v")
            await cluster.until(lambda: cluster.caught_up(names[7]), 100)
        assert set(looked) == {7}
        assert {at.partition for named in cluster.named for at in named or ()} == {7}

    tell(story)


def test_in_sync_by_time_counts_fetches_that_name_nothing(tell: Tell) -> None:
    async def story(cluster: Cluster) -> None:
        names = fill(cluster, 3)
        await settled(cluster, names)
        await asyncio.sleep(10)
        now_ns = cluster.clock.monotonic_ns()
        for name in names:
            ((_, _, _, caught_up_ns, _, _),) = cluster.replica(1, name).followers()
            assert now_ns - caught_up_ns <= 600_000_000

    tell(story)


@pytest.mark.parametrize("lost", ["the session", "the epoch", "the answer"])
def test_a_session_that_is_lost_begins_again(
    tell: Tell, lost: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story(cluster: Cluster) -> None:
        names = fill(cluster, 3)
        await settled(cluster, names)
        sessions = cluster.nodes[1].sessions
        if lost == "the session":
            sessions.drop()
        elif lost == "the epoch":
            for session_id in sessions.ids:
                sessions.session(session_id).epoch += 1
        else:
            monkeypatch.setattr(FakeLink, "_never", once)
            cluster.faults.answer_lost = 100
            await asyncio.sleep(0.6)
            assert cluster.faults.answer_lost == 0
        cluster.append(names[1], b"v")
        took = await cluster.until(lambda: cluster.caught_up(names[1]), 2_000)
        assert took <= (1_200 if lost == "the answer" else 550)  # the fetch that waits, and then
        await settled(cluster, names)
        assert len(sessions.ids) == 1, "the session before has ended"
        await asyncio.sleep(2)
        assert cluster.named and None not in cluster.named

    async def once(link: FakeLink) -> None:
        link._cluster.faults.answer_lost = 0
        raise KafkaError(ErrorCode.NETWORK_EXCEPTION, "lost")

    tell(story)


def test_without_room_at_the_leader_it_is_followed_all_the_same(tell: Tell) -> None:
    async def story(cluster: Cluster) -> None:
        cluster.nodes[1].sessions.slots_max = 0
        names = fill(cluster, 3)
        for name in names:
            cluster.append(name, b"v")
        await settled(cluster, names)
        await asyncio.sleep(5)
        assert cluster.named and all(named is None for named in cluster.named)
        cluster.append(names[1], b"w")
        assert await cluster.until(lambda: cluster.caught_up(names[1])) <= 10

    tell(story)


def test_a_partition_that_is_followed_no_more_leaves_the_session(tell: Tell) -> None:
    async def story(cluster: Cluster) -> None:
        names = fill(cluster, 3)
        await settled(cluster, names)
        cluster.nodes[2].manager.remove([names[0]])
        await asyncio.sleep(1)
        cluster.fetches.clear()
        await asyncio.sleep(2)
        assert {at.partition for each in cluster.fetches for at in each[2]} == {1, 2}
        cluster.elect(names[0], 1)
        cluster.append(names[0], b"v")
        await cluster.until(lambda: cluster.caught_up(names[0]), 100)

    tell(story)


def test_a_partition_sent_beside_a_cut_is_sent_again(tell: Tell) -> None:
    """The answer that cuts names the leader's high watermark, which holds for its own log."""

    async def story(cluster: Cluster) -> None:
        (name,) = fill(cluster, 1)
        await settled(cluster, [name])
        first, second = (cluster.replica(each, name) for each in (1, 2))
        cluster.append(name, b"v")
        await cluster.until(lambda: second.log_end_offset == 1)
        cluster.nodes[1].up = False
        cluster.append(name, b"of the first alone", 1)
        assert first.high_watermark == 0
        cluster.elect(name, 2, in_sync=False)  # and writes nothing in this epoch
        assert second.high_watermark == 1
        cluster.nodes[1].up = True
        cluster.tell(cluster.nodes[1], name)
        await cluster.until(lambda: first.log_end_offset == 1, 2_000)
        await cluster.until(lambda: cluster.caught_up(name), 2_000)

    tell(story)


@pytest.mark.usefixtures("one_by_one")
def test_a_dropped_partition_is_sent_again(tell: Tell, monkeypatch: pytest.MonkeyPatch) -> None:
    """Here of the only partition of its lane, which says nothing until it is back."""

    async def story(cluster: Cluster) -> None:
        (name,) = fill(cluster, 1)
        cluster.append(name, b"v")
        await settled(cluster, [name])
        apply = FollowedPartition.apply
        dropped: list[int] = []

        def drops_the_mark(partition: FollowedPartition, at: Asked, fetched: Any, *how: Any) -> Any:
            if fetched.high_watermark == 2 and not fetched.records and not dropped:
                dropped.append(fetched.high_watermark)
                return Outcome.DROPPED
            return apply(partition, at, fetched, *how)

        monkeypatch.setattr(FollowedPartition, "apply", drops_the_mark)
        cluster.append(name, b"w")
        await cluster.until(lambda: cluster.caught_up(name), 2_000)
        assert dropped

    tell(story)


def test_no_session_answers_for_partitions_of_another(tell: Tell) -> None:
    """A partition that came over the second link, and has moved on over the first."""

    async def story(cluster: Cluster) -> None:
        idle = fill(cluster, 1, "idle")
        await settled(cluster, idle)
        for index in range(4):
            await asyncio.sleep(0.05)  # a fetch of those before waits
            name = cluster.create("words", index)
            cluster.elect(name, 1)
            for _ in range(3):
                cluster.append(name, b"v")
                await cluster.until(partial(cluster.caught_up, name), 600)
            for _, leader, positions, _ in cluster.fetches:
                assert leader == 1 and len({each[:2] for each in positions}) == len(positions)
        ends: dict[Any, int] = {}
        for _, _, positions, _ in cluster.fetches:
            for at in positions:
                assert at.offset >= ends.get(at[:2], 0), "it went back"
                ends[at[:2]] = at.offset

    tell(story, settings=SETTINGS)
