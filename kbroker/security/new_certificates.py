"""A certificate authority of one's own, and the certificates that it issues (RFC 5280).

    authority = new_authority("my cluster", days=3650, now_ms=now_ms)
    broker = issue(authority, "broker-1", hosts=("localhost", "127.0.0.1"), days=825, now_ms=now_ms)
    store = broker.key_store        # PEM, as `ssl.keystore.location` has it

Place in the flow: `kbroker secure init` and `kbroker.testing`. A broker reads certificates and
makes none. Keys and signatures are `private_keys.py`'s; the rest is DER, which is written here.

A certificate is for servers and clients, since a broker is both to the others. It is valid from a
day before `now_ms` on, for machines whose clocks differ. Any thread.
"""

from __future__ import annotations

import base64
import hashlib
import ipaddress
import os
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Final, NamedTuple

from kbroker.security.private_keys import PrivateKey

_INTEGER: Final = 0x02
_BIT_STRING: Final = 0x03
_OCTET_STRING: Final = 0x04
_OID: Final = 0x06
_UTF8: Final = 0x0C
_UTC_TIME: Final = 0x17
_GENERALIZED_TIME: Final = 0x18
_SEQUENCE: Final = 0x30
_SET: Final = 0x31
_TRUE: Final = b"\x01\x01\xff"
_VERSION_3: Final = b"\xa0\x03\x02\x01\x02"
_DNS: Final = 0x82
_IP: Final = 0x87
_SERIAL_BYTES: Final = 16
_NAME_CHARS_MAX: Final = 64
_PEM_CHARS: Final = 64
_LAST_UTC_YEAR: Final = 2049

_ECDSA_SHA256: Final = "1.2.840.10045.4.3.2"
_COMMON_NAME: Final = "2.5.4.3"
_BASIC_CONSTRAINTS: Final = "2.5.29.19"
_KEY_USAGE: Final = "2.5.29.15"
_EXTENDED_USAGE: Final = "2.5.29.37"
_SUBJECT_NAMES: Final = "2.5.29.17"
_SUBJECT_KEY: Final = "2.5.29.14"
_ISSUER_KEY: Final = "2.5.29.35"
_SERVER_AUTH: Final = "1.3.6.1.5.5.7.3.1"
_CLIENT_AUTH: Final = "1.3.6.1.5.5.7.3.2"
# Bits from the left: digitalSignature 0, keyCertSign 5, cRLSign 6.
_SIGNS_DATA: Final = b"\x03\x02\x07\x80"
_SIGNS_CERTIFICATES: Final = b"\x03\x02\x01\x06"


class Issued(NamedTuple):
    """A certificate in PEM, with its key."""

    name: str
    certificate: bytes
    key: PrivateKey

    @property
    def key_pem(self) -> bytes:
        """PKCS#8, not encrypted."""
        return pem("PRIVATE KEY", self.key.pkcs8())

    @property
    def key_store(self) -> bytes:
        """The key, then the certificate."""
        return self.key_pem + self.certificate


def new_authority(name: str, *, days: int, now_ms: int) -> Issued:
    """It issues certificates for clients and servers, and for no other authority."""
    key = PrivateKey()
    extensions = [
        _extension(_BASIC_CONSTRAINTS, _sequence(_TRUE, _integer(0)), critical=True),
        _extension(_KEY_USAGE, _SIGNS_CERTIFICATES, critical=True),
        _extension(_SUBJECT_KEY, _value(_OCTET_STRING, _key_id(key))),
    ]
    return Issued(name, _certificate(name, key, name, key, extensions, days, now_ms), key)


