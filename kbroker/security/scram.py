"""What SCRAM (RFC 5802, RFC 7677) stores of a password, and how a login follows from it.

    SaltedPassword = PBKDF2(password, salt, iterations)
    ClientKey      = HMAC(SaltedPassword, "Client Key")     StoredKey = H(ClientKey)
    ServerKey      = HMAC(SaltedPassword, "Server Key")
    proof          = ClientKey XOR HMAC(StoredKey, AuthMessage)
    signature      = HMAC(ServerKey, AuthMessage)

The stored form is Apache Kafka's text `salt=...,stored_key=...,server_key=...,iterations=n`, the
first three in base64. It lets the broker check a proof, but it does not let its reader log in.

A name that is not there has a credential too (`fake_credential.py`): it looks the same to a client
each time, and no proof fits it, so that a client does not learn which names there are.

Passwords are UTF-8 and are not normalised, as in Apache Kafka (no SASLprep).
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import os
from enum import Enum
from typing import Final, NamedTuple

from kbroker.limits import (
    SCRAM_FIELD_BYTES_MAX,
    SCRAM_ITERATIONS_MAX,
    SCRAM_ITERATIONS_MIN,
)

SALT_BYTES: Final = 20
_FIELDS: Final = frozenset({"salt", "stored_key", "server_key", "iterations"})


class ScramMechanism(Enum):
    """By the names of SASL; `code` is the number in Kafka's APIs."""

    SHA_256 = "SCRAM-SHA-256"
    SHA_512 = "SCRAM-SHA-512"

    @property
    def code(self) -> int:
        return _CODES[self]

    @property
    def hash_name(self) -> str:
        return _HASHES[self]

    @property
    def key_bytes(self) -> int:
        return hashlib.new(self.hash_name).digest_size

    @classmethod
    def for_code(cls, code: int) -> ScramMechanism | None:
        return next((each for each, number in _CODES.items() if number == code), None)

    @classmethod
    def for_name(cls, name: str) -> ScramMechanism | None:
        return next((each for each in cls if each.value == name), None)

    def digest(self, data: bytes) -> bytes:
        return hashlib.new(self.hash_name, data).digest()

    def hmac(self, key: bytes, data: bytes) -> bytes:
        return hmac.digest(key, data, self.hash_name)

    def salted(self, password: str, salt: bytes, iterations: int) -> bytes:
        """Takes 1 to 9 ms, so the broker does not do it for a login of a user."""
        data = password.encode(errors="replace")  # half a surrogate pair is "?", as in Java
        return hashlib.pbkdf2_hmac(self.hash_name, data, salt, iterations)

    def client_key(self, salted_password: bytes) -> bytes:
        return self.hmac(salted_password, b"Client Key")

    def server_key(self, salted_password: bytes) -> bytes:
        return self.hmac(salted_password, b"Server Key")


_CODES: Final = {ScramMechanism.SHA_256: 1, ScramMechanism.SHA_512: 2}
_HASHES: Final = {ScramMechanism.SHA_256: "sha256", ScramMechanism.SHA_512: "sha512"}
SCRAM_MECHANISMS: Final = tuple(each.value for each in ScramMechanism)


class ScramCredential(NamedTuple):
    salt: bytes
    stored_key: bytes
    server_key: bytes
    iterations: int

    def __str__(self) -> str:
        """The stored form."""
        return (
            f"salt={_base64(self.salt)},stored_key={_base64(self.stored_key)},"
            f"server_key={_base64(self.server_key)},iterations={self.iterations}"
        )


def credential_of_salted(
    mechanism: ScramMechanism, salt: bytes, salted_password: bytes, iterations: int
) -> ScramCredential:
    stored_key = mechanism.digest(mechanism.client_key(salted_password))
    server_key = mechanism.server_key(salted_password)
    return ScramCredential(salt, stored_key, server_key, iterations)


def new_credential(
    mechanism: ScramMechanism,
    password: str,
    iterations: int = SCRAM_ITERATIONS_MIN,
    salt: bytes | None = None,
) -> ScramCredential:
    """ValueError: iterations or the salt's length out of bounds, or an empty password."""
    if not SCRAM_ITERATIONS_MIN <= iterations <= SCRAM_ITERATIONS_MAX:
        bounds = f"{SCRAM_ITERATIONS_MIN} to {SCRAM_ITERATIONS_MAX}"
        raise ValueError(f"{iterations} iterations are not {bounds}")
    if not password:
        raise ValueError("the password is empty")
    salt = os.urandom(SALT_BYTES) if salt is None else salt
    if not 0 < len(salt) <= SCRAM_FIELD_BYTES_MAX:
        raise ValueError(f"a salt of {len(salt)} bytes has not 1 to {SCRAM_FIELD_BYTES_MAX}")
    salted_password = mechanism.salted(password, salt, iterations)
    return credential_of_salted(mechanism, salt, salted_password, iterations)


def parse_credential(mechanism: ScramMechanism, text: str) -> ScramCredential:
    """Of the stored form; its fields may come in any order. ValueError: it is none."""
    pairs = [part.partition("=")[::2] for part in text.split(",")]
    fields = dict(pairs)
    if len(pairs) != len(_FIELDS) or fields.keys() != _FIELDS:
        raise ValueError("a stored SCRAM credential has salt, stored_key, server_key, iterations")
    salt, stored_key, server_key = (
        _bytes_of(name, fields[name]) for name in ("salt", "stored_key", "server_key")
    )
    digits = fields["iterations"]
    if not (digits.isascii() and digits.isdecimal() and 0 < len(digits) < 10):
        raise ValueError("a stored SCRAM credential whose iterations are no number")
    if not len(stored_key) == len(server_key) == mechanism.key_bytes:
        raise ValueError(f"a stored SCRAM credential whose keys are not {mechanism.value}'s")
    return ScramCredential(salt, stored_key, server_key, int(digits))


def is_proof(
    mechanism: ScramMechanism, credential: ScramCredential, message: bytes, proof: bytes
) -> bool:
    if len(proof) != mechanism.key_bytes:
        return False
    client_key = xor(proof, mechanism.hmac(credential.stored_key, message))
    return hmac.compare_digest(mechanism.digest(client_key), credential.stored_key)


def xor(one: bytes, other: bytes) -> bytes:
    """Of two that are equally long."""
    return bytes(left ^ right for left, right in zip(one, other, strict=True))


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")


def _bytes_of(name: str, text: str) -> bytes:
    if len(text) > SCRAM_FIELD_BYTES_MAX * 2:
        raise ValueError(f"the {name} of a stored SCRAM credential is too long")
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise ValueError(f"the {name} of a stored SCRAM credential is no base64") from None
