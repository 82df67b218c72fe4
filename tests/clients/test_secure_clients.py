"""Other people's clients on a listener with TLS and logins: each by each mechanism that it has.

Each client writes a record and reads it in a group, by one mechanism after the other; is refused
with another password; and does not talk to a broker whose certificate it has no reason to trust.
All clients do so beside each other, with one broker: the tests read the table that comes of it.
"""

from __future__ import annotations

import asyncio
import re
import ssl
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import cached_property
from pathlib import Path
from typing import Any, Final, NamedTuple

import aiokafka
import aiokafka.abc
import confluent_kafka
import kafka
import kafka.net.sasl.oauth
import pytest
from confluent_kafka import admin as rdkafka_admin

from kbroker.testing import Broker
from tests.clients.adapters import Record
from tests.clients.agents import programs
from tests.clients.agents.driver import Agent, eventually
from tests.clients.agents.tools import Tools
from tests.support import requirements
from tests.support.bearer_tokens import Signer, key_set
from tests.support.certificates import Authority

pytestmark = [pytest.mark.client, pytest.mark.java, pytest.mark.timeout(180)]

PASSWORDS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
OAUTH: Final = "OAUTHBEARER"
ALL: Final = (*PASSWORDS, OAUTH)
USER, PASSWORD = "alice", 'p"w, d=%'
WRONG: Final = "another password"
WAIT_S: Final = 30
REFUSED_S: Final = 3  # of clients that try again and again
_KEYS: Final = "listener.name.secure.oauthbearer.sasl.oauthbearer"
_MODULES: Final = "org.apache.kafka.common.security"


class Login(NamedTuple):
    mechanism: str
    issuer: Path  # that is trusted
    password: str = PASSWORD
    token: str = ""


class Refused(Exception):
    """What a client said."""


class Client:
    """One kind of client; a thread of its own has it."""

    name: str
    mechanisms: Sequence[str] = ALL
    refused_by = "SCRAM-SHA-256"  # with another password
    # In what it says.
    refusal: str
    distrust: str

    def __init__(self, bootstrap: str, directory: Path) -> None:
        self.bootstrap, self.directory = bootstrap, directory

    def write(self, login: Login, topic: str, value: bytes) -> None:
        raise NotImplementedError

    def read(self, login: Login, topic: str, group: str, count: int) -> list[bytes]:
        """So many records, from the beginning, in a group."""
        raise NotImplementedError

    def connect(self, login: Login) -> None:
        """Ask for anything; an error if the broker, or the client, does not want to."""
        raise NotImplementedError

    def close(self) -> None:
        pass


# --- those of librdkafka --------------------------------------------------------------------------


def librdkafka(bootstrap: str, login: Login) -> dict[str, str]:
    settings = {
        "bootstrap.servers": bootstrap,
        "security.protocol": "SASL_SSL",
        "ssl.ca.location": str(login.issuer),
        "sasl.mechanism": login.mechanism,
    }
    if login.mechanism != OAUTH:
        settings |= {"sasl.username": USER, "sasl.password": login.password}
    return settings


class Confluent(Client):
    name = "confluent-kafka"
    refusal = "invalid credentials"
    distrust = "certificate verify failed"

    def _settings(self, login: Login, **more: Any) -> dict[str, Any]:
        settings: dict[str, Any] = {**librdkafka(self.bootstrap, login), **more}
        if login.mechanism == OAUTH:
            settings["oauth_cb"] = lambda _: (login.token, time.time() + 3_000)
        return settings

    def write(self, login: Login, topic: str, value: bytes) -> None:
        failed: list[Any] = []
        producer = confluent_kafka.Producer(self._settings(login))
        producer.produce(topic, value, on_delivery=lambda error, _: failed.append(error))
        assert producer.flush(WAIT_S) == 0 and failed == [None], failed

    def read(self, login: Login, topic: str, group: str, count: int) -> list[bytes]:
        own = {"group.id": group, "auto.offset.reset": "earliest"}
        consumer = confluent_kafka.Consumer(self._settings(login, **own))
        consumer.subscribe([topic])
        found = consumer.consume(count, WAIT_S)
        consumer.close()
        return [each.value() for each in found]

    def connect(self, login: Login) -> None:
        said: list[str] = []
        own = {"error_cb": lambda error: said.append(error.str())}
        client = rdkafka_admin.AdminClient(self._settings(login, **own))
        try:
            client.list_topics(timeout=REFUSED_S)
        except confluent_kafka.KafkaException as error:
            client.poll(0)
            raise Refused("; ".join(said)) from error


