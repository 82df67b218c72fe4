"""The idle meters of network threads and handlers: near 1 when idle, down when there is work.

A meter is a share of time, so these tests let real time pass. Work is looked for in window after
window, and one that shows it is enough. Rest is measured from its beginning on, since a thread
that sleeps counts its sleep when it wakes, which moves a tenth of a second or three from one window
into the next: the longer, the less that is. Both fail when nothing shows before the deadline. They
are alone: on a machine that is full of other work theirs does not fill it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from kbroker._net import WrappedRequest
from tests.support.record_batches import build_batch
from tests.unit.engine.wire import Ask, fetch_frame, produce_frame
from tests.unit.net.harness import DEADLINE_S, Client, Rig, cold_frame, eventually

pytestmark = pytest.mark.alone

WINDOW_NS = 700_000_000
REST = 0.8


class Meter:
    """Idle shares of window after window, or since the meter was made; for `eventually`."""

    def __init__(self, rig: Rig) -> None:
        self._rig = rig
        self._first = self._last = self._sample()

    def _sample(self) -> tuple[int, int, int]:
        network = sum(p["idle_ns"] for p in self._rig.server.statistics()["processors"])
        handlers = sum(h["idle_ns"] for h in self._rig.hot.statistics()["handlers"])
        return time.monotonic_ns(), network, handlers

    def window(self, satisfies: Callable[[float, float], bool]) -> bool:
        """Whether the window that ends now satisfies; False while it is too short."""
        shares = self._shares(self._last)
        if shares is None:
            return False
        self._last = self._sample()
        return satisfies(*shares)

    def whole(self, satisfies: Callable[[float, float], bool]) -> bool:
        """Whether all the time since the meter was made does."""
        shares = self._shares(self._first)
        return shares is not None and satisfies(*shares)

    def _shares(self, since: tuple[int, int, int]) -> tuple[float, float] | None:
        now = self._sample()
        elapsed_ns = now[0] - since[0]
        if elapsed_ns < WINDOW_NS:
            return None
        return (now[1] - since[1]) / elapsed_ns, (now[2] - since[2]) / elapsed_ns


@contextmanager
def blasting(rig: Rig, frame: bytes, connections: int) -> Iterator[None]:
    """Connections that send a frame over and over and throw the answers away."""
    stop = threading.Event()
    data = frame * (100_000 // len(frame))

    def send(client: Client) -> None:
        try:
            while not stop.is_set():
                client.socket.sendall(data)
        except OSError:
            return  # reset at the end

    def receive(client: Client) -> None:
        room = bytearray(1 << 18)
        try:
            while client.socket.recv_into(room):
                pass
        except OSError:
            return

    clients = [rig.client() for _ in range(connections)]
    threads = [
        threading.Thread(target=work, args=(client,))
        for client in clients
        for work in (send, receive)
    ]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        stop.set()
        for client in clients:
            client.socket.shutdown(2)
        for thread in threads:
            thread.join(DEADLINE_S)
        for client in clients:
            client.reset()


def test_both_are_near_one_without_work(rig: Rig) -> None:
    meter = Meter(rig)
    eventually(lambda: meter.whole(lambda net, handlers: net > REST and handlers > REST), "idle")


def test_the_network_meter_falls_under_small_requests(rig: Rig) -> None:
    frame = fetch_frame(12, [Ask(rig.create("t"), 9)])
    meter = Meter(rig)
    with blasting(rig, frame, 16):
        eventually(lambda: meter.window(lambda net, _: net < 0.5), "network threads are busy")


def test_the_handler_meter_falls_under_trains(rig: Rig) -> None:
    # Each of 4,000 records is walked, so a handler has more to do than those who bring it work.
    frame = produce_frame(9, [(rig.create("t"), {0: build_batch([b"x"] * 4_000)})], acks=0)
    meter = Meter(rig)
    with blasting(rig, frame, 2):
        eventually(lambda: meter.window(lambda _, handlers: handlers < 0.1), "handlers are busy")


def test_the_handler_meter_of_a_pool_falls_too(make_rig: Callable[..., Rig]) -> None:
    # One handler at a time serves what is hot, so the others sleep; they are not idle meanwhile.
    rig = make_rig(handlers=8)
    frame = produce_frame(9, [(rig.create("t"), {0: build_batch([b"x"] * 4_000)})], acks=0)
    meter = Meter(rig)
    with blasting(rig, frame, 2):
        eventually(lambda: meter.window(lambda _, handlers: handlers / 8 < 0.1), "all are busy")
    rest = Meter(rig)
    eventually(lambda: rest.whole(lambda _, handlers: handlers / 8 > REST), "and idle again")


def test_time_in_python_is_not_idle(make_rig: Callable[..., Rig]) -> None:
    inside, go_on = threading.Event(), threading.Event()

    def dispatch(request: WrappedRequest) -> None:
        inside.set()
        assert go_on.wait(DEADLINE_S)
        request.respond(b"")

    rig = make_rig(dispatch=dispatch)
    client = rig.client()
    client.send(cold_frame())
    assert inside.wait(DEADLINE_S)
    meter = Meter(rig)
    eventually(lambda: meter.window(lambda _, handlers: handlers == 0.0), "the only one is busy")
    go_on.set()
    assert client.receive_cold() == (1, b"")
    rest = Meter(rig)
    eventually(lambda: rest.whole(lambda _, handlers: handlers > REST), "and idle again")
