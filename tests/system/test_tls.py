"""A broker with a listener that speaks TLS, and real clients of it."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import ssl
import subprocess
import sys
import tempfile
import threading
import urllib.request
from collections.abc import Callable
from contextlib import ExitStack
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from confluent_kafka import Consumer, KafkaException, Producer
from kafka import KafkaConsumer, KafkaProducer

from kbroker.cli.main import main
from kbroker.errors import ConfigError
from kbroker.testing.plain import PlainBroker as Broker
from kbroker.testing.process import BrokerFailed
from lab.ports import free_port
from tests.support.broker_settings import change
from tests.support.certificates import Authority, Certificate, client_context
from tests.system import process_facts
from tests.system.conftest import MakeBroker
from tests.system.test_hostile import eventually

pytestmark = pytest.mark.client

RECORDS = 300
VALUES = [b"%d" % at * 500 for at in range(RECORDS)]
WAIT_S = 30.0


class SecureBroker:
    """A broker with a second listener, SSL; `bootstrap` is that one's."""

    def __init__(self, make_broker: MakeBroker, directory: Path, **settings: object) -> None:
        self.authority = Authority(directory)
        self.certificate = self.authority.issue("broker")
        self.store = directory / "store.pem"
        self.store.write_bytes(self.certificate.both)
        plain, secure = free_port(), free_port()
        self.port = secure
        self.bootstrap = f"127.0.0.1:{secure}"
        self.process: Broker = make_broker(
            {
                "listeners": f"PLAINTEXT://127.0.0.1:{plain},SSL://127.0.0.1:{secure}",
                "ssl.keystore.type": "PEM",
                "ssl.keystore.location": str(self.store),
                "ssl.truststore.type": "PEM",
                "ssl.truststore.location": str(self.authority.certificate),
                **settings,
            },
            port=plain,
        ).start()


MakeSecure = Callable[..., SecureBroker]


@pytest.fixture
def make_secure(make_broker: MakeBroker, tmp_path: Path) -> MakeSecure:
    return lambda **settings: SecureBroker(make_broker, tmp_path, **settings)


def librdkafka(broker: SecureBroker, client: Certificate | None) -> list[bytes]:
    common: dict[str, Any] = {
        "bootstrap.servers": broker.bootstrap,
        "security.protocol": "SSL",
        "ssl.ca.location": str(broker.authority.certificate),
    }
    if client is not None:
        common |= {
            "ssl.certificate.location": str(client.chain),
            "ssl.key.location": str(client.key),
        }
    producer = Producer(common)
    for value in VALUES:
        producer.produce("t", value)
    assert producer.flush(WAIT_S) == 0
    consumer = Consumer(common | {"group.id": "c", "auto.offset.reset": "earliest"})
    consumer.subscribe(["t"])
    found: list[bytes] = []
    while len(found) < RECORDS:
        messages = consumer.consume(RECORDS, WAIT_S)
        assert messages
        found += [message.value() for message in messages if message.error() is None]
    consumer.close()
    return found


def kafka_python(broker: SecureBroker, client: Certificate | None) -> list[bytes]:
    common: dict[str, Any] = {
        "bootstrap_servers": broker.bootstrap,
        "security_protocol": "SSL",
        "ssl_context": client_context(broker.authority, client),
    }
    producer = KafkaProducer(**common)
    for value in VALUES:
        producer.send("t", value)
    producer.flush(WAIT_S)
    producer.close()
    consumer = KafkaConsumer("t", auto_offset_reset="earliest", **common)
    found = [next(consumer).value for _ in VALUES]
    consumer.close()
    return found


def aiokafka(broker: SecureBroker, client: Certificate | None) -> list[bytes]:
    async def run() -> list[bytes]:
        common: dict[str, Any] = {
            "bootstrap_servers": broker.bootstrap,
            "security_protocol": "SSL",
            "ssl_context": client_context(broker.authority, client),
        }
        async with AIOKafkaProducer(**common) as producer:
            for value in VALUES:
                await producer.send_and_wait("t", value)
        async with AIOKafkaConsumer("t", auto_offset_reset="earliest", **common) as consumer:
            return [(await consumer.getone()).value for _ in VALUES]

    return asyncio.run(asyncio.wait_for(run(), WAIT_S))


@pytest.mark.parametrize("run", [librdkafka, kafka_python, aiokafka])
def test_clients_produce_and_consume(
    make_secure: MakeSecure, run: Callable[[SecureBroker, Certificate | None], list[bytes]]
) -> None:
    assert run(make_secure(), None) == VALUES


