"""AlterUserScramCredentials (51): users get a password for SCRAM, or lose it.

A client sends the salted password, so that no broker knows the password itself.
"""

from __future__ import annotations

from kbroker.protocol.messages.table import (
    Message,
    Record,
    array,
    bytes_,
    int8,
    int16,
    int32,
    string,
)
from kbroker.types import ApiKey


class ScramCredentialDeletion(Record):
    name: str = string()
    mechanism: int = int8()


class ScramCredentialUpsertion(Record):
    name: str = string()
    mechanism: int = int8()
    iterations: int = int32()
    salt: bytes = bytes_()
    salted_password: bytes = bytes_()


class Request(Message, api=ApiKey.ALTER_USER_SCRAM_CREDENTIALS, versions=(0, 0)):
    deletions: list[ScramCredentialDeletion] = array(ScramCredentialDeletion)
    upsertions: list[ScramCredentialUpsertion] = array(ScramCredentialUpsertion)


class Result(Record):
    user: str = string()
    error_code: int = int16()
    error_message: str | None = string(null=0)


class Response(Message, api=ApiKey.ALTER_USER_SCRAM_CREDENTIALS, versions=(0, 0)):
    throttle_time_ms: int = int32(default=0)
    results: list[Result] = array(Result)
