"""Which jars Spark's Kafka connector is, and what is said where they are not."""

from __future__ import annotations

from pathlib import Path

import pytest

from kbroker.errors import UserError
from spark_jobs import connector
from tests.support.source_tree import ROOT

JARS = (
    "spark-sql-kafka-0-10_2.13-4.2.0.jar",
    "spark-token-provider-kafka-0-10_2.13-4.0.0.jar",
    "kafka-clients-3.9.2.jar",
    "commons-pool2-2.13.1.jar",
)


@pytest.fixture(autouse=True)
def spark(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A Spark 4.2.0 with Scala 2.13, whether or not one is installed; an empty cache; no Maven."""
    monkeypatch.setattr(connector, "spark_version", lambda: "4.2.0")
    monkeypatch.setattr(connector, "scala_version", lambda: "2.13")
    monkeypatch.setenv("KBROKER_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("PATH", str(tmp_path))


def put(place: Path, *names: str) -> Path:
    place.mkdir(parents=True)
    for name in names:
        (place / name).touch()
    return place


def test_all_four_are_found_the_connector_first(tmp_path: Path) -> None:
    place = put(tmp_path / "cache" / "spark-4.2.0", *sorted(JARS), "other-1.0.jar")
    assert connector.find() == [place / name for name in JARS]


@pytest.mark.parametrize("missing", range(4))
def test_a_part_of_them_is_nothing(tmp_path: Path, missing: int) -> None:
    place = put(tmp_path / "jars", *(name for i, name in enumerate(JARS) if i != missing))
    assert connector.find(place) == []
    with pytest.raises(UserError, match=r"4\.2\.0's Kafka connector is not in"):
        connector.jars(place)


def test_the_way_out_names_both_ways() -> None:
    with pytest.raises(UserError) as raised:
        connector.jars()
    assert "python -m spark_jobs.connector" in raised.value.message
    assert "--source kbroker" in raised.value.message
    assert "\n" not in raised.value.message


def test_without_pyspark_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connector, "spark_version", lambda: None)
    assert connector.find() == []
    with pytest.raises(UserError, match="pyspark is not installed"):
        connector.fetch()


def test_the_command_without_maven_is_one_line_and_1(capsys: pytest.CaptureFixture[str]) -> None:
    assert connector.main([]) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == 1 and "no mvn on this machine" in err and "--list" in err


MAVEN = """\
\033[0m[ERROR] Failed to execute goal: org.apache.spark:a:jar:4.2.1 was not found -> [Help 1]
[ERROR]
[ERROR] To see the full stack trace of the errors, re-run Maven with the -e switch.
"""


def test_an_error_of_maven_is_one_line_with_ways_out(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of a Spark whose connector is not to be had."""
    monkeypatch.setattr(connector, "spark_version", lambda: "4.2.1")
    mvn = tmp_path / "mvn"
    mvn.write_text(f"#!/bin/sh\nprintf '%s' '{MAVEN}'\nexit 1\n")
    mvn.chmod(0o755)
    assert connector.main([]) == 1
    err = capsys.readouterr().err
    assert err.count("\n") == 1
    assert "Failed to execute goal: org.apache.spark:a:jar:4.2.1 was not found" in err
    assert "Help" not in err and "stack trace" not in err
    assert f"pip install pyspark=={connector.TRIED_VERSION}" in err and "--source kbroker" in err


def test_the_version_that_was_tried_is_the_one_that_is_pinned() -> None:
    pinned = (ROOT / "constraints.txt").read_text().splitlines()
    assert f"pyspark=={connector.TRIED_VERSION}" in pinned


def test_the_command_prints_the_value_of_jars(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place = put(tmp_path / "jars", *JARS)
    assert connector.main(["--directory", str(place)]) == 0
    assert capsys.readouterr().out == ",".join(str(place / name) for name in JARS) + "\n"


def test_the_list_has_the_versions_of_this_spark(capsys: pytest.CaptureFixture[str]) -> None:
    assert connector.main(["--list"]) == 0
    out = capsys.readouterr().out
    assert "org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0" in out
    assert "kafka-clients" in out and "commons-pool2" in out
