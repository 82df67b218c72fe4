"""The end of the network: answers on their way leave, nothing waits for ever."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable

import pytest

from tests.support.alone import delay
from tests.unit.net.harness import Gate, Rig, cold_frame, eventually

# A second for answers on their way and three for requests that are lent; the rest is this machine.
BOUND_S = 4 + 2


def test_an_idle_server_stops_at_once(make_rig: Callable[..., Rig]) -> None:
    rig = make_rig(processors=3, handlers=4)
    clients = [rig.client() for _ in range(10)]
    eventually(lambda: rig.total("connections") == 10)
    rig.stop()
    assert all(client.ended() for client in clients)
    with pytest.raises(OSError):
        socket.create_connection(("127.0.0.1", rig.port), timeout=1)


def test_a_request_in_service_is_answered_before_the_end(make_rig: Callable[..., Rig]) -> None:
    gate = Gate()
    rig = make_rig(dispatch=gate)
    client = rig.client()
    client.send(cold_frame(b"on its way", 4))
    gate.wait_for(1)
    gate.release()
    rig.stop()
    assert client.receive_cold() == (4, b"on its way")
    assert client.ended()


@pytest.mark.alone
def test_an_answer_that_nobody_reads_does_not_keep_the_broker(
    make_rig: Callable[..., Rig],
) -> None:
    rig = make_rig()
    rig.dispatch = lambda request: request.respond(b"x" * (30 << 20))
    deaf = rig.client(receive_bytes=4096)
    deaf.send(cold_frame())
    eventually(lambda: rig.total("sent_bytes") > 0, "an answer under way")
    began = time.monotonic()
    rig.stop()
    assert time.monotonic() - began < BOUND_S * delay()


@pytest.mark.alone
def test_a_request_that_is_never_answered_does_not_keep_the_broker(
    make_rig: Callable[..., Rig],
) -> None:
    gate = Gate()
    rig = make_rig(dispatch=gate)
    client = rig.client()
    client.send(cold_frame(b"lost"))
    gate.wait_for(1)
    began = time.monotonic()
    rig.stop()
    assert time.monotonic() - began < BOUND_S * delay()
    assert client.ended()
    # It comes back after everything has ended: nobody is hurt.
    assert gate.release() == 1


@pytest.mark.alone
def test_stop_at_once_waits_for_no_answer(make_rig: Callable[..., Rig]) -> None:
    rig = make_rig()
    rig.dispatch = lambda request: request.respond(b"x" * (30 << 20))
    deaf = rig.client(receive_bytes=4096)
    deaf.send(cold_frame())
    eventually(lambda: rig.total("sent_bytes") > 0, "an answer under way")
    began = time.monotonic()
    rig.stop(at_once=True)
    assert time.monotonic() - began < (BOUND_S - 4) * delay()


def test_stopping_twice_is_the_same_as_once(make_rig: Callable[..., Rig]) -> None:
    rig = make_rig()
    rig.stop()
    rig.server.stop()
    rig.server.stop_accepting()
