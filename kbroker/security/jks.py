"""Stores of Java in its own format, JKS: certificates, and private keys under a password.

Certificates lie open in it. A private key is XORed with a stream of SHA-1 over the password and a
salt; the whole file has a SHA-1 over the password and its bytes. That is no strong protection: the
file's mode is what keeps a key. Source: the format as `keytool -storetype JKS` of OpenJDK writes
it, and the layout of java.io.DataOutputStream.

Pure functions; any thread. No text of a key or a password is in a message.
"""

from __future__ import annotations

import hashlib
import hmac
from typing import Final, NamedTuple

from kbroker.security.der import SEQUENCE, only_value, values_of

MAGIC: Final = b"\xfe\xed\xfe\xed"
MAGIC_JCEKS: Final = b"\xce\xce\xce\xce"
_VERSIONS: Final = (1, 2)
_ENTRIES_MAX: Final = 10_000
_KEY: Final = 1
_CERTIFICATE: Final = 2
_DIGEST_BYTES: Final = 20
_WHITENER: Final = b"Mighty Aphrodite"
_OCTET_STRING: Final = 0x04
# As DER: sun.security.provider.KeyProtector's 1.3.6.1.4.1.42.2.17.1.1.
_PROTECTION: Final = bytes.fromhex("060a2b060104012a02110101")


class Entry(NamedTuple):
    """`key`: PKCS#8 under the key's password, None of a trusted certificate. `chain`: in DER, the
    key's own certificate first."""

    alias: str
    key: bytes | None
    chain: tuple[bytes, ...]


def entries_of(data: bytes, password: str) -> list[Entry]:
    """In their order. An empty password: the file's digest is not looked at, as by Java. ValueError
    if it is no such store, or the password is another."""
    body, digest = data[:-_DIGEST_BYTES], data[-_DIGEST_BYTES:]
    if not data.startswith(MAGIC) or len(body) < 12:
        raise ValueError("it is no JKS store")
    if password:
        expected = hashlib.sha1(_utf16(password) + _WHITENER + body).digest()
        if not hmac.compare_digest(expected, digest):
            raise ValueError("its password is another, or it was changed")
    reader = _Reader(body, len(MAGIC))
    version, count = reader.number(4), reader.number(4)
    if version not in _VERSIONS or count > _ENTRIES_MAX:
        raise ValueError(f"it is a JKS store of version {version} with {count} entries")
    found = [_entry(reader, version) for _ in range(count)]
    if not reader.is_at_end:
        raise ValueError("there is something after its entries")
    return found


def unprotected(key: bytes, password: str) -> bytes:
    """The PKCS#8 of an entry's key; ValueError: its password is another."""
    algorithm, protected = values_of(only_value(key, SEQUENCE))
    if not algorithm.content.startswith(_PROTECTION) or protected.tag != _OCTET_STRING:
        raise ValueError("its key is protected in a way that JKS does not have")
    data, secret = protected.content, _utf16(password)
    salt, hidden, check = (
        data[:_DIGEST_BYTES], data[_DIGEST_BYTES:-_DIGEST_BYTES], data[-_DIGEST_BYTES:],
    )  # fmt: skip
    stream, block = b"", salt
    while len(stream) < len(hidden):
        block = hashlib.sha1(secret + block).digest()
        stream += block
    plain = bytes(a ^ b for a, b in zip(hidden, stream, strict=False))
    if not hmac.compare_digest(hashlib.sha1(secret + plain).digest(), check):
        raise ValueError("the password of its key is another")
    return plain


def _entry(reader: _Reader, version: int) -> Entry:
    kind, alias = reader.number(4), reader.text()
    reader.number(8)  # when it was made
    if kind == _KEY:
        key, length = reader.block(), reader.number(4)
        if length > _ENTRIES_MAX:
            raise ValueError(f"a chain of {length} certificates in it")
        return Entry(alias, key, tuple(_certificate(reader, version) for _ in range(length)))
    if kind == _CERTIFICATE:
        return Entry(alias, None, (_certificate(reader, version),))
    raise ValueError(f"an entry of kind {kind} in it")


def _certificate(reader: _Reader, version: int) -> bytes:
    kind = reader.text() if version > 1 else "X.509"
    data = reader.block()
    if kind != "X.509":
        raise ValueError(f"a certificate of kind {kind!r} in it")
    return data


def _utf16(password: str) -> bytes:
    return password.encode("utf-16-be")


class _Reader:
    """Numbers and texts as DataOutputStream writes them; ValueError where the bytes end."""

    def __init__(self, data: bytes, at: int) -> None:
        self._data, self._at = data, at

    @property
    def is_at_end(self) -> bool:
        return self._at == len(self._data)

    def number(self, length: int) -> int:
        return int.from_bytes(self._take(length), "big")

    def text(self) -> str:
        return self._take(self.number(2)).decode("utf-8", "replace")

    def block(self) -> bytes:
        return self._take(self.number(4))

    def _take(self, length: int) -> bytes:
        if length > len(self._data) - self._at:
            raise ValueError("it is cut short")
        begin, self._at = self._at, self._at + length
        return self._data[begin : self._at]
