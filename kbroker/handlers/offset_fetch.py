"""OffsetFetch (9): where a group goes on reading.

A partition without a commit, and a group that nobody knows, is offset -1 without an error. Null
topics (from version 2 on) are all that the group has committed. The offsets are written by the
compiled table in the form of the answer, so that a group of a thousand partitions costs no thousand
objects; this file puts the groups and topics around them.

Versions 1 to 10: an error above the topics from 2, leader epochs from 5, several groups from 8, a
member and its epoch (for the newer protocol of groups) from 9, topic ids for names in 10.

Who asks for stable offsets, from 7 on, is told what was committed last, when the followers have all
that was written in the group's partition by then: what was answered by the coordinator before may
be among it. Where they have it not in time, NOT_COORDINATOR, as Apache Kafka says it. Others are
told at once, as far as the followers have come.

A group of which all is wanted is looked up once, however often it
is named, and the metadata of a partition that is named again is told again within the same bounds
(`repeats.py`). Any handler thread.
"""

from __future__ import annotations

import struct
import threading
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from uuid import UUID

from kbroker.coordinator.group._groups import Written
from kbroker.errors import ErrorCode
from kbroker.handlers.repeats import Repeats
from kbroker.protocol import messages
from kbroker.protocol._messages import Encoded
from kbroker.protocol.versions import is_flexible
from kbroker.protocol.wire import Writer
from kbroker.types import ApiKey

if TYPE_CHECKING:
    from kbroker.handlers.call import Call
    from kbroker.handlers.services import Services
    from kbroker.metadata.image import ClusterImage
    from kbroker.protocol.messages.offset_fetch import Request, Response

_SINCE_TOP_LEVEL_ERROR: Final = 2
_SINCE_LEADER_EPOCH: Final = 5
_SINCE_GROUPS: Final = 8
_SINCE_TOPIC_ID: Final = 10
_INDEX_BYTES: Final = 4

TopicKey = str | UUID | None


class AskedTopic(NamedTuple):
    key: TopicKey
    indexes: bytes  # big-endian int32s, as they came


class AskedGroup(NamedTuple):
    group_id: str
    topics: list[AskedTopic] | None  # None: all


class FoundTopic(NamedTuple):
    key: TopicKey
    partitions: bytes  # the encoded array


class FoundGroup(NamedTuple):
    group_id: str
    error: ErrorCode
    topics: list[FoundTopic]


def groups_of(call: Call[Request]) -> list[AskedGroup]:
    """What is asked, in one form for all versions."""
    request = call.message
    by_id = call.version >= _SINCE_TOPIC_ID
    if call.version < _SINCE_GROUPS:
        topics = None
        if request.topics is not None:
            topics = [AskedTopic(each.name, each.partition_indexes) for each in request.topics]
        return [AskedGroup(request.group_id, topics)]
    return [
        AskedGroup(
            group.group_id,
            None
            if group.topics is None
            else [
                AskedTopic(each.topic_id if by_id else each.name, each.partition_indexes)
                for each in group.topics
            ],
        )
        for group in request.groups
    ]


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
    all_asked: list[AskedGroup],
    waits: list[tuple[str, Written]],
) -> list[FoundGroup]:
    """What there is of each; `waits` are those whose answer the followers do not have yet."""
    version = call.version
    repeats = Repeats(call.request)
    whole: dict[str, FoundGroup] = {}  # of those that ask for all that a group has committed
    named: set[str] = set()
    found = []
    for asked in all_asked:
        group = whole.get(asked.group_id) if asked.topics is None else None
        if group is None:
            stable = Written() if call.message.require_stable else None
            group, texts = _fetch(
                services, version, asked, repeats.left, asked.group_id in named, stable
            )
            if stable is not None and not group.error:
                waits.append((asked.group_id, stable))
            repeats.allow(texts)
            named.add(asked.group_id)
            if asked.topics is None:
                whole[asked.group_id] = group
        elif not repeats.allow(sum(len(topic.partitions) for topic in group.topics)):
            group = _refused(version, asked, ErrorCode.INVALID_REQUEST)
        found.append(group)
    return found


