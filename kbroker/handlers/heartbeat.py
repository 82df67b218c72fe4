"""Heartbeat (12): a member is alive, and learns whether its generation still is.

What the compiled path cannot decide comes here; this is what the API means. Any handler thread;
holds no lock.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from kbroker.protocol.versions import is_flexible
from kbroker.protocol.wire import Reader, Writer
from kbroker.types import ApiKey

if TYPE_CHECKING:
    from kbroker.errors import ErrorCode
    from kbroker.handlers.services import ColdRequest, Services

_SINCE_THROTTLE: Final = 1
_SINCE_INSTANCE: Final = 3


class Asked(NamedTuple):
    group_id: str
    member_id: str
    instance_id: str | None
    generation: int


def decode(request: ColdRequest) -> Asked:
    version = request.api_version
    reader = Reader(request.body, flexible=is_flexible(ApiKey.HEARTBEAT, version))
    group_id = reader.string()
    generation = reader.int32()
    member_id = reader.string()
    instance_id = reader.nullable_string() if version >= _SINCE_INSTANCE else None
    reader.tags()
    return Asked(group_id, member_id, instance_id, generation)


def handle(services: Services, request: ColdRequest) -> None:
    code = services.groups.heartbeat(*decode(request))
    request.respond(encode(request.api_version, code))


def encode(version: int, code: ErrorCode) -> bytes:
    out = Writer(flexible=is_flexible(ApiKey.HEARTBEAT, version))
    if version >= _SINCE_THROTTLE:
        out.int32(0)
    out.int16(code)
    out.tags()
    return out.getvalue()


def failure(request: ColdRequest, code: ErrorCode, message: str) -> bytes:
    return encode(request.api_version, code)
