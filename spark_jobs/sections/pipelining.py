"""What acks=-1 waits for: document 000's figures 1 and 4 to 8, drawn from a run of the experiment.

`kbroker perf pipelining` publishes its blocks and, beside them, what a block's counts and times do
not say: requests in flight as reached, zero windows, the leader's own percentiles, its follower's
fetches. The newest run counts. A point of a plot is the median over the rounds; the studies'
chapter has the ratios with their intervals.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable
from typing import Any, Final

from pyspark.sql import functions as F

from spark_jobs.report_model import Cell, Plot, Section, Series, Table
from spark_jobs.sections.blocks import MEGABYTES, Block, grouped
from spark_jobs.sections.cells import brief, figure, number, same, words
from spark_jobs.sections.inputs import Inputs, collected

KEY: Final = "pipelining"
TITLE: Final = "What acks=-1 waits for"
STUDY: Final = "pipelining"
MIDDLE_US: Final = 500  # the document's round trip, where the run has it
FIGURES_MAX: Final = 20_000
ROWS_MAX: Final = 300
SYSTEMS: Final = {
    "kafka": "Apache Kafka", "stock": "kbroker, stock", "pipelined": "kbroker, pipelined",
}  # fmt: skip
REACHED: Final = "requests in flight, reached"
ZERO_WINDOWS: Final = "zero windows"
FETCHED: Final = "fetched by the follower"
FETCH: Final = "a fetch of the follower"
BROKER_P99: Final = "produce p99 by the broker's clock"
BROKER_P99_9: Final = "produce p99.9 by the broker's clock"
# Of a line of the table: the section of the experiment, and what was varied in it.
PLACE: Final = ("cell", "knob_value", "acks", "replicas", "round_trip_us", "in_flight")
NONE: Final = math.nan

Place = tuple[Any, ...]
Figures = dict[tuple[Place, str], tuple[float, int]]  # the median, of how many


class Run:
    """The newest run: its blocks by place, and its figures."""

    def __init__(self, run_id: str, blocks: list[Block], figures: Figures) -> None:
        self.run_id = run_id
        self.blocks = grouped(blocks, PLACE)
        self.figures = figures

    def median(self, place: Place, of: Any) -> float:
        """Of a measure of its blocks, or of a figure by its name; NaN where there is none."""
        if isinstance(of, str):
            return self.figures.get((place, of), (NONE, 0))[0]
        values = [value for block in self.blocks.get(place, ()) if (value := of(block)) is not None]
        return statistics.median(values) if values else NONE

    def places(self, section: str) -> list[Place]:
        """Of a section of the experiment, in the order in which they were measured."""
        return [place for place in self.blocks if _section(place) == section]

    @property
    def matrix(self) -> list[Place]:
        """The document's table, at its round trip or the shortest that there is."""
        every = self.places("matrix")
        trips = {place[4] for place in every if place[4] is not None}
        at_us = MIDDLE_US if MIDDLE_US in trips else min(trips, default=None)
        return [place for place in every if place[4] == at_us]


def section(inputs: Inputs, blocks: list[Block]) -> Section:
    own = [block for block in blocks if block["study"] == STUDY and not block.again]
    if not own:
        return Section(KEY, TITLE, (
            "`kbroker perf pipelining` was not run in this span; `--results-bootstrap HOST:PORT`"
            " brings it here.",
        ))  # fmt: skip
    run_id = own[-1]["run_id"]
    run = Run(
        run_id, [block for block in own if block["run_id"] == run_id], _figures(inputs, run_id)
    )
    plots = [*_throughput(run), *_clocks(run), *_follower(run), *_waiting(run)]
    return Section(KEY, TITLE, tuple(_said(run)), (_table(inputs, run),), tuple(plots))


def _figures(inputs: Inputs, run_id: str) -> Figures:
    """Medians over the rounds."""
    rows = collected(
        inputs.results.where("kind = 'figure' AND value IS NOT NULL")
        .where(same({"study": STUDY, "run_id": run_id}))
        .groupBy(*PLACE, "name")
        .agg(F.expr("percentile(value, 0.5)").alias("median"), F.count(F.lit(1)).alias("n"))
        .limit(FIGURES_MAX)
    )
    return {
        (tuple(row[name] for name in PLACE), row["name"]): (row["median"], row["n"]) for row in rows
    }


def _section(place: Place) -> str:
    return str(place[0]).partition(":")[0]


def _system(place: Place) -> str:
    return SYSTEMS.get(place[1], brief(place[1]))


def _mode(place: Place) -> str:
    return "RF 1" if place[3] == 1 else f"acks={place[2]}"


def _in_flight(place: Place) -> str:
    return "-" if place[5] is None else f"{place[5]:,}"


def _line(place: Place) -> str:
    return f"{_mode(place)}, {_in_flight(place)} in flight"


# -- the document's figures


def _bars(title: str, y: str, found: Iterable[tuple[str, str, float]]) -> list[Plot]:
    """A group of bars for each x; `found`: the series, the x, the value."""
    series: dict[str, dict[str, float]] = {}
    for name, x, value in found:
        if not math.isnan(value):
            series.setdefault(name, {})[x] = value
    if not series:
        return []
    drawn = tuple(Series(name, tuple(of), tuple(of.values())) for name, of in series.items())
    return [Plot(title, "bars", "", y, drawn)]


