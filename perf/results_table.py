"""The records of `kbroker.perf.results` as one table: what perf tells of every measured block.

A record's value is one JSON object, its key the run's id, its timestamp the event time. Every
object has the COMMON fields; the others depend on `kind`. Over all kinds a field name has one type,
so that the whole topic reads as one flat table; a field that a kind lacks is null.

A block is one run of one cell (a fixed piece of work) on one broker. Its latencies come as buckets
{"le": upper bound in ns, "count": n}, not cumulative, with the fixed bounds of perf/histogram.py,
so buckets of equal bounds add up; never average a percentile. A verdict is what a study concludes,
in words; a figure is any single number beside (a start's seconds, bytes of a connection).

A run's records are numbered (`run_id`, `sequence`): the same pair twice is the same record sent
again. A change that breaks readers raises SCHEMA_VERSION; new fields do not.

Data only, without numpy: Spark's jobs import it. `perf/results.py` writes it.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from kbroker.metrics import samples
from kbroker.metrics.samples import FieldType

SCHEMA_VERSION: Final = 1
TOPIC: Final = "kbroker.perf.results"
TOPIC_CONFIGS: Final = samples.TOPIC_CONFIGS
RETENTION_MS_MIN: Final = 48 * 3_600_000  # Spark's job may be away for a weekend

STUDIES: Final = (
    "produce", "consume", "e2e", "idle", "start", "groups", "compare", "limit",
    "latency-study", "tune", "spark", "cluster", "pipelining", "log",
)  # fmt: skip
KINDS: Final = ("block", "verdict", "figure")


class Field(NamedTuple):
    name: str
    type: FieldType
    help: str


COMMON: Final = (
    Field("schema_version", "long", "Of this table."),
    Field("run_id", "string", "One run of a command: a random UUID."),
    Field("sequence", "long", "The record's number within the run."),
    Field("event_time_ms", "long", "When the block ended, in ms since 1970 UTC."),
    Field("kbroker_version", "string", "Of the measuring program, with the commit if known."),
    Field("machine", "string", "Processors, their model, the kernel."),
    Field("study", "string", f"The command: {', '.join(STUDIES)}."),
    Field("kind", "string", "block, verdict or figure."),
)
# Which piece of work on which broker: two blocks compare if all of these but one are equal.
DIMENSIONS: Final = (
    Field("cell", "string", "The piece of work's short name."),
    Field("work", "string", "produce, fetch, e2e, heartbeat, commit."),
    Field("broker", "string", "kbroker, kafka or limit."),
    Field("round", "long", "Blocks of one round ran one after the other; from 0."),
    Field("acks", "long", "0, 1 or -1 (all)."),
    Field("size_bytes", "long", "Of a record's value; of a fetch: bytes wanted of a partition."),
    Field("batch_bytes", "long", "Values of one batch together; 0: one record."),
    Field("in_flight", "long", "Requests on their way on each connection."),
    Field("connections", "long", "Connections that did the work."),
    Field("partitions", "long", "Partitions of the topic."),
    Field("replicas", "long", "Of each partition."),
    Field("round_trip_us", "long", "Between leader and follower, as it was asked for."),
    Field("codec", "string", "none, gzip, snappy, lz4 or zstd."),
    Field("path", "string", "plain: Produce 7 and Fetch 4. java: what the Java client does."),
    Field("mode", "string", "sync: each send awaited. async: not."),
    Field("linger_ms", "long", "How long the client waits for a batch to fill."),
    Field("rate", "double", "Records a second that were intended; 0: as fast as it goes."),
    Field("knob", "string", "The setting that is tried."),
    Field("knob_value", "string", "Its value."),
    Field("baseline", "boolean", "Whether this is what the others are held against."),
    Field("again", "boolean", "The null test: what is held against is measured once more."),
)
FIGURES: Final = (
    Field("requests", "long", "Answered in the window."),
    Field("records", "long", "Records in them."),
    Field("bytes", "long", "Bytes of batches in them."),
    Field("wall_s", "double", "The window."),
    Field("broker_cpu_s", "double", "Processor time of the broker's process in it."),
    Field("compiler_cpu_s", "double", "Of it: of the runtime's threads that compile."),
    Field("collector_cpu_s", "double", "Of it: of those that collect garbage."),
    Field("own_cpu_s", "double", "Processor time of the load generator."),
    Field("others_cpu", "double", "Share of the box that other processes used."),
    Field("steal", "double", "Share of the box that the hypervisor kept."),
    Field("quiet", "boolean", "Whether both were small enough for the block to count."),
    Field(
        "measure",
        "string",
        "What the buckets time: request; end-to-end (from the send); from-due (from when it was "
        "meant to be sent, to its arrival); acknowledged (from the send).",
    ),
    Field("buckets", "buckets", "By duration, bounds in ns."),
    Field("min_ns", "long", "The smallest duration."),
    Field("max_ns", "long", "The largest."),
    Field("sum_ns", "long", "All together."),
)
VERDICT: Final = (
    Field("question", "string", "What was asked."),
    Field("answer", "string", "One sentence that follows from the blocks."),
    Field("decided", "boolean", "False: no result (too few, too noisy, or no difference)."),
    Field("evidence", "string", "JSON: the ratios, intervals and counts of the answer."),
)
FIGURE: Final = (
    Field("name", "string", "What the number is."),
    Field("value", "double", "The number."),
    Field("unit", "string", "Its unit."),
)
# By kind, after COMMON. A figure may say which broker, cell, round or knob it belongs to.
FIELDS: Final[dict[str, tuple[Field, ...]]] = {
    "block": (*DIMENSIONS, *FIGURES),
    "verdict": (*DIMENSIONS, *VERDICT),
    "figure": (*DIMENSIONS, *FIGURE),
}


def columns() -> dict[str, FieldType]:
    """The flat table over all kinds: every field once, the common ones first."""
    fields = (*COMMON, *DIMENSIONS, *FIGURES, *VERDICT, *FIGURE)
    return {field.name: field.type for field in fields}
