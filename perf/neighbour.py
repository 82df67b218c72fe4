"""A neighbour that asks for all topics' metadata in a loop: does a producer beside it notice?

Producing at a fixed rate, below what either broker can take, so that the wait for the neighbour is
measured and not two clients sharing two CPUs; latencies count from the intended send time. The same
in a closed loop is reported beside it. The broker holds TOPICS topics, all of which each answer
lists.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from typing import Any

from perf.cells import BY_KEY, Bench, Cell
from perf.client import ClientError

TOPICS = 100
RATE = 2000.0
FIXED = replace(
    BY_KEY["p-1k-4000"], key="neighbour", title="produce 1 KB, 4 conns, 2,000/s", rate=RATE
)
CLOSED = replace(BY_KEY["p-1k-1x5"], key="neighbour-closed")
TOPIC_ALREADY_EXISTS = 36


@dataclass(frozen=True)
class NeighbourResult:
    """p99 of produce without and with the neighbour."""

    broker: str
    rate: float  # 0: closed loop
    p50_alone_us: float
    p99_alone_us: float
    p50_beside_us: float
    p99_beside_us: float
    metadata_per_s: float
    quiet: bool = False  # unknown is not quiet

    @property
    def p99_ratio(self) -> float:
        return self.p99_beside_us / self.p99_alone_us

    def to_json(self) -> dict[str, Any]:
        return {**self.__dict__, "p99_ratio": self.p99_ratio}


def prepare(bench: Bench, topics: int = TOPICS) -> None:
    """The topics that Metadata will list; created once on a broker."""
    if bench.broker.is_limit:
        raise ValueError("the limit server has no Metadata")
    with bench.broker.client() as client:
        for number in range(topics):
            try:
                client.create_topics([f"perf-neighbour-{os.getpid()}-{number}"], 1)
            except ClientError as error:
                if error.code != TOPIC_ALREADY_EXISTS:
                    raise


def measure_neighbour(bench: Bench, cell: Cell = FIXED) -> NeighbourResult:
    """One pair of blocks, alone and beside. `prepare` first."""
    alone = bench.run(cell)
    beside = bench.run(replace(cell, neighbour=True))
    return NeighbourResult(
        bench.broker.name,
        cell.rate,
        alone.percentile_us(50),
        alone.percentile_us(99),
        beside.percentile_us(50),
        beside.percentile_us(99),
        beside.neighbour_requests / beside.wall_s,
        quiet=alone.guard.quiet and beside.guard.quiet,
    )
