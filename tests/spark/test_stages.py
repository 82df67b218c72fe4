"""Where the time goes: stages of requests, flushes, muted sockets, groups with a lag."""

from __future__ import annotations

from typing import Any

import pytest

from spark_jobs.report_model import Section
from spark_jobs.sections import stages
from spark_jobs.sections.silence import Listened, Sampled
from tests.spark import landed
from tests.spark.landed import NOON_MS, Row, sample

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(300)]

MINUTE_MS = 60_000


def buckets(**counts: int) -> list[Row]:
    """le8=3: three values up to 8."""
    return [{"le": float(name[2:]), "count": count} for name, count in counts.items()]


def timed(part: str, minute: int = 0, request: str = "Produce", **counts: int) -> Row:
    return sample("RequestTime", NOON_MS + minute * MINUTE_MS, request=request, part=part,
                  count=sum(counts.values()), buckets=buckets(**counts))  # fmt: skip


def lag(minute: int, records: int, group: str = "shop") -> Row:
    return sample("GroupLag", NOON_MS + minute * MINUTE_MS, consumer_group=group, topic="orders",
                  lag=records)  # fmt: skip


def muted(minute: int, waiting: int, **counts: int) -> Row:
    waits = [{"le": one["le"] / 1000, "count": one["count"]} for one in buckets(**counts)]
    return sample("MutedSockets", NOON_MS + minute * MINUTE_MS, listener="PLAIN",
                  muted_waiting=waiting, muted_waits_s=waits)  # fmt: skip


@pytest.fixture(scope="module")
def found(spark: Any) -> tuple[Any, Section]:
    rows = [
        timed("RequestQueueTimeMs", le2=90, le8=10), timed("LocalTimeMs", le1=100),
        timed("RemoteTimeMs", le0=100), timed("ResponseQueueTimeMs", le1=40),
        timed("ResponseSendTimeMs", 1, le1=100), timed("TotalTimeMs", le16=100),
        timed("LocalTimeMs", request="Metadata", le1=1),
        sample("LogFlush", NOON_MS, count=4, buckets=buckets(le4=3, le32=1)),
        muted(0, 7, le1=98), muted(1, 3, le64=2),
        lag(0, 5), lag(1, 90), lag(2, 0), lag(2, 20, "slow"), lag(0, 30, "deleted"),
        {**lag(0, 1), "broker_id": 2},
    ]  # fmt: skip
    inputs = landed.inputs(
        spark, metrics=rows, since_ms=NOON_MS - MINUTE_MS, until_ms=NOON_MS + 3 * MINUTE_MS
    )
    sampled = (Sampled(1, NOON_MS + 2 * MINUTE_MS + 15_000),)
    listened = Listened(inputs.until_ms, MINUTE_MS, NOON_MS, sampled)
    return inputs, stages.section(inputs, listened)


def lines(section: Section, title: str) -> list[list[str]]:
    (table,) = (table for table in section.tables if table.title == title)
    return [[cell.text for cell in row] for row in table.rows]


def test_where_a_requests_time_is(found: tuple[Any, Section]) -> None:
    # 260 ms in the queue, 100 local, 40 in the response queue, 100 sending, of 500
    assert lines(found[1], "Share of a request's time") == [
        ["1", "Produce", "52 %", "20 %", "0 %", "8 %", "20 %"],
        ["1", "Metadata", "-", "100 %", "-", "-", "-"],
    ]
    assert lines(found[1], "p99 of each stage, ms")[0] == ["1", "Produce", "8", "1", "0", "1", "1"]

    words = found[1].words[0]
    assert words == "Produce on broker 1: request queue 52 %, local 20 %, send 20 % of its time."


def test_the_slowest_kinds_are_listed_with_all_their_stages(
    spark: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not the most frequent ones."""
    monkeypatch.setattr(stages, "REQUESTS_MAX", 1)
    rows = [timed(part, request=request, **counts)
            for request, counts in (("Metadata", {"le1": 900}), ("JoinGroup", {"le30000": 2}))
            for part in stages.STAGES]  # fmt: skip
    inputs = landed.inputs(spark, metrics=rows)
    section = stages.section(inputs, Listened(inputs.until_ms, MINUTE_MS))
    assert lines(section, "Share of a request's time") == [["1", "JoinGroup", *["20 %"] * 5]]


def test_flushes_muted_sockets_and_groups(found: tuple[Any, Section]) -> None:
    _, section = found
    assert lines(section, "Flushes") == [["1", "4", "4", "32"]]
    assert lines(section, "Muted sockets") == [["1", "PLAIN", "100", "1", "64", "7"]]
    groups = lines(section, "Groups with a lag")
    assert [row[:2] + row[3:4] + row[5:6] for row in groups] == [
        ["deleted", "orders", "30", "30"], ["slow", "orders", "20", "20"],
        ["shop", "orders", "1", "1"], ["shop", "orders", "0", "90"],
    ]  # fmt: skip
    assert "100 times bytes waited in the socket" in section.words[2]
    assert section.words[3] == (  # one with a lag is sampled in each round
        "With a lag to the end: 2 of 4 groups by topic; most slow in orders, by 20 records."
    )
    titles = [plot.title for plot in section.plots]
    assert titles == ["Produce by stage, p99, broker 1", "Muted connections with bytes waiting",
                      "Lag of groups"]  # fmt: skip
    named = {one.name for one in section.plots[-1].series}  # equal names would be one to a reader
    assert {"shop in orders, broker 1", "shop in orders, broker 2"} <= named


def test_every_number_has_its_rows(found: tuple[Any, Section]) -> None:
    assert landed.check_rows(*found) >= 10


def test_no_samples_no_data(spark: Any) -> None:
    inputs = landed.inputs(spark)
    section = stages.section(inputs, Listened(inputs.until_ms, MINUTE_MS))
    assert section.words[0].startswith("No data") and section.tables == ()
