"""JoinGroup (11): a member comes into its group, or back to it for the next generation.

The answer comes when everybody has joined, from whichever thread completes that; until then the
request waits with the group. Versions 0 to 9 differ in what they can say: a rebalance timeout (1),
the id first (4, KIP-394), static members (5, KIP-345), the protocol's type (7), a reason (8), and
that the leader need not assign (9).

Any handler thread; holds no lock.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

from kbroker.coordinator.group.messages import JoinAnswer, JoinAsked
from kbroker.errors import ErrorCode
from kbroker.handlers.reply import Reply
from kbroker.protocol.versions import is_flexible
from kbroker.protocol.wire import Reader, Writer
from kbroker.types import ApiKey

if TYPE_CHECKING:
    from kbroker.handlers.services import ColdRequest, Services

_SINCE_REBALANCE_TIMEOUT: Final = 1
_SINCE_THROTTLE: Final = 2
_SINCE_ID_FIRST: Final = 4
_SINCE_INSTANCE: Final = 5
_SINCE_TYPE: Final = 7
_SINCE_REASON: Final = 8
_SINCE_SKIP: Final = 9


def decode(request: ColdRequest) -> JoinAsked:
    version = request.api_version
    reader = Reader(request.body, flexible=is_flexible(ApiKey.JOIN_GROUP, version))
    group_id = reader.string()
    session_ms = rebalance_ms = reader.int32()
    if version >= _SINCE_REBALANCE_TIMEOUT:
        rebalance_ms = reader.int32()
    member_id = reader.string()
    instance_id = reader.nullable_string() if version >= _SINCE_INSTANCE else None
    protocol_type = reader.string()
    protocols: dict[str, bytes] = {}
    for _ in range(reader.array()):
        name, metadata = reader.string(), reader.required_bytes()
        reader.tags()
        protocols.setdefault(name, metadata)
    if version >= _SINCE_REASON:
        reader.nullable_string()
    reader.tags()
    return JoinAsked(
        group_id, member_id, instance_id, request.client_id or "", f"/{request.peer_host}",
        protocol_type, tuple(protocols.items()), session_ms, rebalance_ms,
        needs_id=version >= _SINCE_ID_FIRST, may_skip=version >= _SINCE_SKIP,
    )  # fmt: skip


def handle(services: Services, request: ColdRequest) -> None:
    asked = decode(request)
    with JoinReply(request, failure) as reply:
        services.groups.join(asked, reply.answer)


class JoinReply(Reply):
    """Of a member that waits: its method is all that the group holds of the request."""

    __slots__ = ()

    def answer(self, answer: JoinAnswer) -> None:
        self.send(partial(encode, self.request.api_version, answer))


def encode(version: int, answer: JoinAnswer) -> bytes:
    out = Writer(flexible=is_flexible(ApiKey.JOIN_GROUP, version))
    if version >= _SINCE_THROTTLE:
        out.int32(0)
    out.int16(answer.code)
    out.int32(answer.generation)
    if version >= _SINCE_TYPE:
        out.string(answer.protocol_type)
        out.string(answer.protocol or None)
    else:
        out.string(answer.protocol or "")
    out.string(answer.leader)
    if version >= _SINCE_SKIP:
        out.boolean(answer.skip_assignment)
    out.string(answer.member_id)
    out.array(len(answer.members))
    for member in answer.members:
        out.string(member.member_id)
        if version >= _SINCE_INSTANCE:
            out.string(member.instance_id)
        out.bytes(member.subscription)
        out.tags()
    out.tags()
    return out.getvalue()


def failure(request: ColdRequest, code: ErrorCode, message: str) -> bytes:
    member_id = "" if code is ErrorCode.UNKNOWN_SERVER_ERROR else decode(request).member_id
    return encode(request.api_version, JoinAnswer(code, member_id))
