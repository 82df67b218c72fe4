"""How connections end: half-closed, reset, idle, and with answers that are not read."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Callable

import pytest

from tests.unit.engine.wire import produce_frame
from tests.unit.net.harness import (
    COLD_KEY,
    Gate,
    Rig,
    cold_frame,
    eventually,
    framed,
    header,
)


def gone(rig: Rig) -> None:
    eventually(lambda: rig.total("connections") == 0, "the connection stays")


def test_a_client_that_has_ended_its_side_gets_its_answers_first(
    make_rig: Callable[..., Rig],
) -> None:
    gate = Gate()
    rig = make_rig(dispatch=gate)
    client = rig.client()
    client.send(cold_frame(b"a", 1) + cold_frame(b"b", 2))
    client.end_sending()
    for expected in ((1, b"a"), (2, b"b")):
        gate.wait_for(1)
        gate.release()
        assert client.receive_cold() == expected
    assert client.ended()
    gone(rig)


@pytest.mark.parametrize("pipelined", [True, False])
def test_the_end_right_after_the_last_bytes_is_seen(
    make_rig: Callable[..., Rig], pipelined: bool
) -> None:
    # Bytes and FIN arrive while the network thread is busy with something else: one edge for both.
    rig = make_rig(pipelined=pipelined)
    busy = rig.client()
    for _ in range(200):
        client = rig.client()
        busy.send(cold_frame(b"x" * 50_000))
        client.send(cold_frame(b"bye")[:-1])  # never a whole frame, so nothing is ever sent to it
        client.close()
        busy.receive_cold()
    eventually(lambda: rig.total("connections") == 1, "an ended connection is still there")


def test_half_a_frame_and_the_end(rig: Rig) -> None:
    client = rig.client()
    client.send(cold_frame(b"never")[:-1])
    client.end_sending()
    assert client.ended()
    assert rig.total("requests") == 0
    gone(rig)


def test_a_reset_while_a_request_is_in_service(make_rig: Callable[..., Rig]) -> None:
    gate = Gate()
    rig = make_rig(dispatch=gate)
    client = rig.client()
    client.send(cold_frame(b"a"))
    gate.wait_for(1)
    client.reset()
    gone(rig)
    # The answer comes late; the memory of the connection has waited for it.
    gate.release()
    neighbour = rig.client()
    neighbour.send(cold_frame(b"b"))
    gate.wait_for(1)
    gate.release()
    assert neighbour.receive_cold() == (1, b"b")


def test_a_reset_in_the_middle_of_an_answer(rig: Rig) -> None:
    rig.dispatch = lambda request: request.respond(b"x" * (30 << 20))
    client = rig.client(receive_bytes=4096)
    client.send(cold_frame())
    assert client.read(1000)
    eventually(lambda: rig.total("sent_bytes") > 1000, "an answer under way")
    client.reset()
    gone(rig)
    assert rig.total("responses") == 0


def test_a_connection_that_is_dropped_unanswered_ends(make_rig: Callable[..., Rig]) -> None:
    gate = Gate()
    rig = make_rig(dispatch=gate)
    client = rig.client()
    client.send(cold_frame())
    gate.wait_for(1)
    gate.held.clear()  # it will never be answered
    assert client.ended()


def test_close_connection_sends_earlier_answers(make_rig: Callable[..., Rig]) -> None:
    rig = make_rig()
    rig.dispatch = lambda request: (
        request.close_connection("enough") if request.body == b"end" else request.respond(b"ok")
    )
    client = rig.client()
    client.send(cold_frame(b"a", 1) + cold_frame(b"end", 2) + cold_frame(b"b", 3))
    assert client.receive_cold() == (1, b"ok")
    assert client.ended()


def test_idle_connections_are_closed(
    make_rig: Callable[..., Rig],
) -> None:
    rig = make_rig(idle_ms_max=1500)
    first, second = rig.client(), rig.client()
    ended = []

    def watch(name: str, client_socket: socket.socket) -> None:
        client_socket.recv(1)
        ended.append(name)

    for client in (first, second):
        client.send(cold_frame(b"hello"))
        client.receive_cold()
    watchers = [
        threading.Thread(target=watch, args=("first", first.socket)),
        threading.Thread(target=watch, args=("second", second.socket)),
    ]
    for watcher in watchers:
        watcher.start()
    for watcher in watchers:
        watcher.join()
    assert rig.total("idle_closed") == 2
    assert sorted(ended) == ["first", "second"]


def test_a_connection_in_use_is_not_idle(make_rig: Callable[..., Rig]) -> None:
    rig = make_rig(idle_ms_max=3000)
    used, idle = rig.client(), rig.client()
    eventually(lambda: rig.total("connections") == 2, "both are there")
    idle.socket.settimeout(0.05)
    ended = False
    while not ended:
        used.send(cold_frame(b"still here"))
        used.receive_cold()
        try:
            ended = idle.socket.recv(1) == b""
        except TimeoutError:
            continue
    used.send(cold_frame(b"last"))
    assert used.receive_cold() == (1, b"last")
    assert rig.total("idle_closed") == 1


def test_a_client_that_never_reads_is_bounded_and_alone(rig: Rig) -> None:
    rig.dispatch = lambda request: request.respond(b"x" * 100_000)
    deaf = rig.client(receive_bytes=4096)
    deaf.socket.setblocking(False)
    neighbour = rig.client()
    frame = cold_frame(b"y" * 1000)
    stuck = 0
    while stuck < 3:
        before = rig.total("requests")
        try:
            for _ in range(200):
                deaf.socket.send(frame)
        except BlockingIOError:
            pass
        # Each round the neighbour is served as if it were alone.
        neighbour.send(cold_frame(b"n"))
        assert len(neighbour.receive_cold()[1]) == 100_000
        stuck = stuck + 1 if rig.total("requests") == before + 1 else 0
    figures = rig.server.statistics()
    assert figures["queued_requests"] == 0
    # Its answers wait for it, and it is not read until they have left.
    eventually(lambda: rig.total("requests") - rig.total("responses") <= 64, "64 at most wait")


def test_every_end_is_counted_by_its_cause(rig: Rig) -> None:
    topic = rig.create("t")
    frames = {
        "a frame size out of bounds": struct.pack(">i", -1),
        "a request header that does not parse": framed(struct.pack(">hhih", COLD_KEY, 0, 1, 99)),
        "a Produce or Fetch that does not parse": framed(header(0, 3) + b"\xff"),
        "an error in a Produce with acks=0": produce_frame(9, [(topic, {7: b"x"})], acks=0),
    }
    for expected, (cause, frame) in enumerate(frames.items(), start=1):
        client = rig.client()
        client.send(frame)
        assert client.ended()
        eventually(lambda cause=cause: rig.server.closes()[cause] == 1, cause)
        assert sum(rig.server.closes().values()) == expected
    rig.dispatch = lambda request: request.close_connection("closed by its handler")
    client = rig.client()
    client.send(cold_frame())
    assert client.ended()
    assert sum(rig.server.closes().values()) == len(frames)
