"""ListGroups (16): the groups of this broker, all or those in some states and of some types.

States (version 4, KIP-518) and types (version 5, KIP-848) are compared without regard to case;
a word that means nothing matches nothing. Every group here is of the type "classic".

Any handler thread; takes each group's lock for a moment.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from kbroker.coordinator.group.messages import GroupListing
from kbroker.errors import ErrorCode
from kbroker.protocol.versions import is_flexible
from kbroker.protocol.wire import Reader, Writer
from kbroker.types import ApiKey

if TYPE_CHECKING:
    from kbroker.handlers.services import ColdRequest, Services

_SINCE_THROTTLE: Final = 1
_SINCE_STATES: Final = 4
_SINCE_TYPES: Final = 5
CLASSIC: Final = "classic"


def decode(request: ColdRequest) -> tuple[set[str], set[str]]:
    """The states and types wanted, in lower case; none: all."""
    version = request.api_version
    reader = Reader(request.body, flexible=is_flexible(ApiKey.LIST_GROUPS, version))
    states: set[str] = set()
    types: set[str] = set()
    if version >= _SINCE_STATES:
        states = {reader.string().strip().lower() for _ in range(reader.array())}
    if version >= _SINCE_TYPES:
        types = {reader.string().lower() for _ in range(reader.array())}
    reader.tags()
    return states, types


def handle(services: Services, request: ColdRequest) -> None:
    states, types = decode(request)
    found: Sequence[GroupListing] = ()
    if not types or CLASSIC in types:
        found = [
            group
            for group in services.groups.listings()
            if not states or group.state.label.lower() in states
        ]
    request.respond(encode(request.api_version, ErrorCode.NONE, found))


def encode(version: int, code: ErrorCode, groups: Sequence[GroupListing]) -> bytes:
    out = Writer(flexible=is_flexible(ApiKey.LIST_GROUPS, version))
    if version >= _SINCE_THROTTLE:
        out.int32(0)
    out.int16(code)
    out.array(len(groups))
    for group in groups:
        out.string(group.group_id)
        out.string(group.protocol_type)
        if version >= _SINCE_STATES:
            out.string(group.state.label)
        if version >= _SINCE_TYPES:
            out.string(CLASSIC)
        out.tags()
    out.tags()
    return out.getvalue()


def failure(request: ColdRequest, code: ErrorCode, message: str) -> bytes:
    return encode(request.api_version, code, ())
