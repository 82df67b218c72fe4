"""Cipher suites of TLS 1.2 and 1.3: IANA's names, which `ssl.cipher.suites` has, and OpenSSL's.

Java calls a suite as IANA does; OpenSSL does so for TLS 1.3 only, and takes the two kinds in two
calls. Suites without forward secrecy are known, since old files name them; those without
authentication, with DES, RC4 or export keys are not. Source: IANA's registry of TLS parameters.

Imported only where a listener sets `ssl.cipher.suites`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

TLS_1_3_SUITES: Final = frozenset(
    {
        "TLS_AES_256_GCM_SHA384",
        "TLS_AES_128_GCM_SHA256",
        "TLS_CHACHA20_POLY1305_SHA256",
        "TLS_AES_128_CCM_SHA256",
        "TLS_AES_128_CCM_8_SHA256",
    }
)
# Java's signal that a client renegotiates safely; it is not a suite, and OpenSSL always has it.
SIGNAL: Final = "TLS_EMPTY_RENEGOTIATION_INFO_SCSV"

_EVERY: Final = ("ECDHE_ECDSA", "ECDHE_RSA", "DHE_RSA", "RSA")
_EPHEMERAL: Final = ("ECDHE_ECDSA", "ECDHE_RSA", "DHE_RSA")
_ELLIPTIC: Final = ("ECDHE_ECDSA", "ECDHE_RSA")
_SHA256_ONLY: Final = ("DHE_RSA", "RSA")
# IANA's end of a name, OpenSSL's, and the key exchanges there are with it.
_CIPHERS: Final = (
    ("AES_256_GCM_SHA384", "AES256-GCM-SHA384", _EVERY),
    ("AES_128_GCM_SHA256", "AES128-GCM-SHA256", _EVERY),
    ("CHACHA20_POLY1305_SHA256", "CHACHA20-POLY1305", _EPHEMERAL),
    ("AES_256_CCM", "AES256-CCM", ("ECDHE_ECDSA", "DHE_RSA", "RSA")),
    ("AES_128_CCM", "AES128-CCM", ("ECDHE_ECDSA", "DHE_RSA", "RSA")),
    ("AES_256_CBC_SHA384", "AES256-SHA384", _ELLIPTIC),
    ("AES_256_CBC_SHA256", "AES256-SHA256", _SHA256_ONLY),
    ("AES_128_CBC_SHA256", "AES128-SHA256", _EVERY),
    ("AES_256_CBC_SHA", "AES256-SHA", _EVERY),
    ("AES_128_CBC_SHA", "AES128-SHA", _EVERY),
)


def _openssl_name(exchange: str, cipher: str) -> str:
    return cipher if exchange == "RSA" else f"{exchange.replace('_', '-')}-{cipher}"


TLS_1_2_SUITES: Final = {
    f"TLS_{exchange}_WITH_{iana}": _openssl_name(exchange, openssl)
    for iana, openssl, exchanges in _CIPHERS
    for exchange in exchanges
}


def unknown_suite(names: Iterable[str]) -> str | None:
    """The first of `names` that is no suite; None: all are."""
    known = TLS_1_3_SUITES | set(TLS_1_2_SUITES) | {SIGNAL}
    return next((name for name in names if name not in known), None)
