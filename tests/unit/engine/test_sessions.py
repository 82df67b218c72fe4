"""Incremental fetch sessions (KIP-227) as a client meets them, by name and by id."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import Any

import pytest

from kbroker.errors import ErrorCode
from tests.support.record_batches import build_batch
from tests.unit.engine.wire import (
    FETCH_BY_ID,
    SESSION_VERSIONS,
    Ask,
    FetchAnswer,
    fetch,
    fetch_frame,
    fetched_in,
)
from tests.unit.net.harness import Client, Rig, Topic, eventually

UNKNOWN = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
LONG_MS = 600_000
every_version = pytest.mark.parametrize("version", SESSION_VERSIONS)


def append(topic: Topic, index: int = 0, count: int = 1) -> None:
    for _ in range(count):
        assert topic.logs[index].append(build_batch()).error == 0


class Session:
    """A client that keeps a session as the Java consumer does."""

    def __init__(self, client: Client, version: int, asks: list[Ask]) -> None:
        self.client = client
        self.version = version
        self.first = fetch(client, version, asks, session=(0, 0))
        self.id = self.first.session_id
        self.epoch = 1

    def next(self, *asks: Ask, **options: object) -> FetchAnswer:
        self.send(*asks, **options)
        return self.receive()

    def send(self, *asks: Ask, **options: Any) -> None:
        session = (self.id, self.epoch)
        self.client.send(fetch_frame(self.version, asks, session=session, **options))
        self.epoch += 1

    def receive(self) -> FetchAnswer:
        return fetched_in(self.version, self.client.receive())


def indexes(answer: FetchAnswer) -> list[int]:
    return [index for _, index in answer.partitions]


@every_version
def test_a_full_fetch_makes_a_session_and_tells_everything(rig: Rig, version: int) -> None:
    topic = rig.create("t", partitions=3)
    session = Session(rig.client(), version, [Ask(topic, i) for i in range(3)])
    assert session.id > 0
    assert indexes(session.first) == [0, 1, 2]
    assert rig.hot.statistics()["fetch_sessions"] == 1


@every_version
def test_only_changed_partitions_are_answered(rig: Rig, version: int) -> None:
    topic = rig.create("t", partitions=3)
    session = Session(rig.client(), version, [Ask(topic, i) for i in range(3)])
    nothing = session.next()
    assert (nothing.error, nothing.session_id, nothing.partitions) == (0, session.id, {})
    append(topic, 1)
    changed = session.next()
    assert indexes(changed) == [1]
    assert changed.only.records
    # Its data is answered until the client has moved on; the high watermark alone only once.
    assert indexes(session.next()) == [1]
    assert session.next(Ask(topic, 1, 1)).partitions == {}


@every_version
def test_a_new_partition_joins_and_a_forgotten_one_leaves(rig: Rig, version: int) -> None:
    topics = [rig.create(name, partitions=2) for name in ("a", "b")]
    session = Session(rig.client(), version, [Ask(topics[0], 0)])
    append(topics[1], 1)
    joined = session.next(Ask(topics[1], 1))
    assert indexes(joined) == [1]
    append(topics[0], 0)
    left = session.next(forgotten=[(topics[0], 0)])
    assert indexes(left) == [1], "what was forgotten is not answered, whatever it holds"


# So many partitions that are missing are looked for in one incremental fetch.
MISSING_AT_ONCE = 1_000


def missing(rig: Rig, version: int, more: int) -> tuple[Session, Topic, Topic]:
    """A session that begins with one partition that is there; so many more than are looked for at
    once are not."""
    there, gone = rig.create("there"), Topic("gone", uuid.uuid4(), [])
    asks = [Ask(there), *(Ask(gone, index) for index in range(MISSING_AT_ONCE + more))]
    session = Session(rig.client(), version, asks)
    assert len(session.first.partitions) == len(asks)
    return session, there, gone


@pytest.mark.parametrize("version", [12, 13])
def test_of_the_missing_so_many_are_answered_in_turn(rig: Rig, version: int) -> None:
    """Forty bytes have not all of a hundred thousand looked up and answered again."""
    session, there, _ = missing(rig, version, 5)
    first, second = session.next(), session.next()
    code = ErrorCode.UNKNOWN_TOPIC_ID if version >= FETCH_BY_ID else UNKNOWN
    assert {each.error for each in first.partitions.values()} == {code}
    assert indexes(first) == [*range(MISSING_AT_ONCE)]
    assert indexes(second) == [*range(MISSING_AT_ONCE, MISSING_AT_ONCE + 5), *range(995)]
    append(there)
    data = session.next()
    assert len(data.partitions) == MISSING_AT_ONCE + 1
    assert [each.error for each in data.partitions.values() if each.records] == [0]


@pytest.mark.parametrize("version", [12, 13])
def test_all_that_are_missing_are_answered_each_time_while_they_are_few(
    rig: Rig, version: int
) -> None:
    """As by Apache Kafka."""
    session, _, gone = missing(rig, version, 5)
    few = session.next(forgotten=[(gone, index) for index in range(5)])
    for answer in (few, session.next(), session.next()):
        assert indexes(answer) == [*range(5, MISSING_AT_ONCE + 5)]


def test_one_that_was_missing_is_found(rig: Rig) -> None:
    """With the next fetch that names it, or within as many as it takes to look for all."""
    session, _, _ = missing(rig, 12, 5)
    topic = rig.create("gone", partitions=MISSING_AT_ONCE + 5)
    append(topic, MISSING_AT_ONCE + 4)
    append(topic, MISSING_AT_ONCE + 3)
    named = session.next(Ask(topic, MISSING_AT_ONCE + 4))
    assert named.partitions["gone", MISSING_AT_ONCE + 4].records
    assert ("gone", MISSING_AT_ONCE + 3) not in named.partitions
    assert session.next().partitions["gone", MISSING_AT_ONCE + 3].records


@every_version
def test_a_session_without_partitions_ends(rig: Rig, version: int) -> None:
    topic = rig.create("t")
    session = Session(rig.client(), version, [Ask(topic)])
    empty = session.next(forgotten=[(topic, 0)], max_wait_ms=60_000)
    assert (empty.error, empty.session_id, empty.partitions) == (0, 0, {})
    assert rig.hot.statistics()["fetch_sessions"] == 0
    assert session.next().error == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


@every_version
def test_a_wrong_epoch_changes_nothing(rig: Rig, version: int) -> None:
    topic = rig.create("t")
    append(topic)
    session = Session(rig.client(), version, [Ask(topic)])
    for epoch in (0x7FFFFFFF, 2, 7):
        wrong = fetch(
            session.client, version, [], session=(session.id, epoch), forgotten=[(topic, 0)]
        )
        assert wrong.error == ErrorCode.INVALID_FETCH_SESSION_EPOCH
        assert (wrong.session_id, wrong.partitions) == (0, {})
    assert indexes(session.next()) == [0]
    session.epoch -= 1
    assert session.next().error == ErrorCode.INVALID_FETCH_SESSION_EPOCH, "a repeated epoch"


@every_version
def test_an_unknown_session(rig: Rig, version: int) -> None:
    topic = rig.create("t")
    session = Session(rig.client(), version, [Ask(topic)])
    for unknown in (session.id % 0x7FFFFFFF + 1, -5):
        answer = fetch(session.client, version, [], session=(unknown, 1), max_wait_ms=60_000)
        assert (answer.error, answer.session_id) == (ErrorCode.FETCH_SESSION_ID_NOT_FOUND, 0)
    assert session.next().error == 0


def test_names_and_ids_are_not_mixed(rig: Rig) -> None:
    topic = rig.create("t")
    named = Session(rig.client(), FETCH_BY_ID - 1, [Ask(topic)])
    named.version = FETCH_BY_ID
    assert named.next().error == ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR
    by_id = Session(rig.client(), FETCH_BY_ID, [Ask(topic)])
    by_id.version = FETCH_BY_ID - 1
    assert by_id.next().error == ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR


@every_version
def test_the_final_epoch_ends_the_session_and_serves_without_one(rig: Rig, version: int) -> None:
    topic = rig.create("t")
    append(topic)
    session = Session(rig.client(), version, [Ask(topic)])
    last = fetch(session.client, version, [Ask(topic)], session=(session.id, -1))
    assert (last.error, last.session_id, bool(last.only.records)) == (0, 0, True)
    assert session.next().error == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


@every_version
def test_a_full_fetch_in_a_session_replaces_it(rig: Rig, version: int) -> None:
    topic = rig.create("t", partitions=2)
    session = Session(rig.client(), version, [Ask(topic, 0)])
    replaced = fetch(session.client, version, [Ask(topic, 1)], session=(session.id, 0))
    assert replaced.session_id not in (0, session.id)
    assert session.next().error == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert rig.hot.statistics()["fetch_sessions"] == 1


@every_version
def test_an_error_is_answered_until_it_is_gone(rig: Rig, version: int) -> None:
    topic = rig.create("t")
    session = Session(rig.client(), version, [Ask(topic, 0, 9)])
    assert session.first.only.error == ErrorCode.OFFSET_OUT_OF_RANGE
    for _ in range(2):
        assert session.next().only.error == ErrorCode.OFFSET_OUT_OF_RANGE
    assert session.next(Ask(topic, 0, 0)).only.error == 0, "that it is gone is answered as well"
    assert session.next().partitions == {}


def test_a_partition_with_data_goes_to_the_end(rig: Rig) -> None:
    # One batch fits: without the turn the first partition would starve the others.
    topic = rig.create("t", partitions=3)
    for index in range(3):
        append(topic, index, count=50)
    session = Session(rig.client(), 12, [Ask(topic, i) for i in range(3)])
    served = []
    for _ in range(6):
        answer = session.next(max_bytes=1)
        served.append([i for (_, i), f in answer.partitions.items() if f.records])
    assert served == [[0], [1], [2], [0], [1], [2]]


def test_a_full_cache_of_busy_sessions_serves_without_one(make_rig: Callable[..., Rig]) -> None:
    rig = make_rig(hot={"session_slots_max": 2, "session_eviction_ms_min": 600_000})
    topic = rig.create("t")
    append(topic)
    sessions = [Session(rig.client(), 12, [Ask(topic)]) for _ in range(3)]
    assert [bool(s.id) for s in sessions] == [True, True, False]
    assert sessions[2].first.only.records
    assert [s.next().error for s in sessions[:2]] == [0, 0]
    assert rig.hot.statistics()["fetch_sessions"] == 2


def test_the_least_recently_used_session_gives_way(make_rig: Callable[..., Rig]) -> None:
    rig = make_rig(hot={"session_slots_max": 2, "session_eviction_ms_min": 0})
    topic = rig.create("t")
    first, second = (Session(rig.client(), 12, [Ask(topic)]) for _ in range(2))
    assert first.next().error == 0
    third = Session(rig.client(), 12, [Ask(topic)])
    assert second.next().error == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert [first.next().error, third.next().error] == [0, 0]
    assert rig.hot.statistics()["fetch_sessions"] == 2


def test_a_deleted_topic_is_an_error_in_its_session(rig: Rig) -> None:
    gone, here = rig.create("gone"), rig.create("here")
    session = Session(rig.client(), FETCH_BY_ID, [Ask(gone), Ask(here)])
    rig.delete("gone")
    answer = session.next()
    assert answer.partitions[gone.topic_id, 0].error == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert list(answer.partitions) == [(gone.topic_id, 0)]


def errors(answer: FetchAnswer) -> list[int]:
    return [each.error for each in answer.partitions.values()]


@pytest.mark.parametrize("asked_before", [0, 1])
def test_a_topic_that_was_made_again_is_answered_at_once(rig: Rig, asked_before: int) -> None:
    gone, here = rig.create("gone", partitions=2), rig.create("here")
    asks = [Ask(gone, 0), Ask(here), Ask(gone, 1)]
    session = Session(rig.client(), FETCH_BY_ID, asks)
    for _ in range(asked_before):
        assert errors(session.next()) == []
    rig.delete("gone")
    rig.create("gone")
    answer = session.next(max_wait_ms=LONG_MS)
    assert {key: each.error for key, each in answer.partitions.items()} == {
        (gone.topic_id, 0): ErrorCode.INCONSISTENT_TOPIC_ID,
        # The new one has fewer partitions.
        (gone.topic_id, 1): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
    # That has been answered: now the fetch waits for data, and is answered again with it.
    session.send(max_wait_ms=LONG_MS)
    rig.wait_parked(1)
    append(here)
    rig.hot.wake(here.logs[0])
    assert sorted(errors(session.receive())) == [0, 3, 103]


def test_a_client_without_a_session_does_not_learn_that_a_topic_was_made_again(rig: Rig) -> None:
    gone = rig.create("gone")
    rig.delete("gone")
    rig.create("gone")
    for options in ({}, {"session": (0, 0)}):
        assert errors(fetch(rig.client(), FETCH_BY_ID, [Ask(gone)], **options)) == [100]


@every_version
def test_a_client_that_knows_that_nothing_is_there_waits(rig: Rig, version: int) -> None:
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    a, b = rig.create("a"), rig.create("b")
    session = Session(rig.client(), version, [Ask(a), Ask(b)])
    rig.delete("a")
    rig.delete("b")
    assert errors(session.next(max_wait_ms=LONG_MS)) == [unknown, unknown]
    for _ in range(2):
        session.send(max_wait_ms=LONG_MS)
        rig.wait_parked(1)
        rig.expire_all(session.client)
        assert errors(session.receive()) == [unknown, unknown]
    # A partition that is named again is answered again, and another error is news.
    assert errors(session.next(Ask(a), max_wait_ms=LONG_MS)) == [unknown, unknown]
    if version >= FETCH_BY_ID:
        rig.create("a")
        assert sorted(errors(session.next(max_wait_ms=LONG_MS))) == [3, 103]
    assert rig.hot.statistics()["parked_fetches"] == 2


@every_version
def test_a_returning_partition_is_not_waited_for_as_long_as_the_client_would(
    rig: Rig, version: int
) -> None:
    """Nothing wakes a fetch that is on no partition."""
    here, gone = rig.create("here"), rig.create("gone")
    waits = Session(rig.client(), version, [Ask(here)])
    waits.send(max_wait_ms=60_000)
    rig.wait_parked(1)
    (a_minute,) = rig.ticks
    session = Session(rig.client(), version, [Ask(gone)])
    rig.delete("gone")
    session.next(max_wait_ms=LONG_MS)
    session.send(max_wait_ms=LONG_MS)
    rig.wait_parked(2)
    eventually(lambda: len(rig.ticks) == 2, "both deadlines are announced")
    assert rig.ticks[-1] < a_minute
    rig.expire_all(waits.client, session.client)


def test_a_follower_is_answered_at_once_about_a_missing_partition(rig: Rig) -> None:
    topic = followed(rig, 1)
    session = FollowerSession(rig, ends(topic, 0))
    rig.delete("t")
    for _ in range(2):
        answer = session.next(max_wait_ms=LONG_MS)
        assert errors(answer) == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]


# --- followers ----------------------------------------------------------------------------------

LEADER, FOLLOWER, OTHER, LATEST = 1, 2, 3, 17


class FollowerSession(Session):
    def __init__(self, rig: Rig, asks: list[Ask], broker: int = FOLLOWER) -> None:
        self.broker = broker
        self.client, self.version = rig.client(), LATEST
        self.first = fetch(self.client, LATEST, asks, session=(0, 0), replica_id=broker)
        self.id, self.epoch = self.first.session_id, 1

    def next(self, *asks: Ask, **options: object) -> FetchAnswer:
        return super().next(*asks, replica_id=self.broker, **options)


def followed(rig: Rig, partitions: int = 3) -> Topic:
    topic = rig.create("t", partitions)
    for index, log in enumerate(topic.logs):
        log.set_leadership(LEADER, True, 0, 3, {FOLLOWER: True, OTHER: True})
        append(topic, index, 2)
    return topic


def noted(topic: Topic, index: int, broker: int = FOLLOWER) -> tuple[int, int]:
    """Where the leader takes it to be, and when it last had everything."""
    (found,) = [each for each in topic.logs[index].followers() if each[0] == broker]
    return found[2], found[3]


def ends(topic: Topic, *indexes: int, epoch: int = 0) -> list[Ask]:
    return [Ask(topic, i, topic.logs[i].log_end_offset, leader_epoch=epoch) for i in indexes]


def test_a_follower_s_fetch_that_names_nothing_repeats_all_positions(rig: Rig) -> None:
    topic = followed(rig)
    session = FollowerSession(rig, ends(topic, 0, 1, 2))
    before = [noted(topic, index) for index in range(3)]
    assert session.next().partitions == {}
    after = [noted(topic, index) for index in range(3)]
    assert [offset for offset, _ in after] == [log.log_end_offset for log in topic.logs]
    assert all(then > first for (_, first), (_, then) in zip(before, after, strict=True))
    append(topic, 1)
    assert indexes(session.next()) == [1]
    assert noted(topic, 1)[1] < noted(topic, 2)[1], "it lags now, and was caught up before"


def test_a_follower_gets_moved_partitions_and_no_others(rig: Rig) -> None:
    topic = followed(rig)
    log = topic.logs[1]
    session = FollowerSession(rig, ends(topic, 0, 1, 2))
    fetch(rig.client(), LATEST, ends(topic, 1), replica_id=OTHER)
    answer = session.next()
    assert indexes(answer) == [1] and answer.only.high_watermark == log.log_end_offset
    log.delete_records(1)
    answer = session.next()
    assert indexes(answer) == [1] and answer.only.log_start_offset == 1
    append(topic, 2)
    answer = session.next(max_wait_ms=60_000)
    assert indexes(answer) == [2] and answer.only.records
    session.next(*ends(topic, 2))
    log.set_leadership(LEADER, True, 1, 3, {FOLLOWER: True, OTHER: True})
    answer = session.next(max_wait_ms=60_000)
    assert indexes(answer) == [1] and answer.only.error == ErrorCode.FENCED_LEADER_EPOCH
    assert session.next(*ends(topic, 1, epoch=1)).only.error == 0
    assert session.next().partitions == {}


def test_a_follower_s_other_history_is_answered_in_its_session(rig: Rig) -> None:
    topic = followed(rig, 2)
    session = FollowerSession(rig, ends(topic, 0, 1))
    topic.logs[0].set_leadership(LEADER, True, 3, 3, {FOLLOWER: True, OTHER: True})
    append(topic, 0, 2)
    beyond = Ask(topic, 0, 4, leader_epoch=3, fetched_epoch=0)
    for _ in range(2):
        answer = session.next(beyond, max_wait_ms=60_000)
        assert indexes(answer) == [0] and answer.only.error == 0 and not answer.only.records
    assert noted(topic, 0)[0] == -1, "what diverges says nothing"


def test_a_partition_that_a_follower_has_forgotten_says_nothing_any_more(rig: Rig) -> None:
    topic = followed(rig, 2)
    session = FollowerSession(rig, ends(topic, 0, 1))
    _, before = noted(topic, 0)
    session.next(forgotten=[(topic, 0)])
    assert noted(topic, 0)[1] == before < noted(topic, 1)[1]


def test_an_older_start_than_registered_is_refused_in_a_session(rig: Rig) -> None:
    topic = followed(rig, 1)
    session = FollowerSession(rig, [Ask(topic, 0, 0, leader_epoch=0)])
    topic.logs[0].set_leadership(
        LEADER, True, 0, 3, {FOLLOWER: True, OTHER: True}, {FOLLOWER: 9, OTHER: 8}
    )
    answer = session.next(*ends(topic, 0))
    assert answer.only.error == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert noted(topic, 0)[0] == 0


def test_clients_give_way_to_a_follower_and_not_the_other_way_round(
    make_rig: Callable[..., Rig],
) -> None:
    rig = make_rig(hot={"session_slots_max": 2, "session_eviction_ms_min": 600_000})
    topic = followed(rig)
    clients = [Session(rig.client(), LATEST, [Ask(topic)]) for _ in range(2)]
    assert clients[0].next().error == 0
    follower = FollowerSession(rig, ends(topic, 0))
    assert follower.id > 0
    assert clients[1].next().error == ErrorCode.FETCH_SESSION_ID_NOT_FOUND, "longer not used"
    other = FollowerSession(rig, ends(topic, 0), broker=OTHER)
    assert clients[0].next().error == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert Session(rig.client(), LATEST, [Ask(topic)]).id == 0
    assert [follower.next().error, other.next().error] == [0, 0]
    assert FollowerSession(rig, ends(topic, 0)).id == 0, "followers among themselves do not"
    assert rig.hot.statistics()["fetch_sessions"] == 2


def test_a_false_follower_takes_no_clients_place(
    make_rig: Callable[..., Rig],
) -> None:
    rig = make_rig(hot={"session_slots_max": 1, "session_eviction_ms_min": 600_000})
    topic = followed(rig)
    client = Session(rig.client(), LATEST, [Ask(topic)])
    rig.hot.advertise(LEADER, [], False, 1)
    assert FollowerSession(rig, ends(topic, 0)).id == 0
    assert client.next().error == 0


def test_a_follower_that_has_gone_gives_way_at_last(make_rig: Callable[..., Rig]) -> None:
    rig = make_rig(hot={"session_slots_max": 1, "session_eviction_ms_min": 0})
    topic = followed(rig)
    gone = FollowerSession(rig, ends(topic, 0))
    assert Session(rig.client(), LATEST, [Ask(topic)]).id > 0
    assert gone.next().error == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


@pytest.mark.parametrize("version", [12, 17])
@pytest.mark.parametrize("busy", [True, False], ids=["beside records", "beside an empty one"])
@pytest.mark.parametrize("max_bytes", [1 << 20, 1], ids=["with room", "without room"])
def test_all_that_are_missing_are_looked_at_in_as_many_fetches_as_it_takes(
    rig: Rig, version: int, max_bytes: int, *, busy: bool
) -> None:
    """Whatever else is in the session, and whichever of them come meanwhile."""
    more = 2_500
    session, there, _ = missing(rig, version, more)
    fetches = -(-(MISSING_AT_ONCE + more) // MISSING_AT_ONCE)
    for _ in range(2):
        seen: list[int] = []
        for _ in range(fetches):
            if busy:
                append(there)
            answer = session.next(max_bytes=max_bytes)
            assert any(it.records for it in answer.partitions.values()) == busy
            seen += [index for (_, index), it in answer.partitions.items() if it.error]
        assert {*seen} == {*range(MISSING_AT_ONCE + more)}
    if version == 12 and max_bytes > 1:  # the last one that was looked at comes, by its name
        last = seen[-1]
        append(rig.create("gone", partitions=MISSING_AT_ONCE + more), last)
        answers = [session.next(max_bytes=max_bytes).partitions for _ in range(fetches)]
        assert any(each["gone", last].records for each in answers if ("gone", last) in each)
