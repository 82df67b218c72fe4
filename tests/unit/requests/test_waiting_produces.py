"""Produces with acks=-1 that wait for followers: what ends a wait, and what is answered then.

Followers are driven by hand: `note_fetch` says how far one has come, `rig.hot.wake` is what the
fetch path and the replica manager call behind it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from kbroker._live_objects import live_counts
from kbroker._net import WrappedRequest
from kbroker.config import BrokerConfig
from kbroker.errors import ErrorCode
from kbroker.handlers.produce import ColdProduce
from kbroker.log.manager import LogManager
from kbroker.metadata.controller.decisions import new_topic_image
from kbroker.metadata.image import ClusterImage, ImageDelta, new_uuid
from kbroker.replica._replica import Replica
from kbroker.replica.manager import ReplicaManager
from kbroker.requests._hot import HotPath
from kbroker.types import ApiKey
from tests.support.led_log import LedLog
from tests.support.record_batches import Record, build_batch
from tests.unit.net.harness import NODE_ID, Client, Rig, Topic, eventually, framed
from tests.unit.requests.wire import (
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

LONG_MS = 600_000
FOLLOWER, OTHER = 2, 3
BATCH = build_batch([b"a", b"b"])
every_version = pytest.mark.parametrize("version", PRODUCE_VERSIONS)


def lead(
    log: LedLog, followers: dict[int, bool] | None = None, *, epoch: int = 0, in_sync: int = 2
) -> None:
    """This broker leads; one follower, in sync, where nothing else is said."""
    log.set_leadership(
        NODE_ID, True, epoch, in_sync, {FOLLOWER: True} if followers is None else followers
    )


def replicated(rig: Rig, name: str = "t", partitions: int = 1, **settings: int) -> Topic:
    topic = rig.create(name, partitions, **settings)
    for log in topic.logs:
        lead(log)
    return topic


def follow(rig: Rig, log: LedLog, offset: int | None = None, broker: int = FOLLOWER) -> None:
    """The follower fetches from there, by default from the end."""
    log.note_fetch(broker, log.log_end_offset if offset is None else offset, 1)
    rig.hot.wake(log)


def send(client: Client, topic: Topic, *indexes: int, version: int = 9, **options: int) -> None:
    options = {"acks": -1, "timeout_ms": LONG_MS} | options
    client.send(produce_frame(version, [(topic, dict.fromkeys(indexes or (0,), BATCH))], **options))


def received(client: Client, version: int = 9) -> list[Produced]:
    return list(produced_in(version, client.receive())[1].values())


def codes(client: Client, version: int = 9) -> list[int]:
    return [result.error for result in received(client, version)]


def nothing_waits(rig: Rig) -> None:
    figures = rig.hot.statistics()
    assert figures["parked_now"] == figures["parked_produces_now"] == 0
    eventually(lambda: rig.hot.statistics()["parked_bytes"] == 0, "memory is kept")


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


def test_the_slowest_in_sync_counts_and_nobody_else(rig: Rig) -> None:
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


def test_whoever_is_passed_is_answered_and_the_others_wait_on(rig: Rig) -> None:
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


def test_an_append_that_moves_the_high_watermark_answers_who_waited(rig: Rig) -> None:
    topic = replicated(rig, min_insync_replicas=2)
    lead(topic.logs[0], in_sync=2)
    waiting, writer = rig.client(), rig.client()
    send(waiting, topic)
    rig.wait_parked(1)
    lead(topic.logs[0], in_sync=1)  # too few: it stands still while the follower comes
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
    lead(topic.logs[0], {FOLLOWER: False}, in_sync=1)  # before anybody has been told
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
def test_the_timeout_answers_who_still_waits_and_the_records_stay(rig: Rig, version: int) -> None:
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


def test_what_nobody_was_told_of_counts_at_the_deadline(rig: Rig) -> None:
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
    told = answer.responses[0].partition_responses[0]
    assert int(told.error_code) == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert told.base_offset == 0
    if version >= 10:
        leader = told.current_leader
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
    """Nobody was told of the change; the offset is that of another record by now."""
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


def test_what_is_settled_stands(rig: Rig) -> None:
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


# --- trains ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("acks", [[-1] * 5, [1, -1, 0, -1, 1]])
def test_frames_of_a_train_are_answered_each_and_in_order(rig: Rig, acks: list[int]) -> None:
    topic = replicated(rig, partitions=2)
    client = rig.client()
    client.send(
        b"".join(
            produce_frame(
                9,
                [(topic, {number % 2: BATCH})],
                acks=each,
                timeout_ms=LONG_MS,
                correlation_id=number,
            )
            for number, each in enumerate(acks)
        )
    )
    eventually(lambda: sum(log.log_end_offset for log in topic.logs) == 10, "all are appended")
    rig.wait_parked(1)
    for log in topic.logs:
        assert not client.has_bytes()
        follow(rig, log)
    for number, each in enumerate(acks):
        if each == 0:
            continue
        correlation_id, answer = produced_in(9, client.receive())
        (result,) = answer.values()
        assert (correlation_id, result.error) == (number, 0)
        assert result.base_offset == number // 2 * 2
    nothing_waits(rig)


def test_a_train_whose_end_does_not_parse_waits_and_closes(rig: Rig) -> None:
    topic = replicated(rig)
    client = rig.client()
    frame = produce_frame(9, [(topic, {0: BATCH})], acks=-1, timeout_ms=LONG_MS)
    client.send(frame + framed(frame[4:-10]))
    rig.wait_parked(1)
    follow(rig, topic.logs[0])
    assert codes(client) == [0]
    assert client.ended()


def test_behind_an_error_that_closes_nothing_is_waited_for(rig: Rig) -> None:
    topic = replicated(rig)
    client = rig.client()
    bad = produce_frame(9, [(topic, {7: BATCH})], acks=0)
    client.send(bad + produce_frame(9, [(topic, {0: BATCH})], acks=-1, timeout_ms=LONG_MS))
    assert client.ended()
    assert rig.hot.statistics()["parked_produces"] == 0


def test_the_connection_is_not_read_while_it_waits(rig: Rig) -> None:
    topic = replicated(rig)
    client = rig.client()
    send(client, topic, correlation_id=1)
    rig.wait_parked(1)
    send(client, topic, correlation_id=2)
    client.all_delivered()
    follow(rig, topic.logs[0])
    assert produced_in(9, client.receive())[0] == 1
    rig.wait_parked(1)
    assert topic.logs[0].log_end_offset == 4
    follow(rig, topic.logs[0])
    assert produced_in(9, client.receive())[0] == 2


# --- the replica manager --------------------------------------------------------------------------


def test_a_change_that_the_controller_tells_wakes_who_waits(rig: Rig, tmp_path: Path) -> None:
    logs = LogManager([tmp_path / "data"])
    logs.start()
    woken: list[Replica] = []

    def wake(replica: Replica) -> None:
        woken.append(replica)
        rig.hot.wake(replica)

    replicas = ReplicaManager(BrokerConfig.load(None, {}, []), NODE_ID, logs, rig.table, wake)
    image = new_topic_image("t", new_uuid(), [(NODE_ID, FOLLOWER)] * 3, {})
    replicas.apply(ClusterImage(), ImageDelta(created=(image,)))
    topic = Topic("t", image.topic_id, [])
    kept, shrunk, lost = image.partitions
    clients = [rig.client() for _ in range(3)]
    for number, client in enumerate(clients):
        send(client, topic, number)
        rig.wait_parked(number + 1)
    changed = replace(
        image,
        partitions=(
            replace(kept, leader_epoch=1),
            replace(shrunk, isr=(NODE_ID,)),
            replace(lost, leader=FOLLOWER, leader_epoch=1),
        ),
    )
    replicas.apply(ClusterImage(), ImageDelta(changed=(changed,)))
    assert codes(clients[1]) == [0]
    assert codes(clients[2]) == [ErrorCode.NOT_LEADER_OR_FOLLOWER]
    assert rig.hot.statistics()["parked_now"] == 1 and not clients[0].has_bytes()
    # Once more, and only who still waits is looked at.
    del woken[:]
    replicas.apply(ClusterImage(), ImageDelta(changed=(changed,)))
    assert [replica.name.partition for replica in woken] == [0]
    rig.stop()
    assert codes(clients[0]) == [ErrorCode.NOT_LEADER_OR_FOLLOWER]
    logs.stop()


# --- records that are refused, flushed, unpacked --------------------------------------------------


def test_what_was_refused_is_told_when_the_rest_is(rig: Rig) -> None:
    topic = replicated(rig, partitions=2, compacted=True)
    keyless, with_key = build_batch([b"v"]), build_batch([Record(b"v", key=b"k")])
    client = rig.client()
    frame = produce_frame(9, [(topic, {0: keyless, 1: with_key})], acks=-1, timeout_ms=LONG_MS)
    client.send(frame)
    rig.wait_parked(1)
    follow(rig, topic.logs[1])
    refused, taken = received(client)
    assert (refused.error, refused.record_errors) == (ErrorCode.INVALID_RECORD, (0,))
    assert refused.message
    assert taken.error == 0


def test_first_to_the_disk_then_the_followers(rig: Rig) -> None:
    topic = replicated(rig, flush_messages=1)
    client = rig.client()
    send(client, topic)
    rig.wait_parked(1)
    assert topic.logs[0].recovery_point == 2
    follow(rig, topic.logs[0])
    assert codes(client) == [0]
    # Without followers to wait for it is answered behind the flush, and never parked.
    alone = rig.create("alone", flush_messages=1)
    assert produce_one(client, alone, BATCH, acks=-1).error == 0
    assert rig.hot.statistics()["parked_produces"] == 1


def test_a_flush_that_moves_the_high_watermark_answers_who_waited(rig: Rig) -> None:
    topic = replicated(rig, flush_messages=3)
    waiting, writer = rig.client(), rig.client()
    send(waiting, topic)
    rig.wait_parked(1)
    topic.logs[0].note_fetch(FOLLOWER, 0, 1)
    send(writer, topic, acks=1)
    assert codes(writer) == [0]
    assert topic.logs[0].recovery_point == 4
    assert rig.hot.statistics()["parked_now"] == 1
    follow(rig, topic.logs[0])
    assert codes(waiting) == [0]


def test_what_python_unpacked_waits_with_a_deadline(make_rig: Callable[..., Rig]) -> None:
    ticks: list[int] = []

    def dispatch(request: WrappedRequest) -> None:
        unknown, new_ticks = rig.hot.produce_checked(request, {}, {}, {})
        assert unknown == []
        ticks.extend(new_ticks)

    rig = make_rig(dispatch=dispatch)
    topic = replicated(rig, stored_codec=0)
    client = rig.client()
    rig.server.set_cold(ApiKey.PRODUCE)
    send(client, topic)
    eventually(lambda: rig.hot.statistics()["parked_now"] == 1 and ticks, "it is parked and told")
    (tick,) = ticks
    rig.hot.expire(tick)
    assert codes(client) == [ErrorCode.REQUEST_TIMED_OUT]


def test_a_deadline_that_cannot_be_set_has_come() -> None:
    expired: list[int] = []

    class Hot:
        expire = staticmethod(expired.append)

    def watch(tick: int) -> None:
        raise MemoryError(tick)

    cold = ColdProduce(Hot(), watch)  # type: ignore[arg-type]
    with pytest.raises(MemoryError):
        cold._watch([5])
    assert expired == [5]


# --- memory ---------------------------------------------------------------------------------------


def test_the_frame_is_let_go_and_what_is_kept_is_counted(rig: Rig) -> None:
    topic = replicated(rig, partitions=10)
    large = build_batch([b"x" * 100_000])
    chunks = live_counts()["chunks"]
    client = rig.client()
    client.send(
        produce_frame(9, [(topic, dict.fromkeys(range(10), large))], acks=-1, timeout_ms=LONG_MS)
    )
    rig.wait_parked(1)
    assert live_counts()["chunks"] == chunks
    assert 10 * 200 < rig.hot.statistics()["parked_bytes"] < 10 * 500 + 1000
    for log in topic.logs:
        follow(rig, log)
    assert codes(client) == [0] * 10
    nothing_waits(rig)


# --- races ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("handlers", [1, 4])
def test_no_wake_up_is_lost_between_writers_and_a_follower(
    make_rig: Callable[..., Rig], handlers: int
) -> None:
    # Deadlines never come: a lost wake-up hangs.
    rig = make_rig(handlers=handlers)
    topic = replicated(rig, partitions=3)
    clients = [rig.client() for _ in range(10)]
    ended = threading.Event()

    def follower() -> None:
        while not ended.is_set():
            for log in topic.logs:
                follow(rig, log)

    thread = threading.Thread(target=follower)
    thread.start()
    offsets: list[list[int]] = [[], [], []]
    try:
        for turn in range(60):
            for number, client in enumerate(clients):
                send(client, topic, (turn + number) % 3, number % 3)
            for client in clients:
                for (_, index), result in produced_in(9, client.receive())[1].items():
                    assert result.error == 0
                    assert topic.logs[index].high_watermark >= result.base_offset + 2
                    offsets[index].append(result.base_offset)
    finally:
        ended.set()
        thread.join()
    for index, log in enumerate(topic.logs):
        assert sorted(offsets[index]) == list(range(0, log.log_end_offset, 2))
    nothing_waits(rig)
