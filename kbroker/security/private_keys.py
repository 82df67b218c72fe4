"""Private keys that are made here, by the machine's libcrypto: EC keys on P-256.

Place in the flow: `kbroker secure init` and `kbroker.testing` make authorities and certificates
with them (`new_certificates.py`). Source: OpenSSL 3.0, EVP_PKEY_Q_keygen(3), EVP_DigestSign(3),
i2d_PUBKEY(3).

One thread at a time for each key.
"""

from __future__ import annotations

import ctypes
from functools import cache
from typing import Any, Final

from kbroker.security import libcrypto
from kbroker.security.libcrypto import BYTES, INT, POINTER

_CURVE: Final = b"P-256"
_SIGNATURE_BYTES_MAX: Final = 256
_FUNCTIONS: Final[libcrypto.Functions] = {
    "EVP_PKEY_Q_keygen": (POINTER, [POINTER, BYTES, ctypes.c_char_p]),
    "EVP_PKEY_free": (None, [POINTER]),
    "EVP_PKEY2PKCS8": (POINTER, [POINTER]),
    "PKCS8_PRIV_KEY_INFO_free": (None, [POINTER]),
    "i2d_PKCS8_PRIV_KEY_INFO": (INT, [POINTER, POINTER]),
    "i2d_PUBKEY": (INT, [POINTER, POINTER]),
    "EVP_sha256": (POINTER, []),
    "EVP_MD_CTX_new": (POINTER, []),
    "EVP_MD_CTX_free": (None, [POINTER]),
    "EVP_DigestSignInit": (INT, [POINTER, POINTER, POINTER, POINTER, POINTER]),
    "EVP_DigestSign": (
        INT,
        [POINTER, BYTES, POINTER, BYTES, ctypes.c_size_t],
    ),
}


class KeyFailed(Exception):
    """libcrypto did not make a key or a signature."""


@cache
def _library() -> ctypes.CDLL:
    return libcrypto.library(_FUNCTIONS, "makes keys")


class PrivateKey:
    """An EC key on P-256. ConfigError: the machine has no library for it."""

    __slots__ = ("_key",)

    def __init__(self) -> None:
        self._key = None
        # The curve is an argument of its own kind, after those that are declared.
        self._key = _library().EVP_PKEY_Q_keygen(None, None, b"EC", ctypes.c_char_p(_CURVE))
        if not self._key:
            raise KeyFailed("libcrypto made no key")

    def __del__(self) -> None:
        if self._key:
            _library().EVP_PKEY_free(self._key)

    def pkcs8(self) -> bytes:
        """The key itself, not encrypted, in DER."""
        library = _library()
        info = library.EVP_PKEY2PKCS8(self._key)
        if not info:
            raise KeyFailed("libcrypto does not write the key")
        try:
            return _written(library.i2d_PKCS8_PRIV_KEY_INFO, info)
        finally:
            library.PKCS8_PRIV_KEY_INFO_free(info)

    def public(self) -> bytes:
        """SubjectPublicKeyInfo in DER."""
        return _written(_library().i2d_PUBKEY, self._key)

    def sign(self, data: bytes) -> bytes:
        """ECDSA with SHA-256, in DER."""
        library = _library()
        context = library.EVP_MD_CTX_new()
        signature = ctypes.create_string_buffer(_SIGNATURE_BYTES_MAX)
        length = ctypes.c_size_t(_SIGNATURE_BYTES_MAX)
        try:
            if (
                library.EVP_DigestSignInit(context, None, library.EVP_sha256(), None, self._key)
                != 1
                or library.EVP_DigestSign(context, signature, ctypes.byref(length), data, len(data))
                != 1
            ):
                raise KeyFailed("libcrypto did not sign")
            return signature.raw[: length.value]
        finally:
            library.EVP_MD_CTX_free(context)


def _written(write: Any, thing: int | None) -> bytes:
    """What an i2d function writes."""
    length = write(thing, None)
    if length <= 0:
        raise KeyFailed("libcrypto does not write the key")
    data = ctypes.create_string_buffer(length)
    place = ctypes.c_void_p(ctypes.addressof(data))
    if write(thing, ctypes.byref(place)) != length:
        raise KeyFailed("libcrypto does not write the key")
    return data.raw[:length]