def _throughput(run: Run) -> list[Plot]:
    found = ((_system(one), _line(one), run.median(one, MEGABYTES.of)) for one in run.matrix)
    return _bars("Figure 1: what a producer moves", "MB/s", found)


def _clocks(run: Run) -> list[Plot]:
    made = []
    waited = [one for one in run.places("diagnosis") if one[2] == -1]
    for number_, name, by_broker, column in (
        (4, "p99", BROKER_P99, "p99"), (5, "p99.9", BROKER_P99_9, "p99_9"),
    ):  # fmt: skip
        found = []
        for one in waited:
            x = f"{_system(one)}, {_in_flight(one)} in flight"
            seen = run.median(one, lambda block, column=column: block.percentile_ms(column))
            found += [
                ("by the broker's clock", x, run.median(one, by_broker) / 1e3),
                ("by the producer's", x, seen),
            ]
        made += _bars(f"Figure {number_}: {name} of produce, acks=-1", "ms", found)
    return made


def _follower(run: Run) -> list[Plot]:
    found = []
    for one in run.places("diagnosis"):
        if one[2] == 1:
            found += [
                ("produced", _system(one), run.median(one, MEGABYTES.of)),
                ("fetched by the follower", _system(one), run.median(one, FETCHED)),
            ]
    return _bars("Figure 6: producer and follower, acks=1", "MB/s", found)


def _waiting(run: Run) -> list[Plot]:
    waited = [one for one in run.matrix if one[2] == -1]

    def bars(name: str) -> list[tuple[str, str, float]]:
        return [
            (_system(one), f"{_in_flight(one)} in flight", run.median(one, name)) for one in waited
        ]

    return [
        *_bars("Figure 7: in flight, as it was reached", "requests", bars(REACHED)),
        *_bars("Figure 8: zero windows of a block", "times", bars(ZERO_WINDOWS)),
    ]


# -- in words and numbers


def _said(run: Run) -> list[str]:
    said = []
    for in_flight in sorted({one[5] for one in run.matrix if one[5] is not None}):
        moved = {
            (one[1], _mode(one)): run.median(one, MEGABYTES.of)
            for one in run.matrix
            if one[5] == in_flight
        }
        waited = [
            f"{name} {number(moved[system, 'acks=-1'])}"
            for system, name in SYSTEMS.items()
            if (system, "acks=-1") in moved
        ]
        if not waited:
            continue
        beside = _over(moved.get(("pipelined", "acks=-1")), moved.get(("pipelined", "acks=1")))
        share = "" if beside is None else f"; pipelined that is {beside:.2f} of its own acks=1"
        said.append(f"acks=-1, {in_flight:,} in flight, MB/s: {', '.join(waited)}{share}.")
    for one in run.places("diagnosis"):
        by_broker = run.median(one, BROKER_P99) / 1e3
        seen = run.median(one, lambda block: block.percentile_ms("p99"))
        if one[2] == -1 and seen >= 2 * by_broker:
            said.append(
                f"{_system(one)}, {_in_flight(one)} in flight: 99 of 100 produces take"
                f" {number(by_broker)} ms by the broker's clock and {number(seen)} ms by the"
                " producer's: what waits has not been read yet."
            )
    return said or ["The run has neither the document's table nor its diagnosis."]


def _over(a: float | None, b: float | None) -> float | None:
    return a / b if a is not None and b else None


def _table(inputs: Inputs, run: Run) -> Table:
    head = ("system", "", "in flight", "blocks", "MB/s", "p99, ms", "p99, ms, broker's clock",
            "reached", "zero windows", "fetched MB/s", "KB of a fetch")  # fmt: skip
    rows = []
    for one in [*run.places("diagnosis"), *run.matrix][:ROWS_MAX]:
        which = {"study": STUDY, "run_id": run.run_id, **dict(zip(PLACE, one, strict=True))}
        count = len(run.blocks[one])
        measured = inputs.rows(
            "results", count, "kind = 'block' AND again IS NOT true", same(which)
        )
        cells: list[Cell] = [words(_system(one)), words(_mode(one)), words(_in_flight(one))]
        cells.append(figure(count, measured))
        cells += [
            figure(run.median(one, of), measured)
            for of in (MEGABYTES.of, lambda block: block.percentile_ms("p99"))
        ]
        for name, scale in (
            (BROKER_P99, 1e-3), (REACHED, 1.0), (ZERO_WINDOWS, 1.0), (FETCHED, 1.0), (FETCH, 1e-3),
        ):  # fmt: skip
            value, many = run.figures.get((one, name), (NONE, 0))
            if not many:
                cells.append(words("-"))
                continue
            source = inputs.rows(
                "results", many, "kind = 'figure' AND value IS NOT NULL",
                same({**which, "name": name}),
            )  # fmt: skip
            cells.append(figure(value * scale, source))
        rows.append(tuple(cells))
    return Table("The experiment", head, tuple(rows), "Medians over the rounds.")
