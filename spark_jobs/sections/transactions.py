"""Transactions: how many were aborted, and whose; which were open for long; what consumers of
committed records waited for.

Outcomes are counted by coordinators, by broker and by transactional id. What held a partition's
last stable offset is seen by its leader, which knows a producer id; whose that is the coordinator
says, in samples of its own (`OpenTransaction`), so a holder has a name only if it was open at its
coordinator, too. One that no coordinator has hangs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import functions as F

from spark_jobs.report_model import Cell, Plot, Section, Table
from spark_jobs.sections.cells import (
    brief,
    figure,
    moment,
    number,
    percent,
    same,
    span,
    words,
)
from spark_jobs.sections.inputs import Inputs, collected
from spark_jobs.sections.silence import Listened
from spark_jobs.sections.timeline import Axis, Bin, over_time, plot, rate
from spark_jobs.sections.traffic import BROKERS_MAX, axis_of, binned

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

KEY: Final = "transactions"
TITLE: Final = "Transactions"
OUTCOMES: Final = "Transactions"
SHOWN_MAX: Final = 20
TIMED: Final = "event_time_ms IS NOT NULL"
ABORTED: Final = "metric_name = 'AbortedTransactions'"
HELD: Final = f"metric_name = 'LastStableOffset' AND {TIMED}"
OPEN: Final = f"metric_name = 'OpenTransaction' AND {TIMED}"
_SUMS: Final = ("transactions_committed", "transactions_aborted", "transactions_timed_out",
                "hanging_aborted", "interval_ms")  # fmt: skip
_MOST: Final = ("stable_age_s", "stable_lag", "late_partitions")

Line = dict[str, Any]


def section(inputs: Inputs, listened: Listened) -> Section:
    points = axis_of(inputs, listened)
    bins = collected(_bins(inputs.metrics, points.step))
    if not bins:
        return Section(KEY, TITLE, ("No data: no samples of transactions in this span.",))
    held = collected(_held(inputs.metrics))
    producers = sorted({row["producer_id"] for row in held if row["producer_id"] is not None})
    opened = collected(_open(inputs.metrics, producers))
    # Of several ids that had a producer id one after the other, the last sampled counts.
    by_age = sorted(opened, key=lambda one: one["last_ms"])
    by_producer = {row["producer_id"]: row for row in by_age}
    longest = opened[:SHOWN_MAX]
    aborted = collected(_aborted(inputs.metrics)) if _sum(bins, "transactions_aborted") else []
    brokers = sorted({row["broker_id"] for row in bins}, key=lambda one: (one is None, one))
    tables = [_outcome_table(inputs, bins, brokers)]
    tables += [_aborted_table(inputs, aborted)] if aborted else []
    tables += [_open_table(inputs, longest)] if longest else []
    tables += [_held_table(inputs, held, by_producer)] if held else []
    return Section(
        KEY, TITLE, _words(bins, aborted, longest, held, by_producer), tuple(tables),
        _plots(bins, brokers[:BROKERS_MAX], points),
    )  # fmt: skip


# -- asking


def _bins(metrics: DataFrame, step: int) -> DataFrame:
    sums = [F.expr(f"sum(double({name})) AS {name}") for name in _SUMS]
    most = [F.expr(f"max(double({name})) AS {name}") for name in _MOST]
    return (
        metrics.where(same({"metric_name": OUTCOMES}))
        .where(TIMED)
        .groupBy("broker_id", "metric_name", F.lit(None).cast("string").alias("entity"),
                 binned(step))
        .agg(*sums, *most, F.count(F.lit(1)).alias("samples"))
        .orderBy("at")
    )  # fmt: skip


def _aborted(metrics: DataFrame) -> DataFrame:
    """By transactional id, whose coordinator may have moved; the client is the last one known."""
    known = F.expr("if(client_host IS NULL, NULL, event_time_ms)")
    return (
        metrics.where(ABORTED)
        .groupBy("transactional_id")
        .agg(
            F.expr("sum(double(transactions_aborted)) AS aborted"),
            F.expr("sum(double(transactions_timed_out)) AS timed_out"),
            F.max_by(F.struct("client_id", "client_host"), known).alias("client"),
            F.max("event_time_ms").alias("last_ms"),
            F.count(F.lit(1)).alias("samples"),
        )
        .withColumn("ids", F.expr("count(*) OVER ()"))
        .orderBy(F.desc("aborted"), "transactional_id")
        .limit(SHOWN_MAX)
    )


def _held(metrics: DataFrame) -> DataFrame:
    return (
        metrics.where(HELD)
        .groupBy("topic", "partition", "producer_id")
        .agg(
            F.max("open_s").alias("open_s"),
            F.max(F.col("waiting_records").cast("double")).alias("waiting"),
            F.max("event_time_ms").alias("last_ms"),
            F.count(F.lit(1)).alias("samples"),
        )
        .withColumn("holds", F.expr("count(*) OVER ()"))
        .orderBy(F.desc("open_s"), "topic", "partition", "producer_id")
        .limit(SHOWN_MAX)
    )


def _open(metrics: DataFrame, producers: list[int]) -> DataFrame:
    """What coordinators last said: of those open for longest, and of these producers."""
    said = F.struct("transaction_state", "client_id", "client_host", "transaction_partitions")
    rank = F.expr("row_number() OVER (ORDER BY open_s DESC, transactional_id, producer_id)")
    return (
        metrics.where(OPEN)
        .groupBy("transactional_id", "producer_id")
        .agg(
            F.max("open_s").alias("open_s"),
            F.max("event_time_ms").alias("last_ms"),
            F.max_by(said, "event_time_ms").alias("said"),
            F.count(F.lit(1)).alias("samples"),
        )
        .withColumn("rank", rank)
        .where((F.col("rank") <= SHOWN_MAX) | F.col("producer_id").isin(producers))
        .orderBy("rank")
        .select("transactional_id", "producer_id", "open_s", "last_ms", "samples", "said.*")
    )


# -- what is said


def _sum(rows: list[Line], name: str) -> float:
    return sum(row[name] or 0.0 for row in rows)


def _words(
    bins: list[Bin],
    aborted: list[Line],
    opened: list[Line],
    held: list[Line],
    names: dict[int, Line],
) -> tuple[str, ...]:
    committed, abandoned = _sum(bins, "transactions_committed"), _sum(bins, "transactions_aborted")
    if committed or abandoned:
        share = percent(abandoned / (committed + abandoned))
        late = _sum(bins, "transactions_timed_out")
        said = [
            f"{number(committed)} transactions were committed and {number(abandoned)} aborted"
            f" ({share}), {number(late)} of them because they were open for too long."
        ]
    else:
        said = ["No transaction ended."]
    if aborted:
        most = aborted[0]
        said.append(
            f"Of {most['ids']:,} transactional ids with aborted ones"
            f" {brief(most['transactional_id'])} has most: {number(most['aborted'])}."
        )
    if opened:
        first = opened[0]
        said.append(
            f"{brief(first['transactional_id'])} had one open for longest:"
            f" {span(1000 * (first['open_s'] or 0))}."
        )
    if held:
        longest = held[0]
        said.append(
            f"Consumers of committed records waited longest in {brief(longest['topic'])}-"
            f"{longest['partition']}: {span(1000 * (longest['open_s'] or 0))}, for"
            f" {_whose(longest, names)}."
        )
    if hanging := _sum(bins, "hanging_aborted"):
        said.append(f"Hanging transactions that leaders ended: {number(hanging)}.")
    return tuple(said)


def _whose(row: Line, names: dict[int, Line]) -> str:
    known = names.get(row["producer_id"])
    if known is None:
        return f"producer id {row['producer_id']}, which no coordinator named"
    return brief(known["transactional_id"])


def _outcome_table(inputs: Inputs, bins: list[Bin], brokers: list[Any]) -> Table:
    made = []
    for broker in brokers:
        mine = [row for row in bins if row["broker_id"] == broker]
        who = same({"metric_name": OUTCOMES, "broker_id": broker})
        source = inputs.rows("metrics", sum(row["samples"] for row in mine), who, TIMED)
        committed, aborted, late, hanging = (_sum(mine, name) for name in _SUMS[:4])
        ended = committed + aborted
        share = aborted / ended if ended else None
        age_s, lag, _ = (
            max((row[name] for row in mine if row[name] is not None), default=None)
            for name in _MOST
        )
        cells: list[Cell] = [
            words(broker), figure(committed, source), figure(aborted, source),
            words("-") if share is None else figure(share, source, percent(share)),
            figure(late, source, verdict="open" if late else ""),
            figure(hanging, source, verdict="bad" if hanging else ""),
            words("-") if age_s is None else figure(age_s, source, span(1000 * age_s)),
            words("-") if lag is None else figure(lag, source),
        ]  # fmt: skip
        made.append(tuple(cells))
    return Table(
        "Outcomes, and what they held",
        ("broker", "committed", "aborted", "of all", "timed out", "hanging, ended", "held longest",
         "records waiting, most"),
        tuple(made),
        "Outcomes are counted by the coordinator of the transactional id, the rest by leaders of"
        " partitions. Aborted: by its producer, by the id's next producer, or timed out.",
    )  # fmt: skip


def _aborted_table(inputs: Inputs, aborted: list[Line]) -> Table:
    made = []
    for row in aborted:
        name = row["transactional_id"]
        source = inputs.rows("metrics", row["samples"], ABORTED, same({"transactional_id": name}))
        client = row["client"] or {"client_id": None, "client_host": None}
        made.append((
            words(name), figure(row["aborted"], source),
            figure(row["timed_out"], source, verdict="open" if row["timed_out"] else ""),
            words(client["client_id"]), words(client["client_host"]), words(moment(row["last_ms"])),
        ))  # fmt: skip
    return Table(
        "Transactional ids with most aborted transactions",
        ("transactional id", "aborted", "timed out", "client id", "address", "last sampled, UTC"),
        tuple(made),
        "The client is the last one that its coordinator knew; it knows none after its start.",
    )


def _open_table(inputs: Inputs, opened: list[Line]) -> Table:
    made = []
    for row in opened:
        who = {name: row[name] for name in ("transactional_id", "producer_id")}
        source = inputs.rows("metrics", row["samples"], OPEN, same(who))
        made.append((
            words(row["transactional_id"]), words(row["producer_id"]), words(row["client_id"]),
            words(row["client_host"]), words(row["transaction_state"]),
            words(row["transaction_partitions"]),
            figure(row["open_s"], source, span(1000 * (row["open_s"] or 0))),
            words(moment(row["last_ms"])),
        ))  # fmt: skip
    return Table(
        "Transactions that were open for longest",
        ("transactional id", "producer id", "client id", "address", "state", "partitions",
         "open for, most", "last sampled, UTC"),
        tuple(made),
        "For ten seconds and more, by their coordinators. State, partitions and client are as last"
        " sampled.",
    )  # fmt: skip


def _held_table(inputs: Inputs, held: list[Line], names: dict[int, Line]) -> Table:
    made = []
    for row in held:
        who = {name: row[name] for name in ("topic", "partition", "producer_id")}
        source = inputs.rows("metrics", row["samples"], HELD, same(who))
        known = names.get(row["producer_id"], {})
        said = [known.get(name) for name in
                ("transactional_id", "client_id", "client_host", "transaction_state")]  # fmt: skip
        made.append((
            words(row["topic"]), words(row["partition"]), words(row["producer_id"]),
            *(words(one) for one in said),
            figure(row["open_s"], source, span(1000 * (row["open_s"] or 0))),
            figure(row["waiting"], source), words(moment(row["last_ms"])),
        ))  # fmt: skip
    return Table(
        "What consumers of committed records waited for",
        ("topic", "partition", "producer id", "transactional id", "client id", "address", "state",
         "open for, most", "records waiting, most", "until, UTC"),
        tuple(made),
        "Transactions that held a partition's last stable offset for ten seconds and more, as its"
        " leader saw them. One without a transactional id hangs, or ended before its coordinator"
        " was sampled.",
    )  # fmt: skip


def _plots(bins: list[Bin], brokers: list[Any], axis: Axis) -> tuple[Plot, ...]:
    found = [
        plot("Aborted transactions", "a second",
             over_time(bins, brokers, OUTCOMES, rate("transactions_aborted"), "", axis)),
        plot("Last stable offset held for", "s",
             over_time(bins, brokers, OUTCOMES, lambda row: row["stable_age_s"], "", axis)),
    ]  # fmt: skip
    return tuple(one for one in found if one is not None)
