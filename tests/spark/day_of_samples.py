"""A day of a broker's samples as a table, and how long its report takes.

    python -m tests.spark.day_of_samples --rounds 8640 --partitions 100 --place /tmp/day

makes the table (every 10 s each partition's messages, the requests' histograms and all the other
kinds, as the sampler writes them), then runs the report job in a process of its own on local[2] and
prints how long that took, from exec to exit. Spark itself makes the rows, without Python, and they
are committed to the ledger hour by hour as the streaming job would have done.

Messages of a partition follow from its number, so that tests know what a report has to say:
`messages_of(p)` in every round.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Final

from spark_jobs.files import LocalFiles
from spark_jobs.ledger import UNIT_COLUMN, Ledger
from spark_jobs.ledger_state import Commit, LiveUnit, batch_key
from spark_jobs.schema import METRICS
from spark_jobs.tables import DATA, DATE, table_uri

ROUND_MS: Final = 10_000
BEGIN_MS: Final = 1_764_028_800_000  # 2025-11-25 00:00 UTC
REPORT_S_MAX: Final = 600
REQUESTS: Final = ("Produce", "FetchConsumer", "Metadata", "OffsetCommit")
PARTS: Final = ("TotalTimeMs", "RequestQueueTimeMs", "LocalTimeMs", "ResponseQueueTimeMs",
                "ResponseSendTimeMs", "RemoteTimeMs")  # fmt: skip

# Kind -> every how many rounds, rows of a round, the fields.
_ROUND: Final = {
    "BrokerTraffic": (1, 1, "messages_in=1000L, bytes_in=1000000L, bytes_out=2000000L,"
                            " produce_requests=100L, fetch_requests=100L"),
    "Threads": (1, 1, "network_idle=0.9D, handler_idle=0.8D, request_queue_size=1L,"
                      " connections=50L"),
    "Replicas": (1, 1, "partition_count=100L, leader_count=100L, under_replicated=0L,"
                       " under_min_isr=0L"),
    "LogDirectory": (3, 1, "directory='/data', free_bytes=1000000000000L - n * 1000000L,"
                           " total_bytes=2000000000000L, log_bytes=n * 1000000L"),
    "Disk": (3, 1, "device='sda', read_bytes=1000000L, written_bytes=3000000L"),
    "Process": (3, 1, "resident_bytes=100000000L, memory_limit_bytes=1000000000L, cpu_s=3.0D"),
    "GarbageCollection": (3, 3, "generation=CAST(i AS STRING), collections=1L"),
    "Sampling": (3, 1, "dropped=0L"),
}  # fmt: skip


def messages_of(partition: int) -> int:
    """In every round; partition 0 is the hottest."""
    return 10_000 // (1 + partition)


def samples(spark: Any, rounds: int, partitions: int) -> Any:
    """All rows of the table, in the order of their offsets."""
    kinds = [_kind(spark, rounds, 1, partitions, "PartitionMessages",
                   "topic='orders', partition=i, message_count=CAST(floor(10000 / (1 + i)) AS"
                   " BIGINT), bytes_in=100 * CAST(floor(10000 / (1 + i)) AS BIGINT)")]  # fmt: skip
    buckets = ", ".join(
        f"named_struct('le', {0.1 * 1.5**n!r}D, 'count', CAST(pmod(hash(n, i, {n}), 40) AS BIGINT))"
        for n in range(12)
    )
    requests, parts = (", ".join(f"'{name}'" for name in names) for names in (REQUESTS, PARTS))
    kinds.append(_kind(
        spark, rounds, 1, len(REQUESTS) * len(PARTS), "RequestTime",
        f"request=element_at(array({requests}), CAST(i DIV {len(PARTS)} AS INT) + 1),"
        f" part=element_at(array({parts}), CAST(i % {len(PARTS)} AS INT) + 1),"
        f" count=200L, buckets=filter(array({buckets}), b -> b.count > 0)",
    ))  # fmt: skip
    kinds += [_kind(spark, rounds, every, of, name, fields)
              for name, (every, of, fields) in _ROUND.items()]  # fmt: skip
    union = kinds[0]
    for frame in kinds[1:]:
        union = union.unionByName(frame, allowMissingColumns=True)
    filled = union.selectExpr(
        "*", "1L AS schema_version", "1L AS broker_id", f"{BEGIN_MS}L AS run_ms",
        "row_number() OVER (ORDER BY event_time_ms, metric_name, i) - 1L AS sequence",
    ).selectExpr(
        "*", "'__kbroker_metrics' AS source_topic", "0 AS source_partition",
        "sequence AS source_offset", "timestamp_millis(event_time_ms) AS source_time",
        "timestamp_millis(event_time_ms) AS landed_at", "false AS late",
        "timestamp_millis(event_time_ms) AS event_time",
        "to_date(timestamp_millis(event_time_ms)) AS event_date",
    )  # fmt: skip
    schema = METRICS.row_type()
    known = set(filled.columns)
    return filled.selectExpr(*(
        f"CAST({f.name if f.name in known else 'NULL'} AS {f.dataType.simpleString()}) AS {f.name}"
        for f in schema.fields
    ))  # fmt: skip


def _kind(spark: Any, rounds: int, every: int, of: int, name: str, fields: str) -> Any:
    """`fields` may speak of the round n and the row i in it."""
    columns = [
        f"{value} AS {column}" for column, value in (part.split("=", 1) for part in _apart(fields))
    ]
    return spark.range((rounds + every - 1) // every * of).selectExpr(
        f"id DIV {of} * {every} AS n", f"id % {of} AS i"
    ).selectExpr(
        "i", f"'{name}' AS metric_name", f"{ROUND_MS * every}L AS interval_ms",
        f"{BEGIN_MS}L + n * {ROUND_MS} AS event_time_ms", *columns,
    )  # fmt: skip


def _apart(fields: str) -> list[str]:
    """At the commas outside of brackets."""
    found, depth, last = [], 0, 0
    for at, char in enumerate(fields):
        depth += (char == "(") - (char == ")")
        if char == "," and depth == 0:
            found.append(fields[last:at].strip())
            last = at + 1
    return [*found, fields[last:].strip()]


def write(spark: Any, root: str, rounds: int, partitions: int, hours: int = 24) -> int:
    """The table below `root`, a commit for each hour; how many rows."""
    from pyspark.sql import functions as F

    frame = samples(spark, rounds, partitions)
    each_ms = max(1, rounds * ROUND_MS // hours)
    unit = f"concat('day-', (event_time_ms - {BEGIN_MS}) DIV {each_ms})"
    uri = table_uri(root, "metrics")
    (
        frame.selectExpr("*", f"{unit} AS {UNIT_COLUMN}")
        .write.partitionBy(UNIT_COLUMN, DATE)
        .parquet(f"{uri}/{DATA}")
    )
    rows = spark.read.parquet(f"{uri}/{DATA}").groupBy(UNIT_COLUMN, DATE)
    counts = sorted(
        (row["first"], row[UNIT_COLUMN], str(row[DATE]), row["rows"])
        for row in rows.agg(
            F.min("source_offset").alias("first"), F.count(F.lit(1)).alias("rows")
        ).collect()
    )
    ledger = Ledger(LocalFiles(), uri)
    for number, (first, name, date, rows) in enumerate(counts):
        ledger.commit(
            Commit(batch_key("day", number), "batch", BEGIN_MS, (LiveUnit(name, date, rows),),
                   topic=METRICS.topic, topic_id="id", query="metrics-v1",
                   ranges={0: (first, first + rows)})
        )  # fmt: skip
    return sum(count[3] for count in counts)


def main() -> int:
    parser = argparse.ArgumentParser("python -m tests.spark.day_of_samples", description=__doc__)
    parser.add_argument("--rounds", type=int, default=8640, help="samples of a partition")
    parser.add_argument("--partitions", type=int, default=100)
    parser.add_argument("--place", type=Path, required=True, help="a directory for everything")
    parser.add_argument("--times", type=int, default=1, help="how often to make the report")
    options = parser.parse_args()
    from spark_jobs.session import session

    root, whole = options.place / "tables", options.place / f"whole-{options.rounds}"
    if not whole.exists():
        shutil.rmtree(root, ignore_errors=True)
        spark = session("local[2]", "day-of-samples", source="kbroker")
        rows = write(spark, str(root), options.rounds, options.partitions)
        spark.stop()
        whole.touch()
        print(f"{rows:,} rows written")
    until = BEGIN_MS + options.rounds * ROUND_MS
    stamp = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(until / 1000))
    command = [sys.executable, "-m", "spark_jobs.report", "--tables", str(root), "--source",
               "kbroker", "--master", "local[2]", "--until", stamp,
               "--out", str(options.place / "report.html")]  # fmt: skip
    for _ in range(options.times):
        began = time.monotonic()
        code = subprocess.run(command, timeout=REPORT_S_MAX, check=False).returncode
        print(f"report: {time.monotonic() - began:.1f} s from exec to exit, code {code}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
