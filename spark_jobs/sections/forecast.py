"""When the disks are full: hours = free / (growth over 24 h / 24) x 0.8, by broker and directory.

The formula is the monitoring guide's, with growth taken by the hour (literally it would give days);
0.8 keeps a fifth of the time for reacting. Growth is that of the logs' bytes between the newest
sample and the first one of the 24 hours before it, however short the report's span is. With less
than a day of samples it is scaled and called an estimate; with less than the alert rule's own half
hour it is listed but raises no alarm, because one burst says nothing about a day. A directory that
does not grow is never full.

Directories of one file system share its free bytes, so it is their growth together that fills it.
Samples do not name the file system: those of one broker whose file systems are equally large and,
whenever both were sampled, equally free are taken for one. A directory that is missing from its
broker's newest samples is gone: it fills nothing, and is no alarm.

A forecast under FORECAST_HOURS_MIN is an alarm, and the report's exit code says so. Since when, the
forecasts of earlier moments tell (`ticks`), which the alert rule is put to as well.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import Window
from pyspark.sql import functions as F

from kbroker.metrics.alerts import FORECAST_HOURS_MIN
from spark_jobs.report_model import Cell, Finding, Plot, Rows, Section, Table, Verdict
from spark_jobs.sections.cells import (
    DAY_MS,
    between,
    both,
    brief,
    figure,
    moment,
    number,
    same,
    size,
    span,
    words,
)
from spark_jobs.sections.inputs import Inputs, collected
from spark_jobs.sections.silence import Listened
from spark_jobs.sections.timeline import Axis
from spark_jobs.sections.traffic import axis_of, binned

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

KEY: Final = "forecast"
TITLE: Final = "When the disks are full"
METRIC: Final = {"metric_name": "LogDirectory"}
SHARE_USABLE: Final = 0.8
FULL_DAY: Final = 0.98  # of 24 hours: the first sample of a day is rarely its first second
ALARM_AFTER_MS: Final = 30 * 60_000  # as the rule LogDirectoryFullSoon waits
SAME_FREE_BYTES: Final = 64_000_000  # what may be written between two looks at one file system
TICK_MS: Final = 5 * 60_000
PLOT_DIRECTORIES_MAX: Final = 8


@dataclass(frozen=True)
class Forecast:
    """Of one directory; `hours` is None where it does not grow or cannot be known.

    `others` share its file system, `others_a_day` is what they grow by.
    """

    broker_id: int | None
    directory: str | None
    free_bytes: float | None
    total_bytes: float | None
    growth_bytes: float
    span_ms: float
    first_ms: int
    last_ms: int
    samples: int
    others: tuple[str | None, ...] = ()
    others_a_day: float = 0.0
    gone: bool = False

    @property
    def estimate(self) -> bool:
        """From less than a day."""
        return self.span_ms < FULL_DAY * DAY_MS

    @property
    def growth_a_day(self) -> float:
        """Bytes in 24 hours, scaled where there were fewer."""
        if self.span_ms <= 0:
            return 0.0
        return self.growth_bytes * DAY_MS / self.span_ms if self.estimate else self.growth_bytes

    @property
    def hours(self) -> float | None:
        filling = self.growth_a_day + self.others_a_day
        if filling <= 0 or self.free_bytes is None or self.gone:
            return None
        return max(0.0, self.free_bytes) / (filling / 24) * SHARE_USABLE

    @property
    def known(self) -> bool:
        """Whether growth and free space are."""
        return self.span_ms > 0 and self.free_bytes is not None and not self.gone

    @property
    def soon(self) -> bool:
        """Below the threshold, whether or not it is known well enough for an alarm."""
        return self.hours is not None and self.hours < FORECAST_HOURS_MIN

    @property
    def alarm(self) -> bool:
        return self.soon and self.span_ms >= ALARM_AFTER_MS

    @property
    def name(self) -> str:
        return f"broker {brief(self.broker_id)} {brief(self.directory)}"

    @property
    def said(self) -> str:
        if self.gone:
            return "gone: its broker's newest samples lack it"
        if self.span_ms <= 0:
            return "one sample only"
        if self.free_bytes is None:
            return "free space unknown"
        if self.hours is None:
            return "not growing"
        return f"estimate from {span(self.span_ms)}" if self.estimate else "from a day"


def forecasts(metrics: DataFrame) -> list[Forecast]:
    """Of every broker's every directory, the soonest first; those without an end come last."""
    one = Window.partitionBy("broker_id", "directory")
    recent = (
        metrics.where(same(METRIC))
        .where("log_bytes IS NOT NULL AND event_time_ms IS NOT NULL")
        .withColumn("newest_ms", F.max("event_time_ms").over(one))
        .where(f"event_time_ms >= newest_ms - {DAY_MS}")
    )
    at = F.struct("event_time_ms", "source_offset")
    rows = collected(
        recent.groupBy("broker_id", "directory").agg(
            F.max_by("free_bytes", at).alias("free"),
            F.max_by("total_bytes", at).alias("total"),
            F.max_by(F.col("log_bytes").cast("double"), at).alias("log_last"),
            F.min_by(F.col("log_bytes").cast("double"), at).alias("log_first"),
            F.min("event_time_ms").alias("first_ms"),
            F.max("event_time_ms").alias("last_ms"),
            F.expr("percentile_approx(interval_ms, 0.5)").alias("every_ms"),
            F.count(F.lit(1)).alias("samples"),
        )
    )
    newest: dict[int | None, int] = {}
    for row in rows:
        newest[row["broker_id"]] = max(newest.get(row["broker_id"], 0), row["last_ms"])
    each = [_forecast(row, newest[row["broker_id"]]) for row in rows]
    found = _together(each, file_systems(metrics))
    return sorted(found, key=lambda f: (f.hours is None, f.hours or 0.0, f.name))


