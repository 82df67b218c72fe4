"""The verbs of the studies: what they refuse, and when a journal goes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from perf.studies.options import StudyRun
from perf.studies.report import Report
from perf.studies.study import Outcome
from perf.studies.tune import Plan


def _run(*words: str) -> subprocess.CompletedProcess[str]:
    """In a process of its own: a study moves the thread that runs it into another network."""
    line = [sys.executable, "-m", "perf.cli", *words]
    return subprocess.run(line, capture_output=True, text=True, timeout=60)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("show", __file__, "--write-page", "/nowhere/at/all"), "does not exist"),
        (("tune", "--seconds", "nan"), "nan is no number"),
        (("compare", "--seconds", "-1"), "-1.0 is not in the range"),
        (("tune", "--knobs", "num.io.threads,volume"), "--knobs: volume: there are num.network"),
        (("latency-study", "--brokers", "kafka,kafka"), "each once"),
        (("tune", "--rounds", "0"), "--rounds"),
        (("tune", "--results-bootstrap", "here"), "'here' is not HOST:PORT"),
        (("tune", "--knobs", "log.flush.interval.messages@kafka"), "there are num"),
    ],
)
def test_a_wrong_option_is_said_before_anything_starts(words: tuple[str, ...], said: str) -> None:
    found = _run(*words)
    assert found.returncode == 2 and said in found.stderr, found.stderr


@pytest.mark.parametrize("verb", ["latency-study", "tune"])
def test_the_options_of_studies(verb: str) -> None:
    found = _run(verb, "--help")
    assert found.returncode == 0
    for option in ("--quick", "--rounds", "--json", "--results-bootstrap", "--fresh"):
        assert option in found.stdout


class _Broken:
    """Results that can be neither published nor kept in a file."""

    failed = ""

    def block(self, **_fields: object) -> None:
        return

    def verdict(self, *_words: str, **_fields: object) -> None:
        return

    def publish(self) -> bool:
        return False


def test_the_journal_goes_only_when_everything_is_written(tmp_path: Path) -> None:
    options = {"fresh": False, "target": None, "json_to": None}
    plan = Plan()
    machine = {"cpus": 2, "model": "made up", "kernel": 6, "python": 3, "commit": "", "when": ""}
    outcome = Outcome("tune", (), 1, machine)
    report = Report(outcome, "", (), ())
    outcome.journal = tmp_path / "tune-1.jsonl"
    outcome.journal.touch()
    running = StudyRun("tune", options)
    running._results = _Broken()  # type: ignore[assignment]
    running.end(outcome, plan, report)
    assert outcome.journal.exists()
    with pytest.raises(OSError):
        StudyRun("tune", {**options, "json_to": str(tmp_path / "no" / "x")}).end(
            outcome, plan, report
        )
    assert outcome.journal.exists()
    StudyRun("tune", options).end(outcome, plan, report)
    assert not outcome.journal.exists()
