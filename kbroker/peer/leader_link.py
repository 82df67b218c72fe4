"""One connection to a broker whose partitions are followed.

`NetworkClient` with one address and one request in flight: a fetch may wait at the leader, and a
request that cannot wait for its end takes a link of its own. A refusal is raised at once, since the
caller knows better than a queue when to ask again.

Owner: one asyncio loop.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kbroker.peer.connection import network_error
from kbroker.peer.network_client import NetworkClient

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from kbroker.peer.address import Address
    from kbroker.peer.connection import Connection, NetworkClientOptions
    from kbroker.protocol.wire import Reader
    from kbroker.types import ApiKey


class LeaderLink:
    """Connects with the first call, and again after a loss."""

    def __init__(self, address: Address, options: NetworkClientOptions) -> None:
        self._address = address
        self._timeout_ms = options.request_timeout_ms
        self._client = NetworkClient(options)
        self._connection: Connection | None = None

    def call(self, api_key: ApiKey, version: int, body: bytes) -> Awaitable[Reader]:
        """The response; KafkaError where none came, and whether the request arrived is unknown."""
        connection = self._connection
        if connection is not None and connection.has_room:
            return connection.send(api_key, version, body, self._timeout_ms, True)
        return self._call_when_ready(api_key, version, body)

    async def _call_when_ready(self, api_key: ApiKey, version: int, body: bytes) -> Reader:
        response = self._client.try_send(self._address, api_key, version, body)
        if response is None:
            await self._client.wait_ready(self._address, fail_fast=True)
            response = self._client.try_send(self._address, api_key, version, body)
        if response is None:
            raise network_error(f"{self._address} has a request of ours already")
        self._connection = self._client.connection(self._address)
        return await response

    async def close(self) -> None:
        await self._client.close()
