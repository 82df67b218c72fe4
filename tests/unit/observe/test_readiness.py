"""Readiness: by phase, and by the state of the log directories."""

from __future__ import annotations

from pathlib import Path

from kbroker.observe.readiness import RUNNING, STARTING, STOPPING, Readiness


def failing(readiness: Readiness) -> list[tuple[str, str]]:
    return [(check.name, check.detail) for check in readiness.checks() if not check.ok]


def test_phases(tmp_path: Path) -> None:
    readiness = Readiness([str(tmp_path)])
    for phase in (STARTING, STOPPING):
        readiness.phase = phase
        assert failing(readiness) == [("kafka-requests", phase)]
    readiness.phase = RUNNING
    assert failing(readiness) == []
    assert readiness.running


def test_a_directory_that_is_gone(tmp_path: Path) -> None:
    gone = tmp_path / "gone"
    readiness = Readiness([str(tmp_path), str(gone)])
    assert failing(readiness) == [("kafka-requests", STARTING)]  # it may still be made
    readiness.phase = RUNNING
    assert failing(readiness) == [(f"log-dir {gone}", "is gone")]


def test_a_failure_that_is_tried_again_is_reported(tmp_path: Path) -> None:
    waiting = {"task log-cleaner": "OSError: no descriptors"}
    readiness = Readiness([str(tmp_path)], failing=lambda: waiting)
    readiness.phase = RUNNING
    ((name, detail),) = failing(readiness)
    assert name == "task log-cleaner" and detail.endswith("OSError: no descriptors")
    waiting.clear()
    assert failing(readiness) == []


def test_logs_that_are_still_to_be_read_are_reported_and_no_hindrance(tmp_path: Path) -> None:
    left = {tmp_path: 2}
    readiness = Readiness([str(tmp_path)])
    readiness.follow_directories((), tuple, lambda path: left[path])
    readiness.phase = RUNNING
    assert failing(readiness) == []
    assert readiness.checks()[-1].detail == "online; 2 logs are being recovered"
    left[tmp_path] = 0
    assert readiness.checks()[-1].detail == "online"


def test_a_directory_below_a_file(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    readiness = Readiness([str(tmp_path / "file" / "data")])
    readiness.phase = RUNNING
    ((_, detail),) = failing(readiness)
    assert detail.startswith("offline")
