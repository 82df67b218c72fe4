"""Names and certificates that were made to hurt: each ends in a text or a ValueError, and soon."""

from __future__ import annotations

import random
import ssl
import time
from pathlib import Path
from typing import Any

import pytest

from kbroker.net._tls_context import TlsContext
from kbroker.security.certificate_names import alternative_names
from kbroker.security.certificate_principals import CertificatePrincipals
from kbroker.security.distinguished_name import name_of
from kbroker.security.principal_rules import NAME_CHARS_MAX, PrincipalRules
from tests.support.certificates import Authority

CHANGES = 4_000
LONG_S = 5.0


def der(tag: int, content: bytes) -> bytes:
    length = len(content)
    if length < 0x80:
        return bytes([tag, length]) + content
    size = length.to_bytes((length.bit_length() + 7) // 8, "big")
    return bytes([tag, 0x80 | len(size)]) + size + content


def attribute(value: bytes, *, kind: str = "550403", tag: int = 0x0C) -> bytes:
    return der(0x30, der(0x06, bytes.fromhex(kind)) + der(tag, value))


def name(*parts: bytes) -> bytes:
    return der(0x30, b"".join(der(0x31, part) for part in parts))


CORPUS = {
    "ten parts": name(*[attribute(b"part %d" % at) for at in range(10)]),
    "ten values in a part": name(b"".join(attribute(b"value %d" % at) for at in range(10))),
    "no part": name(),
    "an empty part": name(b""),
    "a value of 4 KB": name(attribute(b"a" * 4_096)),
    "of commas": name(attribute(b"," * 4_000)),
    "of backslashes": name(attribute(b"\\" * 4_000)),
    "with a character 0": name(attribute(b"admin\0.example.com")),
    "that looks like two": name(attribute(b"alice,OU=admins")),
    "with line ends": name(attribute(b"a\r\nINFO forged line")),
    "of broken UTF-8": name(attribute(b"\xff\xfe\xed\xa0\x80")),
    "of blanks": name(attribute(b"   ")),
    "of T61": name(attribute(b"\xe4", tag=0x14)),
    "of UCS-2": name(attribute("ä😀".encode("utf-16-be"), tag=0x1E)),
    "of a kind of many arcs": name(attribute(b"x", kind="55" + "8f" * 60 + "01")),
    "of a kind that is cut": name(attribute(b"x", kind="5584")),
    "nested": der(0x30, der(0x31, der(0x30, der(0x30, der(0x31, b""))))),
    "of a length that lies": b"\x30\x84\xff\xff\xff\xff\x31",
    "of an indefinite length": b"\x30\x80\x00\x00",
    "no bytes": b"",
}


class Request:
    def __init__(self, body: bytes) -> None:
        self.names_peer, self.body, self.listener, self.peer_host = True, body, "SSL", "10.0.0.1"
        self.principal: Any = None
        self.refused = False

    def open_channel(self, body: bytes | None, principal: Any) -> None:
        self.principal = principal

    def refuse(self, body: bytes | None = None) -> None:
        self.refused = True


RULES = (
    "DEFAULT",
    r"RULE:^CN=(.*?),OU=(.*?),O=(.*?),L=(.*?),ST=(.*?),C=(.*?)$/$1@$2/L,DEFAULT",
    r"RULE:(.+)+(.+)+(.+)+x/$1/,RULE:^(CN=)?((\\.|[^,\\])+,?)*z$/$2/U,DEFAULT",
)


@pytest.mark.parametrize("rules", RULES, ids=["default", "six groups", "nested"])
@pytest.mark.parametrize("each", CORPUS)
def test_each_name_is_a_principal_or_is_refused(each: str, rules: str) -> None:
    principals = CertificatePrincipals({"SSL": PrincipalRules(rules)})
    request = Request(CORPUS[each])
    began = time.monotonic()
    principals.identify(request)
    assert time.monotonic() - began < LONG_S
    assert request.refused is (request.principal is None)
    if request.principal is not None:
        assert len(request.principal.name) <= NAME_CHARS_MAX


def test_names_that_look_like_others_are_not_they() -> None:
    assert name_of(CORPUS["that looks like two"]) == r"CN=alice\,OU\=admins"
    assert name_of(CORPUS["with a character 0"]) == r"CN=admin\00.example.com"


@pytest.mark.parametrize("seed", range(3))
def test_names_that_were_changed(seed: int) -> None:
    dice = random.Random(seed)
    wholes = list(CORPUS.values())
    for _ in range(CHANGES):
        changed = bytearray(dice.choice(wholes)[:2_000])
        for _ in range(dice.choice((1, 1, 3, 10))):
            if changed:
                changed[dice.randrange(len(changed))] = dice.randrange(256)
        del changed[dice.randrange(len(changed) + 1) if dice.random() < 0.3 else len(changed) :]
        try:
            assert isinstance(name_of(bytes(changed)), str)
        except ValueError:
            pass


@pytest.fixture(scope="module")
def certificate_der(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    made = Authority(tmp_path_factory.mktemp("corpus")).issue("broker")
    return ssl.PEM_cert_to_DER_cert(made.chain.read_text())


@pytest.mark.parametrize("seed", range(3))
def test_certificates_that_were_changed(certificate_der: bytes, seed: int) -> None:
    """By our parser, which may see what OpenSSL has taken, and by OpenSSL."""
    dice = random.Random(seed)
    for _ in range(CHANGES):
        changed = bytearray(certificate_der)
        for _ in range(dice.choice((1, 1, 3, 10))):
            changed[dice.randrange(len(changed))] = dice.randrange(256)
        try:
            assert isinstance(alternative_names(bytes(changed)), frozenset)
        except ValueError:
            pass
        if dice.random() < 0.1:
            pem = ssl.DER_cert_to_PEM_cert(bytes(changed)).encode()
            try:
                context = TlsContext()
                context.use_certificates(pem)
                assert context.not_after is not None and context.not_before is not None
            except ValueError:
                pass


@pytest.mark.parametrize("days", [40_000, 1_000_000])
def test_times_that_are_far_away(tmp_path: Path, days: int) -> None:
    made = Authority(tmp_path).issue("far", days=days)
    context = TlsContext()
    context.use_certificates(made.chain.read_bytes())
    assert context.not_after - context.not_before == days * 86_400
