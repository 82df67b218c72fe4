"""Warming a broker: many requests of each kind that will be measured, until they cost the same.

A compiler that works while the broker runs compiles what is called often: a broker that served
200,000 Produce requests has an interpreted Fetch. So each kind is warmed by itself, with its own
path and codec, by the work that makes most requests of it. It ends with WARM_REQUESTS of the kind,
or when three blocks in a row cost the same CPU per request within FLAT and the compiler rested, or
with BLOCKS_MAX, which is said. A broker without such a compiler needs FEW_REQUESTS.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from perf.brokers.base import Broker
from perf.cells import BY_KEY, GROUP_CELLS, Bench, Block, Cell

WARM_REQUESTS: Final = 200_000
FEW_REQUESTS: Final = 2_000
FLAT: Final = 0.05
FLAT_BLOCKS: Final = 3
BLOCKS_MAX: Final = 40
BLOCK_S, FEW_BLOCK_S = 1.0, 0.2


class Kind(NamedTuple):
    """Requests that take the same way through a broker."""

    work: str
    path: str
    codec: str = "none"

    def __str__(self) -> str:
        return ", ".join([self.work, self.path, *([self.codec] if self.codec != "none" else [])])


# By kind: the cell that makes most requests a second of it.
CELLS: Final = {
    Kind("produce", "plain"): "p-100-16x5",
    Kind("produce", "java"): "j-100-16x5",
    Kind("produce", "java", "lz4"): "j-lz4",
    Kind("produce", "java", "zstd"): "j-zstd",
    Kind("fetch", "plain"): "f-16k",
    Kind("fetch", "java"): "jf-16k",
    Kind("heartbeat", "plain"): "heartbeat-16x5",
    Kind("commit", "plain"): "commit-16x5",
}


@dataclass(frozen=True)
class Warmed:
    """What a kind was warmed by. `flat`: its last blocks cost the same."""

    requests: int
    flat: bool
    enough: bool

    def to_json(self) -> dict[str, Any]:
        return dict(self.__dict__)


def kinds(keys: Iterable[str]) -> list[Kind]:
    """Of these cells, in their order; end to end is a produce and a fetch."""
    found: dict[Kind, None] = {}
    for key in keys:
        cell = BY_KEY[key]
        works = ("produce", "fetch") if cell.kind == "e2e" else (cell.kind,)
        found.update({Kind(work, cell.path, cell.codec): None for work in works})
    return list(found)


def flat(blocks: list[Block]) -> bool:
    """Whether the last blocks cost the same CPU for each request, next to nothing of it compiling.

    What is interpreted costs the same for a while, too, until the compiler gets to it.
    """
    last = blocks[-FLAT_BLOCKS:]
    each = [block.cpu_us_per_request for block in last]
    rests = all(block.compiler_cpu_s <= FLAT * block.broker_cpu_s for block in last)
    return len(last) == FLAT_BLOCKS and rests and max(each) <= min(each) * (1 + FLAT)


def warm(broker: Broker, keys: Iterable[str], say: Callable[[str], None]) -> dict[str, Warmed]:
    """Every kind of request of these cells, by its name."""
    compiles = bool(broker.runtime_threads)
    bench = Bench(broker, seconds=BLOCK_S if compiles else FEW_BLOCK_S, warm_s=0)
    wanted = WARM_REQUESTS if compiles else FEW_REQUESTS
    found = {}
    for kind in kinds(key for key in keys if not (broker.is_limit and key in GROUP_CELLS)):
        one = until_flat(bench.run, BY_KEY[CELLS[kind]], wanted)
        found[str(kind)] = one
        why = "flat" if one.flat else "" if one.enough else "NOT FLAT, and not enough"
        say(f"{broker.name} warm: {kind}: {one.requests:,} requests{why and f', {why}'}")
    return found


def until_flat(run: Callable[[Cell], Block], cell: Cell, wanted: int) -> Warmed:
    """Blocks of one cell until so many requests were served, or they cost the same."""
    blocks: list[Block] = []
    served = 0
    while served < wanted and len(blocks) < BLOCKS_MAX and not flat(blocks):
        blocks.append(run(cell))
        served += blocks[-1].requests
    return Warmed(served, flat(blocks), served >= wanted)
