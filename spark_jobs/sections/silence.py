"""Which brokers have samples, and until when: without this no other section knows whether it says
anything.

Silence has three causes and the samples alone cannot tell them apart, so what landed is asked too:

    read      the last moment up to which it is known that the samples' topic was read: the begin
              of a batch that landed or that the streaming job reported, or of this report's own
              landing. Reports of other topics count only where the job has none of this
    lagging   nothing has landed for STALE_MS before the report's end, or no samples for twice as
              long: whatever happened since is not known, which is said of all brokers together
    silent    a broker has no sample for SILENT_MS before the topics were last read, or for three
              of its own intervals (metrics.topic.interval.ms) where those are longer

Brokers are those of the span and those that the hourly roll-ups had in the LOOKBACK_MS before: one
that died a day ago is missed by today's report, too. A broker that was taken away is forgotten
after as long. Samples know a broker by its id alone: where two runs of one id lie side by side,
either two brokers have it, of which one may die unseen, or a clock was set back.

`listen` asks Spark, once for a report; all else here is plain Python over what came back.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import Window
from pyspark.sql import functions as F

from kbroker.metrics import samples
from spark_jobs.report_model import Cell, Finding, Section, Table
from spark_jobs.sections.cells import DAY_MS, HOUR_MS, brief, figure, moment, same, span, words
from spark_jobs.sections.inputs import Inputs, collected

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

KEY: Final = "silence"
TITLE: Final = "Brokers with samples"
SILENT_MS: Final = 3 * 60_000  # as the rule KbrokerDown waits
LOOKBACK_MS: Final = 7 * DAY_MS
EVERY_MS: Final = samples.OFTEN_S * 1000  # by default; each broker's own is in its samples
EVERY_MS_MAX: Final = 3_600_000  # as long as the setting may be
NAMED_MAX: Final = 8  # brokers in one line
QUERIES_MAX: Final = 100
# Sampled in every round, whatever happens.
OFTEN: Final = ("BrokerTraffic", "Threads", "Replicas")
# Of these kinds of request a rule asks, so it is known whether there were any.
ASKED_REQUESTS: Final = ("Produce", "FetchConsumer")

LOOK_AT_BROKER: Final = (
    "the broker (/readyz, its log) and its sampling (metrics.topic.enable); the clocks, if both"
    " are well"
)
LOOK_AT_LANDING: Final = (
    "the streaming job (its service or cron's mail), then whether brokers run and sample"
    " (metrics.topic.enable)"
)


@dataclass(frozen=True)
class Sampled:
    """A broker: its newest sample of the span, or else the end of the last hour that had some."""

    broker_id: int | None
    newest_ms: int | None
    before_ms: int | None = None
    samples: int = 0
    starts: int = 0
    every_ms: int = EVERY_MS  # how often it samples
    twice: bool = False  # samples of two of its runs lie side by side

    @property
    def silent_after_ms(self) -> int:
        return max(SILENT_MS, 3 * self.every_ms)

    @property
    def last_ms(self) -> int:
        """When it sampled for the last time."""
        return max(self.newest_ms or 0, self.before_ms or 0)

    @property
    def name(self) -> str:
        return f"broker {brief(self.broker_id)}"


@dataclass(frozen=True)
class Listened:
    """What `listen` found; `kinds`: metric names and kinds of request that there are samples of.

    `from_ms`: since when there are samples, the span's begin if there were some before.
    `read_ms`: until when the samples' topic was read, 0 if never; `landed_ms`: when anything
    landed last. `lag_records`: of the samples, when the job spoke of them last. `ended`: the
    queries that ended with an error, when, and which.
    """

    until_ms: int
    stale_ms: int
    from_ms: int = 0
    brokers: tuple[Sampled, ...] = ()
    kinds: frozenset[tuple[str, str | None]] = frozenset()
    read_ms: int = 0
    landed_ms: int = 0
    lag_records: int = 0
    ended: tuple[tuple[str, int, str], ...] = ()
    measured: bool = False
    trouble: str = ""  # why this report could not read the topics itself

    @property
    def lagging(self) -> bool:
        """Where samples come seldom, nothing may have been there to land.

        A job that lands once tells of that by its next run, hence twice as long for samples alone.
        """
        allowed_ms = max(self.stale_ms, 2 * self.every_ms)
        return self.stopped or self.until_ms - self.read_ms > 2 * allowed_ms

    @property
    def stopped(self) -> bool:
        """Nothing lands any more, of any topic."""
        alive_ms = max(self.read_ms, self.landed_ms)
        return self.until_ms - alive_ms > max(self.stale_ms, 2 * self.every_ms)

    @property
    def every_ms(self) -> int:
        """Of the broker that samples most seldom."""
        return max((one.every_ms for one in self.brokers), default=EVERY_MS)

    @property
    def silent(self) -> tuple[Sampled, ...]:
        """Brokers without a sample although the topics were read."""
        return tuple(
            one for one in self.brokers if self.read_ms - one.last_ms > one.silent_after_ms
        )

    def has(self, metric_name: str, request: str | None = None) -> bool:
        return (metric_name, request) in self.kinds


# -- asking


def listen(inputs: Inputs) -> Listened:
    sampled = collected(_sampled(inputs.metrics))
    before = collected(_before(inputs))
    brokers = _brokers(sampled, before, inputs.since_ms)
    earlier = any(row["hour"] + HOUR_MS <= inputs.since_ms for row in before)
    first = min((row["first"] for row in sampled), default=inputs.since_ms)
    reports = collected(_reports(inputs.progress))
    results = inputs.results.agg(F.unix_millis(F.max("landed_at")).alias("landed")).collect()[0]
    landed = [row["landed"] for row in (*sampled, *reports)] + [results["landed"], inputs.read_ms]
    of_samples = [row for row in reports if row["topic"] == samples.TOPIC]
    newest = max(of_samples, key=lambda row: row["at"], default=None)
    read = [row["landed"] for row in sampled] + [inputs.read_ms]
    read += landed if newest is None else []
    read += [row["read"] for row in of_samples or reports]
    known_ms = max((one.before_ms or 0 for one in brokers), default=0)
    return Listened(
        inputs.until_ms, inputs.stale_ms, inputs.since_ms if earlier else first, brokers,
        kinds=frozenset((row["metric_name"], row["asked"]) for row in sampled),
        read_ms=_latest(read, inputs.until_ms, known_ms),
        landed_ms=_latest(landed, inputs.until_ms, known_ms),
        lag_records=(newest or {}).get("lag") or 0,
        ended=_ended(reports),
        measured=results["landed"] is not None,
        trouble=inputs.landing_trouble,
    )  # fmt: skip


def _latest(moments: list[int | None], until_ms: int, else_ms: int) -> int:
    return min(max((ms for ms in moments if ms is not None), default=else_ms), until_ms)


def _ended(reports: list[dict[str, Any]]) -> tuple[tuple[str, int, str], ...]:
    """With an error; one whose topic another query has landed since is over."""
    alive: dict[str | None, int] = {}
    for row in reports:
        alive[row["topic"]] = max(alive.get(row["topic"], 0), row["alive"] or 0)
    return tuple(
        (row["query"], row["at"], row["error"])
        for row in reports if row["error"] and alive[row["topic"]] <= row["at"]
    )  # fmt: skip


def _sampled(metrics: DataFrame) -> DataFrame:
    """Of every broker's every kind of sample: how many, and the newest; first of each run."""
    asked = F.when(F.col("request").isin(list(ASKED_REQUESTS)), F.col("request"))
    known = [kind.metric_name for kind in samples.KINDS]
    by = ("broker_id", "metric_name", "asked")
    runs = (
        metrics.where(F.col("metric_name").isin(known))
        .groupBy("broker_id", "metric_name", asked.alias("asked"), "run_ms")
        .agg(
            F.unix_millis(F.min("event_time")).alias("first"),
            F.unix_millis(F.max("event_time")).alias("newest"),
            F.unix_millis(F.max("landed_at")).alias("landed"),
            F.count(F.lit(1)).alias("samples"),
            F.expr("percentile_approx(interval_ms, 0.5)").alias("every"),
        )
    )
    own = Window.partitionBy(*by).orderBy("first", "newest")
    before = F.max("newest").over(own.rowsBetween(Window.unboundedPreceding, -1))
    return (
        runs.withColumn("beside", F.coalesce(F.col("first") < before, F.lit(False)))
        .groupBy(*by)
        .agg(
            *(F.min("first").alias("first"), F.max("newest").alias("newest")),
            F.max("landed").alias("landed"),
            F.max_by("every", "samples").alias("every"),
            F.max_by("every", "newest").alias("every_now"),
            F.sum("samples").alias("samples"),
            F.count("run_ms").alias("starts"),
            F.max("beside").alias("beside"),
        )
    )


