"""ConsumerGroupHeartbeat (68): a member of a consumer group joins, stays, changes and leaves.

The answer comes when the followers have what the heartbeat has changed, perhaps from another
thread. What the request alone shows to be wrong is refused here, with Apache Kafka's words: names
that are empty, a first request without all that it must have, an assignor or a pattern that is
none.

Since version 1 a member makes its own id, and may subscribe by a pattern; in version 0 a member
that joins without an id gets one. Any handler thread; holds no lock.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Final
from uuid import UUID, uuid4

from kbroker.coordinator.consumer_group.images import (
    JOINS_EPOCH,
    LEAVES_EPOCH,
    LEAVES_FOR_NOW_EPOCH,
)
from kbroker.coordinator.consumer_group.messages import (
    NO_TIMEOUT,
    HeartbeatAnswer,
    HeartbeatAsked,
    none_hidden,
)
from kbroker.coordinator.group.expressions import ExpressionError, NameExpression
from kbroker.errors import ErrorCode, KafkaError
from kbroker.handlers.authorization import denied
from kbroker.handlers.reply import short_message
from kbroker.outside_text import can_be_told
from kbroker.protocol import messages
from kbroker.security.rights import Operation, Resource, ResourceType
from kbroker.types import ApiKey, uuid_text

if TYPE_CHECKING:
    from kbroker.coordinator.consumer_group.messages import Hidden
    from kbroker.handlers.call import Call
    from kbroker.handlers.services import Services
    from kbroker.protocol.messages.consumer_group_heartbeat import (
        Assignment,
        Request,
        TopicPartitions,
    )
    from kbroker.security.rights import Authorizer
    from kbroker.security.session import Session

_SINCE_OWN_ID: Final = 1


def handle(services: Services, call: Call[Request]) -> None:
    request = call.message
    _check(services, call)
    topics = request.subscribed_topic_names
    if topics and denied(services, call, Operation.DESCRIBE, ResourceType.TOPIC, topics):
        raise KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    session = call.session
    hidden: Hidden = none_hidden
    if services.authorizer is not None:
        hidden = partial(_hidden, services.authorizer, session)
    asked = HeartbeatAsked(
        request.group_id,
        request.member_id or uuid_text(uuid4()),
        request.member_epoch,
        request.instance_id,
        request.rack_id,
        request.rebalance_timeout_ms,
        None if topics is None else tuple(sorted(set(topics))),
        request.subscribed_topic_regex,
        request.server_assignor,
        _owned(request.topic_partitions),
        session.client_id or "",
        f"/{session.client_host}",
        hidden,
    )
    services.consumer_groups().heartbeat(asked, partial(_answer, call))


def _hidden(authorizer: Authorizer, session: Session, names: Sequence[str]) -> frozenset[str]:
    """Those that the client may not describe; later, when its request has been answered."""
    resources = [Resource(ResourceType.TOPIC, name) for name in names]
    if not resources:
        return frozenset()
    key = ApiKey.CONSUMER_GROUP_HEARTBEAT
    found = authorizer.authorize(session, Operation.DESCRIBE, resources, key, quiet=True)
    return frozenset(resource.name for resource in found)


def _invalid(words: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REQUEST, words)


def _check(services: Services, call: Call[Request]) -> None:
    """KafkaError: what is wrong with the request itself."""
    request, epoch = call.message, call.message.member_epoch
    needs_id = call.version >= _SINCE_OWN_ID or epoch > 0 or epoch == LEAVES_EPOCH
    if needs_id and not request.member_id.strip():
        raise _invalid("MemberId can't be empty.")
    if not request.group_id.strip():
        raise _invalid("GroupId can't be empty.")
    if request.instance_id is not None and not request.instance_id.strip():
        raise _invalid("InstanceId can't be empty.")
    if request.rack_id is not None and not request.rack_id.strip():
        raise _invalid("RackId can't be empty.")
    if epoch == JOINS_EPOCH:
        _check_first(request)
    elif epoch == LEAVES_FOR_NOW_EPOCH:
        if request.instance_id is None:
            raise _invalid("InstanceId can't be null.")
    elif epoch < LEAVES_FOR_NOW_EPOCH:
        raise _invalid("MemberEpoch is invalid.")
    assignors = services.config["group.consumer.assignors"]
    if request.server_assignor is not None and request.server_assignor not in assignors:
        raise KafkaError(
            ErrorCode.UNSUPPORTED_ASSIGNOR,
            f"ServerAssignor {request.server_assignor} is not supported. Supported assignors:"
            f" {', '.join(assignors)}.",
        )
    if request.subscribed_topic_regex:
        try:
            NameExpression(request.subscribed_topic_regex)
        except ExpressionError as error:
            raise KafkaError(
                ErrorCode.INVALID_REGULAR_EXPRESSION,
                f"SubscribedTopicRegex `{request.subscribed_topic_regex}` is not a valid regular"
                f" expression: {error}.",
            ) from error
    texts = (
        request.group_id, request.member_id, request.instance_id, request.rack_id,
        request.subscribed_topic_regex, call.session.client_id,
        *(request.subscribed_topic_names or ()),
    )  # fmt: skip
    if not all(map(can_be_told, texts)):
        raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR)


def _check_first(request: Request) -> None:
    if request.rebalance_timeout_ms == NO_TIMEOUT:
        raise _invalid("RebalanceTimeoutMs must be provided in first request.")
    if request.topic_partitions is None or request.topic_partitions:
        raise _invalid("TopicPartitions must be empty when (re-)joining.")
    if request.subscribed_topic_names is None and request.subscribed_topic_regex is None:
        raise _invalid(
            "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when"
            " (re-)joining."
        )


def _owned(topics: list[TopicPartitions] | None) -> dict[UUID, frozenset[int]] | None:
    if topics is None:
        return None
    owned: dict[UUID, set[int]] = {}
    for each in topics:
        if each.topic_id is not None and each.partitions:
            owned.setdefault(each.topic_id, set()).update(each.partitions)
    return {topic_id: frozenset(some) for topic_id, some in owned.items()}


def _answer(call: Call[Request], answer: HeartbeatAnswer) -> None:
    table = messages.consumer_group_heartbeat
    call.answer(
        table.Response(
            error_code=answer.code,
            error_message=_message(answer),
            member_id=answer.member_id,
            member_epoch=answer.epoch,
            heartbeat_interval_ms=answer.interval_ms,
            assignment=_assignment(answer),
        )
    )


def _message(answer: HeartbeatAnswer) -> str | None:
    return None if answer.message is None else short_message(answer.message)


def _assignment(answer: HeartbeatAnswer) -> Assignment | None:
    table = messages.consumer_group_heartbeat
    if answer.assignment is None:
        return None
    return table.Assignment(
        topic_partitions=[
            table.TopicPartitions(topic_id=topic_id, partitions=sorted(some))
            for topic_id, some in sorted(answer.assignment.items(), key=lambda item: item[0].bytes)
        ]
    )
