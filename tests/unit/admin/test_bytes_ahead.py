"""What a client sends before its answer is kept up to a bound, however it is read."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import uvicorn
from uvicorn.server import ServerState

from kbroker.admin.server import BoundedProtocol
from kbroker.limits import ADMIN_AHEAD_BYTES_MAX

REQUEST = b"GET /ui/topics HTTP/1.1\r\nHost: localhost\r\n\r\n"


class FakeTransport(asyncio.Transport):
    """It reads while it may and is not aborted."""

    def __init__(self) -> None:
        super().__init__({"peername": ("127.0.0.1", 5), "sockname": ("127.0.0.1", 9644)})
        self.aborted = False
        self.reads = True

    def write(self, data: Any) -> None: ...

    def close(self) -> None:
        self.reads = False

    def abort(self) -> None:
        self.aborted, self.reads = True, False

    def is_closing(self) -> bool:
        return self.aborted

    def get_write_buffer_size(self) -> int:
        return 0

    def pause_reading(self) -> None:
        self.reads = False

    def resume_reading(self) -> None:
        self.reads = not self.aborted


async def served(client: Callable[[BoundedProtocol, FakeTransport], Any], answers: bool) -> Any:
    """What the client gives. The application answers, or waits for the client to leave."""

    async def application(scope: Any, receive: Any, send: Any) -> None:
        await receive()
        await asyncio.sleep(0)
        if answers:
            await send({"type": "http.response.start", "status": 200, "headers": []})
            await send({"type": "http.response.body", "body": b"x"})
        while (await receive())["type"] != "http.disconnect":
            pass

    config = uvicorn.Config(application, ws="none", lifespan="off", log_config=None)
    config.load()
    protocol = BoundedProtocol(config, ServerState(), {})
    transport = FakeTransport()
    protocol.connection_made(transport)
    try:
        return await client(protocol, transport)
    finally:
        protocol.connection_lost(None)
        await asyncio.gather(*protocol.tasks)


def test_much_after_a_request_ends_the_connection() -> None:
    async def client(protocol: BoundedProtocol, transport: FakeTransport) -> list[bool]:
        protocol.data_received(REQUEST)
        await asyncio.sleep(0)
        protocol.data_received(b"x" * ADMIN_AHEAD_BYTES_MAX)
        before = transport.aborted
        protocol.data_received(b"x")
        return [before, transport.aborted]

    assert asyncio.run(served(client, answers=False)) == [False, True]


def test_requests_that_are_sent_faster_than_answered_do_not_pile_up() -> None:
    """Each answer lets more be read."""
    piece = REQUEST * 200

    async def client(protocol: BoundedProtocol, transport: FakeTransport) -> list[int]:
        held = []
        for _ in range(400):
            if transport.reads:
                protocol.data_received(piece)
            held.append(len(protocol.conn.trailing_data[0]))
            if transport.aborted:
                break
            await asyncio.sleep(0)
        return held

    held = asyncio.run(served(client, answers=True))
    assert len(held) < 400 and max(held) <= ADMIN_AHEAD_BYTES_MAX + len(piece)


def test_a_few_requests_at_once_are_answered() -> None:
    async def client(protocol: BoundedProtocol, transport: FakeTransport) -> int:
        protocol.data_received(REQUEST * 20)
        for _ in range(200):
            await asyncio.sleep(0)
        assert not transport.aborted
        return protocol.server_state.total_requests

    assert asyncio.run(served(client, answers=True)) == 20
