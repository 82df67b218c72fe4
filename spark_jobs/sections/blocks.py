"""Measured blocks as plain values: what latency, brokers and studies compare.

A block is one row of the table results with kind `block`: a piece of work on one broker, its
counts, and its latencies as a histogram. Percentiles of each single block come from Spark with the
row (one pass, no shuffle); the histograms stay there. `BLOCKS_MAX` newest blocks are looked at, so
that the driver's memory is bounded whatever the topic holds; the report says so if there were more.

`pairs` puts blocks of two sides beside each other, round by round of one run: what both saw of the
machine falls out of their ratio. `versus` is that ratio with perf.stats' bootstrap interval.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import functions as F

from perf.stats import Estimate, ratio
from spark_jobs.report_model import Verdict
from spark_jobs.sections import percentiles
from spark_jobs.sections.cells import literal, number
from spark_jobs.sections.inputs import collected

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

BLOCKS_MAX: Final = 20_000
PAIRS_MIN: Final = 3  # fewer decide nothing
MEGABYTE: Final = 1_000_000

# Which work it was: blocks are alike if all of these are equal (broker and acks apart, where those
# are what is compared).
IDENTITY: Final = (
    "study", "cell", "work", "machine", "kbroker_version", "size_bytes", "batch_bytes", "in_flight",
    "connections", "partitions", "codec", "path", "mode", "linger_ms", "rate", "knob",
    "knob_value", "measure",
)  # fmt: skip
_PLAIN: Final = (
    "run_id", "sequence", "event_time_ms", *IDENTITY, "broker", "round", "acks", "baseline",
    "requests", "records", "bytes", "wall_s", "broker_cpu_s", "own_cpu_s", "others_cpu", "steal",
    "quiet",
)  # fmt: skip


@dataclass(frozen=True)
class Block:
    """`row` has the columns of _PLAIN and p50, p95, p99, p99_9 in ns (None: no histogram)."""

    row: dict[str, Any]

    def __getitem__(self, name: str) -> Any:
        return self.row[name]

    def key(self, names: Sequence[str]) -> tuple[Any, ...]:
        return tuple(self.row[name] for name in names)

    @property
    def noisy(self) -> bool:
        return self.row["quiet"] is False

    @property
    def requests_per_s(self) -> float | None:
        return _over(self.row["requests"], self.row["wall_s"])

    @property
    def records_per_s(self) -> float | None:
        return _over(self.row["records"], self.row["wall_s"])

    @property
    def megabytes_per_s(self) -> float | None:
        return _over(self.row["bytes"], self.row["wall_s"], 1 / MEGABYTE)

    @property
    def cpu_us_per_request(self) -> float | None:
        return _over(self.row["broker_cpu_s"], self.row["requests"], 1e6)

    @property
    def cpu_us_per_record(self) -> float | None:
        return _over(self.row["broker_cpu_s"], self.row["records"], 1e6)

    @property
    def cpu_s_per_gigabyte(self) -> float | None:
        return _over(self.row["broker_cpu_s"], self.row["bytes"], 1e9)

    def percentile_ms(self, name: str) -> float | None:
        value = self.row[name]
        return None if value is None else value / 1e6


Metric = Callable[[Block], float | None]


@dataclass(frozen=True)
class Measure:
    """A figure of a block: `better` says which way."""

    name: str
    of: Metric
    better: str  # "low" or "high"


P50: Final = Measure("p50, ms", lambda block: block.percentile_ms("p50"), "low")
P99: Final = Measure("p99, ms", lambda block: block.percentile_ms("p99"), "low")
CPU: Final = Measure("CPU us/request", lambda block: block.cpu_us_per_request, "low")
REQUESTS: Final = Measure("requests/s", lambda block: block.requests_per_s, "high")
RECORDS: Final = Measure("records/s", lambda block: block.records_per_s, "high")
MEGABYTES: Final = Measure("MB/s", lambda block: block.megabytes_per_s, "high")


def blocks(results: DataFrame) -> list[Block]:
    """The newest BLOCKS_MAX + 1 blocks, in order of time; one more than the bound says: cut."""
    buckets = F.transform(
        "buckets",
        lambda b: F.struct(percentiles.middle(b["le"]).alias("le"), b["count"].alias("count")),
    )
    frame = (
        results.where("kind = 'block' AND run_id IS NOT NULL AND sequence IS NOT NULL")
        .withColumn("middles", buckets)
        .select(*_PLAIN, "min_ns", "max_ns", *percentiles.of_row("middles"))
        .orderBy(F.desc("event_time_ms"), F.desc("sequence"))
        .limit(BLOCKS_MAX + 1)
    )
    rows = collected(frame)
    for row in rows:
        for name in map(percentiles.name_of, percentiles.PERCENTS):
            row[name] = clipped(row[name], row["min_ns"], row["max_ns"])
    return [Block(row) for row in reversed(rows)]


def clipped(value: float | None, least: float | None, most: float | None) -> float | None:
    """A bucket's middle, not beyond the smallest and the largest value that were seen."""
    if value is None:
        return None
    value = value if least is None else max(value, least)
    return value if most is None else min(value, most)


