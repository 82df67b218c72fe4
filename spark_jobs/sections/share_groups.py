"""Share groups: what their members got and did with it, what was given up, which group holds most.

Counts are of the partitions' leaders, by broker, from the samples `ShareGroups`; a record counts
as often as it was handed out. What a group holds in a topic is what all leaders sampled of it, each
its own partitions (`ShareInFlight`): the figure is the most of one leader.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import functions as F

from spark_jobs.report_model import Plot, Section, Table
from spark_jobs.sections.cells import brief, figure, moment, number, same, words
from spark_jobs.sections.inputs import Inputs, collected
from spark_jobs.sections.silence import Listened
from spark_jobs.sections.timeline import Axis, Bin, over_time, plot, rate
from spark_jobs.sections.traffic import BROKERS_MAX, axis_of, binned

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

KEY: Final = "share-groups"
TITLE: Final = "Share groups"
COUNTED: Final = "ShareGroups"
SHOWN_MAX: Final = 20
TIMED: Final = "event_time_ms IS NOT NULL"
HELD: Final = f"metric_name = 'ShareInFlight' AND {TIMED}"
_SUMS: Final = ("share_acquired", "share_accepted", "share_released", "share_rejected",
                "share_locks_ended", "share_used_up", "interval_ms")  # fmt: skip
_MOST: Final = ("share_in_flight", "share_sessions", "share_partitions")


def section(inputs: Inputs, listened: Listened) -> Section:
    points = axis_of(inputs, listened)
    bins = collected(_bins(inputs.metrics, points.step))
    if not bins:
        return Section(KEY, TITLE, ("No data: no samples of share groups in this span.",))
    if not any(row[name] for row in bins for name in (*_SUMS[:-1], *_MOST)):
        return Section(KEY, TITLE, ("No share group read anything.",))
    held = collected(_held(inputs.metrics))
    brokers = sorted({row["broker_id"] for row in bins}, key=lambda one: (one is None, one))
    tables = [_broker_table(inputs, bins, brokers)]
    tables += [_held_table(inputs, held)] if held else []
    return Section(
        KEY, TITLE, _words(bins, held), tuple(tables),
        _plots(bins, brokers[:BROKERS_MAX], points),
    )  # fmt: skip


# -- asking


def _bins(metrics: DataFrame, step: int) -> DataFrame:
    sums = [F.expr(f"sum(double({name})) AS {name}") for name in _SUMS]
    most = [F.expr(f"max(double({name})) AS {name}") for name in _MOST]
    return (
        metrics.where(same({"metric_name": COUNTED}))
        .where(TIMED)
        .groupBy("broker_id", "metric_name", F.lit(None).cast("string").alias("entity"),
                 binned(step))
        .agg(*sums, *most, F.count(F.lit(1)).alias("samples"))
        .orderBy("at")
    )  # fmt: skip


def _held(metrics: DataFrame) -> DataFrame:
    most = F.col("share_in_flight").cast("double")
    return (
        metrics.where(HELD)
        .groupBy("share_group", "topic")
        .agg(
            F.max(most).alias("most"),
            F.max_by("event_time_ms", most).alias("at_ms"),
            F.count(F.lit(1)).alias("samples"),
        )
        .orderBy(F.desc("most"), "share_group", "topic")
        .limit(SHOWN_MAX)
    )


# -- what is said


def _sum(rows: list[Bin], name: str) -> float:
    return sum(row[name] or 0.0 for row in rows)


def _most(rows: list[Bin], name: str) -> float | None:
    return max((row[name] for row in rows if row[name] is not None), default=None)


def _words(bins: list[Bin], held: list[dict[str, Any]]) -> tuple[str, ...]:
    acquired, accepted, released, rejected, ended, used_up = (
        _sum(bins, name) for name in _SUMS[:-1]
    )
    said = [
        f"Members of share groups got {number(acquired)} records: {number(accepted)} were accepted,"
        f" {number(released)} released and {number(rejected)} rejected."
    ]
    if ended:
        said.append(f"{number(ended)} were not acknowledged before their lock ended.")
    if used_up:
        said.append(
            f"{number(used_up)} were given up, since they had been delivered as often as their"
            " group allows."
        )
    if held and held[0]["most"]:
        first = held[0]
        said.append(
            f"{brief(first['share_group'])} held most at once, {number(first['most'])} records of"
            f" {brief(first['topic'])}."
        )
    return tuple(said)


def _broker_table(inputs: Inputs, bins: list[Bin], brokers: list[Any]) -> Table:
    made = []
    for broker in brokers:
        mine = [row for row in bins if row["broker_id"] == broker]
        who = same({"metric_name": COUNTED, "broker_id": broker})
        source = inputs.rows("metrics", sum(row["samples"] for row in mine), who, TIMED)
        *counts, ended, used_up = (_sum(mine, name) for name in _SUMS[:-1])
        made.append((
            words(broker), *(figure(count, source) for count in counts),
            figure(ended, source, verdict="open" if ended else ""),
            figure(used_up, source, verdict="bad" if used_up else ""),
            *(figure(_most(mine, name), source) for name in _MOST),
        ))  # fmt: skip
    return Table(
        "Records of share groups, by their partitions' leaders",
        ("broker", "handed out", "accepted", "released", "rejected", "locks ended", "given up",
         "held at once, most", "sessions, most", "share-partitions, most"),
        tuple(made),
        "Handed out: each as often as it was. Given up: delivered as often as the group allows"
        " (group.share.delivery.count.limit).",
    )  # fmt: skip


def _held_table(inputs: Inputs, held: list[dict[str, Any]]) -> Table:
    made = []
    for row in held:
        who = same({name: row[name] for name in ("share_group", "topic")})
        source = inputs.rows("metrics", row["samples"], HELD, who)
        made.append((
            words(row["share_group"]), words(row["topic"]), figure(row["most"], source),
            words(moment(row["at_ms"])),
        ))  # fmt: skip
    return Table(
        "Groups that held most records at once",
        ("share group", "topic", "held at once, most", "when, UTC"),
        tuple(made),
        "Handed out and not done with, and those between them, at one broker."
        " group.share.partition.max.record.locks is the bound of each partition.",
    )


def _plots(bins: list[Bin], brokers: list[Any], axis: Axis) -> tuple[Plot, ...]:
    found = [
        plot("Records handed out to share groups", "a second",
             over_time(bins, brokers, COUNTED, rate("share_acquired"), "", axis)),
        plot("Records that share groups hold", "records",
             over_time(bins, brokers, COUNTED, lambda row: row["share_in_flight"], "", axis)),
    ]  # fmt: skip
    return tuple(one for one in found if one is not None)
