"""ElectLeaders (43): have the preferred replica lead, or any replica that lives (KIP-183, KIP-460).

A partition whose leader is the one that would be elected needs no election, which is an answer of
its own; so it is for every partition of a cluster of one broker. Where no replica can be elected,
the answer says which kind of replica is missing. In an answer for all partitions (null), those that
need no election are left out, as in Apache Kafka, and their topics are not.

Most answers are in the image: what does not exist, or has the leader that was asked for. Only what
is left, each partition once, is handed to the controller, whose thread answers then.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kbroker.errors import ErrorCode, KafkaError
from kbroker.handlers.delayed import await_decision
from kbroker.handlers.reply import short_message
from kbroker.metadata.controller.partition_states import ELECTION_NOT_NEEDED
from kbroker.metadata.image import NO_LEADER
from kbroker.protocol import messages
from kbroker.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kbroker.handlers.call import Call
    from kbroker.handlers.services import Services
    from kbroker.metadata.controller.events import Outcomes
    from kbroker.metadata.image import ClusterImage, PartitionImage
    from kbroker.protocol.messages.elect_leaders import PartitionResult, Request, Response

PREFERRED: Final = 0
UNCLEAN: Final = 1

# A topic and the partitions of it that are asked for.
Wanted = tuple[str, list[int]]


def handle(services: Services, call: Call[Request]) -> None:
    request = call.message
    kind = request.election_type
    if kind not in (PREFERRED, UNCLEAN):
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"there is no election of type {kind}")
    if request.timeout_ms <= 0:
        raise KafkaError(ErrorCode.REQUEST_TIMED_OUT)
    image = services.controller.image
    if request.topic_partitions is None:
        topics = [(name, _to_elect(image, name, kind)) for name in sorted(image.topics)]
    else:
        topics = [(each.topic, each.partitions) for each in request.topic_partitions]
    wanted = _wanted(image, topics, kind)
    if not wanted:
        call.answer(_response(image, topics, {}))
        return

    def finish(elections: Outcomes) -> Response:
        return _response(image, topics, dict(elections))

    done = await_decision(services.purgatories.elect_leader, call, request.timeout_ms, finish)
    services.controller.elect_leaders(kind == UNCLEAN, wanted, done)


def _to_elect(image: ClusterImage, name: str, kind: int) -> list[int]:
    return [each.index for each in image.topics[name].partitions if not _has_leader(each, kind)]


def _wanted(image: ClusterImage, topics: list[Wanted], kind: int) -> list[TopicPartition]:
    """What the controller must decide."""
    wanted: dict[TopicPartition, None] = {}
    for name, indexes in topics:
        for index in indexes:
            partition = image.partition(name, index)
            if partition is not None and not _has_leader(partition, kind):
                wanted[TopicPartition(name, index)] = None
    return list(wanted)


def _response(
    image: ClusterImage,
    topics: list[Wanted],
    decided: Mapping[TopicPartition, KafkaError | None],
) -> Response:
    table = messages.elect_leaders
    return table.Response(
        replica_election_results=[
            table.ReplicaElectionResult(
                topic=name,
                partition_result=[_result(image, name, index, decided) for index in indexes],
            )
            for name, indexes in topics
        ]
    )


def _result(
    image: ClusterImage,
    name: str,
    index: int,
    decided: Mapping[TopicPartition, KafkaError | None],
) -> PartitionResult:
    error: KafkaError | None
    if image.partition(name, index) is None:
        what = f"partition {name}-{index}" if name in image.topics else f"topic '{name}'"
        error = KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no {what}")
    else:
        error = decided.get(TopicPartition(name, index), ELECTION_NOT_NEEDED)
    return messages.elect_leaders.PartitionResult(
        partition_id=index,
        error_code=ErrorCode.NONE if error is None else error.code,
        error_message=None if error is None else short_message(error.message),
    )


def _has_leader(partition: PartitionImage, kind: int) -> bool:
    """An unclean election is for partitions without a leader only."""
    if kind == PREFERRED:
        return partition.leader == partition.replicas[0]
    return partition.leader != NO_LEADER


def failure(call: Call[Request], code: ErrorCode, message: str | None) -> Response:
    """Every partition that was named gets the code, beside the request itself."""
    table = messages.elect_leaders
    words = message if message != code.name else None
    return table.Response(
        error_code=code,
        replica_election_results=[
            table.ReplicaElectionResult(
                topic=each.topic,
                partition_result=[
                    table.PartitionResult(partition_id=index, error_code=code, error_message=words)
                    for index in each.partitions
                ],
            )
            for each in call.message.topic_partitions or ()
        ],
    )