class Kcat(Client):
    """Its tokens are of a server, or unsecured. Debian 12 has it with librdkafka 2.0.2; those
    before 2.6.1 repeat their nonce in the final message of SCRAM: refused, as by Apache Kafka 4."""

    name = "kcat"
    mechanisms = ("PLAIN",)
    refused_by = "PLAIN"
    refusal = "Invalid username or password"
    distrust = "certificate verify failed"

    def _run(self, login: Login, *words: str, stdin: bytes = b"") -> bytes:
        settings = librdkafka(self.bootstrap, login)
        options = [f"-X{name}={value}" for name, value in settings.items()]
        ran = subprocess.run(
            [requirements.kcat(), *options, *words],
            input=stdin,
            capture_output=True,
            timeout=WAIT_S,
        )
        if ran.returncode != 0:
            raise Refused(ran.stderr.decode(errors="replace"))
        return ran.stdout

    def write(self, login: Login, topic: str, value: bytes) -> None:
        self._run(login, "-P", "-t", topic, stdin=value + b"\n")

    def read(self, login: Login, topic: str, group: str, count: int) -> list[bytes]:
        words = ("-Xauto.offset.reset=earliest", "-q", "-c", str(count), "-G", group, topic)
        return self._run(login, *words).splitlines()

    def connect(self, login: Login) -> None:
        self._run(login, "-L", "-m", str(REFUSED_S))


# --- Python's -------------------------------------------------------------------------------------


def python(bootstrap: str, login: Login) -> dict[str, Any]:
    return {
        "bootstrap_servers": bootstrap,
        "security_protocol": "SASL_SSL",
        "ssl_context": ssl.create_default_context(cafile=str(login.issuer)),
        "sasl_mechanism": login.mechanism,
        "sasl_plain_username": USER,
        "sasl_plain_password": login.password,
    }


class KafkaPythonToken(kafka.net.sasl.oauth.AbstractTokenProvider):
    def __init__(self, token: str) -> None:
        self._token = token

    def token(self) -> str:
        return self._token


class KafkaPython(Client):
    name = "kafka-python"
    refusal = distrust = "Unable to bootstrap"

    def _settings(self, login: Login) -> dict[str, Any]:
        settings = python(self.bootstrap, login)
        if login.mechanism == OAUTH:
            settings["sasl_oauth_token_provider"] = KafkaPythonToken(login.token)
        return settings

    def write(self, login: Login, topic: str, value: bytes) -> None:
        producer = kafka.KafkaProducer(**self._settings(login))
        producer.send(topic, value).get(WAIT_S)
        producer.close()

    def read(self, login: Login, topic: str, group: str, count: int) -> list[bytes]:
        own = {"group_id": group, "auto_offset_reset": "earliest"}
        consumer = kafka.KafkaConsumer(topic, **self._settings(login), **own)
        found: list[bytes] = []
        until_s = time.monotonic() + WAIT_S
        while len(found) < count and time.monotonic() < until_s:
            for records in consumer.poll(timeout_ms=2_000).values():
                found += [each.value for each in records]
        consumer.close()
        return found

    def connect(self, login: Login) -> None:
        kafka.KafkaProducer(**self._settings(login), bootstrap_timeout_ms=1_000).close()


class AiokafkaToken(aiokafka.abc.AbstractTokenProvider):
    def __init__(self, token: str) -> None:
        self._token = token

    async def token(self) -> str:
        return self._token