def _forecast(row: dict[str, Any], newest_ms: int) -> Forecast:
    """`newest_ms`: when its broker sampled any directory; a round that was cut may lack one."""
    return Forecast(
        broker_id=row["broker_id"],
        directory=row["directory"],
        free_bytes=row["free"],
        total_bytes=row["total"],
        growth_bytes=row["log_last"] - row["log_first"],
        span_ms=row["last_ms"] - row["first_ms"],
        first_ms=row["first_ms"],
        last_ms=row["last_ms"],
        samples=row["samples"],
        gone=newest_ms - row["last_ms"] > 2 * (row["every_ms"] or 0),
    )


Place = tuple[int | None, str | None]  # broker, directory


def file_systems(metrics: DataFrame) -> dict[Place, str | None]:
    """Of directories that share a file system: the one that is used for all of them."""
    looks = metrics.where(same(METRIC)).select(
        "broker_id", "event_time_ms", "total_bytes", "directory",
        F.col("free_bytes").cast("double").alias("free"),
    )  # fmt: skip
    other = looks.withColumnsRenamed({"directory": "other", "free": "other_free"})
    pairs = collected(
        looks.join(other, ["broker_id", "event_time_ms", "total_bytes"])
        .where("directory < other")
        .groupBy("broker_id", "directory", "other")
        .agg(F.max(F.abs(F.col("free") - F.col("other_free"))).alias("apart"))
        .where(F.col("apart") <= SAME_FREE_BYTES)
        .orderBy("broker_id", "directory", "other")
    )
    first: dict[Place, str | None] = {}
    for row in pairs:  # in order, so the first of them is used for all
        one, two = ((row["broker_id"], row[name]) for name in ("directory", "other"))
        first.setdefault(two, first.setdefault(one, one[1]))
    return first


def _together(found: list[Forecast], shared: dict[Place, str | None]) -> list[Forecast]:
    """Each with the growth of the others of its file system."""
    made = []
    for one in found:
        own = shared.get((one.broker_id, one.directory))
        others = [
            other for other in found
            if other is not one and other.broker_id == one.broker_id and own is not None
            and not other.gone and shared.get((other.broker_id, other.directory)) == own
        ]  # fmt: skip
        made.append(replace(
            one, others=tuple(other.directory for other in others),
            others_a_day=sum(other.growth_a_day for other in others),
        ))  # fmt: skip
    return made


# -- at earlier moments


