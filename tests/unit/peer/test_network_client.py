"""Connections of the peer client: order, bounds, time-outs, back-off. Time is turned by hand.

The other side is a scripted server in the same loop: it answers ApiVersions by itself and hands
every other frame to the test, which decides what comes back and when.
"""

from __future__ import annotations

import asyncio
import random
import threading
import time
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any
from unittest import mock

import pytest

from kbroker.errors import ErrorCode, KafkaError
from kbroker.peer.address import Address
from kbroker.peer.connection import NetworkClientOptions
from kbroker.peer.network_client import NetworkClient
from kbroker.protocol.wire import Reader
from kbroker.security.client_login import ClientLogin
from kbroker.types import ApiKey
from lab.ports import free_port

METADATA = ApiKey.METADATA
VERSION = 8  # header v1, response header v0
BODY = b"\x00\x00\x00\x00"


class ManualLoop(asyncio.SelectorEventLoop):
    """`time()` does not move until `advance`."""

    def __init__(self) -> None:
        super().__init__()
        self.now_s = 1000.0

    def time(self) -> float:
        return self.now_s if hasattr(self, "now_s") else 0.0


async def settle() -> None:
    """Lets everything that is ready run; loopback delivers within a turn of the selector."""
    for _ in range(20):
        await asyncio.sleep(0)


async def until(condition: Callable[[], object]) -> None:
    """What a socket brings, in real time: the loop's does not move."""
    give_up, pause = time.monotonic() + 60, threading.Event()
    while not condition():
        assert time.monotonic() < give_up
        pause.wait(0.001)
        await asyncio.sleep(0)


async def advance(seconds: float) -> None:
    loop = asyncio.get_running_loop()
    assert isinstance(loop, ManualLoop)
    loop.now_s += seconds
    await settle()


class Server:
    """Frames as they come; `connections` are the writers, oldest first."""

    def __init__(self, *, versions: bool = True, sasl: bool = False) -> None:
        self.frames: asyncio.Queue[tuple[bytes, asyncio.StreamWriter]] = asyncio.Queue()
        self.connections: list[asyncio.StreamWriter] = []
        self.negotiations = 0
        self._versions, self._sasl = versions, sasl
        self._server: asyncio.Server | None = None
        self.address = Address("127.0.0.1", 0)

    async def start(self, port: int = 0) -> None:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", port)
        self.address = Address("127.0.0.1", self._server.sockets[0].getsockname()[1])

    async def stop(self) -> None:
        assert self._server is not None
        self._server.close()
        for writer in self.connections:
            writer.transport.abort()
        await settle()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections.append(writer)
        try:
            while True:
                size = int.from_bytes(await reader.readexactly(4), "big")
                frame = await reader.readexactly(size)
                if frame[:2] == b"\x00\x12" and self._versions:
                    self.negotiations += 1
                    respond(writer, frame, versions_body(3, sasl=self._sasl))
                else:
                    self.frames.put_nowait((frame, writer))
        except (asyncio.IncompleteReadError, ConnectionError):
            pass  # the client closed


def versions_body(version: int, *, sasl: bool = False) -> bytes:
    if sasl:
        listed = b"".join(
            api.to_bytes(2, "big") + b"\0\0" + highest.to_bytes(2, "big") + b"\0"
            for api, highest in ((3, 8), (17, 1), (36, 1))
        )
        return b"\x00\x00" + b"\x04" + listed + b"\x00\x00\x00\x00" + b"\x00"
    if version == 0:
        return b"\x00\x00" + b"\x00\x00\x00\x01" + b"\x00\x03\x00\x00\x00\x08"
    return b"\x00\x00" + b"\x02" + b"\x00\x03\x00\x00\x00\x08\x00" + b"\x00\x00\x00\x00" + b"\x00"


def respond(writer: asyncio.StreamWriter, frame: bytes, body: bytes) -> None:
    answer = frame[4:8] + body
    writer.write(len(answer).to_bytes(4, "big") + answer)


