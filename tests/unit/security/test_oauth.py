"""OAUTHBEARER: its messages, the broker's side of a login, and where keys come from."""

from __future__ import annotations

import http.client
import http.server
import json
import logging
import os
import ssl
import threading
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kbroker.clock import ManualClock
from kbroker.config import BrokerConfig
from kbroker.config.oauth_settings import oauth_settings
from kbroker.errors import ConfigError
from kbroker.limits import (
    JWKS_BYTES_MAX,
    JWKS_FETCH_MS_MAX,
    OAUTH_EXTENSIONS_MAX,
    OAUTH_MESSAGE_BYTES_MAX,
)
from kbroker.purgatory.timer import Timer
from kbroker.security.jwks_fetch import JwksError, JwksFetch
from kbroker.security.jwks_source import JwksSource
from kbroker.security.jws import TokenError
from kbroker.security.jwt import Accepted
from kbroker.security.mechanism import AuthenticationError, CredentialsError
from kbroker.security.oauth_messages import (
    OAuthMessageError,
    encode_client_first,
    parse_client_first,
)
from kbroker.security.oauth_server import OAuthServer
from kbroker.server.oauth import OAuth
from tests.support.bearer_tokens import Signer, key_set
from tests.support.certificates import Authority, Certificate

TOKEN = "aa.bb.cc"

# --- messages -------------------------------------------------------------------------------------


def test_a_first_message() -> None:
    found = parse_client_first(
        b"n,a=al=2Cice=3D,\x01auth=Bearer aa.bb.c-_\x01host=h\x01p=1 2\x01\x01"
    )
    assert found.authorization_id == "al,ice="
    assert found.token == "aa.bb.c-_"
    assert found.extensions == {"host": "h", "p": "1 2"}
    assert parse_client_first(encode_client_first(TOKEN)) == ("", TOKEN, {})
    assert parse_client_first(b"n,,\x01auth=bEARER   x\x01\x01").token == "x"


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\x01",
        b"n,,",
        b"n,,\x01\x01",
        b"n,,\x01auth=Bearer x\x01",
        b"n,,\x01auth=Bearer x\x01\x01\x01",
        b"n,,auth=Bearer x\x01\x01",
        b"y,,\x01auth=Bearer x\x01\x01",
        b"p=x,,\x01auth=Bearer x\x01\x01",
        b"n,b=x,\x01auth=Bearer x\x01\x01",
        b"n,a=,\x01auth=Bearer x\x01\x01",
        b"n,a=x=y,\x01auth=Bearer x\x01\x01",
        b"n,a=" + b"x" * 2_000 + b",\x01auth=Bearer x\x01\x01",
        b"n,,\x01auth=Basic x\x01\x01",
        b"n,,\x01auth=Bearer\x01\x01",
        b"n,,\x01auth=Bearer \x01\x01",
        b"n,,\x01auth=Bearer x y\x01\x01",
        b"n,,\x01auth=Bearer x/y\x01\x01",
        b"n,,\x01auth=Bearer x\x01auth=Bearer y\x01\x01",
        b"n,,\x01auth=Bearer x\x01a=1\x01a=2\x01\x01",
        b"n,,\x01auth=Bearer x\x011=2\x01\x01",
        b"n,,\x01auth=Bearer x\x01a\x01\x01",
        b"n,,\x01auth=Bearer x\x01a=\x01\x01",
        b"n,,\x01auth=Bearer x\x01a=\x00\x01\x01",
        b"n,,\x01host=h\x01\x01",
        b"n,,\x01auth=Bearer \xc3\xa9\x01\x01",
        b"n,,\x01auth=Bearer x\x01" + b"".join(b"a" * n + b"=\x01" for n in range(1, 30)) + b"\x01",
        b"n,,\x01auth=Bearer " + b"x" * OAUTH_MESSAGE_BYTES_MAX + b"\x01\x01",
        b"\x01" * 60_000,
    ],
)  # fmt: skip
def test_no_first_message(data: bytes) -> None:
    with pytest.raises(OAuthMessageError):
        parse_client_first(data)


