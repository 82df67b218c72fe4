"""FindCoordinator (10): which broker looks after a group or a transactional id.

This broker has no coordinators yet. For a group (and a share group) the answer is
COORDINATOR_NOT_AVAILABLE, which says "later" and which every client retries. For a transactional id
"later" would be a lie that a producer believes for a minute before it gives up without a reason, so
it is TRANSACTIONAL_ID_AUTHORIZATION_FAILED with a message: the one code that both the Java client
and librdkafka take as final here; either retries or ignores the others.

Up to v3 a request asks for one key, from v4 for several, each with its own error.
Any handler thread; holds no lock; does not import the schema library.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from kbroker.errors import ErrorCode
from kbroker.protocol.versions import is_flexible
from kbroker.protocol.wire import Reader, Writer
from kbroker.types import ApiKey

if TYPE_CHECKING:
    from kbroker.handlers.services import Request, Services

GROUP: Final = 0
TRANSACTION: Final = 1
SHARE: Final = 2

NO_TRANSACTIONS: Final = "this broker does not serve transactions"

_SINCE_KEY_TYPE: Final = 1
_SINCE_MESSAGE: Final = 1
_SINCE_BATCH: Final = 4
_SINCE_SHARE: Final = 6

# A topic id is 16 bytes in URL-safe Base64, without its padding.
_SHARE_KEY: Final = re.compile(r"[^:]+:[A-Za-z0-9_-]{22}:-?[0-9]{1,10}", re.ASCII)

Answer = tuple[ErrorCode, str]


class Asked(NamedTuple):
    key_type: int
    keys: list[str]


def decode(request: Request) -> Asked:
    version = request.api_version
    reader = Reader(request.body, flexible=is_flexible(ApiKey.FIND_COORDINATOR, version))
    key_type = GROUP
    if version >= _SINCE_BATCH:
        key_type = reader.int8()
        keys = [reader.string() for _ in range(reader.array())]
    else:
        keys = [reader.string()]
        if version >= _SINCE_KEY_TYPE:
            key_type = reader.int8()
    reader.tags()
    return Asked(key_type, keys)


def handle(services: Services, request: Request) -> None:
    asked = decode(request)
    version = request.api_version
    answers = [_answer(asked.key_type, key, version) for key in asked.keys]
    request.respond(encode(version, asked.keys, answers))


def _answer(key_type: int, key: str, version: int) -> Answer:
    if key_type == TRANSACTION:
        return ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, NO_TRANSACTIONS
    if key_type == GROUP or (key_type == SHARE and version >= _SINCE_SHARE and _is_share_key(key)):
        return ErrorCode.COORDINATOR_NOT_AVAILABLE, "the group coordinator is not available"
    if key_type == SHARE and version >= _SINCE_BATCH:
        return ErrorCode.INVALID_REQUEST, ""
    return ErrorCode.INVALID_REQUEST, f"{key_type} is no type of coordinator in this version"


def _is_share_key(key: str) -> bool:
    """Whether it is a share group's share of a partition: `group:topic id:partition`."""
    return _SHARE_KEY.fullmatch(key) is not None


def encode(version: int, keys: list[str], answers: Sequence[Answer]) -> bytes:
    """The answer in which every key has its error and so no coordinator."""
    out = Writer(flexible=is_flexible(ApiKey.FIND_COORDINATOR, version))
    if version >= _SINCE_MESSAGE:
        out.int32(0)  # throttle time
    if version >= _SINCE_BATCH:
        out.array(len(keys))
        for key, (code, message) in zip(keys, answers, strict=True):
            out.string(key)
            _nobody(out)
            out.int16(code)
            out.string(message)
            out.tags()
    else:
        ((code, message),) = answers
        out.int16(code)
        if version >= _SINCE_MESSAGE:
            out.string(message)
        _nobody(out)
    out.tags()
    return out.getvalue()


def _nobody(out: Writer) -> None:
    out.int32(-1)
    out.string("")
    out.int32(-1)


def failure(request: Request, code: ErrorCode, message: str) -> bytes:
    keys = decode(request).keys
    return encode(request.api_version, keys, [(code, message)] * len(keys))
