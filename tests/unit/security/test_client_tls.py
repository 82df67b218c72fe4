"""TLS of our own clients, against Python's own server of it."""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kbroker.cli.command_config import login_of_file
from kbroker.clock import SystemClock
from kbroker.config import BrokerConfig
from kbroker.errors import ConfigError, KafkaError, UserError
from kbroker.peer.address import Address
from kbroker.peer.link import open_link
from kbroker.peer.own_login import own_login
from kbroker.security.client_login import ClientLogin
from tests.support.certificates import Authority, Certificate, openssl

TIMEOUT_MS = 5_000
ANONYMOUS = "anonymous"


class Server:
    """Makes one handshake with each client and then ends the connection; `peers`: their names."""

    def __init__(self, context: ssl.SSLContext) -> None:
        self.peers: list[Any] = []
        self._context = context
        self._listening = socket.create_server(("0.0.0.0", 0))
        self.address = Address("127.0.0.1", self._listening.getsockname()[1])
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def _serve(self) -> None:
        while True:
            try:
                client, _ = self._listening.accept()
            except OSError:
                return
            with client:
                client.settimeout(TIMEOUT_MS / 1000)
                try:
                    with self._context.wrap_socket(client, server_side=True) as tls:
                        self.peers.append(tls.getpeercert() or ANONYMOUS)
                        tls.recv(1)
                except OSError:
                    self.peers.append(None)

    def close(self) -> None:
        self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        self._thread.join()


@pytest.fixture
def server(authority: Authority, certificate: Certificate) -> Iterator[Server]:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate.chain, certificate.key)
    context.load_verify_locations(authority.certificate)
    context.verify_mode = ssl.CERT_OPTIONAL
    made = Server(context)
    yield made
    made.close()


def login(directory: Path, **settings: object) -> ClientLogin:
    file = directory / "client.properties"
    lines = {"security.protocol": "SSL", "ssl.truststore.type": "PEM"} | settings
    file.write_text("".join(f"{key}={value}\n" for key, value in lines.items()))
    found = login_of_file(str(file))
    assert found is not None
    return found


def connect(address: Address, found: ClientLogin) -> None:
    """The server ends the connection when it has shaken hands."""
    with pytest.raises(KafkaError, match="closed the connection"):
        open_link(address, "test", TIMEOUT_MS, SystemClock(), found)


def test_a_broker_is_accepted_by_its_issuer_and_name(
    server: Server, authority: Authority, tmp_path: Path
) -> None:
    found = login(tmp_path, **{"ssl.truststore.location": authority.certificate})
    connect(server.address, found)
    connect(server.address._replace(host="localhost"), found)
    assert server.peers == [ANONYMOUS, ANONYMOUS]


def test_another_issuer_or_name_is_not(
    server: Server, authority: Authority, tmp_path: Path
) -> None:
    stranger = Authority(tmp_path, "stranger")
    found = login(tmp_path, **{"ssl.truststore.location": stranger.certificate})
    with pytest.raises(UserError, match="is not accepted: self-signed certificate in"):
        open_link(server.address, "test", TIMEOUT_MS, SystemClock(), found)
    other_name = server.address._replace(host="127.0.0.2")
    trusting = {"ssl.truststore.location": authority.certificate}
    with pytest.raises(UserError, match="is not accepted: IP address mismatch"):
        open_link(other_name, "test", TIMEOUT_MS, SystemClock(), login(tmp_path, **trusting))
    unchecked = trusting | {"ssl.endpoint.identification.algorithm": ""}
    connect(other_name, login(tmp_path, **unchecked))


def test_a_client_shows_its_certificate(
    server: Server, authority: Authority, tmp_path: Path
) -> None:
    client = authority.issue("client")
    key = openssl("pkcs8", "-topk8", "-in", client.key, "-passout", "pass:hush")
    store = tmp_path / "store.pem"
    store.write_bytes(key + client.chain.read_bytes())
    settings = {
        "ssl.truststore.location": authority.certificate,
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": store,
    }
    connect(server.address, login(tmp_path, **settings, **{"ssl.key.password": "hush"}))
    (peer,) = server.peers
    assert peer["subject"] == ((("commonName", "client"),),)
    with pytest.raises(ConfigError, match=r"ssl\.key\.password: the key store") as caught:
        login(tmp_path, **settings, **{"ssl.key.password": "other"})
    assert "hush" not in str(caught.value)


def test_a_server_without_tls(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        address = Address("127.0.0.1", listening.getsockname()[1])

        def answer() -> None:
            client, _ = listening.accept()
            with client:
                client.recv(1000)
                client.sendall(b"\0\0\0\x04none")

        thread = threading.Thread(target=answer)
        thread.start()
        with pytest.raises(KafkaError, match="does not speak TLS with us: wrong version number"):
            open_link(address, "test", TIMEOUT_MS, SystemClock(), login(tmp_path))
        thread.join()


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"security.protocol": "TLS"}, "is no protocol"),
        ({"ssl.truststore.location": "/t.bks", "ssl.truststore.type": "BKS"}, "no type of store"),
        ({"ssl.keystore.location": "/k.jks"}, r"ssl\.keystore\.location=/k\.jks cannot be read"),
        ({"ssl.truststore.password": "hush"}, "a PEM file has none"),
        ({"ssl.truststore.location": "/absent"}, "cannot be read: No such file"),
        ({"ssl.truststore.certificates": "hush"}, "there is no certificate in it"),
        ({"ssl.enabled.protocols": "TLSv1.1"}, "none that is spoken"),
    ],
)
def test_files_that_are_refused(tmp_path: Path, settings: dict[str, str], reason: str) -> None:
    with pytest.raises(ConfigError, match=reason) as caught:
        login(tmp_path, **settings)
    assert "hush" not in str(caught.value)


def test_versions_and_suites(tmp_path: Path) -> None:
    found = login(
        tmp_path,
        **{
            "ssl.enabled.protocols": "TLSv1.2",
            "ssl.cipher.suites": "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256",
        },
    )
    assert found.tls is not None
    context = found.tls.context
    assert context.maximum_version is ssl.TLSVersion.TLSv1_2
    assert "ECDHE-RSA-AES128-GCM-SHA256" in {each["name"] for each in context.get_ciphers()}


def test_a_broker_s_own_is_that_of_its_listener(
    server: Server, authority: Authority, certificate: Certificate, tmp_path: Path
) -> None:
    store = tmp_path / "store.pem"
    store.write_bytes(certificate.both)
    config = BrokerConfig.load(
        overrides=[
            "listeners=PLAINTEXT://127.0.0.1:1,BETWEEN://127.0.0.1:2",
            "listener.security.protocol.map=PLAINTEXT:PLAINTEXT,BETWEEN:SSL",
            "inter.broker.listener.name=BETWEEN",
            "listener.name.between.ssl.keystore.type=PEM",
            f"listener.name.between.ssl.keystore.location={store}",
            "listener.name.between.ssl.truststore.type=PEM",
            f"listener.name.between.ssl.truststore.location={authority.certificate}",
        ]
    )
    found = own_login(config)
    assert found is not None and not found.mechanism
    connect(server.address, found)
    assert server.peers[0]["subject"] == ((("commonName", "broker"),),)
    assert own_login(BrokerConfig.load()) is None