def ticks(metrics: DataFrame, since_ms: int) -> DataFrame:
    """Of every directory, every TICK_MS: hours until it is full, from the day before.

    `hours` is infinite where it does not grow; `samples` are those from `since_ms` on.
    """
    newest = F.struct("event_time_ms", "source_offset")
    tick = (F.floor(F.col("event_time_ms") / TICK_MS) * TICK_MS).cast("long")
    found = (
        metrics.where(same(METRIC))
        .where("log_bytes IS NOT NULL AND event_time_ms IS NOT NULL")
        .groupBy("broker_id", "directory", tick.alias("at_ms"))
        .agg(
            F.max_by(F.col("log_bytes").cast("double"), newest).alias("log"),
            F.max_by(F.col("free_bytes").cast("double"), newest).alias("free"),
            F.count(F.when(F.col("event_time_ms") >= since_ms, 1)).alias("samples"),
        )
    )
    day = Window.partitionBy("broker_id", "directory").orderBy("at_ms").rangeBetween(-DAY_MS, 0)
    then = found.withColumns(
        {"log_then": F.first("log").over(day), "ms_then": F.first("at_ms").over(day)}
    )
    then = _on_file_systems(then, file_systems(metrics))
    together = Window.partitionBy("broker_id", "file_system", "at_ms")
    own = F.expr(f"try_divide((log - log_then) * {DAY_MS}, at_ms - ms_then)")
    hours = (
        f"CASE WHEN growth > 0 THEN free / (growth / 24) * {SHARE_USABLE}D"
        " WHEN at_ms > ms_then THEN double('Infinity') END"
    )
    return (
        then.withColumn("growth", F.sum(own).over(together))
        .withColumn("hours", F.expr(hours))
        .select("broker_id", "directory", "at_ms", "hours", "samples")
        .where("hours IS NOT NULL")
    )


def _on_file_systems(found: DataFrame, shared: dict[Place, str | None]) -> DataFrame:
    """With `file_system`: the directory that is used for all of it, mostly the only one."""
    if not shared:
        return found.withColumn("file_system", F.col("directory"))
    known = found.sparkSession.createDataFrame(
        [(*place, first) for place, first in shared.items()],
        "broker_id long, directory string, first string",
    )
    joined = found.join(F.broadcast(known), ["broker_id", "directory"], "left")
    return joined.withColumn("file_system", F.coalesce("first", "directory"))


def _since(metrics: DataFrame) -> dict[Place, int]:
    """When the forecast went below the threshold for the last time and stayed there."""
    own = Window.partitionBy("broker_id", "directory")
    well = F.max(F.when(F.col("hours") >= FORECAST_HOURS_MIN, F.col("at_ms"))).over(own)
    rows = collected(
        ticks(metrics, 0)
        .withColumn("well", F.coalesce(well, F.lit(0)))
        .where("at_ms > well")
        .groupBy("broker_id", "directory")
        .agg(F.min("at_ms").alias("at_ms"))
    )
    return {(row["broker_id"], row["directory"]): row["at_ms"] for row in rows}


# -- what is said


def section(inputs: Inputs, listened: Listened) -> Section:
    found = forecasts(inputs.of_a_day)
    if not found:
        return Section(KEY, TITLE, (
            "No samples of log directories in this span: a broker tells them every 30 s with"
            " metrics.topic.enable=true.",
        ))  # fmt: skip
    alarms = [one for one in found if one.alarm and not _told_before(one, found)]
    since = _since(inputs.of_a_day) if alarms else {}
    return Section(
        KEY, TITLE, _words(found), (_table(inputs, found),),
        _plots(inputs, found, axis_of(inputs, listened)),
        tuple(_alarm(one, since, inputs.until_ms) for one in alarms),
    )  # fmt: skip


def _words(found: list[Forecast]) -> tuple[str, ...]:
    first = found[0]
    if first.hours is None:
        open_ = [one for one in found if not one.known]
        said = ["No log directory grows."]
        if open_:
            of = f", of {len(open_)} of {len(found)} directories" if len(found) > 1 else ""
            said = [f"Not known{of}: {open_[0].said}."]
    else:
        said = [f"The first to be full is {first.name}: in {_hours(first.hours)}; {first.said}."]
    if early := [one.name for one in found if one.soon and not one.alarm]:
        said.append(
            f"Under {FORECAST_HOURS_MIN} h, but from too few samples for an alarm (it takes"
            f" {span(ALARM_AFTER_MS)}): {', '.join(early)}."
        )
    said.append(
        f"Hours = free / (growth over 24 h / 24) x {SHARE_USABLE}; an alarm below"
        f" {FORECAST_HOURS_MIN}."
    )
    return tuple(said)


