"""The client side of Kafka connections: what a broker uses towards its peers, and our own tools.

For every address there is at most one connection. It carries at most `in_flight_max` requests that
await their response; a full one is skipped this turn: `try_send` answers None and the caller goes
on to the next node, or lets `call` wait for a place. Responses must come in request order with the
correlation ids that were sent; anything else ends the connection. So does a request that is older
than its timeout, since later responses could not be trusted.

A lost or refused connection is not tried again before its back-off is over: exponential from
`reconnect_backoff_ms` to `reconnect_backoff_max_ms`, each with a fifth of jitter, back to the start
after a connection that worked. A new connection asks for ApiVersions first and is ready when the
answer is there.

A session that ends before its connection (KIP-368) is renewed when most of it is over: requests
that are on their way are answered first, no other is sent meanwhile.

Bounds: requests in flight per connection; waiting callers per node; response frame size; bytes in
the socket's write buffer (a connection above its high-water mark counts as full). Every failure is
a `KafkaError` with NETWORK_EXCEPTION or REQUEST_TIMED_OUT, both of them retriable.

Owner: one asyncio loop (uvloop in the broker). No locks; nothing here may be called from another
thread, and nothing here blocks or retries a request that was sent.
"""

from __future__ import annotations

import asyncio
import random
from collections import deque
from dataclasses import dataclass
from typing import Any, Final

from kbroker.errors import ErrorCode, KafkaError
from kbroker.peer.address import Address, reason
from kbroker.peer.connection import (
    Connection,
    Counters,
    NetworkClientOptions,
    log_in,
    negotiate,
    network_error,
)
from kbroker.protocol.wire import ProtocolError, Reader
from kbroker.types import ApiKey

_BACKOFF_JITTER: Final = 0.2


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkClientStatistics:
    connections: int
    in_flight: int
    waiting: int
    requests_sent: int
    responses_received: int
    connects_failed: int
    disconnects: int
    requests_timed_out: int


class _Node:
    """What is known about one address, whether connected or not."""

    def __init__(self, address: Address) -> None:
        self.address = address
        self.connection: Connection | None = None
        self.connecting: asyncio.Task[None] | None = None
        self.failures = 0
        self.retry_at_s = 0.0
        self.last_error: KafkaError | None = None
        self.waiters: deque[asyncio.Future[None]] = deque()

    def wake(self) -> None:
        """Everyone looks again; there are few, and who finds no place waits on."""
        while self.waiters:
            waiter = self.waiters.popleft()
            if not waiter.done():
                waiter.set_result(None)


