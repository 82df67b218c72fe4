"""What this broker asks of its own coordinator, without a socket."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from kbroker.cluster.transaction_adds import AddedTransaction
from kbroker.coordinator.txn.own_requests import Verdict, ask
from kbroker.errors import ErrorCode
from kbroker.failures import Failures
from kbroker.types import TopicPartition
from tests.unit.coordinator.txn.world import BILLS, ID, NONE, ORDERS, World

NEW: Final = TopicPartition("new", 0)


def asked(world: World, *transactions: AddedTransaction) -> Mapping[str, Verdict]:
    """Of a broker whose published image has not the topic `new` yet."""
    answers: list[Any] = []
    failures = Failures("asking")
    ask(world.coordinator, transactions, answers.append, failures, lambda place: place != NEW)
    assert failures.count == 0
    (answer,) = answers
    return dict(answer)


def test_partitions_that_are_added_and_partitions_that_are_verified() -> None:
    world = World()
    pair = world.pair()
    assert asked(world, AddedTransaction(ID, *pair, False, (ORDERS, BILLS))) == {ID: NONE}
    assert asked(world, AddedTransaction(ID, *pair, True, (ORDERS, NEW))) == {
        ID: {ORDERS: NONE, NEW: ErrorCode.TRANSACTION_ABORTABLE}
    }


def test_a_partition_that_is_not_published_yet_is_not_added() -> None:
    """Its marker would not be written: markers go by the published image."""
    world = World()
    pair = world.pair()
    assert asked(world, AddedTransaction(ID, *pair, False, (ORDERS, NEW))) == {
        ID: {
            ORDERS: ErrorCode.OPERATION_NOT_ATTEMPTED,
            NEW: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        }
    }
    image = world.coordinator.find(ID)
    assert image is not None and not image.partitions


def test_a_broker_without_transactional_ids() -> None:
    answers: list[Any] = []
    added = AddedTransaction(ID, 1, 0, False, (ORDERS,))
    ask(None, [added], answers.append, Failures("asking"), lambda place: True)
    assert answers == [{ID: ErrorCode.NOT_COORDINATOR}]
