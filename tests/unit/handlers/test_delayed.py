"""Requests that wait for the controller: parked under their call, ended by its event or by time."""

from __future__ import annotations

import datetime
from collections.abc import Callable
from typing import Any

import pytest

from kbroker.errors import ErrorCode
from kbroker.types import ApiKey
from tests.unit.handlers.support import (
    FakeBroker,
    FakeRequest,
    answer_of,
    changed,
    part_of,
    request_of,
)
from tests.unit.handlers.test_partitions import grow
from tests.unit.handlers.test_topics import create, delete

WAIT_MS = 500
LATE = ErrorCode.REQUEST_TIMED_OUT


def elect(timeout_ms: int) -> Any:
    key = ApiKey.ELECT_LEADERS
    topic = part_of(key, 2, "TopicPartitions", topic="a", partitions=(0,))
    timeout = datetime.timedelta(milliseconds=timeout_ms)
    return request_of(key, 2, election_type=0, topic_partitions=(topic,), timeout=timeout)


def reassign(timeout_ms: int) -> Any:
    key = ApiKey.ALTER_PARTITION_REASSIGNMENTS
    partition = part_of(key, 0, "ReassignablePartition", partition_index=0, replicas=(1,))
    topic = part_of(key, 0, "ReassignableTopic", name="a", partitions=(partition,))
    timeout = datetime.timedelta(milliseconds=timeout_ms)
    return request_of(key, 0, topics=(topic,), timeout=timeout)


def _topic_codes(of: str) -> Callable[[Any], list[int]]:
    return lambda answer: [each.error_code for each in getattr(answer, of)]


# The purgatory, a request with the timeout, and the code or codes of its answer.
Case = tuple[str, Callable[[int], Any], Callable[[Any], list[int]]]
CASES: dict[str, Case] = {
    "CreateTopics": (
        "topic",
        lambda timeout_ms: create(7, {"name": "b"}, timeout_ms=timeout_ms),
        _topic_codes("topics"),
    ),
    "CreatePartitions": (
        "topic",
        lambda timeout_ms: grow(3, ("a", 2), timeout_ms=timeout_ms),
        _topic_codes("results"),
    ),
    "DeleteTopics": (
        "topic",
        lambda timeout_ms: delete(6, "a", timeout_ms=timeout_ms),
        _topic_codes("responses"),
    ),
    "ElectLeaders": (
        "elect_leader",
        elect,
        lambda answer: [answer.replica_election_results[0].partition_result[0].error_code],
    ),
    "AlterPartitionReassignments": (
        "reassignment",
        reassign,
        lambda answer: [answer.responses[0].partitions[0].error_code],
    ),
}


class Waiting:
    """A broker whose controller is at work on a request of the case."""

    def __init__(self, case: Case) -> None:
        name, make, self._codes = case
        self.broker = FakeBroker()
        self.broker.create("a")
        controller = self.broker.controller
        topic = controller.image.topics["a"]
        led = changed(topic, partitions=(changed(topic.partitions[0], leader=2),))
        controller.image = controller.image.with_topics([led])
        controller.hold = True
        self.purgatory = getattr(self.broker.purgatories, name)
        self.request: FakeRequest = self.broker.ask(make(WAIT_MS))

    def codes(self) -> list[int]:
        return self._codes(answer_of(self.request))

    def parked(self) -> tuple[int, int, int]:
        """Operations in this purgatory, in all, and tasks in the timer."""
        everywhere = sum(each.delayed for each in self.broker.purgatories)
        return self.purgatory.delayed, everywhere, len(self.broker.timer)

    def expired(self) -> int:
        return sum(each.statistics()["expired_total"] for each in self.broker.purgatories)


@pytest.fixture(params=CASES)
def waiting(request: pytest.FixtureRequest) -> Waiting:
    return Waiting(CASES[request.param])


def test_the_event_ends_it(waiting: Waiting) -> None:
    waiting.broker.elapse(WAIT_MS - 1)
    assert waiting.request.answer is None and waiting.parked() == (1, 1, 1)
    waiting.broker.controller.release()
    assert waiting.codes() == [0] and waiting.parked() == (0, 0, 0)
    waiting.broker.elapse()  # no second answer
    assert waiting.expired() == 0


def test_its_timeout_ends_it(waiting: Waiting) -> None:
    waiting.broker.elapse(WAIT_MS - 1)
    assert waiting.request.answer is None
    waiting.broker.elapse(1)
    assert waiting.codes() == [LATE] and waiting.parked() == (0, 0, 0)
    assert waiting.expired() == waiting.purgatory.statistics()["expired_total"] == 1
    waiting.broker.controller.release()  # no second answer


def test_results_that_cannot_be_answered_are_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    broker = FakeBroker()
    monkeypatch.setattr(broker.controller, "create_topics", lambda *asked: asked[2]([None]))
    answer = broker.call(create(7, {"name": "b"}))
    assert [each.error_code for each in answer.topics] == [ErrorCode.UNKNOWN_SERVER_ERROR]
    assert broker.purgatories.topic.delayed == len(broker.timer) == 0


def test_a_purgatory_that_is_closed_keeps_nothing_waiting() -> None:
    broker = FakeBroker()
    broker.controller.hold = True
    broker.purgatories.topic.close()
    answer = broker.call(create(7, {"name": "b"}))
    assert [each.error_code for each in answer.topics] == [LATE]