def run(scenario: Callable[[Server], Awaitable[None]], **server: Any) -> None:
    loop = ManualLoop()

    async def main() -> None:
        fake = Server(**server)
        await fake.start()
        try:
            await scenario(fake)
        finally:
            await fake.stop()

    try:
        loop.run_until_complete(main())
    finally:
        loop.close()


def client(**options: Any) -> NetworkClient:
    return NetworkClient(NetworkClientOptions(**options), jitter=random.Random(7))


def send(network: NetworkClient, address: Address) -> asyncio.Future[Reader] | None:
    return network.try_send(address, METADATA, VERSION, BODY)


async def must_send(network: NetworkClient, address: Address) -> asyncio.Future[Reader]:
    await network.wait_ready(address)
    future = send(network, address)
    assert future is not None
    return future


def test_a_new_node_is_skipped_until_its_connection_is_negotiated() -> None:
    async def scenario(server: Server) -> None:
        network = client()
        assert send(network, server.address) is None
        await network.wait_ready(server.address)
        assert network.version(server.address, METADATA, 4, 12) == 8
        with pytest.raises(KafkaError) as raised:
            network.version(server.address, METADATA, 9, 12)
        assert raised.value.code is ErrorCode.UNSUPPORTED_VERSION
        with pytest.raises(KafkaError):
            network.version(server.address, ApiKey.FETCH, 4, 12)
        assert server.negotiations == 1
        await network.close()

    run(scenario)


def test_the_frame_and_the_response() -> None:
    async def scenario(server: Server) -> None:
        network = client(client_id="tést")
        future = await must_send(network, server.address)
        frame, writer = await server.frames.get()
        assert frame[:4] == b"\x00\x03\x00\x08"
        assert frame[8:] == b"\x00\x05" + "tést".encode() + BODY
        respond(writer, frame, b"\x00\x00\x00\x2a")
        assert (await future).int32() == 42
        flexible = network.try_send(server.address, METADATA, 9, b"body")
        assert flexible is not None
        frame, writer = await server.frames.get()
        assert frame[8:] == b"\x00\x05" + "tést".encode() + b"\x00" + b"body"
        # A response header with one unknown tagged field: it is skipped.
        respond(writer, frame, b"\x01\x07\x02ab" + b"\x00\x00\x00\x2b")
        assert (await flexible).int32() == 43
        await network.close()

    run(scenario)


def test_a_full_connection_is_skipped_and_room_wakes_a_waiter() -> None:
    async def scenario(server: Server) -> None:
        network = client()
        futures = [await must_send(network, server.address) for _ in range(5)]
        assert not network.ready(server.address)
        assert send(network, server.address) is None
        assert network.in_flight(server.address) == 5
        sixth = asyncio.ensure_future(network.call(server.address, METADATA, VERSION, BODY))
        await until(lambda: server.frames.qsize() == 5)
        assert network.statistics().waiting == 1
        frame, writer = await server.frames.get()
        respond(writer, frame, b"\x00\x00\x00\x01")
        assert (await futures[0]).int32() == 1
        for number in range(2, 7):
            frame, writer = await server.frames.get()
            respond(writer, frame, number.to_bytes(4, "big"))
        assert (await sixth).int32() == 6
        assert [(await future).int32() for future in futures[1:]] == [2, 3, 4, 5]
        assert network.statistics().waiting == 0
        await network.close()

    run(scenario)