@given(st.binary(max_size=300))
def test_any_bytes(data: bytes) -> None:
    with pytest.raises(OAuthMessageError):
        parse_client_first(b"x" + data)


def test_extensions_are_bounded() -> None:
    some = [b"a" * n + b"=1" for n in range(1, OAUTH_EXTENSIONS_MAX + 1)]
    message = b"n,,\x01auth=Bearer x\x01" + b"\x01".join(some) + b"\x01\x01"
    assert len(parse_client_first(message).extensions) == OAUTH_EXTENSIONS_MAX


@pytest.mark.parametrize("token", ["", "a b", "a\x01", "é", "a\n"])
def test_no_token(token: str) -> None:
    with pytest.raises(ValueError, match="a token has"):
        encode_client_first(token)


# --- a login --------------------------------------------------------------------------------------


class Accepts:
    def __init__(self, *users: str) -> None:
        self.users = users

    def accept(self, token: str) -> Accepted:
        if token in self.users:
            return Accepted(token, 7)
        raise TokenError("it is none")


def test_a_token_lets_its_user_in() -> None:
    server = OAuthServer(Accepts("alice"))
    assert server.evaluate(encode_client_first("alice")) == b""
    assert server.login == ("alice", False, 7)
    with pytest.raises(CredentialsError):
        server.evaluate(encode_client_first("alice"))
    server = OAuthServer(Accepts("alice"))
    assert server.evaluate(b"n,a=alice,\x01auth=Bearer alice\x01\x01") == b""


def test_a_token_that_is_refused_is_answered_first(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    server = OAuthServer(Accepts())
    assert json.loads(server.evaluate(encode_client_first(TOKEN))) == {"status": "invalid_token"}
    assert server.login is None
    with pytest.raises(AuthenticationError, match=r'^\{"status":"invalid_token"\}$'):
        server.evaluate(b"\x01")
    with pytest.raises(CredentialsError):
        server.evaluate(b"\x01")
    assert TOKEN not in caplog.text
    for other in (b"", b"\x01\x01", encode_client_first("alice")):
        server = OAuthServer(Accepts("alice"))
        server.evaluate(encode_client_first(TOKEN))
        with pytest.raises(CredentialsError):
            server.evaluate(other)
        assert server.login is None


def test_another_authorization_id_is_refused() -> None:
    server = OAuthServer(Accepts("alice"))
    with pytest.raises(AuthenticationError, match="different from the token's"):
        server.evaluate(b"n,a=bob,\x01auth=Bearer alice\x01\x01")
    assert server.login is None
    with pytest.raises(CredentialsError):
        server.evaluate(b"n,,\x01auth=Bearer alice\x01\x01")


# --- keys -----------------------------------------------------------------------------------------


class Server:
    """An HTTP server on loopback; `answer` is what it sends."""

    def __init__(self) -> None:
        self.asked = 0
        self.answer: Callable[[http.server.BaseHTTPRequestHandler], None] = self.keys
        self.body = key_set(Signer())
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                outer.asked += 1
                outer.answer(self)

            def log_message(self, *_: object) -> None:
                pass

        self.http = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.http.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.http.server_port}/keys?x=1"
        threading.Thread(target=self.http.serve_forever, args=(0.01,), daemon=True).start()

    def keys(self, handler: http.server.BaseHTTPRequestHandler) -> None:
        handler.send_response(200)
        handler.end_headers()
        handler.wfile.write(self.body)


@pytest.fixture
def server() -> Iterator[Server]:
    made = Server()
    yield made
    made.http.shutdown()
    made.http.server_close()


def test_keys_are_read_from_a_server_or_a_file(server: Server, tmp_path: Path) -> None:
    assert JwksFetch(server.url).read() == server.body
    file = tmp_path / "a key.json"
    file.write_bytes(server.body)
    assert JwksFetch(file.as_uri()).read() == server.body


