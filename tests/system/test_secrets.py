"""Some secrets, and everything that a broker and our commands write: none of them is in it.

A broker is given a key store's password, a password of SCRAM, one of PLAIN, a private key as text,
a JAAS text and the secret of delegation tokens; clients come with such a token and with bearer
tokens. Its loggers write all that they can; its clients log in, rightly and wrongly, alter
and describe settings, and send what is malformed; its pages are read; starts fail because of these
secrets. Then the log, the audit log, files, answers, pages, arguments and what commands printed are
searched for them, as they are and in base64 and hexadecimal.
"""

from __future__ import annotations

import base64
import io
import json
import socket
import struct
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource

from kbroker.cli.main import main
from kbroker.errors import KafkaError
from kbroker.peer.client import Client
from kbroker.peer.token_messages import decode_describe_tokens, encode_describe_tokens
from kbroker.security.client_login import ClientLogin
from kbroker.security.delegation_token import password_of
from kbroker.security.plain import plain_token
from kbroker.testing.plain import PlainBroker
from kbroker.types import ApiKey
from lab.ports import free_port
from tests.clients.agents.driver import eventually
from tests.support.bearer_tokens import Signer, key_set
from tests.support.certificates import Authority, openssl

pytestmark = pytest.mark.client

WAIT_S = 30
KEY_PASSWORD = "canary-of-the-key-store"
SCRAM_PASSWORD = "canary-of-scram"
PLAIN_PASSWORD = "canary-of-plain"
JAAS_PASSWORD = "canary-in-a-jaas-text"
TOKEN_SECRET = "canary-of-delegation-tokens"
ENCODER_SECRET = "canary-of-stored-passwords"
_MODULES = "org.apache.kafka.common.security"
PLAIN = f"{_MODULES}.plain.PlainLoginModule required"
JAAS_KEY = "listener.name.secure.plain.sasl.jaas.config"
METRICS = "__kbroker_metrics"
PAGES = ("/", "/metrics", "/health", "/healthz", "/readyz", "/livez", "/status", "/none")


class Secretive(PlainBroker):
    """A broker whose settings are in a file that only its owner may read."""

    def __init__(self, directory: Path, settings: dict[str, str]) -> None:
        super().__init__()
        self.file = directory / "server.properties"
        lines = [f"{key}={value}".replace("\\", "\\\\") for key, value in settings.items()]
        self.file.write_text("\n".join([*lines, f"log.dirs={self.data_dir}"]))
        self.file.chmod(0o600)

    def command(self) -> list[str]:
        words = [sys.executable, *self.program(), str(self.file)]
        return [*words, "--ready-file", str(self.ready_path)]


