"""How soon all partitions acknowledge after a kill, while one log of another broker hangs.

    python -m tests.system.hung_log_failover --partitions 1000 --rounds 3

Three brokers with sessions of two seconds, each partition with a replica on each. A third of the
partitions lose their leader to a kill -9, at once a record with acks=all is sent to each partition,
and the time to the last acknowledgement is taken: without a hang, and with one log that hangs in
each of four roles. The partition whose log hangs is left out.
"""

from __future__ import annotations

import argparse
import statistics
import time
from typing import Final

from kbroker.testing import Cluster, ClusterBroker
from kbroker.testing.inspection import wait_until
from tests.system.test_hanging_disk import hung_and_victim, producer_of

TOPIC: Final = "orders"
PLACE: Final = 0
FLUSH_S: Final = 120
ROLES: Final = {
    "the controller's broker, leader": (True, True),
    "the controller's broker, follower": (True, False),
    "another broker, leader": (False, True),
    "another broker, follower": (False, False),
}


def fail_over(cluster: Cluster, victim: ClusterBroker, partitions: int) -> float:
    """Seconds from the kill to the last partition's acknowledgement."""
    producer = producer_of(cluster, "all")
    failed: list[object] = []

    def delivered(error: object, _: object) -> None:
        if error is not None:
            failed.append(error)

    producer.list_topics(TOPIC)  # it knows who leads before that changes
    victim.kill9()
    killed_s = time.monotonic()
    for index in range(partitions):
        if index != PLACE:
            producer.produce(TOPIC, "goes on", partition=index, on_delivery=delivered)
    left = producer.flush(FLUSH_S)
    took_s = time.monotonic() - killed_s
    if left or failed:
        raise RuntimeError(
            f"{left} records are not acknowledged, {len(failed)} failed: {failed[:1]}"
        )
    return took_s


def with_a_hang(cluster: Cluster, role: tuple[bool, bool], partitions: int) -> float:
    hung, leader, victim = hung_and_victim(cluster, *role)
    cluster.move_leader(TOPIC, PLACE, leader)
    first = producer_of(cluster, "1")
    hung.hang_files(f"/{TOPIC}-{PLACE}/")
    first.produce(TOPIC, "hangs", partition=PLACE)
    first.poll(0)
    wait_until(lambda: hung.hung_operations > 0, "the log hangs")
    took_s = fail_over(cluster, victim, partitions)
    if not hung.hung_operations:
        raise RuntimeError("the log did not hang to the end")
    hung.let_files_go()
    victim.start()
    first.flush(FLUSH_S)
    cluster.wait_in_sync(TOPIC)
    return took_s


def without(cluster: Cluster, partitions: int) -> float:
    *_, victim = hung_and_victim(cluster, True, True)
    took_s = fail_over(cluster, victim, partitions)
    victim.start()
    cluster.wait_in_sync(TOPIC)
    return took_s


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--partitions", type=int, default=1_000)
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    settings = {"auto.leader.rebalance.enable": False, "min.insync.replicas": 1}
    with Cluster(3, settings, topics={TOPIC: arguments.partitions}) as cluster:
        cluster.wait_in_sync(TOPIC)
        usual: list[float] = []
        hanging: dict[str, list[float]] = {role: [] for role in ROLES}
        for _ in range(arguments.rounds):
            usual.append(without(cluster, arguments.partitions))
            for role, how in ROLES.items():
                hanging[role].append(with_a_hang(cluster, how, arguments.partitions))
        plain = statistics.median(usual)
        print(f"without a hang: {plain:.2f} s in the middle of {[round(s, 2) for s in usual]}")
        for role, took in hanging.items():
            middle = statistics.median(took)
            rounded = [round(s, 2) for s in took]
            print(f"{role}: {middle:.2f} s, {middle / plain:.2f} x, of {rounded}")


if __name__ == "__main__":
    main()
