"""Where the time goes: requests by stage, flushes, muted sockets, groups with a lag.

A request's time is split as Kafka splits it: request queue, a handler's work (local), waiting for
something else (remote), response queue, sending. A stage's share is its part of the time of all
stages together, from the buckets' upper bounds, some percent too high for each alike. Waiting in
the socket of a muted connection is in none of them: it has a table of its own.

Histograms are growth and are merged before a percentile is taken.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import Window
from pyspark.sql import functions as F

from spark_jobs.report_model import Cell, Plot, Section, Series, Table
from spark_jobs.sections import percentiles
from spark_jobs.sections.cells import brief, figure, moment, number, percent, same, words
from spark_jobs.sections.inputs import Inputs, collected
from spark_jobs.sections.silence import Listened
from spark_jobs.sections.timeline import SELDOM, Axis, finite, plot
from spark_jobs.sections.traffic import axis_of, binned

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

KEY: Final = "stages"
TITLE: Final = "Where the time goes"
STAGES: Final = {
    "RequestQueueTimeMs": "request queue",
    "LocalTimeMs": "local",
    "RemoteTimeMs": "remote",
    "ResponseQueueTimeMs": "response queue",
    "ResponseSendTimeMs": "send",
}
DRAWN: Final = ("Produce", "FetchConsumer")
REQUESTS_MAX: Final = 40
GROUPS_MAX: Final = 40
ROWS_MAX: Final = 100  # brokers, listeners
LINES_MAX: Final = 8
PERCENTS: Final = (50.0, 99.0)
TIMED: Final = "metric_name = 'RequestTime' AND size(buckets) > 0"
FLUSHED: Final = "metric_name = 'LogFlush' AND size(buckets) > 0"
MUTED: Final = "metric_name = 'MutedSockets'"
LAGS: Final = "metric_name = 'GroupLag' AND lag IS NOT NULL"

Line = dict[str, Any]


def section(inputs: Inputs, listened: Listened) -> Section:
    axis = axis_of(inputs, listened)
    step = axis.step
    requests = _by_request(collected(_stages(inputs.metrics)))
    flushes = collected(_flushes(inputs.metrics))
    muted = collected(_muted(inputs.metrics))
    groups = collected(_groups(inputs.metrics))
    if not (requests or flushes or muted or groups):
        return Section(KEY, TITLE, ("No data: no samples of a broker in this span.",))
    tables = [_share_table(inputs, requests), _stage_table(inputs, requests)] if requests else []
    tables += [_flush_table(inputs, flushes)] if flushes else []
    tables += [_muted_table(inputs, muted)] if muted else []
    tables += [_group_table(inputs, groups)] if groups else []
    over_time = collected(_stages_over_time(inputs.metrics, step)) if requests else []
    return Section(
        KEY, TITLE, _words(requests, muted, groups, listened), tuple(tables),
        (
            *_stage_plots(over_time, requests, axis),
            *_socket_plots(collected(_muted_over_time(inputs.metrics, step)), axis),
            *_group_plots(inputs, groups, axis),
        ),
    )  # fmt: skip


# -- asking


def _stages(metrics: DataFrame) -> DataFrame:
    """Of every kind of request and stage: how many rows and values, percentiles, all its time."""
    time_ms = F.aggregate(
        F.filter("buckets", lambda b: (b["count"] > 0) & (F.abs(b["le"]) < 1e12)), F.lit(0.0),
        lambda sum_, b: sum_ + b["le"] * b["count"].cast("double"),
    )  # fmt: skip
    by = ("broker_id", "request", "part")
    timed = metrics.where(TIMED).where(F.col("part").isin(list(STAGES)))
    sums = timed.groupBy(*by).agg(F.sum(time_ms).alias("time_ms"))
    alike = [F.col(f"a.{name}").eqNullSafe(F.col(f"b.{name}")) for name in by]
    found = percentiles.merged(timed, by, PERCENTS).where("total > 0")
    joined = found.alias("a").join(sums.alias("b"), alike).select("a.*", "b.time_ms")
    whole = F.sum("time_ms").over(Window.partitionBy("broker_id", "request"))
    longest = (F.desc("whole"), "broker_id", "request")  # so that no request lacks a stage
    return joined.withColumn("whole", whole).orderBy(*longest).limit(REQUESTS_MAX * len(STAGES))


def _stages_over_time(metrics: DataFrame, step: int) -> DataFrame:
    timed = metrics.where(TIMED).where(F.col("part").isin(list(STAGES)))
    drawn = timed.where(F.col("request").isin(list(DRAWN))).where("event_time_ms IS NOT NULL")
    points = drawn.select("broker_id", "request", "part", binned(step), "buckets")
    return percentiles.merged(points, ("broker_id", "request", "part", "at"), (99.0,))


def _flushes(metrics: DataFrame) -> DataFrame:
    found = percentiles.merged(metrics.where(FLUSHED), ("broker_id",), PERCENTS)
    return found.where("total > 0").orderBy(F.desc("total")).limit(ROWS_MAX)


def _muted(metrics: DataFrame) -> DataFrame:
    by = ("broker_id", "listener")
    muted = metrics.where(MUTED).withColumn("buckets", F.col("muted_waits_s"))
    most = muted.groupBy(*by).agg(
        F.max("muted_waiting").alias("most"), F.count(F.lit(1)).alias("samples")
    )
    alike = [F.col(f"a.{name}").eqNullSafe(F.col(f"b.{name}")) for name in by]
    waits = percentiles.merged(muted, by, PERCENTS)
    joined = most.alias("a").join(waits.alias("b"), alike)
    found = joined.select("a.*", "b.total", "b.p50", "b.p99")
    return found.orderBy(F.desc("p99"), "broker_id", "listener").limit(ROWS_MAX)


def _muted_over_time(metrics: DataFrame, step: int) -> DataFrame:
    timed = metrics.where(MUTED).where("event_time_ms IS NOT NULL")
    return timed.groupBy("broker_id", "listener", binned(step)).agg(
        F.max("muted_waiting").alias("waiting")
    )


def _groups(metrics: DataFrame) -> DataFrame:
    """The largest and the last lag of every group and topic."""
    found = metrics.where(LAGS).groupBy("broker_id", "consumer_group", "topic")
    return (
        found.agg(
            F.max("lag").alias("most"),
            F.max_by("event_time_ms", F.struct("lag", "event_time_ms")).alias("most_ms"),
            F.max_by("lag", "event_time_ms").alias("last"),
            F.max("event_time_ms").alias("last_ms"),
            F.count(F.lit(1)).alias("samples"),
        )
        .withColumn("all", F.expr("count(*) OVER ()"))
        .orderBy(F.desc("last"), F.desc("most"))
        .limit(GROUPS_MAX)
    )


def _groups_over_time(metrics: DataFrame, step: int, names: list[str]) -> DataFrame:
    timed = metrics.where(LAGS).where("event_time_ms IS NOT NULL")
    by = ("broker_id", "consumer_group", "topic")
    drawn = timed.where(F.coalesce("consumer_group", F.lit("")).isin(names))
    return drawn.groupBy(*by, binned(step)).agg(F.max("lag").alias("lag"))


def _by_request(rows: Iterable[Line]) -> list[dict[str, Line]]:
    """The stages of each kind of request, the one that took the most time first."""
    found: dict[tuple[Any, Any], dict[str, Line]] = {}
    for row in rows:
        found.setdefault((row["broker_id"], row["request"]), {})[row["part"]] = row
    return sorted(found.values(), key=_time_ms, reverse=True)[:REQUESTS_MAX]


def _time_ms(stages: dict[str, Line]) -> float:
    return sum(stage["time_ms"] or 0.0 for stage in stages.values())


# -- words and tables


def _words(
    requests: list[dict[str, Line]], muted: list[Line], groups: list[Line], listened: Listened
) -> tuple[str, ...]:
    said = [_longest(requests)] if requests else []
    said.append(
        "Remote is waiting for something else: records for a long poll, the controller; it is no"
        " work of the broker's."
    )
    waits = sum(row["total"] for row in muted)
    if waits:
        said.append(
            f"{number(waits)} times bytes waited in the socket of a connection that was muted:"
            " requests after one that was not answered yet. No stage has that time; it grows with"
            " requests in flight, and is shorter with the pipelined channel."
        )
    if late := [row for row in groups if _to_the_end(row, listened)]:
        many = "at least " if len(late) == GROUPS_MAX else ""
        said.append(
            f"With a lag to the end: {many}{len(late)} of {groups[0]['all']:,} groups by topic;"
            f" most {brief(late[0]['consumer_group'])} in {brief(late[0]['topic'])}, by"
            f" {number(late[0]['last'])} records."
        )
    return tuple(said)


def _longest(requests: list[dict[str, Line]]) -> str:
    """Of Produce, if there was any: a consumer's fetch mostly waits, by its own wish."""
    known = (one for name in DRAWN for one in requests if _request(one) == name)
    stages = next(known, requests[0])
    whole = _time_ms(stages) or math.nan
    shares = {name: (stages[part]["time_ms"] or 0.0) / whole for part, name in STAGES.items()
              if part in stages}  # fmt: skip
    most = sorted(shares.items(), key=lambda one: -one[1])[:3]
    broker = brief(next(iter(stages.values()))["broker_id"])
    largest = ", ".join(f"{name} {percent(share)}" for name, share in most)
    return f"{brief(_request(stages))} on broker {broker}: {largest} of its time."


