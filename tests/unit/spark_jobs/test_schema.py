"""The tables that join writers, Spark's types and the documentation."""

from __future__ import annotations

import json
import math
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kbroker.metrics import json_record, samples
from kbroker.metrics.samples import FieldType
from perf import results_table
from spark_jobs import schema
from spark_jobs.schema import TABLES, TableSchema

EVERY = (*TABLES.values(), schema.PLAIN, schema.QUARANTINE)
LONGS = st.integers(json_record.LONG_MIN, json_record.LONG_MAX)
DOUBLES = st.floats(allow_nan=False, allow_infinity=False)
TEXTS = st.text(st.characters(exclude_categories=["Cs"]))
BUCKETS = st.dictionaries(st.floats(0, 1e18) | st.just(math.inf), st.integers(1, 2**40)).map(
    lambda found: [json_record.bucket(bound, found[bound]) for bound in sorted(found)]
)
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "long": LONGS, "double": DOUBLES, "string": TEXTS, "boolean": st.booleans(),
    "buckets": BUCKETS,
}  # fmt: skip


def records(table: TableSchema) -> st.SearchStrategy[dict[str, Any]]:
    """Any record that a writer of the table may make."""
    return st.fixed_dictionaries(
        {}, optional={name: VALUES[kind] for name, kind in table.json_columns.items()}
    )


@pytest.mark.parametrize("table", EVERY, ids=lambda table: table.name)
def test_a_row_has_each_column_once_and_names_its_kind(table: TableSchema) -> None:
    names = [name.lower() for name in table.column_names]  # Spark's names have no case
    assert len(set(names)) == len(names)
    assert all(column.help.endswith(".") for column in (*table.identity, *table.columns))
    assert table.column_names[:6] == tuple(column.name for column in schema.SOURCE)


@pytest.mark.parametrize("table", TABLES.values(), ids=list(TABLES))
def test_kinds_and_retries_name_columns(table: TableSchema) -> None:
    names = {column.name for column in table.columns}
    assert {"schema_version", "event_time_ms", "sequence", table.kind_column} <= names
    assert set(table.retries) <= names
    assert {field for kind in table.kinds for field in kind.fields} <= names


def test_the_writers_tables_are_the_readers() -> None:
    assert TABLES["metrics"].json_columns == samples.columns()
    assert TABLES["results"].json_columns == results_table.columns()
    assert {table.topic: table.version for table in TABLES.values()} == {
        samples.TOPIC: samples.SCHEMA_VERSION,
        results_table.TOPIC: results_table.SCHEMA_VERSION,
        schema.PROGRESS_TOPIC: schema.PROGRESS_VERSION,
    }


def test_a_results_field_has_one_meaning() -> None:
    """A name in two groups of fields would be one column with two descriptions."""
    table = results_table
    fields = [*table.COMMON, *table.DIMENSIONS, *table.FIGURES, *table.VERDICT, *table.FIGURE]
    assert len({field.name for field in fields}) == len(fields)
    assert int(table.TOPIC_CONFIGS["retention.ms"]) >= table.RETENTION_MS_MIN


def test_topics_find_their_tables() -> None:
    assert schema.table_for("__kbroker_metrics") is TABLES["metrics"]
    assert schema.table_for("orders") is schema.PLAIN
    assert len(schema.OWN_TOPICS) == 3


@pytest.mark.parametrize("table", TABLES.values(), ids=list(TABLES))
@given(data=st.data())
def test_a_written_row_is_plain_json_and_reads_back(
    table: TableSchema, data: st.DataObject
) -> None:
    record = data.draw(records(table))
    text = table.encode(record)
    assert b"\n" not in text
    assert json.loads(text, parse_constant=no_json) == record


def no_json(name: str) -> float:
    raise ValueError(f"{name} is no JSON")


def test_a_value_that_json_cannot_have_is_left_out() -> None:
    record = {"others_cpu": math.nan, "wall_s": math.inf, "answer": None, "round": 0}
    assert json.loads(TABLES["results"].encode(record)) == {"round": 0}


def test_an_infinite_bound_is_a_word() -> None:
    buckets = [{"le": 5.0, "count": 1}, {"le": math.inf, "count": 2}]
    found = json.loads(TABLES["results"].encode({"buckets": buckets}))
    assert found["buckets"] == [{"le": 5.0, "count": 1}, {"le": "Infinity", "count": 2}]


@pytest.mark.parametrize(
    ("record", "said"),
    [
        ({"colour": 1}, "no field 'colour'"),
        ({"round": "1"}, "round is no long"),
        ({"round": 1.0}, "round is no long"),
        ({"round": True}, "round is no long"),
        ({"round": 2**63}, "round is no long"),
        ({"rate": "fast"}, "rate is no double"),
        ({"quiet": 1}, "quiet is no boolean"),
        ({"cell": b"p-1k"}, "cell is no string"),
        ({"cell": "\ud800"}, "cell is no string"),
        ({"buckets": [{"le": 1.0}]}, "buckets is no buckets"),
        ({"buckets": [{"le": 1.0, "count": 0}]}, "buckets is no buckets"),
        ({"buckets": [{"le": 2.0, "count": 1}, {"le": 2.0, "count": 1}]}, "bound 2.0 after 2.0"),
        ({"buckets": [{"le": math.nan, "count": 1}]}, "buckets is no buckets"),
    ],
)
def test_a_field_that_does_not_fit_is_named(record: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        TABLES["results"].encode(record)


def test_every_type_of_a_field_can_be_written() -> None:
    assert set(VALUES) == set(get_args(FieldType))