def grouped(found: Iterable[Block], names: Sequence[str]) -> dict[tuple[Any, ...], list[Block]]:
    """Blocks by the values of these columns, in order of their first appearance."""
    groups: dict[tuple[Any, ...], list[Block]] = defaultdict(list)
    for block in found:
        groups[block.key(names)].append(block)
    return groups


def pairs(ours: Iterable[Block], theirs: Iterable[Block]) -> list[tuple[Block, Block]]:
    """Blocks of one run and round; several of one round pair in their order."""
    by_round: dict[tuple[Any, ...], list[Block]] = grouped(theirs, ("run_id", "round"))
    found = []
    for key, many in grouped(ours, ("run_id", "round")).items():
        found += list(zip(many, by_round.get(key, []), strict=False))
    return found


def believed(found: Sequence[tuple[Block, Block]]) -> list[tuple[Block, Block]]:
    """Pairs from a quiet machine, where they are enough for a verdict; else all, which get none."""
    quiet = [pair for pair in found if not any(block.noisy for block in pair)]
    return quiet if len(quiet) >= PAIRS_MIN else list(found)


def count_of(found: Iterable[tuple[Block, Block]]) -> int:
    """Blocks in these pairs."""
    return len({(block["run_id"], block["sequence"]) for pair in found for block in pair})


def which(found: Iterable[tuple[Block, Block]]) -> str:
    """A predicate for the pairs' own blocks, by the numbers that a record has once."""
    by_run: dict[str, set[int]] = defaultdict(set)
    for pair in found:
        for block in pair:
            by_run[block["run_id"]].add(block["sequence"])
    # Runs of one command have the same numbers, and a year of them is one line still.
    by_numbers: dict[tuple[int, ...], list[str]] = defaultdict(list)
    for run, numbers in sorted(by_run.items()):
        by_numbers[tuple(sorted(numbers))].append(run)
    parts = [
        f"(run_id IN ({', '.join(map(literal, runs))})"
        f" AND sequence IN ({', '.join(map(str, numbers))}))"
        for numbers, runs in by_numbers.items()
    ]
    return f"({' OR '.join(parts)})"


@dataclass(frozen=True)
class Versus:
    """A ratio of two sides; `quiet_pairs` are those on a quiet machine."""

    estimate: Estimate
    quiet_pairs: int
    better: str

    @property
    def pairs(self) -> int:
        return len(self.estimate.values)

    @property
    def decided(self) -> bool:
        """Whether the interval is wholly on one side of 1, from enough quiet pairs."""
        low, high = self.estimate.low, self.estimate.high
        return self.quiet_pairs >= PAIRS_MIN and (high < 1 or low > 1)

    @property
    def verdict(self) -> Verdict:
        if not self.decided:
            return "open"
        return "good" if (self.estimate.median < 1) == (self.better == "low") else "bad"

    @property
    def why_open(self) -> str:
        if self.pairs < PAIRS_MIN:
            return f"no verdict: n = {self.pairs}"
        if self.quiet_pairs < PAIRS_MIN:
            return "no verdict: noisy machine"
        return "" if self.decided else "no difference shown"

    @property
    def text(self) -> str:
        """0.62 [0.58, 0.66]"""
        one = self.estimate
        return f"{number(one.median)} [{number(one.low)}, {number(one.high)}]"


def versus(found: Sequence[tuple[Block, Block]], measure: Measure) -> Versus | None:
    """First over second, pair by pair; None where no pair has the figure.

    What a rate was set for has no throughput to compare: it is the rate's.
    """
    if measure.better == "high" and any(block["rate"] for pair in found for block in pair):
        return None
    ours, theirs, quiet = [], [], 0
    for one, other in found:
        a, b = measure.of(one), measure.of(other)
        if a is not None and b is not None and a > 0 and b > 0:
            ours.append(a)
            theirs.append(b)
            quiet += not (one.noisy or other.noisy)
    return Versus(ratio(ours, theirs), quiet, measure.better) if ours else None


def _over(a: float | None, b: float | None, scale: float = 1.0) -> float | None:
    """a / b x scale; None where there is nothing to divide."""
    if a is None or b is None or not b > 0:
        return None
    return a / b * scale
