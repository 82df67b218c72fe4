"""The network core as a configuration asks for it: bounds, buffers, and which APIs are hot.

Built once, by the broker; what may change while it runs is the broker's to tell it
(`Broker._network_follows`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kbroker._net import SocketServer
from kbroker.protocol.versions import FLEXIBLE_SINCE, SERVED
from kbroker.types import ApiKey

if TYPE_CHECKING:
    from kbroker.config import BrokerConfig

# Served in C, in runs.
HOT: Final = (
    ApiKey.PRODUCE,
    ApiKey.FETCH,
    ApiKey.METADATA,
    ApiKey.HEARTBEAT,
    ApiKey.OFFSET_COMMIT,
)


def socket_server(config: BrokerConfig) -> SocketServer:
    """Not started, and not bound to anything yet."""
    server = SocketServer(
        processors=config["num.network.threads"],
        queued_requests_max=config["queued.max.requests"],
        queued_bytes_max=config["queued.max.request.bytes"],
        request_bytes_max=config["socket.request.max.bytes"],
        idle_ms_max=config["connections.max.idle.ms"],
        connections_max=config["max.connections"],
        connections_per_ip_max=config["max.connections.per.ip"],
        pipelined=config["channel.pipelining.enable"],
        pipelined_requests_max=config["channel.pipelining.max.requests"],
        pipelined_bytes_max=config["channel.pipelining.max.bytes"],
        pipelined_total_bytes_max=config["channel.pipelining.total.bytes"],
        send_buffer_bytes=config["socket.send.buffer.bytes"],
        receive_buffer_bytes=config["socket.receive.buffer.bytes"],
    )
    for address, bound in config.connections_per_ip_overrides.items():
        server.override_connections(address, bound)
    for key in HOT:
        server.set_hot(key, SERVED[key].min, SERVED[key].max)
    for api_key, version in FLEXIBLE_SINCE.items():
        server.set_flexible_from(api_key, version)
    return server
