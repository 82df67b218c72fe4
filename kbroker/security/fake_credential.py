"""The SCRAM credential of a name that is not there: nothing about it says that it is none.

It is made of the name and of a secret of the cluster, so it is the same each time and at each
broker, and no proof fits it. Clients see the salt and the iterations of a credential. The form of a
salt comes from the program that made it: Apache Kafka's tools take a number of 130 bits in base 36,
librdkafka 64 random bytes, kbroker 20. So a fake one has the form and the iterations that most
users have (`metadata/users.py`).

Pure functions; any thread.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from typing import Final

from kbroker.security.scram import SALT_BYTES, ScramCredential, ScramMechanism

# The form of a salt: its length in bytes, or this one.
JAVA_TEXT: Final = -1
_JAVA_TEXT: Final = re.compile(rb"[0-9a-z]{20,26}")
_JAVA_BITS: Final = 130
_DIGITS: Final = b"0123456789abcdefghijklmnopqrstuvwxyz"


def salt_form(salt: bytes) -> int:
    return JAVA_TEXT if _JAVA_TEXT.fullmatch(salt) else len(salt)


def fake_credential(
    mechanism: ScramMechanism,
    secret: bytes,
    name: str,
    iterations: int,
    form: int = SALT_BYTES,
) -> ScramCredential:
    """Of a name that is not there: the same each time, as long as the secret is."""
    key = hmac.digest(secret, name.encode(), "sha512")
    return ScramCredential(
        _salt(key, form),
        mechanism.hmac(key, b"stored key"),
        mechanism.hmac(key, b"server key"),
        iterations,
    )


def _salt(key: bytes, form: int) -> bytes:
    if form != JAVA_TEXT:
        return _bytes(key, form)
    size = -(-_JAVA_BITS // 8)
    number = int.from_bytes(_bytes(key, size), "big") >> (8 * size - _JAVA_BITS)
    digits = bytearray()
    while number or not digits:
        number, digit = divmod(number, len(_DIGITS))
        digits.append(_DIGITS[digit])
    return bytes(reversed(digits))


def _bytes(key: bytes, size: int) -> bytes:
    return hashlib.shake_256(key + b"salt").digest(size)
