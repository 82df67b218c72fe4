"""FindCoordinator (10): which broker looks after a group or a transactional id.

A group's coordinator is the leader of its partition of `__consumer_offsets`. Where that topic does
not exist yet, the first to ask has it made and is answered COORDINATOR_NOT_AVAILABLE, which says
"later" and which every client retries; so is whoever asks while the partition has no leader, and
for a share group, since there are none here.

A transactional id is refused for good, with the reason (`transactions.py`): "later" would be a lie
that a producer believes for a minute before it gives up.

Up to v3 a request asks for one key, from v4 for several, each with its own error.
Any handler thread; holds no lock.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, NamedTuple

from kbroker.coordinator.group._groups import partition_for
from kbroker.errors import ErrorCode
from kbroker.handlers.repeats import NAMED_TOO_OFTEN, answers_of
from kbroker.handlers.services import brokers_as_seen
from kbroker.handlers.topic_creation import topic_creator
from kbroker.handlers.transactions import NO_TRANSACTIONS, refusal
from kbroker.metadata.image import OFFSETS_TOPIC
from kbroker.protocol.versions import is_flexible
from kbroker.protocol.wire import Reader, Writer
from kbroker.types import ApiKey

if TYPE_CHECKING:
    from kbroker.handlers.services import ColdRequest, Services

GROUP: Final = 0
TRANSACTION: Final = 1
SHARE: Final = 2

_SINCE_KEY_TYPE: Final = 1
_SINCE_MESSAGE: Final = 1
_SINCE_BATCH: Final = 4
_SINCE_SHARE: Final = 6

# A topic id is 16 bytes in URL-safe Base64, without its padding.
_SHARE_KEY: Final = re.compile(r"[^:]+:[A-Za-z0-9_-]{22}:-?[0-9]{1,10}", re.ASCII)


class Found(NamedTuple):
    """What is known of one key's coordinator: where it is, or an error."""

    code: ErrorCode = ErrorCode.NONE
    message: str = ""
    node_id: int = -1
    host: str = ""
    port: int = -1


_NOT_AVAILABLE: Final = Found(
    ErrorCode.COORDINATOR_NOT_AVAILABLE, "the group coordinator is not available"
)


class Asked(NamedTuple):
    key_type: int
    keys: list[str]


def decode(request: ColdRequest) -> Asked:
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


def handle(services: Services, request: ColdRequest) -> None:
    asked = decode(request)
    find_group = _Groups(services, request).find

    def found(key: str) -> Found:
        return find_group(key) if asked.key_type == GROUP else _refuse(asked.key_type, key, request)

    request.respond(_encode(request, asked.keys, found))


class _Groups:
    """Coordinators of groups, as the brokers are seen over this connection."""

    def __init__(self, services: Services, request: ColdRequest) -> None:
        self._services = services
        self._brokers = brokers_as_seen(services, request, services.controller.image)
        topic = services.controller.image.topic(OFFSETS_TOPIC)
        self._homes = () if topic is None else topic.partitions
        self._found: dict[int, Found] = {}  # by leader

    def find(self, group_id: str) -> Found:
        if not self._homes:
            creator = topic_creator(self._services)
            self._services.offsets_topic.ensure(creator, self._services.config)
            return _NOT_AVAILABLE
        leader = self._homes[partition_for(group_id, len(self._homes))].leader
        found = self._found.get(leader)
        if found is None:
            found = _NOT_AVAILABLE
            if leader in self._brokers:
                host, port, _ = self._brokers[leader]
                found = Found(node_id=leader, host=host, port=port)
            self._found[leader] = found
        return found


def _refuse(key_type: int, key: str, request: ColdRequest) -> Found:
    version = request.api_version
    if key_type == TRANSACTION:
        return Found(refusal(request), NO_TRANSACTIONS)
    if key_type == SHARE and version >= _SINCE_SHARE and _is_share_key(key):
        return _NOT_AVAILABLE
    if key_type == SHARE and version >= _SINCE_BATCH:
        return Found(ErrorCode.INVALID_REQUEST)
    return Found(ErrorCode.INVALID_REQUEST, f"{key_type} is no type of coordinator in this version")


def _is_share_key(key: str) -> bool:
    """Whether it is a share group's share of a partition: `group:topic id:partition`."""
    return _SHARE_KEY.fullmatch(key) is not None


def _encode(request: ColdRequest, keys: list[str], find: Callable[[str], Found]) -> bytes:
    version = request.api_version
    out = Writer(flexible=is_flexible(ApiKey.FIND_COORDINATOR, version))
    if version >= _SINCE_MESSAGE:
        out.int32(0)  # throttle time
    if version >= _SINCE_BATCH:
        too_often = Found(ErrorCode.INVALID_REQUEST, NAMED_TOO_OFTEN)
        answers = answers_of(
            request,
            keys,
            lambda key: _encode_found(key, find(key)),
            lambda key: _encode_found(key, too_often),
        )
        out.array(len(answers))
        for answer in answers:
            out.raw(answer)
    else:
        (key,) = keys
        found = find(key)
        out.int16(found.code)
        if version >= _SINCE_MESSAGE:
            # The one text that Apache Kafka has for "no error" in these versions.
            out.string(found.message or found.code.name)
        _put_node(out, found)
    out.tags()
    return out.getvalue()


def _encode_found(key: str, found: Found) -> bytes:
    out = Writer(flexible=True)
    out.string(key)
    _put_node(out, found)
    out.int16(found.code)
    out.string(found.message)
    out.tags()
    return out.getvalue()


def _put_node(out: Writer, found: Found) -> None:
    out.int32(found.node_id)
    out.string(found.host)
    out.int32(found.port)


def failure(request: ColdRequest, code: ErrorCode, message: str) -> bytes:
    return _encode(request, decode(request).keys, lambda _: Found(code, message))
