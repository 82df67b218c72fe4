"""`--add-scram 'SCRAM-SHA-256=[name=admin,password=secret]'`, as kafka-storage of Apache Kafka
writes it: a user that is there when the cluster begins.

Fields are name, password, iterations, and in place of the password salt and saltedpassword in
base64. Values may be in double quotes, and have to be where they have a comma or a bracket.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from kbroker.errors import UsageError

if TYPE_CHECKING:
    from kbroker.metadata.offline_users import FirstUser
    from kbroker.security.scram import ScramCredential, ScramMechanism

_ARGUMENT: Final = re.compile(r"([A-Z0-9-]+)=\[(.*)\]", re.DOTALL)
_FIELD: Final = re.compile(r'\s*([a-z]+)=(?:"([^"]*)"|([^",\]]*))\s*(?:,|$)')
_FIELDS: Final = frozenset({"name", "password", "iterations", "salt", "saltedpassword"})


def parse_add_scram(text: str) -> FirstUser:
    """UsageError: it is no such argument; the message has no password."""
    from kbroker.metadata.offline_users import FirstUser
    from kbroker.security.scram import ScramMechanism

    match = _ARGUMENT.fullmatch(text.strip())
    if match is None:
        raise _wrong("is no MECHANISM=[name=...,password=...]")
    mechanism = ScramMechanism.for_name(match[1])
    if mechanism is None:
        raise _wrong(f"names the mechanism {match[1]}: use SCRAM-SHA-256 or SCRAM-SHA-512")
    fields = _fields(match[2])
    name = fields.get("name")
    if not name:
        raise _wrong("has no name")
    return FirstUser(name, mechanism, _credential(mechanism, fields))


def _credential(mechanism: ScramMechanism, fields: Mapping[str, str]) -> ScramCredential:
    from kbroker.limits import SCRAM_ITERATIONS_MIN
    from kbroker.security.scram import credential_of_salted, new_credential

    digits = fields.get("iterations", str(SCRAM_ITERATIONS_MIN))
    if not (digits.isascii() and digits.isdecimal() and len(digits) < 7):
        raise _wrong("has iterations that are no number")
    iterations = int(digits)
    salt = _bytes(fields, "salt")
    salted_password = _bytes(fields, "saltedpassword")
    try:
        if salted_password is None:
            return new_credential(mechanism, fields.get("password", ""), iterations, salt)
        if salt is None or "password" in fields:
            raise _wrong("has a saltedpassword, which goes with salt and without password")
        new_credential(mechanism, "any", iterations, salt)  # its bounds are these too
    except ValueError as error:
        raise _wrong(f"cannot be used: {error}") from None
    return credential_of_salted(mechanism, salt, salted_password, iterations)


def _fields(text: str) -> dict[str, str]:
    fields: dict[str, str] = {}
    at = 0
    while at < len(text):
        match = _FIELD.match(text, at)
        if match is None or match[1] not in _FIELDS or match[1] in fields:
            known = ", ".join(sorted(_FIELDS))
            raise _wrong(f"has fields that are no name=value, once each, of {known}")
        fields[match[1]] = match[2] if match[2] is not None else match[3].strip()
        at = match.end()
    return fields


def _bytes(fields: Mapping[str, str], name: str) -> bytes | None:
    if name not in fields:
        return None
    try:
        return base64.b64decode(fields[name], validate=True)
    except (binascii.Error, ValueError):
        raise _wrong(f"has a {name} that is no base64") from None


def _wrong(how: str) -> UsageError:
    return UsageError(f"--add-scram {how}", "write 'SCRAM-SHA-256=[name=admin,password=secret]'")
