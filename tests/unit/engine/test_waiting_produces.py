"""Produces with acks=-1 that wait for followers: what ends a wait, and what is answered then."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from kbroker.core._live_objects import live_counts
from kbroker.engine._hot import HotPath
from kbroker.errors import ErrorCode
from kbroker.types import ApiKey
from tests.support.record_batches import build_batch
from tests.unit.engine.following import (
    BATCH,
    FOLLOWER,
    LONG_MS,
    OTHER,
    codes,
    follow,
    lead,
    nothing_waits,
    received,
    replicated,
    send,
)
from tests.unit.engine.wire import (
    PRODUCE_BY_ID,
    PRODUCE_VERSIONS,
    Ask,
    Produced,
    answer_in,
    fetch_frame,
    fetched_in,
    key_of,
    produce_frame,
    produce_one,
    produced_in,
)
from tests.unit.net.harness import Client, Rig, eventually

every_version = pytest.mark.parametrize("version", PRODUCE_VERSIONS)


# --- the high watermark ---------------------------------------------------------------------------


@every_version
def test_the_answer_comes_with_the_high_watermark(rig: Rig, version: int) -> None:
    topic = replicated(rig, partitions=2)
    topic.logs[1].append(BATCH)
    client = rig.client()
    send(client, topic, 1, version=version, correlation_id=8)
    rig.wait_parked(1)
    for offset in (0, 2, 3):  # 2 is the start of the batch, 3 within it
        follow(rig, topic.logs[1], offset)
        assert rig.hot.statistics()["parked_produces_now"] == 1
        assert not client.has_bytes()
    follow(rig, topic.logs[1])
    correlation_id, answer = produced_in(version, client.receive())
    name = key_of(topic, 1, by_id=version >= PRODUCE_BY_ID)
    assert (correlation_id, list(answer)) == (8, [name])
    assert answer[name] == Produced(0, 2, -1, 0 if version >= 5 else -1, (), None)
    nothing_waits(rig)


@every_version
@pytest.mark.parametrize("acks", [0, 1])
def test_acks_0_and_1_do_not_wait(rig: Rig, version: int, acks: int) -> None:
    topic = replicated(rig)
    client = rig.client()
    send(client, topic, version=version, acks=acks)
    if acks:
        assert codes(client, version) == [0]
    eventually(lambda: topic.logs[0].log_end_offset == 2)
    assert rig.hot.statistics()["parked_produces"] == 0


def test_every_partition_is_waited_for(rig: Rig) -> None:
    topic = replicated(rig, partitions=3)
    alone = rig.create("alone")
    client = rig.client()
    batches = [(topic, {2: BATCH, 7: BATCH, 0: BATCH}), (alone, {0: BATCH})]
    client.send(produce_frame(13, batches, acks=-1, timeout_ms=LONG_MS))
    rig.wait_parked(1)
    follow(rig, topic.logs[2])
    assert not client.has_bytes() and rig.hot.statistics()["parked_now"] == 1
    follow(rig, topic.logs[0])
    _, answer = produced_in(13, client.receive())
    assert [(name[1], result.error, result.base_offset) for name, result in answer.items()] == [
        (2, 0, 0), (7, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1), (0, 0, 0), (0, 0, 0),
    ]  # fmt: skip


def test_the_slowest_in_sync_counts_and_no_other(rig: Rig) -> None:
    topic = rig.create("t")
    lead(topic.logs[0], {FOLLOWER: True, OTHER: True, 4: False}, in_sync=3)
    client = rig.client()
    send(client, topic)
    rig.wait_parked(1)
    for broker in (4, FOLLOWER):
        follow(rig, topic.logs[0], broker=broker)
        assert rig.hot.statistics()["parked_now"] == 1
    follow(rig, topic.logs[0], broker=OTHER)
    assert codes(client) == [0]


def test_those_passed_are_answered_and_the_others_wait_on(rig: Rig) -> None:
    topic = replicated(rig)
    clients = [rig.client() for _ in range(6)]
    for number, client in enumerate(clients, start=1):
        send(client, topic)
        rig.wait_parked(number)
    follow(rig, topic.logs[0], 6)
    for number, client in enumerate(clients[:3]):
        (result,) = received(client)
        assert (result.error, result.base_offset) == (0, number * 2)
    assert rig.hot.statistics()["parked_now"] == 3
    assert not any(client.has_bytes() for client in clients[3:])
    follow(rig, topic.logs[0])
    for client in clients[3:]:
        assert codes(client) == [0]


def test_an_append_that_moves_the_high_watermark_answers_waiting_produces(rig: Rig) -> None:
    topic = replicated(rig, min_insync_replicas=2)
    lead(topic.logs[0], in_sync=2)
    waiting, writer = rig.client(), rig.client()
    send(waiting, topic)
    rig.wait_parked(1)
    lead(topic.logs[0], in_sync=1)  # too few: it stays while the follower comes
    follow(rig, topic.logs[0])
    assert topic.logs[0].high_watermark == 0
    topic.logs[0].configure(min_insync_replicas=1)
    assert produce_one(writer, topic, BATCH).error == 0
    assert codes(waiting) == [0]


def test_consumers_wake_with_the_same_fetch_of_the_follower(rig: Rig) -> None:
    topic = replicated(rig)
    reader, writer = rig.client(), rig.client()
    reader.send(fetch_frame(12, [Ask(topic)], max_wait_ms=LONG_MS))
    rig.wait_parked(1)
    send(writer, topic)
    rig.wait_parked(2)
    assert rig.hot.statistics()["parked_produces_now"] == 1
    follow(rig, topic.logs[0])
    assert codes(writer) == [0]
    assert fetched_in(12, reader.receive()).only.records
    nothing_waits(rig)


def test_one_advance_answers_many(make_rig: Callable[..., Rig]) -> None:
    rig = make_rig(handlers=3)
    topic = replicated(rig)
    clients = [rig.client() for _ in range(150)]
    for client in clients:
        send(client, topic)
    rig.wait_parked(150)
    follow(rig, topic.logs[0])
    assert sorted(result.base_offset for c in clients for result in received(c)) == list(
        range(0, 300, 2)
    )
    nothing_waits(rig)


# --- too few in sync ------------------------------------------------------------------------------


def test_too_few_in_sync_when_it_has_passed(rig: Rig) -> None:
    topic = replicated(rig, min_insync_replicas=2)
    client = rig.client()
    send(client, topic)
    rig.wait_parked(1)
    topic.logs[0].note_fetch(FOLLOWER, 2, 1)
    lead(topic.logs[0], {FOLLOWER: False}, in_sync=1)  # before any request is answered
    rig.hot.wake(topic.logs[0])
    (result,) = received(client)
    assert result.error == ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND
    assert result.base_offset == 0


def test_while_too_few_are_in_sync_it_waits_and_goes_on_by_itself(rig: Rig) -> None:
    topic = replicated(rig, min_insync_replicas=2)
    client = rig.client()
    send(client, topic)
    rig.wait_parked(1)
    lead(topic.logs[0], {FOLLOWER: False}, in_sync=1)
    rig.hot.wake(topic.logs[0])
    follow(rig, topic.logs[0])
    assert rig.hot.statistics()["parked_now"] == 1 and not client.has_bytes()
    refused = rig.client()
    send(refused, topic)
    assert codes(refused) == [ErrorCode.NOT_ENOUGH_REPLICAS]
    assert topic.logs[0].log_end_offset == 2
    lead(topic.logs[0], in_sync=2)
    rig.hot.wake(topic.logs[0])
    assert codes(client) == [0]


def test_a_smaller_set_that_has_it_answers(rig: Rig) -> None:
    topic = rig.create("t", min_insync_replicas=1)
    lead(topic.logs[0], {FOLLOWER: True, OTHER: True}, in_sync=3)
    client = rig.client()
    send(client, topic)
    rig.wait_parked(1)
    lead(topic.logs[0], {FOLLOWER: False, OTHER: False}, in_sync=1)
    rig.hot.wake(topic.logs[0])
    assert codes(client) == [0]


# --- deadlines ------------------------------------------------------------------------------------


@every_version
def test_the_timeout_answers_waiting_produces_and_the_records_stay(rig: Rig, version: int) -> None:
    topic = replicated(rig, partitions=3)
    client = rig.client()
    send(client, topic, 0, 1, 2, version=version)
    rig.wait_parked(1)
    follow(rig, topic.logs[1])
    rig.expire_all(client)
    results = received(client, version)
    timed_out = ErrorCode.REQUEST_TIMED_OUT
    assert [result.error for result in results] == [timed_out, 0, timed_out]
    assert [result.base_offset for result in results] == [0, 0, 0]
    assert [log.log_end_offset for log in topic.logs] == [2, 2, 2]
    figures = rig.hot.statistics()
    assert figures["parked_produces_expired"] == figures["parked_expired"] == 1
    assert figures["produce_batches"] == 3 and figures["produce_errors"] == 0
    assert figures["produce_codes"] == {0: 1, timed_out: 2}
    nothing_waits(rig)


@pytest.mark.parametrize("timeout_ms", [1, 600, 30_000, 2**31 - 1])
def test_a_timeout_is_not_early_and_hardly_late(rig: Rig, timeout_ms: int) -> None:
    topic = replicated(rig)
    before_ms = time.monotonic_ns() // 1_000_000
    send(rig.client(), topic, timeout_ms=timeout_ms)
    rig.wait_parked(1)
    after_ms = time.monotonic_ns() // 1_000_000
    (deadline_ms,) = map(HotPath.tick_deadline_ms, rig.ticks)
    assert before_ms + timeout_ms <= deadline_ms <= after_ms + timeout_ms + 4 + timeout_ms // 128


@pytest.mark.parametrize("timeout_ms", [0, -1, -(2**31)])
def test_no_time_to_wait(rig: Rig, timeout_ms: int) -> None:
    topic = replicated(rig)
    client = rig.client()
    send(client, topic, timeout_ms=timeout_ms)
    assert codes(client) == [ErrorCode.REQUEST_TIMED_OUT]
    assert topic.logs[0].log_end_offset == 2
    assert rig.hot.statistics()["parked_produces"] == 0


def test_an_unannounced_change_counts_at_the_deadline(rig: Rig) -> None:
    topic = replicated(rig)
    client = rig.client()
    send(client, topic)
    rig.wait_parked(1)
    topic.logs[0].note_fetch(FOLLOWER, 2, 1)
    rig.expire_all(client)
    assert codes(client) == [0]


# --- another leader -------------------------------------------------------------------------------


@every_version
def test_a_leader_no_more(rig: Rig, version: int) -> None:
    topic = replicated(rig)
    client = rig.client()
    send(client, topic, version=version)
    rig.wait_parked(1)
    topic.logs[0].set_leadership(OTHER, False, 5, 2)
    rig.hot.wake(topic.logs[0])
    _, answer = answer_in(ApiKey.PRODUCE, version, client.receive())
    partition = answer.responses[0].partition_responses[0]
    assert int(partition.error_code) == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert partition.base_offset == 0
    if version >= 10:
        leader = partition.current_leader
        assert (leader.leader_id, leader.leader_epoch) == (OTHER, 5)
    nothing_waits(rig)


def test_the_same_leader_in_a_higher_epoch_waits_on(rig: Rig) -> None:
    topic = replicated(rig)
    client = rig.client()
    send(client, topic)
    rig.wait_parked(1)
    lead(topic.logs[0], epoch=1)
    rig.hot.wake(topic.logs[0])
    assert rig.hot.statistics()["parked_now"] == 1 and not client.has_bytes()
    follow(rig, topic.logs[0])
    assert codes(client) == [0]


def test_a_leader_that_was_none_meanwhile_acknowledges_nothing_of_before(rig: Rig) -> None:
    """No request was woken by the change; the offset is that of another record by now."""
    topic = replicated(rig)
    log = topic.logs[0]
    client = rig.client()
    send(client, topic)
    rig.wait_parked(1)
    log.set_leadership(OTHER, False, 1, 2)
    log.truncate_to(0)
    lead(log, epoch=2)
    log.append(build_batch([b"of", b"another"]))
    follow(rig, log)
    assert log.high_watermark == 2
    assert codes(client) == [ErrorCode.NOT_LEADER_OR_FOLLOWER]


def test_a_settled_result_is_final(rig: Rig) -> None:
    """One partition's records are everywhere, then its leader changes while another waits."""
    topic = replicated(rig, partitions=2)
    client = rig.client()
    send(client, topic, 0, 1)
    rig.wait_parked(1)
    follow(rig, topic.logs[0])
    topic.logs[0].set_leadership(OTHER, False, 1, 2)
    rig.hot.wake(topic.logs[0])
    assert rig.hot.statistics()["parked_now"] == 1
    follow(rig, topic.logs[1])
    assert codes(client) == [0, 0]