def _reports(progress: DataFrame) -> DataFrame:
    """Of every query: when it spoke last, to when it has read, and the error if it ended with one.

    A batch has what was in the topic when it began; a query that has just begun has read nothing.
    """
    newest = F.struct("event_time_ms", "sequence")
    at = F.unix_millis("event_time")
    began = at - F.greatest(F.coalesce("batch_ms", F.lit(0)), F.lit(0))  # no sum of nonsense
    read = F.when(F.col("kind") == "batch", began).when(
        (F.col("kind") == "end") & F.col("error").isNull(), at
    )
    return (
        progress.where("event_time_ms IS NOT NULL AND query IS NOT NULL")
        .groupBy("query", "topic")
        .agg(
            F.max(at).alias("at"),
            F.max(F.when(F.col("kind") != "end", at)).alias("alive"),
            F.max(read).alias("read"),
            F.unix_millis(F.max("landed_at")).alias("landed"),
            F.max_by(F.when(F.col("kind") == "end", F.col("error")), newest).alias("error"),
            F.max_by("lag_records", F.when(F.col("lag_records").isNotNull(), newest)).alias("lag"),
        )
        .orderBy("query", "topic")
        .limit(QUERIES_MAX)
    )


def _before(inputs: Inputs) -> DataFrame:
    """The last hour of every broker that the roll-ups have before the span, and how often then."""
    hours = inputs.hourly
    if hours is None:
        empty = inputs.metrics.sparkSession.range(0)
        return empty.selectExpr("id AS broker_id", "id AS hour", "id AS every")
    hour = F.unix_millis("hour")
    first = inputs.until_ms - LOOKBACK_MS
    often = F.when(F.col("metric_name").isin(list(OFTEN)), hour)
    every = F.try_divide(F.col("covered_ms"), F.col("samples")).cast("long")
    return (
        hours.where((hour >= first) & (hour < inputs.since_ms))
        .groupBy("broker_id")
        .agg(F.max(hour).alias("hour"), F.max_by(every, often).alias("every"))
    )


