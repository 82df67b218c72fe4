"""Who gets which partition, for every assignor of every library; and how commits come about.

The expected assignments follow from the assignors' published rules, for two topics of three
partitions (KIP-54 for sticky, KIP-429 for cooperative-sticky):

    range               each topic by itself in runs: the first member gets 0 and 1 of both
    roundrobin          all partitions dealt out in turn
    sticky              three each; whoever was there keeps what the newcomer does not need
    cooperative-sticky  the same, and only what moves is ever revoked
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable

import pytest

from tests.clients.adapters import Confluent, Record
from tests.clients.agents.driver import Agent, Partition, eventually
from tests.clients.agents.groups import Groups
from tests.clients.agents.programs import LIBRARIES, Library

pytestmark = [pytest.mark.client, pytest.mark.slow, pytest.mark.timeout(300)]

PARTITIONS = 3
CASES = [(library, strategy) for library in LIBRARIES for strategy in library.strategies]

Shares = list[frozenset[Partition]]
MakeTopic = Callable[..., str]
Start = Callable[[Library], Agent]


def settle(agent: Agent, names: str, everything: frozenset[Partition]) -> Shares:
    """The members' shares once they are disjoint, whole and as even as they can be."""
    shares: Shares = []

    def settled() -> bool:
        shares[:] = [agent.assigned(name).now for name in names]
        sizes = [len(share) for share in shares]
        whole = frozenset().union(*shares) == everything and sum(sizes) == len(everything)
        # Range is uneven by its rule: 4 and 2 of six.
        return whole and min(sizes) > 0

    eventually(settled, f"{agent.name}: {names} share {len(everything)} partitions")
    return shares


@pytest.mark.parametrize(
    ("library", "strategy"), CASES, ids=lambda case: getattr(case, "name", case)
)
def test_the_assignment_that_it_must_give(
    library: Library, strategy: str, start: Start, make_topic: MakeTopic, groups: Groups
) -> None:
    one, two = sorted((make_topic(PARTITIONS), make_topic(PARTITIONS)))
    everything = frozenset(itertools.product((one, two), range(PARTITIONS)))
    agent, group = start(library), f"assigned-{one}"
    agent.join("a", group, [one, two], strategy)
    alone = settle(agent, "a", everything)
    assert alone == [everything]
    agent.join("b", group, [one, two], strategy)
    pair = settle(agent, "ab", everything)
    assert groups.state(group) == ("STABLE", strategy, 2)
    check_pair(strategy, pair, one, two)
    if "sticky" in strategy:
        agent.join("c", group, [one, two], strategy)
        eventually(lambda: len(agent.assigned("c").now) == 2, "the third gets its share")
        trio = settle(agent, "abc", everything)
        assert [len(share) for share in trio] == [2, 2, 2]
        assert trio[0] < pair[0] and trio[1] < pair[1]  # each keeps two of its three
    if strategy == "cooperative-sticky":
        revoked = agent.assigned("a").revoked
        assert len(set(revoked)) == len(revoked) == 4  # three for b, one for c: what moved
        assert not set(revoked) & agent.assigned("a").now
    for name in "abc" if "sticky" in strategy else "ab":
        agent.leave(name)


def check_pair(strategy: str, pair: Shares, one: str, two: str) -> None:
    found = {frozenset(share) for share in pair}
    if strategy == "range":
        first = frozenset({(one, 0), (one, 1), (two, 0), (two, 1)})
        assert found == {first, frozenset({(one, 2), (two, 2)})}
    elif strategy in ("roundrobin", "RoundRobinAssigner"):
        first = frozenset({(one, 0), (one, 2), (two, 1)})
        assert found == {first, frozenset({(one, 1), (two, 0), (two, 2)})}
    else:
        assert {len(share) for share in found} == {3}


AUTOMATIC_MS = 500


@pytest.mark.parametrize("library", LIBRARIES, ids=lambda library: library.name)
def test_automatic_commits(
    library: Library, start: Start, make_topic: MakeTopic, bootstrap: str, groups: Groups
) -> None:
    """Without a word from the application: by the clock, and when the member leaves."""
    topic = make_topic()
    agent, group = start(library), f"automatic-{topic}"
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


@pytest.mark.parametrize("library", LIBRARIES, ids=lambda library: library.name)
def test_manual_commits_and_idempotent_processing(
    library: Library, start: Start, make_topic: MakeTopic, bootstrap: str, groups: Groups
) -> None:
    """A consumer dies between its work and its commit: the work is done again, once in effect."""
    topic = make_topic()
    records = [Record(b"%d" % n, key=b"payment-%d" % n) for n in range(30)]
    Confluent(bootstrap).produce(topic, records[:20])
    group, booked, seen = f"payments-{topic}", dict[bytes | None, bytes | None](), list[int]()

    def process(agent: Agent, end: int) -> None:
        def all_came() -> bool:
            for each in agent.take("a"):
                seen.append(each.offset)
                booked[each.key] = each.value  # by key: a second time changes nothing
            return bool(seen) and seen[-1] == end - 1

        eventually(all_came, f"{library.name} processes up to {end}")

    with start(library) as first:
        first.join("a", group, [topic], library.strategies[0])
        process(first, 20)
        first.commit("a")
        Confluent(bootstrap).produce(topic, records[20:])
        process(first, 30)
        first.kill()  # after the work, before the commit
    assert groups.committed(group) == {(topic, 0): 20}
    again = start(library)
    again.join("a", group, [topic], library.strategies[0])
    seen.clear()
    process(again, 30)  # once the dead one's session has ended
    assert seen == list(range(20, 30))
    again.commit("a")
    again.leave("a")
    assert groups.committed(group) == {(topic, 0): 30}
    assert booked == {record.key: record.value for record in records}
