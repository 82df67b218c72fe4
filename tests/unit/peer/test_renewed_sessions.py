"""Sessions that end before their connection (KIP-368): `NetworkClient` renews them."""

from __future__ import annotations

import asyncio

import pytest

from kbroker.errors import ErrorCode
from kbroker.peer.network_client import NetworkClient
from kbroker.security.client_login import ClientLogin
from tests.unit.peer.test_network_client import (
    BODY,
    METADATA,
    VERSION,
    Server,
    advance,
    client,
    respond,
    run,
    send,
    until,
)

HANDSHAKE, AUTHENTICATE = b"\x00\x11", b"\x00\x24"


async def let_in(server: Server, lifetime_ms: int, *, code: int = 0) -> None:
    """Answers SaslHandshake and the one token of PLAIN."""
    frame, writer = await server.frames.get()
    assert frame[:2] == HANDSHAKE
    respond(writer, frame, b"\x00\x00" + b"\x00\x00\x00\x00")
    frame, writer = await server.frames.get()
    assert frame[:4] == AUTHENTICATE + b"\x00\x01"
    answer = code.to_bytes(2, "big") + b"\xff\xff" + b"\x00\x00\x00\x00"
    respond(writer, frame, answer + lifetime_ms.to_bytes(8, "big"))


async def logged_in(server: Server, lifetime_ms: int) -> NetworkClient:
    network = client(login=ClientLogin("PLAIN", "alice", "pw"))
    ready = asyncio.ensure_future(network.wait_ready(server.address))
    await let_in(server, lifetime_ms)
    await ready
    return network


def test_a_session_is_renewed_before_it_ends() -> None:
    async def scenario(server: Server) -> None:
        network = await logged_in(server, 10_000)
        for _ in range(3):
            await advance(8.4)
            assert network.ready(server.address) and server.frames.empty()
            before = send(network, server.address)
            assert before is not None
            frame, writer = await server.frames.get()
            await advance(0.2)
            # The request before is answered first, and no other is sent meanwhile.
            assert not network.ready(server.address)
            assert send(network, server.address) is None
            later = asyncio.ensure_future(network.call(server.address, METADATA, VERSION, BODY))
            respond(writer, frame, b"\x00\x00\x00\x01")
            assert (await before).int32() == 1
            await let_in(server, 10_000)
            frame, writer = await server.frames.get()
            assert frame[:2] == b"\x00\x03"
            respond(writer, frame, b"\x00\x00\x00\x02")
            assert (await later).int32() == 2
        assert len(server.connections) == 1
        await network.close()

    run(scenario, sasl=True)


def test_a_renewal_that_is_refused_ends_the_connection() -> None:
    async def scenario(server: Server) -> None:
        network = await logged_in(server, 10_000)
        await advance(8.6)
        await let_in(server, 0, code=ErrorCode.SASL_AUTHENTICATION_FAILED)
        await until(lambda: network.last_error(server.address))
        error = network.last_error(server.address)
        assert error is not None and error.code is ErrorCode.SASL_AUTHENTICATION_FAILED
        assert not network.ready(server.address)
        await network.close()

    run(scenario, sasl=True)


def test_a_renewal_that_raises_anything_ends_the_connection(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It sends nothing while it is authenticated again."""

    async def scenario(server: Server) -> None:
        network = await logged_in(server, 10_000)

        async def broken(*_: object) -> int:
            raise ValueError("a name or password for PLAIN has no NUL")

        monkeypatch.setattr("kbroker.peer.network_client.log_in", broken)
        await advance(8.6)
        await until(lambda: network.last_error(server.address))
        error = network.last_error(server.address)
        assert error is not None and "has no NUL" in error.message
        monkeypatch.undo()
        await advance(2)
        ready = asyncio.ensure_future(network.wait_ready(server.address))
        await let_in(server, 0)
        await ready
        await network.close()

    run(scenario, sasl=True)


def test_a_session_without_an_end_is_not_renewed() -> None:
    async def scenario(server: Server) -> None:
        network = await logged_in(server, 0)
        await advance(1e6)
        assert server.frames.empty() and network.ready(server.address)
        await network.close()

    run(scenario, sasl=True)


def test_a_connection_that_is_lost_is_not_renewed() -> None:
    async def scenario(server: Server) -> None:
        network = await logged_in(server, 10_000)
        server.connections[0].transport.abort()
        await until(lambda: network.last_error(server.address))
        await advance(9)
        assert server.frames.empty()
        await network.close()

    run(scenario, sasl=True)
