"""`__transaction_state`: its settings, and its creation by the first client."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from kbroker.config import BrokerConfig
from kbroker.coordinator.txn.state_topic import creation, new_topic
from kbroker.errors import ErrorCode
from kbroker.metadata.controller.decisions import NewTopic, TopicResult


def settings(factor: int = 3, min_in_sync: int = 2) -> dict[str, Any]:
    return {
        "transaction.state.log.num.partitions": 50,
        "transaction.state.log.replication.factor": factor,
        "transaction.state.log.min.isr": min_in_sync,
        "transaction.state.log.segment.bytes": 104_857_600,
    }


@pytest.mark.parametrize(
    ("brokers", "factor", "min_in_sync"), [(1, 1, "1"), (2, 2, "2"), (3, 3, "2"), (9, 3, "2")]
)
def test_as_many_replicas_as_there_are_brokers(brokers: int, factor: int, min_in_sync: str) -> None:
    topic = new_topic(settings(), brokers)
    assert (topic.name, topic.partitions) == ("__transaction_state", 50)
    assert topic.replication_factor == factor
    assert topic.configs == {
        "cleanup.policy": "compact",
        "compression.type": "uncompressed",
        "min.insync.replicas": min_in_sync,
        "segment.bytes": "104857600",
        "unclean.leader.election.enable": "false",
    }


@pytest.mark.parametrize(
    ("overrides", "factor", "min_in_sync"),
    [([], 1, "1"), (["zookeeper.connect=localhost:2181"], 3, "2")],
)
def test_one_broker_has_one_replica_and_a_cluster_three(
    overrides: list[str], factor: int, min_in_sync: str
) -> None:
    topic = new_topic(BrokerConfig.load(overrides=overrides), 3)
    assert topic.replication_factor == factor
    assert topic.configs["min.insync.replicas"] == min_in_sync


class Controller:
    def __init__(self) -> None:
        self.wanted: list[NewTopic] = []
        self.done: list[Callable[[Sequence[TopicResult]], None]] = []

    def create_topics(
        self,
        specs: Sequence[NewTopic],
        validate_only: bool,
        done: Callable[[Sequence[TopicResult]], None],
    ) -> None:
        self.wanted += specs
        self.done.append(done)


def test_several_clients_cause_one_creation(caplog: pytest.LogCaptureFixture) -> None:
    controller, made = Controller(), creation()
    for _ in range(3):
        made.ensure(controller, settings(), 3)
    assert len(controller.wanted) == 1 and not caplog.text
    controller.done.pop()([TopicResult("__transaction_state", ErrorCode.TOPIC_ALREADY_EXISTS)])
    made.ensure(controller, settings(), 3)
    assert len(controller.wanted) == 2
    controller.done.pop()([TopicResult("__transaction_state", ErrorCode.REQUEST_TIMED_OUT)])
    assert "cannot be created yet" in caplog.text


def test_few_brokers_are_worth_a_line(caplog: pytest.LogCaptureFixture) -> None:
    creation().ensure(Controller(), settings(), 2)
    assert "is created with 2 replicas, not with the 3 of" in caplog.text
