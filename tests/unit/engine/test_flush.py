"""Topics with flush.messages through the real hot path: on the disk before the answer."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from kbroker._net import WrappedRequest
from kbroker.errors import ErrorCode
from kbroker.testing.file_faults import FileFaults
from kbroker.types import ApiKey
from tests.support.record_batches import build_batch, parse_batches
from tests.unit.engine.wire import (
    Ask,
    fetch_frame,
    fetched_in,
    key_of,
    produce,
    produce_frame,
    produced_in,
)
from tests.unit.net.harness import (
    DEADLINE_S,
    Gate,
    Rig,
    cold_frame,
    eventually,
    framed,
    header,
)

BATCH = build_batch([b"a", b"b"])


@pytest.mark.parametrize("acks", [1, -1])
def test_answered_records_are_on_the_disk(rig: Rig, acks: int) -> None:
    topic = rig.create("t", flush_messages=1)
    client = rig.client()
    before = rig.flushes()
    for end in (2, 4, 6):
        (result,) = produce(client, 9, [(topic, {0: BATCH})], acks=acks).values()
        assert (result.error, result.base_offset) == (0, end - 2)
        assert topic.logs[0].recovery_point == topic.logs[0].high_watermark == end
    assert rig.flushes() - before == 3


def test_acks_0_is_flushed_as_well(rig: Rig) -> None:
    topic = rig.create("t", flush_messages=1)
    rig.client().send(produce_frame(9, [(topic, {0: BATCH})], acks=0))
    eventually(lambda: topic.logs[0].recovery_point == 2)


def test_some_of_a_request_are_due_and_all_of_it_is_answered_in_order(rig: Rig) -> None:
    due = rig.create("due", partitions=3, flush_messages=1)
    quick = rig.create("quick", partitions=2)
    batches = [(due, {2: BATCH, 7: BATCH, 0: BATCH}), (quick, {1: BATCH, 0: BATCH})]
    answer = produce(rig.client(), 13, batches)
    assert list(answer) == [
        *(key_of(due, index, by_id=True) for index in (2, 7, 0)),
        *(key_of(quick, index, by_id=True) for index in (1, 0)),
    ]
    errors = [result.error for result in answer.values()]
    assert errors == [0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, 0, 0, 0]
    assert [log.recovery_point for log in due.logs] == [2, 0, 2]
    assert [log.recovery_point for log in quick.logs] == [0, 0]


def test_a_train_is_one_flush_or_few_and_answered_in_order(rig: Rig) -> None:
    topic = rig.create("t", flush_messages=1)
    client = rig.client()
    before = rig.flushes()
    client.send(
        b"".join(produce_frame(9, [(topic, {0: BATCH})], correlation_id=n) for n in range(20))
    )
    for number in range(20):
        correlation_id, answer = produced_in(9, client.receive())
        assert correlation_id == number
        (result,) = answer.values()
        assert (result.error, result.base_offset) == (0, number * 2)
    assert topic.logs[0].recovery_point == 40
    assert rig.flushes() - before < 20


def test_many_connections(make_rig: Callable[..., Rig]) -> None:
    rig = make_rig(handlers=3)
    topic = rig.create("t", partitions=2, flush_messages=3)
    clients = [rig.client() for _ in range(8)]
    for turn in range(10):
        for client in clients:
            client.send(produce_frame(9, [(topic, {turn % 2: BATCH, 1 - turn % 2: BATCH})]))
        for client in clients:
            _, answer = produced_in(9, client.receive())
            assert [result.error for result in answer.values()] == [0, 0]
    for log in topic.logs:
        assert log.log_end_offset == log.high_watermark == 160
        assert log.log_end_offset - log.recovery_point < 3


@pytest.mark.parametrize(("flush_messages", "runs"), [(1, 4), (1 << 40, 1)])
def test_handlers_share_requests_that_wait_for_the_disk(
    make_rig: Callable[..., Rig], flush_messages: int, runs: int
) -> None:
    """Twelve produces are queued before there are two handlers: shared, 6 + 3 + 2 + 1."""
    in_python, go_on = Gate(), threading.Event()

    def dispatch(request: WrappedRequest) -> None:
        in_python(request)
        assert go_on.wait(DEADLINE_S)

    rig = make_rig(handlers=1, dispatch=dispatch)
    topic = rig.create("t", partitions=13, flush_messages=flush_messages)
    clients = [rig.client() for _ in range(13)]
    # To a log of its own: where this write is slow, the next to the same log is set aside.
    produce(clients[0], 9, [(topic, {12: BATCH})])
    clients[12].send(cold_frame(b"x"))
    in_python.wait_for(1)
    before = _runs(rig)
    for index, client in enumerate(clients[:12]):
        client.send(produce_frame(9, [(topic, {index: BATCH})]))
    eventually(lambda: rig.server.statistics()["queued_requests"] == 12)
    rig.pool.resize(2)
    for client in clients[:12]:
        _, answer = produced_in(9, client.receive())
        assert [result.error for result in answer.values()] == [0]
    assert _runs(rig) - before == runs
    go_on.set()
    in_python.release()


def _runs(rig: Rig) -> int:
    return sum(handler["runs"] for handler in rig.hot.statistics()["handlers"])


def test_a_waiting_fetch_gets_flushed_records(rig: Rig) -> None:
    topic = rig.create("t", flush_messages=1)
    reader = rig.client()
    reader.send(fetch_frame(12, [Ask(topic)], max_wait_ms=600_000, min_bytes=1))
    rig.wait_parked(1)
    produce(rig.client(), 9, [(topic, {0: BATCH})])
    answer = fetched_in(12, reader.receive())
    (part,) = answer.partitions.values()
    records = part.records or b""
    assert [r.value for batch in parse_batches(records) for r in batch.records] == [b"a", b"b"]


def test_a_topic_may_go_while_its_answer_waits(make_rig: Callable[..., Rig]) -> None:
    rig = make_rig(handlers=2)
    client = rig.client()
    for number in range(20):
        topic = rig.create(f"t{number}", flush_messages=1)
        other = rig.create(f"o{number}")
        client.send(produce_frame(9, [(topic, {0: BATCH}), (other, {0: BATCH})]))
        rig.delete(other.name)
        rig.delete(topic.name)
        _, answer = produced_in(9, client.receive())
        assert {result.error for result in answer.values()} <= {
            0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.KAFKA_STORAGE_ERROR,
            ErrorCode.NOT_LEADER_OR_FOLLOWER,
        }  # fmt: skip


def test_a_request_without_a_write_does_not_wait_for_the_disk(make_rig: Callable[..., Rig]) -> None:
    """Of the run whose handler waits for the disk: a fetch has its deadline, and what needs Python
    is answered, by another handler."""
    inside, go_on = threading.Event(), threading.Event()
    syncing, disk = threading.Event(), threading.Event()

    def dispatch(request: WrappedRequest) -> None:
        if not inside.is_set():
            inside.set()
            assert go_on.wait(DEADLINE_S)
        request.respond(request.body)

    def stand(operation: str, path: str) -> None:
        if operation == "sync" and "due-0" in path:
            syncing.set()
            assert disk.wait(DEADLINE_S)

    rig = make_rig(handlers=1, dispatch=dispatch)
    rig.server.set_hot(ApiKey.HEARTBEAT, 0, 0)
    topic, due = rig.create("t"), rig.create("due", flush_messages=1)
    holder, reader, member, writer = (rig.client() for _ in range(4))
    holder.send(cold_frame())
    assert inside.wait(DEADLINE_S)
    run = (
        (reader, fetch_frame(12, [Ask(topic)], max_wait_ms=600_000)),
        (member, framed(header(ApiKey.HEARTBEAT, 0, 5) + b"beats")),
        (writer, produce_frame(9, [(due, {0: BATCH})])),
    )
    for number, (client, frame) in enumerate(run, start=1):
        client.send(frame)
        eventually(lambda n=number: rig.server.statistics()["queued_requests"] == n, "it is queued")
    with FileFaults(before=stand):
        go_on.set()
        assert syncing.wait(DEADLINE_S)
        try:
            rig.pool.resize(2)
            assert member.receive_cold() == (5, b"beats")
            rig.expire_all(reader)
            assert fetched_in(12, reader.receive()).only.records == b""
            assert not writer.has_bytes()
        finally:
            disk.set()
        assert produced_in(9, writer.receive())[1]["due", 0].error == 0
