"""OAUTHBEARER: tokens that end, and keys from a file and from a server.

One broker has three listeners: PLAINTEXT; KEYS, whose keys are in a file; and WEB, whose server of
keys on loopback is slow or answers with errors when a test says so.
"""

from __future__ import annotations

import http.server
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest
from confluent_kafka import admin as rdkafka_admin

from kbroker.cli.main import main
from kbroker.errors import KafkaError, UserError
from kbroker.peer.client import Client
from kbroker.security.client_login import ClientLogin
from kbroker.testing import Broker
from lab.ports import free_port
from tests.clients.agents.driver import eventually
from tests.clients.agents.tools import Tools
from tests.support.bearer_tokens import Signer, key_set, unsecured

pytestmark = pytest.mark.client
WAIT_S = 30
_PACKAGE = "org.apache.kafka.common.security.oauthbearer"
_MODULE = f"{_PACKAGE}.OAuthBearerLoginModule"
_HANDLER = f"{_PACKAGE}.OAuthBearerLoginCallbackHandler"


class Issuer:
    """An authorization server: it signs tokens, and a server on loopback has its keys."""

    def __init__(self) -> None:
        self.signers = [Signer("RS256", "first")]
        self.status = 200
        self.hangs = threading.Event()
        self.goes_on = threading.Event()
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                if outer.hangs.is_set():
                    outer.goes_on.wait(60)
                self.send_response(outer.status)
                self.end_headers()
                self.wfile.write(key_set(*outer.signers))

            def log_message(self, *_: object) -> None:
                pass

        self.http = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.http.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.http.server_port}/keys"
        threading.Thread(target=self.http.serve_forever, daemon=True).start()

    def token(self, user: str = "alice", life_s: int = 3600, **claims: Any) -> str:
        now_s = int(time.time())
        times = {"iat": now_s, "exp": now_s + life_s}
        return self.signers[-1].token(**{"sub": user, "aud": "kbroker", **times, **claims})


class Oauth:
    def __init__(self, broker: Broker, ports: dict[str, int], issuer: Issuer) -> None:
        self.broker, self.ports, self.issuer = broker, ports, issuer

    def bootstrap(self, listener: str = "KEYS") -> str:
        return f"127.0.0.1:{self.ports[listener]}"

    def logs_in(self, directory: Path, token: str, listener: str = "KEYS") -> bool:
        file = directory / "token"
        file.write_text(token)
        login = ClientLogin("OAUTHBEARER", token_file=str(file))
        try:
            with Client(self.bootstrap(listener), login=login) as client:
                return client.partitions("t") == [0]
        except KafkaError:
            return False

    def written(self, text: str) -> bool:
        return any(record.value == text.encode() for record in self.broker.records("t"))


@pytest.fixture(scope="module")
def oauth(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Oauth]:
    issuer = Issuer()
    file = tmp_path_factory.mktemp("issuer") / "keys.json"
    file.write_bytes(key_set(*issuer.signers))
    names = ("PLAIN", "KEYS", "WEB")
    ports = {name: free_port() for name in names}
    listeners = ",".join(f"{name}://127.0.0.1:{port}" for name, port in ports.items())
    protocols = {name: "SASL_PLAINTEXT" for name in names} | {"PLAIN": "PLAINTEXT"}
    url = "oauthbearer.sasl.oauthbearer.jwks.endpoint.url"
    overrides = {
        "listeners": listeners,
        "listener.security.protocol.map": ",".join(f"{k}:{v}" for k, v in protocols.items()),
        "sasl.enabled.mechanisms": "OAUTHBEARER",
        "kbroker.oauthbearer.allowed.urls": f"{file.as_uri()},{issuer.url}",
        f"listener.name.keys.{url}": file.as_uri(),
        f"listener.name.web.{url}": issuer.url,
        **{
            f"listener.name.{name}.oauthbearer.sasl.oauthbearer.expected.audience": "kbroker"
            for name in ("keys", "web")
        },
        "sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms": 200,
        "admin.listeners": "http://127.0.0.1:0",
    }
    with Broker(overrides, topics={"t": 1}) as broker:
        yield Oauth(broker, ports, issuer)
    issuer.http.shutdown()
    issuer.http.server_close()


# --- clients --------------------------------------------------------------------------------------


def test_librdkafka(oauth: Oauth) -> None:
    """It asks for a token by `oauth_cb`, again before the token ends, and authenticates again."""
    asked: list[str] = []

    def give(config: str) -> tuple[str, float]:
        asked.append(config)
        return oauth.issuer.token(life_s=5), time.time() + 5

    settings = {
        "bootstrap.servers": oauth.bootstrap(),
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "OAUTHBEARER",
        "oauth_cb": give,
    }
    producer = confluent_kafka.Producer(settings)
    end = time.monotonic() + 8
    sent = 0
    while time.monotonic() < end or len(asked) < 2:
        producer.produce("t", f"rdkafka {sent}")
        assert producer.flush(WAIT_S) == 0
        sent += 1
        time.sleep(0.2)
    assert oauth.written(f"rdkafka {sent - 1}")


def test_librdkafka_with_a_token_that_is_refused(oauth: Oauth) -> None:
    said: list[str] = []
    settings = {
        "bootstrap.servers": oauth.bootstrap(),
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "OAUTHBEARER",
        "oauth_cb": lambda _: (oauth.issuer.token(aud="other"), time.time() + 60),
        "error_cb": lambda error: said.append(error.str()),
    }
    client = rdkafka_admin.AdminClient(settings)
    with pytest.raises(confluent_kafka.KafkaException):
        client.list_topics(timeout=2)
    client.poll(1)
    assert any("invalid_token" in each for each in said), said


