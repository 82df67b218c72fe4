"""Who gets which partition, for every assignor of every library; and how commits come about.

The expected assignments follow from the assignors' published rules, for two topics of three
partitions (KIP-54 for sticky, KIP-429 for cooperative-sticky):

    range               each topic by itself in runs: the first member gets 0 and 1 of both
    roundrobin          all partitions dealt out in turn
    sticky              three each; older members keep what the newcomer does not need
    cooperative-sticky  the same, and only what moves is ever revoked
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable

import pytest

from tests.clients.adapters import Confluent, Record
from tests.clients.agents.driver import Agent, Assignment, Partition, eventually
from tests.clients.agents.groups import Groups
from tests.clients.agents.programs import LIBRARIES, Library

pytestmark = [pytest.mark.client, pytest.mark.slow, pytest.mark.timeout(300)]

PARTITIONS = 3
CASES = [(library, strategy) for library in LIBRARIES for strategy in library.strategies]

Shares = list[frozenset[Partition]]
MakeTopic = Callable[..., str]
Start = Callable[[Library], Agent]
Running = Callable[..., Agent]


class Members:
    """Members of one group, by one-letter names, in one process or in one each."""

    def __init__(self, running: Running, library: Library, strategy: str, *topics: str) -> None:
        self._running, self._library, self._strategy = running, library, strategy
        self._topics = topics
        self.group = f"assigned-{topics[0]}"
        self.names = ""

    def _agent(self, name: str) -> Agent:
        return self._running(self._library, "abc".index(name) * self._library.process_each)

    def join(self, name: str) -> None:
        self.names += name
        self._agent(name).join(name, self.group, self._topics, self._strategy)

    def assigned(self, name: str) -> Assignment:
        return self._agent(name).assigned(name)

    def settle(self, *sizes: int) -> Shares:
        """Their shares once these are disjoint, whole and of such sizes, the largest first.

        Whole is not enough: a cooperative member whose SyncGroup comes when another has already
        given up its partitions joins again with all of its own, and the newcomer holds what there
        is until the next generation.
        """
        everything = frozenset(itertools.product(self._topics, range(PARTITIONS)))
        shares: Shares = []

        def settled() -> bool:
            shares[:] = [self.assigned(name).now for name in self.names]
            whole = frozenset().union(*shares) == everything
            return whole and sorted(map(len, shares), reverse=True) == list(sizes)

        eventually(settled, f"{self._library.name}: {self.names} share {len(everything)}")
        return shares

    def leave(self) -> None:
        for name in self.names:
            self._agent(name).leave(name)


@pytest.mark.parametrize(("library", "strategy"), CASES, ids=lambda x: getattr(x, "name", x))
def test_the_assignment_that_it_must_give(
    library: Library, strategy: str, running: Running, make_topic: MakeTopic, groups: Groups
) -> None:
    one, two = sorted((make_topic(PARTITIONS), make_topic(PARTITIONS)))
    members = Members(running, library, strategy, one, two)
    members.join("a")
    (alone,) = members.settle(6)
    members.join("b")
    pair = members.settle(4, 2) if strategy == "range" else members.settle(3, 3)
    stable = ("STABLE", strategy, 2)
    eventually(lambda: groups.state(members.group) == stable, f"the group is {stable}")
    check_pair(strategy, pair, one, two)
    if "sticky" in strategy:
        members.join("c")
        trio = members.settle(2, 2, 2)
        kept = sum(len(now & before) for now, before in zip(trio, pair, strict=False))
        assert kept == 4 or (strategy == "sticky" and not library.sticks)
        if strategy == "cooperative-sticky":
            moved = sorted([*(alone - pair[0]), *(pair[0] - trio[0])])
            assert sorted(members.assigned("a").revoked) == moved  # each once, and no other
    members.leave()


def check_pair(strategy: str, pair: Shares, one: str, two: str) -> None:
    found = {frozenset(share) for share in pair}
    if strategy == "range":
        first = frozenset({(one, 0), (one, 1), (two, 0), (two, 1)})
        assert found == {first, frozenset({(one, 2), (two, 2)})}
    elif strategy in ("roundrobin", "RoundRobinAssigner"):
        first = frozenset({(one, 0), (one, 2), (two, 1)})
        assert found == {first, frozenset({(one, 1), (two, 0), (two, 2)})}


AUTOMATIC_MS = 500


@pytest.mark.parametrize("library", LIBRARIES, ids=lambda library: library.name)
def test_automatic_commits(
    library: Library, running: Running, make_topic: MakeTopic, bootstrap: str, groups: Groups
) -> None:
    """Without a word from the application: by the clock, and when the member leaves."""
    topic = make_topic()
    agent, group = running(library), f"automatic-{topic}"
    agent.join("a", group, [topic], library.strategies[0], auto_commit_ms=AUTOMATIC_MS)
    for written in (10, 20):
        Confluent(bootstrap).produce(topic, [Record(b"x")] * 10)
        taken: list[int] = []

        def all_came(taken: list[int] = taken, written: int = written) -> bool:
            taken.extend(each.offset for each in agent.take("a"))
            return bool(taken) and taken[-1] == written - 1

        eventually(all_came, "the records come")
        eventually(
            lambda written=written: groups.committed(group) == {(topic, 0): written},
            f"{library.name} commits by itself",
        )
    agent.leave("a")
    assert groups.committed(group) == {(topic, 0): 20}


def test_the_default_interval_is_five_seconds(
    make_topic: MakeTopic, bootstrap: str, groups: Groups
) -> None:
    """librdkafka's and Java's default, untouched: nothing is committed at once, then all is."""
    import confluent_kafka

    topic = make_topic()
    Confluent(bootstrap).produce(topic, [Record(b"x")] * 10)
    group = f"default-{topic}"
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": bootstrap, "group.id": group, "auto.offset.reset": "earliest"}
    )
    consumer.subscribe([topic])
    began, count = time.monotonic(), 0
    while count < 10:
        count += consumer.poll(1.0) is not None
        assert time.monotonic() < began + 60

    def committed() -> bool:
        consumer.poll(0.05)
        return groups.committed(group) == {(topic, 0): 10}

    eventually(committed, "it commits by the clock")
    consumer.close()


class Bookkeeper:
    """An application that books payments by key: doing one twice changes nothing."""

    def __init__(self, library: Library, topic: str) -> None:
        self.library, self.topic = library, topic
        self.group = f"payments-{library.name}-{topic}"
        self.booked: dict[bytes | None, bytes | None] = {}
        self.seen: list[int] = []

    def start(self, agent: Agent) -> None:
        self.agent, self.seen = agent, []
        agent.join("a", self.group, [self.topic], self.library.strategies[0])

    def process(self, end: int) -> None:
        def all_came() -> bool:
            for each in self.agent.take("a"):
                self.seen.append(each.offset)
                self.booked[each.key] = each.value
            return bool(self.seen) and self.seen[-1] == end - 1

        eventually(all_came, f"{self.library.name} processes up to {end}")


def test_manual_commits_and_idempotent_processing(
    start: Start, running: Running, make_topic: MakeTopic, bootstrap: str, groups: Groups
) -> None:
    """Each library's consumer dies between work and commit: the work is done again, to no harm."""
    topic = make_topic()
    records = [Record(b"%d" % n, key=b"payment-%d" % n) for n in range(30)]
    Confluent(bootstrap).produce(topic, records[:20])
    keepers = [Bookkeeper(library, topic) for library in LIBRARIES]
    for keeper in keepers:
        keeper.start(start(keeper.library))
    for keeper in keepers:
        keeper.process(20)
        keeper.agent.commit("a")
    Confluent(bootstrap).produce(topic, records[20:])
    for keeper in keepers:
        keeper.process(30)
        keeper.agent.kill()  # after the work, before the commit
    for keeper in keepers:
        assert groups.committed(keeper.group) == {(topic, 0): 20}
        keeper.start(running(keeper.library))
        keeper.process(30)  # once the dead one's session has ended
        assert keeper.seen == list(range(20, 30))
        keeper.agent.commit("a")
        keeper.agent.leave("a")
        assert groups.committed(keeper.group) == {(topic, 0): 30}
        assert keeper.booked == {record.key: record.value for record in records}
