"""Clients on a listener with SASL: users, wrong passwords, sessions that end.

How each kind of client logs in by each mechanism is in test_secure_clients.py.

One broker with a plain listener and one that authenticates. Users of SCRAM are made over the plain
one, by librdkafka; those of PLAIN are in the configuration.
"""

from __future__ import annotations

import io
import json
import socket
import struct
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import confluent_kafka
import kafka
import pytest
from confluent_kafka import admin as rdkafka_admin
from kafka.errors import KafkaError as KafkaPythonError

from kbroker.cli.main import main
from kbroker.errors import KafkaError
from kbroker.peer.client import Client
from kbroker.security.client_login import ClientLogin
from kbroker.testing import Broker
from kbroker.testing.plain import PlainBroker
from kbroker.types import ApiKey
from lab.ports import free_port
from tests.clients.agents.driver import eventually
from tests.clients.agents.tools import Tools

MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
USER, PASSWORD = "alice", 'p"w\\ d,=%'
ODD_USER = "al,ice=%2C \u00e9"
_PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
WAIT_S = 30


class Secured:
    def __init__(self, broker: Broker, port: int) -> None:
        self.broker, self.port = broker, port

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.port}"

    def rdkafka(self, mechanism: str, user: str = USER, password: str = PASSWORD) -> dict[str, Any]:
        return {
            "bootstrap.servers": self.bootstrap,
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": mechanism,
            "sasl.username": user,
            "sasl.password": password,
        }

    def python(self, mechanism: str, password: str = PASSWORD) -> dict[str, Any]:
        return {
            "bootstrap_servers": self.bootstrap,
            "security_protocol": "SASL_PLAINTEXT",
            "sasl_mechanism": mechanism,
            "sasl_plain_username": USER,
            "sasl_plain_password": password,
        }

    def admin(self) -> Any:
        return rdkafka_admin.AdminClient({"bootstrap.servers": self.broker.bootstrap})

    def alter(self, *alterations: Any) -> None:
        """One request for each, since one names a user once."""
        client = self.admin()
        for each in alterations:
            for made in client.alter_user_scram_credentials([each]).values():
                made.result(WAIT_S)


def upsertion(user: str, password: str, mechanism: str = "SCRAM_SHA_256") -> Any:
    info = rdkafka_admin.ScramCredentialInfo(rdkafka_admin.ScramMechanism[mechanism], 4096)
    return rdkafka_admin.UserScramCredentialUpsertion(user, info, password.encode())


@pytest.fixture(scope="module")
def secured() -> Iterator[Secured]:
    port = free_port()
    quoted = PASSWORD.replace("\\", "\\\\").replace('"', '\\"')
    overrides = {
        "listeners": f"PLAINTEXT://127.0.0.1:{free_port()},SECURE://127.0.0.1:{port}",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SECURE:SASL_PLAINTEXT",
        "sasl.enabled.mechanisms": ",".join(MECHANISMS),
        "listener.name.secure.plain.sasl.jaas.config": (
            f'{_PLAIN} required user_{USER}="{quoted}" user_eve=hers;'
        ),
        "admin.listeners": "http://127.0.0.1:0",
        "password.encoder.secret": "of-stored-passwords",
    }
    with Broker(overrides, topics={"t": 1}) as broker:
        made = Secured(broker, port)
        made.alter(upsertion(USER, PASSWORD), upsertion(USER, PASSWORD, "SCRAM_SHA_512"))
        yield made


def written(secured: Secured, text: str) -> bool:
    return any(record.value == text.encode() for record in secured.broker.records("t"))


# --- what logs in ---------------------------------------------------------------------------------


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_our_own_client(secured: Secured, mechanism: str) -> None:
    login = ClientLogin(mechanism, USER, PASSWORD)
    with Client(secured.bootstrap, login=login) as client:
        assert client.partitions("t") == [0]


