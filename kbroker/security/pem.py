"""Texts in PEM as Kafka's files and settings have them, brought into the form that OpenSSL reads.

A setting holds PEM on one line, or with blanks where a file has line ends; text around the blocks
is a comment. A private key is PKCS#8, encrypted or not: other forms are refused with the command
that converts them, as Apache Kafka refuses them. Source: RFC 7468, KIP-651.

Pure functions; any thread. No text of a key is in a message.
"""

from __future__ import annotations

import base64
import binascii
import re
from typing import Final

PEM_BYTES_MAX: Final = 4 << 20
_BLOCK: Final = re.compile(rb"-----BEGIN ([A-Z0-9 ]{1,40})-----([A-Za-z0-9+/=\s]*)-----END \1-----")
_BEGIN: Final = re.compile(rb"-----BEGIN ([A-Z0-9 ]{1,40})-----")
_KEY_KINDS: Final = (b"PRIVATE KEY", b"ENCRYPTED PRIVATE KEY")
_CERTIFICATE: Final = b"CERTIFICATE"
_LINE_CHARS: Final = 64


def certificates_of(text: bytes) -> bytes:
    """The certificates in `text`, in their order; ValueError if there is none, or one is broken."""
    found = [body for kind, body in _blocks(text) if kind == _CERTIFICATE]
    if not found:
        raise ValueError("there is no certificate in it")
    return b"".join(_written(_CERTIFICATE, body) for body in found)


def private_key_of(text: bytes) -> bytes:
    """The one private key in `text`; ValueError if there is another number, or in another form."""
    found = [(kind, body) for kind, body in _blocks(text) if kind in _KEY_KINDS]
    if len(found) != 1:
        if b"PRIVATE KEY-----" in text and not found:
            raise ValueError(
                "its private key is not PKCS#8; convert it with `openssl pkcs8 -topk8`"
            )
        raise ValueError(f"there are {len(found) or 'no'} private keys in it")
    return _written(*found[0])


def _blocks(text: bytes) -> list[tuple[bytes, bytes]]:
    """Label and bytes of each block; those of other labels may hold anything."""
    if len(text) > PEM_BYTES_MAX:
        raise ValueError(f"it is longer than {PEM_BYTES_MAX} bytes")
    whole = [(match[1], match[2]) for match in _BLOCK.finditer(text)]
    for label in (_CERTIFICATE, *_KEY_KINDS):
        begun = sum(match[1] == label for match in _BEGIN.finditer(text))
        if begun != sum(kind == label for kind, _ in whole):
            raise ValueError(f"a {label.decode().lower()} in it is cut short, or is no base64")
    return [(kind, _decoded(body)) for kind, body in whole if kind in (_CERTIFICATE, *_KEY_KINDS)]


def _decoded(body: bytes) -> bytes:
    try:
        return base64.b64decode(b"".join(body.split()), validate=True)
    except binascii.Error:
        raise ValueError("a block in it is no base64") from None


def _written(label: bytes, body: bytes) -> bytes:
    text = base64.b64encode(body)
    lines = [text[at : at + _LINE_CHARS] for at in range(0, len(text), _LINE_CHARS)]
    return b"\n".join((b"-----BEGIN %s-----" % label, *lines, b"-----END %s-----" % label, b""))
