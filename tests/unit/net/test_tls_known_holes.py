"""Holes that other brokers had, or that TLS is known for, held shut."""

from __future__ import annotations

import socket
import ssl
from concurrent.futures import ThreadPoolExecutor

import pytest

from kbroker._net import WrappedRequest
from kbroker.security.session import Principal
from tests.support.certificates import Authority, Certificate, client_context
from tests.unit.net.harness import cold_frame
from tests.unit.net.over_tls import VERSIONS, MakeRig, Over, TlsClient, tls_context

NUMBERS = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}


def context_of(
    authority: Authority, version: str, certificate: Certificate | None = None
) -> ssl.SSLContext:
    context = client_context(authority, certificate)
    context.minimum_version = context.maximum_version = NUMBERS[version]
    return context


def session_of(over: Over, context: ssl.SSLContext) -> ssl.SSLSession | None:
    client = over.rig.connected(TlsClient(over.rig.port, context))
    client.send(cold_frame(b"x", 1))
    assert client.receive_cold()[0] == 1
    return client.tls.session


def is_resumed(port: int, context: ssl.SSLContext, session: ssl.SSLSession | None) -> bool:
    with socket.create_connection(("127.0.0.1", port)) as opened:
        tls = context.wrap_socket(opened, server_hostname="localhost", session=session)
        tls.sendall(cold_frame(b"y", 2))
        assert tls.recv(100)
        resumed = bool(tls.session_reused)
        tls.close()
        return resumed


@pytest.mark.parametrize("version", VERSIONS)
def test_a_ticket_is_of_one_certificate_and_one_listener(
    over: Over, make_rig: MakeRig, broker: Certificate, version: str
) -> None:
    context = context_of(over.authority, version)
    session = session_of(over, context)
    assert is_resumed(over.rig.port, context, session)
    other = Over(make_rig, over.authority, tls_context(broker))
    assert not is_resumed(other.rig.port, context, session)
    over.transport.replace(tls_context(broker))
    assert not is_resumed(over.rig.port, context, session)


@pytest.mark.parametrize("client_auth", ["requested", "required"])
@pytest.mark.parametrize("version", VERSIONS)
def test_with_certificates_of_clients_each_connection_proves_its_own(
    make_rig: MakeRig,
    authority: Authority,
    broker: Certificate,
    other: Certificate,
    version: str,
    client_auth: str,
) -> None:
    trusted = authority.certificate.read_bytes()
    over = Over(make_rig, authority, tls_context(broker, client_auth=client_auth, trusted=trusted))
    context = context_of(authority, version, other)
    session = session_of(over, context)
    assert session is None or not is_resumed(over.rig.port, context, session)


def test_under_load_each_connection_has_its_own_principal(
    make_rig: MakeRig, authority: Authority, broker: Certificate
) -> None:
    """A broker once read the certificate of another connection (seastar, pull request 25149)."""

    def dispatch(request: WrappedRequest) -> None:
        if request.names_peer:
            request.open_channel(None, Principal("User", request.body[-6:].decode()))
        else:
            request.respond(str(request.principal).encode())

    trusted = authority.certificate.read_bytes()
    over = Over(
        make_rig, authority, tls_context(broker, client_auth="required", trusted=trusted),
        dispatch=dispatch, handlers=3, processors=2,
    )  # fmt: skip
    names = [f"name-{at}" for at in range(4)]
    contexts = {name: client_context(authority, authority.issue(name)) for name in names}

    def connect(at: int) -> None:
        name = names[at % len(names)]
        with socket.create_connection(("127.0.0.1", over.rig.port)) as opened:
            tls = contexts[name].wrap_socket(opened, server_hostname="localhost")
            for number in range(3):
                tls.sendall(cold_frame(b"", number))
                answer = b""
                while len(answer) < 8 + len(f"User:{name}"):
                    answer += tls.recv(100)
                assert answer[8:] == f"User:{name}".encode()
            tls.close()

    with ThreadPoolExecutor(8) as pool:
        for done in [pool.submit(connect, at) for at in range(80)]:
            done.result()
