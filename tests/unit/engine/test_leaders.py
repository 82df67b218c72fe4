"""Who leads instead, beside the error (KIP-951): in Produce from 10 on, in Fetch from 16 on."""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from typing import Any

import pytest

from kbroker.errors import ErrorCode
from kbroker.replica._topic_table import ViewRow
from kbroker.types import ApiKey
from tests.support.record_batches import build_batch
from tests.unit.engine.wire import (
    FETCH_VERSIONS,
    PRODUCE_VERSIONS,
    Ask,
    answer_in,
    fetch_frame,
    produce_frame,
)
from tests.unit.net.harness import NODE_ID, Rig, Topic

ELSEWHERE = 2
GONE = 3
NODES: list[Any] = [
    (NODE_ID, [("here", 9001)], None),
    (ELSEWHERE, [("there", 9002)], "rack-2"),
]


@dataclass(frozen=True)
class Published:
    leader: int
    leader_epoch: int
    replicas: tuple[int, ...] = (NODE_ID,)
    isr: tuple[int, ...] = (NODE_ID,)


@pytest.fixture
def topic(rig: Rig) -> Topic:
    """Partition 0 is led here, 1 and 2 are not here, 3 is, and its leader is elsewhere."""
    made = rig.create("t", partitions=4)
    made.logs[0].append(build_batch())
    made.logs[3].set_leadership(ELSEWHERE, False, 8, 1)
    topic = Topic("u", uuid.uuid4(), made.logs)
    logs = [made.logs[0], None, None, made.logs[3]]
    rig.table.publish([(topic.name, topic.topic_id.bytes, False, logs)], [])
    row = ViewRow(topic.name, topic.topic_id.bytes, False, 4)
    row.fill(
        [
            Published(NODE_ID, 0),
            Published(ELSEWHERE, 7),
            Published(GONE, 9),
            Published(ELSEWHERE, 1),
        ]
    )
    rig.table.show([row], [], NODES, "cluster")
    rig.hot.advertise(NODE_ID, [("me", 1234)], False)
    return topic


def leaders(partitions: Any) -> list[tuple[int, int, int]]:
    return [
        (p.error_code.value, p.current_leader.leader_id, p.current_leader.leader_epoch)
        for p in partitions
    ]


def nodes(answer: Any) -> list[tuple[int, str, int, str | None]]:
    return [(n.node_id, n.host, n.port, n.rack) for n in answer.node_endpoints]


@pytest.mark.parametrize("version", FETCH_VERSIONS)
def test_fetch(rig: Rig, topic: Topic, version: int) -> None:
    client = rig.client()
    asks = [Ask(topic, 1), Ask(topic, 0), Ask(topic, 2), Ask(topic, 3, leader_epoch=7)]
    client.send(fetch_frame(version, asks))
    _, answer = answer_in(ApiKey.FETCH, version, client.receive())
    partitions = answer.responses[0].partitions
    not_leader = ErrorCode.NOT_LEADER_OR_FOLLOWER
    follows = ErrorCode.FENCED_LEADER_EPOCH if version >= 9 else not_leader
    assert [p.error_code.value for p in partitions] == [not_leader, 0, not_leader, follows]
    assert partitions[1].records
    if version >= 16:
        assert leaders(partitions) == [(6, 2, 7), (0, -1, -1), (6, 3, 9), (74, 2, 8)]
        assert nodes(answer) == [(2, "there", 9002, "rack-2")]


@pytest.mark.parametrize("version", FETCH_VERSIONS[12:])
def test_an_epoch_that_is_over(rig: Rig, topic: Topic, version: int) -> None:
    topic.logs[0].set_leadership(NODE_ID, True, 5, 1)
    client = rig.client()
    client.send(fetch_frame(version, [Ask(topic, 0, leader_epoch=4)]))
    _, answer = answer_in(ApiKey.FETCH, version, client.receive())
    assert leaders(answer.responses[0].partitions) == [(74, NODE_ID, 5)]
    assert nodes(answer) == [(NODE_ID, "me", 1234, None)]
    client.send(fetch_frame(version, [Ask(topic, 0, leader_epoch=6)]))
    _, answer = answer_in(ApiKey.FETCH, version, client.receive())
    assert leaders(answer.responses[0].partitions) == [(75, -1, -1)]
    assert nodes(answer) == []


@pytest.mark.parametrize("version", PRODUCE_VERSIONS)
def test_produce(rig: Rig, topic: Topic, version: int) -> None:
    client = rig.client()
    data = dict.fromkeys((3, 0, 1, 2), build_batch())
    client.send(produce_frame(version, [(topic, data)]))
    _, answer = answer_in(ApiKey.PRODUCE, version, client.receive())
    partitions = answer.responses[0].partition_responses
    assert [p.error_code.value for p in partitions] == [6, 0, 6, 6]
    if version >= 10:
        assert leaders(partitions) == [(6, 2, 8), (0, -1, -1), (6, 2, 7), (6, 3, 9)]
        assert nodes(answer) == [(2, "there", 9002, "rack-2")]


def test_without_a_view_of_the_cluster(rig: Rig) -> None:
    """Before a view is published: the partition's own leader, and no address."""
    topic = rig.create("t")
    topic.logs[0].set_leadership(ELSEWHERE, False, 8, 1)
    client = rig.client()
    client.send(fetch_frame(18, [Ask(topic, leader_epoch=7)]))
    _, answer = answer_in(ApiKey.FETCH, 18, client.receive())
    assert (leaders(answer.responses[0].partitions), nodes(answer)) == ([(74, 2, 8)], [])