def test_a_redirection_is_not_followed(server: Server) -> None:
    def elsewhere(handler: http.server.BaseHTTPRequestHandler) -> None:
        handler.send_response(302)
        handler.send_header("Location", server.url)
        handler.end_headers()

    server.answer = elsewhere
    with pytest.raises(JwksError, match="it answers 302"):
        JwksFetch(server.url).read()
    assert server.asked == 1


def test_too_many_bytes_are_not_read(server: Server, tmp_path: Path) -> None:
    server.body = b" " * (JWKS_BYTES_MAX + 1)
    file = tmp_path / "keys"
    file.write_bytes(server.body)
    for url in (server.url, file.as_uri()):
        with pytest.raises(JwksError, match="more than"):
            JwksFetch(url).read()


def test_a_server_that_does_not_answer_is_given_up(server: Server) -> None:
    asked, over = threading.Event(), threading.Event()

    def hang(handler: http.server.BaseHTTPRequestHandler) -> None:
        asked.set()
        over.wait(60)

    server.answer = hang
    fetch = JwksFetch(server.url)
    said: list[str] = []

    def read() -> None:
        try:
            fetch.read()
        except JwksError as error:
            said.append(str(error))

    thread = threading.Thread(target=read, daemon=True)
    thread.start()
    assert asked.wait(60)
    fetch.interrupt()
    thread.join(60)
    over.set()
    assert said == ["it takes too long"]
    with pytest.raises(JwksError):  # before it has begun
        late = JwksFetch(server.url)
        late.interrupt()
        late.read()


