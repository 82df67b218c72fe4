"""A small report with one of everything, for the tests of the page and of the browser."""

from __future__ import annotations

import math

from spark_jobs.report_model import Cell, Finding, Plot, Report, Rows, Section, Series, Table

HOSTILE = "<script>alert(1)</script> \u202etxt\u0000$x_{1$ \"'&<!--"
MINUTE_MS = 60_000
START_MS = 1_795_225_200_000


def number(value: float, count: int = 21, **fields: object) -> Cell:
    rows = Rows("results", f"cell = 'p-1k' AND acks = {count}", count)
    return Cell(f"{value:,.2f}", value, rows, **fields)  # type: ignore[arg-type]


def sample() -> Report:
    """Every kind of plot, of cell and of verdict; a section without anything; an alarm."""
    times = tuple(float(START_MS + n * MINUTE_MS) for n in range(120))
    waves = tuple(math.nan if 30 < n < 40 else 50 + 10 * math.sin(n / 9) for n in range(120))
    names = ("p-100", "p-1k", "p-16k")
    latency = Section(
        "latency",
        "Latency",
        ("Percentiles of merged histograms; `acks=-1` costs more.",),
        (
            Table(
                "By acks, ms",
                ("acks", "p50", "p99", "verdict"),
                (
                    (Cell("1"), number(0.1), number(1.5), Cell("less", verdict="good")),
                    (Cell("-1"), number(0.3, 7), number(2.5, 7), Cell("more", verdict="bad")),
                    (Cell("0"), number(0.2, 2), Cell("2", 2.0), Cell("n < 3", verdict="open")),
                ),
                note="From the intended send.",
            ),
        ),
        (
            Plot(
                "By percentile", "line", "percentile", "ms",
                (
                    Series("kbroker", (50.0, 99.0), (0.1, 2.0)),
                    Series("Apache Kafka", (50.0, 99.0), (0.3, 9.0)),
                ),
                log_y=True,
            ),
            Plot(
                "Ratio", "intervals", "", "ratio",
                (Series("ratio", names, (0.1, 0.9, 1.4), (0.08, 0.8, 1.2), (0.2, 1.1, 1.6)),),
                reference=1.0,
            ),
        ),
    )  # fmt: skip
    traffic = Section(
        "traffic",
        "Traffic",
        ("A quiet afternoon.",),
        (Table("Hot", ("topic", "messages"), ((Cell(HOSTILE), number(3.0)),)),),
        (
            Plot("In", "line", "", "MB/s", (Series(HOSTILE, times, waves),), x_is_time=True),
            Plot("By topic", "bars", "", "MB/s", (Series("in", (*names, HOSTILE), (1, 2, 3, 4)),)),
            Plot("Nothing", "line", "", "MB/s", (Series("in", (), ()),)),
        ),
        findings=(
            Finding("HighMemoryUsage: broker 1", START_MS, "resident memory", "warning"),
            Finding("broker 1, /data: full in 34 hours", START_MS, "add a disk"),
        ),
    )
    empty = Section("studies", "Studies", (), (Table("Verdicts", ("question", "answer"), ()),))
    return Report(
        START_MS + 7_300_000, "file:/tables", START_MS, START_MS + 7_200_000,
        (latency, traffic, empty),
    )  # fmt: skip
