"""StreamsGroupHeartbeat (88): a member of a streams group joins, stays, and leaves (KIP-1071).

The answer comes when the followers have what the heartbeat has changed, perhaps from another
thread. A request that is wrong by itself is refused here, with Apache Kafka's words. Topics of the
application that are missing are created for a client that may create them: then a later heartbeat
finds them; else the answer says that it may not.

Any handler thread; holds no lock.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

from kbroker.coordinator.consumer_group.images import (
    JOINS_EPOCH,
    LEAVES_EPOCH,
    LEAVES_FOR_NOW_EPOCH,
)
from kbroker.coordinator.consumer_group.messages import NO_TIMEOUT
from kbroker.coordinator.streams_group.images import (
    CopartitionGroup,
    Endpoint,
    InternalTopic,
    Pairs,
    Subtopology,
    Tasks,
    TaskSet,
    TopologyImage,
    tasks_of,
)
from kbroker.coordinator.streams_group.messages import HeartbeatAsked
from kbroker.coordinator.streams_group.topology import Status, StatusCode, in_words
from kbroker.errors import ErrorCode, KafkaError
from kbroker.handlers.authorization import denied, may_on_cluster
from kbroker.handlers.mutations import Mutations
from kbroker.handlers.reply import short_message
from kbroker.handlers.topic_creation import topic_creator
from kbroker.metadata.image import INTERNAL_TOPICS
from kbroker.metadata.topic_names import invalid_topic_name
from kbroker.outside_text import can_be_told
from kbroker.protocol import messages
from kbroker.security.rights import Operation, ResourceType

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kbroker.coordinator.streams_group.messages import (
        EndpointPartitions,
        HeartbeatDone,
        StreamsAnswer,
    )
    from kbroker.handlers.call import Call
    from kbroker.handlers.services import Services
    from kbroker.protocol.messages import streams_group_heartbeat as table
    from kbroker.protocol.messages.streams_group_heartbeat import Request, Response

# A failure to create a topic is in the answers for so many of the group's heartbeat intervals.
_FAILURE_INTERVALS: Final = 2


def handle(services: Services, call: Call[Request]) -> None:
    request = call.message
    if request.topology is not None:
        _check_topics(services, call, sorted(set(_named(request.topology))))
    _check_supported(request)
    _check(request)
    asked = HeartbeatAsked(
        request.group_id,
        request.member_id,
        request.member_epoch,
        request.endpoint_information_epoch,
        request.rack_id,
        request.rebalance_timeout_ms,
        None if request.topology is None else _topology(request.topology),
        _owned(request),
        request.process_id,
        None if request.user_endpoint is None else _endpoint(request.user_endpoint),
        None if request.client_tags is None else _tags(request.client_tags),
        request.shutdown_application,
        call.session.client_id or "",
        f"/{call.session.client_host}",
    )
    if not all(map(can_be_told, _texts(asked))):
        raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR)
    services.streams_groups().heartbeat(asked, partial(_answer, services, call))


# --- requests that are wrong by themselves --------------------------------------------------------


def _named(topology: table.Topology) -> Iterator[str]:
    for part in topology.subtopologies:
        yield from part.source_topics
        yield from part.repartition_sink_topics
        yield from (each.name for each in part.repartition_source_topics)
        yield from (each.name for each in part.state_changelog_topics)


def _check_topics(services: Services, call: Call[Request], names: Sequence[str]) -> None:
    internal = [name for name in names if name in INTERNAL_TOPICS]
    if internal:
        raise KafkaError(
            ErrorCode.STREAMS_INVALID_TOPOLOGY,
            f"Use of Kafka internal topics {in_words(internal)} in a Kafka Streams topology is"
            " prohibited.",
        )
    invalid = [name for name in names if invalid_topic_name(name) is not None]
    if invalid:
        words = f"Topic names {in_words(invalid)} are not valid topic names."
        raise KafkaError(ErrorCode.STREAMS_INVALID_TOPOLOGY, words)
    if denied(services, call, Operation.DESCRIBE, ResourceType.TOPIC, names):
        raise KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)


def _invalid(words: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REQUEST, words)


def _check_supported(request: Request) -> None:
    """KafkaError: it uses what Apache Kafka 4.3 does not serve yet."""
    if request.instance_id is not None:
        raise _invalid("Static membership is not yet supported.")
    if request.task_offsets is not None:
        raise _invalid("TaskOffsets are not supported yet.")
    if request.task_end_offsets is not None:
        raise _invalid("TaskEndOffsets are not supported yet.")
    if request.warmup_tasks:
        raise _invalid("WarmupTasks are not supported yet.")
    for part in () if request.topology is None else request.topology.subtopologies:
        if part.source_topic_regex:
            raise _invalid("Regular expressions for source topics are not supported yet.")


def _check(request: Request) -> None:
    """KafkaError: the mistake in the request itself."""
    if not request.member_id.strip():
        raise _invalid("MemberId can't be empty.")
    if not request.group_id.strip():
        raise _invalid("GroupId can't be empty.")
    if request.rack_id is not None and not request.rack_id.strip():
        raise _invalid("RackId can't be empty.")
    lists = {
        "ActiveTasks": request.active_tasks,
        "StandbyTasks": request.standby_tasks,
        "WarmupTasks": request.warmup_tasks,
    }
    if request.member_epoch == JOINS_EPOCH:
        if request.rebalance_timeout_ms == NO_TIMEOUT:
            raise _invalid("RebalanceTimeoutMs must be provided in first request.")
        for name, some in lists.items():
            if some is None or some:
                raise _invalid(f"{name} must be empty when (re-)joining.")
        if request.topology is None:
            raise _invalid("Topology must be non-null when (re-)joining.")
    elif request.member_epoch == LEAVES_FOR_NOW_EPOCH:
        raise _invalid("InstanceId can't be null.")
    elif request.member_epoch < LEAVES_EPOCH:
        epoch = request.member_epoch
        raise _invalid(f"MemberEpoch is {epoch}, but must be greater than or equal to -2.")
    if any(some is not None for some in lists.values()) and None in lists.values():
        raise _invalid("If one task-type is non-null, all must be non-null.")
    if request.topology is not None and request.topology.epoch < 0:
        raise _invalid(f"The topology's epoch is {request.topology.epoch}, which is below 0.")
    if request.member_epoch != JOINS_EPOCH and request.topology is not None:
        raise _invalid("Topology can only be provided when (re-)joining.")
    for part in lists.values():
        if any(index < 0 for each in part or () for index in each.partitions):
            raise _invalid("A task of a partition below 0.")


def _texts(asked: HeartbeatAsked) -> Iterator[str | None]:
    yield from (asked.group_id, asked.member_id, asked.rack_id, asked.client_id, asked.process_id)
    yield None if asked.endpoint is None else asked.endpoint.host
    yield from (text for pair in asked.tags or () for text in pair)
    for part in () if asked.topology is None else asked.topology.subtopologies:
        yield part.subtopology_id
        for topic in (*part.changelogs, *part.repartition_sources):
            yield from (text for pair in topic.configs for text in pair)


# --- what it says ---------------------------------------------------------------------------------


def _topology(topology: table.Topology) -> TopologyImage:
    return TopologyImage(topology.epoch, tuple(map(_part, topology.subtopologies)))


def _part(part: table.Subtopology) -> Subtopology:
    """The arrays keep their order: groups of topics name positions in them."""
    return Subtopology(
        part.subtopology_id,
        tuple(part.source_topics),
        (),
        tuple(map(_internal, part.state_changelog_topics)),
        tuple(part.repartition_sink_topics),
        tuple(map(_internal, part.repartition_source_topics)),
        tuple(
            CopartitionGroup(
                tuple(each.source_topics),
                tuple(each.source_topic_regex),
                tuple(each.repartition_source_topics),
            )
            for each in part.copartition_groups
        ),
    )


def _internal(topic: table.TopicInfo) -> InternalTopic:
    pairs = tuple((each.key, each.value) for each in topic.topic_configs)
    return InternalTopic(topic.name, topic.partitions, topic.replication_factor, pairs)


def _owned(request: Request) -> TaskSet | None:
    if request.active_tasks is None:
        return None
    return TaskSet(
        _tasks(request.active_tasks),
        _tasks(request.standby_tasks or ()),
        _tasks(request.warmup_tasks or ()),
    )


def _tasks(some: Iterable[table.TaskIds]) -> Tasks:
    return tasks_of((each.subtopology_id, each.partitions) for each in some)


def _endpoint(endpoint: table.Endpoint) -> Endpoint:
    return Endpoint(endpoint.host, endpoint.port)


def _tags(tags: Iterable[table.KeyValue]) -> Pairs:
    return tuple(sorted({each.key: each.value for each in tags}.items()))


# --- the answer -----------------------------------------------------------------------------------


def _answer(services: Services, call: Call[Request], answer: StreamsAnswer) -> None:
    call.answer_made(lambda: _response(services, call, answer))


def _response(services: Services, call: Call[Request], answer: StreamsAnswer) -> Response:
    table = messages.streams_group_heartbeat
    response = table.Response(
        error_code=answer.code,
        error_message=short_message(answer.message),
        member_id=answer.member_id,
        member_epoch=answer.epoch,
        heartbeat_interval_ms=answer.interval_ms,
        status=[],
    )
    if answer.done is not None:
        _tell(services, call, response, answer.done)
    return response


def _tell(services: Services, call: Call[Request], response: Response, done: HeartbeatDone) -> None:
    table = messages.streams_group_heartbeat
    statuses = done.statuses
    if done.missing:
        statuses = _create(services, call, done)
    response.status = [
        table.Status(status_code=each.code, status_detail=short_message(each.detail) or "")
        for each in statuses
    ]
    if done.tasks is not None:
        response.active_tasks = _task_ids(done.tasks.active)
        response.standby_tasks = _task_ids(done.tasks.standby)
        response.warmup_tasks = _task_ids(done.tasks.warmup)
    response.endpoint_information_epoch = done.endpoint_epoch
    if done.endpoints is not None:
        response.partitions_by_user_endpoint = list(map(_endpoint_partitions, done.endpoints))


def _task_ids(tasks: Tasks) -> list[table.TaskIds]:
    table = messages.streams_group_heartbeat
    return [
        table.TaskIds(subtopology_id=subtopology_id, partitions=sorted(some))
        for subtopology_id, some in sorted(tasks.items())
    ]


def _endpoint_partitions(found: EndpointPartitions) -> table.EndpointToPartitions:
    table = messages.streams_group_heartbeat
    return table.EndpointToPartitions(
        user_endpoint=table.Endpoint(host=found.endpoint.host, port=found.endpoint.port),
        active_partitions=_topic_partitions(found.active),
        standby_partitions=_topic_partitions(found.standby),
    )


def _topic_partitions(found: Mapping[str, tuple[int, ...]]) -> list[table.TopicPartition]:
    table = messages.streams_group_heartbeat
    return [
        table.TopicPartition(topic=topic, partitions=list(indexes))
        for topic, indexes in sorted(found.items())
    ]


def _create(services: Services, call: Call[Request], done: HeartbeatDone) -> tuple[Status, ...]:
    """Has the missing topics created; the statuses, with the reason why that is not possible."""
    names = [each.name for each in done.missing]
    if not may_on_cluster(services, call, Operation.CREATE, quiet=True):
        hidden = denied(services, call, Operation.CREATE, ResourceType.TOPIC, names)
        if hidden:
            words = f"Unauthorized to CREATE on topics {', '.join(sorted(hidden))}."
            return _with_words(done.statuses, words)
    interval_ms = services.streams_groups().heartbeat_interval_ms(call.message.group_id)
    topics, clock = services.streams_topics, services.clock
    noted = None
    if services.audit is not None:
        from kbroker.handlers.audited import auto_creation  # few have an audit log

        noted = auto_creation(services.audit, call.session)
    keep_ms = _FAILURE_INTERVALS * interval_ms
    charge = Mutations(services, call).charge
    topics.create(topic_creator(services), done.missing, clock, keep_ms, noted, charge)
    failures = topics.failures(names, clock.monotonic_ms())
    if not failures:
        return done.statuses
    words = in_words([f"{name} ({why})" for name, why in sorted(failures.items())])
    return _with_words(done.statuses, f"Creation failed: {words}.")


def _with_words(statuses: Iterable[Status], words: str) -> tuple[Status, ...]:
    return tuple(
        each._replace(detail=f"{each.detail}; {words}")
        if each.code is StatusCode.MISSING_INTERNAL_TOPICS
        else each
        for each in statuses
    )
