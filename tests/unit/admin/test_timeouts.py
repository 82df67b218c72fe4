"""A peer of the admin port that does not go on is left, whatever it has begun."""

from __future__ import annotations

import socket
import time
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from random import Random

import pytest

from kbroker.admin import crowd, server
from kbroker.cli.start import serve_admin
from kbroker.config import BrokerConfig
from kbroker.limits import ADMIN_CONNECTIONS_MAX
from kbroker.server.broker import Broker

TIMEOUT_S = 0.5
HALF = b"GET /healthz HTTP/1.1\r\nHo"


@contextmanager
def admin_port(path: Path) -> Iterator[tuple[str, int]]:
    """The address of a broker's."""
    values = [
        f"log.dirs={path}",
        "listeners=PLAINTEXT://127.0.0.1:0",
        "admin.listeners=http://127.0.0.1:0",
    ]
    broker = Broker(BrokerConfig.load(None, {}, values), path, serve_admin=serve_admin)
    broker.start()
    for each in broker._admin._sockets:
        # Those that are accepted inherit it.
        each.bound.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
    try:
        host, _, port = broker._admin.url.removeprefix("http://").rpartition(":")
        yield host, int(port)
    finally:
        assert broker.stop()


@pytest.mark.parametrize("sent", [b"", HALF])
def test_a_request_that_does_not_come_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sent: bytes
) -> None:
    """Neither one that does not begin nor one that does not end."""
    monkeypatch.setattr(server, "ADMIN_REQUEST_TIMEOUT_S", TIMEOUT_S)
    with admin_port(tmp_path) as address:
        began = time.monotonic()
        with socket.create_connection(address, timeout=60) as slow:
            slow.sendall(sent)
            try:
                assert slow.recv(1) == b""
            except ConnectionResetError:
                pass
        assert time.monotonic() - began >= TIMEOUT_S


def test_connections_that_owe_a_request_do_not_keep_out_one_that_sends_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "ADMIN_REQUEST_TIMEOUT_S", 60)
    with admin_port(tmp_path) as address, ExitStack() as stack:
        for _ in range(ADMIN_CONNECTIONS_MAX + 8):
            half = stack.enter_context(socket.create_connection(address, timeout=60))
            half.sendall(HALF)
        for _ in range(3):
            url = "http://{}:{}/healthz".format(*address)
            with urllib.request.urlopen(url, timeout=30) as answer:
                assert answer.status == 200


def test_many_connections_of_another_address_do_not_keep_out_a_visitor_from_afar(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """More come before its request has arrived than there may be."""
    monkeypatch.setattr(crowd, "DICE", Random(1))
    with admin_port(tmp_path) as address, ExitStack() as stack:
        url = "http://{}:{}/healthz".format(*address)
        with urllib.request.urlopen(url, timeout=30):
            pass  # the HTTP side is there
        afar = stack.enter_context(
            socket.create_connection(address, timeout=60, source_address=("127.0.0.2", 0))
        )
        for _ in range(2 * ADMIN_CONNECTIONS_MAX):
            other = stack.enter_context(socket.create_connection(address, timeout=60))
            other.sendall(HALF)
        with urllib.request.urlopen(url, timeout=30):
            pass  # those before it have been taken
        afar.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert b"200" in afar.recv(1024)


def test_connections_that_do_not_read_do_not_keep_out_one_that_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each has an answer that it does not take, and asks for more."""
    monkeypatch.setattr(server, "ADMIN_REQUEST_TIMEOUT_S", 60)
    with admin_port(tmp_path) as address, ExitStack() as stack:
        for _ in range(ADMIN_CONNECTIONS_MAX):
            deaf = stack.enter_context(socket.socket())
            deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            deaf.settimeout(60)
            deaf.connect(address)
            deaf.sendall(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n" * 3)
            assert deaf.recv(1), "it is answered"
        for _ in range(3):
            url = "http://{}:{}/healthz".format(*address)
            with urllib.request.urlopen(url, timeout=30) as answer:
                assert answer.status == 200