def test_a_name_with_all_that_is_escaped(secured: Secured) -> None:
    secured.alter(upsertion(ODD_USER, "\u20ac"))
    settings = secured.rdkafka("SCRAM-SHA-256", ODD_USER, "\u20ac")
    assert rdkafka_admin.AdminClient(settings).list_topics(timeout=WAIT_S).topics
    login = ClientLogin("SCRAM-SHA-256", ODD_USER, "\u20ac")
    with Client(secured.bootstrap, login=login) as client:
        assert client.partitions("t") == [0]


def test_a_user_is_a_user_at_once_and_no_more(secured: Secured) -> None:
    def logs_in(password: str) -> bool:
        login = ClientLogin("SCRAM-SHA-256", "mallory", password)
        try:
            with Client(secured.bootstrap, login=login) as client:
                return client.partitions("t") == [0]
        except KafkaError:
            return False

    assert not logs_in("first")
    secured.alter(upsertion("mallory", "first"))
    assert logs_in("first")
    secured.alter(upsertion("mallory", "second"))
    assert logs_in("second") and not logs_in("first")
    sha_256 = rdkafka_admin.ScramMechanism.SCRAM_SHA_256
    secured.alter(rdkafka_admin.UserScramCredentialDeletion("mallory", sha_256))
    assert not logs_in("second")


def test_users_of_plain_change_at_run_time(secured: Secured) -> None:
    key = "listener.name.secure.plain.sasl.jaas.config"
    client = secured.admin()

    def alter(text: str | None) -> None:
        kind = rdkafka_admin.AlterConfigOpType
        operation = kind.DELETE if text is None else kind.SET
        entry = rdkafka_admin.ConfigEntry(key, text, incremental_operation=operation)
        broker = rdkafka_admin.ConfigResource(
            rdkafka_admin.ConfigResource.Type.BROKER, "1", incremental_configs=[entry]
        )
        for made in client.incremental_alter_configs([broker]).values():
            made.result(WAIT_S)

    def logs_in(user: str, password: str) -> bool:
        try:
            with Client(secured.bootstrap, login=ClientLogin("PLAIN", user, password)) as own:
                return own.partitions("t") == [0]
        except KafkaError:
            return False

    alter(f"{_PLAIN} required user_new=pw;")
    assert logs_in("new", "pw") and not logs_in("eve", "hers")
    with pytest.raises(confluent_kafka.KafkaException, match="JndiLoginModule' is not known"):
        alter("com.sun.security.auth.module.JndiLoginModule required;")
    broker = rdkafka_admin.ConfigResource(rdkafka_admin.ConfigResource.Type.BROKER, "1")
    (described,) = (each.result(WAIT_S) for each in client.describe_configs([broker]).values())
    assert described[key].value is None and described[key].is_sensitive
    alter(None)
    assert logs_in("eve", "hers") and not logs_in("new", "pw")


def test_users_outlive_a_restart(secured: Secured) -> None:
    secured.broker.restart()
    client = secured.admin()
    described = client.describe_user_scram_credentials([USER])[USER].result(WAIT_S)
    assert len(described.scram_credential_infos) == 2
    login = ClientLogin("SCRAM-SHA-512", USER, PASSWORD)
    with Client(secured.bootstrap, login=login) as own:
        assert own.partitions("t") == [0]


