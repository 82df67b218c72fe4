"""What a request costs each kind of thread, measured on this machine at full load.

Each cell is run on two brokers, as it is, and with the client on one core and the broker on the
others: the second is predicted from the costs of the first. A kind's share of the CPU time is that
of its threads, by their names; the rest (the timer, the control loop) is charged to the handlers.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Final

from perf.before_after import handlers
from perf.brokers import KbrokerBroker
from perf.cells import BY_KEY, Bench, Block, Cell
from perf.process import cpu_ns_by_thread
from perf.scale.path import Costs

CELLS: Final = ("p-100-16x5", "p-1k-16x5", "j-100-16x5", "p-16k-4x5", "p-1m-4x5", "f-16k", "f-1m",
                "heartbeat-16x5", "commit-16x5")  # fmt: skip
PROCESSOR_THREADS: Final = "network"


@dataclass(frozen=True)
class Figures:
    """Medians of the blocks of one cell. `pinned_per_s` 0: there is one core only."""

    requests_per_s: float
    pinned_per_s: float
    processor_us: float
    handler_us: float
    client_us: float
    bytes_each: float
    quiet: bool

    @property
    def costs(self) -> Costs:
        return Costs(self.processor_us, self.handler_us, self.client_us)


@dataclass(frozen=True)
class _Measured:
    block: Block
    share: float  # of the Processors


def _block(bench: Bench, cell: Cell) -> _Measured:
    pid = bench.broker.measured_pid
    before = cpu_ns_by_thread(pid)
    block = bench.run(cell)
    spent = {name: used - before.get(name, 0) for name, used in cpu_ns_by_thread(pid).items()}
    own = sum(used for name, used in spent.items() if name.startswith(PROCESSOR_THREADS))
    return _Measured(block, own / max(1, sum(spent.values())))


def _figures(free: list[_Measured], pinned: list[_Measured]) -> Figures:
    def median(of: Callable[[_Measured], float], blocks: list[_Measured]) -> float:
        return statistics.median(map(of, blocks)) if blocks else 0.0

    return Figures(
        requests_per_s=median(lambda one: one.block.requests_per_s, free),
        pinned_per_s=median(lambda one: one.block.requests_per_s, pinned),
        processor_us=median(lambda one: one.block.cpu_us_per_request * one.share, free),
        handler_us=median(lambda one: one.block.cpu_us_per_request * (1 - one.share), free),
        client_us=median(lambda one: one.block.own_us_per_request, free),
        bytes_each=median(lambda one: one.block.bytes / one.block.requests, free),
        quiet=all(one.block.quiet for one in (*free, *pinned)),
    )


def measure(
    directory: Path,
    cells: tuple[str, ...],
    rounds: int,
    seconds: float,
    cpus: int,
    say: Callable[[str], None],
) -> tuple[dict[str, Figures], dict[str, float]]:
    """Of each cell; and of each API that Python serves, the CPU microseconds of a request. Raises
    what a bench raises."""
    broker = KbrokerBroker(directory / "broker")
    broker.start()
    try:
        say(f"kbroker started, pid {broker.pid}")
        bench = Bench(broker, seconds=seconds)
        found = {}
        for key in cells:
            cell = BY_KEY[key]
            _block(bench, cell)
            free, pinned = [], []
            for _ in range(rounds):
                free.append(_block(bench, cell))
                if cpus > 1:
                    pinned.append(_block(bench, replace(cell, pinned=True)))
            found[key] = _figures(free, pinned)
            say(f"{key}: {found[key]}")
        in_python = {
            key: statistics.median(
                handlers.measure(key, broker, number, seconds, serial * rounds + number).values[
                    "cpu_us"
                ]
                for number in range(rounds)
            )
            for serial, key in enumerate(handlers.APIS)
        }
        broker.check_alive()
        return found, in_python
    finally:
        broker.discard()


def to_json(found: Mapping[str, Figures]) -> dict[str, Any]:
    return {key: asdict(one) for key, one in found.items()}


def from_json(data: Mapping[str, Any]) -> dict[str, Figures]:
    return {key: Figures(**one) for key, one in data.items()}
