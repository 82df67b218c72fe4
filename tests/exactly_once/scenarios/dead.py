"""A producer that dies for good between send and commit: its transaction is aborted when its time
is over, and readers of committed records go on with the records of others after it.

Each library's producer sends, puts an offset into its transaction, and is killed; none comes back
under its id.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from typing import Final

from tests.clients.agents.driver import Agent
from tests.clients.agents.programs import LIBRARIES, Library, agent
from tests.exactly_once import world
from tests.exactly_once.checker import each_once, none_aborted, nothing_open
from tests.exactly_once.world import OUTPUT, PARTITIONS

TIMEOUT_MS: Final = 10_000  # far more than a busy machine takes from the first record to offsets
SLACK_S: Final = 30.0  # of a busy machine
GROUP: Final = "readers"
TRANSACTIONAL: Final = tuple(each for each in LIBRARIES if each.transactions)


def run(say: Callable[[str], None], libraries: Sequence[Library] = TRANSACTIONAL) -> list[str]:
    with world.one_broker() as server:
        world.create(server.bootstrap, OUTPUT)
        aborted, committed = [], []
        began_s = time.monotonic()
        for library in libraries:
            before = library.name.encode()
            with agent(library, server.bootstrap, sys.stderr) as dead:
                committed.append(_written(dead, "first", b"%s 1" % before, commit=True))
                aborted.append(_written(dead, "second", b"%s 2" % before, commit=False))
                dead.kill()
        after = _one(libraries, "aiokafka")
        with agent(after, server.bootstrap, sys.stderr) as alive:
            committed.append(_written(alive, "later", b"later", commit=True))
        wanted = {partition: list(committed) for partition in range(PARTITIONS)}
        opened, ends = world.settled(server.bootstrap, [OUTPUT], TIMEOUT_MS / 1_000 + SLACK_S)
        found = world.read(server.bootstrap, OUTPUT)
        say(f"dead: {len(aborted)} producers, {time.monotonic() - began_s:.1f} s")
        offsets = world.committed(server.bootstrap, OUTPUT, GROUP)
        return [
            *each_once(wanted, found),
            *none_aborted(aborted, found),
            *nothing_open(opened, ends),
            *([f"offsets of a transaction that was aborted: {offsets}"] if offsets else []),
        ]


def _one(libraries: Sequence[Library], name: str) -> Library:
    return next((each for each in LIBRARIES if each.name == name), libraries[0])


def _written(writer: Agent, name: str, value: bytes, *, commit: bool) -> bytes:
    producer = writer.transactional(name, f"{writer.name}-{name}", TIMEOUT_MS)
    producer.begin()
    for partition in range(PARTITIONS):
        producer.put(OUTPUT, value, partition)
    if commit:
        producer.commit()
    else:
        producer.offsets(GROUP, OUTPUT, 0, 1)
    return value