@pytest.mark.java
def test_kafkas_tools(secured: Secured, tools: Tools, tmp_path: Path) -> None:
    """Java's clients, by the tools: settings, a user, records."""
    mechanism = "SCRAM-SHA-512"

    def config(password: str) -> str:
        quoted = password.replace("\\", "\\\\").replace('"', '\\"').replace("\\", "\\\\")
        file = tmp_path / f"{len(password)}.properties"
        file.write_text(
            f"security.protocol=SASL_PLAINTEXT\nsasl.mechanism={mechanism}\n"
            "sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required"
            f' username="{USER}" password="{quoted}";\n'
        )
        return str(file)

    def run(tool: str, *words: str, stdin: bytes = b"") -> tuple[int, str]:
        done = tools.attempt(tool, "--bootstrap-server", secured.bootstrap, *words, stdin=stdin)
        return done.returncode, (done.stdout + done.stderr).decode()

    right, name = config(PASSWORD), f"java-{mechanism}"
    with_right = ("--command-config", right)
    assert "t" in run("TopicCommand", "--list", *with_right)[1].split()
    add = ("--add-config", f"{MECHANISMS[1]}=[iterations=8192,password=pw]")
    users = ("--entity-type", "users")
    configs = "kafka.admin.ConfigCommand"
    altered = run(configs, "--alter", *add, *users, "--entity-name", name, *with_right)
    assert altered[0] == 0, altered
    described = run(configs, "--describe", *users, "--entity-name", name, *with_right)
    assert "SCRAM-SHA-256=iterations=8192" in described[1], described
    with Client(secured.bootstrap, login=ClientLogin(MECHANISMS[1], name, "pw")) as own:
        assert own.partitions("t") == [0]
    delete = ("--delete-config", MECHANISMS[1])
    assert run(configs, "--alter", *delete, *users, "--entity-name", name, *with_right)[0] == 0
    produced = run(
        "ConsoleProducer", "--topic", "t", "--command-config", right,
        stdin=f"java {mechanism}\n".encode(),
    )  # fmt: skip
    assert produced[0] == 0, produced
    assert written(secured, f"java {mechanism}")
    wrong = config("wrong")
    refused = run("TopicCommand", "--list", "--command-config", wrong)
    assert refused[0] != 0 and "SaslAuthenticationException" in refused[1], refused


def test_our_own_commands(
    secured: Secured, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: Any
) -> None:
    def run(*words: str, stdin: str = "") -> tuple[int, str]:
        monkeypatch.setattr("sys.stdin", io.StringIO(stdin + "\n"))
        status = main([*words, "-b", secured.bootstrap, "--command-config", str(config)])
        return status, capfd.readouterr().out

    config = tmp_path / "client.properties"
    quoted = PASSWORD.replace("\\", "\\\\").replace('"', '\\"').replace("\\", "\\\\")
    config.write_text(
        "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=SCRAM-SHA-256\n"
        "sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required"
        f' username={USER} password="{quoted}";\n'
    )
    assert run("topic", "list")[0] == 0
    assert run("user", "add", "carol", "--password-file", "-", stdin="pw")[0] == 0
    with Client(secured.bootstrap, login=ClientLogin("SCRAM-SHA-512", "carol", "pw")) as own:
        assert own.partitions("t") == [0]
    status, text = run("user", "list", "-o", "json")
    assert status == 0 and {"user": "carol", "mechanism": "SCRAM-SHA-512", "iterations": 4096} in (
        json.loads(text)
    )
    assert run("user", "delete", "carol")[0] == 0
    assert run("user", "delete", "carol")[0] == 1


def test_a_broker_that_lets_only_users_in() -> None:
    """From its first start on: also its own sampler, which writes to a topic."""
    port = free_port()
    overrides = {
        "listeners": f"SECURE://127.0.0.1:{port}",
        "listener.security.protocol.map": "SECURE:SASL_PLAINTEXT",
        "inter.broker.listener.name": "SECURE",
        "sasl.enabled.mechanisms": "SCRAM-SHA-256",
        "sasl.mechanism.inter.broker.protocol": "SCRAM-SHA-256",
        "listener.name.secure.scram-sha-256.sasl.jaas.config": (
            "org.apache.kafka.common.security.scram.ScramLoginModule required username=admin"
            " password=pw;"
        ),
        "metrics.topic.enable": True,
        "metrics.topic.interval.ms": 1_000,
        "admin.listeners": "http://127.0.0.1:0",
    }

    class Started(PlainBroker):
        def command(self) -> list[str]:
            return [*super().command(), "--add-scram", "SCRAM-SHA-256=[name=admin,password=pw]"]

    login = ClientLogin("SCRAM-SHA-256", "admin", "pw")
    with Started(overrides) as broker, Client(broker.bootstrap, login=login) as client:
        eventually(lambda: "__kbroker_metrics" in client.metadata().topics, "the topic")
        assert client.partitions("__kbroker_metrics") == [0]


