"""Inside the brokers: requests that failed, what held the interpreter's lock, how large logs are.

Counts and bytes are growth and add up; pauses and waits are histograms, merged before a percentile
is taken. The generations of the collector run beside each other, so each has lines of its own. A
partition's size is the one that was sampled last: a partition that does not change is sampled every
tenth minute, so a short span may lack it; one that was not sampled for longer, while its broker
sampled others, is not there any more.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import Window
from pyspark.sql import functions as F

from kbroker.metrics.samples import UNCHANGED_ROUNDS_MAX
from spark_jobs.report_model import Cell, Plot, Section, Series, Table, Verdict
from spark_jobs.sections import percentiles
from spark_jobs.sections.cells import brief, figure, moment, number, percent, same, size, words
from spark_jobs.sections.inputs import Inputs, collected
from spark_jobs.sections.silence import Listened
from spark_jobs.sections.timeline import SELDOM, Axis, finite, of_bytes, over_time, plot, rate
from spark_jobs.sections.traffic import axis_of, binned

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

KEY: Final = "inside"
TITLE: Final = "Errors, pauses and sizes"
LARGEST: Final = 10
BROKERS_MAX: Final = 8  # drawn; the tables have all
FAILED_MARKED: Final = 0.01  # of the requests: worth a look at their senders
PERCENTS: Final = (50.0, 99.0, 99.9)
SUMS: Final = (
    "produce_requests", "failed_produce_requests", "fetch_requests", "failed_fetch_requests",
    "replica_fetcher_bytes", "collections", "interval_ms",
)  # fmt: skip
COUNTED: Final = ("BrokerTraffic", "Replicas", "GarbageCollection")
HELD: Final = {"GarbageCollection": "pauses_s", "GilWait": "waits_s"}
LOG: Final = "metric_name = 'PartitionLog' AND size_bytes IS NOT NULL AND event_time_ms IS NOT NULL"
TIMED: Final = "event_time_ms IS NOT NULL"

Line = dict[str, Any]


def section(inputs: Inputs, listened: Listened) -> Section:
    axis = axis_of(inputs, listened)
    step = axis.step
    bins = collected(_bins(inputs.metrics, step))
    by = ("broker_id", "metric_name", "generation")
    held = collected(percentiles.merged(_held(inputs.metrics), by, PERCENTS))
    whole_ms = 2 * UNCHANGED_ROUNDS_MAX * SELDOM * listened.every_ms  # rounds may come late
    largest = collected(_largest(inputs.metrics, whole_ms))
    if not (bins or held or largest):
        return Section(KEY, TITLE, ("No data: no samples of a broker in this span.",))
    brokers = sorted({row["broker_id"] for row in bins}, key=lambda one: (one is None, one))
    tables = [_failed_table(inputs, bins, brokers)] if brokers else []
    held = sorted((row for row in held if row["total"] > 0), key=_order)
    tables += [_held_table(inputs, held)] if held else []
    tables += [_largest_table(inputs, largest)] if largest else []
    times = collected(_held_over_time(inputs.metrics, step))
    return Section(
        KEY, TITLE, _words(bins, held, largest), tuple(tables),
        _plots(bins, times, largest, brokers[:BROKERS_MAX], axis),
    )  # fmt: skip


# -- asking


def _bins(metrics: DataFrame, step: int) -> DataFrame:
    return (
        metrics.where(F.col("metric_name").isin(list(COUNTED)))
        .where(TIMED)
        .groupBy(
            "broker_id",
            "metric_name",
            F.concat(F.lit("generation "), "generation").alias("entity"),
            binned(step),
        )
        .agg(
            *(F.expr(f"sum(double({name})) AS {name}") for name in SUMS),
            F.count(F.lit(1)).alias("samples"),
        )
        .orderBy("at")
    )


def _held(metrics: DataFrame) -> DataFrame:
    """Histograms of holds of the lock, and of waits for it; durations in s."""
    return (
        metrics.where(F.col("metric_name").isin(list(HELD)))
        .where(TIMED)
        .withColumn("buckets", F.coalesce(*HELD.values()))
    )


def _held_over_time(metrics: DataFrame, step: int) -> DataFrame:
    frame = _held(metrics).select("broker_id", "metric_name", binned(step), "buckets")
    by = ("broker_id", "metric_name", "at")
    return percentiles.merged(frame, by, (99.0,)).orderBy("at")


def _largest(metrics: DataFrame, whole_ms: int) -> DataFrame:
    """Partitions by the size that was sampled last, and all that there are.

    Each is sampled at least once in `whole_ms`.
    """
    newest = F.struct("event_time_ms", "source_offset")
    each = (
        metrics.where(LOG)
        .groupBy("broker_id", "topic", "partition", "directory")
        .agg(
            F.max_by(F.col("size_bytes").cast("double"), newest).alias("size"),
            F.min_by(F.col("size_bytes").cast("double"), newest).alias("size_then"),
            F.max_by(
                F.col("log_end_offset").cast("double") - F.col("log_start_offset"), newest
            ).alias("records"),
            F.max("event_time_ms").alias("at"),
            F.count(F.lit(1)).alias("samples"),
        )
    )
    everything = F.expr("sum(size) OVER ()")
    newest_of_broker = F.max("at").over(Window.partitionBy("broker_id"))
    there = each.withColumn("newest", newest_of_broker).where(f"at >= newest - {whole_ms}")
    return (
        there.withColumns({"all": everything, "count": F.expr("count(*) OVER ()")})
        .orderBy(F.desc("size"), "topic", "partition", "broker_id", "directory")
        .limit(LARGEST)
    )


# -- what is said


_HOLD: Final = {
    "GarbageCollection": "A garbage collection held the interpreter's lock",
    "GilWait": "A request handler waited for the interpreter's lock",
}


def _words(bins: list[Line], held: list[Line], largest: list[Line]) -> tuple[str, ...]:
    asked = _sum(bins, "produce_requests") + _sum(bins, "fetch_requests")
    failed = _sum(bins, "failed_produce_requests") + _sum(bins, "failed_fetch_requests")
    if failed:
        first = (
            f"{number(failed)} of {number(asked)} partitions that were produced to or fetched were"
            f" answered with an error ({percent(_share(failed, asked))})."
        )
    elif asked:
        first = f"None of {number(asked)} partitions that were produced to or fetched failed."
    elif any(row["metric_name"] == "BrokerTraffic" for row in bins):
        first = "Nothing was produced or fetched."
    else:
        first = "No data of requests."
    said = [first]
    for metric, what in _HOLD.items():
        worst = [row["p99"] for row in held if row["metric_name"] == metric]
        if worst:
            said.append(f"{what} up to {_ms(max(worst))} ms in 99 of 100 cases, where most.")
    if largest:
        most = largest[0]
        said.append(f"The largest of {most['count']:,} partitions is {_name(most)} with"
                    f" {size(most['size'])}.")  # fmt: skip
    return tuple(said)


def _sum(rows: list[Line], name: str) -> float:
    return sum(row[name] or 0.0 for row in rows)


def _share(part: float, whole: float) -> float | None:
    return part / whole if whole > 0 else None


def _ms(seconds: float | None) -> str:
    return number(None if seconds is None else seconds * 1000)


def _name(row: Line) -> str:
    return f"{brief(row['topic'])}-{row['partition']}"


# -- tables


def _failed_table(inputs: Inputs, bins: list[Line], brokers: list[Any]) -> Table:
    made = []
    for broker in brokers:
        cells: list[Cell] = [words(broker)]
        of = {metric: [row for row in bins if (row["broker_id"], row["metric_name"]) ==
                       (broker, metric)] for metric in COUNTED}  # fmt: skip
        source = {
            metric: inputs.rows("metrics", sum(row["samples"] for row in its),
                                same({"metric_name": metric, "broker_id": broker}), TIMED)
            for metric, its in of.items()
        }  # fmt: skip
        traffic, rows = of["BrokerTraffic"], source["BrokerTraffic"]
        for kind in ("produce", "fetch"):
            failed, asked = (
                _sum(traffic, f"failed_{kind}_requests"),
                _sum(traffic, f"{kind}_requests"),
            )
            share = _share(failed, asked)
            if not traffic:
                cells += [words("-"), words("-")]
                continue
            cells += [figure(failed, rows), figure(share, rows, percent(share), _of(failed, share))]
        followed, replicas = of["Replicas"], source["Replicas"]
        if not followed:
            made.append((*cells, words("-"), words("-")))
            continue
        fetched = _sum(followed, "replica_fetcher_bytes")
        per_s = _share(fetched * 1000, _sum(followed, "interval_ms"))
        speed = "-" if per_s is None else f"{size(per_s)}/s"
        cells += [figure(fetched, replicas, size(fetched)), figure(per_s, replicas, speed)]
        made.append(tuple(cells))
    return Table(
        "Failed requests, and what followers fetched",
        ("broker", "produce, failed", "of all produced", "fetch, failed", "of all fetched",
         "fetched from leaders", "a second"),
        tuple(made),
        "By partition: one request has several. Fetched from leaders: what this broker read as a"
        " follower; 0 where there is one broker.",
    )  # fmt: skip


def _of(failed: float, share: float | None) -> Verdict:
    if not failed:
        return ""
    return "bad" if share is None or share >= FAILED_MARKED else "open"


def _order(row: Line) -> tuple[Any, ...]:
    broker = row["broker_id"]
    return row["metric_name"], broker is None, broker or 0, row["generation"] or ""


def _held_table(inputs: Inputs, held: list[Line]) -> Table:
    made = []
    for row in held:
        who = {name: row[name] for name in ("metric_name", "broker_id", "generation")}
        source = inputs.rows("metrics", row["blocks"], same(who), TIMED)
        what = "waits for the interpreter's lock"
        if row["metric_name"] == "GarbageCollection":
            what = f"garbage collections, generation {brief(row['generation'])}"
        made.append((
            words(what), words(row["broker_id"]), figure(row["total"], source),
            *(figure(None if (value := row[percentiles.name_of(p)]) is None else value * 1000,
                     source, _ms(value)) for p in PERCENTS),
        ))  # fmt: skip
    return Table(
        "What held the interpreter's lock, and who waited",
        ("what", "broker", "times", "p50, ms", "p99, ms", "p99.9, ms"), tuple(made),
        "The bound of the bucket that holds the percentile, of all samples' merged histograms.",
    )  # fmt: skip


def _largest_table(inputs: Inputs, largest: list[Line]) -> Table:
    made = []
    for row in largest:
        who = {name: row[name] for name in ("broker_id", "topic", "partition", "directory")}
        source = inputs.rows("metrics", row["samples"], LOG, same(who))
        share = _share(row["size"], row["all"])
        grown = row["size"] - row["size_then"]
        made.append((
            words(row["topic"]), words(row["partition"]), words(row["broker_id"]),
            words(row["directory"]), figure(row["size"], source, size(row["size"])),
            figure(share, source, percent(share)), figure(grown, source, size(grown)),
            figure(row["records"], source), words(moment(row["at"])),
        ))  # fmt: skip
    return Table(
        f"The {LARGEST} largest partitions",
        ("topic", "partition", "broker", "directory", "size", "share of all", "grew in the span",
         "offsets", "as of, UTC"),
        tuple(made),
        "A partition that does not change is sampled every tenth minute; those that are gone are"
        " left out.",
    )  # fmt: skip


# -- plots


def _plots(
    bins: list[Line], times: list[Line], largest: list[Line], brokers: list[Any], axis: Axis
) -> tuple[Plot, ...]:
    def lines(metric: str, column: str, name: str = "") -> list[Series]:
        return over_time(bins, brokers, metric, rate(column), name, axis)

    pauses = []
    for broker in brokers:
        for metric, name in (("GarbageCollection", "collections"), ("GilWait", "waits")):
            mine = [row for row in times
                    if (row["broker_id"], row["metric_name"]) == (broker, metric)]  # fmt: skip
            points = ((row["at"], _plain_ms(row["p99"])) for row in mine)
            pauses.append(axis.line(f"broker {brief(broker)} {name}", points))
    found = [
        plot("Failed requests", "partitions/s", [
            *lines("BrokerTraffic", "failed_produce_requests", "produce"),
            *lines("BrokerTraffic", "failed_fetch_requests", "fetch"),
        ]),
        plot("Interpreter's lock, p99", "ms",
             [one for one in pauses if one is not None]),
        plot("Garbage collections by generation", "collections/s",
             lines("GarbageCollection", "collections")),
        of_bytes("Fetched from leaders", "/s", lines("Replicas", "replica_fetcher_bytes")),
    ]  # fmt: skip
    plots = [one for one in found if one is not None]
    if largest:
        names = tuple(f"{_name(row)}, broker {brief(row['broker_id'])}" for row in largest)
        sizes = Series("MB", names, tuple(row["size"] / 1e6 for row in largest))
        plots.append(Plot("Largest partitions", "bars", "partition", "MB", (sizes,)))
    return tuple(plots)


def _plain_ms(seconds: float | None) -> float | None:
    return None if (value := finite(seconds)) is None else value * 1000
