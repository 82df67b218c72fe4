"""What the sections are made from: the tables of a span of time, and what was found on the way.

The frames are those of tables.read, cut to [since, until) of event time: a writer's retries are
gone, late rows are in. Quarantine has no event time and is cut by landed_at. Each section takes one
`Inputs` and gives one Section; it never writes, and it asks Spark as few times as it can, because a
question costs a tenth of a second even where there is nothing to read.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from spark_jobs.report_model import Rows
from spark_jobs.rollup import Freshness
from spark_jobs.sections.cells import between, both, moments

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

STALE_MS: Final = 15 * 60_000  # a job of every ten minutes may take five


@dataclass(frozen=True)
class Gap:
    """Records that were given up with --accept-loss, and when: [start, end) of a partition."""

    topic: str
    partition: int
    start: int
    end: int
    reason: str
    given_up_ms: int


@dataclass(frozen=True)
class Inputs:
    """The tables of one span; `landed` counts their rows with a writer's retries, by table.

    Measurements are fewer than samples and are wanted for longer: `results` begins at
    `results_since_ms`. `hourly` has the roll-ups of as many days as there are up to `until_ms`;
    `fresh` says which of them lag. `day` has the samples of the 24 hours up to `until_ms`
    where the span is shorter: sentences about growth need them.

    `read_ms`: until when the report itself read the topics, None if it did not;
    `landing_trouble` says why it could not. Topics that were not read for `stale_ms` before the
    span's end are an alarm.
    """

    spark: SparkSession
    since_ms: int
    until_ms: int
    metrics: DataFrame
    results: DataFrame
    progress: DataFrame
    quarantine: DataFrame
    results_since_ms: int
    gaps: tuple[Gap, ...] = ()
    hourly: DataFrame | None = None
    landed: dict[str, int] = field(default_factory=dict)
    day: DataFrame | None = None
    fresh: Freshness = field(default_factory=Freshness)
    read_ms: int | None = None
    landing_trouble: str = ""
    stale_ms: int = STALE_MS

    @property
    def of_a_day(self) -> DataFrame:
        """The samples of the span, and at the least of its last 24 hours."""
        return self.metrics if self.day is None else self.day

    def where(self, *predicates: str, table: str = "metrics") -> str:
        """A predicate over the whole table: the span and these."""
        if table == "quarantine":
            return both(moments("landed_at", self.since_ms, self.until_ms), *predicates)
        since_ms = self.results_since_ms if table == "results" else self.since_ms
        return both(between(since_ms, self.until_ms), *predicates)

    def rows(self, table: str, count: int, *predicates: str) -> Rows:
        """How a number's rows are found, and how many they are."""
        return Rows(table, self.where(*predicates, table=table), int(count))


def collected(frame: DataFrame) -> list[dict[str, Any]]:
    """A small result as plain dictionaries, nested rows too."""
    return [row.asDict(recursive=True) for row in frame.collect()]


def differing(rows: Sequence[dict[str, Any]], names: Sequence[str]) -> list[str]:
    """Names whose values are not all equal: what deserves a column."""
    return [name for name in names if len({row[name] for row in rows}) > 1]


def common(rows: Sequence[dict[str, Any]], names: Sequence[str]) -> dict[str, Any]:
    """Values that all rows share, those that are null left out: what a note says once."""
    if not rows:
        return {}
    apart = set(differing(rows, names))
    return {n: rows[0][n] for n in names if n not in apart and rows[0][n] is not None}