# --- what does not --------------------------------------------------------------------------------


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_wrong_passwords(secured: Secured, mechanism: str) -> None:
    said: list[str] = []
    settings = secured.rdkafka(mechanism, password="wrong")
    settings["error_cb"] = lambda error: said.append(error.str())
    client = rdkafka_admin.AdminClient(settings)
    with pytest.raises(confluent_kafka.KafkaException):
        client.list_topics(timeout=1)
    client.poll(1)
    text = (
        "Authentication failed: Invalid username or password"
        if mechanism == "PLAIN"
        else "Authentication failed during authentication due to invalid credentials with SASL"
        f" mechanism {mechanism}"
    )
    assert any(text in each for each in said), said
    with pytest.raises(KafkaPythonError):
        kafka.KafkaProducer(**secured.python(mechanism, "wrong"), bootstrap_timeout_ms=1_000)
    login = ClientLogin(mechanism, USER, "wrong")

    def is_refused_with_a_line() -> bool:
        """There is one line a second for all of them."""
        with pytest.raises(KafkaError, match=text), Client(secured.bootstrap, login=login) as own:
            own.metadata()
        return f"Failed authentication with 127.0.0.1 ({text})" in secured.broker.log_text()

    eventually(is_refused_with_a_line, "the refusal is in the log")


def test_a_client_without_a_password(secured: Secured) -> None:
    client = rdkafka_admin.AdminClient({"bootstrap.servers": secured.bootstrap})
    with pytest.raises(confluent_kafka.KafkaException):
        client.list_topics(timeout=1)
    with pytest.raises(KafkaError), Client(secured.bootstrap, timeout_ms=1_000) as own:
        own.metadata()


def test_no_password_is_in_the_log(secured: Secured) -> None:
    log = secured.broker.log_text()
    assert PASSWORD not in log and "wrong" not in log and "hers" not in log


# --- raw frames -----------------------------------------------------------------------------------


def talk(secured: Secured, *frames: bytes, answers: int) -> list[bytes]:
    """Sends all frames at once, and reads what comes until the end."""
    with socket.create_connection(("127.0.0.1", secured.port), timeout=WAIT_S) as client:
        client.sendall(b"".join(struct.pack(">i", len(each)) + each for each in frames))
        stream = client.makefile("rb")
        return [stream.read(struct.unpack(">i", stream.read(4))[0]) for _ in range(answers)]


def test_tokens_without_headers(secured: Secured) -> None:
    """As clients of before Kafka 1.0 send them, and a request after them in the same packet."""
    handshake = struct.pack(">hhih", 17, 0, 5, -1) + struct.pack(">h", 5) + b"PLAIN"
    metadata = struct.pack(">hhih", 3, 1, 6, -1) + struct.pack(">i", -1)
    token = f"\0{USER}\0{PASSWORD}".encode()
    named, said, listed = talk(secured, handshake, token, metadata, answers=3)
    assert struct.unpack_from(">ih", named) == (5, 0)
    assert said == b""
    assert struct.unpack_from(">i", listed) == (6,)


def test_the_network_core_counts_failures(secured: Secured) -> None:
    line = "an authentication that failed"  # with others, once a second
    eventually(lambda: line in secured.broker.log_text(), "a line of the log")


# --- sessions that end ----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def short_lived() -> Iterator[Secured]:
    """A broker whose sessions last two seconds."""
    port = free_port()
    overrides = {
        "listeners": f"PLAINTEXT://127.0.0.1:{free_port()},SECURE://127.0.0.1:{port}",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SECURE:SASL_PLAINTEXT",
        "sasl.enabled.mechanisms": ",".join(MECHANISMS),
        "listener.name.secure.plain.sasl.jaas.config": f"{_PLAIN} required user_{USER}=pw;",
        "listener.name.secure.plain.connections.max.reauth.ms": 2_000,
        "connections.max.reauth.ms": 2_500,
        "admin.listeners": "http://127.0.0.1:0",
        "password.encoder.secret": "of-stored-passwords",
    }
    with Broker(overrides, topics={"t": 1}) as broker:
        made = Secured(broker, port)
        made.alter(upsertion(USER, "pw"), upsertion(USER, "pw", "SCRAM_SHA_512"))
        yield made


