"""A password as it is stored: encrypted, in the text that Apache Kafka 3.9 has for it.

Place in the flow: settings of brokers that are passwords and are made at run time, on their way
into the metadata store and back (`server/sealed_settings.py`). Format: `name:value` parts with
commas between them, binary values in base64. The key is PBKDF2 of `password.encoder.secret`
(RFC 8018), the cipher AES in CBC mode with PKCS #7 padding. Who can write the store can exchange
one sealed text for another: the cipher hides a password and does not sign it.

The salt is of the process, the initialization vector of each text: so a key is derived once.
Any thread.
"""

from __future__ import annotations

import base64
import binascii
import ctypes
import secrets
from functools import cache, lru_cache
from typing import Final

from kbroker.security import libcrypto
from kbroker.security.libcrypto import BYTES, INT, POINTER

PASSWORD_BYTES_MAX: Final = 24_000  # its text is 32,383 bytes then, of 32,767 of a value
TEXT_BYTES_MAX: Final = 1 << 20  # of a text that another wrote
ITERATIONS: Final = 4_096
ITERATIONS_MAX: Final = 100_000  # of a text that another wrote: 60 ms
_KEY_BITS: Final = 128
_BLOCK_BYTES: Final = 16
_SALT_BYTES: Final = 32
_SALT_BYTES_MAX: Final = 1_024
_KEYS_MAX: Final = 64
_HASHES: Final = {"PBKDF2WithHmacSHA512": "sha512", "PBKDF2WithHmacSHA256": "sha256",
                  "PBKDF2WithHmacSHA1": "sha1"}  # fmt: skip
_CIPHER: Final = "AES/CBC/PKCS5Padding"
_DERIVATION, _CIPHER_NAME, _VECTOR, _BITS = (
    "keyFactoryAlgorithm", "cipherAlgorithm", "initializationVector", "keyLength"
)  # fmt: skip
_SALT, _ITERATIONS, _ENCRYPTED, _CHARS = "salt", "iterations", "encryptedPassword", "passwordLength"
_PARTS: Final = frozenset(
    (_DERIVATION, _CIPHER_NAME, _BITS, _SALT, _ITERATIONS, _ENCRYPTED, _CHARS)
)
_FUNCTIONS: Final[libcrypto.Functions] = {
    "EVP_CIPHER_CTX_new": (POINTER, []),
    "EVP_CIPHER_CTX_free": (None, [POINTER]),
    "EVP_aes_128_cbc": (POINTER, []),
    "EVP_aes_192_cbc": (POINTER, []),
    "EVP_aes_256_cbc": (POINTER, []),
    "EVP_CipherInit_ex": (INT, [POINTER, POINTER, POINTER, BYTES, BYTES, INT]),
    "EVP_CipherUpdate": (INT, [POINTER, POINTER, POINTER, BYTES, INT]),
    "EVP_CipherFinal_ex": (INT, [POINTER, POINTER, POINTER]),
}


class NotOpened(Exception):
    """Why a sealed text cannot be read; the message has nothing of it."""


def is_sealed(text: str) -> bool:
    return _parts(text).keys() >= _PARTS


def seal(secret: str, text: str) -> str:
    """ConfigError: the machine has no libcrypto. ValueError: `text` is too long."""
    data = text.encode()
    if len(data) > PASSWORD_BYTES_MAX:
        raise ValueError(
            f"a password has at most {PASSWORD_BYTES_MAX} bytes, since its encrypted text is longer"
        )
    salt, vector = _own_salt(), secrets.token_bytes(_BLOCK_BYTES)
    key = _key(secret, "sha512", salt, ITERATIONS, _KEY_BITS)
    parts = {
        _DERIVATION: "PBKDF2WithHmacSHA512",
        _CIPHER_NAME: _CIPHER,
        _BITS: str(_KEY_BITS),
        _SALT: _text(salt),
        _ITERATIONS: str(ITERATIONS),
        _ENCRYPTED: _text(_crypt(key, vector, data, encrypts=True)),
        _CHARS: str(_java_chars(text)),
        _VECTOR: _text(vector),
    }
    return ",".join(f"{name}:{value}" for name, value in parts.items())


