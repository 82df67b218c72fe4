"""Predicates of a report's JSON: those of the sections are asked, anything else is refused."""

from __future__ import annotations

import pytest

from spark_jobs.predicate import CHARS_MAX, check
from spark_jobs.report_model import ReportError
from spark_jobs.schema import METRICS, RESULTS

COLUMNS = {*METRICS.column_names, *RESULTS.column_names}


@pytest.mark.parametrize(
    "where",
    [
        "true",
        "event_date BETWEEN DATE'2026-11-21' AND DATE'2026-11-22'"
        " AND event_time >= timestamp_millis(1795225200000L)",
        "kind = 'block' AND size(buckets) > 0 AND acks = -1L AND rate = 1.5e-3D",
        "`partition` = 3 AND topic IN ('a', 'it''s', 'a\\'b', 'drop(')",
        "(codec IS NULL OR NOT (quiet)) AND rate = double('nan')",
        "value <=> 3 AND coalesce(steal, 0D) < 0.01 AND name LIKE 'p99%'",
        "topic = '\\u0024{spark.home}' AND topic = '日本'",
        "topic IN ('a--b', '/*', 'reflect(')",
        "buckets[0].le > 3",
        "",
    ],
)
def test_conditions_that_are_accepted(where: str) -> None:
    assert check(where, COLUMNS) == where


@pytest.mark.parametrize(
    ("where", "names"),
    [
        ("reflect('java.lang.Runtime', 'getRuntime')", "reflect"),
        ("java_method('a', 'b') IS NULL", "java_method"),
        ("java_method ('a', 'b') IS NULL", "java_method"),
        ("try_reflect\n('a', 'b') IS NULL", "try_reflect"),
        ("`reflect`('a', 'b') IS NULL", "reflect"),
        ("topic.reflect('a', 'b') IS NULL", "reflect"),
        ("system.builtin.reflect('a', 'b') IS NULL", "system"),
        ("topic = 'a' OR exists(SELECT 1)", "exists"),
        ("(SELECT 1) = 1", "SELECT"),
        ("topic IN (SELECT topic FROM t)", "SELECT"),
        ("topic = \"a\"", "has no place"),
        ("topic = 'a' -- reflect", "'--' has no place"),
        ("topic /* */ = 'a'", "has no place"),
        ("topic = '${spark.x}'", "0024"),
        ("topic = 'a", "has no place"),
        ("topic = 'a'; drop table x", "has no place"),
        ("x -> x", "has no place|no column"),
        ("nothing = 1", "nothing"),
        ("`nothing` = 1", "nothing"),
        ("r'a' = topic", "'r'"),
        ("topic = 'a\\", "has no place"),
        ("\uff32eflect(1) = 1", "has no place"),
        ("a" * (CHARS_MAX + 1), "characters"),
    ],
)  # fmt: skip
def test_conditions_that_are_refused(where: str, names: str) -> None:
    with pytest.raises(ReportError, match=names):
        check(where, COLUMNS)
