"""Day by day: the figures of roll-ups are those of the samples that they were made of."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import pytest

from spark_jobs.rollup import Freshness, hours_of
from spark_jobs.schema import METRICS
from spark_jobs.sections import history
from spark_jobs.sections.cells import DAY_MS, HOUR_MS
from tests.spark import landed

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.slow]

NOON_MS = landed.NOON_MS


def samples() -> list[landed.Row]:
    """Two brokers; the first has two days, the second of which has two hours."""
    made = []
    for broker, at_ms, messages in (
        (1, NOON_MS - DAY_MS, 300),
        (1, NOON_MS, 1_000),
        (1, NOON_MS + 15_000, 500),
        (1, NOON_MS + HOUR_MS, 90),
        (2, NOON_MS, 7),
    ):
        made.append(landed.sample("BrokerTraffic", at_ms, broker, messages_in=messages,
                                  bytes_in=10 * messages, bytes_out=messages,
                                  late=messages == 500))  # fmt: skip
    for n, (le, count) in enumerate(((1.0, 98), (2.0, 1), (3.0, 1))):
        made.append(landed.sample(
            "RequestTime", NOON_MS + n * 15_000, request="Produce", part="TotalTimeMs",
            count=count, buckets=[{"le": le, "count": count}],
        ))  # fmt: skip
    return made


def test_days_of_brokers(spark: SparkSession) -> None:
    hourly = hours_of(landed.frame(spark, METRICS, samples()))
    inputs = landed.inputs(spark, hourly=hourly, until_ms=NOON_MS + 3 * DAY_MS)
    section = history.section(inputs)
    (table,) = section.tables
    newest_first = [[cell.value for cell in row[2:]] for row in table.rows]
    assert newest_first == [
        [1, 7, pytest.approx(7 / 15), 70, 7, None, 0],
        [2, 1_590, 50, 15_900, 1_590, 2.0, 1],
        [1, 300, 20, 3_000, 300, None, 0],
    ]
    assert [row[1].text for row in table.rows] == ["2", "1", "1"]
    (line,) = section.plots[0].series
    assert line.y[:2] == (300.0, 1_590.0)
    assert line.x[-1] == NOON_MS + 2.5 * DAY_MS and math.isnan(line.y[-1])  # silent since
    assert "1,597 messages" in section.words[0]
    assert section.words[1] == "1 sample of 1 day came late and is in."
    assert landed.check_rows(inputs, section) == 9


def test_without_roll_ups_it_says_how_to_have_them(spark: SparkSession) -> None:
    nothing = hours_of(landed.frame(spark, METRICS, []))
    lagging = {"2025-11-20": 5, "2025-11-21": 3}
    fresh = Freshness(lagging=lagging, why="the tables cannot be written")
    section = history.section(landed.inputs(spark, hourly=nothing, fresh=fresh))
    assert section.words == (
        "No samples have been rolled up.",
        "Late: the roll-ups of 2 days, 2025-11-20 to 2025-11-21 have 0 of the 8 samples that"
        " landed; the tables cannot be written. `python -m spark_jobs.maintain` brings them up to"
        " date.",
    )
    assert not section.tables