def _request(stages: dict[str, Line]) -> str | None:
    found: str | None = next(iter(stages.values()))["request"]
    return found


def _to_the_end(group: Line, listened: Listened) -> bool:
    """A group with a lag is sampled in each slow round, so one that was not has caught up."""
    if not group["last"]:
        return False
    sampled = {one.broker_id: one.last_ms for one in listened.brokers}
    end_ms: int = sampled.get(group["broker_id"]) or group["last_ms"]
    return bool(group["last_ms"] >= end_ms - 2 * SELDOM * listened.every_ms)


def _request_cells(stages: dict[str, Line]) -> tuple[Cell, Cell]:
    any_stage = next(iter(stages.values()))
    return words(any_stage["broker_id"]), words(any_stage["request"])


def _rows(inputs: Inputs, stage: Line) -> Any:
    who = same({name: stage[name] for name in ("broker_id", "request", "part")})
    return inputs.rows("metrics", stage["blocks"], TIMED, who)


def _share_table(inputs: Inputs, requests: list[dict[str, Line]]) -> Table:
    made = []
    for stages in requests:
        whole = _time_ms(stages)
        cells = [*_request_cells(stages)]
        for part in STAGES:
            stage = stages.get(part)
            if stage is None or not whole:
                cells.append(words("-"))
                continue
            share = (stage["time_ms"] or 0.0) / whole
            cells.append(figure(share, _rows(inputs, stage), percent(share)))
        made.append(tuple(cells))
    return Table(
        "Share of a request's time", ("broker", "request", *STAGES.values()), tuple(made),
        "Of the time of all stages of all requests of that kind, those that took the most first.",
    )  # fmt: skip


