"""Alerts that would have fired: every rule evaluated over the samples, with from, to and the worst.

Each signal becomes rows (broker_id, entity, at_ms, value), all rules are put beside them, and one
pass of windows finds the stretches in which a rule held without a break: a sample for which it does
not hold ends the stretch, and so does silence of STALE_MS (Prometheus forgets a series after five
minutes). A stretch as long as the rule's duration is an alert. Signals of request times are p99s of
one-minute histograms, merged from the samples: the scrape's summary forgets over a minute too.

All of it is one question to Spark; what comes back are the stretches. Silence is measured until
the topics were last read (silence.py), so a broker that died is down although it has no sample; a
rule without samples says so instead of "never".
"""

from __future__ import annotations

from functools import reduce
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import Window
from pyspark.sql import functions as F

from kbroker.metrics.alerts import Disk
from spark_jobs.report_model import Cell, Finding, Section, Table
from spark_jobs.sections import percentiles
from spark_jobs.sections.alert_rules import (
    LAG_GROWS_MS,
    NOT_IN_SAMPLES,
    Rule,
    documented,
    for_ms,
    rules,
)
from spark_jobs.sections.cells import (
    both,
    brief,
    figure,
    literal,
    moment,
    number,
    percent,
    same,
    size,
    span,
    words,
)
from spark_jobs.sections.forecast import TICK_MS, ticks
from spark_jobs.sections.inputs import Inputs, collected
from spark_jobs.sections.silence import SILENT_MS, Listened
from spark_jobs.sections.timeline import SELDOM

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

KEY: Final = "alerts"
TITLE: Final = "Alerts that would have fired"
STALE_MS: Final = 5 * 60_000
MINUTE_MS: Final = 60_000
SHOWN_MAX: Final = 200
# As the rule adds them: what a fetch takes without its waiting for records.
FETCH_PARTS: Final = ("RequestQueueTimeMs", "LocalTimeMs", "ResponseQueueTimeMs",
                      "ResponseSendTimeMs")  # fmt: skip

