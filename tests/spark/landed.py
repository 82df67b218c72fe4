"""Rows as they are in the tables, for tests of their readers: no stream, no files.

A test says the fields that matter; identity and times are filled in as the streaming job does it.
"""

from __future__ import annotations

import datetime
import uuid
from collections.abc import Iterable, Mapping
from typing import Any

from pyspark.sql import functions as F

from spark_jobs import predicate
from spark_jobs.schema import QUARANTINE, TABLES, TableSchema
from spark_jobs.sections.inputs import Inputs

NOON_MS = 1_764_072_000_000  # 2025-11-25 12:00 UTC
HOUR_MS = 3_600_000
RUN = str(uuid.UUID(int=1))

Row = dict[str, Any]


def utc(ms: int) -> datetime.datetime:
    return datetime.datetime.fromtimestamp(ms / 1000, tz=datetime.UTC)


def whole(table: TableSchema, row: Mapping[str, Any], number: int) -> tuple[Any, ...]:
    """A row with every column of the table; those that are not given are null or filled in."""
    at = row.get("event_time_ms", NOON_MS)
    filled = {
        "source_topic": table.topic or "anything", "source_partition": 0, "source_offset": number,
        "source_time": utc(at), "landed_at": utc(at), "late": False, "event_time": utc(at),
        "event_date": utc(at).date(), **row,
    }  # fmt: skip
    names = table.column_names
    unknown = set(row) - set(names)
    assert not unknown, f"no such columns: {unknown}"
    return tuple(filled.get(name) for name in names)


def frame(spark: Any, table: TableSchema, rows: Iterable[Mapping[str, Any]]) -> Any:
    made = [whole(table, row, number) for number, row in enumerate(rows)]
    return spark.createDataFrame(made, table.row_type())


def sample(metric_name: str, at_ms: int, broker_id: int = 1, **fields: Any) -> Row:
    """One record of the broker's samples."""
    return {"schema_version": 1, "run_ms": NOON_MS, "broker_id": broker_id,
            "metric_name": metric_name, "event_time_ms": at_ms, "interval_ms": 15_000,
            **fields}  # fmt: skip


def inputs(
    spark: Any,
    *,
    metrics: Iterable[Row] = (),
    results: Iterable[Row] = (),
    progress: Iterable[Row] = (),
    quarantine: Iterable[Row] = (),
    since_ms: int = NOON_MS - 25 * HOUR_MS,
    until_ms: int = NOON_MS + 25 * HOUR_MS,
    **more: Any,
) -> Inputs:
    """The tables of a span, of these rows."""
    given = {"metrics": metrics, "results": results, "progress": progress}
    return Inputs(
        spark, since_ms, until_ms,
        **{name: frame(spark, TABLES[name], rows) for name, rows in given.items()},
        quarantine=frame(spark, QUARANTINE, quarantine), results_since_ms=since_ms, **more,
    )  # fmt: skip


def check_rows(found: Inputs, section: Any) -> int:
    """Every number's predicate finds exactly the rows it says; how many were looked at."""
    checked: dict[tuple[str, str], int] = {}
    for table in section.tables:
        for row in table.rows:
            for cell in row:
                assert cell.value is None or cell.rows is not None, cell
                if cell.rows is not None:
                    checked[cell.rows.table, cell.rows.where] = cell.rows.count
    for name in {table for table, _ in checked}:
        for where in (where for table, where in checked if table == name):
            predicate.check(where, getattr(found, name).columns)
        asked = {where: n for (table, where), n in checked.items() if table == name}
        columns = [
            F.count(F.when(F.expr(where), 1)).alias(f"n{i}") for i, where in enumerate(asked)
        ]
        found_rows = list(getattr(found, name).agg(*columns).collect()[0])
        for (where, count), there in zip(asked.items(), found_rows, strict=True):
            assert there == count, f"{there} rows, not {count}: {where}"
    return len(checked)