def issue(authority: Issued, name: str, *, hosts: Sequence[str], days: int, now_ms: int) -> Issued:
    """`hosts`: names and addresses by which clients connect; none for a client's certificate.

    ValueError: a name cannot be one of a host.
    """
    key = PrivateKey()
    issuer_id = _value(0x80, _key_id(authority.key))
    extensions = [
        _extension(_BASIC_CONSTRAINTS, _sequence(), critical=True),
        _extension(_KEY_USAGE, _SIGNS_DATA, critical=True),
        _extension(_EXTENDED_USAGE, _sequence(_oid(_SERVER_AUTH), _oid(_CLIENT_AUTH))),
        _extension(_SUBJECT_KEY, _value(_OCTET_STRING, _key_id(key))),
        _extension(_ISSUER_KEY, _sequence(issuer_id)),
    ]
    if hosts:
        extensions.append(_extension(_SUBJECT_NAMES, _sequence(*map(_host, hosts))))
    made = _certificate(name, key, authority.name, authority.key, extensions, days, now_ms)
    return Issued(name, made, key)


def pem(label: str, data: bytes) -> bytes:
    """RFC 7468."""
    text = base64.b64encode(data).decode()
    lines = [text[at : at + _PEM_CHARS] for at in range(0, len(text), _PEM_CHARS)]
    return "\n".join((f"-----BEGIN {label}-----", *lines, f"-----END {label}-----", "")).encode()


def _certificate(
    name: str,
    key: PrivateKey,
    issuer: str,
    issuer_key: PrivateKey,
    extensions: Iterable[bytes],
    days: int,
    now_ms: int,
) -> bytes:
    now = datetime.fromtimestamp(now_ms // 1000, UTC)
    algorithm = _sequence(_oid(_ECDSA_SHA256))
    serial = int.from_bytes(os.urandom(_SERIAL_BYTES), "big") >> 1 | 1
    signed = _sequence(
        _VERSION_3,
        _integer(serial),
        algorithm,
        _subject(issuer),
        _sequence(_time(now - timedelta(days=1)), _time(now + timedelta(days=days))),
        _subject(name),
        key.public(),
        _value(0xA3, _sequence(*extensions)),
    )
    signature = _value(_BIT_STRING, b"\0" + issuer_key.sign(signed))
    return pem("CERTIFICATE", _sequence(signed, algorithm, signature))


def _key_id(key: PrivateKey) -> bytes:
    return hashlib.sha256(key.public()).digest()[:20]


def _host(host: str) -> bytes:
    try:
        return _value(_IP, ipaddress.ip_address(host).packed)
    except ValueError:
        if not host or not host.isascii() or not all(c.isalnum() or c in "-._*" for c in host):
            raise ValueError(f"'{host}' is no host name") from None
        return _value(_DNS, host.encode())


def _subject(name: str) -> bytes:
    if not 0 < len(name) <= _NAME_CHARS_MAX:
        raise ValueError(f"a common name has 1 to {_NAME_CHARS_MAX} characters")
    part = _sequence(_oid(_COMMON_NAME), _value(_UTF8, name.encode()))
    return _sequence(_value(_SET, part))


def _time(when: datetime) -> bytes:
    if when.year <= _LAST_UTC_YEAR:
        return _value(_UTC_TIME, when.strftime("%y%m%d%H%M%SZ").encode())
    return _value(_GENERALIZED_TIME, when.strftime("%Y%m%d%H%M%SZ").encode())


def _extension(oid: str, value: bytes, *, critical: bool = False) -> bytes:
    return _sequence(_oid(oid), *([_TRUE] if critical else []), _value(_OCTET_STRING, value))


# --- DER ------------------------------------------------------------------------------------------


def _value(tag: int, content: bytes) -> bytes:
    if len(content) < 0x80:
        return bytes((tag, len(content))) + content
    length = len(content).to_bytes((len(content).bit_length() + 7) // 8, "big")
    return bytes((tag, 0x80 | len(length))) + length + content


def _sequence(*parts: bytes) -> bytes:
    return _value(_SEQUENCE, b"".join(parts))


def _integer(number: int) -> bytes:
    """Of a number that is not negative."""
    return _value(_INTEGER, number.to_bytes(number.bit_length() // 8 + 1, "big"))


def _oid(dotted: str) -> bytes:
    first, second, *rest = map(int, dotted.split("."))
    content = b""
    for number in (40 * first + second, *rest):
        groups = [number & 0x7F]
        while number := number >> 7:
            groups.append(number & 0x7F | 0x80)
        content += bytes(reversed(groups))
    return _value(_OID, content)
