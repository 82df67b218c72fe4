"""Fetches of followers: their bounds, their reports, and the requests that they wake."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import pytest

from kbroker.errors import ErrorCode, KafkaError
from kbroker.testing.file_faults import Fault, FileFaults
from tests.support.record_batches import build_batch
from tests.unit.engine.wire import (
    FETCH_VERSIONS,
    Ask,
    Fetched,
    fetch,
    fetch_frame,
    fetched_in,
)
from tests.unit.net.harness import Rig, Topic, eventually

LEADER, ONE, TWO, ELSEWHERE = 1, 2, 3, 9
LONG_MS = 600_000
NEWS_WAIT_MS_MAX = 30
WRITE_MS = 2_000
BATCH = build_batch([b"x" * 100])
every_version = pytest.mark.parametrize("version", FETCH_VERSIONS)


@pytest.fixture
def led(rig: Rig) -> Topic:
    """A partition that three brokers have, with five batches."""
    topic = rig.create("t")
    lead(topic)
    for _ in range(5):
        topic.logs[0].append(BATCH)
    return topic


def lead(topic: Topic, leader_epoch: int = 0) -> None:
    topic.logs[0].set_leadership(LEADER, True, leader_epoch, 3, {ONE: True, TWO: True})


def follow(rig: Rig, topic: Topic, broker: int, offset: int, version: int = 17) -> Fetched:
    asks = [Ask(topic, 0, offset, leader_epoch=topic.logs[0].leader_epoch)]
    return fetch(rig.client(), version, asks, replica_id=broker).only


@every_version
def test_a_follower_reads_to_the_end_and_a_consumer_to_the_high_watermark(
    rig: Rig, led: Topic, version: int
) -> None:
    found = fetch(rig.client(), version, [Ask(led)], replica_id=ONE).only
    assert (found.error, found.high_watermark) == (0, 0)
    assert found.records is not None and len(found.records) == 5 * len(BATCH)
    assert fetch(rig.client(), version, [Ask(led)]).only.records == b""


@every_version
def test_where_it_begins_moves_the_high_watermark(rig: Rig, led: Topic, version: int) -> None:
    log = led.logs[0]
    marks = []
    for broker, offset in ((ONE, 5), (TWO, 0), (TWO, 3), (TWO, 5)):
        answer = fetch(rig.client(), version, [Ask(led, 0, offset)], replica_id=broker).only
        assert answer.error == 0
        assert answer.high_watermark == log.high_watermark
        marks.append(log.high_watermark)
    assert marks == [0, 0, 3, 5]


def test_followers_come_where_brokers_do(rig: Rig, led: Topic) -> None:
    """Who claims to be one elsewhere is refused, and moves nothing."""
    elsewhere, inside = 1, 0
    asks = [Ask(led, 0, 5), Ask(led, 7, 0)]
    rig.hot.advertise(LEADER, [], False, elsewhere)
    refused = fetch(rig.client(), 12, asks, replica_id=ONE).partitions.values()
    assert [each.error for each in refused] == [ErrorCode.TOPIC_AUTHORIZATION_FAILED] * 2
    assert not any(each.records for each in refused)
    for broker in (ONE, TWO):
        follow(rig, led, broker, 5)
    assert led.logs[0].high_watermark == 0
    assert fetch(rig.client(), 17, [Ask(led)]).only.error == 0  # a consumer's
    rig.hot.advertise(LEADER, [], False, inside)
    for broker in (ONE, TWO):
        follow(rig, led, broker, 5)
    assert led.logs[0].high_watermark == 5


def test_the_last_follower_wakes_fetches_that_wait_for_the_high_watermark(
    rig: Rig, led: Topic
) -> None:
    reader = rig.client()
    reader.send(fetch_frame(13, [Ask(led)], max_wait_ms=LONG_MS))
    rig.wait_parked(1)
    follow(rig, led, ONE, 5)
    assert rig.hot.statistics()["parked_now"] == 1 and not reader.has_bytes()
    follow(rig, led, TWO, 3)
    records = fetched_in(13, reader.receive()).only.records
    assert records is not None and len(records) == 3 * len(BATCH)
    assert rig.hot.statistics()["parked_expired"] == 0


def test_many_partitions_in_one_fetch_wake_theirs(rig: Rig) -> None:
    topics = [rig.create(name, partitions=3) for name in ("a", "b")]
    asks = []
    for topic in topics:
        for index, log in enumerate(topic.logs):
            log.set_leadership(LEADER, True, 0, 2, {ONE: True})
            log.append(BATCH)
            asks.append(Ask(topic, index, 1))
    readers = []
    for topic in topics:
        for index in range(3):
            reader = rig.client()
            reader.send(fetch_frame(13, [Ask(topic, index)], max_wait_ms=LONG_MS))
            readers.append(reader)
    rig.wait_parked(6)
    fetch(rig.client(), 17, asks, replica_id=ONE)
    for reader in readers:
        assert fetched_in(13, reader.receive()).only.high_watermark == 1


def test_a_follower_waits_for_an_append(rig: Rig, led: Topic) -> None:
    follower = rig.client()
    follow(rig, led, ONE, 5)
    follower.send(fetch_frame(17, [Ask(led, 0, 5)], max_wait_ms=LONG_MS, replica_id=ONE))
    rig.wait_parked(1)
    led.logs[0].append(BATCH)
    rig.hot.wake(led.logs[0])
    answer = fetched_in(17, follower.receive()).only
    assert answer.records is not None and len(answer.records) == len(BATCH)
    assert answer.high_watermark == 0


def test_a_follower_that_waits_gets_the_high_watermark(rig: Rig, led: Topic) -> None:
    """It has all records, and learns that they are committed when the other one has them."""
    follower = rig.client()
    follower.send(fetch_frame(17, [Ask(led, 0, 5)], max_wait_ms=LONG_MS, replica_id=ONE))
    assert fetched_in(17, follower.receive()).only.high_watermark == 0  # the first time at once
    follower.send(fetch_frame(17, [Ask(led, 0, 5)], max_wait_ms=LONG_MS, replica_id=ONE))
    rig.wait_parked(1)
    follow(rig, led, TWO, 5)
    answer = fetched_in(17, follower.receive()).only
    assert (answer.records, answer.high_watermark) == (b"", 5)
    follower.send(fetch_frame(17, [Ask(led, 0, 5)], max_wait_ms=LONG_MS, replica_id=ONE))
    rig.wait_parked(1)  # it has everything


def test_a_follower_that_moves_the_high_watermark_waits_for_the_next_records_with_it(
    rig: Rig, led: Topic
) -> None:
    """An answer that says nothing but where the high watermark is would cost the records that come
    after it a round trip: acks=-1 is answered by the fetch that follows theirs."""
    follower = rig.client()
    follow(rig, led, TWO, 5)
    follow(rig, led, ONE, 0)
    follower.send(fetch_frame(17, [Ask(led, 0, 5)], max_wait_ms=LONG_MS, replica_id=ONE))
    rig.wait_parked(1)
    assert led.logs[0].high_watermark == 5
    led.logs[0].append(BATCH)
    rig.hot.wake(led.logs[0])
    answer = fetched_in(17, follower.receive()).only
    assert answer.records is not None and len(answer.records) == len(BATCH)
    assert answer.high_watermark == 5


@pytest.mark.parametrize("lags", [True, False])
def test_news_of_the_high_watermark_waits_for_records_some_milliseconds(
    rig: Rig, led: Topic, lags: bool
) -> None:
    """Not for replica.fetch.wait.max.ms: a consumer may read at that follower. Where another
    one lags, the high watermark is about to move."""
    follower = rig.client()
    follow(rig, led, TWO, 0 if lags else 5)
    follow(rig, led, ONE, 0)
    follower.send(fetch_frame(17, [Ask(led, 0, 5)], max_wait_ms=LONG_MS, replica_id=ONE))
    rig.wait_parked(1)
    if lags:
        follow(rig, led, TWO, 5)  # which answers no other request
    rig.wait_parked(1)
    assert rig.hot.tick_deadline_ms(rig.ticks[-1]) <= time.monotonic() * 1000 + NEWS_WAIT_MS_MAX
    rig.expire_all(follower)
    answer = fetched_in(17, follower.receive()).only
    assert (answer.records, answer.high_watermark) == (b"", 5)
    follower.send(fetch_frame(17, [Ask(led, 0, 5)], max_wait_ms=LONG_MS, replica_id=ONE))
    rig.wait_parked(1)  # it has everything
    assert rig.hot.tick_deadline_ms(rig.ticks[-1]) > time.monotonic() * 1000 + LONG_MS / 2


def test_it_is_noted_once_however_long_it_waits(rig: Rig, led: Topic) -> None:
    follow(rig, led, ONE, 5)
    caught_up_ns = follower_of(led, ONE)[3]
    follower = rig.client()
    follower.send(fetch_frame(17, [Ask(led, 0, 5)], max_wait_ms=LONG_MS, replica_id=ONE))
    rig.wait_parked(1)
    noted = follower_of(led, ONE)
    assert noted[3] > caught_up_ns
    rig.expire_all(follower)
    follower.receive()
    assert follower_of(led, ONE) == noted


def follower_of(topic: Topic, broker: int) -> tuple[int, bool, int, int, int, int]:
    (found,) = [each for each in topic.logs[0].followers() if each[0] == broker]
    return found


@every_version
def test_a_broker_without_a_replica_is_refused_and_says_nothing(
    rig: Rig, led: Topic, version: int
) -> None:
    answer = fetch(
        rig.client(), version, [Ask(led, 0, 5)], replica_id=ELSEWHERE, max_wait_ms=LONG_MS
    ).only
    assert (answer.error, answer.records) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, b"")
    if version >= 9:
        asks = [Ask(led, 0, 5, leader_epoch=0)]
        answer = fetch(rig.client(), version, asks, replica_id=ELSEWHERE).only
        assert answer.error == ErrorCode.UNKNOWN_LEADER_EPOCH
    assert led.logs[0].high_watermark == 0


@pytest.mark.parametrize(
    ("asked", "error"),
    [(0, ErrorCode.FENCED_LEADER_EPOCH), (2, ErrorCode.UNKNOWN_LEADER_EPOCH)],
)
def test_another_leader_epoch_is_refused_and_says_nothing(
    rig: Rig, led: Topic, asked: int, error: ErrorCode
) -> None:
    lead(led, leader_epoch=1)
    answer = fetch(rig.client(), 17, [Ask(led, 0, 5, leader_epoch=asked)], replica_id=ONE).only
    assert answer.error == error
    assert follower_of(led, ONE)[2] == -1


@pytest.mark.parametrize("offset", [-1, 6, 1 << 60])
def test_an_offset_that_is_not_there_says_nothing(rig: Rig, led: Topic, offset: int) -> None:
    answer = follow(rig, led, ONE, offset)
    assert answer.error == ErrorCode.OFFSET_OUT_OF_RANGE
    assert follower_of(led, ONE)[2] == -1


def test_another_history_is_answered_and_moves_nothing(rig: Rig, led: Topic) -> None:
    """Five records of epoch 0 are here; who comes with seven of them has two too many."""
    lead(led, leader_epoch=3)
    led.logs[0].append(BATCH)
    led.logs[0].append(BATCH)
    asks = [Ask(led, 0, 7, leader_epoch=3, fetched_epoch=0)]
    answer = fetch(rig.client(), 17, asks, replica_id=ONE, max_wait_ms=LONG_MS).only
    assert (answer.error, answer.records) == (0, b"")
    assert follower_of(led, ONE)[2] == -1
    assert led.logs[0].high_watermark == 0


def test_an_older_start_than_is_registered_is_fenced(rig: Rig, led: Topic) -> None:
    log = led.logs[0]
    log.set_leadership(LEADER, True, 0, 3, {ONE: True, TWO: True}, {ONE: 7})
    log.note_fetch(ONE, 1, 1, broker_epoch=7)
    answer = follow(rig, led, ONE, 5)  # of the registration with epoch 1
    assert answer.error == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert follower_of(led, ONE)[2] == 1


def test_an_unknown_start_shuts_none_out(led: Topic) -> None:
    """The controller may tell its leader of it in a moment, or it is a lie."""
    log = led.logs[0]
    log.set_leadership(LEADER, True, 0, 2, {ONE: False, TWO: True}, {ONE: 7, TWO: 8})
    log.note_fetch(ONE, 1, 1, broker_epoch=2**63 - 1)
    log.note_fetch(ONE, 2, 1, broker_epoch=7)
    assert follower_of(led, ONE)[2] == 2
    # As soon as it is registered, the start before it is over; positions stay.
    log.set_leadership(LEADER, True, 0, 3, {ONE: True, TWO: True}, {ONE: 9, TWO: 8})
    with pytest.raises(KafkaError) as refused:
        log.note_fetch(ONE, 3, 1, broker_epoch=7)
    assert refused.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER
    log.note_fetch(ONE, 4, 1, broker_epoch=9)
    assert follower_of(led, ONE)[2] == 4


def test_a_member_of_the_set_that_has_started_again_commits_nothing(led: Topic) -> None:
    """With that it may have left the set, which its leader does not know yet: with fewer than
    min.insync.replicas in it, one power cut would take what they commit."""
    log = led.logs[0]
    log.set_leadership(LEADER, True, 0, 2, {ONE: True, TWO: False}, {ONE: 7, TWO: 8})
    log.note_fetch(ONE, 1, 1, broker_epoch=7)
    assert log.high_watermark == 1
    with pytest.raises(KafkaError) as refused:
        log.note_fetch(ONE, 2, 1, broker_epoch=9)
    assert refused.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert (log.high_watermark, follower_of(led, ONE)[2]) == (1, 1)
    log.set_leadership(LEADER, True, 0, 1, {ONE: False, TWO: False}, {ONE: 9, TWO: 8})
    log.note_fetch(ONE, 2, 1, broker_epoch=9)
    assert follower_of(led, ONE)[2] == 2


def test_a_follower_with_a_session(rig: Rig, led: Topic) -> None:
    """What it follows and has not changed moves the high watermark all the same."""
    follower = rig.client()
    first = fetch(follower, 17, [Ask(led, 0, 0)], session=(0, 0), replica_id=ONE)
    assert first.session_id
    follow(rig, led, TWO, 5)
    second = fetch(follower, 17, [Ask(led, 0, 5)], session=(first.session_id, 1), replica_id=ONE)
    assert led.logs[0].high_watermark == 5
    assert second.only.high_watermark == 5


def test_a_follower_does_not_wait_for_a_write(rig: Rig, led: Topic) -> None:
    """Nor do requests that are served with it."""
    log = led.logs[0]
    with FileFaults(Fault(("write",), "t-0", delay_ms=WRITE_MS)) as faults:
        write = threading.Thread(target=log.append, args=(BATCH,))
        write.start()
        eventually(lambda: any(seen.operation == "write" for seen in faults.look()), "it writes")
        for broker in (ONE, TWO):
            assert follow(rig, led, broker, 5).error == 0
        assert write.is_alive(), "a follower waited for a write"
        assert log.high_watermark == 5
        write.join()
    assert log.log_end_offset == 6


def test_no_wake_up_is_lost_between_followers_and_readers(
    make_rig: Callable[..., Rig],
) -> None:
    """A reader for each step of the high watermark, which two followers move in turn."""
    rig = make_rig(handlers=4)
    topic = rig.create("t")
    lead(topic)
    one, two = rig.client(), rig.client()
    for step in range(1, 200):
        reader = rig.client()
        reader.send(fetch_frame(13, [Ask(topic, 0, step - 1)], max_wait_ms=LONG_MS))
        topic.logs[0].append(BATCH)
        for follower, broker in ((one, ONE), (two, TWO)):
            asks = [Ask(topic, 0, step)]
            follower.send(fetch_frame(17, asks, replica_id=broker, correlation_id=step))
        assert fetched_in(13, reader.receive()).only.high_watermark == step
        for follower in (one, two):
            assert fetched_in(17, follower.receive()).only.error == 0
        reader.close()
    assert rig.hot.statistics()["parked_expired"] == 0
