"""The requests of members to a streams group, its answers, and its description, free of versions
and bytes.

Immutable.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from kbroker.coordinator.consumer_group.messages import NO_TIMEOUT
from kbroker.errors import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kbroker.coordinator.streams_group.images import (
        Endpoint,
        InternalTopic,
        MemberImage,
        Pairs,
        Subtopology,
        TaskSet,
        TopologyImage,
    )
    from kbroker.coordinator.streams_group.state import StreamsGroupLabel
    from kbroker.coordinator.streams_group.topology import Status


class HeartbeatAsked(NamedTuple):
    """A StreamsGroupHeartbeat. None: as before. `endpoint_epoch`: of the endpoints that the member
    knows."""

    group_id: str
    member_id: str
    epoch: int
    endpoint_epoch: int = -1
    rack_id: str | None = None
    rebalance_timeout_ms: int = NO_TIMEOUT
    topology: TopologyImage | None = None
    owned: TaskSet | None = None
    process_id: str | None = None
    endpoint: Endpoint | None = None
    tags: Pairs | None = None
    shuts_down: bool = False
    client_id: str = ""
    client_host: str = ""


class EndpointPartitions(NamedTuple):
    """What the process at an endpoint has: topic -> partitions."""

    endpoint: Endpoint
    active: Mapping[str, tuple[int, ...]]
    standby: Mapping[str, tuple[int, ...]]


class HeartbeatDone(NamedTuple):
    """What a member is answered with beside its epoch; `tasks` None: as before. `missing`: topics
    that the broker is to make."""

    tasks: TaskSet | None = None
    statuses: tuple[Status, ...] = ()
    endpoint_epoch: int = 0
    endpoints: tuple[EndpointPartitions, ...] | None = None
    missing: tuple[InternalTopic, ...] = ()


class StreamsAnswer(NamedTuple):
    """`done` None: with an error, or to a member that leaves."""

    code: ErrorCode = ErrorCode.NONE
    message: str | None = None
    member_id: str = ""
    epoch: int = 0
    interval_ms: int = 0
    done: HeartbeatDone | None = None


AnswerStreams = Callable[[StreamsAnswer], object]


class DescribedMember(NamedTuple):
    member_id: str
    epoch: int
    member: MemberImage
    assigned: TaskSet
    target: TaskSet


class Description(NamedTuple):
    """A group as StreamsGroupDescribe has it. `subtopologies`: their own topics have as many
    partitions as were found."""

    group_id: str
    state: StreamsGroupLabel
    epoch: int
    assignment_epoch: int
    topology_epoch: int | None
    subtopologies: tuple[Subtopology, ...]
    topics: frozenset[str]
    members: tuple[DescribedMember, ...]
