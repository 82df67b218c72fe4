"""Traffic and health over time: what each broker moved, and how it fared meanwhile.

The span is cut into bins (timeline.axis); one question to Spark gives every broker's sums, least
and most by bin and kind of sample, another the percentiles of the request histograms. A rate is the
sum of the growth over the sum of the samples' own intervals, so a bin with a missing sample does
not look like a pause; a bin without any is a gap in the line. Where a broker has several of a kind,
such as devices, each has bins of its own: intervals that run side by side do not add up.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import functions as F

from spark_jobs.report_model import Cell, Plot, Section, Series, Table
from spark_jobs.sections import percentiles
from spark_jobs.sections.cells import (
    brief,
    figure,
    number,
    percent,
    same,
    size,
    span,
    words,
)
from spark_jobs.sections.inputs import Inputs, collected
from spark_jobs.sections.silence import Listened
from spark_jobs.sections.timeline import (
    Axis,
    Bin,
    Value,
    axis,
    finite,
    of_bytes,
    over_time,
    per_s,
    plot,
    rate,
)

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

KEY: Final = "traffic"
TITLE: Final = "Traffic and health"
BROKERS_MAX: Final = 8  # drawn; the table has all
REQUESTS_MAX: Final = 40
KINDS: Final = ("BrokerTraffic", "Threads", "Replicas", "Process", "Disk", "Sampling")

# Of every bin: name, aggregate. Growth is added up, gauges give their worst.
_SUMS: Final = ("messages_in", "bytes_in", "bytes_out", "failed_produce_requests",
                "failed_fetch_requests", "cpu_s", "read_bytes", "written_bytes", "dropped",
                "interval_ms")  # fmt: skip
_LEAST: Final = ("network_idle", "handler_idle")
_MOST: Final = ("under_replicated", "request_queue_size", "connections", "resident_bytes",
                "memory_limit_bytes")  # fmt: skip


def section(inputs: Inputs, listened: Listened) -> Section:
    points = axis_of(inputs, listened)
    step = points.step
    bins = collected(_bins(inputs.metrics, step))
    if not bins:
        return Section(KEY, TITLE, (
            "No samples of a broker in this span: set metrics.topic.enable=true, and land"
            " __kbroker_metrics.",
        ))  # fmt: skip
    requests = collected(_requests(inputs.metrics))
    latencies = collected(_latencies(inputs.metrics, step))
    brokers = sorted({row["broker_id"] for row in bins}, key=lambda one: (one is None, one))
    drawn = brokers[:BROKERS_MAX]
    return Section(
        KEY, TITLE, _words(bins, brokers, step),
        (_broker_table(inputs, bins, brokers), _request_table(inputs, requests)),
        _plots(bins, latencies, drawn, points),
    )  # fmt: skip


def axis_of(inputs: Inputs, listened: Listened) -> Axis:
    """Of plots over the span."""
    return axis(inputs.since_ms, listened.from_ms, inputs.until_ms, listened.every_ms)


def binned(step: int) -> Column:
    """The begin of the point that a sample belongs to, as `at`."""
    return F.expr(f"bigint(floor(event_time_ms / {step}) * {step}) AS at")


def _bins(metrics: DataFrame, step: int) -> DataFrame:
    sums = [F.expr(f"sum(double({name})) AS {name}") for name in _SUMS]
    least = [F.expr(f"min({name}) AS {name}") for name in _LEAST]
    most = [F.expr(f"max({name}) AS {name}") for name in _MOST]
    return (
        metrics.where(F.col("metric_name").isin(list(KINDS)))
        .where("event_time_ms IS NOT NULL")
        .groupBy("broker_id", "metric_name", F.col("device").alias("entity"), binned(step))
        .agg(*sums, *least, *most, F.count(F.lit(1)).alias("samples"))
        .orderBy("at")
    )


def _timed(metrics: DataFrame) -> DataFrame:
    return metrics.where("metric_name = 'RequestTime' AND size(buckets) > 0")


def _requests(metrics: DataFrame) -> DataFrame:
    """Percentiles of the whole span, by kind of request: its time in all."""
    frame = _timed(metrics).where("part = 'TotalTimeMs'")
    found = percentiles.merged(frame, ("broker_id", "request"))
    return found.where("total > 0").orderBy(F.desc("total")).limit(REQUESTS_MAX)


def _latencies(metrics: DataFrame, step: int) -> DataFrame:
    """p99 of Produce over time."""
    frame = _timed(metrics).where("part = 'TotalTimeMs' AND request = 'Produce'")
    points = frame.select("broker_id", binned(step), "buckets").where("at IS NOT NULL")
    return percentiles.merged(points, ("broker_id", "at"), (50.0, 99.0)).orderBy("at")


def _words(bins: list[Bin], brokers: list[Any], step: int) -> tuple[str, ...]:
    traffic = [row for row in bins if row["metric_name"] == "BrokerTraffic"]
    messages = sum(row["messages_in"] or 0 for row in traffic)
    taken = sum(row["bytes_in"] or 0 for row in traffic)
    given = sum(row["bytes_out"] or 0 for row in traffic)
    lost = sum(row["dropped"] or 0 for row in bins)
    said = [
        f"{len(brokers)} broker{'s' if len(brokers) != 1 else ''} took {number(messages)} messages"
        f" ({size(taken)}) and gave {size(given)} to consumers. A point of the plots is"
        f" {span(step)}.",
    ]
    if lost:
        said.append(
            f"{number(lost)} samples were given up because the topic could not take them: the"
            " figures are too low."
        )
    return tuple(said)


# -- tables


@dataclass(frozen=True)
class _Column:
    """A column of the brokers' table: of which samples, and how their bins become one number."""

    name: str
    metric: str
    of: Callable[[list[Bin]], float | None]
    text: Callable[[float | None], str]
    bad: Callable[[float], bool] = lambda value: False