def test_waiting_callers_are_bounded() -> None:
    async def scenario(server: Server) -> None:
        network = client(in_flight_max=1, waiting_max=2)
        await must_send(network, server.address)
        calls = [
            asyncio.ensure_future(network.call(server.address, METADATA, VERSION, BODY))
            for _ in range(2)
        ]
        await settle()
        with pytest.raises(KafkaError, match="2 requests wait"):
            await network.call(server.address, METADATA, VERSION, BODY)
        await network.close()
        for result in await asyncio.gather(*calls, return_exceptions=True):
            assert isinstance(result, KafkaError)

    run(scenario)


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param(lambda frame: b"\x00\x00\x00\x04\x7f\x00\x00\x00", id="correlation id"),
        pytest.param(lambda frame: b"\x00\x00\x00\x03abc", id="too short"),
        pytest.param(lambda frame: b"\xff\xff\xff\xff", id="negative size"),
        pytest.param(lambda frame: b"\x7f\xff\xff\xff", id="too large"),
    ],
)
def test_a_response_that_cannot_be_trusted_ends_the_connection(
    answer: Callable[[bytes], bytes],
) -> None:
    async def scenario(server: Server) -> None:
        network = client()
        first = await must_send(network, server.address)
        second = await must_send(network, server.address)
        frame, writer = await server.frames.get()
        writer.write(answer(frame))
        for future in (first, second):
            with pytest.raises(KafkaError) as raised:
                await future
            assert raised.value.code is ErrorCode.NETWORK_EXCEPTION
        assert network.statistics().disconnects == 1
        assert network.connection_delay_ms(server.address) > 0
        await network.close()

    run(scenario)


def test_an_unrequested_response_ends_the_connection() -> None:
    async def scenario(server: Server) -> None:
        network = client()
        await network.wait_ready(server.address)
        server.connections[0].write(b"\x00\x00\x00\x04\x00\x00\x00\x01")
        await until(lambda: network.statistics().connections == 0)
        await network.close()

    run(scenario)


def test_responses_in_pieces_and_many_at_once() -> None:
    async def scenario(server: Server) -> None:
        network = client()
        futures = [await must_send(network, server.address) for _ in range(3)]
        wire = b""
        for number in range(3):
            frame, writer = await server.frames.get()
            wire += b"\x00\x00\x00\x08" + frame[4:8] + number.to_bytes(4, "big")
        for at in range(len(wire) - 12):  # the first two byte by byte, the last one whole
            writer.write(wire[at : at + 1])
            await settle()
        await until(futures[1].done)
        assert not futures[2].done()
        writer.write(wire[-12:])
        assert [(await future).int32() for future in futures] == [0, 1, 2]
        await network.close()

    run(scenario)


def test_a_late_request_ends_the_connection_with_everything_on_it() -> None:
    async def scenario(server: Server) -> None:
        network = client(request_timeout_ms=2000)
        late = await must_send(network, server.address)
        await advance(1.0)
        sent_late = await must_send(network, server.address)
        await advance(0.9)
        assert not late.done()
        await advance(0.2)
        with pytest.raises(KafkaError) as raised:
            await late
        assert raised.value.code is ErrorCode.REQUEST_TIMED_OUT
        with pytest.raises(KafkaError) as raised:
            await sent_late
        assert raised.value.code is ErrorCode.NETWORK_EXCEPTION
        statistics = network.statistics()
        assert (statistics.requests_timed_out, statistics.disconnects) == (1, 1)
        await network.close()

    run(scenario)


def test_an_answered_request_stops_its_clock() -> None:
    async def scenario(server: Server) -> None:
        network = client(request_timeout_ms=2000)
        future = await must_send(network, server.address)
        frame, writer = await server.frames.get()
        respond(writer, frame, BODY)
        await future
        await advance(60)
        assert network.statistics().connections == 1
        await network.close()

    run(scenario)


def test_an_abandoned_request_still_keeps_its_place_in_the_order() -> None:
    async def scenario(server: Server) -> None:
        network = client()
        first = await must_send(network, server.address)
        second = await must_send(network, server.address)
        first.cancel()
        for number in (1, 2):
            frame, writer = await server.frames.get()
            respond(writer, frame, number.to_bytes(4, "big"))
        assert (await second).int32() == 2
        await network.close()

    run(scenario)


