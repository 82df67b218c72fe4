"""Who was heard, of rows as they landed: each kind of silence is an alarm and on the first page."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from spark_jobs.rollup import HOURLY
from spark_jobs.schema import METRICS
from spark_jobs.sections import alerts, silence
from spark_jobs.sections.silence import Heard
from tests.spark import landed
from tests.spark.landed import HOUR_MS, NOON_MS, RUN, Row, sample

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(300)]

MINUTE_MS = 60_000
SINCE_MS = NOON_MS - 2 * HOUR_MS


def threads(broker: int, until_ms: int) -> list[Row]:
    return [sample("Threads", at, broker, handler_idle=0.9, network_idle=0.9)
            for at in range(SINCE_MS, until_ms, 30_000)]  # fmt: skip


def batches(until_ms: int, **last: Any) -> list[Row]:
    """What the job told of itself, once a minute."""
    rows = [
        {"kind": "batch", "run_id": RUN, "sequence": n, "query": "metrics-v1",
         "topic": METRICS.topic, "event_time_ms": at, "lag_records": 0}
        for n, at in enumerate(range(SINCE_MS, until_ms, MINUTE_MS))
    ]  # fmt: skip
    rows[-1] |= last
    return rows


AN_HOUR_AGO = NOON_MS - HOUR_MS
SITUATIONS: dict[str, tuple[Callable[[], dict[str, Any]], str]] = {
    "the only broker died": (
        lambda: {"metrics": threads(1, AN_HOUR_AGO), "progress": batches(NOON_MS)},
        "No samples of broker 1 for 1 h",
    ),
    "one of two died": (
        lambda: {"metrics": threads(1, NOON_MS) + threads(2, AN_HOUR_AGO)},
        "No samples of broker 2 for 1 h",
    ),
    "the landing job died": (
        lambda: {"metrics": threads(1, AN_HOUR_AGO), "progress": batches(AN_HOUR_AGO)},
        "Nothing has landed for 1 h",
    ),
    "sampling was stopped": (
        lambda: {"metrics": threads(1, AN_HOUR_AGO) + threads(2, AN_HOUR_AGO),
                 "progress": batches(NOON_MS)},
        "No samples of any of 2 brokers (1, 2) for 1 h",
    ),
    "the landing of one topic failed": (
        lambda: {"metrics": threads(1, NOON_MS),
                 "progress": batches(NOON_MS, kind="end", error="no space")},
        "Landing of metrics-v1 ended: no space",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", SITUATIONS)
def test_each_silence_is_an_alarm(spark: Any, name: str) -> None:
    rows, what = SITUATIONS[name]
    found = landed.inputs(spark, since_ms=SINCE_MS, until_ms=NOON_MS, **rows())
    section = silence.section(found, silence.listen(found))
    (finding,) = section.findings
    assert finding.what.startswith(what) and finding.severity == "alarm"
    landed.check_rows(found, section)


def test_a_broker_of_the_days_before_is_missed(spark: Any) -> None:
    hour = landed.utc(NOON_MS - 30 * HOUR_MS)
    place = HOURLY.column_names.index("broker_id")
    row = [None] * len(HOURLY.column_names)
    row[0], row[1], row[place] = hour, hour.date(), 7  # type: ignore[call-overload]
    hourly = spark.createDataFrame([tuple(row)], HOURLY.row_type())
    found = landed.inputs(spark, metrics=threads(1, NOON_MS), since_ms=SINCE_MS, until_ms=NOON_MS,
                          hourly=hourly)  # fmt: skip
    told = silence.listen(found)
    assert [one.broker_id for one in told.brokers] == [1, 7]
    assert told.silent == (Heard(7, None, NOON_MS - 30 * HOUR_MS),)
    section = alerts.section(found, told)
    (row_,) = section.tables[0].rows
    assert [cell.text for cell in row_[:3]] == ["KbrokerDown", "critical", "7"]
    rules = {line[0].text: line[3].text for line in section.tables[1].rows}
    assert rules["KbrokerDown"] == "1 x"
    assert rules["LowRequestHandlerIdle"] == "never"
    assert rules["HighMemoryUsage"] == "no data"  # "never, good" of what nobody measured
