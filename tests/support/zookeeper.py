"""Apache ZooKeeper itself on loopback, for tests that need a real one.

    def test_something(zookeeper): zookeeper.connect        one server for the whole run of tests
    with ensemble(3) as servers: connect_to(servers)        three, of this test's own

A server answers 1-2 s after its start and has 128 MB of heap. The shared one takes three ways in:
the plain port, which also takes SASL for USER, and the TLS port, whose certificate every client
must trust by `zookeeper.certificate`. Tests keep to a path of their own (`zookeeper.chroot()`).
Ticks are short, so that a session may be as short as a second.
"""

from __future__ import annotations

import contextlib
import secrets
import socket
import struct
import subprocess
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from kbroker.testing.process import BrokerFailed
from lab import jars
from lab import zookeeper as lab
from lab.ports import free_port
from tests.support import requirements

USER = "broker"
PASSWORD = secrets.token_hex(8)
KEYTOOL_TIMEOUT_S = 60
STARTS_MAX = 3

_JAAS = f"""Server {{
  org.apache.zookeeper.server.auth.DigestLoginModule required user_{USER}="{PASSWORD}";
}};
"""


class ZooKeeper(lab.ZooKeeper):
    """One server; `peers` are the lines `server.N=` of an ensemble, of which it is `number`."""

    heap = "128m"

    def __init__(self, number: int = 0, peers: Sequence[str] = ()) -> None:
        super().__init__()
        self.number = number
        self.peers = peers
        self.tls_port = 0
        self._chroots = 0

    def chroot(self) -> str:
        """A path that no other test has; it is not there yet."""
        self._chroots += 1
        return f"/test-{self._chroots}"

    def with_tls(self) -> ZooKeeper:
        """Before the start: a second port, for TLS."""
        self.tls_port = free_port()
        return self

    @property
    def certificate(self) -> Path:
        return self.scratch_dir / "server.pem"

    def prepare(self) -> None:
        super().prepare()
        (self.scratch_dir / "jaas.conf").write_text(_JAAS, encoding="utf-8")
        if self.peers:
            (self.data_dir / "myid").write_text(str(self.number), encoding="utf-8")
        if self.tls_port and not self.certificate.exists():
            self._make_certificate()

    def settings(self) -> dict[str, str]:
        plain = {
            "initLimit": "20",
            "syncLimit": "10",
            "authProvider.sasl": "org.apache.zookeeper.server.auth.SASLAuthenticationProvider",
            **dict(peer.split("=", 1) for peer in self.peers),
        }
        if not self.tls_port:
            return plain
        return {
            **plain,
            "secureClientPort": str(self.tls_port),
            "secureClientPortAddress": lab.HOST,
            "serverCnxnFactory": "org.apache.zookeeper.server.NettyServerCnxnFactory",
            "ssl.keyStore.location": str(self._store),
            "ssl.keyStore.password": PASSWORD,
            "ssl.clientAuth": "none",
        }

    def command(self) -> list[str]:
        required()
        flags = (
            "-Dzookeeper.forceSync=no", "-Dzookeeper.preAllocSize=1024",
            f"-Djava.security.auth.login.config={self.scratch_dir / 'jaas.conf'}",
        )  # fmt: skip
        return lab.command(self.scratch_dir, self.heap, *flags, java=requirements.java())

    def poll_ready(self) -> str | None:
        # It opens its ports one after the other, and ends if the second is taken.
        return super().poll_ready() if self._tls_answers() else None

    def _tls_answers(self) -> bool:
        if self.tls_port:
            try:
                address = (lab.HOST, self.tls_port)
                socket.create_connection(address, lab.ANSWER_TIMEOUT_S).close()
            except OSError:
                return False
        return True

    @property
    def _store(self) -> Path:
        return self.scratch_dir / "server.p12"

    def _make_certificate(self) -> None:
        store = ["-alias", "server", "-keystore", str(self._store), "-storetype", "PKCS12",
                 "-storepass", PASSWORD]  # fmt: skip
        for arguments in (
            ["-genkeypair", *store, "-keyalg", "EC", "-groupname", "secp256r1", "-validity", "2",
             "-dname", "CN=127.0.0.1", "-ext", "SAN=IP:127.0.0.1"],
            ["-exportcert", *store, "-rfc", "-file", str(self.certificate)],
        ):  # fmt: skip
            tool = requirements.program("keytool", "a Java runtime brings it")
            subprocess.run(
                [tool, *arguments], check=True, capture_output=True, timeout=KEYTOOL_TIMEOUT_S
            )


def required() -> None:
    """Java and the jars, or a skip."""
    requirements.java()
    requirements.jars(jars.ZOOKEEPER)


@pytest.fixture(scope="session")
def zookeeper() -> Iterator[ZooKeeper]:
    """One server for all tests of this process; skips where Java or the jars are missing."""
    required()
    (server,) = _started(lambda: [ZooKeeper().with_tls()])
    try:
        yield server
    finally:
        server.close()


def _started(make: Callable[[], list[ZooKeeper]]) -> list[ZooKeeper]:
    """Ports that were free when they were chosen may be taken a second later: other ones then."""
    for left in reversed(range(STARTS_MAX)):
        servers = make()
        try:
            with ThreadPoolExecutor(len(servers)) as pool:
                for started in [pool.submit(server.start) for server in servers]:
                    started.result()
            return servers
        except BaseException as error:
            for server in servers:
                server.close()
            if not left or not isinstance(error, BrokerFailed):
                raise
    raise AssertionError("not reached")


@contextlib.contextmanager
def ensemble(size: int) -> Iterator[list[ZooKeeper]]:
    """That many servers with one tree; they are ready when most of them agree on a leader."""
    servers = _started(lambda: _peers(size))
    try:
        yield servers
    finally:
        for server in servers:
            server.close()


def _peers(size: int) -> list[ZooKeeper]:
    peers = [f"server.{n}=127.0.0.1:{free_port()}:{free_port()}" for n in range(1, size + 1)]
    return [ZooKeeper(number, peers) for number in range(1, size + 1)]


def connect_to(servers: Sequence[ZooKeeper]) -> str:
    return ",".join(server.connect for server in servers)


def end_session(address: str, session_id: int, password: bytes) -> None:
    """End a session from outside, as its expiry does: at the server, whatever its client thinks.

    Both requests leave together: the server takes the session over for this connection, whereupon
    the client's own is cut, and ends it before that client can come back.
    """
    host, _, port = address.rpartition(":")
    hello = struct.pack(">iqiq", 0, 0, 10_000, session_id)
    hello += struct.pack(">i", len(password)) + password + b"\0"
    close = struct.pack(">ii", 1, -11)
    with socket.create_connection((host, int(port)), lab.ANSWER_TIMEOUT_S) as connection:
        connection.sendall(b"".join(struct.pack(">i", len(each)) + each for each in (hello, close)))
        with contextlib.suppress(ConnectionError):
            while connection.recv(4096):
                pass  # until the server has ended it