def test_a_request_without_a_response_takes_no_place() -> None:
    async def scenario(server: Server) -> None:
        network = client(in_flight_max=1)
        await network.wait_ready(server.address)
        for _ in range(3):
            future = network.try_send(
                server.address, METADATA, VERSION, BODY, expects_response=False
            )
            assert future is not None and future.done()
        assert network.in_flight(server.address) == 0
        assert len({(await server.frames.get())[0][4:8] for _ in range(3)}) == 3
        await network.close()

    run(scenario)


def refused_address() -> Address:
    return Address("127.0.0.1", free_port())


def test_back_off_grows_with_jitter_to_its_maximum_and_is_kept() -> None:
    async def scenario(server: Server) -> None:
        network = client(reconnect_backoff_ms=100, reconnect_backoff_max_ms=1000)
        nowhere = refused_address()
        delays = []
        for attempt in range(1, 8):
            with pytest.raises(KafkaError, match="refused"):
                await network.wait_ready(nowhere, fail_fast=True)
            assert network.statistics().connects_failed == attempt
            assert not network.ready(nowhere), "within the back-off nothing is tried"
            await settle()
            assert network.statistics().connects_failed == attempt
            delays.append(network.connection_delay_ms(nowhere))
            await advance(delays[-1] / 1000 + 0.002)
        for delay, plain in zip(delays, [100, 200, 400, 800, 1000, 1000, 1000], strict=True):
            assert 0.8 * plain - 1 <= delay <= 1.2 * plain + 1
        assert len(set(delays[4:])) > 1, "jitter"
        assert isinstance(network.last_error(nowhere), KafkaError)
        await network.close()

    run(scenario)


def test_a_connection_that_works_resets_the_back_off() -> None:
    async def scenario(server: Server) -> None:
        network = client(reconnect_backoff_ms=100, reconnect_backoff_max_ms=10_000)
        nowhere = refused_address()
        for _ in range(5):
            with pytest.raises(KafkaError):
                await network.wait_ready(nowhere, fail_fast=True)
            await advance(network.connection_delay_ms(nowhere) / 1000 + 0.002)
        late = Server()
        await late.start(nowhere.port)
        await network.wait_ready(nowhere)
        assert network.last_error(nowhere) is None
        late.connections[0].transport.abort()
        await until(lambda: network.connection_delay_ms(nowhere) > 0)
        assert 79 <= network.connection_delay_ms(nowhere) <= 121
        await late.stop()
        await network.close()

    run(scenario)


def test_a_waiter_is_served_after_the_back_off() -> None:
    async def scenario(server: Server) -> None:
        network = client(reconnect_backoff_ms=100)
        await network.wait_ready(server.address)
        server.connections[0].transport.abort()
        await until(lambda: network.connection_delay_ms(server.address) > 0)
        call = asyncio.ensure_future(network.call(server.address, METADATA, VERSION, BODY))
        await settle()
        assert len(server.connections) == 1
        await advance(0.13)
        frame, writer = await server.frames.get()
        respond(writer, frame, BODY)
        await call
        assert len(server.connections) == 2
        await network.close()

    run(scenario)


def test_a_timer_that_rings_early_wakes_the_waiting_call() -> None:
    """uvloop's do, by part of a millisecond: the waiter is not woken again."""

    async def scenario(server: Server) -> None:
        network = client(reconnect_backoff_ms=100)
        loop = asyncio.get_running_loop()
        await network.wait_ready(server.address)
        timers: list[Callable[[], object]] = []
        with mock.patch.object(
            loop, "call_at", lambda when, call, *of: timers.append(partial(call, *of))
        ):
            server.connections[0].transport.abort()
            await until(lambda: timers)
        call = asyncio.ensure_future(network.call(server.address, METADATA, VERSION, BODY))
        await settle()
        (ring,) = timers
        ring()  # the loop's time is what it was
        await settle()
        frame, writer = await server.frames.get()
        respond(writer, frame, BODY)
        await call
        await network.close()

    run(scenario)


