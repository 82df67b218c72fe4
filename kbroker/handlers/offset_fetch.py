"""OffsetFetch (9): where a group goes on reading.

A partition without a commit, and one of an unknown group, is offset -1 without an error. Null
topics (from version 2 on) are all that the group has committed. The offsets are written by the
compiled table in the form of the answer, so that a group of a thousand partitions costs no thousand
objects; this file puts the groups and topics around them.

Versions 1 to 10: an error above the topics from 2, leader epochs from 5, several groups from 8, a
member and its epoch from 9, which a consumer group checks, topic ids for names in 10.

A request for stable offsets, from 7 on, is answered with the latest commits once the followers have
all that was written in the group's partition by then: an earlier response of the coordinator may
have returned it. If they do not have it in time, the error is NOT_COORDINATOR, as in Apache Kafka.
Other requests are answered at once, with the commits that the followers have.

A group of which all is wanted is looked up once, however often it is named, and the metadata of a
partition that is named again is returned again within the same bounds (`repeats.py`). Any handler
thread.
"""

from __future__ import annotations

import struct
import threading
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

from kbroker.coordinator.runtime._shard_table import Written
from kbroker.errors import ErrorCode
from kbroker.handlers.authorization import denied
from kbroker.handlers.repeats import Repeats
from kbroker.protocol import messages
from kbroker.protocol._messages import Encoded
from kbroker.protocol.versions import FLEXIBLE_SINCE
from kbroker.protocol.wire import Writer
from kbroker.security.rights import Operation, ResourceType
from kbroker.types import ApiKey

if TYPE_CHECKING:
    from kbroker.handlers.call import Call
    from kbroker.handlers.services import Services
    from kbroker.metadata.image import ClusterImage
    from kbroker.protocol.messages.offset_fetch import (
        OffsetFetchRequestGroup,
        OffsetFetchResponseGroup,
        OffsetFetchResponseTopics,
        Request,
        Response,
    )

_SINCE_TOP_LEVEL_ERROR: Final = 2
_SINCE_LEADER_EPOCH: Final = 5
_SINCE_GROUPS: Final = 8
_SINCE_MEMBER: Final = 9
_SINCE_TOPIC_ID: Final = 10
_FLEXIBLE: Final = FLEXIBLE_SINCE[ApiKey.OFFSET_FETCH]
_INDEX_BYTES: Final = 4

TopicKey = str | UUID | None


def groups_of(call: Call[Request]) -> list[OffsetFetchRequestGroup]:
    """The groups of the request, in one form for all versions."""
    request = call.message
    if call.version >= _SINCE_GROUPS:
        return request.groups
    group = messages.offset_fetch.OffsetFetchRequestGroup(
        group_id=request.group_id, topics=request.topics
    )
    return [group]


class _Stable:
    """Groups of one request whose answers wait for their followers; the last of them answers."""

    def __init__(self, count: int, answer: Callable[[set[str]], object]) -> None:
        """`answer` is given the groups that have come too late."""
        self._missing = count
        self._answer = answer
        self._late: set[str] = set()
        self._lock = threading.Lock()

    def put(self, group_id: str, code: ErrorCode) -> None:
        with self._lock:
            if code:
                self._late.add(group_id)
            self._missing -= 1
            complete = self._missing == 0
        if complete:
            self._answer(self._late)


def handle(services: Services, call: Call[Request]) -> None:
    asked = groups_of(call)
    waits: list[tuple[str, Written]] = []
    found = _found(services, call, asked, waits)
    if not waits:
        call.answer(_response(call.version, found))
        return

    def answer(late: set[str]) -> None:
        # A coordinator is looked for again; of 15 old clients would make an error.
        refused = partial(_refused, call.version, error=ErrorCode.NOT_COORDINATOR)
        groups = [
            refused(wanted) if wanted.group_id in late else group
            for wanted, group in zip(asked, found, strict=True)
        ]
        call.answer(_response(call.version, groups))

    stable = _Stable(len(waits), answer)
    for group_id, written in waits:
        services.offsets.when_replicated(written, 0, partial(stable.put, group_id))


def _found(
    services: Services,
    call: Call[Request],
    all_asked: list[OffsetFetchRequestGroup],
    waits: list[tuple[str, Written]],
) -> list[OffsetFetchResponseGroup]:
    """What there is of each; `waits` are those whose answer the followers do not have yet."""
    version = call.version
    repeats = Repeats(call.request)
    whole: dict[
        str, OffsetFetchResponseGroup
    ] = {}  # of those that ask for all that a group has committed
    named: set[str] = set()
    found = []
    hidden: frozenset[str] = frozenset()
    if services.authorizer is not None:
        group_ids = dict.fromkeys([asked.group_id for asked in all_asked])
        hidden = denied(services, call, Operation.DESCRIBE, ResourceType.GROUP, group_ids)
    for asked in all_asked:
        if asked.group_id in hidden:
            found.append(_refused(version, asked, ErrorCode.GROUP_AUTHORIZATION_FAILED))
            continue
        group = whole.get(asked.group_id) if asked.topics is None else None
        if group is None:
            stable = Written() if call.message.require_stable else None
            group, texts = _fetch(
                services, call, asked, repeats.left, asked.group_id in named, stable
            )
            if stable is not None and not group.error_code:
                waits.append((asked.group_id, stable))
            repeats.allow(texts)
            named.add(asked.group_id)
            if asked.topics is None:
                whole[asked.group_id] = group
        elif not repeats.allow(_size_bytes(group)):
            group = _refused(version, asked, ErrorCode.INVALID_REQUEST)
        found.append(group)
    return found