def _brokers(
    sampled: list[dict[str, Any]], before: list[dict[str, Any]], since_ms: int
) -> tuple[Sampled, ...]:
    found = []
    hours = {row["broker_id"]: row for row in before}
    ids = {row["broker_id"] for row in sampled} | set(hours)
    for broker in sorted(ids, key=lambda one: (one is None, one)):
        its = [row for row in sampled if row["broker_id"] == broker]
        hour = hours.get(broker)
        often = [row[name] for row in its if row["metric_name"] in OFTEN
                 for name in ("every", "every_now") if row[name]]  # fmt: skip
        if not often and hour is not None and hour["every"]:
            often = [hour["every"]]
        found.append(Sampled(
            broker, max((row["newest"] for row in its), default=None),
            None if hour is None else min(hour["hour"] + HOUR_MS, since_ms),
            sum(row["samples"] for row in its), max((row["starts"] for row in its), default=0),
            min(max(*often, 1000), EVERY_MS_MAX) if often else EVERY_MS,
            any(row["beside"] for row in its),
        ))  # fmt: skip
    return tuple(found)


# -- what is said


def section(inputs: Inputs, listened: Listened) -> Section:
    tables = (_table(inputs, listened),) if listened.brokers else ()
    return Section(
        KEY, TITLE, _words(listened), tables, findings=tuple(findings(listened))
    )  # fmt: skip


def findings(listened: Listened) -> list[Finding]:
    """What is wrong with the data themselves."""
    found = []
    if listened.trouble:
        found.append(Finding(
            f"The topics could not be read: {listened.trouble}", listened.read_ms or None,
            "the brokers; what follows is what had landed before",
        ))  # fmt: skip
    found += [
        Finding(f"Landing of {brief(query)} ended: {brief(error)}", at_ms, "the streaming job")
        for query, at_ms, error in listened.ended
    ]
    if not listened.brokers:
        return [*found, _nothing(listened)]
    if listened.lagging:
        what = "Nothing has landed" if listened.stopped else "No samples have landed"
        found.append(Finding(
            f"{what} for {_ago(listened, listened.read_ms)}: what happened since is not known",
            listened.read_ms, LOOK_AT_LANDING,
        ))  # fmt: skip
    return found + _of_brokers(listened) + _of_ids(listened)


def _nothing(listened: Listened) -> Finding:
    """Measurements alone need no samples; with neither, nothing is watched."""
    return Finding(
        "No data: there are no samples of any broker",
        look="metrics.topic.enable=true on the brokers, and the streaming job that lands"
        f" {samples.TOPIC}",
        severity="unknown" if listened.measured and not listened.trouble else "alarm",
    )