# --- what is gone ---------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [9, 13])
def test_a_deleted_topic(rig: Rig, version: int) -> None:
    gone, here = replicated(rig, "gone"), replicated(rig, "here")
    client = rig.client()
    client.send(
        produce_frame(
            version, [(gone, {0: BATCH}), (here, {0: BATCH})], acks=-1, timeout_ms=LONG_MS
        )
    )
    alone = rig.client()
    send(alone, gone, version=version)
    rig.wait_parked(2)
    rig.delete("gone")
    assert codes(alone, version) == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    follow(rig, here.logs[0])
    assert codes(client, version) == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, 0]


def test_a_log_that_is_offline(rig: Rig) -> None:
    topic = replicated(rig)
    client = rig.client()
    send(client, topic)
    rig.wait_parked(1)
    topic.logs[0].close(clean=False)
    rig.hot.wake(topic.logs[0])
    assert codes(client) == [ErrorCode.KAFKA_STORAGE_ERROR]


@pytest.mark.parametrize("leave", [Client.reset, Client.close, Client.end_sending])
def test_it_ends_with_its_connection(rig: Rig, leave: Callable[[Client], None]) -> None:
    topic = replicated(rig, partitions=40)
    kinds = ("parked_requests", "watches", "frame_copies", "chunks")
    before = {kind: live_counts()[kind] for kind in kinds}
    client = rig.client()
    send(client, topic, *range(40), timeout_ms=2**31 - 1)
    rig.wait_parked(1)
    assert live_counts()["watches"] == before["watches"] + 40
    leave(client)
    eventually(lambda: rig.hot.statistics()["parked_now"] == 0, "it still waits")
    if leave is Client.end_sending:  # it may still read: that it is not known is all there is
        assert codes(client) == [ErrorCode.REQUEST_TIMED_OUT] * 40
        assert client.ended()
    eventually(lambda: {k: live_counts()[k] for k in kinds} == before, "something stays")
    figures = rig.hot.statistics()
    assert (figures["parked_bytes"], figures["parked_left"], figures["parked_expired"]) == (0, 1, 0)
    for log in topic.logs:
        follow(rig, log)
        assert not log.has_watchers


