"""The report job over a real table: the two files, its exit codes. Its numbers are
test_end_to_end.py's."""

from __future__ import annotations

import argparse
import errno
import os
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from kbroker.errors import UserError
from spark_jobs import report
from spark_jobs.errors import EXIT_ALARM, LostRange
from spark_jobs.files import LocalFiles
from spark_jobs.ledger import Ledger
from spark_jobs.sections import Made, overview, pipeline, silence
from spark_jobs.sections.inputs import Inputs
from spark_jobs.source import BrokerAway
from spark_jobs.tables import table_uri
from tests.spark import day_of_samples
from tests.spark.day_of_samples import BEGIN_MS, ROUND_MS

pytestmark = pytest.mark.spark

ROUNDS, PARTITIONS = 6, 5
UNTIL_MS = BEGIN_MS + ROUNDS * ROUND_MS


@pytest.fixture(scope="module")
def root(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> str:
    place = str(tmp_path_factory.mktemp("tables"))
    day_of_samples.write(spark, place, ROUNDS, PARTITIONS, hours=3)
    return place


def options(root: str, place: Path, *more: str) -> argparse.Namespace:
    return report.arguments([
        "--tables", root, "--out", str(place / "page" / "report.html"),
        "--until", datetime.fromtimestamp(UNTIL_MS / 1000, UTC).isoformat(), *more,
    ])  # fmt: skip


def silence_and_pipeline(inputs: Inputs, *_: object, **__: object) -> Made:
    made = (silence.section(inputs, silence.listen(inputs)), pipeline.section(inputs))
    return Made((overview.section(inputs, made), *made), ())


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_the_report_an_hour_after_the_broker_died(
    spark: Any, root: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing lands, because no broker answers: the report is made all the same, and is an alarm.

    Of its chapters only those that speak of it are made.
    """

    def away(*_: object) -> None:
        raise BrokerAway("127.0.0.1:9092: no answer; is the broker running?")

    monkeypatch.setattr(report, "_land", away)
    monkeypatch.setattr(report, "everything", silence_and_pipeline)
    ledger = Ledger(LocalFiles(), table_uri(root, "metrics"))
    end = ledger.ends()["__kbroker_metrics"][1][0]
    ledger.accept_gap("__kbroker_metrics", "id", {0: (end, end + 9)}, {0: end + 9}, "retention")
    later = options(root, tmp_path, "--bootstrap-server", "127.0.0.1:9092")
    later.until = UNTIL_MS + 3_600_000
    said: list[str] = []
    assert report.make(spark, later, later.until, said.append) == EXIT_ALARM
    page = (tmp_path / "page" / "report.html").read_text("utf-8")
    assert page.startswith("<!doctype html>")
    assert sorted(p.name for p in (tmp_path / "page").iterdir()) == ["report.html", "report.json"]
    first_page = page.partition("<main>")[0]
    for text in ("The topics could not be read: 127.0.0.1:9092: no answer",
                 "Nothing has landed for 1 h: what happened since is not known",
                 "__kbroker_metrics-0: records"):  # fmt: skip
        assert any(line.startswith(f"alarm: {text}") for line in said), said
        assert text in first_page


def test_records_that_come_while_it_lands_do_not_count_as_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Or a broker would be silent whose samples of these minutes were not asked for."""
    begun: list[int] = []

    def takes_time(*_: object) -> None:
        begun.append(time.time_ns() // 1_000_000)
        while time.time_ns() // 1_000_000 == begun[0]:
            pass

    monkeypatch.setattr(report, "_land", takes_time)
    given = options("tables", tmp_path, "--bootstrap-server", "127.0.0.1:9092")
    assert report._landed(None, given, print)["read_ms"] <= begun[0]  # type: ignore[arg-type]


@pytest.mark.slow
def test_an_operator_has_to_decide_about_records_that_are_gone(
    spark: Any, root: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def lost(*_: object) -> None:
        raise LostRange("gone")

    monkeypatch.setattr(report, "_land", lost)
    with pytest.raises(LostRange):
        report.make(spark, options(root, tmp_path, "--bootstrap-server", "b:9092"), UNTIL_MS, print)


@pytest.mark.parametrize(
    ("text", "ms"),
    [
        ("2025-11-25", BEGIN_MS),
        ("2025-11-25T01:00", BEGIN_MS + 3_600_000),
        ("2025-11-25T01:00:00+01:00", BEGIN_MS),
        ("36h", 100 * 86_400_000 - 36 * 3_600_000),
        ("7d", 93 * 86_400_000),
        ("1000d", 0),
    ],
)
def test_times(text: str, ms: int) -> None:
    assert report.moment_of(text, now_ms=100 * 86_400_000) == ms


@pytest.mark.parametrize("text", ["yesterday", "7", "-1h", "2025-13-01"])
def test_times_that_are_none(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="is no time: write"):
        report.moment_of(text)


def test_a_span_that_ends_before_it_begins(tmp_path: Path) -> None:
    given = options("tables", tmp_path, "--since", "2030-01-01")
    with pytest.raises(UserError, match="--since is not before --until"):
        report.span_of(given, UNTIL_MS)
    assert report.main(["--no-such-option"]) == 2


def test_a_page_that_its_own_json_would_overwrite(tmp_path: Path) -> None:
    given = options("tables", tmp_path, "--out", str(tmp_path / "report.json"))
    with pytest.raises(UserError, match="the page and its JSON would both be"):
        report.json_of(given)
    given = options("tables", tmp_path, "--json", str(tmp_path / "." / "page" / "report.html"))
    with pytest.raises(UserError, match="--out names the page"):
        report.json_of(given)


@pytest.mark.slow
def test_a_place_without_tables(spark: Any, tmp_path: Path) -> None:
    """A mistyped path must not make an empty report that looks well."""
    with pytest.raises(UserError, match="there are no tables in"):
        report.make(spark, options(str(tmp_path / "none"), tmp_path), UNTIL_MS, print)
    assert list(tmp_path.iterdir()) == []


def test_a_file_is_whole_or_not_there(tmp_path: Path) -> None:
    place = tmp_path / "a" / "file"
    report.write_whole(str(place), "old")
    with pytest.raises(UnicodeEncodeError):
        report.write_whole(str(place), "new \ud800")
    assert place.read_text() == "old"
    assert [p.name for p in place.parent.iterdir()] == ["file"]


def test_a_full_disk_is_a_line_and_leaves_the_old_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    place = tmp_path / "file"
    place.write_text("old")
    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(UserError, match=r"no room for .*file"):
        report.write_whole(str(place), "new")
    assert place.read_text() == "old" and [p.name for p in tmp_path.iterdir()] == ["file"]
