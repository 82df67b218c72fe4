"""The rows of a number, asked of real tables: found, printed with their source, counted again."""

from __future__ import annotations

import argparse
import datetime
import json
import math
import time
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="missing: pyspark (extra `report`)")
pytest.importorskip("jinja2", reason="missing: jinja2 (extra `report`)")

from pyspark.sql import Row

from spark_jobs import rows
from spark_jobs.errors import EXIT_USAGE
from spark_jobs.report_model import Cell, Report, ReportError, Rows, Section, Table

pytestmark = pytest.mark.spark


def report_of(root: str, *cells: Cell) -> Report:
    columns = tuple(f"c{n}" for n in range(len(cells)))
    return Report(3, root, 1, 2, (Section("s", "S", (), (Table("t", columns, (cells,)),)),))


def asked(where: str, count: int) -> Cell:
    return Cell(str(count), float(count), Rows("plain", where, count))


@pytest.mark.slow
def test_rows_of_a_number(
    spark: Any, landing: Any, send: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    send("traced", [f"value {n}\x1b[31m".encode() for n in range(6)], partitions=2)
    send("traced", [b"other"], partition=1)
    landing.run("--topic", "traced")
    report = report_of(
        landing.tables,
        asked("source_partition = 0 AND source_offset >= 2L", 4),
        asked("source_topic = 'none'", 0),
        asked("source_partition = 1 OR source_offset = 0", 9),
        Cell("a word"),
        asked("source_offset < 2 AND reflect('java.lang.System', 'exit') IS NULL", 1),
        asked("size(source_topic) > 1", 1),
    )

    def show(address: str, **options: Any) -> list[str]:
        chosen = argparse.Namespace(address=address, limit=100, json=False, **options)
        rows.show(spark, report, landing.tables, chosen)
        return capsys.readouterr().out.splitlines()

    lines = show("s.t0.r0.c0")
    assert [line.split("  ")[0] for line in lines] == [f"traced 0@{n}" for n in (2, 3, 4, 5)]
    assert "\x1b" not in lines[0]
    assert 'value="value 2' in lines[0]
    assert show("s.t0.r0.c1") == []
    with pytest.raises(ReportError, match="'a word', which was made of no rows"):
        show("s.t0.r0.c3")
    with pytest.raises(ReportError, match="the function 'reflect' is not called"):
        show("s.t0.r0.c4")

    chosen = argparse.Namespace(address="s.t0.r0.c0", limit=2, json=True)
    rows.show(spark, report, landing.tables, chosen)
    said = capsys.readouterr()
    assert [json.loads(line)["source_offset"] for line in said.out.splitlines()] == [2, 3]
    assert "4 rows, as the report counted, 2 more: --limit 4" in said.err

    sound = report_of(landing.tables, *(cell for _, cell in list(report.cells())[:4]))
    wrong = rows.audit(spark, sound, landing.tables)
    assert len(wrong) == 1
    assert wrong[0].startswith("s.t0.r0.c2: 2 rows of plain, the report counted 9; where")
    assert "3 numbers from 3 sets of rows, 1 not as counted" in capsys.readouterr().err


def test_times_in_utc_and_nothing_that_is_no_json(monkeypatch: pytest.MonkeyPatch) -> None:
    """As Spark gives a row: times without a zone, meant in the machine's; bounds of double."""
    monkeypatch.setenv("TZ", "Asia/Shanghai")
    time.tzset()
    try:
        noon = datetime.datetime(2026, 11, 22, 20, 0)
        row = Row(event_time=noon, buckets=[Row(le=math.inf, count=2)], idle=math.nan)
        plain = rows._plain(row)
        text = json.dumps(plain, default=rows._text, allow_nan=False)
        assert json.loads(text)["event_time"] == "2026-11-22T12:00:00+00:00"
        assert json.loads(text)["buckets"] == [{"le": "Infinity", "count": 2}]
        assert 'event_time="2026-11-22T12:00:00+00:00"' in rows.line(plain)
    finally:
        monkeypatch.undo()
        time.tzset()


@pytest.mark.parametrize(
    ("argv", "says"),
    [
        (["FILE"], "give one number's ADDRESS, or --all"),
        (["FILE", "a.t0.r0.c0", "--all"], "give one number's ADDRESS, or --all"),
        (["FILE", "--all", "--limit", "0"], "a number from 1 on"),
    ],
)
def test_usage(argv: list[str], says: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert rows.main(argv) == EXIT_USAGE
    assert says in capsys.readouterr().err


def test_one_line_before_spark_starts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert rows.main([str(tmp_path / "none.json"), "--all"]) == 1
    assert "No such file" in capsys.readouterr().err
    path = tmp_path / "report.json"
    path.write_text("[]")
    assert rows.main([str(path), "--all"]) == 1
    path.write_text(report_of("r", asked("true", 1)).to_json())
    assert rows.main([str(path), "other.t0.r0.c0"]) == 1
    said = capsys.readouterr().err.splitlines()
    assert len(said) == 2
    assert "has no section other; it has s" in said[1]


@pytest.mark.parametrize(
    ("where", "found"),
    [
        ("event_date BETWEEN DATE'1970-01-02' AND DATE'1970-01-03' AND x = 1", (1, 3)),
        ("event_date BETWEEN DATE'1970-01-02' AND DATE'1970-01-03'", (1, 3)),
        ("event_date BETWEEN DATE'1970-01-02' AND DATE'1970-01-03' OR x = 1", None),
        ("event_date BETWEEN DATE'1970-01-02' AND DATE'1970-99-03'", None),
        ("x = 1 AND event_date BETWEEN DATE'1970-01-02' AND DATE'1970-01-03'", None),
    ],
)
def test_days_that_a_predicate_starts_with(where: str, found: tuple[int, int] | None) -> None:
    day = 24 * 3_600_000
    expected = None if found is None else (found[0] * day, found[1] * day)
    assert rows.dates(Rows("metrics", where, 1)) == expected
