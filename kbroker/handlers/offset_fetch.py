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
from typing import TYPE_CHECKING, Final, NamedTuple
from uuid import UUID

from kbroker.coordinator.group._groups import Written
from kbroker.errors import ErrorCode
from kbroker.handlers.repeats import Repeats
from kbroker.handlers.reply import Reply
from kbroker.protocol.versions import is_flexible
from kbroker.protocol.wire import Reader, Writer
from kbroker.types import ApiKey

if TYPE_CHECKING:
    from kbroker.handlers.services import ColdRequest, Services
    from kbroker.metadata.image import ClusterImage

_SINCE_TOP_LEVEL_ERROR: Final = 2
_SINCE_THROTTLE: Final = 3
_SINCE_LEADER_EPOCH: Final = 5
_SINCE_REQUIRE_STABLE: Final = 7
_SINCE_GROUPS: Final = 8
_SINCE_MEMBER: Final = 9
_SINCE_TOPIC_ID: Final = 10
_INDEX_BYTES: Final = 4

TopicKey = str | UUID | None


class AskedTopic(NamedTuple):
    key: TopicKey
    indexes: bytes  # big-endian int32s, as they came


class AskedGroup(NamedTuple):
    group_id: str
    topics: list[AskedTopic] | None  # None: all
    require_stable: bool = False  # of the request


class ToldTopic(NamedTuple):
    key: TopicKey
    partitions: bytes  # the encoded array


class ToldGroup(NamedTuple):
    group_id: str
    error: ErrorCode
    topics: list[ToldTopic]


def decode(request: ColdRequest) -> list[AskedGroup]:
    version = request.api_version
    reader = Reader(request.body, flexible=is_flexible(ApiKey.OFFSET_FETCH, version))
    if version >= _SINCE_GROUPS:
        groups = [_decode_group(reader, version) for _ in range(reader.array())]
    else:
        groups = [AskedGroup(reader.string(), _decode_topics(reader, version))]
    if version >= _SINCE_REQUIRE_STABLE and reader.boolean():
        groups = [group._replace(require_stable=True) for group in groups]
    reader.tags()
    return groups


def _decode_group(reader: Reader, version: int) -> AskedGroup:
    group_id = reader.string()
    if version >= _SINCE_MEMBER:
        reader.nullable_string()
        reader.int32()
    topics = _decode_topics(reader, version)
    reader.tags()
    return AskedGroup(group_id, topics)


def _decode_topics(reader: Reader, version: int) -> list[AskedTopic] | None:
    count = reader.nullable_array() if version >= _SINCE_TOP_LEVEL_ERROR else reader.array()
    if count is None:
        return None
    topics = []
    for _ in range(count):
        key: TopicKey = reader.uuid() if version >= _SINCE_TOPIC_ID else reader.string()
        topics.append(AskedTopic(key, reader.raw(reader.array() * _INDEX_BYTES)))
        reader.tags()
    return topics


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


def handle(services: Services, request: ColdRequest) -> None:
    version = request.api_version
    all_asked = decode(request)
    waits: list[tuple[str, Written]] = []
    told = _told(services, request, all_asked, waits)
    if not waits:
        request.respond(encode(version, told))
        return
    with Reply(request, failure) as reply:

        def answer(late: set[str]) -> None:
            # A coordinator is looked for again; of 15 old clients would make an error.
            refused = partial(_refused, version, error=ErrorCode.NOT_COORDINATOR)
            groups = [
                refused(asked) if asked.group_id in late else group
                for asked, group in zip(all_asked, told, strict=True)
            ]
            reply.send(lambda: encode(version, groups))

        stable = _Stable(len(waits), answer)
        for group_id, written in waits:
            services.offsets.when_replicated(written, 0, partial(stable.put, group_id))


def _told(
    services: Services,
    request: ColdRequest,
    all_asked: list[AskedGroup],
    waits: list[tuple[str, Written]],
) -> list[ToldGroup]:
    """What is told of each; `waits` are those of whom it may not be told yet."""
    version = request.api_version
    repeats = Repeats(request)
    whole: dict[str, ToldGroup] = {}  # of those that ask for all that a group has committed
    named: set[str] = set()
    told = []
    for asked in all_asked:
        group = whole.get(asked.group_id) if asked.topics is None else None
        if group is None:
            stable = Written() if asked.require_stable else None
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
        told.append(group)
    return told


def _fetch(
    services: Services,
    version: int,
    asked: AskedGroup,
    again_max: int,
    named_before: bool,
    stable: Written | None,
) -> tuple[ToldGroup, int]:
    """The answer, and how many bytes of metadata it tells again."""
    image = services.controller.image
    names: list[tuple[str, bytes]] | None = None
    told: list[ToldTopic] = []
    found: list[tuple[TopicKey, str, bytes]] = []
    if asked.topics is not None:
        for key, indexes in asked.topics:
            if isinstance(key, str):
                found.append((key, key, indexes))
                continue
            topic = None if key is None else image.topic_by_id(key)
            if topic is None:
                told.append(_unknown(version, key, indexes))
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
        told += [ToldTopic(found[at][0], data) for at, (_, data) in enumerate(topics)]
        return ToldGroup(asked.group_id, error, told), texts
    for name, data in topics:
        if version < _SINCE_TOPIC_ID:
            told.append(ToldTopic(name, data))
        elif (known := image.topic(name)) is not None:
            told.append(ToldTopic(known.topic_id, data))
    return ToldGroup(asked.group_id, error, told), texts


def _id_now(image: ClusterImage, name: str) -> bytes | None:
    topic = image.topic(name)
    return None if topic is None else topic.topic_id.bytes


def _unknown(version: int, key: TopicKey, indexes: bytes) -> ToldTopic:
    return ToldTopic(key, _nothing(version, indexes, ErrorCode.UNKNOWN_TOPIC_ID))


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


def _refused(version: int, asked: AskedGroup, error: ErrorCode) -> ToldGroup:
    """A group that is not ours now; before version 2 only partitions can say so."""
    topics = []
    if version < _SINCE_TOP_LEVEL_ERROR and asked.topics is not None:
        topics = [
            ToldTopic(key, _nothing(version, indexes, error)) for key, indexes in asked.topics
        ]
    return ToldGroup(asked.group_id, error, topics)


def encode(version: int, groups: list[ToldGroup]) -> bytes:
    out = Writer(flexible=is_flexible(ApiKey.OFFSET_FETCH, version))
    if version >= _SINCE_THROTTLE:
        out.int32(0)
    if version >= _SINCE_GROUPS:
        out.array(len(groups))
        for group in groups:
            out.string(group.group_id)
            _put_topics(out, group.topics)
            out.int16(group.error)
            out.tags()
    else:
        (group,) = groups
        _put_topics(out, group.topics)
        if version >= _SINCE_TOP_LEVEL_ERROR:
            out.int16(group.error)
    out.tags()
    return out.getvalue()


def _put_topics(out: Writer, topics: list[ToldTopic]) -> None:
    out.array(len(topics))
    for key, partitions in topics:
        if isinstance(key, str):
            out.string(key)
        else:
            out.uuid(key)
        out.raw(partitions)
        out.tags()


def failure(request: ColdRequest, code: ErrorCode, message: str) -> bytes:
    version = request.api_version
    return encode(version, [_refused(version, group, code) for group in decode(request)])