def test_waiting_ends_at_its_deadline_with_the_reason() -> None:
    async def scenario(server: Server) -> None:
        network = client(reconnect_backoff_ms=100)
        waiting = asyncio.ensure_future(network.wait_ready(refused_address(), timeout_ms=500))
        await until(lambda: network.statistics().connects_failed)  # or there is no reason yet
        for _ in range(12):
            await settle()
            await advance(0.05)
        with pytest.raises(KafkaError, match="refused") as raised:
            await waiting
        assert raised.value.code is ErrorCode.REQUEST_TIMED_OUT
        await network.close()

    run(scenario)


def test_a_peer_that_never_answers_apiversions() -> None:
    async def scenario(server: Server) -> None:
        network = client(connection_setup_timeout_ms=500)
        waiting = asyncio.ensure_future(network.wait_ready(server.address, fail_fast=True))
        await server.frames.get()
        await advance(0.6)
        with pytest.raises(KafkaError):
            await waiting
        assert network.statistics().connects_failed == 1
        await network.close()

    run(scenario, versions=False)


def test_a_peer_that_knows_only_the_oldest_apiversions() -> None:
    async def scenario(server: Server) -> None:
        network = client()
        waiting = asyncio.ensure_future(network.wait_ready(server.address))
        frame, writer = await server.frames.get()
        assert frame[:4] == b"\x00\x12\x00\x03"
        respond(writer, frame, b"\x00\x23\x00\x00\x00\x00")
        frame, writer = await server.frames.get()
        assert frame[:4] == b"\x00\x12\x00\x00"
        respond(writer, frame, versions_body(0))
        await waiting
        assert network.version(server.address, METADATA, 0, 12) == 8
        await network.close()

    run(scenario, versions=False)


@pytest.mark.parametrize("body", [b"", b"\x00\x00\xff\xff\xff\xff\x0f", b"\x00\x1d\x01"])
def test_a_malformed_or_refused_apiversions(body: bytes) -> None:
    async def scenario(server: Server) -> None:
        network = client()
        waiting = asyncio.ensure_future(network.wait_ready(server.address, fail_fast=True))
        frame, writer = await server.frames.get()
        respond(writer, frame, body)
        with pytest.raises(KafkaError):
            await waiting
        assert network.statistics().connections == 0
        await network.close()

    run(scenario, versions=False)


def test_close_fails_requests_in_flight_and_refuses_more() -> None:
    async def scenario(server: Server) -> None:
        network = client()
        future = await must_send(network, server.address)
        await network.close()
        with pytest.raises(KafkaError):
            await future
        with pytest.raises(KafkaError, match="closed"):
            network.ready(server.address)
        assert network.statistics().connections == 0

    run(scenario)


def test_forget_drops_a_node_with_its_back_off() -> None:
    async def scenario(server: Server) -> None:
        network = client()
        future = await must_send(network, server.address)
        network.forget(server.address)
        network.forget(server.address)
        with pytest.raises(KafkaError, match="left the cluster"):
            await future
        assert network.connection_delay_ms(server.address) == 0
        await network.wait_ready(server.address)
        assert len(server.connections) == 2
        await network.close()

    run(scenario)


def test_addresses_print_as_they_are_written() -> None:
    assert str(Address("::1", 9092)) == "[::1]:9092"
    assert str(Address("localhost", 9092)) == "localhost:9092"


def test_a_login_that_raises_anything_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    async def broken(*_: object) -> None:
        raise ValueError("a name or password for PLAIN has no NUL")

    monkeypatch.setattr("kbroker.peer.network_client.log_in", broken)

    async def scenario(server: Server) -> None:
        network = client(login=ClientLogin("PLAIN", "a", "b"))
        for times in (1, 2, 3):
            assert not network.ready(server.address)
            await until(lambda times=times: len(server.connections) == times)  # type: ignore[misc]
            await until(lambda: network.connection_delay_ms(server.address) > 0)
            error = network.last_error(server.address)
            assert error is not None and "has no NUL" in error.message
            await advance(2)
        await network.close()

    run(scenario)
