"""How clients of ours log in, against the broker's side of each mechanism."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kbroker.errors import ErrorCode, KafkaError
from kbroker.peer.logging_in import again_after_ms, exchange
from kbroker.protocol import messages
from kbroker.protocol.wire import Reader
from kbroker.security.client_login import MECHANISMS, OAUTHBEARER, ClientLogin, ServerError
from kbroker.security.jws import TokenError
from kbroker.security.jwt import Accepted
from kbroker.security.mechanism import CredentialsError, Mechanism
from kbroker.security.oauth_server import OAuthServer
from kbroker.security.plain import PLAIN, PlainServer
from kbroker.security.scram import ScramCredential, ScramMechanism, new_credential
from kbroker.security.scram_server import ScramServer, TokenCredential
from kbroker.types import ApiKey

OFFERED = {int(ApiKey.SASL_HANDSHAKE): (0, 1), int(ApiKey.SASL_AUTHENTICATE): (0, 2)}
HANDSHAKE, AUTHENTICATE = messages.sasl_handshake, messages.sasl_authenticate


class Users:
    def credential(self, mechanism: ScramMechanism, name: str) -> ScramCredential | None:
        return new_credential(mechanism, "hers") if name == "alice" else None

    def fake(self, mechanism: ScramMechanism, name: str) -> ScramCredential:
        return new_credential(mechanism, "no password is this one")

    def token(self, mechanism: ScramMechanism, token_id: str) -> TokenCredential | None:
        return TokenCredential(new_credential(mechanism, "hmac"), "bob", 5)


class Tokens:
    def accept(self, token: str) -> Accepted:
        if token != "hers":
            raise TokenError("it is none")
        return Accepted("alice", 5)


def server_of(mechanism: str) -> Mechanism:
    if mechanism == PLAIN:
        return PlainServer({"alice": "hers"})
    if mechanism == OAUTHBEARER:
        return OAuthServer(Tokens())
    return ScramServer(ScramMechanism(mechanism), Users())


def run(login: ClientLogin, offered: dict[int, tuple[int, int]] = OFFERED) -> Mechanism:
    """The mechanism of a server that this client has logged in at."""
    server = server_of(login.mechanism)
    steps = exchange(login, offered)
    answer: Any = None
    try:
        while True:
            api_key, version, body = next(steps) if answer is None else steps.send(answer)
            if api_key is ApiKey.SASL_HANDSHAKE:
                assert HANDSHAKE.Request.decode(body, version).mechanism == login.mechanism
                response = HANDSHAKE.Response(error_code=0, mechanisms=[]).encode(version)
            else:
                token = AUTHENTICATE.Request.decode(body, version).auth_bytes
                response = _answered(server, token).encode(version)
            answer = Reader(response, flexible=False)
    except StopIteration:
        return server


def login_of(mechanism: str, name: str, password: str, directory: Path) -> ClientLogin:
    file = directory / "token"
    file.write_text(f"{password}\n")
    return ClientLogin(mechanism, name, password, token_file=str(file))


@pytest.mark.parametrize("data", [b"", b"a b", b"\xff", b"x" * 100_000, None])
def test_a_file_without_a_token(data: bytes | None, tmp_path: Path) -> None:
    file = tmp_path / "token"
    if data is not None:
        file.write_bytes(data)
    with pytest.raises(KafkaError, match="cannot read a token from") as raised:
        run(ClientLogin(OAUTHBEARER, token_file=str(file)))
    assert raised.value.code is ErrorCode.SASL_AUTHENTICATION_FAILED


def _answered(server: Mechanism, token: bytes) -> Any:
    try:
        said = server.evaluate(token)
    except CredentialsError as error:
        return AUTHENTICATE.Response(error_code=58, error_message=f"no: {error}")
    return AUTHENTICATE.Response(error_code=0, error_message=None, auth_bytes=said)


@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize("highest", range(3))
def test_a_login(mechanism: str, highest: int, tmp_path: Path) -> None:
    offered = {**OFFERED, int(ApiKey.SASL_AUTHENTICATE): (0, highest)}
    server = run(login_of(mechanism, "alice", "hers", tmp_path), offered)
    assert server.login is not None and server.login.name == "alice"


def test_a_login_with_a_delegation_token() -> None:
    server = run(ClientLogin("SCRAM-SHA-256", "id", "hmac", is_token=True))
    assert server.login == ("bob", True, 5)


@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize(("name", "password"), [("alice", "his"), ("eve", "hers")])
def test_a_login_that_is_refused(mechanism: str, name: str, password: str, tmp_path: Path) -> None:
    if mechanism == OAUTHBEARER:
        password = "his"  # whose name is in the token
    with pytest.raises(KafkaError) as raised:
        run(login_of(mechanism, name, password, tmp_path))
    assert raised.value.code is ErrorCode.SASL_AUTHENTICATION_FAILED
    assert raised.value.message.startswith("no: ")


def test_a_mechanism_that_the_server_has_not() -> None:
    steps = exchange(ClientLogin(PLAIN, "a", "b"), OFFERED)
    next(steps)
    response = HANDSHAKE.Response(error_code=33, mechanisms=["X", "Y"]).encode(1)
    with pytest.raises(KafkaError, match="has the mechanisms X, Y, not PLAIN") as raised:
        steps.send(Reader(response, flexible=False))
    assert raised.value.code is ErrorCode.UNSUPPORTED_SASL_MECHANISM


@pytest.mark.parametrize("offered", [{}, {36: (3, 4)}])
def test_a_server_without_sasl(offered: dict[int, tuple[int, int]]) -> None:
    with pytest.raises(KafkaError, match="does not offer SaslAuthenticate"):
        next(exchange(ClientLogin(PLAIN, "a", "b"), offered))


@pytest.mark.parametrize("last", [b"v=AAAA", b"e=other-error", b""])
def test_a_server_that_does_not_know_the_password(last: bytes) -> None:
    tokens = ClientLogin("SCRAM-SHA-256", "alice", "hers").tokens()
    server = ScramServer(ScramMechanism.SHA_256, Users())
    server.evaluate(tokens.send(server.evaluate(next(tokens))))
    with pytest.raises(ServerError):
        tokens.send(last)


@pytest.mark.parametrize("first", [b"", b"r=x", b"r=nonce,s=!,i=4096"])
def test_a_server_whose_first_message_is_none(first: bytes) -> None:
    tokens = ClientLogin("SCRAM-SHA-256", "alice", "hers").tokens()
    next(tokens)
    with pytest.raises(ServerError):
        tokens.send(first)


@pytest.mark.parametrize(
    ("lifetime_ms", "after_ms"),
    [(0, None), (-1, None), (1_000, None), (1_100, 1_050), (2_000, 1_700), (3_600_000, 3_060_000)],
)
def test_when_a_session_is_renewed(lifetime_ms: int, after_ms: int | None) -> None:
    """Not within a second, which is no start for a server."""
    assert again_after_ms(lifetime_ms) == after_ms