class NetworkClient:
    """All connections of one client, by address."""

    def __init__(
        self,
        options: NetworkClientOptions | None = None,
        jitter: random.Random | None = None,
    ) -> None:
        self.options = options if options is not None else NetworkClientOptions()
        self._jitter = jitter if jitter is not None else random.Random()
        self._nodes: dict[Address, _Node] = {}
        self._counters = Counters()
        self._closed = False

    # --- what a caller decides with ---

    def ready(self, address: Address) -> bool:
        """Whether a request could leave now; if not connected, a connection is begun when due."""
        node = self._node(address)
        if node.connection is not None:
            return node.connection.negotiated and node.connection.has_room
        self._maybe_connect(node)
        return False

    def connection_delay_ms(self, address: Address) -> int:
        """How long the back-off of a lost node still lasts."""
        node = self._nodes.get(address)
        if node is None or node.connection is not None:
            return 0
        return max(0, round((node.retry_at_s - self._loop().time()) * 1000))

    def in_flight(self, address: Address) -> int:
        node = self._nodes.get(address)
        return node.connection.in_flight if node is not None and node.connection is not None else 0

    def connection(self, address: Address) -> Connection | None:
        """The node's, as long as it is not lost: a caller may send over it while it has room."""
        node = self._nodes.get(address)
        if node is None or node.connection is None or not node.connection.negotiated:
            return None
        return node.connection

    def last_error(self, address: Address) -> KafkaError | None:
        """Why the node's last connection failed or was lost; None once one works again."""
        node = self._nodes.get(address)
        return node.last_error if node is not None else None

    def version(self, address: Address, api_key: ApiKey, lowest: int, highest: int) -> int:
        """The highest version that both sides have; only for a node that was ready before."""
        node = self._nodes.get(address)
        if node is None or node.connection is None or not node.connection.negotiated:
            raise network_error(f"{address} is not connected")
        offered = node.connection.versions.get(int(api_key))
        if offered is None or offered[1] < lowest or offered[0] > highest:
            raise KafkaError(
                ErrorCode.UNSUPPORTED_VERSION,
                f"{address} offers {api_key.label} {_range(offered)}, we speak {lowest}-{highest}",
            )
        return min(offered[1], highest)

    # --- sending ---

    def try_send(
        self,
        address: Address,
        api_key: ApiKey,
        version: int,
        body: bytes,
        *,
        timeout_ms: int | None = None,
        expects_response: bool = True,
    ) -> asyncio.Future[Reader] | None:
        """The response to come, or None: this node is skipped this turn."""
        if not self.ready(address):
            return None
        connection = self._nodes[address].connection
        if connection is None:
            return None
        timeout_ms = self.options.request_timeout_ms if timeout_ms is None else timeout_ms
        return connection.send(api_key, version, body, timeout_ms, expects_response)

    async def wait_ready(
        self, address: Address, *, timeout_ms: int | None = None, fail_fast: bool = False
    ) -> None:
        """Returns when the node has a place; with `fail_fast` the first refusal ends the wait."""
        timeout_ms = self.options.request_timeout_ms if timeout_ms is None else timeout_ms
        deadline_s = self._loop().time() + timeout_ms / 1000
        while not self.ready(address):
            node = self._node(address)
            if fail_fast and node.last_error is not None and node.connecting is None:
                raise node.last_error
            left_s = deadline_s - self._loop().time()
            if left_s <= 0:
                why = f": {node.last_error.message}" if node.last_error is not None else ""
                raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, f"no connection to {address}{why}")
            await self._wait_for_change(node, left_s)

    async def call(
        self,
        address: Address,
        api_key: ApiKey,
        version: int,
        body: bytes,
        *,
        timeout_ms: int | None = None,
        expects_response: bool = True,
    ) -> Reader:
        """Waits for a place, sends, waits for the response, positioned after its header."""
        while True:
            await self.wait_ready(address, timeout_ms=timeout_ms)
            response = self.try_send(
                address,
                api_key,
                version,
                body,
                timeout_ms=timeout_ms,
                expects_response=expects_response,
            )
            if response is not None:
                return await response

    async def close(self) -> None:
        """Ends every connection; what is in flight fails."""
        self._closed = True
        for node in self._nodes.values():
            if node.connecting is not None:
                node.connecting.cancel()
            if node.connection is not None:
                node.connection.close(network_error("the client was closed"))
            node.wake()
        self._nodes.clear()
        await asyncio.sleep(0)  # the transports' own last callbacks

    def forget(self, address: Address) -> None:
        """Drops a node that left the cluster, with its connection and back-off."""
        node = self._nodes.pop(address, None)
        if node is None:
            return
        if node.connecting is not None:
            node.connecting.cancel()
        if node.connection is not None:
            node.connection.close(network_error(f"{address} left the cluster"))
        node.wake()

    def statistics(self) -> NetworkClientStatistics:
        nodes = self._nodes.values()
        connections = [node.connection for node in nodes if node.connection is not None]
        return NetworkClientStatistics(
            connections=len(connections),
            in_flight=sum(connection.in_flight for connection in connections),
            waiting=sum(len(node.waiters) for node in nodes),
            requests_sent=self._counters.requests_sent,
            responses_received=self._counters.responses_received,
            connects_failed=self._counters.connects_failed,
            disconnects=self._counters.disconnects,
            requests_timed_out=self._counters.requests_timed_out,
        )

    # --- connecting ---

    def _loop(self) -> asyncio.AbstractEventLoop:
        return asyncio.get_running_loop()

    def _node(self, address: Address) -> _Node:
        if self._closed:
            raise network_error("the client is closed")
        node = self._nodes.get(address)
        if node is None:
            node = self._nodes[address] = _Node(address)
        return node

    def _maybe_connect(self, node: _Node) -> None:
        if node.connecting is None and self._loop().time() >= node.retry_at_s:
            node.connecting = self._loop().create_task(self._connect(node))

    def _tls(self, node: _Node) -> dict[str, Any]:
        login = self.options.login
        if login is None or login.tls is None:
            return {}
        return {"ssl": login.tls.context, "server_hostname": node.address.host}

    async def _connect(self, node: _Node) -> None:
        setup_s = self.options.connection_setup_timeout_ms / 1000
        connection = Connection(
            node.address, self.options, self._counters, node.wake, self._on_lost
        )
        try:
            async with asyncio.timeout(setup_s):
                await self._loop().create_connection(
                    lambda: connection, node.address.host, node.address.port, **self._tls(node)
                )
                node.connection = connection
                connection.versions = await negotiate(connection, self.options)
                lifetime_ms = await self._log_in(connection)
        except TimeoutError:
            error = network_error(f"cannot connect to {node.address} within {setup_s:g} s")
        except OSError as failure:
            error = network_error(f"cannot connect to {node.address}: {reason(failure)}")
        except ProtocolError as failure:
            error = network_error(f"{node.address} sent a malformed ApiVersions: {failure}")
        except KafkaError as failure:
            error = failure
        except Exception as failure:  # else this node would never be tried again
            what = f"{type(failure).__name__}: {failure}"
            error = network_error(f"cannot connect to {node.address}: {what}")
        else:
            connection.negotiated = True
            self._renew_in_time(node, connection, lifetime_ms)
            node.failures = 0
            node.last_error = None
            node.connecting = None
            node.wake()
            return
        self._counters.connects_failed += 1
        node.connecting = None
        if connection.closed:  # _on_lost has set the back-off already
            node.wake()
        else:
            connection.close(error)

    async def _log_in(self, connection: Connection) -> int:
        """How long the session lasts, in ms; 0: as long as the connection."""
        login = self.options.login
        if login is None or not login.mechanism:
            return 0
        return await log_in(connection, login, self.options)

    def _renew_in_time(self, node: _Node, connection: Connection, lifetime_ms: int) -> None:
        if not lifetime_ms:
            return
        from kbroker.peer.logging_in import again_after_ms  # its login has it already

        after_ms = again_after_ms(lifetime_ms)
        if after_ms is not None:
            self._loop().call_later(after_ms / 1000, self._begin_renewal, node, connection)

    def _begin_renewal(self, node: _Node, connection: Connection) -> None:
        if not connection.closed:
            connection.authenticating = True
            node.connecting = self._loop().create_task(self._renew(node, connection))

    async def _renew(self, node: _Node, connection: Connection) -> None:
        try:
            lifetime_ms = await self._log_in(connection)
        except ProtocolError as failure:
            connection.close(network_error(f"{node.address} sent a malformed response: {failure}"))
        except KafkaError as error:
            connection.close(error)
        except Exception as failure:  # else no request would ever be sent here again
            what = f"{type(failure).__name__}: {failure}"
            connection.close(network_error(f"cannot log in at {node.address} again: {what}"))
        else:
            connection.authenticating = False
            self._renew_in_time(node, connection, lifetime_ms)
        finally:
            node.connecting = None
            node.wake()

    def _on_lost(self, connection: Connection, error: KafkaError) -> None:
        node = self._nodes.get(connection.address)
        if node is None or self._closed or node.connection not in (None, connection):
            return
        if connection.negotiated:
            self._counters.disconnects += 1
        node.connection = None
        node.last_error = error
        node.failures += 1
        delay_ms = self._backoff_ms(node.failures)
        node.retry_at_s = self._loop().time() + delay_ms / 1000
        self._loop().call_at(node.retry_at_s, self._back_off_ends, node, node.retry_at_s)
        node.wake()

    def _back_off_ends(self, node: _Node, retry_at_s: float) -> None:
        # The loop's timers may be early by part of a millisecond. A waiter that is woken looks at
        # the time, and would not be woken again.
        if node.retry_at_s == retry_at_s:
            node.retry_at_s = 0.0
        node.wake()

    def _backoff_ms(self, failures: int) -> float:
        exponent = min(failures - 1, 30)
        plain_ms = self.options.reconnect_backoff_ms * (1 << exponent)
        factor = self._jitter.uniform(1 - _BACKOFF_JITTER, 1 + _BACKOFF_JITTER)
        return min(plain_ms, self.options.reconnect_backoff_max_ms) * factor

    async def _wait_for_change(self, node: _Node, timeout_s: float) -> None:
        if len(node.waiters) >= self.options.waiting_max:
            raise network_error(f"{len(node.waiters)} requests wait for {node.address} already")
        waiter: asyncio.Future[None] = self._loop().create_future()
        node.waiters.append(waiter)
        try:
            async with asyncio.timeout(timeout_s):
                await waiter
        except TimeoutError:
            pass  # the caller looks at its deadline
        finally:
            if waiter in node.waiters:
                node.waiters.remove(waiter)


def _range(offered: tuple[int, int] | None) -> str:
    return f"{offered[0]}-{offered[1]}" if offered is not None else "not at all"
