"""Java share consumers at three brokers whose leaders are killed -9.

Two workers of a share group accept all that they poll, while a producer writes. Whatever happens to
the leaders and to the coordinators of the group and its state, each record comes and is accepted,
and one whose acceptance was answered without an error does not come again. Of one that was not
answered, since its leader was killed, it is not known whether it counts: it comes again, or not.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from kbroker.testing import Cluster
from tests.clients.agents import programs
from tests.clients.agents.driver import eventually
from tests.clients.agents.sharers import Sharer, Worked
from tests.clients.agents.tools import Tool, Tools

pytestmark = [pytest.mark.client, pytest.mark.java, pytest.mark.slow, pytest.mark.timeout(240)]

JAVA = next(each for each in programs.LIBRARIES if each.name == "java")
SETTINGS = {
    "min.insync.replicas": 2,
    "share.coordinator.state.topic.replication.factor": 3,
    "share.coordinator.state.topic.min.isr": 2,
}
TOPIC, GROUP = "orders", "workers"
PARTITIONS = 3
KILLS = 2
RATE = 200  # records a second
GO_ON = 100  # records that are accepted after each fault


def merged(workers: list[Sharer]) -> Worked:
    found = [each.worked() for each in workers]
    return Worked(
        [each for one in found for each in one.came],
        [each for one in found for each in one.accepted],
        [each for one in found for each in one.unknown],
        [each for one in found for each in one.errors],
    )


def came_again(worked: Worked) -> list[tuple[int, int]]:
    """Records that came to some worker after the answer to their acceptance."""
    accepted = {(partition, offset): ns for partition, offset, ns in worked.accepted}
    return [
        (partition, offset)
        for partition, offset, ns in worked.came
        if ns > accepted.get((partition, offset), ns)
    ]


def set_up(cluster: Cluster) -> None:
    tools = Tools()
    try:
        Tool(tools, cluster.bootstrap).run(
            "kafka.admin.ConfigCommand", "--alter", "--entity-type", "groups", "--entity-name",
            GROUP, "--add-config",
            "share.auto.offset.reset=earliest,share.delivery.count.limit=10",
        )  # fmt: skip
    finally:
        tools.close()


def test_leaders_are_killed(tmp_path: Path) -> None:
    with (
        Cluster(3, SETTINGS, topics={TOPIC: PARTITIONS}) as cluster,
        (tmp_path / "agents").open("wb") as log,
    ):
        set_up(cluster)
        with programs.agent(JAVA, cluster.bootstrap, log) as agent:
            configs = {"share.acknowledgement.mode": "explicit"}
            workers = [
                Sharer(agent, f"worker {number}", GROUP, [TOPIC], configs, works=True)
                for number in range(2)
            ]
            agent.write("writer", TOPIC, PARTITIONS, RATE)

            def go_on() -> None:
                before = Counter(partition for partition, *_ in merged(workers).accepted)

                def goes_on() -> bool:
                    now = Counter(partition for partition, *_ in merged(workers).accepted)
                    return all(now[at] >= before[at] + GO_ON for at in range(PARTITIONS))

                eventually(goes_on, "all partitions go on")

            go_on()
            for number in range(KILLS):
                leader = cluster.leader(TOPIC, number % PARTITIONS)
                leader.kill9()
                go_on()
                leader.start()
                cluster.wait_in_sync()
                go_on()
            written = len(agent.finish("writer"))
            # An idempotent producer: each number is there once.
            stored = {(each.partition, each.offset) for each in cluster.records(TOPIC)}
            assert len(stored) >= written

            def are_accepted() -> bool:
                found = merged(workers)
                return stored <= {(p, o) for p, o, _ in (*found.accepted, *found.unknown)}

            try:
                eventually(are_accepted, "all records are accepted")
            finally:
                found = merged(workers)
                left = sorted(stored - {(p, o) for p, o, _ in found.accepted})
                print(
                    f"{len(stored)} records, {len(found.came)} deliveries, {len(left)} without an "
                    f"answer {left[:10]}, errors {Counter(found.errors)}"
                )
            assert stored == {(p, o) for p, o, _ in found.came}
            assert came_again(found) == []
