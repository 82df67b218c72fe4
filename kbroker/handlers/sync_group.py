"""SyncGroup (14): the leader brings the assignment, everybody is told its own part.

A follower's answer comes with the leader's sync, from the thread that finds the assignment in the
log. Versions 3 know static members, 5 check the protocol's type and name (KIP-559).

Any handler thread; holds no lock.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

from kbroker.coordinator.group.messages import SyncAnswer, SyncAsked
from kbroker.errors import ErrorCode
from kbroker.handlers.reply import Reply
from kbroker.protocol.versions import is_flexible
from kbroker.protocol.wire import Reader, Writer
from kbroker.types import ApiKey

if TYPE_CHECKING:
    from kbroker.handlers.services import ColdRequest, Services

_SINCE_THROTTLE: Final = 1
_SINCE_INSTANCE: Final = 3
_SINCE_PROTOCOL: Final = 5


def decode(request: ColdRequest) -> SyncAsked:
    version = request.api_version
    reader = Reader(request.body, flexible=is_flexible(ApiKey.SYNC_GROUP, version))
    group_id = reader.string()
    generation = reader.int32()
    member_id = reader.string()
    instance_id = reader.nullable_string() if version >= _SINCE_INSTANCE else None
    protocol_type = protocol = None
    if version >= _SINCE_PROTOCOL:
        protocol_type, protocol = reader.nullable_string(), reader.nullable_string()
    assignments = []
    for _ in range(reader.array()):
        assignments.append((reader.string(), reader.required_bytes()))
        reader.tags()
    reader.tags()
    return SyncAsked(
        group_id, member_id, instance_id, generation, protocol_type, protocol, tuple(assignments)
    )


def handle(services: Services, request: ColdRequest) -> None:
    asked = decode(request)
    with SyncReply(request, failure) as reply:
        if request.api_version >= _SINCE_PROTOCOL and None in (asked.protocol_type, asked.protocol):
            reply.fail(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
            return
        services.groups.sync(asked, reply.answer)


class SyncReply(Reply):
    """Of a member that waits: its method is all that the group holds of the request."""

    __slots__ = ()

    def answer(self, answer: SyncAnswer) -> None:
        self.send(partial(encode, self.request.api_version, answer))


def encode(version: int, answer: SyncAnswer) -> bytes:
    out = Writer(flexible=is_flexible(ApiKey.SYNC_GROUP, version))
    if version >= _SINCE_THROTTLE:
        out.int32(0)
    out.int16(answer.code)
    if version >= _SINCE_PROTOCOL:
        out.string(answer.protocol_type)
        out.string(answer.protocol)
    out.bytes(answer.assignment)
    out.tags()
    return out.getvalue()


def failure(request: ColdRequest, code: ErrorCode, message: str) -> bytes:
    return encode(request.api_version, SyncAnswer(code))
