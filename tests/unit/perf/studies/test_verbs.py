"""The verbs of ladder and tune: what they refuse, and that help costs nothing."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from perf.studies.options import StudyRun
from perf.studies.study import Outcome


def _run(*words: str) -> subprocess.CompletedProcess[str]:
    """In a process of its own: a study moves the thread that runs it into another network."""
    line = [sys.executable, "-m", "perf.cli", *words]
    return subprocess.run(line, capture_output=True, text=True, timeout=60)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("ladder", "--designs", "loop,lift"), "lift: not a design; there are loop, threads"),
        (("ladder", "--write-page", "/nowhere/at/all"), "does not exist"),
        (("tune", "--knobs", "num.io.threads,volume"), "volume: not tried; there are num.network"),
        (("tune", "--knobs", "num.io.threads", "--write-effects"), "needs all of the settings"),
        (("tune", "--rounds", "0"), "--rounds"),
        (("ladder", "--results-bootstrap", "here"), "'here' is not HOST:PORT"),
        (("tune", "--knobs", "log.flush.interval.messages@kafka"), "not tried"),
    ],
)
def test_a_wrong_option_is_said_before_anything_starts(words: tuple[str, ...], said: str) -> None:
    found = _run(*words)
    assert found.returncode == 2 and said in found.stderr, found.stderr


@pytest.mark.parametrize("verb", ["ladder", "tune"])
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
    outcome = Outcome("tune", (), 1, {"cpus": 2, "model": "made up"})
    outcome.journal = tmp_path / "tune-1.jsonl"
    outcome.journal.touch()
    running = StudyRun("tune", options)
    running._results = _Broken()  # type: ignore[assignment]
    running.end(outcome, [], {}, [])
    assert outcome.journal.exists()
    with pytest.raises(OSError):
        StudyRun("tune", {**options, "json_to": str(tmp_path / "no" / "x")}).end(
            outcome, [], {}, []
        )
    assert outcome.journal.exists()
    StudyRun("tune", options).end(outcome, [], {}, [])
    assert not outcome.journal.exists()