class World:
    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.outputs: dict[str, bytes] = {}
        authority = Authority(directory)
        certificate = authority.issue("broker")
        plain, self.secure_port, tls_port = free_port(), free_port(), free_port()
        encrypted = openssl(
            "pkcs8", "-topk8", "-in", certificate.key, "-passout", f"pass:{KEY_PASSWORD}"
        )
        self.store = directory / "encrypted.pem"
        self.store.write_bytes(encrypted + certificate.chain.read_bytes())
        self.store.chmod(0o600)
        key_lines = certificate.key.read_text().split()
        self.key_text = max(key_lines, key=len)  # a line of the key itself
        self.secrets = {
            "the key store's password": KEY_PASSWORD,
            "the password of SCRAM": SCRAM_PASSWORD,
            "the password of PLAIN": PLAIN_PASSWORD,
            "the private key": self.key_text,
            "the JAAS text": JAAS_PASSWORD,
            "the secret of tokens": TOKEN_SECRET,
            "the secret of stored passwords": ENCODER_SECRET,
        }
        keys, claims = directory / "keys.json", {"sub": "alice", "iat": 1}
        keys.write_bytes(key_set(Signer()))
        self.bearer_tokens = {
            "a bearer token": Signer().token(**claims, exp=int(time.time()) + 3_600),
            "an old bearer token": Signer().token(**claims, exp=2),
            "a forged bearer token": Signer(number=1).token(**claims, exp=int(time.time()) + 3_600),
        }
        # Their signatures: without it a token is none.
        self.secrets |= {name: each.split(".")[2] for name, each in self.bearer_tokens.items()}
        self.settings = {
            "node.id": "1",
            "listeners": f"PLAINTEXT://127.0.0.1:{plain},SECURE://127.0.0.1:{self.secure_port},"
            f"INLINE://127.0.0.1:{tls_port}",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SECURE:SASL_PLAINTEXT,"
            "INLINE:SSL",
            "admin.listeners": "http://127.0.0.1:0",
            "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,OAUTHBEARER",
            "kbroker.oauthbearer.allowed.urls": keys.as_uri(),
            "sasl.oauthbearer.jwks.endpoint.url": keys.as_uri(),
            "delegation.token.secret.key": TOKEN_SECRET,
            "password.encoder.secret": ENCODER_SECRET,
            JAAS_KEY: f'{PLAIN} username="broker" password="{JAAS_PASSWORD}"'
            f' user_alice="{PLAIN_PASSWORD}";',
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(self.store),
            "ssl.key.password": KEY_PASSWORD,
            "kbroker.audit.file": str(directory / "audit.log"),
            "metrics.topic.enable": "true",
            "metrics.topic.interval.ms": "1000",
        }
        self.inline_key = certificate.key.read_text().replace("\n", " ")
        self.inline_chain = certificate.chain.read_text().replace("\n", " ")
        self.broker = Secretive(directory, self.settings)

    def keep(self, what: str, text: str | bytes) -> None:
        found = text.encode() if isinstance(text, str) else text
        self.outputs[f"{len(self.outputs)}: {what}"] = found

    def command(self, capfd: pytest.CaptureFixture[str], *words: str) -> int:
        status = main(list(words))
        captured = capfd.readouterr()
        self.keep(" ".join(words[:2]), captured.out + captured.err)
        return status

    def found(self) -> list[str]:
        """Which secret is where."""
        files = [
            each
            for each in (*self.broker.scratch_dir.rglob("*"), self.directory / "audit.log")
            if each.is_file()
        ]
        texts = dict(self.outputs)
        for each in files:
            texts[str(each)] = each.read_bytes()
        places = []
        for place, data in texts.items():
            for name, secret in self.secrets.items():
                if any(form in data for form in _forms(secret)):
                    places.append(f"{name} is in {place}")
        return places


def _forms(secret: str) -> Iterator[bytes]:
    raw = secret.encode()
    yield raw
    yield raw.hex().encode()
    for shift in range(3):  # base64 at each place of a longer text
        yield base64.b64encode(b"\0" * shift + raw)[4 if shift else 0 : -4]


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = World(tmp_path)
    with made.broker:
        yield made


def write_all_there_is(world: World, capfd: pytest.CaptureFixture[str]) -> None:
    """Every logger at its lowest level."""
    bootstrap = world.broker.bootstrap
    assert world.command(capfd, "config", "get", "--logger", "1", "-a", "-b", bootstrap) == 0
    with Client(bootstrap) as client:
        from kbroker.peer.config_messages import LOGGER_RESOURCE, Resource

        names = [each.name for each in client.configs(Resource(LOGGER_RESOURCE, "1"))]
    for name in names:
        words = ("config", "set", "--logger", "1", f"{name}=DEBUG", "-b", bootstrap)
        world.command(capfd, *words)


def log_in_and_fail_to(world: World) -> None:
    for mechanism, user, password in (
        ("PLAIN", "alice", PLAIN_PASSWORD),
        ("PLAIN", "alice", SCRAM_PASSWORD),
        ("PLAIN", "unknown", PLAIN_PASSWORD),
        ("SCRAM-SHA-256", "anna", SCRAM_PASSWORD),
        ("SCRAM-SHA-256", "anna", PLAIN_PASSWORD),
        ("SCRAM-SHA-256", "unknown", SCRAM_PASSWORD),
    ):
        log_in(world, ClientLogin(mechanism, user, password))
    for token in (
        plain_token("alice", PLAIN_PASSWORD) + b"\0more",
        PLAIN_PASSWORD.encode(),
        b"\xff\0" + PLAIN_PASSWORD.encode() + b"\0\xff",
    ):
        world.keep("malformed tokens", _raw_login(world.secure_port, token))


def _raw_login(port: int, token: bytes, name: bytes = b"PLAIN") -> bytes:
    """A login of SaslHandshake v0, whose tokens are bare."""
    handshake = struct.pack(">hhih", 17, 0, 1, -1) + struct.pack(">h", len(name)) + name
    with socket.create_connection(("127.0.0.1", port), WAIT_S) as connection:
        answer = b""
        for frame in (handshake, token):
            connection.sendall(struct.pack(">i", len(frame)) + frame)
            with suppress(OSError):
                answer += connection.recv(65_536)
        return answer


