"""Every client library walks the same scenario: see agents/scenario.py for the steps."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator

import pytest

from kbroker.testing.process import ServerProcess
from tests.clients.agents.driver import Agent
from tests.clients.agents.groups import Groups
from tests.clients.agents.programs import LIBRARIES, Library
from tests.clients.agents.scenario import PARTITIONS, WALK, Walk
from tests.support import servers

pytestmark = [pytest.mark.client, pytest.mark.slow, pytest.mark.timeout(300)]

Start = Callable[[Library], Agent]
ATTEMPTS = itertools.count()  # the broker remembers what a rerun test did before


@pytest.fixture(scope="module")
def own_server() -> Iterator[ServerProcess]:
    """A broker that the tests may restart."""
    with servers.make({"group.initial.rebalance.delay.ms": 0}) as broker:
        yield broker
        servers.assert_nothing_unexpected(broker)


@pytest.fixture
def bootstrap(own_server: ServerProcess) -> str:
    return own_server.bootstrap


@pytest.mark.parametrize("library", LIBRARIES, ids=lambda library: library.name)
def test_walk(library: Library, start: Start, own_server: ServerProcess) -> None:
    attempt = next(ATTEMPTS)
    walk = Walk(
        library,
        start(library),
        own_server,
        Groups(own_server.bootstrap),
        topic=f"walk-{library.name}-{attempt}",
        group=f"walkers-{library.name}-{attempt}",
        written={number: [] for number in range(PARTITIONS)},
    )
    for step in WALK:
        print(f"{library.name}: {step.__name__}")
        step(walk)
