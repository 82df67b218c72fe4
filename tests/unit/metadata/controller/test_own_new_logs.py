"""New topics in a cluster: a replica that does not open is offline, at whichever broker."""

from __future__ import annotations

import errno
from dataclasses import replace

import pytest

from kbroker.errors import ErrorCode
from kbroker.metadata.cluster_delta import ClusterDelta
from kbroker.metadata.controller import MorePartitions, NewTopic
from kbroker.metadata.controller.decisions import new_topic_image
from kbroker.metadata.controller.image_follower import ImageFollower
from kbroker.metadata.controller.image_updates import NOTHING, ImageUpdate
from kbroker.metadata.controller.propagation import Propagation
from kbroker.metadata.image import NO_LEADER, ClusterImage, ImageDelta, TopicImage, new_uuid
from kbroker.types import TopicPartition
from tests.unit.metadata.controller.brokers import Cluster, agree, follow
from tests.unit.metadata.controller.harness import eventually

NAME = TopicPartition("t", 0)
ADDED = TopicPartition("t", 1)


@pytest.mark.parametrize("broken", [1, 2], ids=["the controller", "another"])
def test_other_brokers_lead_partitions_that_do_not_open(cluster: Cluster, broken: int) -> None:
    follow(cluster)
    cluster.brokers[broken].replicas.offline = [NAME]
    cluster.make(broken, 3)
    eventually(lambda: cluster.state.leader == 3)
    assert cluster.state.isr == (3,) and cluster.state.leader_epoch == 1
    follow(cluster)


@pytest.mark.parametrize("broken", [1, 2], ids=["the controller", "another"])
def test_none_waits_for_a_follower_that_does_not_open(cluster: Cluster, broken: int) -> None:
    follow(cluster)
    cluster.brokers[broken].replicas.offline = [NAME]
    cluster.make(3, broken)
    eventually(lambda: cluster.state.isr == (3,))
    assert (cluster.state.leader, cluster.state.leader_epoch) == (3, 0)


@pytest.mark.parametrize("broken", [1, 2], ids=["the controller", "another"])
def test_of_one_replica_there_is_no_leader_until_it_opens(cluster: Cluster, broken: int) -> None:
    follow(cluster)
    cluster.brokers[broken].replicas.offline = [NAME]
    cluster.make(broken)
    eventually(lambda: cluster.state.leader == NO_LEADER)
    eventually(lambda: agree(cluster.brokers[3].image, cluster.controller.image))
    cluster.brokers[broken].replicas.offline = []
    cluster.brokers[broken].controller.logs_ready([NAME])
    eventually(lambda: cluster.state.leader == broken)


def test_partitions_that_are_added_are_no_other_case(cluster: Cluster) -> None:
    cluster.make(1, 2)
    cluster.controller.replicas.offline = [ADDED]
    wanted = MorePartitions("t", 3, [(1, 2), (1, 2)])
    assert not cluster.controller.grow(wanted)[0].error
    first, added, last = cluster.controller.image.topics["t"].partitions
    assert (first.leader, added.leader, last.leader) == (1, 2, 1)
    assert added.isr == (2,) and first.isr == last.isr == (1, 2)
    # One that was offline before is left alone when there are more.
    assert not cluster.controller.grow(MorePartitions("t", 4, [(1, 3)]))[0].error
    assert cluster.controller.image.topics["t"].partitions[1] == added


@pytest.mark.parametrize("broken", [1, 2], ids=["the controller", "another"])
def test_a_disk_that_fails_in_another_way_is_no_other_case(cluster: Cluster, broken: int) -> None:
    """So that nothing of the topic could be opened."""
    follow(cluster)
    replicas = cluster.brokers[broken].replicas
    replicas.fail_on = lambda name: OSError(errno.ENOSPC, "no space") if name == "t" else None
    made = cluster.controller.create(NewTopic("t", assignments={0: (broken, 3)}), "u")
    assert [each.error for each in made] == [ErrorCode.NONE] * 2
    eventually(lambda: cluster.state.leader == 3)
    assert cluster.state.isr == (3,)
    assert not cluster.controller.grow(MorePartitions("t", 2, [(broken, 3)]))[0].error
    eventually(lambda: cluster.controller.image.topics["t"].partitions[1].leader == 3)
    follow(cluster)


def test_another_broker_knows_new_partitions(cluster: Cluster) -> None:
    """It has no log of that yet, be a data directory of it missing or not."""
    follow(cluster)
    two = cluster.brokers[2]
    cluster.make(1, 2)
    follow(cluster)
    assert two.replicas.calls[-1].new == {NAME}
    assert not cluster.controller.grow(MorePartitions("t", 2, [(1, 2)]))[0].error
    follow(cluster)
    assert two.replicas.calls[-1].new == {ADDED}
    cluster.alter(1, 1)
    follow(cluster)
    assert two.replicas.calls[-1].new == frozenset()


def test_the_first_brokers_of_a_process_are_not_new() -> None:
    """It may be of before, with logs in a directory that is missing."""
    deltas: list[ImageDelta] = []
    propagation = Propagation(lambda image, delta: (deltas.append(delta), ())[1], node_id=2)
    elected: list[int] = []
    follower = ImageFollower(propagation, lambda: elected[-1], lambda event: None)
    topics = [new_topic_image(name, new_uuid(), [(1, 2)], {}) for name in "abc"]
    grown = with_epochs(topics[2], 1)

    def receives(epoch: int, *sent: TopicImage) -> frozenset[TopicPartition]:
        elected.append(epoch)
        image = ClusterImage(cluster_id="c").with_topics(sent)
        delta = ClusterDelta.between(ClusterImage(), image)
        update = ImageUpdate(1, epoch, 1, NOTHING, epoch, delta)
        assert follower.follow(update).error is ErrorCode.NONE
        return deltas[-1].new

    assert receives(1, topics[0]) == frozenset()
    assert receives(2, topics[0], topics[1]) == {TopicPartition("b", 0)}
    # A producer may have written to it before we came to know of it.
    assert receives(3, topics[0], topics[1], grown) == frozenset()


def with_epochs(topic: TopicImage, epoch: int) -> TopicImage:
    states = (replace(each, leader_epoch=epoch, partition_epoch=epoch) for each in topic.partitions)
    return replace(topic, partitions=tuple(states))