def _rate(name: str) -> Callable[[list[Bin]], float | None]:
    return lambda rows: per_s(rows, name)


def _worst(name: str, pick: Callable[..., float]) -> Callable[[list[Bin]], float | None]:
    return lambda rows: pick((row[name] for row in rows if row[name] is not None), default=None)


def _memory(rows: list[Bin]) -> float | None:
    shares = [
        row["resident_bytes"] / row["memory_limit_bytes"]
        for row in rows
        if row["resident_bytes"] is not None and row["memory_limit_bytes"]
    ]
    return max(shares, default=None)


def _bytes_per_s(value: float | None) -> str:
    return "-" if value is None else f"{size(value)}/s"


_COLUMNS: Final = (
    _Column("messages/s", "BrokerTraffic", _rate("messages_in"), number),
    _Column("in", "BrokerTraffic", _rate("bytes_in"), _bytes_per_s),
    _Column("out", "BrokerTraffic", _rate("bytes_out"), _bytes_per_s),
    _Column("network idle, least", "Threads", _worst("network_idle", min), percent,
            lambda value: value < 0.2),
    _Column("handlers idle, least", "Threads", _worst("handler_idle", min), percent,
            lambda value: value < 0.2),
    _Column("request queue, most", "Threads", _worst("request_queue_size", max), number),
    _Column("connections, most", "Threads", _worst("connections", max), number),
    _Column("under-replicated, most", "Replicas", _worst("under_replicated", max), number,
            lambda value: value > 0),
    _Column("memory of its limit, most", "Process", _memory, percent, lambda value: value > 0.7),
    _Column("CPU, cores", "Process", _rate("cpu_s"), number),
)  # fmt: skip


def _broker_table(inputs: Inputs, bins: list[Bin], brokers: list[Any]) -> Table:
    made = []
    for broker in brokers:
        cells: list[Cell] = [words(broker)]
        for column in _COLUMNS:
            mine = [
                row for row in bins
                if (row["broker_id"], row["metric_name"]) == (broker, column.metric)
            ]  # fmt: skip
            who = same({"metric_name": column.metric, "broker_id": broker})
            source = inputs.rows(
                "metrics", sum(row["samples"] for row in mine), who, "event_time_ms IS NOT NULL"
            )
            value = column.of(mine) if mine else None
            if value is None:
                cells.append(words("-"))
                continue
            bad = column.bad(value)
            cells.append(figure(value, source, column.text(value), "bad" if bad else ""))
        made.append(tuple(cells))
    return Table(
        "By broker", ("broker", *(column.name for column in _COLUMNS)), tuple(made),
        "Rates are means of the span; least and most are of single samples. Marked: what the"
        " documented alerts call too little or too much, if only for one sample.",
    )  # fmt: skip


def _request_table(inputs: Inputs, requests: list[dict[str, Any]]) -> Table:
    made = []
    for row in requests:
        who = same({"broker_id": row["broker_id"], "request": row["request"]})
        source = inputs.rows(
            "metrics", row["blocks"],
            "metric_name = 'RequestTime' AND size(buckets) > 0 AND part = 'TotalTimeMs'", who,
        )  # fmt: skip
        made.append((
            words(row["broker_id"]), words(row["request"]), figure(row["total"], source),
            *(figure(row[percentiles.name_of(p)], source) for p in percentiles.PERCENTS),
        ))  # fmt: skip
    return Table(
        "Requests",
        ("broker", "request", "requests", "p50, ms", "p95, ms", "p99, ms", "p99.9, ms"),
        tuple(made),
        "TotalTimeMs as the broker sees it, waiting for records included; the bound of the bucket"
        " that holds the percentile, of all samples' merged histograms.",
    )


# -- plots


def _plots(
    bins: list[Bin], latencies: list[Bin], brokers: list[Any], axis: Axis
) -> tuple[Plot, ...]:
    def lines(metric: str, value: Value, name: str = "") -> list[Series]:
        return over_time(bins, brokers, metric, value, name, axis)

    def share(column: str) -> Value:
        return lambda row: None if row[column] is None else row[column] * 100

    found = [
        plot("Messages", "messages/s", lines("BrokerTraffic", rate("messages_in"))),
        of_bytes("Bytes", "/s", [
            *lines("BrokerTraffic", rate("bytes_in"), "in"),
            *lines("BrokerTraffic", rate("bytes_out"), "out"),
        ]),
        plot("Idle threads", "%", [
            *lines("Threads", share("network_idle"), "network"),
            *lines("Threads", share("handler_idle"), "handlers"),
        ], 20.0),
        plot("Produce requests", "ms", _latency_series(latencies, brokers, axis)),
        plot("Processor time", "cores", lines("Process", rate("cpu_s"))),
        of_bytes("Resident memory", "", lines("Process", lambda row: row["resident_bytes"])),
        of_bytes("Disks, each device", "/s", [
            *lines("Disk", rate("read_bytes"), "read"),
            *lines("Disk", rate("written_bytes"), "written"),
        ]),
        plot("Under-replicated partitions", "partitions",
             lines("Replicas", lambda row: row["under_replicated"])),
    ]  # fmt: skip
    return tuple(one for one in found if one is not None)


def _latency_series(latencies: list[Bin], brokers: list[Any], axis: Axis) -> list[Series]:
    found = []
    for broker in brokers:
        mine = [row for row in latencies if row["broker_id"] == broker]
        for name in ("p50", "p99"):
            points = ((row["at"], finite(row[name])) for row in mine)
            found.append(axis.line(f"broker {brief(broker)} {name}", points))
    return [one for one in found if one is not None]
