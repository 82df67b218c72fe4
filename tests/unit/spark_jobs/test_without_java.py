"""A machine without Java: every job says so in one line, before Spark's traceback would."""

from __future__ import annotations

from pathlib import Path

import pytest

from spark_jobs import maintain, report, stream

pytest.importorskip("pyspark")


@pytest.mark.parametrize("job", [maintain, report, stream])
def test_one_line_names_the_package_to_install(
    job: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    argv = ["--tables", str(tmp_path / "tables")]
    if job is stream:
        argv += ["--bootstrap-server", "127.0.0.1:1"]
    assert job.main(argv) == 1  # type: ignore[attr-defined]
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("error: Spark needs Java 17") and "apt-get" in line


def test_a_java_home_that_is_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Spark's launcher looks nowhere else, whatever is on the path."""
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert report.main(["--tables", str(tmp_path / "tables")]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"error: there is no Java in JAVA_HOME, {tmp_path}")
