"""The comparison: the limit, Apache Kafka and kbroker on the same cells, in alternating blocks.

All brokers live through the whole run, warm, each in its own process and directory; the one whose
turn it is runs, the others are held still (SIGSTOP), so that none pays for another's housekeeping.
A round visits every cell; in a cell each broker has one block, in an order that reverses from round
to round. A ratio is taken inside a round, which each block carries, then the median over the rounds
with its exact interval. A block beside which something else ran is repeated once; if the repetition
is noisy too, it is kept, marked, and counts in no verdict. Null test: in some cells each broker has
a second block right after its first; the difference of the two is the band in which no difference
is claimed.

This module gives data; perf.report turns it into a table and the bars.
"""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from lab.jars import KAFKA
from perf import idle, librdkafka, neighbour, network, startup
from perf.brokers import KINDS, KafkaBroker
from perf.cells import BY_KEY, CELLS, GROUP_CELLS, QUICK, Bench, Block, Cell, CellError
from perf.idle import IdleResult
from perf.librdkafka import LibrdkafkaResult
from perf.machine import describe_machine
from perf.neighbour import NeighbourResult
from perf.process import memory, settled_memory, threads
from perf.startup import StartResult
from perf.warm import Warmed, warm

Progress = Callable[[str], None]

NULL_CELLS = ("p-1k-4x5", "f-16k")
SETTLE_AFTER_HOLD_S = 0.05
REPEATS = 7  # one more than decide anything: one may be noisy or void


@dataclass(frozen=True)
class Plan:
    """How much is run."""

    brokers: tuple[str, ...] = ("limit", "kafka", "kbroker")
    cells: tuple[str, ...] = tuple(cell.key for cell in CELLS)
    rounds: int = REPEATS
    seconds: float = 1.6
    warm_s: float = 0.3
    idle_connections: int = 10_000
    start_repeats: int = REPEATS
    idle_repeats: int = REPEATS  # of kbroker, each but the first in a process of its own
    null_cells: tuple[str, ...] = NULL_CELLS
    closed_neighbour: bool = True  # the neighbour cell in a closed loop as well
    extras: bool = True  # idle, neighbour, start, librdkafka
    repeat_noisy: bool = True
    directory: Path | None = None

    @classmethod
    def quick(cls, **changes: Any) -> Plan:
        """Five minutes instead of half an hour: a look, for three rounds decide nothing."""
        base = cls(
            cells=QUICK,
            rounds=3,
            seconds=0.6,
            warm_s=0.2,
            closed_neighbour=False,
            idle_connections=2_000,
            start_repeats=1,
            idle_repeats=1,
            null_cells=NULL_CELLS[:1],
        )
        return replace(base, **changes)


@dataclass
class Outcome:
    """Everything that was measured, and what went wrong on the way."""

    plan: Plan
    machine: dict[str, Any]
    blocks: dict[str, dict[str, list[Block]]] = field(default_factory=dict)
    null: dict[str, dict[str, list[tuple[Block, Block]]]] = field(default_factory=dict)
    memory_idle: dict[str, int] = field(default_factory=dict)
    memory_peak_at_start: dict[str, int] = field(default_factory=dict)
    memory_after: dict[str, list[int]] = field(default_factory=dict)  # each round
    warmed: dict[str, dict[str, Warmed]] = field(default_factory=dict)
    threads: dict[str, int] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)
    idle: dict[str, list[IdleResult]] = field(default_factory=dict)
    neighbour: dict[str, list[NeighbourResult]] = field(default_factory=dict)
    neighbour_closed: dict[str, list[NeighbourResult]] = field(default_factory=dict)
    starts: dict[str, list[StartResult]] = field(default_factory=dict)
    librdkafka: dict[str, list[LibrdkafkaResult]] = field(default_factory=dict)
    faults: list[str] = field(default_factory=list)
    noisy_blocks: int = 0
    repeated_blocks: int = 0
    took_s: float = 0.0


