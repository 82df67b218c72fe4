"""Several brokers: what they copied from each other, the lag of replicas, the leaders.

By broker and over time, of the kinds `Replicas` and `Controller`. Copying is a rate over the
samples' own intervals, the lag is the most of a bin; when a broker will have caught up is its own
estimate (`kbroker_replica_catch_up_seconds`), and is left out where nothing came. A figure of
the controller alone is 0 of the others, so the cluster's is the most of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import functions as F

from spark_jobs.report_model import Cell, Plot, Section, Table
from spark_jobs.sections.cells import figure, number, same, size, span, words
from spark_jobs.sections.inputs import Inputs, collected
from spark_jobs.sections.silence import Listened
from spark_jobs.sections.timeline import Axis, Bin, Value, of_bytes, over_time, per_s, plot, rate
from spark_jobs.sections.traffic import BROKERS_MAX, axis_of, binned

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame

KEY: Final = "replication"
TITLE: Final = "Several brokers"
REPLICAS: Final = "Replicas"
CONTROLLER: Final = "Controller"
_SUMS: Final = ("replica_fetcher_bytes", "replication_bytes_out", "isr_shrinks", "isr_expands",
                "leader_elections", "unclean_elections", "interval_ms")  # fmt: skip
_MOST: Final = ("under_replicated", "under_min_isr", "replica_lag", "replica_lag_bytes",
                "catch_up_s", "active_controller", "offline_partitions", "leader_count",
                "controller_queue")  # fmt: skip
_RATES: Final = {
    "from leaders": "replica_fetcher_bytes",
    "to followers": "replication_bytes_out",
}
# Title, kind, field, whether it is added up, its format, whether anything is too much.
_COLUMNS: Final[tuple[tuple[str, str, str, bool, Callable[[float | None], str], bool], ...]] = (
    ("leads, most", REPLICAS, "leader_count", False, number, False),
    ("under-replicated, most", REPLICAS, "under_replicated", False, number, True),
    ("under min ISR, most", REPLICAS, "under_min_isr", False, number, True),
    ("lag in records, most", REPLICAS, "replica_lag", False, number, False),
    ("lag in bytes, most", REPLICAS, "replica_lag_bytes", False, size, False),
    ("to catch up, longest", REPLICAS, "catch_up_s", False,
     lambda seconds: span(1000 * (seconds or 0)), False),
    ("left in-sync sets", REPLICAS, "isr_shrinks", True, number, False),
    ("joined in-sync sets", REPLICAS, "isr_expands", True, number, False),
    ("offline partitions, most", CONTROLLER, "offline_partitions", False, number, True),
    ("leaders elected", CONTROLLER, "leader_elections", True, number, False),
    ("unclean", CONTROLLER, "unclean_elections", True, number, True),
)  # fmt: skip


def section(inputs: Inputs, listened: Listened) -> Section:
    points = axis_of(inputs, listened)
    bins = collected(_bins(inputs.metrics, points.step))
    brokers = sorted({row["broker_id"] for row in bins}, key=lambda one: (one is None, one))
    if len(brokers) < 2:
        return Section(KEY, TITLE, ("Samples of one broker at most: nothing is replicated.",))
    return Section(
        KEY, TITLE, _words(bins, brokers), (_table(inputs, bins, brokers),),
        _plots(bins, brokers[:BROKERS_MAX], points),
    )  # fmt: skip


def _bins(metrics: DataFrame, step: int) -> DataFrame:
    sums = [F.expr(f"sum(double({name})) AS {name}") for name in _SUMS]
    most = [F.expr(f"max(double({name})) AS {name}") for name in _MOST]
    return (
        metrics.where(F.col("metric_name").isin([REPLICAS, CONTROLLER]))
        .where("event_time_ms IS NOT NULL")
        .groupBy("broker_id", "metric_name", F.lit(None).cast("string").alias("entity"),
                 binned(step))
        .agg(*sums, *most, F.count(F.lit(1)).alias("samples"))
        .orderBy("at")
    )  # fmt: skip


def _told(bins: list[Bin], name: str) -> list[float]:
    return [row[name] for row in bins if row[name] is not None]


def _words(bins: list[Bin], brokers: list[Any]) -> tuple[str, ...]:
    copied, elected, unclean = (
        sum(_told(bins, name))
        for name in ("replica_fetcher_bytes", "leader_elections", "unclean_elections")
    )
    said = [
        f"{len(brokers)} brokers copied {size(copied)} from each other; {number(elected)}"
        f" partitions got another leader, {number(unclean)} of them one who may lack records.",
    ]
    offline = max(_told(bins, "offline_partitions"), default=0)
    if offline:
        said.append(f"Up to {number(offline)} partitions had no leader.")
    holders = {row["broker_id"] for row in bins if row["active_controller"]}
    if holders:
        named = ", ".join(str(one) for one in brokers if one in holders)
        said.append(f"Controller: broker {named}{', in turn' if len(holders) > 1 else ''}.")
    return tuple(said)


def _table(inputs: Inputs, bins: list[Bin], brokers: list[Any]) -> Table:
    made = []
    for broker in brokers:
        mine = [row for row in bins if row["broker_id"] == broker]
        cells: list[Cell] = [words(broker)]
        for field in _RATES.values():
            speed = per_s([row for row in mine if row["metric_name"] == REPLICAS], field)
            label = "-" if speed is None else f"{size(speed)}/s"
            cells.append(_cell(inputs, mine, broker, REPLICAS, speed, label))
        for _, kind, field, added, text, bad in _COLUMNS:
            values = _told([row for row in mine if row["metric_name"] == kind], field)
            value = (sum(values) if added else max(values)) if values else None
            label = "-" if value is None else text(value)
            cells.append(_cell(inputs, mine, broker, kind, value, label, bad=bad))
        made.append(tuple(cells))
    return Table(
        "By broker and its replicas",
        ("broker", *_RATES, *(column[0] for column in _COLUMNS)),
        tuple(made),
        "Rates are means of the span. Lag: what replicas lacked up to their leaders' high"
        " watermarks; to catch up: that over the rate at which it came, as if no records were"
        " added. Offline partitions and elections are those of the broker that was the controller.",
    )


def _cell(
    inputs: Inputs, mine: list[Bin], broker: Any, kind: str, value: float | None, label: str,
    *, bad: bool = False,
) -> Cell:  # fmt: skip
    if value is None:
        return words("-")
    count = sum(row["samples"] for row in mine if row["metric_name"] == kind)
    who = same({"metric_name": kind, "broker_id": broker})
    source = inputs.rows("metrics", count, who, "event_time_ms IS NOT NULL")
    return figure(value, source, label, "bad" if bad and value > 0 else "")


def _field(name: str) -> Value:
    return lambda row: row[name]


def _plots(bins: list[Bin], brokers: list[Any], axis: Axis) -> tuple[Plot, ...]:
    found = [
        of_bytes("Copied from leaders", "/s",
                 over_time(bins, brokers, REPLICAS, rate("replica_fetcher_bytes"), "", axis)),
        of_bytes("Lag of replicas", "",
                 over_time(bins, brokers, REPLICAS, _field("replica_lag_bytes"), "", axis)),
        plot("Until they have caught up", "s",
             over_time(bins, brokers, REPLICAS, _field("catch_up_s"), "", axis)),
        plot("Partitions led", "partitions",
             over_time(bins, brokers, REPLICAS, _field("leader_count"), "", axis)),
    ]  # fmt: skip
    return tuple(one for one in found if one is not None)
