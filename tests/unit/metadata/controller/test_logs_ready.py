"""Partitions whose logs a crash left unread: offline at first, and led when they are read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kbroker.metadata.controller import MorePartitions, NewTopic, records
from kbroker.metadata.controller.records import LOG_DIR_EVENTS
from kbroker.metadata.image import NO_LEADER, PartitionImage
from kbroker.types import TopicPartition
from tests.unit.metadata.controller.brokers import Cluster, Wire, follow
from tests.unit.metadata.controller.harness import OneBroker, eventually, wait

UNREAD, OTHER = TopicPartition("t", 0), TopicPartition("t", 1)


def read(broker: OneBroker, *names: TopicPartition) -> None:
    """These are, and the broker knows it."""
    broker.replicas.offline = [each for each in broker.replicas.offline if each not in names]
    broker.controller.logs_ready(names)
    wait(lambda done: broker.controller.in_step(lambda: done(None)))


def leaders(broker: OneBroker) -> list[tuple[int, int]]:
    return [(each.leader, each.leader_epoch) for each in broker.image.topics["t"].partitions]


def test_one_by_one_in_the_epochs_of_the_start(broker: OneBroker) -> None:
    broker.create(NewTopic("t", 3, 1), NewTopic("u", 1, 1))
    broker.replicas.offline = [UNREAD, OTHER]
    broker.restart(new_epochs_at_start=True)
    assert leaders(broker) == [(NO_LEADER, 1), (NO_LEADER, 1), (0, 1)]
    writes, calls = broker.store.writes, len(broker.replicas.calls)
    read(broker, OTHER)
    assert leaders(broker) == [(NO_LEADER, 1), (0, 1), (0, 1)]
    (call,) = broker.replicas.calls[calls:]
    assert [topic.name for topic in call.changed] == ["t"] and call.from_store
    read(broker, UNREAD)
    assert leaders(broker) == [(0, 1)] * 3
    assert broker.store.writes == writes  # the store has said so all the time
    assert broker.controller.statistics().offline_partitions == 0


def test_a_log_that_does_not_open_then_stays_offline(broker: OneBroker) -> None:
    broker.create(NewTopic("t", 2, 1))
    broker.replicas.offline = [UNREAD]
    broker.restart()
    broker.controller.logs_ready([UNREAD])
    wait(lambda done: broker.controller.in_step(lambda: done(None)))
    assert leaders(broker) == [(NO_LEADER, 0), (0, 0)]
    read(broker, UNREAD)  # as after a reload
    assert leaders(broker) == [(0, 0), (0, 0)]


def test_a_log_that_was_open_before_it_is_named(broker: OneBroker) -> None:
    """Its topic was applied for another one, when it had just been read."""
    broker.create(NewTopic("t", 3, 1))
    broker.replicas.offline = [UNREAD, OTHER]
    broker.restart()
    writes = broker.store.writes
    broker.replicas.offline = []
    read(broker, OTHER)
    assert leaders(broker) == [(NO_LEADER, 0), (0, 0), (0, 0)]
    read(broker, UNREAD)
    assert leaders(broker) == [(0, 0)] * 3
    assert broker.store.writes == writes


def test_a_log_that_is_gone_is_ignored(broker: OneBroker) -> None:
    broker.create(NewTopic("t", 2, 1), NewTopic("u", 1, 1))
    broker.replicas.offline = [UNREAD, TopicPartition("u", 0)]
    broker.restart()
    broker.delete("u")
    before, calls = broker.image, len(broker.replicas.calls)
    read(broker, TopicPartition("u", 0), TopicPartition("no-topic", 7))
    assert broker.image is before and len(broker.replicas.calls) == calls
    # Of a topic that has the name now, nothing is taken from the one before.
    broker.replicas.offline = []
    broker.create(NewTopic("u", 1, 1))
    read(broker, TopicPartition("u", 0))
    assert [each.leader for each in broker.image.topics["u"].partitions] == [0]


def start_unread(cluster: Cluster, node_id: int, directory: Path, **more: Any) -> OneBroker:
    """A broker again, of which a crash left the log unread."""
    broker = OneBroker(directory, node_id)
    broker.replicas.offline = [UNREAD]
    cluster.brokers[node_id] = broker
    broker.start(
        cluster.controller.embedded.new_session(),
        locks=lambda: [f"d{node_id}"],
        transport=cluster.wire,
        elections=lambda _: cluster.rules,
        renew=broker.next_session,
        **more,
    )
    eventually(lambda: cluster.epochs().get(node_id) == broker.controller.broker_epoch)
    follow(cluster)
    return broker


@pytest.mark.parametrize("others", [(), (3,)])
def test_no_replica_leads_whose_log_is_not_read(
    cluster: Cluster, tmp_path: Path, others: tuple[int, ...]
) -> None:
    """Alone in sync, whether others have replicas or not."""
    cluster.make(2, *others)
    for node_id in (*others, 2):
        cluster.end(node_id)
    two = start_unread(cluster, 2, tmp_path)
    eventually(lambda: cluster.state.leader == NO_LEADER)
    follow(cluster)
    assert cluster.state.isr == (2,)
    epoch = cluster.state.leader_epoch
    read(two, UNREAD)
    eventually(lambda: cluster.state.leader == 2)
    assert cluster.state.leader_epoch == epoch + 1
    follow(cluster)


def test_a_follower_goes_on_to_follow(cluster: Cluster, tmp_path: Path) -> None:
    cluster.make(3, 2)
    follow(cluster)
    cluster.end(2)
    two = start_unread(cluster, 2, tmp_path)
    assert (cluster.state.leader, cluster.state.isr) == (3, (3,))
    (answer,) = cluster.alter(3, 3, 2)
    assert not isinstance(answer, PartitionImage)  # it does not join
    state, calls = cluster.state, len(two.replicas.calls)
    read(two, UNREAD)
    (call,) = two.replicas.calls[calls:][:1]
    assert [topic.name for topic in call.changed] == ["t"]
    eventually(lambda: isinstance(cluster.alter(3, 3, 2)[0], PartitionImage))
    assert cluster.state.leader_epoch == state.leader_epoch and cluster.state.isr == (3, 2)


def test_the_controller_gets_the_logs_open_before_it_was_named(
    cluster: Cluster, tmp_path: Path
) -> None:
    cluster.make(3, 2)
    follow(cluster)
    cluster.end(2)
    two = start_unread(cluster, 2, tmp_path)
    two.replicas.offline = []
    assert isinstance(cluster.alter(3, 3)[0], PartitionImage)
    cluster.controller.grow(MorePartitions("t", 2))  # has the topic applied
    follow(cluster)
    read(two, UNREAD)
    eventually(lambda: isinstance(cluster.alter(3, 3, 2)[0], PartitionImage))
    assert cluster.state.isr == (3, 2)


def test_the_controllers_own(cluster: Cluster, wire: Wire, tmp_path: Path) -> None:
    cluster.make(1, 2)
    follow(cluster)
    for node_id in (3, 2):
        cluster.end(node_id)
    cluster.brokers.pop(1).stop()
    one = cluster.brokers[1] = OneBroker(tmp_path, 1)
    one.replicas.offline = [UNREAD]
    one.start(transport=wire, locks=lambda: ["d1"])
    ((leader, epoch),) = leaders(one)
    assert leader == NO_LEADER
    read(one, UNREAD)
    assert leaders(one) == [(1, epoch + 1)]
    stored = one.embedded.get(records.partition_state_path("t", 0))
    assert b'"leader":1' in stored.data


def test_a_broker_that_has_lost_its_session_leads_nothing_by_it(
    cluster: Cluster, wire: Wire, tmp_path: Path
) -> None:
    cluster.make(2)
    cluster.end(2)
    two = start_unread(cluster, 2, tmp_path)
    epoch = two.controller.broker_epoch
    wire.holds.add(2)
    two.embedded.expire()
    eventually(lambda: two.controller.broker_epoch > epoch)
    read(two, UNREAD)
    assert leaders(two)[0][0] == NO_LEADER
    wire.release()
    eventually(lambda: cluster.state.leader == 2)
    follow(cluster)


def test_it_is_said_again_when_the_store_is_back(
    cluster: Cluster, wire: Wire, tmp_path: Path
) -> None:
    cluster.make(2, 3)
    cluster.end(3)
    cluster.end(2)
    two = start_unread(cluster, 2, tmp_path)
    two.store.down = True
    read(two, UNREAD)
    two.store.down = False
    eventually(lambda: (wire.pauses_end(), cluster.state.leader == 2)[1])
    eventually(lambda: two.embedded.children(LOG_DIR_EVENTS) == [])


def test_a_controller_that_cannot_ask_its_store_decides_when_it_can(broker: OneBroker) -> None:
    broker.create(NewTopic("t", 2, 1))
    broker.replicas.offline = [UNREAD]
    broker.restart()
    broker.store.down = True
    assert broker.create("u")[0].error
    read(broker, UNREAD)
    assert leaders(broker) == [(0, 0), (0, 0)]  # as it was read
    broker.store.down = False
    assert not broker.create("u")[0].error
    assert leaders(broker) == [(0, 0), (0, 0)]