def _fetch(
    services: Services,
    version: int,
    asked: AskedGroup,
    again_max: int,
    named_before: bool,
    stable: Written | None,
) -> tuple[FoundGroup, int]:
    """The answer, and how many bytes of metadata it has again."""
    image = services.controller.image
    names: list[tuple[str, bytes]] | None = None
    answers: list[FoundTopic] = []
    found: list[tuple[TopicKey, str, bytes]] = []
    if asked.topics is not None:
        for key, indexes in asked.topics:
            if isinstance(key, str):
                found.append((key, key, indexes))
                continue
            topic = None if key is None else image.topic_by_id(key)
            if topic is None:
                answers.append(_unknown(version, key, indexes))
            else:
                found.append((key, topic.name, indexes))
        names = [(name, indexes) for _, name, indexes in found]
    code, topics, texts = services.offsets.fetch(
        asked.group_id,
        names,
        flexible=is_flexible(ApiKey.OFFSET_FETCH, version),
        leader_epochs=version >= _SINCE_LEADER_EPOCH,
        topic_id_of=partial(_id_now, image),
        texts_again_max=again_max,
        named_before=named_before,
        stable=stable,
    )
    error = ErrorCode(code)
    if error:
        return _refused(version, asked, error), 0
    if names is not None:
        answers += [FoundTopic(found[at][0], data) for at, (_, data) in enumerate(topics)]
        return FoundGroup(asked.group_id, error, answers), texts
    for name, data in topics:
        if version < _SINCE_TOPIC_ID:
            answers.append(FoundTopic(name, data))
        elif (known := image.topic(name)) is not None:
            answers.append(FoundTopic(known.topic_id, data))
    return FoundGroup(asked.group_id, error, answers), texts


def _id_now(image: ClusterImage, name: str) -> bytes | None:
    topic = image.topic(name)
    return None if topic is None else topic.topic_id.bytes


def _unknown(version: int, key: TopicKey, indexes: bytes) -> FoundTopic:
    return FoundTopic(key, _nothing(version, indexes, ErrorCode.UNKNOWN_TOPIC_ID))


def _nothing(version: int, indexes: bytes, error: ErrorCode) -> bytes:
    """Partitions without an offset, for a reason."""
    out = Writer(flexible=is_flexible(ApiKey.OFFSET_FETCH, version))
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


def _refused(version: int, asked: AskedGroup, error: ErrorCode) -> FoundGroup:
    """A group that is not ours now; before version 2 only partitions can say so."""
    topics = []
    if version < _SINCE_TOP_LEVEL_ERROR and asked.topics is not None:
        topics = [
            FoundTopic(key, _nothing(version, indexes, error)) for key, indexes in asked.topics
        ]
    return FoundGroup(asked.group_id, error, topics)


def _response(version: int, groups: list[FoundGroup]) -> Response:
    table = messages.offset_fetch
    if version >= _SINCE_GROUPS:
        return table.Response(
            groups=[
                table.OffsetFetchResponseGroup(
                    group_id=group.group_id,
                    topics=[_topic(table.OffsetFetchResponseTopics, each) for each in group.topics],
                    error_code=group.error,
                )
                for group in groups
            ]
        )
    (group,) = groups
    topics = [_topic(table.OffsetFetchResponseTopic, each) for each in group.topics]
    return table.Response(topics=topics, error_code=group.error)


def _topic(kind: Callable[..., Any], topic: FoundTopic) -> Any:
    key, partitions = topic
    if isinstance(key, str):
        return kind(name=key, partitions=Encoded(partitions))
    return kind(topic_id=key, partitions=Encoded(partitions))


def failure(call: Call[Request], code: ErrorCode, message: str | None) -> Response:
    return _response(call.version, [_refused(call.version, each, code) for each in groups_of(call)])
