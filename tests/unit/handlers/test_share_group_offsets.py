"""APIs 90 to 92 by kio: offsets of share groups, with a group coordinator and states that the test
holds in its hand. The answers of Apache Kafka are in tests/parity."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any
from uuid import UUID

import pytest

from kbroker import limits
from kbroker.coordinator.share import gathering
from kbroker.coordinator.share.images import SharePartition
from kbroker.coordinator.share.seams import Outcome, Summary
from kbroker.coordinator.share_group.messages import AlterAsked, Altered, OffsetsDeleted
from kbroker.errors import ErrorCode
from kbroker.handlers import describe_share_group_offsets
from kbroker.types import ApiKey, TopicPartition
from tests.unit.handlers.support import FakeBroker, answer_of, part_of, request_of

DESCRIBE = ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS
ALTER = ApiKey.ALTER_SHARE_GROUP_OFFSETS
DELETE = ApiKey.DELETE_SHARE_GROUP_OFFSETS
NONE = ErrorCode.NONE
Topics = Mapping[str, Iterable[int]] | None


class Shares:
    """`Services.share`: summaries and ends."""

    def __init__(self) -> None:
        self.summaries: dict[SharePartition, Summary] = {}
        self.ends: dict[TopicPartition, int | ErrorCode] = {}
        self.asked: list[SharePartition] = []
        self.waiting: list[Callable[[], object]] | None = None
        self.handed_over: list[Callable[[], object]] | None = None  # None: done at once
        self.gone = False
        self.coordinator = None

    @property
    def persister(self) -> Any:
        return self

    def summary(self, key: SharePartition, leader_epoch: int, done: Any) -> None:
        self.asked.append(key)
        answer = self.summaries.get(key, Summary())
        if self.waiting is None:
            done(answer)
        else:
            self.waiting.append(lambda: done(answer))

    def latest_offsets(self, places: Iterable[TopicPartition], done: Any) -> None:
        done({place: self.ends[place] for place in places})

    def call_soon(self, call: Callable[[], object]) -> None:
        if self.handed_over is None:
            call()
        else:
            self.handed_over.append(call)

    def has_left(self, request: Any) -> bool:
        assert request.answer is None
        return self.gone


class Groups:
    """`Services.share_groups`."""

    def __init__(self) -> None:
        self.error = NONE
        self.states: dict[str, Mapping[UUID, frozenset[int]]] = {}
        self.altered: list[tuple[AlterAsked, Callable[[Altered], object]]] = []
        self.deleted: list[tuple[str, Any, Callable[[OffsetsDeleted], object]]] = []
        self.looked = 0

    def offsets_error(self, group_id: str) -> ErrorCode:
        return self.error

    def topics_with_state(self, group_id: str) -> Mapping[UUID, frozenset[int]]:
        self.looked += 1
        return self.states.get(group_id, {})

    def alter(self, asked: AlterAsked, answer: Callable[[Altered], object]) -> None:
        self.altered.append((asked, answer))

    def delete_offsets(self, group_id: str, topics: Any, answer: Any) -> None:
        self.deleted.append((group_id, topics, answer))


class World(FakeBroker):
    def __init__(self, level: int = 1) -> None:
        super().__init__()
        self.share, self.share_groups = Shares(), Groups()
        share: Any = self.share
        self.services.share = share
        groups: Any = self.share_groups
        self.services.share_groups = lambda: groups
        image = self.controller.image
        self.controller.publish(
            image.with_features(image.features.changed({"share.version": level}))
        )
        self.create("t", partitions=3)

    @property
    def topic_id(self) -> UUID:
        topic = self.controller.image.topic("t")
        assert topic is not None
        return topic.topic_id

    def key(self, index: int, group: str = "g") -> SharePartition:
        return SharePartition(group, self.topic_id, index)

    def state(self, index: int, summary: Summary, end: int | ErrorCode = 0) -> None:
        self.share.summaries[self.key(index)] = summary
        self.share.ends[TopicPartition("t", index)] = end


def described(version: int, *groups: tuple[str, Topics]) -> Any:
    return request_of(
        DESCRIBE,
        version,
        groups=tuple(
            part_of(
                DESCRIBE, version, "DescribeShareGroupOffsetsRequestGroup", group_id=group,
                topics=None if topics is None else tuple(
                    part_of(
                        DESCRIBE, version, "DescribeShareGroupOffsetsRequestTopic",
                        topic_name=name, partitions=tuple(some),
                    )
                    for name, some in topics.items()
                ),
            )
            for group, topics in groups
        ),
    )  # fmt: skip


def altered(*topics: tuple[str, Mapping[int, int]], group: str = "g") -> Any:
    return request_of(
        ALTER,
        0,
        group_id=group,
        topics=tuple(
            part_of(
                ALTER, 0, "AlterShareGroupOffsetsRequestTopic", topic_name=name,
                partitions=tuple(
                    part_of(
                        ALTER, 0, "AlterShareGroupOffsetsRequestPartition",
                        partition_index=index, start_offset=start,
                    )
                    for index, start in starts.items()
                ),
            )
            for name, starts in topics
        ),
    )  # fmt: skip


def deleted(*names: str, group: str = "g") -> Any:
    topics = tuple(
        part_of(DELETE, 0, "DeleteShareGroupOffsetsRequestTopic", topic_name=name) for name in names
    )
    return request_of(DELETE, 0, group_id=group, topics=topics)


def rows(group: Any) -> dict[tuple[str, int], tuple[int, int, int, int]]:
    """Start, leader epoch, lag and error by topic and partition."""
    return {
        (topic.topic_name, each.partition_index): (
            each.start_offset, each.leader_epoch, getattr(each, "lag", -1), each.error_code.value,
        )
        for topic in group.topics
        for each in topic.partitions
    }  # fmt: skip


# --- description ----------------------------------------------------------------------------------


def test_the_lag_leaves_out_records_that_are_done() -> None:
    world = World()
    known = Summary(start_offset=5, leader_epoch=2, delivery_complete_count=3)
    world.state(0, known, end=20)
    world.state(1, known._replace(delivery_complete_count=-1), end=20)
    world.state(2, known, end=ErrorCode.NOT_LEADER_OR_FOLLOWER)
    (group,) = world.call(described(1, ("g", {"t": [0, 1, 2]}))).groups
    assert rows(group) == {
        ("t", 0): (5, 2, 12, 0),
        ("t", 1): (5, 2, -1, 0),
        ("t", 2): (0, 0, -1, ErrorCode.NOT_LEADER_OR_FOLLOWER),
    }
    (group,) = world.call(described(0, ("g", {"t": [0]}))).groups
    assert rows(group) == {("t", 0): (5, 2, -1, 0)}


def test_all_topics_of_a_group() -> None:
    world = World()
    world.state(1, Summary(start_offset=5, delivery_complete_count=0), end=6)
    world.share_groups.states = {"g": {world.topic_id: frozenset({1}), UUID(int=7): frozenset({0})}}
    (group,) = world.call(described(1, ("g", None))).groups
    assert rows(group) == {("t", 1): (5, 0, 1, 0)}
    assert group.topics[0].topic_id == world.topic_id
    world.share_groups.error = ErrorCode.NOT_COORDINATOR
    (group,) = world.call(described(1, ("g", None))).groups
    assert group.error_code.value == ErrorCode.NOT_COORDINATOR
    assert group.topics == ()


@pytest.mark.parametrize(
    ("code", "seen"),
    [
        (ErrorCode.INVALID_REQUEST, 0),
        (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, 0),
        (ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.REQUEST_TIMED_OUT, ErrorCode.REQUEST_TIMED_OUT),
    ],
)
def test_a_state_that_cannot_be_read_is_no_absence(code: ErrorCode, seen: int) -> None:
    world = World()
    world.state(0, Summary(code))
    (group,) = world.call(described(1, ("g", {"t": [0]}))).groups
    assert rows(group) == {("t", 0): (-1, 0, -1, seen)}


def test_only_partitions_that_exist_are_asked_for() -> None:
    world = World()
    (group,) = world.call(described(1, ("g", {"t": [0, 3, -1], "u": [0]}))).groups
    assert set(rows(group).values()) == {(-1, 0, -1, 0)}
    assert world.share.asked == [world.key(0)]


def test_the_response_waits_for_the_last_state() -> None:
    world = World()
    world.share.waiting = []
    request = world.ask(described(1, ("g", {"t": [0, 1]}), ("h", {"t": [2]})))
    while world.share.waiting:
        assert request.answer is None
        world.share.waiting.pop()()
    assert [len(rows(group)) for group in answer_of(request).groups] == [2, 1]


def test_the_thread_that_answers_makes_no_response() -> None:
    world = World()
    world.state(0, Summary(start_offset=0, delivery_complete_count=0), end=2)
    world.share.waiting, world.share.handed_over = [], []
    request = world.ask(described(1, ("g", {"t": [0]})))
    world.share.waiting.pop()()
    for _ in range(2):  # for the ends of the partitions, and for the response
        assert request.answer is None
        (call,) = world.share.handed_over
        world.share.handed_over.clear()
        call()
    (group,) = answer_of(request).groups
    assert rows(group) == {("t", 0): (0, 0, 2, 0)}


def test_a_handler_that_cannot_be_had_is_an_answer() -> None:
    world = World()

    def call_soon(call: Callable[[], object]) -> None:
        raise MemoryError

    share: Any = world.share
    share.call_soon = call_soon
    answer = world.call(described(1, ("g", {"t": [0]})))
    assert answer.groups[0].error_code.value == ErrorCode.UNKNOWN_SERVER_ERROR


def test_work_of_answers_that_fails_is_an_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(summary: Summary) -> bool:
        raise MemoryError

    monkeypatch.setattr(describe_share_group_offsets, "_has_lag", fails)
    answer = World().call(described(1, ("g", {"t": [0]})))
    assert answer.groups[0].error_code.value == ErrorCode.UNKNOWN_SERVER_ERROR


@pytest.mark.parametrize("leaves", [False, True])
def test_after_some_time_no_more_states_are_asked_for(
    monkeypatch: pytest.MonkeyPatch, leaves: bool
) -> None:
    """Soon, when the client has left."""
    monkeypatch.setattr(gathering, "WINDOW", 1)
    world, module = World(), describe_share_group_offsets
    world.share.waiting, world.share.gone = [], leaves
    request = world.ask(described(1, ("g", {"t": range(3)})))
    world.clock.advance((module.LEFT_MS_MAX if leaves else module.DESCRIBE_MS_MAX) - 1)
    world.share.waiting.pop()()
    world.clock.advance(1)
    world.share.waiting.pop()()
    assert not world.share.waiting
    (group,) = answer_of(request).groups
    late = (-1, 0, -1, ErrorCode.REQUEST_TIMED_OUT)
    assert rows(group) == {("t", 0): (-1, 0, -1, 0), ("t", 1): (-1, 0, -1, 0), ("t", 2): late}


def test_a_request_names_a_bounded_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "SHARE_PARTITIONS_DESCRIBED_MAX", 4)
    world = World()
    every: Topics = {"t": range(3)}
    answer = world.call(described(1, ("g", every), ("h", every), ("i", {"t": [0]})))
    found = [group.error_code.value for group in answer.groups]
    assert found == [0, ErrorCode.INVALID_REQUEST, 0]
    assert len(world.share.asked) == 4


def test_a_group_that_is_named_again_is_answered_again_within_bounds(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(limits, "REPEATED_ANSWER_BYTES_MAX", 0)
    world = World()
    world.share_groups.states = {"g": {world.topic_id: frozenset(range(3))}}
    answer = world.call(described(1, *[("g", None)] * 100))
    assert len(answer.groups) == 100
    refused = [g for g in answer.groups if g.error_code.value == ErrorCode.INVALID_REQUEST]
    assert 0 < len(refused) < 99
    assert len(rows(answer.groups[0])) == 3
    assert world.share_groups.looked == 1
    assert len(world.share.asked) == 3


# --- alteration -----------------------------------------------------------------------------------


def test_known_partitions_are_altered() -> None:
    world = World()
    request = world.ask(altered(("t", {0: 5, 7: 5}), ("u", {0: 1}), ("t", {1: 6})))
    ((asked, answer),) = world.share_groups.altered
    assert asked.starts == {world.key(0): 5, world.key(1): 6}
    assert {k: (v.name, v.partitions) for k, v in asked.topics.items()} == {
        world.topic_id: ("t", frozenset({0, 1}))
    }
    assert request.answer is None
    fenced = Outcome(ErrorCode.FENCED_STATE_EPOCH, "no")
    answer(Altered(outcomes={world.key(0): Outcome(), world.key(1): fenced}))
    found = answer_of(request)
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert [
        (topic.topic_name, [(each.partition_index, each.error_code.value)
                            for each in topic.partitions])
        for topic in found.responses
    ] == [
        ("t", [(0, 0), (7, unknown)]), ("u", [(0, unknown)]),
        ("t", [(1, ErrorCode.FENCED_STATE_EPOCH)]),
    ]  # fmt: skip
    assert found.error_code.value == 0


def test_an_alteration_that_is_refused_as_a_whole() -> None:
    world = World()
    request = world.ask(altered(("t", {0: 5})))
    world.share_groups.altered[0][1](Altered(ErrorCode.NON_EMPTY_GROUP, "it has members"))
    found = answer_of(request)
    assert (found.error_code.value, found.error_message) == (
        ErrorCode.NON_EMPTY_GROUP, "it has members",
    )  # fmt: skip
    assert found.responses == ()


# --- deletion -------------------------------------------------------------------------------------


def test_offsets_of_known_topics_are_deleted() -> None:
    world = World()
    world.create("v", "w")
    request = world.ask(deleted("t", "u", "v", "w"))
    ((group_id, topics, answer),) = world.share_groups.deleted
    assert group_id == "g"
    assert [(each.name, len(each.partitions)) for each in topics.values()] == [
        ("t", 3), ("v", 1), ("w", 1),
    ]  # fmt: skip
    t, v, _ = topics
    answer(OffsetsDeleted(codes={t: NONE, v: ErrorCode.COORDINATOR_NOT_AVAILABLE}))
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    found = answer_of(request)
    assert [(each.topic_name, each.error_code.value) for each in found.responses] == [
        ("t", 0), ("u", unknown), ("v", ErrorCode.COORDINATOR_NOT_AVAILABLE), ("w", unknown),
    ]  # fmt: skip


def test_a_deletion_that_is_refused_as_a_whole() -> None:
    world = World()
    request = world.ask(deleted("t"))
    world.share_groups.deleted[0][2](OffsetsDeleted(ErrorCode.GROUP_ID_NOT_FOUND, "none"))
    found = answer_of(request)
    assert (found.error_code.value, found.responses) == (ErrorCode.GROUP_ID_NOT_FOUND, ())


# --- all of them ----------------------------------------------------------------------------------


def test_a_group_needs_a_name() -> None:
    world = World()
    for asked in (altered(("t", {0: 1}), group=""), deleted("t", group="")):
        assert world.call(asked).error_code.value == ErrorCode.INVALID_GROUP_ID
    assert not world.share_groups.altered and not world.share_groups.deleted


def test_below_level_1_there_are_no_share_groups() -> None:
    world = World(level=0)
    unsupported = ErrorCode.UNSUPPORTED_VERSION
    for asked in (altered(("t", {0: 1})), deleted("t")):
        assert world.call(asked).error_code.value == unsupported
    for version in (0, 1):
        answer = world.call(described(version, ("g", None), ("g", {"t": [0]}), ("h", None)))
        assert [(g.group_id, g.error_code.value) for g in answer.groups] == [
            ("g", unsupported), ("h", unsupported),
        ]  # fmt: skip
