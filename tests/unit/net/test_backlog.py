"""Connections that come before they are taken: the kernel holds as many as the default says."""

from __future__ import annotations

import errno
import socket
from pathlib import Path

from kbroker._net import SocketServer
from kbroker.config.broker import BrokerConfig
from tests.support import requirements
from tests.unit.net.harness import SETTINGS

BURST = 600


def test_a_burst_finds_places_before_it_is_taken() -> None:
    if int(Path("/proc/sys/net/core/somaxconn").read_text()) < BURST:
        requirements.skip_on_this_machine("net.core.somaxconn is below the burst")
    server = SocketServer(**SETTINGS)
    backlog = BrokerConfig.load()["socket.listen.backlog.size"]
    (bound,) = server.listen("PLAINTEXT", [("127.0.0.1", 0)], backlog, principal=None)
    clients = [socket.socket() for _ in range(BURST)]
    try:
        # Over loopback a connection is made when the call returns, unless the kernel let it wait.
        for client in clients:
            client.setblocking(False)
            assert client.connect_ex(bound) in (0, errno.EINPROGRESS)
        waiting = [client for client in clients if not connected(client)]
        assert waiting == []
    finally:
        for client in clients:
            client.close()
        server.stop()


def connected(client: socket.socket) -> bool:
    try:
        client.getpeername()
    except OSError:
        return False
    return True