# By signal: the metric's name, the entity's column, the value, and which samples have one.
GROUP: Final = "concat_ws(' in ', consumer_group, topic)"
_PLAIN: Final[dict[str, tuple[str, str, str, str]]] = {
    "under_replicated": (
        "Replicas", "", "CAST(under_replicated AS DOUBLE)", "under_replicated IS NOT NULL",
    ),
    "under_min_isr": (
        "Replicas", "", "CAST(under_min_isr AS DOUBLE)", "under_min_isr IS NOT NULL",
    ),
    "offline_partitions": (
        "Controller", "", "CAST(offline_partitions AS DOUBLE)", "offline_partitions IS NOT NULL",
    ),
    "handler_idle": ("Threads", "", "handler_idle", "handler_idle IS NOT NULL"),
    "network_idle": ("Threads", "", "network_idle", "network_idle IS NOT NULL"),
    "memory_share": (
        "Process", "", "try_divide(resident_bytes, memory_limit_bytes)",
        "resident_bytes IS NOT NULL AND memory_limit_bytes <> 0",
    ),
    "free_share": (
        "LogDirectory", "directory", "try_divide(free_bytes, total_bytes)",
        "free_bytes IS NOT NULL AND total_bytes <> 0",
    ),
    "disk_rate": (
        "Disk", "device",
        "try_divide((CAST(read_bytes AS DOUBLE) + written_bytes) * 1000, interval_ms)",
        "read_bytes IS NOT NULL AND written_bytes IS NOT NULL AND interval_ms <> 0",
    ),
    "stable_age": ("Transactions", "", "stable_age_s", "stable_age_s IS NOT NULL"),
    "hanging_aborted": (
        "Transactions", "", "CAST(hanging_aborted AS DOUBLE)", "hanging_aborted IS NOT NULL",
    ),
    "group_unread": (
        "GroupLag", GROUP, "CASE WHEN members = 0 THEN CAST(lag AS DOUBLE) ELSE 0.0 END",
        "lag IS NOT NULL AND members IS NOT NULL",
    ),
}  # fmt: skip
_WHERE: Final[dict[str, str]] = {
    **{
        signal: both(same({"metric_name": name}), given)
        for signal, (name, _, _, given) in _PLAIN.items()
    },
    "produce_p99": "metric_name = 'RequestTime' AND request = 'Produce'"
    " AND part = 'TotalTimeMs' AND size(buckets) > 0",
    "fetch_p99": "metric_name = 'RequestTime' AND request = 'FetchConsumer' AND part IN ("
    + ", ".join(f"'{part}'" for part in FETCH_PARTS)
    + ") AND size(buckets) > 0",
    "forecast": "metric_name = 'LogDirectory' AND log_bytes IS NOT NULL",
    "silence": same({"metric_name": "Threads"}),
    "group_lag": "metric_name = 'GroupLag' AND lag IS NOT NULL",
}
# The sentence for a rule that holds, and where to look; {} is the worst value.
_TOLD: Final[dict[str, tuple[str, str]]] = {
    "under_replicated": ("{} under-replicated partitions",
                         "the brokers that follow: their logs, Brokers with samples"),
    "under_min_isr": ("{} partitions refuse acks=all",
                      "the brokers that follow: their logs, Brokers with samples"),
    "offline_partitions": ("{} partitions have no leader", "Several brokers; its log"),
    "handler_idle": ("request handlers were idle {} of the time",
                     "Traffic and health: request times; Hot partitions"),
    "network_idle": ("network threads were idle {} of the time",
                     "Traffic and health: connections, bytes out"),
    "memory_share": ("{} of the memory limit is used", "Traffic and health: resident memory"),
    "free_share": ("{} of the file system is free", "When the disks are full"),
    "disk_rate": ("a device moves {}", "Traffic and health: disks"),
    "produce_p99": ("99 % of produce requests take up to {}", "Traffic and health: requests"),
    "fetch_p99": ("99 % of fetch requests take up to {}", "Traffic and health: requests"),
    "stable_age": ("a transaction has held consumers of committed records for {}",
                   "Transactions; kbroker explain TOPIC/PARTITION --isolation read_committed"),
    "hanging_aborted": ("{} hanging transactions were ended", "Transactions; its log"),
    "group_lag": ("a lag of more than {} records, and it grows",
                  "its consumers; Where the time goes: groups"),
    "group_unread": ("no member, and up to {} records to read",
                     "its consumers; Where the time goes: groups"),
}  # fmt: skip
# Of which samples a signal is: the metric's name, and the kind of request.
_ASKED: Final[dict[str, tuple[str, str | None]]] = {
    **{signal: (name, None) for signal, (name, *_) in _PLAIN.items()},
    "produce_p99": ("RequestTime", "Produce"),
    "fetch_p99": ("RequestTime", "FetchConsumer"),
    "forecast": ("LogDirectory", None),
    # Taken as often; of groups without a lag there is none.
    **dict.fromkeys(("group_lag", "group_unread"), ("Sampling", None)),
}
# Signals whose rows stand for all samples of so long; the others have a row for each sample.
_BIN_MS: Final = {"produce_p99": MINUTE_MS, "fetch_p99": MINUTE_MS, "forecast": TICK_MS}
_ENTITY: Final[dict[str, str]] = {
    **{signal: column for signal, (_, column, _, _) in _PLAIN.items() if column},
    "forecast": "directory",
    "group_lag": GROUP,
}


def section(inputs: Inputs, listened: Listened, disk: Disk = "ssd") -> Section:
    asked = rules(disk)
    fired = collected(
        _fired(signals(inputs, listened), asked, listened.every_ms).limit(SHOWN_MAX + 1)
    )
    more, fired = len(fired) > SHOWN_MAX, sorted(fired[:SHOWN_MAX], key=_begin)
    return Section(
        KEY, TITLE, _words(fired, more, asked, listened),
        (_fired_table(inputs, fired, asked), _rule_table(fired, asked, disk, listened)),
        findings=_still_firing(fired, asked, listened),
    )  # fmt: skip


def _begin(row: dict[str, Any]) -> tuple[Any, ...]:
    broker = row["broker_id"]
    return row["from_ms"], row["rule"], broker is not None, broker or 0, row["entity"] or ""


# -- evaluation


def signals(inputs: Inputs, listened: Listened) -> DataFrame:
    """Every signal's rows: signal, broker_id, entity, at_ms, value, samples (how many it is of)."""
    metrics = inputs.metrics
    forecast = _forecast(inputs.of_a_day, inputs.since_ms)
    parts = (_plain(metrics), _request_p99(metrics), forecast, _group_lag(metrics),
             _silence(metrics, listened))  # fmt: skip
    return reduce(lambda one, other: one.unionByName(other), parts)


