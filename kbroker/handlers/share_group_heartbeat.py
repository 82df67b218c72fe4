"""ShareGroupHeartbeat (76): a member of a share group joins, stays, changes and leaves.

The answer comes when the followers have what the heartbeat has changed, perhaps from another
thread. A request that is wrong by itself is refused here. Any handler thread; holds no lock.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

from kbroker.coordinator.consumer_group.images import JOINS_EPOCH, LEAVES_EPOCH
from kbroker.coordinator.consumer_group.messages import HeartbeatAnswer
from kbroker.coordinator.share_group.messages import HeartbeatAsked
from kbroker.errors import ErrorCode, KafkaError
from kbroker.handlers.authorization import denied
from kbroker.handlers.reply import short_message
from kbroker.outside_text import can_be_told
from kbroker.protocol import messages
from kbroker.security.rights import Operation, ResourceType

if TYPE_CHECKING:
    from kbroker.handlers.call import Call
    from kbroker.handlers.services import Services
    from kbroker.protocol.messages.share_group_heartbeat import Assignment, Request

# The length of an id as clients make it: 22 characters, or a UUID's 36.
_MEMBER_ID_MAX: Final = 36


def handle(services: Services, call: Call[Request]) -> None:
    request = call.message
    _check(call)
    topics = request.subscribed_topic_names
    if topics and denied(services, call, Operation.DESCRIBE, ResourceType.TOPIC, topics):
        raise KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    session = call.session
    asked = HeartbeatAsked(
        request.group_id,
        request.member_id,
        request.member_epoch,
        request.rack_id,
        None if topics is None else tuple(sorted(set(topics))),
        session.client_id or "",
        f"/{session.client_host}",
    )
    services.share_groups().heartbeat(asked, partial(_answer, call))


def _invalid(words: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REQUEST, words)


def _check(call: Call[Request]) -> None:
    """KafkaError: the mistake in the request itself."""
    request, epoch = call.message, call.message.member_epoch
    if not 0 < len(request.member_id) <= _MEMBER_ID_MAX:
        raise KafkaError(ErrorCode.INVALID_REQUEST)
    if not request.member_id.strip():
        raise _invalid("MemberId can't be empty.")
    if not request.group_id.strip():
        raise _invalid("GroupId can't be empty.")
    if request.rack_id is not None and not request.rack_id.strip():
        raise _invalid("RackId can't be empty.")
    if epoch == JOINS_EPOCH:
        if request.subscribed_topic_names is None or not request.subscribed_topic_names:
            raise _invalid("SubscribedTopicNames must be set in first request.")
    elif epoch < LEAVES_EPOCH:
        raise _invalid(f"MemberEpoch is {epoch}, but must be greater than or equal to -1.")
    texts = (
        request.group_id, request.member_id, request.rack_id, call.session.client_id,
        *(request.subscribed_topic_names or ()),
    )  # fmt: skip
    if not all(map(can_be_told, texts)):
        raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR)


def _answer(call: Call[Request], answer: HeartbeatAnswer) -> None:
    call.answer(
        messages.share_group_heartbeat.Response(
            error_code=answer.code,
            error_message=None if answer.message is None else short_message(answer.message),
            member_id=answer.member_id,
            member_epoch=answer.epoch,
            heartbeat_interval_ms=answer.interval_ms,
            assignment=_assignment(answer),
        )
    )


def _assignment(answer: HeartbeatAnswer) -> Assignment | None:
    table = messages.share_group_heartbeat
    if answer.assignment is None:
        return None
    return table.Assignment(
        topic_partitions=[
            table.TopicPartitions(topic_id=topic_id, partitions=sorted(some))
            for topic_id, some in sorted(answer.assignment.items(), key=lambda item: item[0].bytes)
        ]
    )
