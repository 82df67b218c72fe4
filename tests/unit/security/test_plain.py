"""PLAIN: three fields, of which the client may leave the first empty."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kbroker.security.mechanism import AuthenticationError, CredentialsError, Login
from kbroker.security.plain import PlainServer, plain_token

PASSWORDS = {"alice": "hers", "b,=\u00e9": " \u20ac"}


@pytest.mark.parametrize("name", PASSWORDS)
@pytest.mark.parametrize("authorizes", [False, True])
def test_a_right_password(name: str, authorizes: bool) -> None:
    server = PlainServer(PASSWORDS)
    token = plain_token(name, PASSWORDS[name])
    assert server.evaluate(name.encode() * authorizes + token) == b""
    assert server.login == Login(name)


@pytest.mark.parametrize(
    ("token", "text"),
    [
        (b"\0alice\0his", "Invalid username or password"),
        (b"\0alice\0hers ", "Invalid username or password"),
        (b"\0Alice\0hers", "Invalid username or password"),
        (b"\0bob\0hers", "Invalid username or password"),
        (b"bob\0alice\0his", "Invalid username or password"),
        (
            b"bob\0alice\0hers",
            "Client requested an authorization id that is different from username",
        ),
    ],
)
def test_a_client_that_is_not_let_in_gets_kafkas_words(token: bytes, text: str) -> None:
    server = PlainServer(PASSWORDS)
    with pytest.raises(AuthenticationError, match=rf"^Authentication failed: {text}$"):
        server.evaluate(token)
    assert server.login is None


@pytest.mark.parametrize(
    ("token", "text"),
    [
        (b"", "Invalid SASL/PLAIN response: expected 3 tokens, got 1"),
        (b"alice", "Invalid SASL/PLAIN response: expected 3 tokens, got 1"),
        (b"\0alice", "Invalid SASL/PLAIN response: expected 3 tokens, got 2"),
        (b"\0alice\0hers\0", "Invalid SASL/PLAIN response: expected 3 tokens, got 4"),
        (b"\0\0\0\0\0\0", "Invalid SASL/PLAIN response: expected 3 tokens, got 4"),
        (b"\0\0hers", "Authentication failed: username not specified"),
        (b"\0alice\0", "Authentication failed: password not specified"),
        (b"\0al\xffice\0hers", "Authentication failed: Invalid username or password"),
        (b"\0" + b"a" * 1025 + b"\0x", "Authentication failed: Invalid username or password"),
    ],
)
def test_a_token_that_is_none(token: bytes, text: str) -> None:
    with pytest.raises(AuthenticationError) as raised:
        PlainServer(PASSWORDS).evaluate(token)
    assert str(raised.value) == text


@given(st.binary(max_size=40))
def test_any_bytes_end_in_an_error(token: bytes) -> None:
    with pytest.raises(CredentialsError):
        PlainServer({"alice": "\0"}).evaluate(token)


def test_no_password_is_that_of_unknown_names() -> None:
    from kbroker.security import plain

    with pytest.raises(CredentialsError):
        PlainServer({}).evaluate(b"\0bob\0" + plain._UNKNOWN.encode())


def test_a_client_sends_no_nul() -> None:
    for name, password in (("a\0", "b"), ("a", "\0b")):
        with pytest.raises(ValueError, match="no NUL"):
            plain_token(name, password)
