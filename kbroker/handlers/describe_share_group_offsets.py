"""DescribeShareGroupOffsets (90): where share groups begin to read, and their lag.

    groups -> share-partitions -> summaries (share coordinator) -> ends (leaders) -> lag

A group is described by any broker where the request names its topics. Where it does not (null), its
coordinator describes all topics of which the group has a state. A share-partition without a state
has the start -1, and so has a topic that is not there. The lag is the number of records from the
start on that are not done: the end of the partition - the start - those that are done; -1: not
known. Other than in Apache Kafka, a state that cannot be read now is an error, and not "no offset".

A request may name SHARE_PARTITIONS_DESCRIBED_MAX share-partitions. No more are asked about after
DESCRIBE_MS_MAX, or soon after its client has left: the others are answered REQUEST_TIMED_OUT.

Any handler thread; what follows from the answers is done by a handler too, since it may be much.
Holds no lock.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from kbroker import limits
from kbroker.coordinator.share.gathering import Gathering
from kbroker.coordinator.share.images import NO_COUNT, NO_START, SharePartition
from kbroker.coordinator.share.seams import Summary
from kbroker.errors import ErrorCode
from kbroker.handlers.authorization import denied
from kbroker.handlers.repeats import NAMED_TOO_OFTEN, Repeats
from kbroker.handlers.reply import failures
from kbroker.handlers.share_offsets import DENIED_WORDS
from kbroker.protocol import messages
from kbroker.security.rights import Operation, ResourceType
from kbroker.types import TopicPartition

if TYPE_CHECKING:
    from kbroker.handlers.call import Call
    from kbroker.handlers.services import Services, Share
    from kbroker.metadata.image import ClusterImage, TopicImage
    from kbroker.protocol._messages import Encoded
    from kbroker.protocol.messages.describe_share_group_offsets import (
        Request,
        RequestGroup,
        Response,
        ResponseGroup,
        ResponsePartition,
        ResponseTopic,
    )
    from kbroker.protocol.messages.table import Message

# As long as an administrative client waits for an answer, at its defaults.
DESCRIBE_MS_MAX: Final = 30_000
# Of a client that has ended its side of the connection, and may have gone.
LEFT_MS_MAX: Final = 1_000
_NO_LAG: Final = -1
# The state could not be read, but may be there.
_NOT_READ: Final = frozenset(
    {
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.REQUEST_TIMED_OUT,
    }
)
_TOO_MANY: Final = "the request names too many share-partitions; ask about fewer at once"


class _Topic(NamedTuple):
    """Of an answer. `image` None: the topic is not there."""

    name: str
    partitions: Sequence[int]
    image: TopicImage | None = None
    code: ErrorCode = ErrorCode.NONE  # of each partition

    def places(self) -> Sequence[int]:
        """The partitions that exist."""
        count = 0 if self.image is None else len(self.image.partitions)
        return [index for index in self.partitions if 0 <= index < count]


class _Group(NamedTuple):
    group_id: str
    topics: Sequence[_Topic] = ()
    code: ErrorCode = ErrorCode.NONE
    message: str | None = None
    is_of_all: bool = False  # the request does not name its topics


_FAILED: Final = Summary(ErrorCode.COORDINATOR_NOT_AVAILABLE)
_LATE: Final = Summary(ErrorCode.REQUEST_TIMED_OUT)

Summaries = Mapping[SharePartition, Summary]
# Of partitions with a summary.
Ends = Mapping[TopicPartition, int | ErrorCode]


def handle(services: Services, call: Call[Request]) -> None:
    asked = call.message.groups
    names = [each.group_id for each in asked]
    hidden = denied(services, call, Operation.DESCRIBE, ResourceType.GROUP, names)
    groups: list[_Group] = []
    keys: dict[SharePartition, str] = {}  # the name of the topic
    whole: dict[str, _Group] = {}  # with all of their topics: looked up once
    for each in asked:
        if each.topics is None and each.group_id in whole:
            groups.append(whole[each.group_id])
            continue
        group = _Group(each.group_id, code=ErrorCode.GROUP_AUTHORIZATION_FAILED)
        if each.group_id not in hidden:
            group = _named(services, call, each)
        some = {
            SharePartition(group.group_id, topic.image.topic_id, index): topic.name
            for topic in group.topics
            if topic.image is not None
            for index in topic.places()
        }
        if len(keys) + len(some) > limits.SHARE_PARTITIONS_DESCRIBED_MAX:
            group = _Group(each.group_id, code=ErrorCode.INVALID_REQUEST, message=_TOO_MANY)
        else:
            keys.update(some)
        if each.topics is None:
            whole[each.group_id] = group
        groups.append(group)
    share = services.share
    if share is None or not keys:
        call.answer(_response(call, groups, {}, {}))
    else:
        _summarize(services, share, call, groups, keys)


def _named(services: Services, call: Call[Request], asked: RequestGroup) -> _Group:
    image = services.controller.image
    if asked.topics is None:
        return _all_topics(services, call, asked.group_id, image)
    names = [topic.topic_name for topic in asked.topics]
    hidden = denied(services, call, Operation.DESCRIBE, ResourceType.TOPIC, names)
    known: list[_Topic] = []
    missing: list[_Topic] = []
    refused: list[_Topic] = []
    for topic in asked.topics:
        name, partitions = topic.topic_name, topic.partitions
        found = image.topic(name)
        if name in hidden:
            code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
            refused.append(_Topic(name, partitions, None, code))
        elif found is None:
            missing.append(_Topic(name, partitions))
        else:
            known.append(_Topic(name, partitions, found))
    return _Group(asked.group_id, [*known, *missing, *refused])


def _all_topics(
    services: Services, call: Call[Request], group_id: str, image: ClusterImage
) -> _Group:
    share_groups = services.share_groups()
    code = share_groups.offsets_error(group_id)
    if code:
        return _Group(group_id, code=code)
    topics = {
        topic.name: _Topic(topic.name, sorted(some), topic)
        for topic_id, some in share_groups.topics_with_state(group_id).items()
        if (topic := image.topic_by_id(topic_id)) is not None
    }
    hidden = denied(services, call, Operation.DESCRIBE, ResourceType.TOPIC, topics, quiet=True)
    listed = [topic for name, topic in sorted(topics.items()) if name not in hidden]
    return _Group(group_id, listed, is_of_all=True)


def _summarize(
    services: Services,
    share: Share,
    call: Call[Request],
    groups: Sequence[_Group],
    keys: Mapping[SharePartition, str],
) -> None:
    persister, clock = share.persister, services.clock
    ends_ms = clock.monotonic_ms() + DESCRIBE_MS_MAX
    has_left = False

    def is_late() -> bool:
        nonlocal has_left, ends_ms
        now_ms = clock.monotonic_ms()
        if not has_left and share.has_left(call.request):
            has_left, ends_ms = True, min(ends_ms, now_ms + LEFT_MS_MAX)
        return now_ms >= ends_ms

    def summarized(summaries: Summaries) -> None:
        with call:
            places = {
                TopicPartition(keys[key], key.partition)
                for key, summary in summaries.items()
                if _has_lag(summary)
            }
            share.latest_offsets(places, partial(came, summaries))

    def came(summaries: Summaries, ends: Ends) -> None:
        answer = partial(call.answer_made, lambda: _response(call, groups, summaries, ends))
        with call:
            share.call_soon(answer)

    Gathering(
        keys, lambda key, done: persister.summary(key, 0, done), summarized, lambda _: _FAILED,
        failures, is_late=is_late, late=lambda _: _LATE, hand_over=share.call_soon,
    ).begin()  # fmt: skip


def _has_lag(summary: Summary) -> bool:
    is_known = summary.start_offset != NO_START and summary.delivery_complete_count != NO_COUNT
    return is_known and not summary.code


# --- the response ---------------------------------------------------------------------------------


def _response(
    call: Call[Request], groups: Sequence[_Group], summaries: Summaries, ends: Ends
) -> Message:
    """A group with all of its topics is encoded once: named again, it costs the request a few bytes
    only (`repeats.py`)."""
    table = messages.describe_share_group_offsets
    repeats = Repeats(call.request)
    known: dict[str, Encoded] = {}
    found: list[Any] = []
    for group in groups:
        if not group.is_of_all:
            found.append(_group(group, summaries, ends))
            continue
        encoded = known.get(group.group_id)
        if encoded is None:
            encoded = call.encoded(_group(group, summaries, ends))
            known[group.group_id] = encoded
        elif not repeats.allow(len(encoded.data)):
            found.append(_nothing(group.group_id, ErrorCode.INVALID_REQUEST, NAMED_TOO_OFTEN))
            continue
        found.append(encoded)
    made: Message = table.Response(groups=found)
    return made


def _group(group: _Group, summaries: Summaries, ends: Ends) -> ResponseGroup:
    if group.code:
        return _nothing(group.group_id, group.code, group.message)
    return messages.describe_share_group_offsets.ResponseGroup(
        group_id=group.group_id,
        topics=[_topic(group.group_id, topic, summaries, ends) for topic in group.topics],
    )


def _topic(group_id: str, topic: _Topic, summaries: Summaries, ends: Ends) -> ResponseTopic:
    table = messages.describe_share_group_offsets
    topic_id = None if topic.image is None else topic.image.topic_id
    rows: list[ResponsePartition] = []
    for index in dict.fromkeys(topic.partitions):
        summary = None
        if topic_id is not None:
            summary = summaries.get(SharePartition(group_id, topic_id, index))
        if summary is None:
            row = table.ResponsePartition(
                partition_index=index, start_offset=NO_START, error_code=topic.code,
                error_message=DENIED_WORDS if topic.code else None,
            )  # fmt: skip
        else:
            row = _partition(TopicPartition(topic.name, index), summary, ends)
        rows.append(row)
    return table.ResponseTopic(topic_name=topic.name, topic_id=topic_id, partitions=rows)


def _partition(place: TopicPartition, summary: Summary, ends: Ends) -> ResponsePartition:
    table = messages.describe_share_group_offsets
    index = place.partition
    if summary.code:
        code = summary.code if summary.code in _NOT_READ else ErrorCode.NONE
        return table.ResponsePartition(
            partition_index=index, start_offset=NO_START, error_code=code
        )
    lag = _NO_LAG
    if _has_lag(summary):
        end = ends.get(place, ErrorCode.UNKNOWN_SERVER_ERROR)
        if isinstance(end, ErrorCode):
            return table.ResponsePartition(partition_index=index, error_code=end)
        lag = end - summary.start_offset - summary.delivery_complete_count
    return table.ResponsePartition(
        partition_index=index,
        start_offset=summary.start_offset,
        leader_epoch=summary.leader_epoch,
        lag=lag,
    )


def _nothing(group_id: str, code: ErrorCode, message: str | None) -> ResponseGroup:
    return messages.describe_share_group_offsets.ResponseGroup(
        group_id=group_id, topics=[], error_code=code, error_message=message
    )


def failure(call: Call[Request], code: ErrorCode, message: str | None) -> Response:
    """Each group that was named, once."""
    names = dict.fromkeys(each.group_id for each in call.message.groups)
    groups = [_nothing(group_id, code, message) for group_id in names]
    return messages.describe_share_group_offsets.Response(groups=groups)