@pytest.mark.parametrize("run", [librdkafka, kafka_python, aiokafka])
def test_clients_with_certificates(
    make_secure: MakeSecure, run: Callable[[SecureBroker, Certificate | None], list[bytes]]
) -> None:
    broker = make_secure(**{"ssl.client.auth": "required"})
    assert run(broker, broker.authority.issue("client")) == VALUES


def test_the_log_advises_a_client_without_tls(make_secure: MakeSecure) -> None:
    broker = make_secure()
    with socket.create_connection(("127.0.0.1", broker.port)) as client:
        client.sendall(b"\0\0\0\x20" + bytes(32))
        assert client.recv(1) == b""
    wanted = "the client does not speak TLS -> set its security.protocol to SSL"
    assert eventually(lambda: wanted in broker.process.log_text())


def served(broker: SecureBroker) -> bytes:
    """The certificate that a new connection gets."""
    context = client_context(broker.authority)
    with (
        socket.create_connection(("127.0.0.1", broker.port)) as opened,
        context.wrap_socket(opened, server_hostname="localhost") as tls,
    ):
        return tls.getpeercert(binary_form=True) or b""


def expires(certificate: bytes) -> float:
    found = ssl.DER_cert_to_PEM_cert(certificate)
    with tempfile.NamedTemporaryFile("w", suffix=".pem") as file:
        file.write(found)
        file.flush()
        decoded = ssl._ssl._test_decode_cert(file.name)  # type: ignore[attr-defined]
    return ssl.cert_time_to_seconds(decoded["notAfter"])


def metric(broker: SecureBroker) -> float:
    with urllib.request.urlopen(f"{broker.process.admin}/metrics", timeout=WAIT_S) as response:
        text = response.read().decode()
    name = 'kbroker_tls_certificate_not_after_seconds{listener="SSL"}'
    (line,) = [each for each in text.splitlines() if each.startswith(name)]
    return float(line.split()[-1])


LIVE = 200
NEW_EVERY_S = 0.02
VERSIONS_0 = b"\0\0\0\x0a\0\x12\0\0\0\0\0\x07\xff\xff"


class Newcomers:
    """Connections that come all the time; what each is served, in order."""

    def __init__(self, broker: SecureBroker) -> None:
        self.served: list[bytes] = []
        self.errors: list[OSError] = []
        self._broker = broker
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._come, daemon=True)

    def _come(self) -> None:
        while not self._ended.wait(NEW_EVERY_S):
            try:
                self.served.append(served(self._broker))
            except OSError as error:
                self.errors.append(error)

    def __enter__(self) -> Newcomers:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join(WAIT_S)


def is_answered(connection: ssl.SSLSocket) -> bool:
    connection.sendall(VERSIONS_0)
    return connection.recv(1 << 14)[4:8] == b"\0\0\0\x07"


def test_a_certificate_is_replaced_under_live_and_new_connections(make_secure: MakeSecure) -> None:
    broker = make_secure(**{"ssl.reload.interval.ms": 3_600_000})
    first = served(broker)
    assert metric(broker) == expires(first)
    producer = Producer(
        {
            "bootstrap.servers": broker.bootstrap,
            "security.protocol": "SSL",
            "ssl.ca.location": str(broker.authority.certificate),
        }
    )
    producer.produce("t", b"before")
    assert producer.flush(WAIT_S) == 0
    renewed = broker.authority.issue("renewed", subject="/CN=broker", days=30)
    context = client_context(broker.authority)
    with ExitStack() as stack:
        live = []
        for _ in range(LIVE):
            opened = socket.create_connection(("127.0.0.1", broker.port), timeout=WAIT_S)
            tls = context.wrap_socket(opened, server_hostname="localhost")
            live.append(stack.enter_context(tls))
        newcomers = stack.enter_context(Newcomers(broker))
        assert eventually(lambda: bool(newcomers.served), 10)
        broker.store.write_bytes(renewed.both)
        # The same value again, as operators of Apache Kafka have a store read again.
        change(
            broker.process.bootstrap,
            "listener.name.ssl.ssl.keystore.location",
            str(broker.store),
            node_id=1,
        )
        assert eventually(lambda: newcomers.served[-1] != first, 10)
        assert all(is_answered(each) for each in live)
        count = len(newcomers.served)
        assert eventually(lambda: len(newcomers.served) >= count + 5, 10)
    assert not newcomers.errors
    changes = sum(a != b for a, b in pairwise(newcomers.served))
    assert changes == 1
    assert metric(broker) == expires(newcomers.served[-1]) > expires(first)
    producer.produce("t", b"after")
    assert producer.flush(WAIT_S) == 0


