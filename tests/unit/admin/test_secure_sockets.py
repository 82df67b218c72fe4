"""The admin port over https: who gets in, what a new certificate changes, what hangs is bounded."""

from __future__ import annotations

import http.client
import logging
import select
import socket
import ssl
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from kbroker.admin import secure_sockets
from kbroker.cli.start import serve_admin
from kbroker.config import BrokerConfig
from kbroker.limits import ADMIN_CONNECTIONS_MAX
from kbroker.log_lines import LogLines
from kbroker.server.broker import Broker
from tests.support.certificates import Authority, client_context

WAIT_S = 30


class Admin:
    """The admin port of a broker that serves nothing else with TLS."""

    def __init__(self, broker: Broker, authority: Authority, store: Path) -> None:
        self.broker = broker
        self.authority = authority
        self.store = store
        host, _, port = broker._admin.url.removeprefix("https://").rpartition(":")
        self.address = host, int(port)

    def connect(self, context: ssl.SSLContext | None = None) -> http.client.HTTPSConnection:
        return http.client.HTTPSConnection(
            *self.address, timeout=WAIT_S, context=context or client_context(self.authority)
        )

    def status(self, connection: http.client.HTTPSConnection, path: str = "/healthz") -> int:
        connection.request("GET", path)
        with connection.getresponse() as response:
            response.read()
            return response.status

    def write(self, name: str, **options: Any) -> None:
        made = self.authority.issue(name, subject="/CN=broker", **options)
        self.store.write_bytes(made.both)


@contextmanager
def admin_port(path: Path, *settings: str) -> Iterator[Admin]:
    authority, store = Authority(path), path / "store.pem"
    store.write_bytes(authority.issue("broker").both)
    values = [
        f"log.dirs={path / 'data'}",
        "listeners=PLAINTEXT://127.0.0.1:0",
        "admin.listeners=https://127.0.0.1:0",
        "ssl.keystore.type=PEM",
        f"listener.name.admin.ssl.keystore.location={store}",
        "ssl.truststore.type=PEM",
        f"ssl.truststore.location={authority.certificate}",
        *settings,
    ]
    broker = Broker(BrokerConfig.load(None, {}, values), path / "data", serve_admin=serve_admin)
    broker.start()
    try:
        yield Admin(broker, authority, store)
    finally:
        assert broker.stop()


@pytest.fixture(autouse=True)
def all_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lines of a test are not left out because of another test's."""
    lines = LogLines(logging.getLogger("kbroker.admin"))
    monkeypatch.setattr(secure_sockets, "lines", lines)


def test_pages_come_over_https_to_clients_that_trust_the_authority(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    with admin_port(tmp_path) as admin:
        known = admin.connect()
        assert admin.status(known) == 200
        assert admin.status(known, "/metrics") == 200, "the connection goes on"
        with pytest.raises(ssl.SSLCertVerificationError):
            admin.status(admin.connect(ssl.create_default_context()))
        with socket.create_connection(admin.address, timeout=WAIT_S) as plain:
            plain.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
            try:
                assert b"HTTP/1.1 200" not in plain.recv(1000)
            except ConnectionResetError:
                pass
        assert admin.status(known) == 200
        with urlopened(admin, "/readyz?verbose") as page:
            assert b"[+] certificate ADMIN: expires in " in page.read()
        assert admin.broker.figures().samples("certificate_expiries")
    assert "the client speaks http: have it use https" in caplog.text
    assert "TLS failed on the admin port, from 127.0.0.1" in caplog.text


def urlopened(admin: Admin, path: str) -> http.client.HTTPResponse:
    connection = admin.connect()
    connection.request("GET", path, headers={"Connection": "close"})
    return connection.getresponse()


def certificate_of(connection: http.client.HTTPSConnection) -> bytes:
    if connection.sock is None:
        connection.connect()
    return connection.sock.getpeercert(binary_form=True) or b""


def test_a_new_certificate_is_for_new_connections(tmp_path: Path) -> None:
    with admin_port(tmp_path) as admin:
        before = admin.connect()
        assert admin.status(before) == 200
        first = certificate_of(before)
        admin.write("renewed", days=30)
        admin.broker._tls.look()
        assert certificate_of(admin.connect()) != first
        assert admin.status(before) == 200, "an open connection keeps its own"
        second = certificate_of(admin.connect())
        admin.store.write_bytes(b"nothing")
        admin.broker._tls.look()
        assert certificate_of(admin.connect()) == second, "what cannot be served is not"


def test_clients_with_a_certificate(tmp_path: Path) -> None:
    with admin_port(tmp_path, "listener.name.admin.ssl.client.auth=required") as admin:
        context = client_context(admin.authority, admin.authority.issue("prometheus"))
        assert admin.status(admin.connect(context)) == 200
        with pytest.raises(OSError):
            admin.status(admin.connect())
        assert admin.status(admin.connect(context)) == 200


def test_handshakes_that_do_not_go_on_keep_out_no_client(tmp_path: Path) -> None:
    """Some of them are closed when there are too many."""
    with admin_port(tmp_path) as admin, ExitStack() as stack:
        silent = [
            stack.enter_context(socket.create_connection(admin.address, timeout=WAIT_S))
            for _ in range(ADMIN_CONNECTIONS_MAX + 4)
        ]
        for _ in range(3):
            assert admin.status(admin.connect()) == 200
        ended, _, _ = select.select(silent, [], [], WAIT_S)
        try:
            assert ended[0].recv(1) == b""
        except ConnectionResetError:
            pass


def test_a_handshake_has_its_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(secure_sockets, "ADMIN_REQUEST_TIMEOUT_S", 0.2)
    with admin_port(tmp_path) as admin:
        with socket.create_connection(admin.address, timeout=WAIT_S) as silent:
            try:
                assert silent.recv(1) == b""
            except ConnectionResetError:
                pass
        assert admin.status(admin.connect()) == 200