def _of_brokers(listened: Listened) -> list[Finding]:
    silent = listened.silent
    if len(silent) == len(listened.brokers) and silent:
        last = max(one.last_ms for one in silent)
        if listened.lag_records:
            return [Finding(
                f"Landing lags by {listened.lag_records:,} records: the newest sample that landed"
                f" is {_ago(listened, last)} old", last, LOOK_AT_LANDING,
            )]  # fmt: skip
        if len(silent) > 1:
            return [Finding(
                f"No samples of any of {len(silent)} brokers ({_ids(silent)}) for"
                f" {_ago(listened, last)}", last, LOOK_AT_BROKER,
            )]  # fmt: skip
    listed = [
        Finding(f"No samples of {one.name} for {_ago(listened, one.last_ms)}", one.last_ms,
                LOOK_AT_BROKER)
        for one in silent[:NAMED_MAX]
    ]  # fmt: skip
    if rest := silent[NAMED_MAX:]:
        last = max(one.last_ms for one in rest)
        listed.append(Finding(f"No samples of {len(rest)} brokers more ({_ids(rest)})", last,
                             LOOK_AT_BROKER))  # fmt: skip
    return listed


def _of_ids(listened: Listened) -> list[Finding]:
    twice = tuple(one for one in listened.brokers if one.twice)
    if not twice:
        return []
    id_ = f"id {_ids(twice)}" if len(twice) == 1 else f"ids {_ids(twice)}"
    return [Finding(
        f"Samples of two runs of broker {id_} lie side by side: two brokers are taken for one, of"
        " which either may die unseen, or a clock was set back",
        look="node.id of the brokers; tables of their own for each cluster", severity="warning",
    )]  # fmt: skip


def _ago(listened: Listened, ms: int) -> str:
    return span(listened.until_ms - ms)


def _ids(brokers: tuple[Sampled, ...]) -> str:
    named = ", ".join(brief(one.broker_id) for one in brokers[:NAMED_MAX])
    return named if len(brokers) <= NAMED_MAX else f"{named} ..."


def _words(listened: Listened) -> tuple[str, ...]:
    if not listened.brokers:
        return ("No data: no sample of any broker, so nothing below says that all is well.",)
    count, silent = len(listened.brokers), len(listened.silent)
    brokers = f"{count} broker{'' if count == 1 else 's'}"
    if listened.lagging or listened.trouble:
        first = f"No data since {moment(listened.read_ms)} UTC: of {brokers} the last"
        first += f" {_ago(listened, listened.read_ms)} are not known."
    elif silent:
        first = f"{silent} of {brokers} fell silent before the span's end."
    else:
        ends = "its" if count == 1 else "the"
        first = f"{brokers}, each with samples until {ends} span's end." if count > 1 else (
            "1 broker, with samples until the span's end."
        )  # fmt: skip
    said = [first, f"The topics were read until {moment(listened.read_ms)} UTC."]
    again = [
        f"{one.name} {'once' if one.starts == 2 else f'{one.starts - 1} times'}"
        for one in listened.brokers if one.starts > 1 and not one.twice
    ]  # fmt: skip
    if again:
        said.append(
            f"Started again in the span: {', '.join(again[:NAMED_MAX])}. Samples do not name their"
            " broker's version: figures of the samples are of all versions that ran."
        )
    return tuple(said)


def _table(inputs: Inputs, listened: Listened) -> Table:
    rows: list[tuple[Cell, ...]] = []
    for one in listened.brokers:
        source = inputs.rows("metrics", one.samples, same({"broker_id": one.broker_id}), _KNOWN)
        quiet_ms = listened.until_ms - one.last_ms
        bad = one in listened.silent
        rows.append((
            words(one.broker_id), words(moment(one.last_ms)),
            figure(quiet_ms / 1000, source, span(quiet_ms),
                   "bad" if bad else "open" if listened.lagging or listened.trouble else "good"),
            figure(one.samples, source, verdict="" if one.samples else "bad"),
            figure(one.starts, source) if one.samples else words("-"),
        ))  # fmt: skip
    return Table(
        "Brokers",
        ("broker", "newest sample, UTC", "silent", "samples", "runs"),
        tuple(rows),
        "Silent: from the newest sample to the span's end. Marked: no sample for"
        f" {span(SILENT_MS)}, or three of the broker's intervals, although the topics were read. A"
        " broker is missed for"
        f" {span(LOOKBACK_MS)}; of one without a sample in the span the end of the last hour that"
        " had some is listed.",
    )  # fmt: skip


_KNOWN: Final = "metric_name IN (" + ", ".join(
    f"'{kind.metric_name}'" for kind in samples.KINDS
) + ")"  # fmt: skip