def test_a_signal_has_the_files_read(make_secure: MakeSecure) -> None:
    broker = make_secure(**{"ssl.reload.interval.ms": 3_600_000})
    first = served(broker)
    renewed = broker.authority.issue("renewed", subject="/CN=broker")
    broker.store.write_bytes(renewed.both)
    os.kill(broker.process.pid, signal.SIGHUP)
    assert eventually(lambda: served(broker) != first, 10)


def test_a_store_that_cannot_be_served_is_refused(make_secure: MakeSecure) -> None:
    broker = make_secure()
    first = served(broker)
    key = "listener.name.ssl.ssl.keystore.location"
    with pytest.raises(KafkaException, match="No such file"):
        change(broker.process.bootstrap, key, "/absent.pem", node_id=1)
    with pytest.raises(KafkaException, match="only per-listener"):
        change(broker.process.bootstrap, "ssl.keystore.location", str(broker.store), node_id=1)
    assert served(broker) == first


def test_commands_speak_tls(make_secure: MakeSecure, tmp_path: Path) -> None:
    broker = make_secure(**{"ssl.client.auth": "required"})
    client = broker.authority.issue("client")
    store, config = tmp_path / "client-store.pem", tmp_path / "client.properties"
    store.write_bytes(client.both)

    def kbroker(*words: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "kbroker", *words, "-b", broker.bootstrap]
        environ = os.environ | {"KBROKER_COMMAND_CONFIG": str(config)}
        return subprocess.run(command, env=environ, capture_output=True, text=True, timeout=WAIT_S)

    trust = (
        "security.protocol=SSL\nssl.truststore.type=PEM\n"
        f"ssl.truststore.location={broker.authority.certificate}\n"
    )
    config.write_text(f"{trust}ssl.keystore.type=PEM\nssl.keystore.location={store}\n")
    assert kbroker("topic", "create", "made").returncode == 0
    assert "made" in kbroker("topic", "list").stdout
    config.write_text(trust)
    assert kbroker("topic", "list").returncode != 0
    config.write_text("security.protocol=SSL\n")
    refused = kbroker("topic", "list")
    assert "its certificate is not accepted" in refused.stderr


def test_a_broker_without_tls_loads_nothing_of_it(broker: Broker) -> None:
    mapped = process_facts.mapped_files(broker.pid)
    assert any("/kbroker/net/_processor" in path for path in mapped)
    assert not {path for path in mapped if "/kbroker/net/_tls" in path or "_openssl" in path}


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"ssl.keystore.location": "/absent.pem"}, "cannot be read: No such file"),
        ({"ssl.keystore.type": "JKS"}, "it is a file in PEM -> set the store's type to PEM"),
        ({"ssl.cipher.suites": "TLS_NONE"}, "is no cipher suite"),
    ],
)
def test_a_start_that_is_refused(
    make_broker: MakeBroker, tmp_path: Path, settings: dict[str, str], reason: str
) -> None:
    with pytest.raises(BrokerFailed) as failed:
        SecureBroker(make_broker, tmp_path, **settings)
    assert failed.value.exit_status == ConfigError.exit_code
    (line,) = [each for each in failed.value.log.splitlines() if ConfigError.ident in each]
    assert reason in line


def test_health_warns_of_a_certificate_that_expires_soon(
    make_secure: MakeSecure, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    broker = make_secure(**{"admin.listeners": "https://127.0.0.1:0"})
    file = tmp_path / "client.properties"
    trusted = f"ssl.truststore.type=PEM\nssl.truststore.location={broker.authority.certificate}\n"
    file.write_text(f"security.protocol=SSL\n{trusted}")
    admin = broker.process.admin
    assert admin.startswith("https://")
    words = ["health", "-b", broker.bootstrap, "--admin", admin, "--command-config", str(file)]
    assert main(words) == 1
    lines = capsys.readouterr().out.splitlines()
    soon = [each for each in lines if each.startswith("warning  certificate")]
    assert any("broker 1: its certificate expires in 1 days" in each for each in soon), lines
    for listener in ("SSL", "ADMIN"):
        wanted = f"{admin}: the certificate of {listener} expires in "
        assert any(wanted in each for each in soon), lines
    assert any(f"{admin} is ready" in each for each in lines)
