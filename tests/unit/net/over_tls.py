"""A rig whose listener speaks TLS, and its clients."""

from __future__ import annotations

import ssl
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from kbroker._net import WrappedRequest
from kbroker.net._tls_context import TlsContext
from kbroker.net._tls_transport import TlsTransport
from kbroker.security.session import ANONYMOUS
from tests.support.certificates import Authority, Certificate, client_context
from tests.support.openssl_client import OpensslClient
from tests.unit.net.harness import Client, Rig, eventually

MakeRig = Callable[..., Rig]
VERSIONS = ("TLSv1.2", "TLSv1.3")
FAILED = "a handshake that failed"


def tls_context(
    certificate: Certificate,
    *,
    client_auth: str = "none",
    trusted: bytes | None = None,
    versions: tuple[str, ...] = VERSIONS,
) -> TlsContext:
    made = TlsContext()
    made.use_versions(versions)
    made.use_certificates(certificate.chain.read_bytes())
    made.use_key(certificate.key.read_bytes(), b"")
    made.verify_clients(client_auth, trusted)
    return made


class TlsClient(Client):
    """`send` and `read` go through TLS."""

    def __init__(
        self, port: int, context: ssl.SSLContext, *, name: str = "localhost", **options: Any
    ) -> None:
        super().__init__(port, **options)
        self.tls = context.wrap_socket(self.socket, server_hostname=name)
        self.socket = self.tls

    def ended(self) -> bool:
        """True after the broker's close_notify: the end of TCP alone raises."""
        return self.tls.recv(1) == b""


def echo_to_peers(request: WrappedRequest) -> None:
    """Opens every channel, and answers requests with their bodies."""
    if request.names_peer:
        request.open_channel(None, ANONYMOUS)
    else:
        request.respond(request.body)


class Over:
    """A rig whose listener has TLS."""

    def __init__(
        self, make_rig: MakeRig, authority: Authority, context: TlsContext, **options: Any
    ) -> None:
        self.authority = authority
        self.transport = TlsTransport(context)
        options = {"dispatch": echo_to_peers} | options
        self.rig = make_rig(listener={"transport": self.transport}, **options)

    def client(
        self, *, certificate: Certificate | None = None, version: str = "", **options: Any
    ) -> TlsClient:
        context = client_context(self.authority, certificate)
        # What ends without close_notify is an error here.
        context.options &= ~ssl.OP_IGNORE_UNEXPECTED_EOF
        if version:
            number = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}
            context.minimum_version = context.maximum_version = number[version]
        return self.rig.connected(TlsClient(self.rig.port, context, **options))

    def plain(self) -> Client:
        return self.rig.client()

    @contextmanager
    def raw(self, **options: Any) -> Iterator[OpensslClient]:
        client = OpensslClient(self.rig.port, **options)
        try:
            yield client
        finally:
            client.close()

    def failure(self) -> tuple[str, str, int, str]:
        """The one kind there is, once it is counted."""
        eventually(lambda: self.rig.server.closes()[FAILED] > 0)
        (only,) = self.transport.take_failures()
        return only
