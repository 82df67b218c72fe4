"""APIs 83 to 87 by kio, and the coordinators of share-partitions."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from kbroker.coordinator.share.images import SharePartition
from kbroker.coordinator.share.requests import Asked, Done, failed
from kbroker.coordinator.share.seams import Outcome, ReadState
from kbroker.errors import ErrorCode
from kbroker.metadata.image import SHARE_STATE_TOPIC
from kbroker.types import ApiKey, uuid_text
from tests.unit.coordinator.share.world import TOPIC, World
from tests.unit.handlers.support import FakeBroker, answer_of, part_of, request_of

INITIALIZE = ApiKey.INITIALIZE_SHARE_GROUP_STATE
READ = ApiKey.READ_SHARE_GROUP_STATE
WRITE = ApiKey.WRITE_SHARE_GROUP_STATE
DELETE = ApiKey.DELETE_SHARE_GROUP_STATE
SUMMARY = ApiKey.READ_SHARE_GROUP_STATE_SUMMARY
TOPICS = {
    INITIALIZE: "InitializeStateData", READ: "ReadStateData", WRITE: "WriteStateData",
    DELETE: "DeleteStateData", SUMMARY: "ReadStateSummaryData",
}  # fmt: skip
FIELDS: dict[ApiKey, dict[str, Any]] = {
    INITIALIZE: {"state_epoch": 1, "start_offset": 0},
    READ: {"leader_epoch": 0},
    WRITE: {"state_epoch": 1, "leader_epoch": 0, "start_offset": 0, "state_batches": ()},
    DELETE: {},
    SUMMARY: {"leader_epoch": 0},
}
EACH = [(INITIALIZE, 0), (READ, 0), (WRITE, 0), (WRITE, 1), (DELETE, 0), (SUMMARY, 0), (SUMMARY, 1)]


class Shares:
    """`Services.share`: a coordinator, or none, and the topic's creation."""

    def __init__(self, coordinator: Any = None) -> None:
        self.coordinator = coordinator
        self.created: list[int] = []

    def create_topic(self, controller: Any, config: Any, brokers: int) -> None:
        self.created.append(brokers)


def broker_with(coordinator: Any = None, level: int = 1) -> FakeBroker:
    broker = FakeBroker()
    broker.services.share = Shares(coordinator)  # type: ignore[assignment]
    image = broker.controller.image
    broker.controller.publish(image.with_features(image.features.changed({"share.version": level})))
    return broker


def asked(
    key: ApiKey, version: int, *partitions: int, group: str = "g", topic: Any = TOPIC, **how: Any
) -> Any:
    parts = tuple(
        part_of(key, version, "PartitionData", partition=each, **{**FIELDS[key], **how})
        for each in partitions
    )
    topics = (part_of(key, version, TOPICS[key], topic_id=topic, partitions=parts),)
    return request_of(key, version, group_id=group, topics=topics)


def codes(answer: Any) -> dict[int, int]:
    return {
        each.partition: each.error_code.value for topic in answer.results
        for each in topic.partitions
    }  # fmt: skip


def test_a_state_is_kept_and_read() -> None:
    broker = broker_with(World().coordinator)
    assert codes(broker.call(asked(INITIALIZE, 0, 0, 1))) == {0: 0, 1: 0}
    batches = (
        part_of(WRITE, 1, "StateBatch", first_offset=3, last_offset=5, delivery_state=2,
                delivery_count=1),
    )  # fmt: skip
    written = asked(WRITE, 1, 1, start_offset=3, state_batches=batches, delivery_complete_count=3)
    assert codes(broker.call(written)) == {1: 0}
    (topic,) = broker.call(asked(READ, 0, 1)).results
    (state,) = topic.partitions
    assert topic.topic_id == TOPIC
    assert (state.state_epoch, state.start_offset, state.error_message) == (1, 3, None)
    assert [(b.first_offset, b.last_offset, b.delivery_state, b.delivery_count)
            for b in state.state_batches] == [(3, 5, 2, 1)]  # fmt: skip
    (topic,) = broker.call(asked(SUMMARY, 1, 1)).results
    assert topic.partitions[0].delivery_complete_count == 3
    assert codes(broker.call(asked(DELETE, 0, 0, 1))) == {0: 0, 1: 0}
    assert codes(broker.call(asked(READ, 0, 1))) == {1: ErrorCode.INVALID_REQUEST}


@pytest.mark.parametrize(("key", "version"), EACH)
def test_requests_that_no_coordinator_sees(key: ApiKey, version: int) -> None:
    broker = broker_with()
    moved = ErrorCode.NOT_COORDINATOR
    assert codes(broker.call(asked(key, version, 0, 2))) == {0: moved, 2: moved}
    assert codes(broker.call(asked(key, version, 0, topic=None))) == {0: moved}
    assert broker.call(asked(key, version, 0, group="")).results == ()
    assert broker.call(request_of(key, version, group_id="g", topics=())).results == ()


@pytest.mark.parametrize(("key", "version"), EACH)
def test_below_level_1_there_are_no_share_groups(key: ApiKey, version: int) -> None:
    broker = broker_with(World().coordinator, level=0)
    unsupported = ErrorCode.UNSUPPORTED_VERSION
    assert codes(broker.call(asked(key, version, 0, 1))) == {0: unsupported, 1: unsupported}


class Later:
    """A coordinator that answers when the test says so."""

    def __init__(self) -> None:
        self.waiting: list[tuple[Asked, Done]] = []

    def ask(self, asked: Asked, done: Done) -> None:
        self.waiting.append((asked, done))


def test_the_response_leaves_with_the_last_answer() -> None:
    later = Later()
    broker = broker_with(later)
    request = broker.ask(asked(READ, 0, 0, 1, 2))
    for at in (1, 2, 0):
        assert request.answer is None
        of, done = later.waiting[at]
        done(ReadState(start_offset=at) if at else failed(of, ErrorCode.FENCED_LEADER_EPOCH, "no"))
    assert codes(answer_of(request)) == {
        1: 0, 2: 0, 0: ErrorCode.FENCED_LEADER_EPOCH,
    }  # fmt: skip


def test_a_partition_that_is_named_twice_is_asked_once() -> None:
    later = Later()
    broker = broker_with(later)
    broker.ask(asked(DELETE, 0, 4, 4))
    ((of, done),) = later.waiting
    assert of.key == SharePartition("g", TOPIC, 4)
    done(Outcome())


# --- FindCoordinator ------------------------------------------------------------------------------


def find(*keys: str, version: int = 6) -> Any:
    return request_of(ApiKey.FIND_COORDINATOR, version, key_type=2, coordinator_keys=keys)


KEY = f"g:{uuid_text(UUID(int=7))}:3"


def test_the_state_topic_is_made_for_the_first_share_partition() -> None:
    broker = broker_with()
    (found,) = broker.call(find(KEY)).coordinators
    assert found.error_code.value == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert broker.services.share.created == [1]  # type: ignore[union-attr]


def test_the_leader_of_the_partition_is_the_coordinator() -> None:
    broker = broker_with()
    broker.create(SHARE_STATE_TOPIC, partitions=3)
    found, malformed = broker.call(find(KEY, "g:3")).coordinators
    assert (found.error_code.value, found.node_id, found.key) == (0, 1, KEY)
    assert malformed.error_code.value == ErrorCode.INVALID_REQUEST


def test_without_the_level_a_share_partition_has_no_coordinator() -> None:
    broker = broker_with(level=0)
    (found,) = broker.call(find(KEY)).coordinators
    assert found.error_code.value == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert not broker.services.share.created  # type: ignore[union-attr]