def opened(secret: str, sealed: str) -> str:
    """The password; NotOpened. ConfigError: the machine has no libcrypto."""
    parts = _parts(sealed)
    missing = sorted({*_PARTS, _VECTOR} - parts.keys())
    if missing:
        raise NotOpened(f"it has no {missing[0]}")
    derivation = _HASHES.get(parts[_DERIVATION])
    bits, iterations = _number(parts[_BITS]), _number(parts[_ITERATIONS])
    if derivation is None or parts[_CIPHER_NAME] != _CIPHER or bits not in (128, 192, 256):
        raise NotOpened(f"only {_CIPHER} with 128, 192 or 256 bits and PBKDF2 is read here")
    if not 0 < iterations <= ITERATIONS_MAX:
        raise NotOpened(f"it has not 1 to {ITERATIONS_MAX} iterations")
    salt, vector, data = (_bytes(parts[name]) for name in (_SALT, _VECTOR, _ENCRYPTED))
    if not 0 < len(salt) <= _SALT_BYTES_MAX or len(vector) != _BLOCK_BYTES:
        raise NotOpened("its salt or its initialization vector has a wrong length")
    key = _key(secret, derivation, salt, iterations, bits)
    try:
        text = _crypt(key, vector, data, encrypts=False).decode()
    except UnicodeDecodeError:
        text = None
    if text is None or _java_chars(text) != _number(parts[_CHARS]):
        raise NotOpened("it was encrypted with another password.encoder.secret")
    return text


def _parts(text: str) -> dict[str, str]:
    if len(text) > 2 * TEXT_BYTES_MAX or not text.isascii():
        return {}
    halves = (part.partition(":") for part in text.split(",", len(_PARTS) + 8))
    return {name: value for name, _, value in halves}


def _number(text: str) -> int:
    return int(text) if text.isdecimal() and len(text) < 10 else -1


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _bytes(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error:
        raise NotOpened("it has a part that is not base64") from None


def _java_chars(text: str) -> int:
    """As Java counts: a character outside of the basic plane has two."""
    return len(text) + sum(each > "\uffff" for each in text)


@cache
def _own_salt() -> bytes:
    return secrets.token_bytes(_SALT_BYTES)


@lru_cache(maxsize=_KEYS_MAX)
def _key(secret: str, derivation: str, salt: bytes, iterations: int, bits: int) -> bytes:
    from hashlib import pbkdf2_hmac  # its libcrypto is not for a broker without passwords

    # Python decodes the environment so, where it is not UTF-8.
    data = secret.encode(errors="surrogateescape")
    return pbkdf2_hmac(derivation, data, salt, iterations, bits // 8)


@cache
def _library() -> ctypes.CDLL:
    return libcrypto.library(_FUNCTIONS, "encrypts passwords")


def _crypt(key: bytes, vector: bytes, data: bytes, *, encrypts: bool) -> bytes:
    library = _library()
    cipher = getattr(library, f"EVP_aes_{8 * len(key)}_cbc")()
    room = ctypes.create_string_buffer(len(data) + _BLOCK_BYTES)
    length, rest = ctypes.c_int(0), ctypes.c_int(0)
    context = library.EVP_CIPHER_CTX_new()
    if not context:
        raise NotOpened("there is no memory to encrypt or decrypt it")
    try:
        if (
            library.EVP_CipherInit_ex(context, cipher, None, key, vector, int(encrypts)) != 1
            or library.EVP_CipherUpdate(context, room, ctypes.byref(length), data, len(data)) != 1
        ):
            raise NotOpened("libcrypto did not encrypt or decrypt it")
        end = ctypes.byref(room, length.value)
        if library.EVP_CipherFinal_ex(context, end, ctypes.byref(rest)) != 1:
            raise NotOpened("it was encrypted with another password.encoder.secret")
    finally:
        library.EVP_CIPHER_CTX_free(context)
    return room.raw[: length.value + rest.value]
