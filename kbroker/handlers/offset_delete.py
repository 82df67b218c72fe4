"""OffsetDelete (47): commits of a group go, of topics that nobody in it reads any more.

The group answers first, for everything: INVALID_GROUP_ID, GROUP_ID_NOT_FOUND, NON_EMPTY_GROUP where
its members are not consumers, the codes of a group that is not ours. Then each partition:
UNKNOWN_TOPIC_OR_PARTITION, GROUP_SUBSCRIBED_TO_TOPIC, or none, also where nothing was committed.
What is answered is in the log, and its followers have it. What is not there comes first, as Apache
Kafka puts it.

Version 0, never flexible. Any handler thread.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from kbroker.coordinator.group._groups import Written
from kbroker.errors import ErrorCode
from kbroker.handlers.reply import Reply
from kbroker.protocol.wire import Reader, Writer

if TYPE_CHECKING:
    from kbroker.handlers.services import ColdRequest, Services


class Asked(NamedTuple):
    group_id: str
    topics: list[tuple[str, list[int]]]


# By topic: (partition, error) in order.
Told = list[tuple[str, list[tuple[int, ErrorCode]]]]


def decode(request: ColdRequest) -> Asked:
    reader = Reader(request.body, flexible=False)
    group_id = reader.string()
    topics = []
    for _ in range(reader.array()):
        name = reader.string()
        topics.append((name, [reader.int32() for _ in range(reader.array())]))
    return Asked(group_id, topics)


def handle(services: Services, request: ColdRequest) -> None:
    group_id, topics = decode(request)
    code, read = services.groups.readers(group_id)
    if code:
        request.respond(encode(code, []))
        return
    missing: dict[str, list[tuple[int, ErrorCode]]] = {}
    told: Told = []
    gone: list[tuple[str, int]] = []
    image = services.controller.image
    for name, partitions in topics:
        topic = image.topic(name)
        count = 0 if topic is None else len(topic.partitions)
        used = read is None or name in read
        errors: list[tuple[int, ErrorCode]] = []
        for partition in partitions:
            if not 0 <= partition < count:
                unknown = (partition, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
                missing.setdefault(name, []).append(unknown)
            elif used:
                errors.append((partition, ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC))
            else:
                errors.append((partition, ErrorCode.NONE))
                gone.append((name, partition))
        if errors:
            told.append((name, errors))
    with Reply(request, failure) as reply:

        def answer(code: ErrorCode) -> None:
            reply.send(lambda: encode(code, [] if code else _merged(missing, told)))

        if gone:
            written = Written()
            removed = services.offsets.remove_offsets(group_id, gone, written=written)
            services.offsets.when_replicated(written, removed, answer)
        else:
            answer(ErrorCode.NONE)


def _merged(missing: dict[str, list[tuple[int, ErrorCode]]], told: Told) -> Told:
    if not missing:
        return told
    for name, errors in told:
        missing.setdefault(name, []).extend(errors)
    return list(missing.items())


def encode(code: ErrorCode, topics: Told) -> bytes:
    out = Writer(flexible=False)
    out.int16(code)
    out.int32(0)  # throttle time
    out.array(len(topics))
    for name, partitions in topics:
        out.string(name)
        out.array(len(partitions))
        for partition, error in partitions:
            out.int32(partition)
            out.int16(error)
    return out.getvalue()


def failure(request: ColdRequest, code: ErrorCode, message: str) -> bytes:
    return encode(code, [])