def _plain(metrics: DataFrame) -> DataFrame:
    """All signals that a sample tells by itself, in one pass."""
    given = ", ".join(
        f"named_struct('signal', '{signal}', 'entity', {column or literal('')},"
        f" 'value', CASE WHEN metric_name = '{name}' THEN CAST({value} AS DOUBLE) END)"
        for signal, (name, column, value, _) in _PLAIN.items()
    )
    names = sorted({name for name, *_ in _PLAIN.values()})
    return (
        metrics.where(F.col("metric_name").isin(names))
        .select(
            "broker_id", F.col("event_time_ms").alias("at_ms"), F.expr(f"inline(array({given}))")
        )
        .where("value IS NOT NULL AND NOT isnan(value) AND at_ms IS NOT NULL")
        .withColumn("samples", F.lit(1).cast("long"))
    )


def _request_p99(metrics: DataFrame) -> DataFrame:
    """p99 of each minute's merged histogram; of a fetch, the sum of its parts' p99s."""
    minute = _binned(MINUTE_MS)
    signal = F.when(F.col("request") == "Produce", "produce_p99").otherwise("fetch_p99")
    frame = metrics.where(f"({_WHERE['produce_p99']}) OR ({_WHERE['fetch_p99']})").select(
        signal.alias("signal"), "broker_id", "part", minute.alias("at_ms"), "buckets"
    )
    by = ("signal", "broker_id", "part", "at_ms")
    each = percentiles.merged(frame, by, (99.0,)).where("p99 IS NOT NULL AND at_ms IS NOT NULL")
    return (
        each.groupBy("signal", "broker_id", "at_ms")
        .agg(F.sum("p99").alias("value"), F.sum("blocks").alias("samples"))
        .select("signal", "broker_id", F.lit("").alias("entity"), "at_ms", "value", "samples")
    )


def _group_lag(metrics: DataFrame) -> DataFrame:
    """The least lag of the 15 minutes before, where it grew over them; otherwise 0."""
    own = Window.partitionBy("broker_id", "consumer_group", "topic").orderBy("event_time_ms")
    before = own.rangeBetween(-LAG_GROWS_MS, 0)
    grew = F.col("lag") > F.first("lag").over(before)
    least = F.min("lag").over(before).cast("double")
    ticks_ = metrics.where(_WHERE["group_lag"]).where("event_time_ms IS NOT NULL")
    return ticks_.select(
        F.lit("group_lag").alias("signal"), "broker_id", F.expr(GROUP).alias("entity"),
        F.col("event_time_ms").alias("at_ms"), F.when(grew, least).otherwise(0.0).alias("value"),
        F.lit(1).cast("long").alias("samples"),
    )  # fmt: skip


def _binned(size_ms: int) -> Column:
    return (F.floor(F.col("event_time_ms") / size_ms) * size_ms).cast("long")


def _forecast(metrics: DataFrame, since_ms: int) -> DataFrame:
    """The day before may begin before the span; what is judged are ticks with samples of it."""
    return (
        ticks(metrics, since_ms)
        .select(
            F.lit("forecast").alias("signal"), "broker_id", F.col("directory").alias("entity"),
            "at_ms", F.col("hours").alias("value"), "samples",
        )
        .where("samples > 0")
    )  # fmt: skip


def _silence(metrics: DataFrame, listened: Listened) -> DataFrame:
    """Minutes to the broker's next sample, or to when the topics were last read.

    A broker without any sample of the span is silent from its begin.
    """
    own = Window.partitionBy("broker_id").orderBy("event_time_ms")
    ticks = metrics.where(_WHERE["silence"]).where("event_time_ms IS NOT NULL")
    at = F.col("event_time_ms")
    read = F.greatest(F.lit(listened.read_ms), at)
    following = F.coalesce(F.lead(at).over(own), read)
    # A broker that samples more seldom than the rule waits is not silent in between.
    usual = [one.broker_id for one in listened.brokers if one.silent_after_ms > SILENT_MS]
    short = F.col("broker_id").isin(usual) & (following - at <= 3 * listened.every_ms)
    sampled = ticks.select(
        "broker_id", at.alias("at_ms"),
        F.when(short, 0.0).otherwise((following - at) / MINUTE_MS).alias("value"),
        F.lit(1).cast("long").alias("samples"),
    )  # fmt: skip
    missed = [
        (one.broker_id, listened.from_ms, (listened.read_ms - listened.from_ms) / MINUTE_MS, 0)
        for one in listened.brokers
        if one.newest_ms is None and listened.read_ms > listened.from_ms
    ]
    if missed:
        sampled = sampled.union(metrics.sparkSession.createDataFrame(missed, sampled.schema))
    return sampled.select(
        F.lit("silence").alias("signal"), "broker_id", F.lit("").alias("entity"), "at_ms", "value",
        "samples",
    )  # fmt: skip