def _stage_table(inputs: Inputs, requests: list[dict[str, Line]]) -> Table:
    made = []
    for stages in requests:
        cells = [*_request_cells(stages)]
        for part in STAGES:
            stage = stages.get(part)
            cells.append(
                words("-") if stage is None else figure(stage["p99"], _rows(inputs, stage))
            )
        made.append(tuple(cells))
    return Table(
        "p99 of each stage, ms", ("broker", "request", *STAGES.values()), tuple(made),
        "Those of different requests: they do not add up to the p99 of the whole.",
    )  # fmt: skip


def _flush_table(inputs: Inputs, flushes: list[Line]) -> Table:
    made = []
    for row in flushes:
        source = inputs.rows("metrics", row["blocks"], FLUSHED,
                             same({"broker_id": row["broker_id"]}))  # fmt: skip
        cells = (figure(row[name], source) for name in ("total", "p50", "p99"))
        made.append((words(row["broker_id"]), *cells))
    return Table(
        "Flushes", ("broker", "flushes", "p50, ms", "p99, ms"), tuple(made),
        "Bringing a log to the disk, per log: full segments, in the background. Flushes of a stop"
        " come after the last sample.",
    )  # fmt: skip


def _muted_table(inputs: Inputs, muted: list[Line]) -> Table:
    made = []
    for row in muted:
        who = same({"broker_id": row["broker_id"], "listener": row["listener"]})
        source = inputs.rows("metrics", row["samples"], MUTED, who)
        waits = (
            words("-") if row[name] is None else figure(row[name] * 1000, source)
            for name in ("p50", "p99")
        )
        made.append((
            words(row["broker_id"]), words(row["listener"]), figure(row["total"], source),
            *waits, figure(row["most"], source),
        ))  # fmt: skip
    return Table(
        "Muted sockets",
        ("broker", "listener", "waits", "p50, ms", "p99, ms", "connections waiting, most"),
        tuple(made),
        "How long bytes lay in the socket of a muted connection; the most is of single samples.",
    )