def act_by_tokens(world: World, capfd: pytest.CaptureFixture[str]) -> None:
    """Delegation tokens and bearer tokens, right and wrong ones."""
    secure, file = f"127.0.0.1:{world.secure_port}", world.directory / "alice.properties"
    job = world.directory / "job.properties"
    file.write_text(
        "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\n"
        f"sasl.jaas.config={PLAIN} username=alice password={PLAIN_PASSWORD};\n"
    )
    file.chmod(0o600)
    as_alice = ("-b", secure, "--command-config", str(file))
    assert world.command(capfd, "token", "create", "--file", str(job), *as_alice) == 0
    with Client(secure, login=ClientLogin("PLAIN", "alice", PLAIN_PASSWORD)) as client:
        (known,) = client.cluster.anywhere(
            ApiKey.DESCRIBE_DELEGATION_TOKEN,
            lambda version: encode_describe_tokens(version, None),
            decode_describe_tokens,
        )
    world.keep("a token", repr(known))
    token_id, password = known.token.token_id, password_of(known.hmac)
    world.secrets |= {
        "the HMAC of a token": password,
        "the HMAC of a token in hexadecimal": known.hmac.hex(),
        "the HMAC of a token as Python shows it": repr(known.hmac)[2:-1],
    }
    as_job = ("-b", secure, "--command-config", str(job))
    for words, status in (
        (("token", "list", *as_alice), 0),
        (("token", "renew", token_id, *as_alice), 0),
        (("topic", "list", *as_job), 0),
        (("token", "list", *as_job), 1),
    ):
        assert world.command(capfd, *words) == status, words
    log_in(world, ClientLogin("SCRAM-SHA-256", token_id, f"{password}x", is_token=True))
    assert world.command(capfd, "token", "expire", token_id, *as_alice) == 0
    log_in(world, ClientLogin("SCRAM-SHA-256", token_id, password, is_token=True))
    for token in world.bearer_tokens.values():
        held = world.directory / "token"
        held.write_text(token)
        log_in(world, ClientLogin("OAUTHBEARER", token_file=str(held)))
        for message in (
            f"n,,\1auth=Basic {token}\1\1",
            f"n,,\1auth=Bearer {token}\1",
            f"n,a=bob,\1auth=Bearer {token}\1\1",
            token,
        ):
            answer = _raw_login(world.secure_port, message.encode(), b"OAUTHBEARER")
            world.keep("malformed tokens", answer)


def log_in(world: World, login: ClientLogin) -> None:
    """If the broker lets it in."""
    world.keep("a login", repr(login))
    try:
        with Client(f"127.0.0.1:{world.secure_port}", login=login, timeout_ms=5_000) as client:
            client.metadata()
    except KafkaError as error:
        world.keep("a refused login", f"{error!r} {error}")


def alter_and_describe(world: World, capfd: pytest.CaptureFixture[str]) -> None:
    client = AdminClient({"bootstrap.servers": world.broker.bootstrap})
    eventually(lambda: METRICS in client.list_topics(timeout=WAIT_S).topics, "the topic of metrics")
    for key, value in (
        (JAAS_KEY, f"{PLAIN} username=b password={JAAS_PASSWORD} user_alice={PLAIN_PASSWORD};"),
        (JAAS_KEY, f"{PLAIN} username=b password={JAAS_PASSWORD} user_alice={PLAIN_PASSWORD}"),
        (JAAS_KEY, f"com.sun.Jndi required password={JAAS_PASSWORD};"),
        ("listener.name.inline.ssl.keystore.key", world.inline_key),
        ("listener.name.inline.ssl.key.password", KEY_PASSWORD),
        ("ssl.key.pasword", KEY_PASSWORD),
    ):
        entry = ConfigEntry(key, value, incremental_operation=AlterConfigOpType.SET)
        broker = ConfigResource(ConfigResource.Type.BROKER, "1", incremental_configs=[entry])
        for made in client.incremental_alter_configs([broker]).values():
            try:
                made.result(WAIT_S)
            except KafkaException as error:
                world.keep(f"the refusal of {key}", str(error))
    for kind in (ConfigResource.Type.BROKER, ConfigResource.Type.TOPIC):
        resource = ConfigResource(kind, "1" if kind is ConfigResource.Type.BROKER else METRICS)
        for made in client.describe_configs([resource]).values():
            described: Any = made.result(WAIT_S)
            world.keep("DescribeConfigs", repr({k: str(v) for k, v in described.items()}))
    bootstrap = world.broker.bootstrap
    for words in (
        ("config", "get", "--broker", "1", "-a", "-o", "json"),
        ("config", "explain", JAAS_KEY, "--broker", "1"),
        ("user", "list"),
        ("health",),
    ):
        world.command(capfd, *words, "-b", bootstrap)


