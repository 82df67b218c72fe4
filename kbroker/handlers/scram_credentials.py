"""DescribeUserScramCredentials (50): the users who have a password for SCRAM. There are no users.

The list of all users is empty; a user who is named is RESOURCE_NOT_FOUND, and one who is named more
than once DUPLICATE_RESOURCE, as at Apache Kafka.

Any handler thread; holds no lock.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from kbroker.errors import ErrorCode
from kbroker.handlers.reply import told
from kbroker.protocol.wire import Reader, Writer

if TYPE_CHECKING:
    from kbroker.handlers.services import ColdRequest, Services


def decode(request: ColdRequest) -> Counter[str]:
    """The users who are named, and how often."""
    reader = Reader(request.body, flexible=True)
    users: Counter[str] = Counter()
    for _ in range(reader.nullable_array() or 0):
        users[reader.string()] += 1
        reader.tags()
    reader.tags()
    return users


def handle(services: Services, request: ColdRequest) -> None:
    users = decode(request)
    out = _begin(ErrorCode.NONE, "")
    out.array(len(users))
    not_found = _result(ErrorCode.RESOURCE_NOT_FOUND, "the user has no SCRAM credentials")
    twice = _result(ErrorCode.DUPLICATE_RESOURCE, "the user is named more than once")
    for user, times in users.items():
        out.string(user)
        out.raw(not_found if times == 1 else twice)
    out.tags()
    request.respond(out.getvalue())


def _result(code: ErrorCode, message: str) -> bytes:
    """A user's answer without the name."""
    out = Writer(flexible=True)
    out.int16(code)
    out.string(message)
    out.array(0)  # credentials
    out.tags()
    return out.getvalue()


def _begin(code: ErrorCode, message: str) -> Writer:
    out = Writer(flexible=True)
    out.int32(0)  # throttle time
    out.int16(code)
    out.string(told(message))
    return out


def failure(request: ColdRequest, code: ErrorCode, message: str) -> bytes:
    out = _begin(code, message)
    out.array(0)
    out.tags()
    return out.getvalue()
