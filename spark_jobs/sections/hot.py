"""Hot partitions: the ten that took most messages, their share, and how uneven their topics are.

`DOCUMENT_SQL` is the monitoring guide's query, unchanged; it runs over the view
`kafka_metrics`, which is the table of samples. The section's own query asks the same and more (the
share of all, the topic's median), so a test holds the two against each other. The pipeline's own
topics are marked: what the measuring itself writes is not a user's load.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import Window
from pyspark.sql import functions as F

from spark_jobs.report_model import Cell, Plot, Section, Series, Table
from spark_jobs.schema import OWN_TOPICS
from spark_jobs.sections.cells import brief, figure, number, percent, same, size, words
from spark_jobs.sections.inputs import Inputs, collected

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

KEY: Final = "hot"
TITLE: Final = "Hot partitions"
VIEW: Final = "kafka_metrics"
DOCUMENT_SQL: Final = """\
SELECT topic, partition, SUM(message_count)
FROM kafka_metrics
WHERE metric_name = 'PartitionMessages'
GROUP BY topic, partition
ORDER BY SUM(message_count) DESC
LIMIT 10;"""
TOP: Final = 10
METRIC: Final = {"metric_name": "PartitionMessages"}
SKEW_MARKED: Final = 3.0  # of a topic's median: worth a look at the keys


def section(inputs: Inputs) -> Section:
    inputs.metrics.createOrReplaceTempView(VIEW)
    found = collected(_hottest(inputs.metrics))
    if not found:
        return Section(KEY, TITLE, (
            "No partition took a message in this span, or no broker publishes its samples"
            " (metrics.topic.enable=true).",
        ))  # fmt: skip
    partitions = [row for row in found if row["place"] <= TOP]
    topics = [row for row in found if row["first_of_topic"] and row["topic_place"] <= TOP]
    topics.sort(key=lambda row: row["topic_place"])
    return Section(
        KEY, TITLE, _words(partitions),
        (_partition_table(inputs, partitions), _topic_table(inputs, topics)),
        (_plot(partitions),),
    )  # fmt: skip


def _hottest(metrics: DataFrame) -> DataFrame:
    """The first ten partitions, and of each of the first ten topics its hottest one."""
    each = (
        metrics.where(same(METRIC))
        .groupBy("topic", "partition")
        .agg(
            F.sum(F.col("message_count").cast("double")).alias("messages"),
            F.sum(F.col("bytes_in").cast("double")).alias("bytes"),
            F.count(F.lit(1)).alias("samples"),
        )
        .where("messages > 0")
    )
    everything, topic = Window.partitionBy(), Window.partitionBy("topic")
    hottest_first = [F.desc("messages"), F.asc("topic"), F.asc("partition")]
    ranked = each.select(
        "*",
        F.row_number().over(Window.orderBy(*hottest_first)).alias("place"),
        F.row_number().over(topic.orderBy(*hottest_first)).alias("place_in_topic"),
        F.sum("messages").over(everything).alias("all_messages"),
        F.median("messages").over(everything).alias("all_median"),
        F.count(F.lit(1)).over(everything).alias("all_partitions"),
        F.sum("messages").over(topic).alias("topic_messages"),
        F.sum("samples").over(topic).alias("topic_samples"),
        F.median("messages").over(topic).alias("topic_median"),
        F.count(F.lit(1)).over(topic).alias("topic_partitions"),
    )
    by_topic = Window.orderBy(F.desc("topic_messages"), F.asc("topic"))
    return (
        ranked.withColumn("topic_place", F.dense_rank().over(by_topic))
        .withColumn("first_of_topic", F.col("place_in_topic") == 1)
        .where(f"place <= {TOP} OR (first_of_topic AND topic_place <= {TOP})")
        .orderBy("place")
    )


def _words(partitions: list[dict[str, Any]]) -> tuple[str, ...]:
    first = partitions[0]
    together = sum(row["messages"] for row in partitions)
    share = percent(together / first["all_messages"])
    of_these = f"; the {TOP} hottest took {share} of them" if first["all_partitions"] > TOP else ""
    said = [
        f"{number(first['all_messages'])} messages went to {first['all_partitions']:,}"
        f" partition{'s' if first['all_partitions'] != 1 else ''}{of_these}."
        f" The hottest is {_name(first)}"
        f" with {percent(first['messages'] / first['all_messages'])}.",
        f"Skew, the hottest against the median partition: {number(_skew(first, 'all'))}.",
    ]
    if own := [_name(row) for row in partitions if row["topic"] in OWN_TOPICS]:
        said.append(
            f"Of these the pipeline itself writes {', '.join(own)}: samples, results and progress,"
            " not a user's load."
        )
    return tuple(said)


def _partition_table(inputs: Inputs, partitions: list[dict[str, Any]]) -> Table:
    rows = tuple(_partition_row(inputs, row) for row in partitions)
    return Table(
        f"The {TOP} hottest partitions",
        ("topic", "partition", "messages", "share of all", "x its topic's median", "size", "whose"),
        rows,
        "Messages as the samples PartitionMessages tell them; a replica counts what it appends."
        " The same by the guide's SQL: " + " ".join(DOCUMENT_SQL.split()),
    )


def _partition_row(inputs: Inputs, row: dict[str, Any]) -> tuple[Cell, ...]:
    place = {"topic": row["topic"], "partition": row["partition"]}
    own = inputs.rows("metrics", row["samples"], same({**METRIC, **place}))
    skew = _skew(row, "topic")
    marked = row["topic_partitions"] > 1 and skew >= SKEW_MARKED
    return (
        words(row["topic"]),
        words(row["partition"]),
        figure(row["messages"], own),
        figure(share := row["messages"] / row["all_messages"], own, percent(share)),
        figure(skew, own, verdict="bad" if marked else ""),
        figure(row["bytes"], own, size(row["bytes"])),
        words("the pipeline's own" if row["topic"] in OWN_TOPICS else "a user's"),
    )


def _topic_table(inputs: Inputs, topics: list[dict[str, Any]]) -> Table:
    made = []
    for row in topics:
        own = inputs.rows("metrics", row["topic_samples"], same({**METRIC, "topic": row["topic"]}))
        skew = _skew(row, "topic")
        marked = row["topic_partitions"] > 1 and skew >= SKEW_MARKED
        made.append((
            words(row["topic"]),
            figure(row["topic_partitions"], own),
            figure(row["topic_messages"], own),
            figure(share := row["topic_messages"] / row["all_messages"], own, percent(share)),
            figure(skew, own, verdict="bad" if marked else ""),
            words(row["partition"]),
            words("the pipeline's own" if row["topic"] in OWN_TOPICS else "a user's"),
        ))  # fmt: skip
    return Table(
        "Skew within topics",
        ("topic", "partitions", "messages", "share of all", "skew, max/median", "hottest", "whose"),
        tuple(made),
        "Partitions that took no message are not in the samples, so they are not in the median."
        f" From {SKEW_MARKED:g} on it is worth a look at the keys.",
    )


def _plot(partitions: list[dict[str, Any]]) -> Plot:
    names = tuple(_name(row) for row in partitions)
    messages = tuple(float(row["messages"]) for row in partitions)
    series = (Series("messages", names, messages),)
    return Plot("Messages of the hottest partitions", "bars", "partition", "messages", series)


def _name(row: dict[str, Any]) -> str:
    return f"{brief(row['topic'])}-{row['partition']}"


def _skew(row: dict[str, Any], of: str) -> float:
    """How often the median goes into it: of all partitions, or of the topic's."""
    median = row[f"{of}_median"]
    return float(row["messages"] / median) if median else float("nan")