class Aiokafka(Client):
    name = "aiokafka"
    refusal = distrust = "Unable to bootstrap"

    def _settings(self, login: Login) -> dict[str, Any]:
        settings = python(self.bootstrap, login)
        if login.mechanism == OAUTH:
            settings["sasl_oauth_token_provider"] = AiokafkaToken(login.token)
        return settings

    def write(self, login: Login, topic: str, value: bytes) -> None:
        async def send() -> None:
            async with aiokafka.AIOKafkaProducer(**self._settings(login)) as producer:
                await producer.send_and_wait(topic, value)

        asyncio.run(send())

    def read(self, login: Login, topic: str, group: str, count: int) -> list[bytes]:
        own = {"group_id": group, "auto_offset_reset": "earliest"}

        async def receive() -> list[bytes]:
            async with aiokafka.AIOKafkaConsumer(topic, **self._settings(login), **own) as consumer:
                return [(await consumer.getone()).value for _ in range(count)]

        return asyncio.run(asyncio.wait_for(receive(), WAIT_S))

    def connect(self, login: Login) -> None:
        async def start() -> None:
            producer = aiokafka.AIOKafkaProducer(**self._settings(login))
            try:
                await producer.start()
            finally:
                await producer.stop()

        asyncio.run(start())


# --- Java's ---------------------------------------------------------------------------------------


class Java(Client):
    """A producer, a consumer and an admin, as Apache Kafka's tools have them."""

    name = "java"
    refusal = "SaslAuthenticationException.*invalid credentials"
    distrust = "SslAuthenticationException|PKIX|SSL handshake failed"

    @cached_property
    def _tools(self) -> Tools:
        allowed = "-Dorg.apache.kafka.sasl.oauthbearer.allowed"
        return Tools(f"{allowed}.urls={self._token.as_uri()}", f"{allowed}.files={self._token}")

    @property
    def _token(self) -> Path:
        return self.directory / "java-token"

    def _file(self, login: Login) -> Path:
        lines = [
            "security.protocol=SASL_SSL",
            "ssl.truststore.type=PEM",
            f"ssl.truststore.location={login.issuer}",
            f"sasl.mechanism={login.mechanism}",
        ]
        if login.mechanism == OAUTH:
            self._token.write_text(login.token)
            package = f"{_MODULES}.oauthbearer.OAuthBearerLogin"
            lines += [
                f"sasl.jaas.config={package}Module required;",
                f"sasl.login.callback.handler.class={package}CallbackHandler",
                f"sasl.oauthbearer.token.endpoint.url={self._token.as_uri()}",
            ]
        else:
            module = "plain.Plain" if login.mechanism == "PLAIN" else "scram.Scram"
            quoted = login.password.replace("\\", "\\\\").replace('"', '\\"')
            words = f'{module}LoginModule required username={USER} password="{quoted}";'
            lines.append(f"sasl.jaas.config={_MODULES}.{words}".replace("\\", "\\\\"))
        file = self.directory / "java.properties"
        file.write_text("\n".join(lines) + "\n")
        return file

    def _run(self, login: Login, tool: str, *words: str, stdin: bytes = b"") -> bytes:
        to = ("--bootstrap-server", self.bootstrap, "--command-config", str(self._file(login)))
        done = self._tools.attempt(tool, *to, *words, stdin=stdin)
        if done.returncode != 0:
            raise Refused((done.stdout + done.stderr).decode(errors="replace"))
        return done.stdout

    def write(self, login: Login, topic: str, value: bytes) -> None:
        self._run(login, "ConsoleProducer", "--topic", topic, stdin=value + b"\n")

    def read(self, login: Login, topic: str, group: str, count: int) -> list[bytes]:
        words = ("--topic", topic, "--group", group, "--from-beginning")
        bounds = ("--max-messages", str(count), "--timeout-ms", str(WAIT_S * 1_000))
        return self._run(login, "consumer.ConsoleConsumer", *words, *bounds).splitlines()

    def connect(self, login: Login) -> None:
        self._run(login, "TopicCommand", "--list")

    def close(self) -> None:
        self._tools.close()


# --- programs in other languages ------------------------------------------------------------------


class Program(Client):
    strategy = "range"

    @cached_property
    def _agent(self) -> Agent:
        (library,) = (each for each in programs.LIBRARIES if each.name == self.name)
        return programs.agent(library, self.bootstrap, subprocess.DEVNULL)

    def _secure(self, login: Login) -> None:
        self._agent.ask(
            "secure", ca=str(login.issuer), mechanism=login.mechanism, user=USER,
            password=login.password, token=login.token,
        )  # fmt: skip

    def write(self, login: Login, topic: str, value: bytes) -> None:
        self._secure(login)
        self._agent.produce(topic, [(0, Record(value))])

    def read(self, login: Login, topic: str, group: str, count: int) -> list[bytes]:
        self._secure(login)
        self._agent.join(group, group, [topic], self.strategy)
        found: list[bytes] = []

        def all_are_there() -> bool:
            found.extend(each.value or b"" for each in self._agent.take(group))
            return len(found) >= count

        eventually(all_are_there, "the records are read", WAIT_S)
        self._agent.leave(group)
        return found

    def connect(self, login: Login) -> None:
        self._secure(login)
        self._agent.ask("connect")

    def close(self) -> None:
        self._agent.close()


