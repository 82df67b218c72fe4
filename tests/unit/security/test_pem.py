"""PEM as files and settings have it: on one line, with text around it, cut short."""

from __future__ import annotations

import base64

import pytest

from kbroker.security.pem import PEM_BYTES_MAX, certificates_of, private_key_of

BODY = bytes(range(200))


def block(label: str = "CERTIFICATE", body: bytes = BODY, gap: str = "\n") -> bytes:
    text = base64.encodebytes(body).decode().strip().replace("\n", gap)
    return f"-----BEGIN {label}-----{gap}{text}{gap}-----END {label}-----{gap}".encode()


WRITTEN = base64.b64encode(BODY)
LINES = [WRITTEN[at : at + 64] for at in range(0, len(WRITTEN), 64)]
CERTIFICATE = b"\n".join(
    [b"-----BEGIN CERTIFICATE-----", *LINES, b"-----END CERTIFICATE-----", b""]
)


@pytest.mark.parametrize("gap", ["\n", "\r\n", " ", "", "\n\t  "])
def test_line_ends_may_be_missing(gap: str) -> None:
    assert certificates_of(block(gap=gap)) == CERTIFICATE


def test_a_key_store_has_both_in_any_order() -> None:
    chain = block() + block(body=b"issuer")
    for text in (block("PRIVATE KEY") + chain, chain + block("PRIVATE KEY")):
        assert certificates_of(b"Bag Attributes\n" + text).count(b"BEGIN") == 2
        assert certificates_of(text).startswith(CERTIFICATE)
        assert private_key_of(text) == CERTIFICATE.replace(b"CERTIFICATE", b"PRIVATE KEY")
    encrypted = private_key_of(block("ENCRYPTED PRIVATE KEY"))
    assert encrypted.startswith(b"-----BEGIN ENCRYPTED PRIVATE KEY-----\n")


def test_blocks_of_other_kinds_are_passed_over() -> None:
    assert certificates_of(block("X509 CRL") + block() + block("EC PARAMETERS")) == CERTIFICATE


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (b"", "there is no certificate"),
        (b"\xfe\xed\xfe\xed" + bytes(100), "there is no certificate"),
        (block("PRIVATE KEY"), "there is no certificate"),
        (block()[:-20], "a certificate in it is cut short"),
        (block() + block()[:60], "a certificate in it is cut short"),
        (block().replace(b"AAEC", b"*AEC"), "is no base64"),
        (block("CERTIFICATE", b"x").replace(b"eA==", b"eA="), "is no base64"),
        (b" " * (PEM_BYTES_MAX + 1), "longer"),
    ],
)
def test_certificates_that_are_none(text: bytes, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        certificates_of(text)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (b"", "there are no private keys"),
        (block("PRIVATE KEY") * 2, "there are 2 private keys"),
        (block("PRIVATE KEY")[:-20], "cut short"),
        (block("RSA PRIVATE KEY"), "not PKCS#8; convert it"),
        (block("EC PRIVATE KEY"), "not PKCS#8; convert it"),
    ],
)
def test_private_keys_that_are_none(text: bytes, reason: str) -> None:
    with pytest.raises(ValueError, match=reason) as caught:
        private_key_of(text)
    assert LINES[0].decode() not in str(caught.value)
