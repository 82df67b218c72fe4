"""Brokers whose disks are nearly full: others lead what they led, as long as others can."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import cast
from uuid import UUID

import pytest

from kbroker.errors import ErrorCode, KafkaError
from kbroker.metadata.controller.broker_messages import decode_answer, response_of
from kbroker.metadata.controller.decisions import new_topic_image
from kbroker.metadata.controller.events import AlterInSync, ElectLeaders, ShutDown
from kbroker.metadata.controller.image_updates import UPDATE_VERSION, ImageAnswer
from kbroker.metadata.controller.nodes import MetadataNodes
from kbroker.metadata.controller.partition_changes import PartitionChanges
from kbroker.metadata.controller.partition_states import InSyncChange, clean_elections
from kbroker.metadata.controller.propagation import Propagation
from kbroker.metadata.image import BrokerImage, ClusterImage, ImageDelta, PartitionImage
from kbroker.protocol.wire import Reader
from kbroker.types import TopicPartition
from tests.unit.metadata.controller.brokers import Cluster, follow
from tests.unit.metadata.controller.harness import eventually

NAME = TopicPartition("t", 0)
TOPIC_ID = UUID(int=1)


class Decided:
    """A partition of brokers 1, 2 and 3, all in sync; 1 is the controller and leads."""

    def __init__(self, *isr: int) -> None:
        topic = new_topic_image("t", TOPIC_ID, [(1, 2, 3)], {})
        partition = replace(topic.partitions[0], isr=isr or (1, 2, 3))
        self.brokers = [BrokerImage(each, epoch=10 + each) for each in (1, 2, 3)]
        image = ClusterImage().with_brokers(self.brokers)
        image = image.with_topics([replace(topic, partitions=(partition,))])
        self.propagation = Propagation(lambda image, delta: (), node_id=1)
        self.propagation.catch_up(image, ImageDelta(created=tuple(image.topics.values())))
        self.changes = PartitionChanges(self.propagation, clean_elections, 1)
        self.written: list[PartitionImage] = []
        self.closed: dict[int, list[TopicPartition]] = {}
        self.nodes = cast("MetadataNodes", self)

    def set_partitions(self, changed: Sequence[PartitionImage]) -> list[PartitionImage]:
        self.written += changed
        return [replace(each, partition_epoch=each.partition_epoch + 1) for each in changed]

    def refuse(self, *brokers: int) -> None:
        """These do, and no others."""
        self.propagation.refusing = frozenset([NAME] if 1 in brokers else ())
        for each in (1, 2, 3):
            closed = self.closed.get(each, [])
            self.changes.note_closed(self.nodes, each, closed, [NAME] if each in brokers else [])

    def all_in_sync(self) -> None:
        """The leader asks for it."""
        image = self.propagation.image
        state = image.topics["t"].partitions[0]
        epochs = {each.node_id: each.epoch for each in image.brokers.values()}
        change = InSyncChange(TOPIC_ID, 0, state.leader_epoch, state.partition_epoch, epochs)
        asked = AlterInSync(state.leader, epochs[state.leader], (change,), lambda _: None)
        assert isinstance(self.changes.alter_in_sync(self.nodes, asked)[0], PartitionImage)

    @property
    def now(self) -> tuple[int, tuple[int, ...]]:
        partition = self.propagation.image.topics["t"].partitions[0]
        return partition.leader, partition.isr


ALL = (1, 2, 3)


def test_the_first_with_room_leads_and_all_stay_in_sync() -> None:
    decided = Decided()
    decided.refuse(1)
    assert decided.now == (2, ALL)
    decided.refuse(1, 2)
    assert decided.now == (3, ALL)
    assert [each.leader_epoch for each in decided.written] == [1, 2]


def test_where_all_refuse_none_is_elected() -> None:
    """Once each at most: then it is left alone, however often they say so."""
    decided = Decided()
    for brokers in [(1,), (1, 2), ALL, ALL, ALL]:
        decided.refuse(*brokers)
    assert decided.now == (3, ALL) and len(decided.written) == 2
    decided.refuse(2, 3)  # the first has room again
    assert decided.now == (1, ALL)


def test_a_replica_out_of_sync_does_not_lead_for_it_but_as_soon_as_it_is_in_sync() -> None:
    decided = Decided(1, 2)
    decided.refuse(1, 2)
    assert decided.now == (2, (1, 2))
    decided.all_in_sync()
    assert decided.now == (3, ALL)


def test_neither_do_the_dead_those_that_stop_and_those_whose_log_fails() -> None:
    decided = Decided()
    decided.closed[2] = [NAME]
    decided.refuse()
    decided.changes.shut_down(decided.nodes, ShutDown(3, 13, lambda _: None))
    before = decided.now
    decided.refuse(1)
    assert decided.now == before == (1, (1,))


def test_an_election_for_another_reason_prefers_a_replica_with_room() -> None:
    decided = Decided()
    decided.refuse(2)
    decided.changes.brokers_changed(decided.nodes, decided.brokers[1:])
    assert decided.now == (3, (2, 3))
    decided.changes.brokers_changed(decided.nodes, decided.brokers[1:2])
    assert decided.now == (2, (2,))  # one that refuses leads where no other lives


def test_the_preferred_replica_does_not_come_back_without_room() -> None:
    decided = Decided()
    decided.refuse(1)
    elect = ElectLeaders(False, (NAME,), lambda _: None)
    ((_, error),) = decided.changes.elect_leaders(decided.nodes, elect)
    assert isinstance(error, KafkaError)
    assert error.code is ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE
    decided.refuse()
    assert decided.changes.elect_leaders(decided.nodes, elect) == [(NAME, None)]
    assert decided.now == (1, ALL)


def test_a_start_has_said_nothing_yet() -> None:
    decided = Decided()
    decided.refuse(1, 2)
    again = [replace(each, epoch=22) if each.node_id == 2 else each for each in decided.brokers]
    decided.changes.brokers_changed(decided.nodes, again)
    decided.all_in_sync()
    decided.changes.note_closed(decided.nodes, 3, [], [NAME])
    assert decided.now == (2, ALL)


def test_the_answer_says_it() -> None:
    answer = ImageAnswer(ErrorCode.NONE, (NAME,), (TopicPartition("u", 3), NAME))
    body = response_of(answer).encode(UPDATE_VERSION)
    assert decode_answer(Reader(body, flexible=True)) == answer


@pytest.mark.parametrize("leader", [1, 3])
def test_brokers_tell_the_controller_and_the_controller_itself(
    cluster: Cluster, leader: int
) -> None:
    cluster.make(leader, 2)
    follow(cluster)
    brokers = cluster.brokers
    brokers[leader].controller.logs_fail([], [NAME])
    eventually(lambda: cluster.state.leader == 2)
    assert cluster.state.isr == (leader, 2)
    brokers[2].controller.logs_fail([], [NAME])
    brokers[leader].controller.logs_fail([], [])
    eventually(lambda: cluster.state.leader == leader)
    assert cluster.state.isr == (leader, 2)
