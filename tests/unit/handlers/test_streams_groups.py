"""StreamsGroupHeartbeat: the topics of an application, and the rights to create them."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from kbroker.coordinator.streams_group.images import InternalTopic, TaskSet
from kbroker.coordinator.streams_group.messages import (
    HeartbeatAsked,
    HeartbeatDone,
    StreamsAnswer,
)
from kbroker.coordinator.streams_group.topology import Status, StatusCode
from kbroker.errors import ErrorCode
from kbroker.handlers.streams_topics import CREATIONS_MAX, StreamsTopics
from kbroker.metadata.controller.decisions import TopicResult
from kbroker.metadata.features import STREAMS_VERSION, first_features
from kbroker.protocol.messages import streams_group_heartbeat as table
from kbroker.security.rights import Operation, ResourceType
from kbroker.types import ApiKey
from tests.unit.handlers.support import FakeBroker, answer_of

STORE = InternalTopic("store", 3, 1, (("cleanup.policy", "compact"),))
MISSING = Status(StatusCode.MISSING_INTERNAL_TOPICS, "Internal topics are missing: store")
KEEP_MS = 10_000


class FakeGroups:
    """Answers each heartbeat alike."""

    def __init__(self, done: HeartbeatDone) -> None:
        self.done = done
        self.asked: list[HeartbeatAsked] = []

    def heartbeat(self, asked: HeartbeatAsked, answer: Callable[[StreamsAnswer], object]) -> None:
        self.asked.append(asked)
        answer(StreamsAnswer(ErrorCode.NONE, None, asked.member_id, 2, 5_000, self.done))

    def heartbeat_interval_ms(self, group_id: str) -> int:
        return 5_000


class Authorizer:
    """Denies one operation on some types of resources."""

    def __init__(self, operation: Operation, *types: ResourceType) -> None:
        self._denies = operation, types

    def authorize(
        self, session: Any, operation: Operation, resources: Any, *_: Any, **__: Any
    ) -> Any:
        denied, types = self._denies
        return [each for each in resources if operation is denied and each.type in types]


def denies(operation: Operation, *types: ResourceType) -> Any:
    return Authorizer(operation, *types)


def broker_of(done: HeartbeatDone) -> tuple[FakeBroker, FakeGroups]:
    broker, groups = FakeBroker(), FakeGroups(done)
    broker.services.streams_groups = lambda: groups  # type: ignore[assignment,return-value]
    levels = first_features().changed({STREAMS_VERSION: 1})
    broker.controller.publish(broker.controller.image.with_features(levels))
    return broker, groups


def ask(broker: FakeBroker, **how: Any) -> Any:
    fields = {"group_id": "g", "member_id": "m", "member_epoch": 2, **how}
    request = table.Request(endpoint_information_epoch=-1, **fields)
    return send(broker, request.encode(0))


def send(broker: FakeBroker, body: bytes) -> Any:
    return answer_of(broker.send(ApiKey.STREAMS_GROUP_HEARTBEAT, 0, body))


def status(broker: FakeBroker) -> list[tuple[int, str]]:
    answer = ask(broker)
    return [(each.status_code, each.status_detail) for each in answer.status]


def test_missing_topics_are_created_once() -> None:
    broker, _ = broker_of(HeartbeatDone(statuses=(MISSING,), missing=(STORE,)))
    assert status(broker) == [(3, MISSING.detail)]
    topic = broker.controller.image.topic("store")
    assert topic is not None
    assert (len(topic.partitions), dict(topic.configs)) == (3, dict(STORE.configs))


def test_topics_that_are_created_are_in_the_audit_log() -> None:
    broker, _ = broker_of(HeartbeatDone(statuses=(MISSING,), missing=(STORE,)))
    records: list[dict[str, Any]] = []
    audit: Any = SimpleNamespace(note=lambda kind, make: records.append(make()))
    broker.services.audit = audit
    status(broker)
    (record,) = records
    assert (record["event"], record["outcome"]) == ("AutoCreateTopics", "done")
    assert record["items"] == [{"resource": "topic:store"}]


def test_the_answer_names_topics_that_the_client_may_not_create() -> None:
    broker, _ = broker_of(HeartbeatDone(statuses=(MISSING,), missing=(STORE,)))
    broker.services.authorizer = denies(Operation.CREATE, ResourceType.CLUSTER, ResourceType.TOPIC)
    assert status(broker) == [(3, f"{MISSING.detail}; Unauthorized to CREATE on topics store.")]
    assert broker.controller.image.topic("store") is None


@pytest.mark.parametrize("type_", [ResourceType.CLUSTER, ResourceType.TOPIC])
def test_one_right_to_create_is_enough(type_: ResourceType) -> None:
    broker, _ = broker_of(HeartbeatDone(statuses=(MISSING,), missing=(STORE,)))
    broker.services.authorizer = denies(Operation.CREATE, type_)
    assert status(broker) == [(3, MISSING.detail)]
    assert broker.controller.image.topic("store") is not None


def test_the_answer_says_for_a_while_why_a_topic_cannot_be_created() -> None:
    wanted = STORE._replace(replication_factor=3)
    broker, groups = broker_of(HeartbeatDone(statuses=(MISSING,), missing=(wanted,)))
    status(broker)
    ((_, words),) = status(broker)
    assert words.startswith(f"{MISSING.detail}; Creation failed: store (")
    groups.done = HeartbeatDone()
    assert status(broker) == []
    broker.elapse(KEEP_MS)
    assert not broker.services.streams_topics.failures(["store"], broker.clock.monotonic_ms())


def test_an_answer_that_cannot_be_made_is_an_error() -> None:
    """It may be made on another thread, where an exception would be answered by nothing else."""
    broker, _ = broker_of(HeartbeatDone())
    later: list[Callable[[StreamsAnswer], object]] = []
    groups: Any = SimpleNamespace(heartbeat=lambda asked, answer: later.append(answer))
    broker.services.streams_groups = lambda: groups  # type: ignore[assignment,return-value]
    body = table.Request(
        group_id="g", member_id="m", member_epoch=2, endpoint_information_epoch=-1
    ).encode(0)
    request = broker.send(ApiKey.STREAMS_GROUP_HEARTBEAT, 0, body)
    # The interval cannot be asked for.
    later[0](StreamsAnswer(done=HeartbeatDone(statuses=(MISSING,), missing=(STORE,))))
    assert answer_of(request).error_code.value == ErrorCode.UNKNOWN_SERVER_ERROR


def test_a_topic_that_may_not_be_described_fails_the_request() -> None:
    broker, groups = broker_of(HeartbeatDone(tasks=TaskSet()))
    broker.services.authorizer = denies(Operation.DESCRIBE, ResourceType.TOPIC)
    part = table.Subtopology(
        subtopology_id="0", source_topics=["t"], source_topic_regex=[], state_changelog_topics=[],
        repartition_sink_topics=[], repartition_source_topics=[], copartition_groups=[],
    )  # fmt: skip
    topology = table.Topology(epoch=0, subtopologies=[part])
    answer = ask(broker, member_epoch=0, topology=topology)
    assert answer.error_code.value == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert not groups.asked


def test_a_topology_of_an_epoch_below_0_is_refused() -> None:
    broker, groups = broker_of(HeartbeatDone(tasks=TaskSet()))
    how: dict[str, Any] = {"member_epoch": 0, "rebalance_timeout_ms": 5, "process_id": "p"}
    none: dict[str, Any] = {"active_tasks": [], "standby_tasks": [], "warmup_tasks": []}
    codes = [
        ask(broker, topology=table.Topology(epoch=epoch, subtopologies=[]), **how, **none)
        for epoch in (-1, 0)
    ]
    assert [each.error_code.value for each in codes] == [ErrorCode.INVALID_REQUEST, 0]
    assert len(groups.asked) == 1


def test_a_text_that_no_record_has_room_for_is_refused() -> None:
    broker, groups = broker_of(HeartbeatDone(tasks=TaskSet()))
    request = table.Request(
        group_id="g", member_id="m", member_epoch=2, endpoint_information_epoch=-1,
        process_id="x" * 20_000,
    )  # fmt: skip
    # Each of these bytes is read as U+FFFD, which has three bytes.
    answer = send(broker, request.encode(0).replace(b"x" * 20_000, b"\xff" * 20_000))
    assert answer.error_code.value == ErrorCode.UNKNOWN_SERVER_ERROR
    assert not groups.asked


class Creator:
    """A controller that answers when the test says so."""

    def __init__(self) -> None:
        self.asked: list[tuple[list[Any], Callable[[Any], None]]] = []

    def create_topics(
        self, specs: Any, validate_only: bool, done: Callable[[Any], None], charge: Any = None
    ) -> None:
        assert not validate_only
        self.asked.append((list(specs), done))


def test_creations_under_way_are_not_repeated_and_bounded() -> None:
    topics, creator, clock = StreamsTopics(), Creator(), FakeBroker().clock
    many = [STORE._replace(name=f"s{n}") for n in range(CREATIONS_MAX + 1)]
    topics.create(creator, many[:2], clock, KEEP_MS)
    topics.create(creator, many, clock, KEEP_MS)
    topics.create(creator, many, clock, KEEP_MS)
    assert [len(specs) for specs, _ in creator.asked] == [2, CREATIONS_MAX - 2]
    for specs, done in creator.asked:
        done([TopicResult(each.name, ErrorCode.INVALID_CONFIG, "no") for each in specs])
    now_ms = clock.monotonic_ms()
    assert topics.failures(["s0", "s5", "other"], now_ms) == {"s0": "no", "s5": "no"}
    topics.create(creator, many[:1], clock, KEEP_MS)
    creator.asked[-1][1]([TopicResult("s0")])
    assert topics.failures(["s0"], now_ms) == {}


def test_a_creation_that_cannot_begin_is_not_under_way() -> None:
    topics, clock = StreamsTopics(), FakeBroker().clock

    class Raises:
        def create_topics(self, *_: Any) -> None:
            raise RuntimeError("planted")

    with pytest.raises(RuntimeError):
        topics.create(Raises(), [STORE], clock, KEEP_MS)
    creator = Creator()
    topics.create(creator, [STORE], clock, KEEP_MS)
    assert len(creator.asked) == 1