def _fetch(
    services: Services,
    call: Call[Request],
    asked: OffsetFetchRequestGroup,
    again_max: int,
    named_before: bool,
    stable: Written | None,
) -> tuple[OffsetFetchResponseGroup, int]:
    """The answer, and how many bytes of metadata it has again."""
    image, version = services.controller.image, call.version
    by_id = version >= _SINCE_TOPIC_ID
    if version >= _SINCE_MEMBER:
        who = asked.group_id, asked.member_id, asked.member_epoch
        if stale := services.groups.fetch_error(*who):
            return _refused(version, asked, stale), 0
    names: list[tuple[str, bytes]] | None = None
    keys: list[TopicKey] = []  # of the names
    answers: list[OffsetFetchResponseTopics] = []
    if asked.topics is not None:
        names = []
        for each in asked.topics:
            indexes = each.partition_indexes
            if not by_id:
                keys.append(each.name)
                names.append((each.name, indexes))
                continue
            topic_id = each.topic_id
            topic = None if topic_id is None else image.topic_by_id(topic_id)
            if topic is None:
                nothing = _nothing(version, indexes, ErrorCode.UNKNOWN_TOPIC_ID)
                answers.append(_topic(topic_id, nothing))
            else:
                keys.append(topic_id)
                names.append((topic.name, indexes))
        hidden = _hidden(services, call, names)
        if hidden:
            refused = ErrorCode.TOPIC_AUTHORIZATION_FAILED
            for key, (name, indexes) in zip(keys, names, strict=True):
                if name in hidden:
                    answers.append(_topic(key, _nothing(version, indexes, refused)))
            keys = [key for key, (name, _) in zip(keys, names, strict=True) if name not in hidden]
            names = [(name, indexes) for name, indexes in names if name not in hidden]
    code, topics, texts = services.offsets.fetch(
        asked.group_id,
        names,
        flexible=version >= _FLEXIBLE,
        leader_epochs=version >= _SINCE_LEADER_EPOCH,
        topic_id_of=partial(_id_now, image),
        texts_again_max=again_max,
        named_before=named_before,
        stable=stable,
    )
    if code:
        return _refused(version, asked, ErrorCode(code)), 0
    if names is None:
        hidden = _hidden(services, call, topics)
        if hidden:
            topics = [each for each in topics if each[0] not in hidden]
    if names is not None:
        for key, (_, data) in zip(keys, topics, strict=True):
            answers.append(_topic(key, data))
    elif version < _SINCE_TOPIC_ID:
        answers += [_topic(name, data) for name, data in topics]
    else:
        for name, data in topics:
            if (known := image.topic(name)) is not None:
                answers.append(_topic(known.topic_id, data))
    return _group(asked, ErrorCode.NONE, answers), texts


def _hidden(
    services: Services, call: Call[Request], topics: list[tuple[str, bytes]]
) -> frozenset[str]:
    if services.authorizer is None:
        return frozenset()
    names = [name for name, _ in topics]
    return denied(services, call, Operation.DESCRIBE, ResourceType.TOPIC, names)


def _id_now(image: ClusterImage, name: str) -> bytes | None:
    topic = image.topic(name)
    return None if topic is None else topic.topic_id.bytes


def _nothing(version: int, indexes: bytes, error: ErrorCode) -> bytes:
    """Partitions without an offset, for a reason."""
    out = Writer(flexible=version >= _FLEXIBLE)
    out.array(len(indexes) // _INDEX_BYTES)
    for (index,) in struct.iter_unpack(">i", indexes):
        out.int32(index)
        out.int64(-1)
        if version >= _SINCE_LEADER_EPOCH:
            out.int32(-1)
        out.string("")
        out.int16(error)
        out.tags()
    return out.getvalue()


def _refused(
    version: int, asked: OffsetFetchRequestGroup, error: ErrorCode
) -> OffsetFetchResponseGroup:
    """A group that is not ours now; before version 2 only partitions can say so."""
    topics = []
    if version < _SINCE_TOP_LEVEL_ERROR and asked.topics is not None:
        topics = [
            _topic(each.name, _nothing(version, each.partition_indexes, error))
            for each in asked.topics
        ]
    return _group(asked, error, topics)


def _size_bytes(group: OffsetFetchResponseGroup) -> int:
    arrays: list[Any] = [topic.partitions for topic in group.topics]
    return sum(len(array.data) for array in arrays)


def _group(
    asked: OffsetFetchRequestGroup, error: ErrorCode, topics: list[OffsetFetchResponseTopics]
) -> OffsetFetchResponseGroup:
    return messages.offset_fetch.OffsetFetchResponseGroup(
        group_id=asked.group_id, topics=topics, error_code=error
    )


def _topic(key: TopicKey, partitions: bytes) -> OffsetFetchResponseTopics:
    """`partitions` is the encoded array."""
    encoded: Any = Encoded(partitions)
    record = messages.offset_fetch.OffsetFetchResponseTopics
    if isinstance(key, str):
        return record(name=key, partitions=encoded)
    return record(topic_id=key, partitions=encoded)


def _response(version: int, groups: list[OffsetFetchResponseGroup]) -> Response:
    if version >= _SINCE_GROUPS:
        return messages.offset_fetch.Response(groups=groups)
    (group,) = groups
    return messages.offset_fetch.Response(topics=group.topics, error_code=group.error_code)


def failure(call: Call[Request], code: ErrorCode, message: str | None) -> Response:
    return _response(call.version, [_refused(call.version, each, code) for each in groups_of(call)])
