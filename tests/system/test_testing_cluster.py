"""kbroker.testing.Cluster: what tests of an application may do to three brokers."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator

import confluent_kafka
import pytest

from kbroker.errors import ErrorCode
from kbroker.peer.client import Client
from kbroker.testing import BrokerFailed, Cluster, ClusterBroker
from kbroker.testing.inspection import wait_until
from kbroker.types import TopicPartition
from tests.support import ended_sessions

pytestmark = [pytest.mark.client, pytest.mark.timeout(180)]

TIMEOUT_S = 30


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    # None is to lose a session because its machine is full of other work, nor to lead once more
    # because it is preferred.
    settings = {"zookeeper.session.timeout.ms": 6_000, "auto.leader.rebalance.enable": False}
    with Cluster(3, settings, topics={"orders": 3}) as made:
        yield made


@pytest.fixture(autouse=True)
def whole(cluster: Cluster) -> Iterator[None]:
    yield
    cluster.heal()


def write(cluster: Cluster, value: str, partition: int = 0) -> None:
    producer = confluent_kafka.Producer({"bootstrap.servers": cluster.bootstrap, "acks": "all"})
    failed: list[object] = []
    producer.produce(
        "orders", value, partition=partition, on_delivery=lambda e, _: e and failed.append(e)
    )
    assert producer.flush(TIMEOUT_S) == 0
    assert not failed


def values(cluster: Cluster, partition: int = 0) -> list[bytes | None]:
    return [each.value for each in cluster.records("orders", partition)]


def test_one_that_ended_by_itself_is_said_and_can_be_started(cluster: Cluster) -> None:
    ended = cluster.leader("orders", 0)
    os.kill(ended.pid, signal.SIGKILL)
    wait_until(lambda: not ended.alive, "it has ended")
    ended.start()  # on another port for the others
    cluster.wait_in_sync("orders")
    os.kill(ended.pid, signal.SIGKILL)
    wait_until(lambda: not ended.alive, "it has ended")
    with pytest.raises(BrokerFailed, match=f"broker {ended.broker_id} ended by itself"):
        ended.finish()


def test_a_paused_or_cut_off_broker_lets_others_be_inspected(cluster: Cluster) -> None:
    paused = cluster.leader("orders", 0)
    paused.pause()
    wait_until(lambda: cluster.leader("orders", 0) is not paused, "another leads")
    cluster.heal()
    cut = cluster.leader("orders", 0)
    cluster.cut(cut)
    wait_until(lambda: cluster.leader("orders", 0) is not cut, "another leads")
    assert "orders" in cluster.topics()
    cluster.records("orders")


def test_healed_is_registered(cluster: Cluster) -> None:
    session = cluster.zookeeper.owner_of("/brokers/ids/3")
    assert session is not None
    cluster.zookeeper.expire(session)
    cluster.heal()
    assert cluster.zookeeper.owner_of("/brokers/ids/3") not in (None, session)


def test_a_leader_is_killed_and_comes_back(cluster: Cluster) -> None:
    before = values(cluster)
    killed = cluster.leader("orders", 0)
    write(cluster, "one")
    killed.kill9()
    wait_until(lambda: cluster.leader("orders", 0) is not killed, "another leads")
    write(cluster, "two")
    assert values(cluster) == [*before, b"one", b"two"]
    killed.start()
    cluster.wait_in_sync("orders")


def test_deleted_records_do_not_come_back_with_the_next_leader(cluster: Cluster) -> None:
    """The answer comes when the followers have it, and they get the high watermark at once."""
    for value in ("three", "four"):
        write(cluster, value)
    killed = cluster.leader("orders", 0)
    name = TopicPartition("orders", 0)
    with Client(killed.bootstrap) as client:
        deleted = client.delete_records({name: -1})[name]
    ended_sessions.kill(cluster, killed)
    assert deleted.error is ErrorCode.NONE and deleted.low_watermark >= 2
    wait_until(lambda: cluster.leader("orders", 0) is not killed, "another leads")
    assert values(cluster) == []
    killed.start()
    cluster.wait_in_sync("orders")


def test_a_stopped_leader_is_replaced_and_goes_on(cluster: Cluster) -> None:
    before = values(cluster, 1)
    paused = cluster.leader("orders", 1)
    paused.pause()
    others = [each for each in cluster.brokers.values() if each is not paused]
    wait_until(lambda: leader_by(others[0], 1) != paused.broker_id, "another leads")
    paused.resume()
    cluster.wait_in_sync("orders")
    write(cluster, "after it", 1)
    assert values(cluster, 1) == [*before, b"after it"]


def leader_by(broker: ClusterBroker, partition: int) -> int:
    """As this very broker tells it."""
    return broker.partitions("orders")[partition].leader


def test_a_broker_that_is_cut_off_leads_no_more_and_follows_later(cluster: Cluster) -> None:
    cut = cluster.leader("orders", 2)
    cluster.cut(cut)
    others = [each for each in cluster.brokers.values() if each is not cut]
    wait_until(lambda: leader_by(others[0], 2) not in (cut.broker_id, -1), "another leads")
    assert leader_by(cut, 2) == cut.broker_id  # it has no new image
    cluster.mend()
    cluster.wait_in_sync("orders")
    wait_until(lambda: leader_by(cut, 2) != cut.broker_id, "it has the new image")
    write(cluster, "by another", 2)


def test_two_brokers_that_do_not_reach_each_other(cluster: Cluster) -> None:
    one = cluster.leader("orders", 0)
    # A leader that does not reach the controller could not say that a follower lags.
    spared = (one, cluster.controller())
    other = next(each for each in cluster.brokers.values() if each not in spared)
    cluster.cut(one, other, zookeeper=False)
    write(cluster, "two of three have it")  # answered once the third has left the set
    # Its replicas follow an image before the broker shows it.
    wait_until(lambda: other.broker_id not in one.partitions("orders")[0].isr, "it has left")
    assert cluster.leader("orders", 0) is one
    cluster.mend()
    cluster.wait_in_sync("orders")


def test_without_zookeeper_running_brokers_go_on(cluster: Cluster) -> None:
    leader = cluster.leader("orders", 0)
    cluster.zookeeper.lose()
    write(cluster, "all the same")
    sessions = cluster.zookeeper.sessions()
    assert len(sessions) == 3
    cluster.zookeeper.come_back()
    write(cluster, "and later")
    assert cluster.leader("orders", 0) is leader
    assert cluster.zookeeper.sessions() == sessions  # no session was lost


def test_a_session_that_expires_is_begun_anew(cluster: Cluster) -> None:
    controller = cluster.controller()
    session = cluster.zookeeper.owner_of(f"/brokers/ids/{controller.broker_id}")
    assert session is not None
    cluster.zookeeper.expire(session)
    wait_until(
        lambda: (
            cluster.zookeeper.owner_of(f"/brokers/ids/{controller.broker_id}")
            not in (None, session)
        ),
        "it is registered again",
    )
    cluster.wait_in_sync("orders")
    write(cluster, "after it")