def test_a_server_that_drips_is_given_up(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also when the headers are read: http.client has no connection any more then."""
    reads, over = threading.Event(), threading.Event()
    read_body = http.client.HTTPResponse.read

    def read_and_say(response: http.client.HTTPResponse, size: int) -> bytes:
        reads.set()
        return read_body(response, size)

    def drip(handler: http.server.BaseHTTPRequestHandler) -> None:
        handler.send_response(200)
        handler.send_header("Content-Length", "1000")
        handler.end_headers()
        while not over.wait(0.1):
            handler.wfile.write(b" ")

    monkeypatch.setattr(http.client.HTTPResponse, "read", read_and_say)
    server.answer = drip
    fetch = JwksFetch(server.url)
    said: list[str] = []

    def read() -> None:
        try:
            fetch.read()
        except JwksError as error:
            said.append(str(error))

    thread = threading.Thread(target=read, daemon=True)
    thread.start()
    assert reads.wait(60)
    fetch.interrupt()
    thread.join(20)
    over.set()
    assert said == ["it takes too long"]


def test_a_connection_that_is_made_too_late_is_not_used(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    fetch = JwksFetch(server.url)
    connect = http.client.HTTPConnection.connect

    def connect_late(connection: http.client.HTTPConnection) -> None:
        fetch.interrupt()
        connect(connection)

    monkeypatch.setattr(http.client.HTTPConnection, "connect", connect_late)
    with pytest.raises(JwksError, match="it takes too long"):
        fetch.read()
    assert server.asked == 0


def test_a_pipe_is_no_file_of_keys(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    for path in (pipe, tmp_path, Path("/dev/zero")):
        with pytest.raises(JwksError):
            JwksFetch(path.as_uri()).read()


@pytest.mark.parametrize("url", ["http://127.0.0.1:1/keys", "file:/nowhere/keys", "file:/"])
def test_an_address_that_cannot_be_reached(url: str) -> None:
    with pytest.raises(JwksError):
        JwksFetch(url).read()


class Source:
    """A source whose threads run when a test says so."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.clock = ManualClock()
        self.timer = Timer(self.clock)
        self.pending: list[Callable[[], None]] = []
        self.source = JwksSource(
            path.as_uri(), 10_000, 100, 400, lambda _, call: self.pending.append(call)
        )

    def write(self, *key_ids: str) -> None:
        self.path.write_bytes(key_set(*(Signer("RS256", each) for each in key_ids)))

    def known(self) -> list[str | None]:
        keys = self.source.now()
        return [] if keys is None else [each.key_id for each in keys.keys]

    def elapse(self, ms: int) -> None:
        self.clock.advance(ms)
        self.timer.advance()

    def run(self) -> int:
        pending, self.pending = self.pending, []
        for call in pending:
            call()
        return len(pending)


@pytest.fixture
def source(tmp_path: Path) -> Source:
    return Source(tmp_path / "keys")


def test_keys_are_fetched_at_the_start_and_from_time_to_time(source: Source) -> None:
    source.write("a")
    source.source.start(source.clock, source.timer.call_later)
    assert source.known() == []  # no login waits for it
    assert source.run() == 1 and source.known() == ["a"]
    source.write("a", "b")
    source.elapse(9_999)
    assert source.run() == 0
    source.elapse(1)
    assert source.run() == 1 and source.known() == ["a", "b"]


def test_keys_that_cannot_be_fetched_stay(source: Source, caplog: pytest.LogCaptureFixture) -> None:
    source.source.start(source.clock, source.timer.call_later)
    assert source.run() == 1 and source.known() == []
    assert "there are none yet" in caplog.text
    source.write("a")
    source.elapse(10_000)
    assert source.run() == 1 and source.known() == ["a"]
    for damaged in (b"", b"{}", b"<html></html>"):
        source.path.write_bytes(damaged)
        source.elapse(10_000)
        assert source.run() == 1 and source.known() == ["a"]


def test_keys_that_the_server_withdraws_are_gone(
    source: Source, caplog: pytest.LogCaptureFixture
) -> None:
    source.write("a")
    source.source.start(source.clock, source.timer.call_later)
    assert source.run() == 1 and source.known() == ["a"]
    source.path.write_bytes(b'{"keys":[]}')
    source.elapse(10_000)
    assert source.run() == 1 and source.known() == []
    assert "no token is accepted: of its 0 keys none is for signatures" in caplog.text
    source.path.write_bytes(b"")
    source.elapse(10_000)
    assert source.run() == 1 and source.known() == []
    source.write("b")
    source.elapse(10_000)
    assert source.run() == 1 and source.known() == ["b"]


def test_a_refresh_time_of_nothing_is_no_storm(source: Source) -> None:
    source.write("a")
    source.source = JwksSource(
        source.path.as_uri(), -1, 0, 0, lambda _, call: source.pending.append(call)
    )
    source.source.start(source.clock, source.timer.call_later)
    fetched = source.run()
    for _ in range(1_100):
        source.elapse(1)
        fetched += source.run()
    assert fetched == 2


def test_a_missing_key_has_them_fetched_with_pauses_that_grow(source: Source) -> None:
    source.write("a")
    source.source.missing("b")  # before the start
    assert source.run() == 0
    source.source.start(source.clock, source.timer.call_later)
    assert source.run() == 1
    source.source.missing("b")
    assert source.run() == 0
    fetched_at_ms = []
    for ms in range(2_000):
        source.elapse(1)
        source.source.missing("b")
        if source.run():
            fetched_at_ms.append(ms)
    pauses = [after - before for before, after in pairwise(fetched_at_ms)]
    assert pauses[-1] == 400 and max(pauses) == 400 and len(fetched_at_ms) < 8
    source.write("a", "b")
    source.elapse(400)
    source.source.missing("b")
    assert source.run() == 1 and source.known() == ["a", "b"]
    source.elapse(100)  # it was worth it: the pause is short again
    source.source.missing("c")
    assert source.run() == 1


def test_one_attempt_is_under_way_at_a_time(source: Source) -> None:
    source.write("a")
    source.source.start(source.clock, source.timer.call_later)
    for _ in range(5):
        source.elapse(10_000)
        source.source.missing("b")
    assert len(source.pending) == 1
    source.elapse(JWKS_FETCH_MS_MAX)
    assert source.run() == 1 and source.known() == ["a"]
    source.elapse(10_000)
    assert source.run() == 1


def test_no_room_for_a_thread(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    source = Source(tmp_path / "keys")

    def refuse(name: str, call: Callable[[], None]) -> None:
        raise RuntimeError("can't start new thread")

    source.source = JwksSource(source.path.as_uri(), 10_000, 100, 400, refuse)
    source.source.start(source.clock, source.timer.call_later)
    assert "can't start new thread" in caplog.text
    source.elapse(10_000)


# --- a server of keys with an authority of its own ------------------------------------------------


def secure(server: Server, certificate: Certificate) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate.chain, certificate.key)
    server.http.socket = context.wrap_socket(server.http.socket, server_side=True)
    server.url = server.url.replace("http:", "https:")


def validator(url: str, options: dict[str, str]) -> OAuth:
    listener = BrokerConfig.load(
        overrides=[
            "listeners=OUT://127.0.0.1:1",
            "listener.security.protocol.map=OUT:SASL_PLAINTEXT",
            "inter.broker.listener.name=OUT",
            "sasl.enabled.mechanisms=OAUTHBEARER",
            f"kbroker.oauthbearer.allowed.urls={url}",
            f"sasl.oauthbearer.jwks.endpoint.url={url}",
        ]
    ).security_of("OUT")
    oauth = OAuth()
    oauth.validator(listener, oauth_settings(listener, options))
    return oauth


def keys_by(oauth: OAuth) -> bytes:
    (source,) = oauth._sources.values()
    return JwksFetch(source.url, source._context).read()


def test_a_server_of_keys_may_have_an_authority_of_its_own(
    server: Server, authority: Authority, certificate: Certificate, tmp_path: Path
) -> None:
    """By options of the login module, as in Apache Kafka; a file that is replaced is read again."""
    secure(server, certificate)
    url = server.url
    with pytest.raises(JwksError, match="certificate verify failed"):
        keys_by(validator(url, {}))
    trusted = tmp_path / "trusted.pem"
    trusted.write_bytes(authority.certificate.read_bytes())
    options = {"ssl.truststore.type": "PEM", "ssl.truststore.location": str(trusted)}
    oauth = validator(url, options)
    assert keys_by(oauth) == server.body
    trusted.write_bytes(Authority(tmp_path, "other").certificate.read_bytes())
    with pytest.raises(JwksError, match="certificate verify failed"):
        keys_by(oauth)
    trusted.unlink()
    with pytest.raises(JwksError, match="cannot be read"):
        keys_by(oauth)


def test_the_name_in_its_certificate_is_checked(server: Server, authority: Authority) -> None:
    """Apache Kafka checks it, too, whatever the option says."""
    secure(server, authority.issue("elsewhere", names=("DNS:elsewhere",)))
    options = {
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(authority.certificate),
        "ssl.endpoint.identification.algorithm": "",
    }
    with pytest.raises(JwksError, match=r"not valid for '127\.0\.0\.1'"):
        keys_by(validator(server.url, options))


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"ssl.truststore.location": "/nowhere"}, "ssl.truststore.location=/nowhere cannot be"),
        ({"ssl.truststore.type": "X", "ssl.truststore.location": "/x"}, "X is no type of store"),
        ({"ssl.truststore.type": "PEM", "ssl.truststore.password": "p-w"}, "a PEM file has none"),
    ],
)
def test_options_that_do_not_do(options: dict[str, str], why: str) -> None:
    with pytest.raises(ConfigError, match=why) as raised:
        validator("https://127.0.0.1:1/keys", options)
    assert "p-w" not in str(raised.value)
    validator("http://127.0.0.1:1/keys", options)  # they are for https


def test_no_option_is_in_a_text() -> None:
    oauth = validator("http://127.0.0.1:1/keys", {"ssl.keystore.password": "canary"})
    assert "canary" not in repr(oauth._sources)