class Comparison:
    """Runs a Plan. Use once."""

    def __init__(self, plan: Plan, progress: Progress) -> None:
        self.plan = plan
        self.say = progress
        self.outcome = Outcome(plan, describe_machine())
        self._root = Path(tempfile.mkdtemp(prefix="kbroker-perf-", dir=plan.directory))
        self._benches: dict[str, Bench] = {}
        self._done = 0
        self._blocks_in_all = (
            len(plan.cells) * len(plan.brokers)
            - len(set(plan.cells) & set(GROUP_CELLS)) * ("limit" in plan.brokers)
            + len(plan.null_cells) * len([b for b in plan.brokers if b != "limit"])
        ) * plan.rounds

    def run(self) -> Outcome:
        """The whole comparison; whatever was started is ended and removed, whatever happens."""
        began = time.monotonic()
        if "kafka" in self.plan.brokers:
            KAFKA.fetch()  # from the network, which is out of reach afterwards
        self.outcome.machine["network"] = network.enter()
        try:
            self._measure()
        finally:
            shutil.rmtree(self._root, ignore_errors=True)
        self.outcome.took_s = time.monotonic() - began
        return self.outcome

    def _measure(self) -> None:
        try:
            self._start_brokers()
            if self.plan.extras:
                self._each_broker("idle", self._idle)
            self._rounds()
            if self.plan.extras:
                self._each_broker("neighbour", self._neighbour)
                self._each_broker("librdkafka", self._librdkafka)
        finally:
            for bench in self._benches.values():
                bench.broker.discard()
        if self.plan.extras:
            self._idle_anew()
            self._starts()

    # Starting and warming.

    def _start_brokers(self) -> None:
        for name in self.plan.brokers:
            broker = KINDS[name](self._root / name)
            self._benches[name] = Bench(broker, seconds=self.plan.seconds, warm_s=self.plan.warm_s)
            broker.start()
            idle_memory = settled_memory(broker.pid)
            self.outcome.memory_idle[name] = idle_memory.resident
            self.outcome.memory_peak_at_start[name] = idle_memory.peak
            self.outcome.threads[name] = threads(broker.pid)
            self.outcome.versions[name] = broker.version()
            self.say(f"{name} started, pid {broker.pid}; warming")
            self.outcome.warmed[name] = warm(broker, self.plan.cells, self.say)
            broker.hold()

    # The rounds.

    def _rounds(self) -> None:
        for number in range(self.plan.rounds):
            order = list(self.plan.brokers)
            if number % 2:
                order.reverse()
            for key in self.plan.cells:
                for name in order:
                    if name == "limit" and key in GROUP_CELLS:
                        continue  # it knows no groups
                    block = self._block(name, BY_KEY[key], number)
                    if block is None:
                        continue
                    cell = self.outcome.blocks.setdefault(key, {})
                    cell.setdefault(name, []).append(block)
                    if key in self.plan.null_cells and name != "limit":
                        self._again(block)
            for name, bench in self._benches.items():
                resident = memory(bench.broker.pid).resident
                self.outcome.memory_after.setdefault(name, []).append(resident)

    def _again(self, first: Block) -> None:
        """The null test: the same once more, right after."""
        second = self._block(first.broker, BY_KEY[first.cell], first.round, "again ")
        if second is not None:
            by_broker = self.outcome.null.setdefault(first.cell, {})
            by_broker.setdefault(first.broker, []).append((first, second))

    def _block(self, name: str, cell: Cell, number: int, label: str = "") -> Block | None:
        """One block of a round with its broker running alone; None if it is void."""
        bench = self._benches[name]
        self._done += 1
        bench.broker.resume()
        try:
            time.sleep(SETTLE_AFTER_HOLD_S)
            block = bench.run(cell)
            if not block.guard.quiet and self.plan.repeat_noisy:
                self.outcome.repeated_blocks += 1
                block = bench.run(cell)
            block = replace(block, round=number)
            self.outcome.noisy_blocks += not block.guard.quiet
        except (CellError, OSError) as error:
            self._fault(str(error))
            bench.broker.check_alive()
            return None
        finally:
            bench.broker.hold()
        noise = "" if block.guard.quiet else f"  (others {block.guard.others:.0%})"
        self.say(
            f"[{self._done}/{self._blocks_in_all}] {label}{cell.key:14} {name:8}"
            f"{block.requests_per_s:>10,.0f}/s {block.cpu_us_per_request:>9.1f} us CPU"
            f" p50 {block.percentile_us(50):>9,.0f} us{noise}"
        )
        return block

    def _fault(self, text: str) -> None:
        self.outcome.faults.append(text)
        self.say(f"VOID {text}")

    # Beside the table.

    def _each_broker(self, what: str, work: Callable[[Bench], str]) -> None:
        for name, bench in self._benches.items():
            if name == "limit":
                continue
            bench.broker.resume()
            try:
                self.say(f"{what} {name}: {work(bench)}")
            except (CellError, OSError) as error:
                self._fault(f"{what}: {error}")
            finally:
                bench.broker.hold()

    def _idle(self, bench: Bench) -> str:
        result = idle.measure_idle(bench, self.plan.idle_connections)
        self.outcome.idle.setdefault(bench.broker.name, []).append(result)
        if result.bytes_each is None:
            return f"{result.connections:,}; the memory of each is not known without jcmd"
        return f"{result.bytes_each:,.0f} B each of {result.connections:,}"

    def _idle_anew(self) -> None:
        """Again in new processes: in one, what was freed serves the next ten thousand."""
        if "kbroker" not in self.plan.brokers:
            return
        for repeat in range(1, self.plan.idle_repeats):
            with KINDS["kbroker"](self._root / f"idle-{repeat}") as broker:
                bench = Bench(broker, seconds=self.plan.seconds, warm_s=self.plan.warm_s)
                try:
                    self.say(f"idle kbroker: {self._idle(bench)}")
                except (CellError, OSError) as error:
                    self._fault(f"idle: {error}")

    def _neighbour(self, bench: Bench) -> str:
        neighbour.prepare(bench)
        name = bench.broker.name
        for _ in range(self.plan.rounds):
            self.outcome.neighbour.setdefault(name, []).append(neighbour.measure_neighbour(bench))
            if not self.plan.closed_neighbour:
                continue
            self.outcome.neighbour_closed.setdefault(name, []).append(
                neighbour.measure_neighbour(bench, neighbour.CLOSED)
            )
        ratios = [one.p99_ratio for one in self.outcome.neighbour[name]]
        return "p99 x " + ", ".join(f"{ratio:.2f}" for ratio in ratios)

    def _librdkafka(self, bench: Bench) -> str:
        name = bench.broker.name
        result = librdkafka.measure_librdkafka(bench)
        self.outcome.librdkafka.setdefault(name, []).append(result)
        return (
            f"{result.records / result.produce_s:,.0f} records/s in, "
            f"{result.records / result.consume_s:,.0f} out"
        )

    def _starts(self) -> None:
        for repeat in range(self.plan.start_repeats):
            for name in self.plan.brokers:
                if name == "limit":
                    continue
                directory = self._root / f"start-{name}-{repeat}"
                broker = (
                    KafkaBroker(directory, holdable=False)
                    if name == "kafka"
                    else KINDS[name](directory)
                )
                try:
                    result = startup.measure_start(broker, self.say)
                except (CellError, OSError) as error:
                    self._fault(f"start: {error}")
                    continue
                self.outcome.starts.setdefault(name, []).append(result)