def _group_table(inputs: Inputs, groups: list[Line]) -> Table:
    made = []
    for row in groups:
        who = same({name: row[name] for name in ("broker_id", "consumer_group", "topic")})
        source = inputs.rows("metrics", row["samples"], LAGS, who)
        made.append((
            words(row["consumer_group"]), words(row["topic"]), words(row["broker_id"]),
            figure(row["last"], source), words(moment(row["last_ms"])),
            figure(row["most"], source), words(moment(row["most_ms"])),
        ))  # fmt: skip
    return Table(
        "Groups with a lag",
        ("group", "topic", "coordinator", "lag, last", "at", "lag, most", "most at"),
        tuple(made),
        "In records, all partitions of the topic together; a group without a lag, or one that was"
        f" deleted, has no samples. {GROUPS_MAX} at most, UTC.",
    )


# -- plots


def _stage_plots(rows: list[Line], requests: list[dict[str, Line]], axis: Axis) -> tuple[Plot, ...]:
    """Of the broker on which that kind of request took the most time."""
    found: list[Plot] = []
    for request in DRAWN:
        mine = (next(iter(stages.values())) for stages in requests)
        slowest = next((one["broker_id"] for one in mine if one["request"] == request), None)
        lines = []
        for part, name in STAGES.items():
            if part == "RemoteTimeMs" and request == "FetchConsumer":
                continue  # waiting for records
            who = {"broker_id": slowest, "request": request, "part": part}
            lines.append(_line(axis, name, rows, "p99", who))
        found += _plots(f"{request} by stage, p99, broker {brief(slowest)}", "ms", lines)
    return tuple(found)


def _socket_plots(rows: list[Line], axis: Axis) -> tuple[Plot, ...]:
    who = sorted({(row["broker_id"], row["listener"]) for row in rows}, key=str)[:LINES_MAX]
    lines = [
        _line(axis, f"broker {brief(broker)} {brief(listener)}", rows, "waiting",
              {"broker_id": broker, "listener": listener})
        for broker, listener in who
    ]  # fmt: skip
    return _plots("Muted connections with bytes waiting", "connections", lines)


def _group_plots(inputs: Inputs, groups: list[Line], axis: Axis) -> tuple[Plot, ...]:
    worst = sorted(groups, key=lambda row: row["most"], reverse=True)[:LINES_MAX]
    if not worst:
        return ()
    names = [one["consumer_group"] or "" for one in worst]  # of a thousand groups these
    rows = collected(_groups_over_time(inputs.metrics, axis.step, names))
    many = len({one["broker_id"] for one in worst}) > 1  # a group may have moved
    lines = [
        _line(axis, f"{brief(one['consumer_group'])} in {brief(one['topic'])}"
              + (f", broker {brief(one['broker_id'])}" if many else ""), rows, "lag",
              {name: one[name] for name in ("broker_id", "consumer_group", "topic")})
        for one in worst
    ]  # fmt: skip
    return _plots("Lag of groups", "records", lines)


def _line(
    axis: Axis, name: str, rows: list[Line], column: str, who: dict[str, Any]
) -> Series | None:
    """Of the rows that have these values."""
    mine = [row for row in rows if all(row[key] == value for key, value in who.items())]
    return axis.line(name, ((row["at"], finite(row[column])) for row in mine))


def _plots(title: str, y: str, lines: Iterable[Series | None]) -> tuple[Plot, ...]:
    made = plot(title, y, [one for one in lines if one is not None])
    return () if made is None else (made,)
