"""What does not keep the network from its end: bounds of time, alone on the machine."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from tests.support.alone import delay
from tests.unit.net.harness import Gate, Rig, cold_frame, eventually

pytestmark = pytest.mark.alone

# A second for answers on their way and three for requests that are lent; the rest is this machine.
BOUND_S = 4 + 2


def test_an_answer_that_is_not_read_does_not_keep_the_broker(
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
    # It comes back after everything has ended: nothing is hurt.
    assert gate.release() == 1


def test_stop_at_once_waits_for_no_answer(make_rig: Callable[..., Rig]) -> None:
    rig = make_rig()
    rig.dispatch = lambda request: request.respond(b"x" * (30 << 20))
    deaf = rig.client(receive_bytes=4096)
    deaf.send(cold_frame())
    eventually(lambda: rig.total("sent_bytes") > 0, "an answer under way")
    began = time.monotonic()
    rig.stop(at_once=True)
    assert time.monotonic() - began < (BOUND_S - 4) * delay()
