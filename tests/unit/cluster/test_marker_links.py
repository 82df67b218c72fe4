"""Markers on their way to another broker: two connections, lost requests, and errors of our own."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from kbroker.cluster.marker_links import MarkerLinks
from kbroker.cluster.transaction_markers import Marker, Outcome
from kbroker.coordinator.txn.seams import MarkerOrder
from kbroker.errors import ErrorCode, KafkaError
from kbroker.failures import Failures
from kbroker.metadata.image import BrokerImage, ClusterImage
from kbroker.protocol import messages
from kbroker.protocol.wire import ProtocolError, Reader
from kbroker.types import TopicPartition

PLACE = TopicPartition("t", 3)
ORDER = MarkerOrder("pay", 7, 1, 5, True, 2, frozenset({PLACE}), 11, 12)
AWAY = KafkaError(ErrorCode.NETWORK_EXCEPTION, "away")


class Peers:
    """One connection; `raises` is what its next call raises."""

    raises: Exception | None = None

    def __init__(self) -> None:
        self.requests: list[Any] = []

    async def wait_ready(self, address: Any, **how: Any) -> None:
        pass

    def version(self, address: Any, key: Any, lowest: int, highest: int) -> int:
        return highest

    async def call(self, address: Any, key: Any, version: int, body: bytes) -> Reader:
        if self.raises is not None:
            raise self.raises
        table = messages.write_txn_markers
        self.requests.append(table.Request.decode(body, version))
        result = table.PartitionResult(partition_index=3, error_code=0)
        topic = table.TopicResult(name="t", partitions=[result])
        marker = table.MarkerResult(producer_id=7, topics=[topic])
        return Reader(table.Response(markers=[marker]).encode(version), flexible=True)


class World:
    def __init__(self) -> None:
        self.made: list[Peers] = []
        self.failures = Failures("markers")
        image = ClusterImage().with_brokers([BrokerImage(2, "second", 9_092)])
        submit: Any = asyncio.run
        self.links = MarkerLinks(lambda: image, submit, self.failures, self._peers)

    def _peers(self) -> Peers:
        self.made.append(Peers())
        return self.made[-1]

    def send(self, node_id: int = 2, slow: bool = False) -> Outcome:
        outcomes: list[Outcome] = []
        self.links.send(node_id, [Marker(ORDER, (PLACE,))], outcomes.append, slow=slow)
        (outcome,) = outcomes
        return outcome


def test_slow_partitions_have_a_connection_of_their_own() -> None:
    world = World()
    for slow in (False, True, False):
        assert world.send(slow=slow) == {(7, PLACE): ErrorCode.NONE}
    fast, slow_one = world.made
    assert (len(fast.requests), len(slow_one.requests)) == (2, 1)
    (marker,) = fast.requests[0].markers
    assert (marker.producer_id, marker.producer_epoch, marker.coordinator_epoch) == (7, 1, 5)
    assert (marker.transaction_result, marker.transaction_version) == (True, 2)
    assert (marker.coordinator_run, marker.outcome_number) == (11, 12)


@pytest.mark.parametrize(
    ("error", "noted"), [(AWAY, 0), (ProtocolError("no answer"), 0), (OSError("no memory"), 1)]
)
def test_a_request_that_fails_is_an_unknown_outcome(
    error: Exception, noted: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World()
    monkeypatch.setattr(Peers, "raises", error)
    assert world.send() is None
    assert world.failures.count == noted


def test_a_broker_that_is_unknown_gets_nothing() -> None:
    assert World().send(node_id=9) is None