@pytest.fixture
def tools(tmp_path: Path) -> Iterator[Tools]:
    """A JVM that may read the file `token`."""
    token = tmp_path / "token"
    allowed = "-Dorg.apache.kafka.sasl.oauthbearer.allowed"
    tools = Tools(f"{allowed}.urls={token.as_uri()}", f"{allowed}.files={token}")
    yield tools
    tools.close()


@pytest.mark.java
def test_kafkas_tools(oauth: Oauth, tools: Tools, tmp_path: Path) -> None:
    token, file = tmp_path / "token", tmp_path / "client.properties"
    file.write_text(
        "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=OAUTHBEARER\n"
        f"sasl.jaas.config={_MODULE} required;\n"
        f"sasl.login.callback.handler.class={_HANDLER}\n"
        f"sasl.oauthbearer.token.endpoint.url={token.as_uri()}\n"
    )

    def run(tool: str, *words: str, stdin: bytes = b"") -> tuple[int, str]:
        to = ("--bootstrap-server", oauth.bootstrap(), "--command-config", str(file))
        done = tools.attempt(tool, *to, *words, stdin=stdin)
        return done.returncode, (done.stdout + done.stderr).decode()

    token.write_text(oauth.issuer.token(scope="kafka"))
    produced = run("ConsoleProducer", "--topic", "t", stdin=b"java\n")
    assert produced[0] == 0, produced
    assert oauth.written("java")
    token.write_text(oauth.issuer.token(scope="kafka", aud="other"))
    refused = run("TopicCommand", "--list")
    assert refused[0] != 0 and "invalid_token" in refused[1], refused


def test_our_own_commands(oauth: Oauth, tmp_path: Path, capfd: Any) -> None:
    token, file = tmp_path / "token", tmp_path / "client.properties"
    file.write_text(
        "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=OAUTHBEARER\n"
        f"sasl.oauthbearer.token.endpoint.url={token.as_uri()}\n"
    )

    def run() -> int:
        words = ["topic", "list", "-b", oauth.bootstrap(), "--command-config", str(file)]
        return main(words)

    token.write_text(oauth.issuer.token())
    assert run() == 0
    token.write_text(oauth.issuer.token(life_s=-100, iat=1))
    assert run() != 0
    token.unlink()
    assert run() != 0
    assert "cannot read a token" in capfd.readouterr().err
    file.write_text("security.protocol=SASL_PLAINTEXT\nsasl.mechanism=OAUTHBEARER\n")
    assert run() != 0
    assert "write file:/PATH" in capfd.readouterr().err


# --- tokens and keys ------------------------------------------------------------------------------


def test_tokens_that_are_refused(oauth: Oauth, tmp_path: Path) -> None:
    assert oauth.logs_in(tmp_path, oauth.issuer.token())
    stranger = Signer("RS256", "first", number=1)
    now_s = int(time.time())
    for token in (
        oauth.issuer.token(life_s=-40, iat=1),
        oauth.issuer.token(nbf=now_s + 600),
        oauth.issuer.token(aud=["a", "b"]),
        oauth.issuer.token(sub=""),
        stranger.token(sub="alice", aud="kbroker", iat=now_s, exp=now_s + 60),
        unsecured(sub="alice", aud="kbroker", iat=now_s, exp=now_s + 60),
    ):
        assert not oauth.logs_in(tmp_path, token)
    log = oauth.broker.log_text()
    assert "a bearer token is refused: it has expired" in log
    assert oauth.issuer.token().split(".")[0] not in log


def test_a_session_ends_with_its_token(oauth: Oauth, tmp_path: Path) -> None:
    """A client that cannot renew its token is not served any longer."""
    file = tmp_path / "token"
    file.write_text(oauth.issuer.token(life_s=3))
    login = ClientLogin("OAUTHBEARER", token_file=str(file))
    with Client(oauth.bootstrap(), login=login) as client:
        assert client.partitions("t") == [0]
    file.write_text(oauth.issuer.token(life_s=-10, iat=1))  # within the skew: over at once
    refused = pytest.raises((UserError, KafkaError))
    with Client(oauth.bootstrap(), login=login, timeout_ms=3_000) as client, refused:
        client.partitions("t")


def test_a_server_of_keys_that_fails_or_hangs(oauth: Oauth, tmp_path: Path) -> None:
    eventually(lambda: oauth.logs_in(tmp_path, oauth.issuer.token(), "WEB"), "keys are there")
    issuer = oauth.issuer
    first = issuer.token()
    issuer.status = 500
    issuer.signers.append(Signer("ES256", "second"))
    assert not oauth.logs_in(tmp_path, issuer.token(), "WEB")
    assert oauth.logs_in(tmp_path, first, "WEB")  # by the keys that are known
    issuer.status = 200
    eventually(lambda: oauth.logs_in(tmp_path, issuer.token(), "WEB"), "the new key is there")
    issuer.hangs.set()
    issuer.signers.append(Signer("PS256", "third"))
    assert not oauth.logs_in(tmp_path, issuer.token(), "WEB")
    began = time.monotonic()
    assert oauth.logs_in(tmp_path, first, "WEB")
    assert time.monotonic() - began < 5
    issuer.hangs.clear()
    issuer.goes_on.set()
    eventually(lambda: oauth.logs_in(tmp_path, issuer.token(), "WEB"), "the third key is there")
    del issuer.signers[1:]
