"""The four messages of a SCRAM login as text (RFC 5802, section 7).

    client-first   n,,n=user,r=client nonce[,extension=value]
    server-first   r=client nonce and server nonce,s=salt,i=iterations
    client-final   c=gs2 header,r=both nonces[,extension=value],p=proof
    server-final   v=signature    or    e=error

As in Apache Kafka there is no channel binding: the header is `n,,` or `n,a=user,`. A reserved
extension `m=` fails a login, as the RFC demands; other extensions are kept, and only `tokenauth`
means something. Values are UTF-8 without NUL; in names `=2C` is a comma and `=3D` an equals sign.

Every parser takes bytes from a socket: `ScramMessageError` for all that is no such message.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Mapping
from typing import Final, NamedTuple

from kbroker.limits import (
    SCRAM_EXTENSIONS_MAX,
    SCRAM_FIELD_BYTES_MAX,
    SCRAM_MESSAGE_BYTES_MAX,
    USER_NAME_BYTES_MAX,
)

# Of one value; a nonce is not longer than this either.
_NONCE: Final = re.compile(r"[\x21-\x2b\x2d-\x7e]+")
_EXTENSION: Final = re.compile(r"([A-Za-z]+)=([^,]*)", re.ASCII)
_TEN_DIGITS: Final = re.compile(r"[1-9][0-9]{0,9}", re.ASCII)


class ScramMessageError(Exception):
    """These bytes are no such message."""


class ClientFirst(NamedTuple):
    gs2_header: str
    authorization_id: str
    name: str
    nonce: str
    extensions: Mapping[str, str]
    bare: str  # all of it after the header


class ServerFirst(NamedTuple):
    nonce: str
    salt: bytes
    iterations: int


class ClientFinal(NamedTuple):
    channel_binding: bytes
    nonce: str
    proof: bytes
    without_proof: str


def parse_client_first(data: bytes) -> ClientFirst:
    text = _text(data)
    flag, comma, rest = text.partition(",")
    if flag != "n" or not comma:
        raise ScramMessageError("channel binding is not offered: a message begins with n")
    authorization, comma, bare = rest.partition(",")
    if not comma:
        raise ScramMessageError("a message without a name")
    authorization_id = ""
    if authorization:
        if not authorization.startswith("a="):
            raise ScramMessageError("an authorization id begins with a=")
        authorization_id = decode_name(authorization[2:])
    parts = bare.split(",", 2)
    if len(parts) < 2 or not parts[0].startswith("n=") or not parts[1].startswith("r="):
        raise ScramMessageError("a first message has n= and r=, in this order")
    extensions = _extensions(parts[2]) if len(parts) > 2 else {}
    header = text[: len(text) - len(bare)]
    name = decode_name(parts[0][2:])
    return ClientFirst(header, authorization_id, name, _nonce(parts[1]), extensions, bare)


def parse_client_final(data: bytes) -> ClientFinal:
    text = _text(data)
    without_proof, found, proof = text.rpartition(",p=")
    parts = without_proof.split(",", 2)
    if not found or len(parts) < 2 or not parts[0].startswith("c="):
        raise ScramMessageError("a final message has c=, r= and p=, in this order")
    nonce = _nonce(parts[1])
    if len(parts) > 2:
        _extensions(parts[2])
    return ClientFinal(_base64("c", parts[0][2:]), nonce, _base64("p", proof), without_proof)


def parse_server_first(data: bytes) -> ServerFirst:
    parts = _text(data).split(",", 3)
    if len(parts) < 3 or not parts[1].startswith("s=") or not parts[2].startswith("i="):
        raise ScramMessageError("a server's first message has r=, s= and i=, in this order")
    if len(parts) > 3:
        _extensions(parts[3])
    if _TEN_DIGITS.fullmatch(parts[2][2:]) is None:
        raise ScramMessageError("iterations that are no number")
    return ServerFirst(_nonce(parts[0]), _base64("s", parts[1][2:]), int(parts[2][2:]))


def parse_server_final(data: bytes) -> bytes:
    """The signature. ScramMessageError for an error that the server sends, too."""
    first = _text(data).split(",", 1)[0]
    if first.startswith("e="):
        raise ScramMessageError(f"the server refuses: {first[2:]}")
    if not first.startswith("v="):
        raise ScramMessageError("a server's last message has v= or e=")
    return _base64("v", first[2:])


def encode_base64(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")


def encode_name(name: str) -> str:
    return name.replace("=", "=3D").replace(",", "=2C")


def decode_name(text: str) -> str:
    if not text:
        raise ScramMessageError("a name that is empty")
    if len(text.encode()) > USER_NAME_BYTES_MAX:
        raise ScramMessageError("a name that is too long")
    name = text.replace("=2C", ",").replace("=3D", "\0")  # no text has a NUL
    if "=" in name:
        raise ScramMessageError("a name in which = is not followed by 2C or 3D")
    return name.replace("\0", "=")


def _text(data: bytes) -> str:
    if len(data) > SCRAM_MESSAGE_BYTES_MAX:
        raise ScramMessageError(f"a message of {len(data)} bytes")
    try:
        text = data.decode()
    except UnicodeDecodeError:
        raise ScramMessageError("a message that is not UTF-8") from None
    if "\0" in text:
        raise ScramMessageError("a message with a NUL")
    return text


def _nonce(part: str) -> str:
    nonce = part[2:]
    if not part.startswith("r=") or _NONCE.fullmatch(nonce) is None:
        raise ScramMessageError("r= is not followed by printable characters")
    if len(nonce) > SCRAM_FIELD_BYTES_MAX:
        raise ScramMessageError(f"a nonce of {len(nonce)} characters")
    return nonce


def _base64(name: str, text: str) -> bytes:
    if not text or len(text) > SCRAM_FIELD_BYTES_MAX * 2:
        raise ScramMessageError(f"{name}= is empty or too long")
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise ScramMessageError(f"{name}= is no base64") from None


def _extensions(text: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for part in text.split(",", SCRAM_EXTENSIONS_MAX):
        match = _EXTENSION.fullmatch(part)
        if match is None or match[1] in found:
            raise ScramMessageError("an extension is one name=value, once, and they are few")
        if match[1] == "m":
            raise ScramMessageError("m= is an extension that is not known here")
        found[match[1]] = match[2]
    return found
