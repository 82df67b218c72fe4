"""Day by day, from the hourly roll-ups: what a report still knows when raw rows have expired.

Roll-ups are kept, so this section looks back HISTORY_DAYS whatever the report's span is, and costs
the same for a day of many samples and of few. The report has brought those of days with news up to
date before (spark_jobs/rollup.py), so rows that came late are in; where it could not, a line says
which days lack how many samples. A p99 is of the day's merged histograms. The newest day may be in
progress: its line says how many hours it has.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

from pyspark.sql import functions as F

from spark_jobs.report_model import Cell, Plot, Rows, Section, Table
from spark_jobs.sections import percentiles, timeline
from spark_jobs.sections.cells import (
    DAY_MS,
    both,
    brief,
    figure,
    number,
    same,
    size,
    words,
)
from spark_jobs.sections.cells import days as dates
from spark_jobs.sections.inputs import Inputs, collected

KEY: Final = "history"
TITLE: Final = "Day by day"
HISTORY_DAYS: Final = 90
DAYS_SHOWN_MAX: Final = 31  # in the table; the plots have all of them
TRAFFIC: Final = {"metric_name": "BrokerTraffic"}
PRODUCE: Final = {"metric_name": "RequestTime", "request": "Produce", "part": "TotalTimeMs"}
BY: Final = ("event_date", "broker_id")
_EPOCH: Final = 719_163  # the ordinal of 1970-01-01

Day = dict[str, Any]


def section(inputs: Inputs) -> Section:
    days = _days(inputs)
    lagging = _lagging(inputs, days)
    if not days:
        return Section(KEY, TITLE, ("No samples have been rolled up.", *lagging))
    latest = days[-1]
    same_day = [day for day in days if day["event_date"] == latest["event_date"]]
    busiest = max(days, key=lambda day: day["messages"] or 0.0)
    late = sum(day["late"] or 0 for day in days)
    touched = len({day["event_date"] for day in days if day["late"]})
    said = (
        f"{_count(len({day['event_date'] for day in days}), 'day')} of hourly roll-ups; on"
        f" {latest['event_date']} {number(sum(day['messages'] or 0 for day in same_day))} messages"
        " were taken"
    )
    if len(days) > 1:
        said += (
            f"; most by one broker in a day: {number(busiest['messages'])}, broker"
            f" {busiest['broker_id']} on {busiest['event_date']}"
        )
    came = (
        f"{_count(late, 'sample')} of {_count(touched, 'day')} came late and"
        f" {'is' if late == 1 else 'are'} in."
        if late
        else "No sample came late."
    )
    return Section(
        KEY, TITLE, (f"{said}.", came, *lagging), (_table(days),), _plots(days, inputs.until_ms)
    )


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def _lagging(inputs: Inputs, days: list[Day]) -> tuple[str, ...]:
    """One line if roll-ups lack rows that have landed."""
    lagging = inputs.fresh.lagging
    if not lagging:
        return ()
    have = sum(day["samples"] for day in days if day["event_date"].isoformat() in lagging)
    return (
        f"Late: the roll-ups of {dates(lagging)} have {have:,} of the"
        f" {_count(sum(lagging.values()), 'sample')} that landed; {brief(inputs.fresh.why)}."
        " `python -m spark_jobs.maintain` brings them up to date.",
    )


def _days(inputs: Inputs) -> list[Day]:
    """By day and broker, in the order of time."""
    frame = inputs.hourly
    if frame is None:
        return []
    traffic = F.expr(same(TRAFFIC))
    of_hour = F.try_divide(F.col("messages_in") * F.lit(1000.0), F.col("covered_ms"))
    sums = [F.sum(F.when(traffic, F.col(name).cast("double"))).alias(alias)
            for name, alias in (("messages_in", "messages"), ("bytes_in", "taken"),
                                ("bytes_out", "given"))]  # fmt: skip
    rows = collected(
        frame.groupBy(*BY)
        .agg(
            *sums,
            F.max(F.when(traffic, of_hour)).alias("peak"),
            F.count_if(traffic).alias("hours"),
            F.count(F.lit(1)).alias("rows"),
            F.sum("samples").alias("samples"),
            F.sum("late_samples").alias("late"),
        )
        .orderBy(*BY)
    )
    times = percentiles.merged(frame.where(same(PRODUCE)), BY, (99.0,))
    p99 = {tuple(row[name] for name in BY): row for row in collected(times)}
    for row in rows:
        found = p99.get(tuple(row[name] for name in BY), {})
        row["p99"], row["p99_hours"] = found.get("p99"), found.get("blocks", 0)
    return rows


def predicate(day: Day, kind: Mapping[str, str] = MappingProxyType({})) -> str:
    """The hours of a day and a broker, of a kind of sample or of all."""
    date = f"DATE'{day['event_date']}'"
    return both(f"event_date BETWEEN {date} AND {date}", same({**kind, BY[1]: day[BY[1]]}))


def _table(days: list[Day]) -> Table:
    made: list[tuple[Cell, ...]] = []
    for day in reversed(days[-DAYS_SHOWN_MAX:]):
        hours = Rows("hourly", predicate(day, TRAFFIC), day["hours"])
        timed = Rows("hourly", predicate(day, PRODUCE), day["p99_hours"])
        every = Rows("hourly", predicate(day), day["rows"])
        made.append((
            words(day["event_date"]), words(day["broker_id"]), figure(day["hours"], hours),
            figure(day["messages"], hours), figure(day["peak"], hours),
            figure(day["taken"], hours, size(day["taken"])),
            figure(day["given"], hours, size(day["given"])),
            figure(day["p99"], timed),
            figure(day["late"], every, verdict="open" if day["late"] else ""),
        ))  # fmt: skip
    more = len(days) - len(made)
    return Table(
        "By day and broker",
        ("day, UTC", "broker", "hours", "messages", "busiest hour, messages/s", "in", "out",
         "produce p99, ms", "late samples"),
        tuple(made),
        "Late: older than the stream's watermark when they landed; all the same they are in."
        + (f" {more} earlier lines are in the table `hourly`." if more > 0 else ""),
    )  # fmt: skip


def _plots(days: list[Day], until_ms: int) -> tuple[Plot, ...]:
    """Lines need two days; a day without samples is a gap, to the report's end."""
    made = []
    last = float((until_ms - 1) // DAY_MS * DAY_MS)
    between = (_begin_ms(days[0]), max(last, _begin_ms(days[-1])))
    for title, column, unit in (
        ("Messages a day", "messages", "messages"),
        ("Produce p99 of the day", "p99", "ms"),
    ):
        series = []
        for broker in dict.fromkeys(day["broker_id"] for day in days):
            own = [day for day in days if day["broker_id"] == broker and day[column] is not None]
            if len(own) > 1:
                points = [(_begin_ms(day), day[column]) for day in own]
                line = timeline.series(
                    f"broker {brief(broker)}", points, DAY_MS, between, every_ms=DAY_MS / 2
                )
                series += [line] if line is not None else []
        if series:
            made.append(Plot(title, "line", "day, UTC", unit, tuple(series), x_is_time=True))
    return tuple(made)


def _begin_ms(day: Day) -> float:
    return float(day["event_date"].toordinal() - _EPOCH) * DAY_MS


def since_ms(until_ms: int) -> int:
    """The beginning of the first day that is looked at."""
    return max(0, until_ms // DAY_MS * DAY_MS - HISTORY_DAYS * DAY_MS)
