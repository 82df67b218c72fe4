"""Writes docs/topics.md from the tables.

    python -m spark_jobs.document [DIRECTORY]

A test compares the committed file with this module's output, so the documentation cannot
drift from the tables. Output depends on the tables alone.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from spark_jobs.rollup import HOURLY
from spark_jobs.schema import (
    IDENTITY,
    LIVE,
    PLAIN,
    QUARANTINE,
    TABLES,
    WATERMARK_MINUTES,
    Column,
    TableSchema,
)

NAME: Final = "topics.md"
_NOTICE: Final = (
    "<!-- Written by `python -m spark_jobs.document`; edit the tables, not this file. -->"
)
_TYPES: Final = {"buckets": "array<struct<le: double, count: bigint>>", "long": "bigint"}
_HOW: Final = """\
Three topics carry measurements. Each has one table, in the code, of which its writer's JSON,
Spark's types and this page are made; [reports.md](reports.md) says how to land and report them.

- A record's value is one JSON object in UTF-8, flat but for buckets. A field that a record lacks
  is null. All shapes of record in a topic share one table: a field name has one type.
- `schema_version` changes when readers would break. New fields do not change it: readers ignore
  what they do not know. A version that a reader does not know, and what is not such an object,
  goes to the table `quarantine` with the reason.
- Event time is the writer's `event_time_ms`, in ms since 1970 UTC; the record has it as its
  timestamp too.
- A writer that is not sure sends again. Two records that are equal in the columns named *one
  record if equal* are one; reports keep the one with the lowest offset.
- *Growth* is what was added since the previous record of the same kind and thing, so sums over
  time, topics and brokers need no care.
- Buckets are `{"le": upper bound, "count": n}`, not cumulative, with fixed bounds: those of
  equal bounds add up. Percentiles are taken of sums of buckets and never averaged. A bound may
  be the text `"Infinity"`.
- The first writer makes the topics, with `retention.ms` of seven days. Keep it above 48
  hours, or a job that was away for a weekend finds a gap. `message.timestamp.before.max.ms` of
  ten years keeps stamps out on which Spark's Kafka source fails for ever; a topic of your own with
  other writers wants it as well, or `--source kbroker`, which reads such a stamp as null.\
"""
_LANDED: Final = f"""\
Spark lands each topic in a table of its own (`metrics`, `results`, `progress`), any other topic
that is named in `plain`, and what cannot be read in `quarantine`. Before the record's own fields
a row has where it was read and when; topic id, partition and offset identify it for ever. Nothing
is dropped for being late: `late` marks what is older than the newest event of earlier batches by
more than {WATERMARK_MINUTES} minutes.\
"""

_HOURLY: Final = (
    "Growth is summed. Of each other figure `F` of `metrics` there are `F_min`, `F_max`, `F_last` "
    "and `F_sum` (over the samples, so `F_sum / samples` is the mean)."
)
_GAUGE_ENDS: Final = ("_min", "_max", "_last", "_sum")


def page() -> str:
    """docs/topics.md."""
    lines = [_NOTICE, "# Topics of measurements", "", _HOW, ""]
    lines += ["| topic | table | key | one record if equal | what |", "|---|---|---|---|---|"]
    lines += [
        f"| `{table.topic}` | `{table.name}` | `{table.key}` | "
        f"{', '.join(f'`{name}`' for name in table.retries)} | {table.help} |"
        for table in TABLES.values()
    ]
    for table in TABLES.values():
        lines += ["", *_topic(table)]
    lines += ["", "## Rows of the tables", "", _LANDED, "", *_fields(IDENTITY)]
    lines += ["", f"### `{PLAIN.name}`", "", PLAIN.help, "", *_fields(PLAIN.columns)]
    lines += ["", f"### `{QUARANTINE.name}`", "", QUARANTINE.help, ""]
    lines += _fields((*QUARANTINE.identity, *QUARANTINE.columns))
    lines += ["", f"### `{LIVE.name}`", "", LIVE.help, "", *_fields(LIVE.columns)]
    lines += ["", f"### `{HOURLY.name}`", "", f"{HOURLY.help} {_HOURLY}", ""]
    lines += _fields(one for one in HOURLY.columns if not one.name.endswith(_GAUGE_ENDS))
    return "\n".join(lines) + "\n"


def _topic(table: TableSchema) -> list[str]:
    """A topic's section: what every record may have, then its kinds."""
    kinds = [set(kind.fields) for kind in table.kinds]
    everywhere = set.intersection(*kinds)
    special = set.union(*kinds) - everywhere
    lines = [f"## `{table.topic}`", "", f"{table.help} Version {table.version}."]
    lines += ["", *_fields(one for one in table.columns if one.name not in special)]
    for kind in table.kinds:
        lines += ["", f"### `{table.kind_column}` = `{kind.value}`", "", kind.help]
        own = [one for one in table.columns if one.name in kind.fields and one.name in special]
        if own:
            lines += ["", *_fields(own)]
    return lines


def _fields(columns: Iterable[Column]) -> list[str]:
    lines = ["| field | type | meaning |", "|---|---|---|"]
    return lines + [
        f"| `{name}` | {_TYPES.get(kind, kind)} | {meaning} |" for name, kind, meaning in columns
    ]


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m spark_jobs.document", description="Write docs/topics.md from the tables."
    )
    docs = Path(__file__).parents[1] / "docs"
    parser.add_argument("directory", type=Path, nargs="?", default=docs, help="default: docs")
    directory: Path = parser.parse_args(arguments).directory
    (directory / NAME).write_text(page(), encoding="utf-8")
    print(directory / NAME)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