def _told_before(one: Forecast, found: list[Forecast]) -> bool:
    """Whether another directory of its file system has the same alarm already."""
    before = found[: found.index(one)]
    return any(
        other.alarm and other.broker_id == one.broker_id and other.directory in one.others
        for other in before
    )


def _alarm(one: Forecast, since: dict[Place, int], until_ms: int) -> Finding:
    beside = "".join(f", {brief(other)}" for other in one.others)
    old = until_ms - one.last_ms > ALARM_AFTER_MS
    when = f", as of {moment(one.last_ms)} UTC" if old else ""
    return Finding(
        f"{one.name}{beside} is full in {_hours(one.hours)} at the growth of the last"
        f" {span(one.span_ms)}{when}",
        since.get((one.broker_id, one.directory)),
        look=f"{TITLE}; add a disk, or delete topics and records that are not needed",
    )


def _hours(hours: float | None) -> str:
    if hours is None:
        return "-"
    days = f", {number(round(hours / 24))} days" if hours >= 2 * FORECAST_HOURS_MIN else ""
    return f"{number(hours)} h{days}"


def _table(inputs: Inputs, found: list[Forecast]) -> Table:
    rows = []
    for one in found:
        who = {**METRIC, "broker_id": one.broker_id, "directory": one.directory}
        source = Rows(
            "metrics",
            both(between(one.first_ms, one.last_ms + 1), same(who), "log_bytes IS NOT NULL"),
            one.samples,
        )
        open_ = one.soon or not one.known
        verdict: Verdict = "bad" if one.alarm else "open" if open_ else "good"
        hours = words("-", verdict) if one.hours is None else figure(
            one.hours, source, verdict=verdict
        )  # fmt: skip
        rows.append((
            words(one.broker_id), words(one.directory), hours,
            figure(one.free_bytes, source, size(one.free_bytes)),
            _share(one),
            figure(one.growth_a_day, source, size(one.growth_a_day)),
            words(one.said), words(moment(one.last_ms)),
            words(", ".join(map(brief, one.others)) or "-"),
        ))  # fmt: skip
    return Table(
        "By broker and log directory",
        ("broker", "directory", "full in, h", "free", "of the file system", "growth in 24 h",
         "how sure", "newest sample, UTC", "shares its file system with"),
        tuple(rows),
        "Directories of one file system fill it together.",
    )  # fmt: skip


def _share(one: Forecast) -> Cell:
    if not one.total_bytes or one.free_bytes is None:
        return words("-")
    share = one.free_bytes / one.total_bytes
    who = same({**METRIC, "broker_id": one.broker_id, "directory": one.directory})
    newest = Rows("metrics", both(between(one.last_ms, one.last_ms + 1), who), 1)
    return figure(share, newest, f"{share * 100:.1f} %")


def _plots(inputs: Inputs, found: list[Forecast], axis: Axis) -> tuple[Plot, ...]:
    """The logs' bytes over the span, the soonest directories."""
    drawn = found[:PLOT_DIRECTORIES_MAX]
    ids = [one.broker_id for one in drawn if one.broker_id is not None]
    rows = collected(
        inputs.metrics.where(same(METRIC))
        .where(F.col("broker_id").isin(ids))
        .groupBy(
            "broker_id", "directory",
            binned(axis.step),
        )
        .agg(F.max("log_bytes").alias("bytes"))
        .where("bytes IS NOT NULL AND at IS NOT NULL")
        .orderBy("at")
    )  # fmt: skip
    scale, unit = (1e9, "GB") if any(row["bytes"] >= 1e9 for row in rows) else (1e6, "MB")
    series = []
    for one in drawn:
        points = [
            (row["at"], row["bytes"] / scale)
            for row in rows
            if (row["broker_id"], row["directory"]) == (one.broker_id, one.directory)
        ]
        line = axis.line(one.name, points)
        if line is not None and len(points) > 1:
            series.append(line)
    if not series:
        return ()
    return (Plot("Bytes of the logs", "line", "time, UTC", unit, tuple(series), x_is_time=True),)
