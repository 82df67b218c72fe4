"""Produces that wait for followers: trains, the disk first, Python first, memory, races."""

from __future__ import annotations

import errno
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from kbroker._net import WrappedRequest
from kbroker.config import BrokerConfig
from kbroker.core._live_objects import live_counts
from kbroker.errors import ErrorCode
from kbroker.handlers.produce import ColdProduce
from kbroker.log.manager import LogManager
from kbroker.metadata.controller.decisions import new_topic_image
from kbroker.metadata.image import ClusterImage, ImageDelta, new_uuid
from kbroker.replica._replica import Replica
from kbroker.replica.held_replicas import HeldReplicas
from kbroker.replica.manager import ReplicaManager
from kbroker.testing.file_faults import Fault, FileFaults
from kbroker.types import ApiKey
from tests.support.record_batches import Record, build_batch
from tests.unit.engine.following import (
    BATCH,
    FOLLOWER,
    LONG_MS,
    codes,
    follow,
    nothing_waits,
    received,
    replicated,
    send,
)
from tests.unit.engine.wire import (
    produce_frame,
    produce_one,
    produced_in,
)
from tests.unit.net.harness import NODE_ID, Rig, Topic, eventually, framed

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


def test_after_an_error_that_closes_nothing_is_waited_for(rig: Rig) -> None:
    topic = replicated(rig)
    client = rig.client()
    bad = produce_frame(9, [(topic, {7: BATCH})], acks=0)
    client.send(bad + produce_frame(9, [(topic, {0: BATCH})], acks=-1, timeout_ms=LONG_MS))
    assert client.ended()
    assert rig.hot.statistics()["parked_produces"] == 0


def test_a_stock_channel_is_not_read_while_it_waits(make_rig: Callable[..., Rig]) -> None:
    rig = make_rig(pipelined=False)
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


def test_a_change_by_the_controller_wakes_waiting_produces(rig: Rig, tmp_path: Path) -> None:
    woken: list[Replica] = []

    def wake(replica: Replica) -> None:
        woken.append(replica)
        rig.hot.wake(replica)

    held = HeldReplicas(wake)
    logs = LogManager([tmp_path / "data"], listener=held)
    logs.start()
    replicas = ReplicaManager(BrokerConfig.load(None, {}, []), NODE_ID, logs, rig.table, held)
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


class Held:
    """Partitions of a topic in a replica manager, led here with one follower, which is in sync."""

    def __init__(self, rig: Rig, path: Path, *configs: str, **topic: str) -> None:
        self.rig = rig
        held = HeldReplicas(rig.hot.wake)
        self.logs = LogManager([path / "data"], listener=held)
        self.logs.start()
        self.replicas = ReplicaManager(
            BrokerConfig.load(None, {}, configs), NODE_ID, self.logs, rig.table, held
        )
        self.image = new_topic_image("t", new_uuid(), [(NODE_ID, FOLLOWER)], topic)
        self.replicas.apply(ClusterImage(), ImageDelta(created=(self.image,)))
        self.topic = Topic("t", self.image.topic_id, [])

    def change(self, **state: object) -> None:
        changed = replace(self.image.partitions[0], **state)  # type: ignore[arg-type]
        self.image = replace(self.image, partitions=(changed,))
        self.replicas.apply(ClusterImage(), ImageDelta(changed=(self.image,), from_store=True))

    def set(self, **configs: str) -> None:
        self.image = self.image.with_configs({k.replace("_", "."): v for k, v in configs.items()})
        self.replicas.apply(ClusterImage(), ImageDelta(reconfigured=(self.image,)))

    @property
    def replica(self) -> Replica | None:
        return self.replicas.partition("t", 0)


@pytest.mark.parametrize("of", ["topic", "broker"])
def test_a_lower_minimum_answers_produces_that_waited_for_the_high_watermark(
    rig: Rig, tmp_path: Path, of: str
) -> None:
    key = "min.insync.replicas"
    own = {key: "2"} if of == "topic" else {}
    held = Held(rig, tmp_path, f"{key}={2 if of == 'broker' else 1}", **own)
    client = rig.client()
    send(client, held.topic)
    rig.wait_parked(1)
    held.change(isr=(NODE_ID,), partition_epoch=1)
    # The leader alone has it; it stays, and a higher minimum changes nothing.
    assert held.replica is not None and held.replica.high_watermark == 0
    refused = rig.client()
    send(refused, held.topic)
    assert codes(refused) == [ErrorCode.NOT_ENOUGH_REPLICAS]
    assert rig.hot.statistics()["parked_now"] == 1
    if of == "topic":
        held.set(min_insync_replicas="1")
    else:
        held.replicas.follow_config(BrokerConfig.load(None, {}, [f"{key}=1"]), [held.image])
    assert codes(client) == [0]
    assert held.replica.high_watermark == 2
    held.logs.stop()


def test_a_higher_minimum_is_of_replicas_that_there_can_be(rig: Rig, tmp_path: Path) -> None:
    held = Held(rig, tmp_path)
    held.set(min_insync_replicas="3")  # of two
    client = rig.client()
    send(client, held.topic)
    rig.wait_parked(1)
    assert held.replica is not None
    held.replica.note_fetch(FOLLOWER, 2, 1)
    rig.hot.wake(held.replica)
    assert codes(client) == [0]
    # With fewer it stays, though the leader has all.
    held.change(isr=(NODE_ID,), partition_epoch=1)
    client = rig.client()
    send(client, held.topic, acks=1)
    assert codes(client) == [0]
    assert held.replica.high_watermark == 2
    held.logs.stop()


def test_a_log_that_goes_offline_answers_waiting_requests(rig: Rig, tmp_path: Path) -> None:
    held = Held(rig, tmp_path, **{"flush.ms": "0"})
    client = rig.client()
    send(client, held.topic)
    rig.wait_parked(1)
    with FileFaults(Fault(("sync",), "t-0", error=errno.EIO)):
        for _ in held.logs.flush_old():
            pass
    assert codes(client) == [ErrorCode.KAFKA_STORAGE_ERROR]
    held.logs.stop()


def test_a_replica_that_is_taken_away_answers_waiting_produces(rig: Rig, tmp_path: Path) -> None:
    held = Held(rig, tmp_path)
    client = rig.client()
    send(client, held.topic)
    rig.wait_parked(1)
    held.change(replicas=(FOLLOWER,), isr=(FOLLOWER,), leader=FOLLOWER, leader_epoch=1)
    assert codes(client) == [ErrorCode.NOT_LEADER_OR_FOLLOWER]
    assert held.replica is None and not held.logs.statistics()["logs"]
    held.change(replicas=(FOLLOWER, NODE_ID))
    assert held.replica is not None and held.replica.log_end_offset == 0  # of a log of its own
    held.logs.stop()


# --- records that are refused, flushed, unpacked --------------------------------------------------


def test_refused_batches_are_answered_with_the_rest(rig: Rig) -> None:
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
    # Without followers to wait for it is answered after the flush, and never parked.
    alone = rig.create("alone", flush_messages=1)
    assert produce_one(client, alone, BATCH, acks=-1).error == 0
    assert rig.hot.statistics()["parked_produces"] == 1


def test_a_flush_that_moves_the_high_watermark_answers_waiting_produces(rig: Rig) -> None:
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


def test_a_produce_that_python_unpacked_waits_with_a_deadline(make_rig: Callable[..., Rig]) -> None:
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
    eventually(lambda: rig.hot.statistics()["parked_now"] == 1 and ticks, "it is parked")
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


def test_the_frame_is_let_go_and_the_kept_memory_is_counted(rig: Rig) -> None:
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
