"""LeaveGroup (13): members go, so that the others need not wait for their sessions to end.

Since version 3 it is a batch with an error for each member (KIP-345): an administrator removes
static members by their instance, which do not leave by themselves. Version 5 brings reasons, which
go into the log.

Any handler thread; holds no lock.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from kbroker.coordinator.group.messages import Leaver
from kbroker.errors import ErrorCode
from kbroker.handlers.reply import Reply
from kbroker.protocol.versions import is_flexible
from kbroker.protocol.wire import Reader, Writer
from kbroker.types import ApiKey

if TYPE_CHECKING:
    from kbroker.coordinator.group.messages import LeaveAnswer
    from kbroker.handlers.services import ColdRequest, Services

_SINCE_THROTTLE: Final = 1
_SINCE_BATCH: Final = 3
_SINCE_REASON: Final = 5


def decode(request: ColdRequest) -> tuple[str, list[Leaver]]:
    version = request.api_version
    reader = Reader(request.body, flexible=is_flexible(ApiKey.LEAVE_GROUP, version))
    group_id = reader.string()
    if version < _SINCE_BATCH:
        leavers = [Leaver(reader.string())]
    else:
        leavers = []
        for _ in range(reader.array()):
            member_id, instance_id = reader.string(), reader.nullable_string()
            reason = reader.nullable_string() if version >= _SINCE_REASON else None
            reader.tags()
            leavers.append(Leaver(member_id, instance_id, reason))
    reader.tags()
    return group_id, leavers


def handle(services: Services, request: ColdRequest) -> None:
    group_id, leavers = decode(request)
    version = request.api_version
    with Reply(request, failure) as reply:

        def answer(told: LeaveAnswer) -> None:
            code, codes = told
            if version < _SINCE_BATCH and codes:
                code = codes[0]
            reply.send(lambda: encode(version, code, list(zip(leavers, codes, strict=False))))

        services.groups.leave(group_id, leavers, answer)


def encode(version: int, code: ErrorCode, members: Sequence[tuple[Leaver, ErrorCode]]) -> bytes:
    out = Writer(flexible=is_flexible(ApiKey.LEAVE_GROUP, version))
    if version >= _SINCE_THROTTLE:
        out.int32(0)
    out.int16(code)
    if version >= _SINCE_BATCH:
        out.array(len(members))
        for leaver, error in members:
            out.string(leaver.member_id)
            out.string(leaver.instance_id)
            out.int16(error)
            out.tags()
    out.tags()
    return out.getvalue()


def failure(request: ColdRequest, code: ErrorCode, message: str) -> bytes:
    return encode(request.api_version, code, ())
