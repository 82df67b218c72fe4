"""One log of one broker hangs, in each of its roles, and a broker dies: every other log is served.

A hang is none of a few milliseconds: it lasts until the test ends it. So whatever waited for it
would wait for good, and nothing here depends on how fast the machine is.
"""

from __future__ import annotations

import urllib.request
from collections.abc import Iterator

import confluent_kafka
import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from kbroker.testing import Cluster, ClusterBroker
from kbroker.testing.inspection import wait_until

pytestmark = [pytest.mark.client, pytest.mark.timeout(300)]

TOPIC = "orders"
PARTITIONS = 9
SERVED_S = 60


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    settings = {"auto.leader.rebalance.enable": False, "min.insync.replicas": 1}
    with Cluster(3, settings, topics={TOPIC: PARTITIONS}) as made:
        yield made


def producer_of(cluster: Cluster, acks: str) -> confluent_kafka.Producer:
    settings = {
        "bootstrap.servers": cluster.bootstrap,
        "acks": acks,
        "enable.idempotence": acks == "all",
        "message.timeout.ms": 300_000,
        "linger.ms": 0,
    }
    return confluent_kafka.Producer(settings)


def hung_and_victim(
    cluster: Cluster, at_controller: bool, leads: bool
) -> tuple[ClusterBroker, ClusterBroker, ClusterBroker]:
    """Whose log hangs, who leads that partition, and who dies."""
    controller = cluster.controller()
    other, third = (each for each in cluster.brokers.values() if each is not controller)
    hung = controller if at_controller else other
    beside = other if at_controller else controller
    return hung, hung if leads else beside, third


@pytest.mark.parametrize("leads", [True, False], ids=["leader", "follower"])
@pytest.mark.parametrize("at_controller", [True, False], ids=["controller", "another"])
def test_leaders_of_other_partitions_are_elected_and_serve(
    cluster: Cluster, at_controller: bool, leads: bool
) -> None:
    cluster.wait_in_sync(TOPIC)
    hung, leader, victim = hung_and_victim(cluster, at_controller, leads)
    place = 0
    cluster.move_leader(TOPIC, place, leader)
    others = [index for index in range(PARTITIONS) if index != place]
    for index in others[:3]:
        cluster.move_leader(TOPIC, index, victim)

    first = producer_of(cluster, "1")
    hung.hang_files(f"/{TOPIC}-{place}/")
    first.produce(TOPIC, "hangs", partition=place)
    first.poll(0)
    wait_until(lambda: hung.hung_operations > 0, "the log hangs")
    victim.kill9()
    beside = producer_of(cluster, "all")
    failed: list[object] = []
    for index in others:
        beside.produce(
            TOPIC, "goes on", partition=index, on_delivery=lambda e, _: e and failed.append(e)
        )
    assert beside.flush(SERVED_S) == 0, "healthy partitions wait for the log that hangs"
    assert not failed
    assert hung.hung_operations > 0
    for page in ("/metrics", "/readyz"):
        with urllib.request.urlopen(hung.admin + page, timeout=SERVED_S) as answer:
            assert answer.status == 200

    assert hung.let_files_go() > 0
    victim.start()
    assert first.flush(SERVED_S) == 0
    cluster.wait_in_sync(TOPIC)


@pytest.mark.parametrize("removed", [False, True], ids=["made", "removed"])
@pytest.mark.parametrize("at_controller", [True, False], ids=["controller", "another"])
def test_a_log_that_is_made_or_removed_keeps_no_election_waiting(
    cluster: Cluster, at_controller: bool, removed: bool
) -> None:
    """What the broker is elected to lead meanwhile it leads, and what it says it says soon."""
    cluster.wait_in_sync(TOPIC)
    hung, _, victim = hung_and_victim(cluster, at_controller, leads=True)
    for index in range(3):
        cluster.move_leader(TOPIC, index, victim)
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    made = NewTopic("late", 1, 3)
    if removed:
        admin.create_topics([made])["late"].result(SERVED_S)
        cluster.wait_in_sync("late")
    hung.hang_files("/late-0")
    changed = admin.delete_topics(["late"]) if removed else admin.create_topics([made])
    wait_until(lambda: hung.hung_operations > 0, "the log hangs")
    changed["late"].result(SERVED_S)
    victim.kill9()
    beside = producer_of(cluster, "all")
    failed: list[object] = []
    for index in range(PARTITIONS):
        beside.produce(
            TOPIC, "goes on", partition=index, on_delivery=lambda e, _: e and failed.append(e)
        )
    assert beside.flush(SERVED_S) == 0, "healthy partitions wait for the disk"
    assert not failed
    assert hung.hung_operations > 0

    assert hung.let_files_go() > 0
    victim.start()
    cluster.wait_in_sync(TOPIC)
    if not removed:
        cluster.wait_in_sync("late")
        admin.delete_topics(["late"])["late"].result(SERVED_S)
    wait_until(lambda: not has_log(hung, "late-0"), "the log is removed")


def has_log(broker: ClusterBroker, name: str) -> bool:
    return any(name == each.name for each in broker.data_dir.iterdir())
