"""Measured blocks as plain values: what latency, brokers and studies compare.

A block is one row of the table results with kind `block`: a piece of work on one broker, its
counts, and its latencies as a histogram. Percentiles of each single block come from Spark with the
row (one pass, no shuffle); the histograms stay there. `BLOCKS_MAX` newest blocks are looked at, so
that the driver's memory is bounded whatever the topic holds; the report says so if there were more.

The pairs that are compared are in paired.py.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import functions as F

from spark_jobs.sections import percentiles
from spark_jobs.sections.inputs import collected

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

BLOCKS_MAX: Final = 20_000
MEGABYTE: Final = 1_000_000

# Which work it was: blocks are alike if all of these are equal (broker and acks apart, where those
# are what is compared).
IDENTITY: Final = (
    "study", "cell", "work", "machine", "kbroker_version", "size_bytes", "batch_bytes", "in_flight",
    "connections", "partitions", "replicas", "round_trip_us", "codec", "path", "mode", "linger_ms",
    "rate", "knob", "knob_value", "measure",
)  # fmt: skip
_PLAIN: Final = (
    "run_id", "sequence", "event_time_ms", *IDENTITY, "broker", "round", "acks", "baseline",
    "again", "requests", "records", "bytes", "wall_s", "broker_cpu_s", "compiler_cpu_s",
    "collector_cpu_s", "own_cpu_s", "others_cpu", "steal", "quiet",
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
    def quiet(self) -> bool:
        """Known to be: a writer that did not look says nothing."""
        return self.row["quiet"] is True

    @property
    def noisy(self) -> bool:
        return self.row["quiet"] is False

    @property
    def again(self) -> bool:
        """The second block of a null test."""
        return self.row["again"] is True

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
    def cpu_us_without_runtime(self) -> float | None:
        """Without what a runtime compiles and collects; None of writers that did not look."""
        parts = [self.row["compiler_cpu_s"], self.row["collector_cpu_s"]]
        whole = self.row["broker_cpu_s"]
        if whole is None or None in parts:
            return None
        return _over(whole - sum(parts), self.row["requests"], 1e6)

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
CPU_OWN: Final = Measure(
    "CPU us/request without JIT and GC", lambda block: block.cpu_us_without_runtime, "low"
)
REQUESTS: Final = Measure("requests/s", lambda block: block.requests_per_s, "high")
RECORDS: Final = Measure("records/s", lambda block: block.records_per_s, "high")
MEGABYTES: Final = Measure("MB/s", lambda block: block.megabytes_per_s, "high")


def blocks(results: DataFrame) -> list[Block]:
    """The newest BLOCKS_MAX + 1 blocks, in order of time; one more than the bound says: cut."""
    bucket = f"b -> named_struct('le', {percentiles.middle('b.le')}, 'count', b.count)"
    frame = (
        results.where("kind = 'block' AND run_id IS NOT NULL AND sequence IS NOT NULL")
        .withColumn("middles", F.expr(f"transform(buckets, {bucket})"))
        .selectExpr(*_PLAIN, "min_ns", "max_ns", *percentiles.of_row("middles"))
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


def _over(a: float | None, b: float | None, scale: float = 1.0) -> float | None:
    """a / b x scale; None where there is nothing to divide."""
    if a is None or b is None or not b > 0:
        return None
    return a / b * scale