class FranzGo(Program):
    name = "franz-go"
    refusal = "invalid credentials"
    distrust = "failed to verify certificate"


class Sarama(Program):
    name = "sarama"
    refusal = "invalid credentials"
    distrust = "failed to verify certificate"


class Kafkajs(Program):
    name = "kafkajs"
    strategy = "RoundRobinAssigner"
    refusal = "invalid credentials"
    distrust = "unable to verify the first certificate|self.signed certificate"


CLIENTS: Final = (Confluent, Kcat, KafkaPython, Aiokafka, Java, FranzGo, Sarama, Kafkajs)


# --- the table ------------------------------------------------------------------------------------


class Row(NamedTuple):
    """What came of each mechanism; "": all went well."""

    mechanisms: dict[str, str]
    refused: str
    distrusted: str


class World(NamedTuple):
    broker: Broker
    token: str
    stranger: Path


def said_by(act: Callable[[], None]) -> str:
    try:
        act()
    except Exception as error:  # whatever a library raises
        return f"{type(error).__name__}: {error}"
    return ""


def row(make: type[Client], world: World, directory: Path) -> Row:
    directory.mkdir()
    client = make(world.broker.bootstrap, directory)
    issuer = world.broker.authority_path

    def round_trip(mechanism: str) -> None:
        login = Login(mechanism, issuer, token=world.token)
        value, count = mechanism.encode(), client.mechanisms.index(mechanism) + 1
        client.write(login, client.name, value)
        group = f"{client.name}-{mechanism}"
        found = client.read(login, client.name, group, count)
        assert value in found, found

    try:
        return Row(
            {each: said_by(lambda each=each: round_trip(each)) for each in client.mechanisms},
            said_by(lambda: client.connect(Login(client.refused_by, issuer, WRONG))),
            said_by(lambda: client.connect(Login("PLAIN", world.stranger))),
        )
    finally:
        client.close()


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    directory = tmp_path_factory.mktemp("issuers")
    signer, keys, now_s = Signer("ES256", "k"), directory / "keys.json", int(time.time())
    keys.write_bytes(key_set(signer))
    overrides = {
        "sasl.enabled.mechanisms": ",".join(ALL),
        "kbroker.oauthbearer.allowed.urls": keys.as_uri(),
        f"{_KEYS}.jwks.endpoint.url": keys.as_uri(),
    }
    topics = {each.name: 1 for each in CLIENTS}
    token = signer.token(sub=USER, iat=now_s, exp=now_s + 3_600, scope="kafka")
    stranger = Authority(directory, "stranger").certificate
    with Broker(overrides, topics=topics, users={USER: PASSWORD}, tls=True) as broker:
        yield World(broker, token, stranger)


@pytest.fixture(scope="module")
def rows(world: World, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Row]:
    directory = tmp_path_factory.mktemp("clients")
    with ExitStack() as stack:
        pool = stack.enter_context(ThreadPoolExecutor(len(CLIENTS)))
        begun = {each: pool.submit(row, each, world, directory / each.name) for each in CLIENTS}
        return {each.name: future.result() for each, future in begun.items()}


@pytest.mark.parametrize("client", CLIENTS, ids=lambda client: client.name)
def test_a_client(client: type[Client], rows: dict[str, Row]) -> None:
    found = rows[client.name]
    assert found.mechanisms == dict.fromkeys(client.mechanisms, "")
    assert re.search(client.refusal, found.refused, re.DOTALL), found.refused
    assert re.search(client.distrust, found.distrusted, re.DOTALL), found.distrusted


def test_the_log_has_the_reasons_and_no_password(world: World, rows: dict[str, Row]) -> None:
    log = world.broker.log_text()
    assert "Failed authentication with 127.0.0.1 (" in log and "TLS failed for" in log
    assert PASSWORD not in log and WRONG not in log and world.token not in log
