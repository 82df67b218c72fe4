"""Four client libraries side by side at three brokers whose leaders and coordinator are killed -9,
and whose partitions Apache Kafka's own tool moves: librdkafka, aiokafka, Java's and franz-go.

An application of each, in a process of its own, writes numbers with its library's idempotent
producer and reads all that the others have written, in a group. Whatever happens to the brokers,
each producer's records are there once and in its order, each group goes on with the next
coordinator, and a member that keeps its partitions is given every record once.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path

import pytest

from kbroker.metadata.image import OFFSETS_TOPIC
from kbroker.peer.client import Client
from kbroker.testing import Cluster
from kbroker.testing.inspection import wait_until
from kbroker.types import TopicPartition
from tests.clients.agents import programs
from tests.clients.agents.driver import Agent, Partition, comes_to_be, eventually
from tests.clients.agents.groups import Groups
from tests.clients.agents.tools import Tool, Tools

pytestmark = [pytest.mark.client, pytest.mark.java, pytest.mark.slow, pytest.mark.timeout(240)]

LIBRARIES = [
    library
    for library in programs.LIBRARIES
    if library.name in {"confluent-kafka", "aiokafka", "java", "franz-go"}
]
PARTITIONS = 3
GO_ON = 60  # records that each writes, and all read, after each fault
RATE = 100  # records a second, of each
KILLED_TOPIC = "through-kills"
MOVED_TOPIC = "moved"
HELD = {0: [1, 2], 1: [2, 3], 2: [3, 1]}
TARGET = {0: [2, 3], 1: [3, 1], 2: [1, 2]}


class Application:
    """One library's producer and its member of a group of its own."""

    def __init__(self, agent: Agent, topic: str, strategy: str) -> None:
        self.topic, self.group = topic, f"{topic}-{agent.name}"
        self._agent, self._member = agent, topic
        self._next = dict.fromkeys(range(PARTITIONS), 0)
        self._again = 0
        agent.join(self._member, self.group, [topic], strategy)
        agent.write(self.group, topic, PARTITIONS, RATE)

    @property
    def written(self) -> int:
        found = self._agent.written(self.group)
        assert not found.errors, (self.group, found.errors[:10])
        return found.acknowledged

    @property
    def read(self) -> int:
        """How many records its member has been given; none is passed over."""
        for record in self._agent.take(self._member):
            wanted = self._next[record.partition]
            assert record.offset <= wanted, (self.group, record.partition, wanted, record.offset)
            if record.offset == wanted:
                self._next[record.partition] += 1
            else:
                self._again += 1
        return sum(self._next.values())

    def finish(self) -> list[int]:
        return self._agent.finish(self.group)

    def commit(self) -> None:
        self._agent.commit(self._member)

    def leave(self) -> None:
        """Once everything was read: twice only what it had to give up in between."""
        revoked = self._agent.assigned(self._member).revoked
        assert not self._again or revoked, (self.group, self._again)
        self._agent.leave(self._member)


class Applications:
    """One of each library, all on one topic."""

    def __init__(self, cluster: Cluster, agents: list[Agent], topic: str) -> None:
        self._cluster, self._topic = cluster, topic
        self._all = [
            Application(agent, topic, library.strategies[0])
            for agent, library in zip(agents, LIBRARIES, strict=True)
        ]

    def go_on(self) -> None:
        """Each has written more and read more, and its coordinator takes what it commits."""
        marks = [(each, each.written + GO_ON, each.read + GO_ON) for each in self._all]
        for each, written, read in marks:
            eventually(lambda e=each, w=written: e.written >= w, f"{each.group} writes")
            eventually(lambda e=each, r=read: e.read >= r, f"{each.group} reads")
            each.commit()

    def finish(self) -> None:
        """All end, and their acknowledged records are looked for."""
        acknowledged = {each.group: each.finish() for each in self._all}
        stored: dict[tuple[str, int], list[int]] = {}
        ends = dict.fromkeys(range(PARTITIONS), 0)
        for record in self._cluster.records(self._topic):
            writer, number = (record.value or b"").decode().split()
            stored.setdefault((writer, record.partition), []).append(int(number))
            ends[record.partition] += 1
        for writer, numbers in acknowledged.items():
            for partition in range(PARTITIONS):
                wanted = sorted(each for each in numbers if each % PARTITIONS == partition)
                assert stored[writer, partition] == wanted, (writer, partition)
        groups = Groups(self._cluster.bootstrap)
        committed: dict[Partition, int] = {(self._topic, at): end for at, end in ends.items()}
        for each in self._all:
            comes_to_be(lambda e=each: e.read, sum(ends.values()))
            each.commit()
            assert groups.committed(each.group) == committed, each.group
            each.leave()


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    settings = {
        "min.insync.replicas": 2,
        # Four clients and Java's tools on one machine: none is to lose its session, or its place
        # among those in sync, but who was killed.
        "zookeeper.session.timeout.ms": 6_000,
        "replica.lag.time.max.ms": 10_000,
    }
    with Cluster(3, settings, topics={KILLED_TOPIC: PARTITIONS}) as made:
        yield made