def test_a_client_that_sends_no_more_does_not_begin_to_wait(rig: Rig) -> None:
    topic = replicated(rig)
    client = rig.client()
    send(client, topic)
    send(client, topic, acks=1, version=8)  # another version: no train
    client.end_sending()
    assert codes(client) == [ErrorCode.REQUEST_TIMED_OUT]
    assert codes(client, 8) == [0]
    assert client.ended()
    nothing_waits(rig)


def test_the_end_of_the_broker(make_rig: Callable[..., Rig]) -> None:
    rig = make_rig()
    topic = replicated(rig, partitions=2)
    clients = [rig.client() for _ in range(20)]
    for client in clients:
        send(client, topic, 0, 1)
    rig.wait_parked(20)
    follow(rig, topic.logs[0])
    rig.stop()
    for client in clients:
        assert codes(client) == [0, ErrorCode.NOT_LEADER_OR_FOLLOWER]
        assert client.ended()
    nothing_waits(rig)


# --- duplicates -----------------------------------------------------------------------------------


def idempotent(sequence: int) -> bytes:
    return build_batch([b"%d" % sequence], producer_id=7, producer_epoch=0, base_sequence=sequence)


def test_a_duplicate_waits_as_the_first_did(rig: Rig) -> None:
    topic = replicated(rig)
    first, again, later = rig.client(), rig.client(), rig.client()
    for number, (client, sequence) in enumerate(((first, 0), (later, 1), (again, 0)), start=1):
        frame = produce_frame(9, [(topic, {0: idempotent(sequence)})], acks=-1, timeout_ms=LONG_MS)
        client.send(frame)
        rig.wait_parked(number)
    assert topic.logs[0].log_end_offset == 2
    follow(rig, topic.logs[0], 1)
    for client in (first, again):
        (result,) = received(client)
        assert (result.error, result.base_offset) == (0, 0)
    assert rig.hot.statistics()["parked_now"] == 1
    follow(rig, topic.logs[0])
    assert codes(later) == [0]
    # Below the high watermark there is nothing to wait for.
    assert produce_one(again, topic, idempotent(0), acks=-1).base_offset == 0