def _fired(given: DataFrame, asked: tuple[Rule, ...], every_ms: int) -> DataFrame:
    """Stretches as long as their rule's duration: rule, broker_id, entity, from, to, worst.

    Those that ended last come first: of very many, those that still hold are not left out.
    """
    own = documented()
    table = given.sparkSession.createDataFrame(
        [(r.name, r.signal, r.than == "<", float(r.threshold), for_ms(own[r.name].for_))
         for r in asked],
        "rule string, signal string, below boolean, threshold double, for_ms long",
    )  # fmt: skip
    holds = F.when(F.col("below"), F.col("value") < F.col("threshold")).otherwise(
        F.col("value") > F.col("threshold")
    )
    whole = Window.partitionBy("rule", "broker_id", "entity")
    series = whole.orderBy("at_ms")
    beside = given.join(F.broadcast(table), "signal").withColumn("holds", holds)
    beside = beside.withColumn("newest_ms", F.max("at_ms").over(whole))
    broken = (
        F.lag("at_ms").over(series).isNull()
        | (F.col("at_ms") - F.lag("at_ms").over(series) > max(STALE_MS, 3 * SELDOM * every_ms))
        | (F.lag("holds").over(series) != F.col("holds"))
    )
    stretches = (
        beside.withColumn("starts", F.when(broken, 1).otherwise(0))
        .withColumn("stretch", F.sum("starts").over(series))
        .where("holds")
        .groupBy("rule", "signal", "broker_id", "entity", "stretch", "below", "for_ms")
        .agg(
            F.min("at_ms").alias("from_ms"),
            F.max("at_ms").alias("last_ms"),
            F.max("newest_ms").alias("newest_ms"),
            F.min("value").alias("lowest"),
            F.max("value").alias("highest"),
            F.sum("samples").alias("samples"),
        )
        .withColumn("to_ms", _ends())
        .where("to_ms - from_ms >= for_ms")
        .withColumn("worst", F.when(F.col("below"), F.col("lowest")).otherwise(F.col("highest")))
    )  # fmt: skip
    return stretches.orderBy(F.desc("to_ms"), "rule", "broker_id", "entity")


def _ends() -> Column:
    """When a stretch was over: silence lasts as long as its value says, a bin its length."""
    signal, last = F.col("signal"), F.col("last_ms")
    silent = (F.col("highest") * MINUTE_MS).cast("long")
    ends = F.when(signal == "silence", last + silent)
    for name, size_ms in _BIN_MS.items():
        ends = ends.when(signal == name, last + size_ms)
    return ends.otherwise(last)


# -- what is said


def _words(
    fired: list[dict[str, Any]], more: bool, asked: tuple[Rule, ...], listened: Listened
) -> tuple[str, ...]:
    known = sum(_has_samples(rule, listened) for rule in asked)
    if fired:
        names = sorted({row["rule"] for row in fired})
        count = f"more than {SHOWN_MAX}" if more else str(len(fired))
        alerts = "alert" if len(fired) == 1 else "alerts"
        of = "1 rule" if len(names) == 1 else f"{len(names)} rules"
        first = f"{count} {alerts} of {of}: {', '.join(names)}."
    elif not known:
        first = f"No data: none of {len(asked)} rules has samples to judge by."
    else:
        first = f"None of {known} rules would have fired."
    said = [first]
    if known and (without := len(asked) - known):
        said.append(f"No data for {without} rules of {len(asked)}.")
    said.append(
        "The rules are those of `kbroker generate alert-rules`, put to the samples: the condition"
        " held in every sample from the first to the last, for at least the rule's duration."
    )
    return tuple(said)


