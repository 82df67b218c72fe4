"""The pipelined channel under produces that wait for followers: what is read on, what is answered,
in which order, and where it stops."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest

from kbroker.core._live_objects import live_counts
from kbroker.errors import ErrorCode
from tests.support.record_batches import build_batch
from tests.unit.engine.following import (
    BATCH,
    FOLLOWER,
    LONG_MS,
    codes,
    follow,
    lead,
    nothing_waits,
    replicated,
    send,
)
from tests.unit.engine.wire import Ask, fetch_frame, fetched_in, produce_frame, produced_in
from tests.unit.net.harness import NODE_ID, Client, Rig, Topic, cold_frame, eventually

IN_FLIGHT = 20


def send_many(rig: Rig, client: Client, topic: Topic, count: int, **options: int) -> None:
    """One after the other: each is appended before the next is sent, so that none is a train."""
    for number in range(count):
        end = topic.logs[0].log_end_offset + 2
        send(client, topic, correlation_id=number, **options)
        eventually(lambda end=end: topic.logs[0].log_end_offset == end, "it is read and appended")


def ids_and_codes(client: Client, count: int, version: int = 9) -> list[tuple[int, int]]:
    answers = [produced_in(version, client.receive()) for _ in range(count)]
    return [(number, *(each.error for each in answer.values())) for number, answer in answers]


def waiting_channels(rig: Rig) -> int:
    (processor,) = rig.server.statistics()["processors"]
    return int(processor["listeners"]["PLAINTEXT"]["waiting"])


def pipelined_bytes(rig: Rig) -> int:
    return int(rig.server.statistics()["pipelined_bytes"])


# --- order ----------------------------------------------------------------------------------------


def test_requests_are_read_and_appended_while_those_before_wait(rig: Rig) -> None:
    topic = replicated(rig)
    client = rig.client()
    send_many(rig, client, topic, IN_FLIGHT)
    rig.wait_parked(IN_FLIGHT)
    assert not client.has_bytes()
    for number in range(IN_FLIGHT):  # a prefix at a time
        follow(rig, topic.logs[0], 2 * (number + 1))
        assert ids_and_codes(client, 1) == [(number, 0)]
        assert not client.has_bytes()
    nothing_waits(rig)
    send(client, topic)  # and it is an open channel again
    follow_when_parked(rig, topic)
    assert codes(client) == [0]


def follow_when_parked(rig: Rig, topic: Topic) -> None:
    rig.wait_parked(1)
    follow(rig, topic.logs[0])


def test_one_advance_answers_all_of_them_in_order(rig: Rig) -> None:
    topic = replicated(rig)
    client = rig.client()
    send_many(rig, client, topic, IN_FLIGHT)
    follow(rig, topic.logs[0])
    assert ids_and_codes(client, IN_FLIGHT) == [(number, 0) for number in range(IN_FLIGHT)]
    nothing_waits(rig)


def test_an_answer_that_is_ready_first_waits_for_those_before_it(rig: Rig) -> None:
    topic = replicated(rig, partitions=2)
    client = rig.client()
    send(client, topic, 0, correlation_id=0)
    rig.wait_parked(1)
    send(client, topic, 1, correlation_id=1)
    rig.wait_parked(2)
    client.send(cold_frame(b"answered at once", correlation_id=2))
    send(client, topic, 1, correlation_id=3, acks=1)
    eventually(lambda: topic.logs[1].log_end_offset == 4, "the last is appended")
    follow(rig, topic.logs[1])
    rig.wait_parked(1)  # all but the first are done
    assert not client.has_bytes()
    follow(rig, topic.logs[0])
    assert ids_and_codes(client, 2) == [(0, 0), (1, 0)]
    assert client.receive_cold() == (2, b"answered at once")
    assert ids_and_codes(client, 1) == [(3, 0)]
    nothing_waits(rig)


def test_a_long_poll_after_a_produce_is_not_read_past(rig: Rig) -> None:
    topic, other = replicated(rig), rig.create("other")
    client = rig.client()
    send(client, topic, correlation_id=0)
    rig.wait_parked(1)
    client.send(fetch_frame(12, [Ask(other, 0, 0)], max_wait_ms=LONG_MS, min_bytes=1))
    rig.wait_parked(2)
    send(client, topic, correlation_id=2)
    client.all_delivered()
    follow(rig, topic.logs[0])
    assert ids_and_codes(client, 1) == [(0, 0)]
    assert topic.logs[0].log_end_offset == 2  # requests after the long poll have to wait for it
    other.logs[0].append(BATCH)
    rig.hot.wake(other.logs[0])
    (fetched,) = fetched_in(12, client.receive()).partitions.values()
    assert fetched.error == 0 and fetched.records
    follow_when_parked(rig, topic)
    assert ids_and_codes(client, 1) == [(2, 0)]


def test_an_error_that_closes_leaves_after_the_answers_before_it(rig: Rig) -> None:
    topic = replicated(rig)
    client = rig.client()
    send(client, topic, correlation_id=0)
    rig.wait_parked(1)
    client.send(produce_frame(9, [(topic, {7: BATCH})], acks=0))
    eventually(lambda: rig.total("requests") == 2, "it is read")
    follow(rig, topic.logs[0])
    assert ids_and_codes(client, 1) == [(0, 0)]
    assert client.ended()
    assert topic.logs[0].log_end_offset == 2
    nothing_waits(rig)


def test_acks_0_between_those_that_wait(rig: Rig) -> None:
    topic = replicated(rig)
    client = rig.client()
    for number, acks in enumerate((-1, 0, -1, 0)):
        send(client, topic, correlation_id=number, acks=acks)
        eventually(lambda end=2 * number + 2: topic.logs[0].log_end_offset == end)
    follow(rig, topic.logs[0])
    assert ids_and_codes(client, 2) == [(0, 0), (2, 0)]
    nothing_waits(rig)


# --- ends -----------------------------------------------------------------------------------------


def test_a_leader_no_more_answers_all_that_waits(rig: Rig) -> None:
    topic = replicated(rig)
    client = rig.client()
    send_many(rig, client, topic, IN_FLIGHT)
    follow(rig, topic.logs[0], 6)
    assert ids_and_codes(client, 3) == [(0, 0), (1, 0), (2, 0)]
    topic.logs[0].set_leadership(FOLLOWER, False, 1, 0)
    rig.hot.wake(topic.logs[0])
    refused = int(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    assert ids_and_codes(client, IN_FLIGHT - 3) == [(n, refused) for n in range(3, IN_FLIGHT)]
    nothing_waits(rig)


def test_the_same_leader_in_a_higher_epoch_keeps_them_waiting(rig: Rig) -> None:
    topic = replicated(rig)
    client = rig.client()
    send_many(rig, client, topic, 3)
    lead(topic.logs[0], epoch=1)
    rig.hot.wake(topic.logs[0])
    send_many(rig, client, topic, 3)
    assert not client.has_bytes()
    follow(rig, topic.logs[0])
    assert [code for _, code in ids_and_codes(client, 6)] == [0] * 6


def test_timeouts_are_each_request_s_own_and_leave_in_order(rig: Rig) -> None:
    topic = replicated(rig)
    client = rig.client()
    send_many(rig, client, topic, 1, timeout_ms=LONG_MS)
    send_many(rig, client, topic, 2, timeout_ms=1)

    def nothing_is_parked() -> bool:
        rig.expire_all()  # a tick is announced after the append that was waited for
        return bool(rig.hot.statistics()["parked_now"] == 0)

    rig.wait_parked(3)
    eventually(nothing_is_parked, "each has its time")
    assert [code for _, code in ids_and_codes(client, 3)] == [ErrorCode.REQUEST_TIMED_OUT] * 3
    assert topic.logs[0].log_end_offset == 6  # the records stay
    nothing_waits(rig)


@pytest.mark.parametrize("leave", [Client.close, Client.reset, Client.end_sending])
def test_all_end_with_their_connection(rig: Rig, leave: Callable[[Client], None]) -> None:
    topic = replicated(rig)
    client = rig.client()
    before = live_counts()
    send_many(rig, client, topic, IN_FLIGHT)
    rig.wait_parked(IN_FLIGHT)
    leave(client)
    rig.wait_parked(0)
    if leave is Client.end_sending:
        timed_out = [ErrorCode.REQUEST_TIMED_OUT] * IN_FLIGHT
        assert [code for _, code in ids_and_codes(client, IN_FLIGHT)] == timed_out
        assert client.ended()
    eventually(lambda: rig.total("connections") == 0, "the connection is gone")
    nothing_waits(rig)
    assert rig.hot.statistics()["parked_left"] == IN_FLIGHT
    assert pipelined_bytes(rig) == 0
    kinds = ("parked_requests", "watches", "slot_rings")  # the rings end after the connection
    eventually(lambda: all(live_counts()[k] == before[k] for k in kinds), "something stays")


def test_the_end_of_the_broker_answers_all_that_waits(make_rig: Callable[..., Rig]) -> None:
    rig = make_rig()
    topic = replicated(rig)
    client = rig.client()
    send_many(rig, client, topic, IN_FLIGHT)
    rig.stop()
    refused = int(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    assert ids_and_codes(client, IN_FLIGHT) == [(n, refused) for n in range(IN_FLIGHT)]
    assert client.ended()


# --- bounds ---------------------------------------------------------------------------------------


def bound_rig(make_rig: Callable[..., Rig], **bounds: Any) -> tuple[Rig, Topic]:
    rig = make_rig(**bounds)
    return rig, replicated(rig)


def stops_at(rig: Rig, client: Client, topic: Topic, count: int, batch: bytes) -> None:
    """With a follower that fetches nothing so many are appended, however many are sent; as it goes
    on all are, and answered in order."""
    sent = 3 * count
    log = topic.logs[0]
    for number in range(sent):
        client.send(
            produce_frame(
                9, [(topic, {0: batch})], acks=-1, timeout_ms=LONG_MS, correlation_id=number
            )
        )
        if number < count:  # none is part of a train, which counts as one
            eventually(lambda end=2 * number + 2: log.log_end_offset == end, "it is appended")
    client.all_delivered()
    until = time.monotonic() + 0.2  # and not a request more
    while time.monotonic() < until:
        assert log.log_end_offset == 2 * count
    eventually(lambda: waiting_channels(rig) == 1, "it is muted with bytes waiting")
    for number in range(sent):
        eventually(lambda end=2 * number + 2: log.log_end_offset >= end, "it goes on")
        follow(rig, log)
        assert ids_and_codes(client, 1) == [(number, 0)]
    nothing_waits(rig)
    # An answer is here before the network thread goes on.
    eventually(lambda: pipelined_bytes(rig) == 0, "nothing is counted any more")


def test_a_connection_holds_so_many_requests(make_rig: Callable[..., Rig]) -> None:
    rig, topic = bound_rig(make_rig, pipelined_requests_max=7)
    stops_at(rig, rig.client(), topic, 7, BATCH)


def test_a_connection_holds_so_many_bytes(make_rig: Callable[..., Rig]) -> None:
    rig, topic = bound_rig(make_rig, pipelined_bytes_max=10_000)
    batch = build_batch([b"x" * 1_500, b"y" * 1_500])
    stops_at(rig, rig.client(), topic, 4, batch)  # the last may go beyond


def test_a_small_request_counts_for_the_memory_of_its_wait(make_rig: Callable[..., Rig]) -> None:
    rig, topic = bound_rig(make_rig, pipelined_bytes_max=2048 * 9)
    stops_at(rig, rig.client(), topic, 9, BATCH)


def test_all_connections_have_one_budget(make_rig: Callable[..., Rig]) -> None:
    rig = make_rig(pipelined_total_bytes_max=50_000)
    topic = replicated(rig, partitions=2)
    batch = build_batch([b"x" * 10_000, b"y" * 10_000])
    first, second = rig.client(), rig.client()
    sides = list(zip((first, second), topic.logs, range(2), strict=True))

    def produce(client: Client, index: int) -> None:
        client.send(produce_frame(9, [(topic, {index: batch})], acks=-1, timeout_ms=LONG_MS))

    for number in range(6):
        produce(first, 0)
        if number < 3:
            eventually(lambda end=2 * number + 2: topic.logs[0].log_end_offset == end)
    for _ in range(6):
        produce(second, 1)  # the first of them is read: who caches nothing may always be
    second.all_delivered()
    rig.wait_parked(4)
    assert pipelined_bytes(rig) > 80_000
    for number in range(6):
        for client, log, _ in sides:
            eventually(lambda log=log, end=2 * number + 2: log.log_end_offset >= end, "it goes on")
            follow(rig, log)
            assert codes(client) == [0]


# --- the leader's view ----------------------------------------------------------------------------


def test_leadership_is_looked_at_for_each(rig: Rig) -> None:
    """One that comes after the loss is refused at once, and still answered after the others."""
    topic = replicated(rig, partitions=2)
    client = rig.client()
    send(client, topic, 0, correlation_id=0)
    rig.wait_parked(1)
    topic.logs[1].set_leadership(FOLLOWER, False, 1, 0)
    send(client, topic, 1, correlation_id=1)
    eventually(lambda: rig.total("requests") == 2, "it is read")
    follow(rig, topic.logs[0])
    refused = int(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    assert ids_and_codes(client, 2) == [(0, 0), (1, refused)]
    assert NODE_ID != FOLLOWER
