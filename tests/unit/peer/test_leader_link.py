"""One connection to a leader: answered, refused, lost and found again. Time is turned by hand."""

from __future__ import annotations

import asyncio

import pytest

from kbroker.errors import ErrorCode, KafkaError
from kbroker.peer.connection import NetworkClientOptions
from kbroker.peer.leader_link import LeaderLink
from tests.unit.peer.test_network_client import (
    BODY,
    METADATA,
    VERSION,
    Server,
    advance,
    respond,
    run,
    settle,
)

OPTIONS = NetworkClientOptions(in_flight_max=1)


async def answered(server: Server, link: LeaderLink, body: bytes) -> bytes:
    """The next call, answered by the server."""
    call = asyncio.ensure_future(link.call(METADATA, VERSION, BODY))
    frame, writer = await server.frames.get()
    respond(writer, frame, body)
    reader = await call
    return reader.raw(reader.left)


def test_a_call_connects_and_is_answered() -> None:
    async def scenario(server: Server) -> None:
        link = LeaderLink(server.address, OPTIONS)
        assert await answered(server, link, b"one") == b"one"
        assert await answered(server, link, b"two") == b"two"
        assert len(server.connections) == 1
        await link.close()

    run(scenario)


def test_a_lost_connection_is_notified_at_once_and_found_again() -> None:
    async def scenario(server: Server) -> None:
        link = LeaderLink(server.address, OPTIONS)
        call = asyncio.ensure_future(link.call(METADATA, VERSION, BODY))
        await server.frames.get()
        server.connections[0].transport.abort()
        with pytest.raises(KafkaError) as caught:
            await call
        assert caught.value.code is ErrorCode.NETWORK_EXCEPTION
        with pytest.raises(KafkaError):  # its pause has only begun
            await link.call(METADATA, VERSION, BODY)
        await advance(1)
        assert await answered(server, link, b"again") == b"again"
        await link.close()

    run(scenario)


def test_a_broker_that_does_not_listen_is_reported_at_once() -> None:
    async def scenario(server: Server) -> None:
        await server.stop()
        link = LeaderLink(server.address, OPTIONS)
        with pytest.raises(KafkaError, match="cannot connect"):
            await link.call(METADATA, VERSION, BODY)
        await settle()
        await link.close()
        with pytest.raises(KafkaError, match="closed"):
            await link.call(METADATA, VERSION, BODY)

    run(scenario)
