"""Users and their SCRAM credentials, as our clients describe and alter them (KIP-554).

A password never leaves the client: what is sent is salted (`security/scram.py`).
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import NamedTuple

from kbroker.errors import ErrorCode, KafkaError
from kbroker.protocol import messages
from kbroker.protocol.wire import Reader
from kbroker.security.scram import SALT_BYTES, ScramMechanism


class UserScram(NamedTuple):
    """A user's iterations by mechanism."""

    name: str
    iterations: dict[str, int]


class NewPassword(NamedTuple):
    name: str
    mechanism: ScramMechanism
    password: str
    iterations: int

    def __repr__(self) -> str:
        return f"<NewPassword of {self.name!r}>"


class UserResult(NamedTuple):
    name: str
    error: ErrorCode
    message: str | None


def encode_describe_users(version: int, names: Sequence[str] | None) -> bytes:
    """None: all users."""
    table = messages.describe_user_scram_credentials
    users = None if names is None else [table.UserName(name=name) for name in names]
    return table.Request(users=users).encode(version)


def decode_describe_users(reader: Reader, version: int) -> list[UserScram]:
    table = messages.describe_user_scram_credentials
    answer = table.Response.decode(reader.raw(reader.left), version)
    if answer.error_code != ErrorCode.NONE:
        raise KafkaError(ErrorCode.for_code(answer.error_code), answer.error_message or "")
    found = []
    for each in answer.results:
        if each.error_code != ErrorCode.NONE:
            code = ErrorCode.for_code(each.error_code)
            raise KafkaError(code, f"{each.user}: {each.error_message or code.name}")
        infos = {_name_of(info.mechanism): info.iterations for info in each.credential_infos}
        found.append(UserScram(each.user, infos))
    return found


def encode_alter_users(
    version: int,
    passwords: Sequence[NewPassword],
    removed: Sequence[tuple[str, ScramMechanism]],
) -> bytes:
    table = messages.alter_user_scram_credentials
    deletions = [
        table.ScramCredentialDeletion(name=name, mechanism=mechanism.code)
        for name, mechanism in removed
    ]
    upsertions = []
    for each in passwords:
        salt = os.urandom(SALT_BYTES)
        upsertions.append(
            table.ScramCredentialUpsertion(
                name=each.name,
                mechanism=each.mechanism.code,
                iterations=each.iterations,
                salt=salt,
                salted_password=each.mechanism.salted(each.password, salt, each.iterations),
            )
        )
    return table.Request(deletions=deletions, upsertions=upsertions).encode(version)


def decode_alter_users(reader: Reader, version: int) -> list[UserResult]:
    answer = messages.alter_user_scram_credentials.Response.decode(reader.raw(reader.left), version)
    return [
        UserResult(each.user, ErrorCode.for_code(each.error_code), each.error_message)
        for each in answer.results
    ]


def _name_of(code: int) -> str:
    mechanism = ScramMechanism.for_code(code)
    return f"mechanism {code}" if mechanism is None else mechanism.value