def _has_samples(rule: Rule, listened: Listened) -> bool:
    """Whether there is anything that the rule could have been held against."""
    if rule.signal == "silence":  # of one that was sampled before the span, only if it was read
        sampled = any(one.newest_ms is not None for one in listened.brokers)
        return sampled or (bool(listened.brokers) and listened.read_ms > listened.from_ms)
    return listened.has(*_ASKED[rule.signal])


def _still_firing(
    fired: list[dict[str, Any]], asked: tuple[Rule, ...], listened: Listened
) -> tuple[Finding, ...]:
    """Rules that held up to the last samples; silence and full disks are alarms elsewhere.

    Of several rules about one thing the first in `fired`, which has held for the longest.
    """
    by_name = {rule.name: rule for rule in asked}
    last = {one.broker_id: one.last_ms for one in listened.brokers}
    seldom_ms = max(MINUTE_MS, 2 * SELDOM * listened.every_ms)  # one of these may be late
    found: dict[tuple[Any, ...], Finding] = {}
    for row in fired:
        ends = last.get(row["broker_id"], listened.read_ms)
        if row["signal"] not in _TOLD or row["last_ms"] < row["newest_ms"]:
            continue
        if row["to_ms"] < ends - seldom_ms:
            continue
        given, look = _TOLD[row["signal"]]
        worst = _shown(row["worst"], by_name[row["rule"]].unit)
        of = f", {brief(row['entity'])}" if row["entity"] else ""
        what = f"broker {brief(row['broker_id'])}{of}: {given.format(worst)} ({row['rule']})"
        place = (row["signal"], row["broker_id"], row["entity"])
        found.setdefault(place, Finding(what, row["from_ms"], look, "warning"))
    return tuple(found.values())


def _shown(value: float, unit: str) -> str:
    if unit == "share":
        return percent(value)
    if unit == "B/s":
        return f"{size(value)}/s"
    return f"{number(value)} {unit}".strip()


def _fired_table(inputs: Inputs, fired: list[dict[str, Any]], asked: tuple[Rule, ...]) -> Table:
    by_name, own = {rule.name: rule for rule in asked}, documented()
    return Table(
        "What fired",
        ("rule", "severity", "broker", "of", "from, UTC", "to, UTC", "lasted", "worst"),
        tuple(
            _fired_row(inputs, row, by_name[row["rule"]], own[row["rule"]].severity)
            for row in fired
        ),
    )


def _fired_row(inputs: Inputs, row: dict[str, Any], rule: Rule, severity: str) -> tuple[Cell, ...]:
    who: dict[str, Any] = {"broker_id": row["broker_id"]}
    if column := _ENTITY.get(row["signal"]):
        who[column] = row["entity"]
    last = row["last_ms"] + max(0, _BIN_MS.get(row["signal"], 0) - 1)
    when = f"event_time_ms BETWEEN {row['from_ms']} AND {last}"
    source = inputs.rows("metrics", row["samples"], _WHERE[row["signal"]], same(who), when)
    return (
        words(row["rule"], "bad"), words(severity), words(row["broker_id"]),
        words(brief(row["entity"]) or "-"), words(moment(row["from_ms"])),
        words(moment(row["to_ms"])), words(span(row["to_ms"] - row["from_ms"])),
        figure(row["worst"], source, _shown(row["worst"], rule.unit), "bad"),
    )  # fmt: skip


def _rule_table(
    fired: list[dict[str, Any]], asked: tuple[Rule, ...], disk: Disk, listened: Listened
) -> Table:
    rows = []
    by_name = {rule.name: rule for rule in asked}
    for name, alert in documented(disk).items():
        rule = by_name.get(name)
        if rule is None:
            rows.append((words(name), words("-"), words(alert.for_), words("not evaluated", "open"),
                         words(NOT_IN_SAMPLES[name])))  # fmt: skip
            continue
        times = sum(row["rule"] == name for row in fired)
        condition = f"{rule.signal} {rule.than} {_shown(rule.threshold, rule.unit)}"
        rows.append((
            words(name), words(condition), words(alert.for_),
            _times(times, _has_samples(rule, listened)), words(rule.note),
        ))  # fmt: skip
    return Table("All rules", ("rule", "condition", "for", "fired", "note"), tuple(rows))


def _times(times: int, known: bool) -> Cell:
    if times:
        return words(f"{times} x", "bad")
    return words("never", "good") if known else words("no data", "open")