@pytest.fixture(scope="module")
def agents(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Agent]]:
    place = tmp_path_factory.mktemp("agents")
    with ExitStack() as running:
        made = []
        for library in LIBRARIES:
            log = running.enter_context((place / library.name).open("wb"))
            made.append(running.enter_context(programs.agent(library, cluster.bootstrap, log)))
        yield made


def test_applications_do_not_notice_a_kill(cluster: Cluster, agents: list[Agent]) -> None:
    applications = Applications(cluster, agents, KILLED_TOPIC)
    applications.go_on()
    coordinator = cluster.leader(OFFSETS_TOPIC, 0)  # of all groups: the topic has one partition
    leaders = [cluster.leader(KILLED_TOPIC, at) for at in range(PARTITIONS)]
    leader = next(each for each in leaders if each is not coordinator)
    for broker in (leader, coordinator):
        broker.kill9()
        applications.go_on()
        broker.start()
        cluster.wait_in_sync()
    applications.go_on()
    applications.finish()


def in_sets(placed: Mapping[int, list[int]]) -> dict[int, set[int]]:
    """Who stays has the plan's order, also when the plan is taken back."""
    return {at: {*replicas} for at, replicas in placed.items()}


class Mover:
    """kafka-reassign-partitions with one plan."""

    def __init__(self, tool: Tool, plan: Path) -> None:
        self._tool, self._plan = tool, plan
        moves = [{"topic": MOVED_TOPIC, "partition": n, "replicas": to} for n, to in TARGET.items()]
        plan.write_text(json.dumps({"version": 1, "partitions": moves}))

    def run(self, action: str, *arguments: str) -> str:
        plan = () if action == "--list" else ("--reassignment-json-file", str(self._plan))
        command = "reassign.ReassignPartitionsCommand"
        return self._tool.run(command, action, *plan, *arguments)


def test_kafka_reassign_partitions_moves_partitions_under_load(
    cluster: Cluster, agents: list[Agent], tmp_path: Path
) -> None:
    tools = Tools()
    tool = Tool(tools, cluster.bootstrap)
    mover = Mover(tool, tmp_path / "plan.json")
    assignment = ",".join(":".join(map(str, held)) for held in HELD.values())
    create = ("--create", "--topic", MOVED_TOPIC, "--replica-assignment", assignment)
    every = [f"{MOVED_TOPIC}-{at}" for at in range(PARTITIONS)]

    def placed() -> dict[int, list[int]]:
        topic = client.metadata([MOVED_TOPIC]).topics[MOVED_TOPIC]
        return {each.index: [*each.replicas] for each in topic.partitions}

    def all_know() -> bool:
        described = [each.partitions(MOVED_TOPIC) for each in cluster.brokers.values()]
        return all({at.index: [*at.replicas] for at in each} == TARGET for each in described)

    def throttles() -> list[str]:
        set_ = [each.name for each in client.topic_configs(MOVED_TOPIC) if each.value]
        return [name for name in set_ if "throttled" in name]

    try:
        tool.run("TopicCommand", *create)
        applications = Applications(cluster, agents, MOVED_TOPIC)
        applications.go_on()
        with Client(cluster.bootstrap) as client:
            # At a byte a second no replica ever catches up.
            described = mover.run("--execute", "--throttle", "1")
            assert (
                "Successfully started partition reassignments for " + ",".join(every) in described
            )
            assert set(client.reassignments()) == {
                TopicPartition(MOVED_TOPIC, at) for at in range(PARTITIONS)
            }
            described = mover.run("--list")
            assert "adding: 3" in next(line for line in described.splitlines() if every[0] in line)
            described = mover.run("--verify", "--preserve-throttles")
            assert described.count("is still in progress.") == PARTITIONS
            applications.go_on()
            described = mover.run("--cancel")
            assert (
                "Successfully cancelled partition reassignments for: " + ",".join(every)
                in described
            )
            wait_until(lambda: in_sets(placed()) == in_sets(HELD), "all are where they were")
            assert "No partition reassignments found." in mover.run("--list")
            mover.run("--execute", "--throttle", "1")
            described = mover.run("--execute", "--additional", "--throttle", "50000000")
            assert "throttle limit was set to 50000000 B/s" in described
            wait_until(lambda: not client.reassignments(), "nothing moves")
            wait_until(all_know, "all brokers know")  # any of them may be asked
            described = mover.run("--verify")
            assert described.count("is completed.") == PARTITIONS
            assert f"Clearing topic-level throttles on topic {MOVED_TOPIC}" in described
            wait_until(lambda: not throttles(), "nothing is throttled")
        applications.go_on()
        cluster.wait_in_sync(MOVED_TOPIC)
        applications.finish()
    finally:
        tools.close()
