"""Silence is not health: lines about brokers without samples and topics that were not read.

No Spark: what `listen` brings is given. That it brings this is in tests/spark/test_silence.py.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from spark_jobs.sections.silence import Listened, Sampled, findings

MINUTE_MS = 60_000
UNTIL_MS = 1_764_072_000_000


def before_end(minutes: float) -> int:
    return UNTIL_MS - int(minutes * MINUTE_MS)


def sampled(broker: int, minutes: float | None, hours_before: float | None = None) -> Sampled:
    return Sampled(
        broker, None if minutes is None else before_end(minutes),
        None if hours_before is None else before_end(60 * hours_before), 100,
    )  # fmt: skip


def listened(*brokers: Sampled, read: float = 0, **more: Any) -> Listened:
    return Listened(UNTIL_MS, 15 * MINUTE_MS, brokers=brokers, read_ms=before_end(read), **more)


def said(listened: Listened) -> list[tuple[str, int | None, str]]:
    return [(one.what, one.since_ms, one.severity) for one in findings(listened)]


@pytest.mark.parametrize("minutes", [0.1, 2.9])
def test_brokers_with_samples_are_no_finding(minutes: float) -> None:
    assert said(listened(sampled(1, 0.1), sampled(2, minutes))) == []


def test_a_job_of_every_ten_minutes_is_no_finding() -> None:
    """What is not read yet is not silence: brokers are measured to when the topics were read."""
    assert said(listened(sampled(1, 10.2), sampled(2, 10.4), read=10)) == []


def test_a_broker_that_samples_seldom_is_not_silent_in_between() -> None:
    hourly = replace(sampled(1, 100), every_ms=60 * MINUTE_MS)
    assert said(listened(hourly, sampled(2, 0))) == []
    assert said(listened(replace(hourly, newest_ms=before_end(181)), sampled(2, 0))) != []
    assert said(listened(hourly, read=100)) == []


def test_the_only_broker_died() -> None:
    assert said(listened(sampled(1, 59))) == [
        ("No samples of broker 1 for 59 min", before_end(59), "alarm")
    ]


def test_one_of_two_died() -> None:
    assert said(listened(sampled(1, 0.1), sampled(2, 59))) == [
        ("No samples of broker 2 for 59 min", before_end(59), "alarm")
    ]


def test_a_broker_that_died_before_the_span_is_missed() -> None:
    assert said(listened(sampled(1, 0.1), sampled(2, None, 30))) == [
        ("No samples of broker 2 for 1 d 6 h", before_end(1800), "alarm")
    ]


def test_all_at_once_are_one_line() -> None:
    assert said(listened(sampled(1, 59), sampled(2, 60), sampled(None, 61))) == [
        ("No samples of any of 3 brokers (1, 2, -) for 59 min", before_end(59), "alarm")
    ]


def test_many_are_bounded() -> None:
    many = [sampled(n, 60) for n in range(30)]
    lines = said(listened(sampled(99, 0), *many))
    assert len(lines) == 9
    assert lines[-1][0].startswith("No samples of 22 brokers more (8, 9,")


def test_the_landing_job_died() -> None:
    assert said(listened(sampled(1, 20.1), sampled(2, 20.2), read=20)) == [
        ("Nothing has landed for 20 min: what happened since is not known", before_end(20),
         "alarm")
    ]  # fmt: skip


def test_other_topics_land_and_samples_do_not() -> None:
    """A job that lands once tells of that by its next run, so twice the time is allowed."""
    assert said(listened(sampled(1, 29.1), read=29, landed_ms=UNTIL_MS)) == []
    assert said(listened(sampled(1, 31.1), read=31, landed_ms=UNTIL_MS)) == [
        ("No samples have landed for 31 min: what happened since is not known", before_end(31),
         "alarm")
    ]  # fmt: skip


def test_two_brokers_of_one_id() -> None:
    """One of them may die unseen."""
    both = listened(replace(sampled(1, 0.1), twice=True), sampled(2, 0))
    ((what, since_ms, severity),) = said(both)
    assert what.startswith("Samples of two runs of broker id 1 lie side by side: two brokers are")
    assert (since_ms, severity) == (None, "warning")


def test_a_job_that_lags_by_hours_is_no_silence_of_brokers() -> None:
    (line,) = said(listened(sampled(1, 120), sampled(2, 120), lag_records=4000))
    assert line[0].startswith("Landing lags by 4,000 records: the newest sample")


def test_a_query_that_ended_with_an_error() -> None:
    ended = ("metrics-v1", before_end(5), "no space")
    assert said(listened(sampled(1, 0), ended=(ended,))) == [
        ("Landing of metrics-v1 ended: no space", before_end(5), "alarm")
    ]


def test_topics_that_this_report_could_not_read() -> None:
    lines = said(listened(sampled(1, 5.1), read=5, trouble="127.0.0.1:9092 is away"))
    assert lines == [
        ("The topics could not be read: 127.0.0.1:9092 is away", before_end(5), "alarm")
    ]


def test_no_data_is_said_as_no_data() -> None:
    nothing = replace(listened(), read_ms=0)
    what = "No data: there are no samples of any broker"
    assert said(nothing) == [(what, None, "alarm")]
    assert said(replace(nothing, measured=True)) == [(what, None, "unknown")]
