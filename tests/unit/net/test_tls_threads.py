"""Connections over TLS in several network threads, while certificates are replaced."""

from __future__ import annotations

import itertools
import ssl
import threading
from pathlib import Path

from kbroker.net._tls_context import TlsContext
from kbroker.net._tls_transport import TlsTransport
from tests.support.certificates import Authority, Certificate, client_context
from tests.unit.net.harness import cold_frame, running
from tests.unit.net.over_tls import TlsClient, echo_to_peers, tls_context

CLIENTS = 4
CONNECTIONS = 15
LARGE = b"x" * 200_000  # more than a TLS record, and than a turn reads


class Connecting(threading.Thread):
    """Connections one after the other: asked in one go, left in order or in the midst."""

    def __init__(self, port: int, contexts: list[ssl.SSLContext], number: int) -> None:
        super().__init__(name=f"client-{number}")
        self.port, self.contexts, self.number = port, contexts, number
        self.error: BaseException | None = None
        self.answers = 0

    def run(self) -> None:
        try:
            for turn in range(CONNECTIONS):
                self._connect(turn + self.number)
        except BaseException as error:
            self.error = error

    def _connect(self, turn: int) -> None:
        client = TlsClient(self.port, self.contexts[turn % len(self.contexts)])
        bodies = [b"small", LARGE, b"last"]
        client.send(b"".join(cold_frame(body, at) for at, body in enumerate(bodies)))
        if turn % 3 == 0:
            client.reset()
            return
        for at, body in enumerate(bodies):
            assert client.receive_cold() == (at, body)
            self.answers += 1
        client.close()


def test_connections_beside_new_certificates(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    own = [authority.issue(name) for name in ("broker", "other")]
    trusted = authority.certificate.read_bytes()

    def context(certificate: Certificate) -> TlsContext:
        return tls_context(certificate, client_auth="requested", trusted=trusted)

    transport = TlsTransport(context(own[0]))
    contexts = [client_context(authority, each) for each in (None, own[1])]
    over = threading.Event()

    def replace() -> None:
        for certificate in itertools.cycle(own):
            if over.is_set():
                return
            transport.replace(context(certificate))

    with running(
        tmp_path,
        processors=2,
        handlers=2,
        dispatch=echo_to_peers,
        listener={"transport": transport},
    ) as rig:
        clients = [Connecting(rig.port, contexts, number) for number in range(CLIENTS)]
        replacing = threading.Thread(target=replace)
        for thread in (*clients, replacing):
            thread.start()
        for client in clients:
            client.join()
        over.set()
        replacing.join()
        for client in clients:
            assert client.error is None, client.error
            assert client.answers == 3 * (CONNECTIONS - CONNECTIONS // 3)
