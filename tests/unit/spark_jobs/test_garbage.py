"""Garbage is told from what is being written by the ledger, not by a clock."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from spark_jobs.files import Entry, LocalFiles
from spark_jobs.garbage import collect
from spark_jobs.ledger import Commit, Ledger, LiveUnit, UnitGone, batch_key, now_ms

DAY = "2026-11-22"
UNIT = LiveUnit("batch-a", DAY, 1)


def opened(place: Path, files: LocalFiles | None = None) -> Ledger:
    return Ledger(files or LocalFiles(), str(place / "metrics"))


def write(place: Path, unit: str = UNIT.unit, date: str | None = DAY) -> Path:
    """A unit as a writer leaves it before it commits; no date: it has only just begun."""
    directory = place / f"metrics/data/ledger_unit={unit}"
    part = directory / (f"event_date={date}" if date else "_temporary")
    part.mkdir(parents=True)
    (part / "part-0.parquet").write_bytes(b"rows")
    return directory


def batch(number: int = 0, unit: LiveUnit = UNIT) -> Commit:
    return Commit(batch_key("q", number), "batch", 1, (unit,), topic="t",
                  ranges={0: (number, number + 1)})  # fmt: skip


def clock_set_ahead() -> int:
    """By which whatever was written a moment ago is of no use for a day."""
    return now_ms() + 1000


@pytest.mark.parametrize("date", [DAY, None], ids=["written", "begun"])
def test_a_writer_whose_files_were_taken_for_garbage_is_refused(
    tmp_path: Path, date: str | None
) -> None:
    writer = opened(tmp_path)
    writer.commit(batch(0, LiveUnit("batch-before", DAY, 1)))
    left = write(tmp_path, date=date)
    assert collect(opened(tmp_path), clock_set_ahead(), dry_run=True) == 1
    assert left.exists() and writer.state().number == 1
    assert collect(opened(tmp_path), clock_set_ahead(), dry_run=False) == 1
    assert not left.exists()
    with pytest.raises(UnitGone, match="taken for garbage while it was written"):
        writer.commit(batch(1))
    again = LiveUnit("batch-b", DAY, 1)
    assert writer.commit(batch(1, again)), "written again under another name"
    assert again in opened(tmp_path).state().units


def test_what_is_committed_meanwhile_stays(tmp_path: Path) -> None:
    class Slow(LocalFiles):
        """Between the look at the files and the end of it the writer commits."""

        def entries(self, uri: str) -> list[Entry]:
            found = super().entries(uri)
            if uri.endswith(f"event_date={DAY}"):
                opened(tmp_path).commit(batch())
            return found

    unit, garbage = write(tmp_path), write(tmp_path, "batch-left")
    assert collect(opened(tmp_path, Slow()), clock_set_ahead(), dry_run=False) == 0
    assert unit.exists()
    assert collect(opened(tmp_path), clock_set_ahead(), dry_run=False) == 1
    assert unit.exists() and not garbage.exists()


def test_removal_that_was_broken_off_is_ended_by_the_next(tmp_path: Path) -> None:
    class Killed(LocalFiles):
        def delete(self, uri: str) -> None:
            raise KeyboardInterrupt

    left = write(tmp_path)
    with pytest.raises(KeyboardInterrupt):
        collect(opened(tmp_path, Killed()), clock_set_ahead(), dry_run=False)
    assert left.exists()
    assert collect(opened(tmp_path), clock_set_ahead() + 1000, dry_run=False) == 1
    assert os.listdir(tmp_path / "metrics/data") == []
    assert opened(tmp_path).state().number == 1, "one commit gave it up"