def test_librdkafka_authenticates_again(short_lived: Secured) -> None:
    """It writes on one connection for longer than three sessions last, and is never cut off."""
    connects: dict[str, set[int]] = {mechanism: set() for mechanism in MECHANISMS}

    def counted(mechanism: str) -> Any:
        def note(statistics: str) -> None:
            for each in json.loads(statistics)["brokers"].values():
                if each["nodeid"] == 1:
                    connects[mechanism].add(each["connects"])

        settings = short_lived.rdkafka(mechanism, password="pw")
        settings |= {"statistics.interval.ms": 500, "stats_cb": note, "linger.ms": 0}
        return confluent_kafka.Producer(settings)

    producers = {mechanism: counted(mechanism) for mechanism in MECHANISMS}
    ends_at = time.monotonic() + 8
    while time.monotonic() < ends_at:
        for mechanism, producer in producers.items():
            producer.produce("t", mechanism)
            producer.poll(0.05)
    for mechanism, producer in producers.items():
        producer.produce("t", f"{mechanism} last")
        assert producer.flush(WAIT_S) == 0
        assert written(short_lived, f"{mechanism} last")
    assert "a session that was over" not in short_lived.broker.log_text()
    assert all(max(each) == 1 for each in connects.values()), connects


def test_logins_are_in_the_metrics(short_lived: Secured) -> None:
    with Client(short_lived.bootstrap, login=ClientLogin("PLAIN", USER, "pw")) as client:
        client.metadata()
    with pytest.raises(KafkaError):
        Client(short_lived.bootstrap, login=ClientLogin("PLAIN", USER, "x")).metadata()
    with urllib.request.urlopen(f"{short_lived.broker.admin}/metrics", timeout=WAIT_S) as page:
        lines = page.read().decode().splitlines()
    for name in ("successful", "failed"):
        metric = (
            f'kafka_server_socket_server_metrics_{name}_authentication_total{{listener="SECURE"'
        )
        (found,) = [line for line in lines if line.startswith(metric)]
        assert float(found.rpartition(" ")[2]) > 0


def test_a_client_that_does_not_is_cut_off(short_lived: Secured) -> None:
    """As one of before SaslAuthenticate v1; a connection that is idle is left. A client of ours
    opens another one instead."""
    login = ClientLogin("PLAIN", USER, "pw")
    with Client(short_lived.bootstrap, login=login) as client:
        client.metadata()
        link = client.cluster.link(client.cluster.any_broker())
        # The session ends by the broker's clock alone: no request, and nothing announces it.
        time.sleep(2.5)
        assert not link.closed and not link.usable
        deadline_ns = client.cluster.deadline_ns()
        asked = (ApiKey.METADATA, 4, struct.pack(">i?", 0, False), deadline_ns)
        with pytest.raises(KafkaError, match="has ended"):
            link.send(*asked)
        link._ends_ns = 0  # as a client that was not notified of it
        link.send(*asked)
        with pytest.raises(KafkaError, match="closed the connection"):
            link.receive(deadline_ns)
        assert client.metadata().brokers  # by a new connection
    eventually(
        lambda: "a session that was over" in short_lived.broker.log_text(), "a line of the log"
    )


# --- over TLS -------------------------------------------------------------------------------------


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_over_tls(mechanism: str) -> None:
    with Broker(topics={"t": 1}, users={USER: PASSWORD}, tls=True) as broker:
        settings = broker.client_settings(USER, mechanism=mechanism)
        producer = confluent_kafka.Producer(settings)
        producer.produce("t", mechanism)
        assert producer.flush(WAIT_S) == 0
        assert [each.value for each in broker.records("t")] == [mechanism.encode()]
        wrong = rdkafka_admin.AdminClient({**settings, "sasl.password": "wrong"})
        with pytest.raises(confluent_kafka.KafkaException):
            wrong.list_topics(timeout=1)
