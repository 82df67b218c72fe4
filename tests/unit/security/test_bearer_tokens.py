"""Bearer tokens: signatures of each algorithm, sets of keys, claims, and what is none of these."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import math
from typing import Any

import pytest
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from hypothesis import given
from hypothesis import strategies as st

from kbroker.limits import (
    JSON_DEPTH_MAX,
    JWKS_KEYS_MAX,
    JWS_HEADER_BYTES_MAX,
    OAUTH_TOKEN_BYTES_MAX,
)
from kbroker.security.jwks import KeySet, parse_key_set
from kbroker.security.jws import ALGORITHMS, TokenError, is_signed, parse_jws, parse_object
from kbroker.security.jwt import (
    Accepted,
    Claims,
    JwtValidator,
    accepted,
)
from tests.support.bearer_tokens import Signer, encoded, key_set, part, rsa_key, unsecured

NOW_S = 1_800_000_000
NOW_MS = NOW_S * 1000
CLAIMS: dict[str, Any] = {"sub": "alice", "iat": NOW_S, "exp": NOW_S + 60}


class Keys:
    """A set of keys, and what was missing in it."""

    def __init__(self, keys: KeySet | None) -> None:
        self.keys = keys
        self.missing: list[str | None] = []

    def validator(self, claims: Claims | None = None) -> JwtValidator:
        asked = claims or Claims()
        return JwtValidator(asked, lambda: self.keys, self.missing.append, lambda: NOW_MS)

    def accepts(self, token: str) -> bool:
        try:
            self.validator().accept(token)
        except TokenError as error:
            assert token not in str(error)
            return False
        return True


def keys_of(*signers: Signer, more: Any = ()) -> Keys:
    return Keys(parse_key_set(key_set(*signers, more=more)))


# --- signatures -----------------------------------------------------------------------------------


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_each_algorithm(algorithm: str) -> None:
    signer = Signer(algorithm)
    keys = keys_of(signer)
    token = signer.token(**CLAIMS)
    assert keys.validator().accept(token) == Accepted("alice", NOW_MS + 60_000)
    head, payload, signature = token.split(".")
    other = part({**CLAIMS, "sub": "admin"})
    data = base64.urlsafe_b64decode(signature + "==")
    for wrong in (
        f"{head}.{other}.{signature}",
        f"{head}.{payload}.{encoded(data[:-1])}",
        f"{head}.{payload}.{encoded(data + b'x')}",
        f"{head}.{payload}.{encoded(bytes(len(data)))}",
        f"{head}.{payload}.",
        f"{head}.{payload}",
        f"{head}.{payload}.{signature}.",
        f"{head}.{payload}.{signature}=",
        f"{head}.{payload}.{signature}\n",
        f" {token}",
    ):
        assert not keys.accepts(wrong), wrong


def test_no_algorithm_but_ours() -> None:
    signer = Signer()
    keys = keys_of(signer)
    for name in (
        "none",
        "None",
        "NONE",
        "HS256",
        "rs256",
        "",
        "RS1",
        "EdDSA",
        "dir",
        7,
        None,
        ["RS256"],
    ):
        assert not keys.accepts(signer.token({"alg": name}, **CLAIMS)), name
    assert not keys.accepts(unsecured(**CLAIMS))
    assert not keys.accepts(f"{part({'alg': 'none'})}.{part(CLAIMS)}.AA")


def test_a_public_key_is_no_secret_of_an_hmac() -> None:
    """The confusion of CVE-2016-10555 and its like."""
    signer = Signer()
    texts = [
        signer.public.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo),
        signer.public.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo),
        signer.jwk["n"].encode(),
        b"",
    ]
    secret = encoded(b"a secret that all know")
    keys = keys_of(signer, more=[{"kty": "oct", "kid": "k", "k": secret, "alg": "HS256"}])
    for text in (*texts, b"a secret that all know"):
        for name in ("HS256", "RS256"):
            signed = f"{part({'alg': name, 'kid': 'k'})}.{part(CLAIMS)}"
            signature = hmac.digest(text, signed.encode(), hashlib.sha256)
            assert not keys.accepts(f"{signed}.{encoded(signature)}")


def test_an_algorithm_fits_the_key() -> None:
    rsa, ec = Signer("RS256", "r"), Signer("ES256", "e")
    keys = keys_of(rsa, ec)
    assert keys.accepts(rsa.token(**CLAIMS)) and keys.accepts(ec.token(**CLAIMS))
    for signer, name in ((rsa, "ES256"), (rsa, "PS256"), (ec, "RS256"), (ec, "ES384")):
        assert not keys.accepts(signer.token({"alg": name}, **CLAIMS))
    assert not keys.accepts(rsa.token({"kid": "e"}, **CLAIMS))
    only = keys_of(more=[{**rsa.jwk, "alg": "RS512"}])
    assert not only.accepts(rsa.token(**CLAIMS))
    for found in keys.keys.keys if keys.keys else ():
        assert not is_signed(parse_jws(Signer("ES384").token(**CLAIMS)), found.public)


@pytest.mark.parametrize(
    "kid", ["../../etc/passwd", "k\0", "K", "", "k;select", "x" * 256, "é", "/dev/random"]
)
def test_a_kid_is_looked_up_and_nothing_else(kid: str) -> None:
    signer = Signer()
    keys = keys_of(signer)
    assert not keys.accepts(signer.token({"kid": kid}, **CLAIMS))
    assert keys.missing == [kid]


@pytest.mark.parametrize("kid", [7, ["k"], {"k": 1}, True, "x" * 257])
def test_a_kid_that_is_none(kid: Any) -> None:
    signer = Signer()
    keys = keys_of(signer)
    assert not keys.accepts(signer.token({"kid": kid}, **CLAIMS))
    assert keys.missing == []


def test_a_token_without_a_kid_is_of_any_key() -> None:
    first, second = Signer("RS256", None), Signer("RS256", "b", number=1)
    keys = keys_of(first, second)
    for signer in (first, second):
        nameless = Signer("RS256", None)
        nameless._key = signer._key
        assert keys.accepts(nameless.token(**CLAIMS))


def test_keys_in_a_header_mean_nothing() -> None:
    signer, other = Signer(), Signer("RS256", "k", number=1)
    keys = keys_of(signer)
    header = {"jwk": other.jwk, "jku": "https://127.0.0.1/keys", "x5u": "https://127.0.0.1/c"}
    assert not keys.accepts(other.token(header, **CLAIMS))
    assert keys.accepts(signer.token(header, **CLAIMS))
    assert not keys.accepts(signer.token({"crit": ["exp"]}, **CLAIMS))


def test_without_keys_no_token_is_accepted() -> None:
    keys = Keys(None)
    assert not keys.accepts(Signer().token(**CLAIMS))
    assert keys.missing == ["k"]


# --- sets of keys ---------------------------------------------------------------------------------


def test_keys_that_are_not_for_signatures_are_left_out() -> None:
    jwk = Signer().jwk
    short = rsa_key(0, 1024).public_key().public_numbers()
    modulus = encoded(short.n.to_bytes(128, "big"))
    ec = Signer("ES256").jwk
    left_out = [
        {**jwk, "use": "enc"},
        {**jwk, "key_ops": ["encrypt"]},
        {**jwk, "key_ops": "verify"},
        {**jwk, "alg": "HS256"},
        {**jwk, "alg": ["RS256"]},
        {**jwk, "kid": 7},
        {**jwk, "kty": "oct"},
        {**jwk, "kty": ["RSA"]},
        {**jwk, "n": modulus},
        {**jwk, "n": "A" * 100_000},
        {**jwk, "n": ""},
        {**jwk, "n": "$"},
        {**jwk, "n": 7},
        {**jwk, "e": encoded(b"\xff" * 8)},
        {**jwk, "e": ""},
        {**jwk, "e": encoded(b"\x01")},
        {**ec, "crv": "secp256k1"},
        {**ec, "crv": ["P-256"]},
        {**ec, "y": ec["x"]},
        {**ec, "x": ""},
        {"kty": "RSA"},
        7,
        None,
        [],
    ]
    for each in left_out:
        with pytest.raises(TokenError):
            parse_key_set(key_set(more=[each]))
    assert len(parse_key_set(key_set(Signer(), more=left_out)).keys) == 1


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"[]",
        b"{}",
        b'{"keys":7}',
        b'{"keys":[]}',
        b"\xff",
        b"[" * 100_000,
        b'{"keys":' + b"[" * 50 + b"]" * 50 + b"}",
        json.dumps({"keys": [{}] * (JWKS_KEYS_MAX + 1)}).encode(),
        b'{"keys":[],"keys":[]}',
    ],
)
def test_no_set_of_keys(data: bytes) -> None:
    with pytest.raises(TokenError):
        parse_key_set(data)


@given(st.binary(max_size=200) | st.text().map(str.encode))
def test_any_bytes(data: bytes) -> None:
    with pytest.raises(TokenError):
        parse_key_set(data)
    with pytest.raises(TokenError):
        parse_jws(data.decode("latin-1"))


# --- claims ---------------------------------------------------------------------------------------


def reason(claims: Claims | None = None, **changed: Any) -> str:
    """Why it is not accepted; empty: it is."""
    payload = {name: each for name, each in {**CLAIMS, **changed}.items() if each is not ...}
    try:
        accepted(payload, claims or Claims(), NOW_MS)
    except TokenError as error:
        return str(error)
    return ""


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *((name, value) for name in ("exp", "iat", "nbf") for value in (
            "1800000060", True, [NOW_S], {"a": 1}, -1, math.nan, math.inf, -math.inf, 1e308, 2**63,
            10**400, -(10**30),
        )),
        ("exp", ...),
        ("exp", None),
        ("exp", 0),
        ("exp", NOW_S - 30),
        ("iat", ...),
        ("iat", NOW_S + 31),
        ("iat", NOW_S + 61),
        ("nbf", NOW_S + 31),
        *(("sub", value) for value in (..., None, "", "  ", 7, ["alice"], {"a": 1}, True,
                                       "x" * 1025, "a\0b", "\ud800")),
        *(("scope", value) for value in (7, None, {"a": 1}, [7], [["a"]], ["a"] * 1001, True)),
    ],
)  # fmt: skip
def test_claims_that_are_wrong(name: str, value: Any) -> None:
    assert reason(**{name: value})


@pytest.mark.parametrize(
    "changed",
    [
        {},
        {"exp": NOW_S - 29, "iat": 0},
        {"exp": NOW_S + 0.5},
        {"exp": 253_402_300_799},
        {"iat": NOW_S + 29},
        {"iat": 0},
        {"nbf": NOW_S + 29},
        {"nbf": 0.5},
        {"scope": "a b"},
        {"scope": []},
        {"scope": ["a", "b"]},
        {"aud": 7, "iss": 7, "jti": [1]},
        {"sub": "a b=,é"},
    ],
)
def test_claims_that_are_right(changed: dict[str, Any]) -> None:
    assert not reason(**changed)


def test_audience_issuer_and_names_of_claims() -> None:
    for_us = Claims(audiences=frozenset({"us", "them"}), issuer="https://issuer")
    right = {"aud": "us", "iss": "https://issuer"}
    assert not reason(for_us, **right)
    assert not reason(for_us, **{**right, "aud": ["x", "them"]})
    for wrong in ("x", [], ["x"], 7, None, ..., ["us", 7], {"us": 1}):
        assert reason(for_us, **{**right, "aud": wrong})
    for wrong in ("https://issuer/", "HTTPS://ISSUER", 7, None, ..., ["https://issuer"]):
        assert reason(for_us, **{**right, "iss": wrong})
    named = Claims(subject="email", scope="scp")
    assert reason(named)
    assert not reason(named, email="a@b", scope=7)
    assert reason(named, email="a@b", scp=7)


def test_a_payload_that_is_none() -> None:
    signer = Signer()
    keys = keys_of(signer)
    head = part({"alg": "RS256", "kid": "k"})
    for data in (
        b"",
        b"7",
        b"[]",
        b"\xff",
        b'{"sub":"alice","sub":"bob"}',
        b'{"exp":NaN}',
        b'{"exp":' + b"9" * 5_000 + b"}",
        b'{"a":' * (JSON_DEPTH_MAX + 1) + b"1" + b"}" * (JSON_DEPTH_MAX + 1),
        b'{"sub":' + b"[" * 10_000,
    ):
        signed = f"{head}.{encoded(data)}"
        assert not keys.accepts(f"{signed}.{encoded(signer.sign(signed.encode()))}"), data[:40]


def test_sizes_are_bounded() -> None:
    signer = Signer()
    keys = keys_of(signer)
    assert not keys.accepts(signer.token(**CLAIMS, more="x" * OAUTH_TOKEN_BYTES_MAX))
    assert not keys.accepts(signer.token({"x": "x" * JWS_HEADER_BYTES_MAX}, **CLAIMS))
    assert keys.accepts(signer.token({"x": "x" * 1_000}, **CLAIMS, more="x" * 20_000))
    assert parse_object(b'{"a":"[[[["}', "it") == {"a": "[[[["}


def test_brackets_in_texts_hide_no_depth() -> None:
    deep = b"[" * 50 + b"]" * 50
    for text in (b"]" * 50, b"]" * 50 + rb"\"", rb"\\" + b"]" * 50):
        with pytest.raises(TokenError, match="too deep"):
            parse_object(b'{"a":"' + text + b'","b":' + deep + b"}", "it")
    assert parse_object(b'{"a":"' + b"[" * 50 + rb"\"" + b'"}', "it") == {"a": "[" * 50 + '"'}