def read_pages(world: World) -> None:
    for page in PAGES:
        try:
            with urllib.request.urlopen(f"{world.broker.admin}{page}", timeout=WAIT_S) as answer:
                world.keep(page, answer.read())
        except urllib.error.HTTPError as error:
            world.keep(page, error.read())


def fail_to_start(world: World, capfd: pytest.CaptureFixture[str]) -> None:
    """For each of the secrets, a start that it ends."""
    file = str(world.broker.file)
    for words in (
        ("config", "explain", JAAS_KEY, "--config", file),
        ("config", "explain", "ssl.key.password", "--config", file),
        ("config", "explain", "delegation.token.secret.key", "--config", file),
        ("doctor", "--config", file),
    ):
        world.command(capfd, *words)
    broken = {
        "a wrong password": {"ssl.key.password": SCRAM_PASSWORD},
        "two keys": {"ssl.keystore.key": world.inline_key},
        "half a key": {"ssl.keystore.location": "", "ssl.keystore.key": world.inline_key[:200]},
        "no chain": {"ssl.keystore.location": "", "ssl.keystore.key": world.inline_key},
        "JAAS": {JAAS_KEY: f"{PLAIN} password={JAAS_PASSWORD}"},
        "a number": {"sasl.server.max.receive.size": "x"},
        "keys of tokens that are not allowed": {"kbroker.oauthbearer.allowed.urls": ""},
        "an old name, and a number": {
            "delegation.token.master.key": TOKEN_SECRET,
            "delegation.token.max.lifetime.ms": "x",
        },
    }
    for fault, changes in broken.items():
        settings = {**world.settings, **changes, "log.dirs": str(world.directory / "other")}
        settings |= {"listeners": world.settings["listeners"], "kbroker.audit.file": ""}
        broken_file = world.directory / "broken.properties"
        broken_file.write_text("\n".join(f"{key}={value}" for key, value in settings.items()))
        broken_file.chmod(0o600)
        done = subprocess.run(
            [sys.executable, "-m", "kbroker", "start", str(broken_file)],
            capture_output=True, timeout=60,
        )  # fmt: skip
        assert done.returncode != 0, fault
        world.keep(f"a start with {fault}", done.stdout + done.stderr)


def test_no_secret_is_written_anywhere(
    world: World, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO(SCRAM_PASSWORD + "\n"))
    words = ("user", "add", "anna", "--mechanism", "SCRAM-SHA-256", "--password-file", "-")
    assert world.command(capfd, *words, "-b", world.broker.bootstrap) == 0
    write_all_there_is(world, capfd)
    log_in_and_fail_to(world)
    act_by_tokens(world, capfd)
    alter_and_describe(world, capfd)
    read_pages(world)
    world.keep("its arguments", Path(f"/proc/{world.broker.pid}/cmdline").read_bytes())
    world.keep("its environment", Path(f"/proc/{world.broker.pid}/environ").read_bytes())
    world.broker.stop()
    fail_to_start(world, capfd)
    events = [
        json.loads(line)["event"]
        for line in (world.directory / "audit.log").read_text().splitlines()
    ]
    tokens = {f"{change}DelegationToken" for change in ("Create", "Renew", "Expire")}
    others = {"AlterUserScramCredentials", "IncrementalAlterConfigs", "Authentication"}
    assert tokens | others <= {*events}
    assert "Failed authentication with 127.0.0.1" in world.broker.log_text()
    assert world.found() == []


def test_the_search_finds_each_secret(world: World) -> None:
    """Each secret in each form, so that the test above can fail."""
    for name, secret in world.secrets.items():
        for form in (
            secret.encode(),
            secret.encode().hex().encode(),
            base64.b64encode(b"alice\0" + secret.encode()),
            base64.b64encode(b"\0" + secret.encode() + b" and more"),
            json.dumps({"x": secret}).encode(),
        ):
            world.outputs = {"a place": form}
            assert f"{name} is in a place" in world.found(), (name, form)
