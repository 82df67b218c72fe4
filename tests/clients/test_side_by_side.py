"""All libraries at once on one topic: each in a group of its own, then all in one group.

The broker stops in the middle, once as it should and once with kill -9; every library goes on by
itself, and what was committed stays committed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pytest

from kbroker.testing.process import ServerProcess
from tests.clients import adapters
from tests.clients.adapters import Record
from tests.clients.agents.driver import Agent, Partition, comes_to_be, eventually
from tests.clients.agents.groups import Groups, State
from tests.clients.agents.programs import LIBRARIES
from tests.clients.conftest import Start
from tests.support import servers

pytestmark = [pytest.mark.client, pytest.mark.slow, pytest.mark.timeout(300)]

PARTITIONS = 8
EACH = 40  # records that a library writes at a time
TOPIC = "side-by-side"
MIXED = [library for library in LIBRARIES if "range" in library.strategies]


@pytest.fixture
def own_server() -> Iterator[ServerProcess]:
    with servers.make() as broker:
        admin = adapters.Admin(broker.bootstrap, settle=True)
        admin.create(TOPIC, PARTITIONS)
        del admin
        yield broker
        servers.assert_nothing_unexpected(broker)


@pytest.fixture
def bootstrap(own_server: ServerProcess) -> str:
    return own_server.bootstrap


class Readers:
    """One member of each agent, and what each has seen, by value."""

    def __init__(self, agents: Sequence[Agent]) -> None:
        self.agents = agents
        self.seen: dict[str, set[bytes | None]] = {agent.name: set() for agent in agents}

    def take(self) -> None:
        for agent in self.agents:
            agent.tell("take", name="m")
        for agent in self.agents:
            for each in agent.taken():
                self.seen[agent.name].add(each.value)

    def until_each_has(self, wanted: set[bytes | None], what: str) -> None:
        def all_have() -> bool:
            self.take()
            return all(seen >= wanted for seen in self.seen.values())

        eventually(all_have, what)

    def until_together(self, wanted: set[bytes | None], what: str) -> None:
        def together() -> bool:
            self.take()
            return set().union(*self.seen.values()) >= wanted

        eventually(together, what)

    def until_committed(
        self, agents: Sequence[Agent], groups: Groups, group: str, wanted: dict[Partition, int]
    ) -> None:
        """A member that has just lost its partitions has nothing to commit; who has them now reads
        them anew."""

        def committed() -> dict[Partition, int]:
            self.take()
            for agent in agents:
                agent.commit("m")
            return groups.committed(group)

        comes_to_be(committed, wanted)


def write(agents: Sequence[Agent], stem: str) -> set[bytes | None]:
    """Every library writes, all at the same time; the values."""
    written: set[bytes | None] = set()
    for agent in agents:
        records = [
            (n % PARTITIONS, Record(f"{stem} {agent.name} {n}".encode())) for n in range(EACH)
        ]
        written |= {record.value for _, record in records}
        agent.tell_produce(TOPIC, records)
    for agent in agents:
        assert len(agent.answer()) == EACH
    return written


def ends(count: int) -> dict[Partition, int]:
    return {(TOPIC, number): count // PARTITIONS for number in range(PARTITIONS)}


def test_a_group_each(start: Start, own_server: ServerProcess) -> None:
    groups = Groups(own_server.bootstrap)
    agents = [start(library) for library in LIBRARIES]
    names = {agent.name: f"side-{agent.name}" for agent in agents}
    for agent, library in zip(agents, LIBRARIES, strict=True):
        agent.join("m", names[agent.name], [TOPIC], library.strategies[0])
    readers = Readers(agents)
    written: set[bytes | None] = set()
    for stem in ("at first", "after a stop", "after kill -9"):
        if stem == "after a stop":
            own_server.restart()
        elif stem == "after kill -9":
            own_server.kill9()
            own_server.restart()
            for group in names.values():  # no answered commit is lost
                assert (group, groups.committed(group)) == (group, ends(len(written)))
        written |= write(agents, stem)
        readers.until_each_has(written, stem)
        for agent in agents:
            readers.until_committed([agent], groups, names[agent.name], ends(len(written)))
    for agent in agents:
        agent.leave("m")
    for group in names.values():
        eventually(lambda group=group: groups.state(group).name == "EMPTY", f"{group} is empty")


def test_one_group_of_all(start: Start, own_server: ServerProcess) -> None:
    """Seven libraries share one topic by range: they agree on the leader and the assignments."""
    groups = Groups(own_server.bootstrap)
    agents = [start(library) for library in MIXED]
    for agent in agents:
        agent.join("m", "mixed", [TOPIC], "range")
    everything = {(TOPIC, number) for number in range(PARTITIONS)}

    def shared(members: Sequence[Agent]) -> bool:
        shares = [agent.assigned("m").now for agent in members]
        whole = set().union(*shares) == everything and sum(map(len, shares)) == PARTITIONS
        return whole and all(shares)

    eventually(lambda: shared(agents), f"{len(agents)} members have a share each")
    comes_to_be(lambda: groups.state("mixed"), State("STABLE", "range", len(agents)))
    readers = Readers(agents)
    written = write(agents, "mixed")
    readers.until_together(written, "all records come, to one of them")
    readers.until_committed(agents, groups, "mixed", ends(len(written)))
    while len(agents) > 1:  # one after the other goes, leader or not
        agents.pop(0).leave("m")
        eventually(lambda: shared(agents), f"the {len(agents)} that stay share what was left")
    agents[0].leave("m")
    eventually(lambda: groups.state("mixed").name == "EMPTY", "all have left")
