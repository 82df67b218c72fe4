"""Trains and the two channel machines: what is taken together, and who is read while it waits."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from kbroker._net import WrappedRequest
from kbroker.errors import InvariantError
from kbroker.types import ApiKey
from tests.support.record_batches import build_batch
from tests.unit.engine.wire import Ask, fetch_frame, fetched_in, produce_frame, produced_in
from tests.unit.net.harness import Client, Gate, Rig, Topic, cold_frame, echo, eventually

TRAIN_FRAMES_MAX = 32


def produce_frames(topic: Topic, count: int, *, version: int = 9, **options: int) -> list[bytes]:
    return [
        produce_frame(
            version, [(topic, {0: build_batch([b"%d" % i])})], correlation_id=i, **options
        )
        for i in range(count)
    ]


def behind_a_held_request(rig: Rig, client: Client, frames: bytes) -> None:
    """Sends a request that Python keeps until all of `frames` is there after it, then lets go."""
    gate = Gate()
    rig.dispatch = gate
    client.send(cold_frame(b"held", 999))
    gate.wait_for(1)
    client.send(frames)
    client.all_delivered()
    rig.dispatch = echo
    gate.release()
    assert client.receive_cold() == (999, b"held")


def offsets_in_order(client: Client, count: int, version: int = 9) -> list[int]:
    offsets = []
    for i in range(count):
        correlation_id, answer = produced_in(version, client.receive())
        assert correlation_id == i
        offsets += [result.base_offset for result in answer.values()]
    return offsets


@pytest.mark.parametrize(("count", "trains"), [(1, 0), (2, 1), (10, 1), (32, 1), (33, 1), (70, 3)])
def test_frames_that_are_there_leave_as_trains(rig: Rig, count: int, trains: int) -> None:
    topic = rig.create("t")
    client = rig.client()
    behind_a_held_request(rig, client, b"".join(produce_frames(topic, count)))
    assert offsets_in_order(client, count) == list(range(count))
    # 33 are a train of 32 and a frame of its own.
    alone = 1 if count % TRAIN_FRAMES_MAX == 1 else 0
    assert rig.total("trains") == trains
    assert rig.total("train_frames") == count - alone
    assert rig.total("requests") == count + 1
    # An answer is counted once it has left, which may be after it has come.
    eventually(lambda: rig.total("responses") == count + 1, "all answers are counted")
    assert topic.logs[0].log_end_offset == count


def test_a_train_ends_at_another_version_and_another_api(rig: Rig) -> None:
    topic = rig.create("t")
    client = rig.client()
    parts = [
        *produce_frames(topic, 3, version=9),
        *produce_frames(topic, 2, version=8),
        fetch_frame(12, [Ask(topic)], correlation_id=50),
        *produce_frames(topic, 4, version=9),
        cold_frame(b"x", 51),
        *produce_frames(topic, 1, version=9),
    ]
    behind_a_held_request(rig, client, b"".join(parts))
    assert offsets_in_order(client, 3) == [0, 1, 2]
    assert offsets_in_order(client, 2, version=8) == [3, 4]
    fetched = fetched_in(12, client.receive())
    assert (fetched.correlation_id, fetched.only.high_watermark) == (50, 5)
    assert offsets_in_order(client, 4) == [5, 6, 7, 8]
    assert client.receive_cold() == (51, b"x")
    assert offsets_in_order(client, 1) == [9]
    assert (rig.total("trains"), rig.total("train_frames")) == (3, 9)


def test_a_train_is_bounded_in_bytes(rig: Rig) -> None:
    topic = rig.create("t")
    client = rig.client()
    frames = [
        produce_frame(9, [(topic, {0: build_batch([b"x" * 100_000])})], correlation_id=i)
        for i in range(6)
    ]
    client.send(b"".join(frames))
    assert offsets_in_order(client, 6) == list(range(6))
    # 256 KB hold two of them.
    assert rig.total("train_frames") <= 2 * rig.total("trains")


def test_a_train_without_answers_and_one_with_some(rig: Rig) -> None:
    topic = rig.create("t")
    client = rig.client()
    silent = produce_frames(topic, 5, acks=0)
    loud = produce_frames(topic, 2)
    behind_a_held_request(rig, client, b"".join([*silent, loud[0], *silent, loud[1]]))
    assert offsets_in_order(client, 2) == [5, 11]
    assert rig.total("trains") == 1
    eventually(lambda: rig.total("responses") == 13, "the silent ones are counted too")


def test_an_unread_answer_to_a_train_keeps_the_channel_bounded(
    make_rig: Callable[..., Rig],
) -> None:
    rig = make_rig(send_buffer_bytes=4096, pipelined_requests_max=8)
    topic = rig.create("t")
    client = rig.client(receive_bytes=4096)
    frames = b"".join(produce_frames(topic, 8))
    sent = 0
    client.socket.setblocking(False)
    stuck = 0
    while stuck < 50:
        before = rig.total("requests")
        try:
            sent += client.socket.send(frames[sent % len(frames) :])
        except BlockingIOError:
            pass
        # A neighbour's turn in between: the network thread has been round.
        neighbour = rig.client()
        neighbour.send(cold_frame(b"n"))
        neighbour.receive_cold()
        neighbour.close()
        stuck = stuck + 1 if rig.total("requests") == before + 1 else 0
    eventually(lambda: rig.total("requests") - rig.total("responses") <= 8, "8 at most wait")
    # It reads after all: everything that was sent whole is answered, in order.
    client.socket.setblocking(True)
    whole = sent // len(frames) * 8
    for i in range(whole):
        assert produced_in(9, client.receive())[0] == i % 8


def test_the_stock_machine_takes_one_at_a_time(make_rig: Callable[..., Rig]) -> None:
    rig = make_rig(pipelined=False)
    topic = rig.create("t")
    client = rig.client()
    behind_a_held_request(rig, client, b"".join(produce_frames(topic, 40)))
    assert offsets_in_order(client, 40) == list(range(40))
    assert rig.total("trains") == 0
    # Each of them but the last was muted with bytes waiting after it.
    assert rig.total("muted_waits") >= 39
    figures = rig.server.statistics()["processors"][0]
    waits = figures["listeners"]["PLAINTEXT"]
    assert sum(waits["histogram_us"]) == waits["count"] == figures["muted_waits"]
    assert rig.hot.statistics()["handlers"][0]["run_requests"] == 40


@pytest.mark.parametrize("pipelined", [True, False])
def test_a_channel_with_a_request_in_service_is_not_read(
    make_rig: Callable[..., Rig], pipelined: bool
) -> None:
    gate = Gate()
    rig = make_rig(pipelined=pipelined, dispatch=gate)
    client = rig.client()
    client.send(cold_frame(b"a", 1))
    gate.wait_for(1)
    received = rig.total("received_bytes")
    client.send(cold_frame(b"b" * 20_000, 2))
    client.all_delivered()
    # The neighbour's answer says that the network thread has been round since.
    neighbour = rig.client()
    neighbour.send(cold_frame(b"n"))
    gate.wait_for(2)
    gate.held.pop().respond(b"n")
    neighbour_bytes = len(cold_frame(b"n"))
    assert neighbour.receive_cold() == (1, b"n")
    assert rig.total("received_bytes") == received + neighbour_bytes
    assert len(gate.held) == 1
    before = rig.total("muted_waits")
    gate.release()
    gate.wait_for(1)
    assert rig.total("muted_waits") == before + 1
    assert gate.release() == 1
    assert client.receive_cold() == (1, b"a")
    assert client.receive_cold() == (2, b"b" * 20_000)


def test_statistics_name_the_threads(make_rig: Callable[..., Rig]) -> None:
    rig = make_rig(processors=3, handlers=2)
    clients = [rig.client() for _ in range(6)]
    for i, client in enumerate(clients):
        client.send(cold_frame(b"x", i))
        assert client.receive_cold() == (i, b"x")
    figures = rig.server.statistics()["processors"]
    assert [p["name"] for p in figures] == [f"kafka-network-thread-{i}" for i in range(3)]
    assert [p["connections"] for p in figures] == [2, 2, 2], "handed out in turn"
    names = {h["name"] for h in rig.hot.statistics()["handlers"]}
    assert names == {"kafka-request-handler-0", "kafka-request-handler-1"}
    eventually(lambda: rig.total("responses") == 6)


def test_a_peer_that_went_away_after_its_request_has_no_bytes_waiting(
    make_rig: Callable[..., Rig],
) -> None:
    gate = Gate()
    rig = make_rig(dispatch=gate)
    client = rig.client()
    client.send(cold_frame(b"a", 1))
    gate.wait_for(1)
    client.close()
    # The neighbour's answer says that the network thread has been round since.
    neighbour = rig.client()
    neighbour.send(cold_frame(b"n"))
    gate.wait_for(2)
    gate.held.pop().respond(b"n")
    assert neighbour.receive_cold() == (1, b"n")
    gate.release()
    eventually(lambda: rig.total("connections") == 1, "the one that went away is closed")
    assert rig.total("muted_waits") == 0


def test_an_api_that_was_made_cold_comes_to_python_frame_by_frame_and_may_be_passed_on(
    rig: Rig,
) -> None:
    topic = rig.create("t")
    client = rig.client()
    came: list[tuple[int, int]] = []

    def pass_on(request: WrappedRequest) -> None:
        came.append((request.correlation_id, request.frames))
        assert rig.hot.pass_on(request) == ([], [])
        assert request.answered and request.frames == 0
        with pytest.raises(InvariantError):
            rig.hot.pass_on(request)

    rig.server.set_cold(ApiKey.PRODUCE)
    rig.dispatch = pass_on
    client.send(b"".join(produce_frames(topic, 12)))
    assert offsets_in_order(client, 12) == list(range(12))
    assert came == [(i, 1) for i in range(12)]
    assert rig.total("trains") == 0
    rig.server.set_hot(ApiKey.PRODUCE, 3, 13)
    behind_a_held_request(rig, client, b"".join(produce_frames(topic, 12)))
    assert offsets_in_order(client, 12) == list(range(12, 24))
    assert len(came) == 12 and rig.total("trains") == 1


def test_a_long_poll_that_was_passed_on_waits_for_its_record(rig: Rig) -> None:
    topic = rig.create("t")
    reader, writer = rig.client(), rig.client()

    def pass_on(request: WrappedRequest) -> None:
        cold, ticks = rig.hot.pass_on(request)
        assert cold == []
        rig.ticks.extend(ticks)

    rig.server.set_cold(ApiKey.FETCH)
    rig.dispatch = pass_on
    reader.send(fetch_frame(12, [Ask(topic)], max_wait_ms=600_000, min_bytes=1))
    rig.wait_parked(1)
    writer.send(produce_frames(topic, 1)[0])
    assert fetched_in(12, reader.receive()).only.records
