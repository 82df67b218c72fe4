"""What a test asks of a cluster while the cluster's own store is away for a moment."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from kbroker.errors import ErrorCode, KafkaError
from kbroker.peer.placement_messages import PartitionResult
from kbroker.testing.inspection import Inspection
from kbroker.types import TopicPartition

NAME = TopicPartition("orders", 2)


class Controller:
    """Answers an election with each of these errors in turn, and then with none."""

    def __init__(self, *errors: ErrorCode) -> None:
        self.errors = list(errors)
        self.elections = 0

    def metadata(self, topics: list[str]) -> SimpleNamespace:
        partition = SimpleNamespace(index=NAME.partition, replicas=[1, 2, 3])
        return SimpleNamespace(topics={NAME.topic: SimpleNamespace(partitions=[partition])})

    def reassign(self, targets: dict[TopicPartition, list[int]]) -> list[PartitionResult]:
        assert targets == {NAME: [3, 1, 2]}
        return []

    def elect_leaders(self, kind: int, partitions: list[TopicPartition]) -> list[PartitionResult]:
        self.elections += 1
        error = self.errors.pop(0) if self.errors else ErrorCode.NONE
        return [PartitionResult(NAME, error, "")]


def inspection(controller: Controller) -> Inspection:
    made = Inspection.__new__(Inspection)
    made._client = controller  # type: ignore[assignment]
    return made


def test_a_leader_is_asked_for_again_while_the_store_is_away() -> None:
    controller = Controller(ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.KAFKA_STORAGE_ERROR)
    inspection(controller).have_lead(NAME, 3)
    assert controller.elections == 3


def test_another_error_is_raised_at_once() -> None:
    controller = Controller(ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE)
    with pytest.raises(KafkaError, match="orders-2"):
        inspection(controller).have_lead(NAME, 3)
    assert controller.elections == 1
