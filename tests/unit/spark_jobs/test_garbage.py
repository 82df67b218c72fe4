"""Garbage is distinguished from files being written by the ledger, not by a clock."""

from __future__ import annotations

import errno
import os
from dataclasses import replace
from pathlib import Path

import pytest

from spark_jobs.files import Entry, LocalFiles
from spark_jobs.garbage import collect
from spark_jobs.ledger import Commit, Ledger, LiveUnit, UnitGone, batch_key, now_ms

DAY = "2026-11-22"
DAY_MS = 24 * 3_600_000
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
    assert collect(opened(tmp_path), clock_set_ahead(), 0, dry_run=True) == 1
    assert left.exists() and writer.state().number == 1
    assert collect(opened(tmp_path), clock_set_ahead(), 0, dry_run=False) == 1
    assert not left.exists()
    with pytest.raises(UnitGone, match="taken for garbage while it was written"):
        writer.commit(batch(1))
    again = LiveUnit("batch-b", DAY, 1)
    assert writer.commit(batch(1, again)), "written again under another name"
    assert again in opened(tmp_path).state().units


def test_files_that_are_committed_meanwhile_stay(tmp_path: Path) -> None:
    class Slow(LocalFiles):
        """Between the look at the files and the end of it the writer commits."""

        def entries(self, uri: str) -> list[Entry]:
            found = super().entries(uri)
            if uri.endswith(f"event_date={DAY}"):
                opened(tmp_path).commit(batch())
            return found

    unit, garbage = write(tmp_path), write(tmp_path, "batch-left")
    assert collect(opened(tmp_path, Slow()), clock_set_ahead(), 0, dry_run=False) == 0
    assert unit.exists()
    assert collect(opened(tmp_path), clock_set_ahead(), 0, dry_run=False) == 1
    assert unit.exists() and not garbage.exists()


def test_removal_that_was_broken_off_is_ended_by_the_next(tmp_path: Path) -> None:
    class Killed(LocalFiles):
        def delete(self, uri: str) -> None:
            raise KeyboardInterrupt

    left = write(tmp_path)
    with pytest.raises(KeyboardInterrupt):
        collect(opened(tmp_path, Killed()), clock_set_ahead(), 0, dry_run=False)
    assert left.exists()
    assert collect(opened(tmp_path), clock_set_ahead() + 1000, 0, dry_run=False) == 1
    assert os.listdir(tmp_path / "metrics/data") == []
    assert opened(tmp_path).state().number == 1, "one commit gave it up"


def age(place: Path, at_ms: int) -> None:
    """Everything of the table was last written then."""
    for where, folders, names in os.walk(place):
        for name in (*folders, *names):
            os.utime(os.path.join(where, name), (at_ms / 1000, at_ms / 1000))


@pytest.mark.parametrize("committed", [True, False], ids=["dropped", "died"])
def test_files_that_a_clock_dated_far_ahead_go_a_day_after_it_was_put_right(
    tmp_path: Path, committed: bool
) -> None:
    now, ahead = now_ms(), now_ms() + 1000 * DAY_MS
    left = write(tmp_path)
    age(tmp_path, ahead if not committed else now)
    ledger = opened(tmp_path)
    ledger.commit(batch(0, LiveUnit("batch-before", DAY, 1)))
    if committed:
        ledger.commit(batch(1))
        ledger.commit(Commit("merge", "merge", ahead, drops=(UNIT.part,)))
    found = [collect(opened(tmp_path), at_ms, DAY_MS, dry_run=False)
             for at_ms in (now, now + DAY_MS // 2, now + DAY_MS + 1)]  # fmt: skip
    assert found == [0, 0, 1]
    assert not left.exists()
    if not committed:
        with pytest.raises(UnitGone):
            ledger.commit(batch(1))


@pytest.mark.parametrize("days", [-10, 10], ids=["back", "ahead"])
def test_readers_have_their_day_after_the_clock_was_set_and_the_ledger_folded(
    tmp_path: Path, days: int
) -> None:
    now = now_ms()
    ledger = opened(tmp_path)
    kept = [write(tmp_path, f"batch-{n}") for n in range(2)]
    age(tmp_path, now - 20 * DAY_MS)
    for n in range(2):
        ledger.commit(batch(n, LiveUnit(f"batch-{n}", DAY, 1)))
    ledger.commit(Commit("merge-0", "merge", now - days * DAY_MS, drops=(("batch-0", DAY),)))
    ledger.commit(Commit("merge-1", "merge", now, drops=(("batch-1", DAY),)))
    ledger.fold(now)
    collect(opened(tmp_path), now, DAY_MS, dry_run=False)
    assert kept[1].exists(), "it was dropped a moment ago"
    assert kept[0].exists() is (days < 0)


def test_part_of_a_unit_that_was_dropped_just_now_stays(tmp_path: Path) -> None:
    """Though it is not known any more when the other part was."""
    now, other = now_ms(), "2026-11-21"
    ledger, left = opened(tmp_path), write(tmp_path)
    (left / f"event_date={other}").mkdir()
    age(tmp_path, now - 20 * DAY_MS)
    both = (UNIT, LiveUnit(UNIT.unit, other, 1))
    ledger.commit(Commit(batch_key("q", 0), "batch", 1, both, topic="t", ranges={0: (0, 1)}))
    ledger.commit(Commit("merge-0", "merge", now - 9 * DAY_MS, drops=((UNIT.unit, other),)))
    ledger.fold(now)
    ledger.commit(Commit("merge-1", "merge", now, drops=(UNIT.part,)))
    assert collect(opened(tmp_path), now, DAY_MS, dry_run=False) == 0
    assert collect(opened(tmp_path), now + DAY_MS + 1, DAY_MS, dry_run=False) == 1
    assert not left.exists()


def test_a_unit_is_as_old_as_its_files_where_directories_have_no_time(tmp_path: Path) -> None:
    class Store(LocalFiles):
        """As S3A does it."""

        def entries(self, uri: str) -> list[Entry]:
            return [replace(one, modified_ms=now) if one.is_directory else one
                    for one in super().entries(uri)]  # fmt: skip

    now, left = now_ms(), write(tmp_path)
    age(tmp_path, now - 2 * DAY_MS)
    new = write(tmp_path, "batch-new")
    assert collect(opened(tmp_path, Store()), now, DAY_MS, dry_run=False) == 1
    assert new.exists() and not left.exists()


def test_a_full_disk_gets_its_room_back(tmp_path: Path) -> None:
    class Full(LocalFiles):
        def create(self, uri: str, data: bytes) -> bool:
            raise OSError(errno.ENOSPC, "No space left on device", uri)

    ledger = opened(tmp_path)
    dropped, died = write(tmp_path), write(tmp_path, "batch-died")
    ledger.commit(batch())
    ledger.commit(Commit("merge", "merge", 1, drops=(UNIT.part,)))
    with pytest.raises(OSError, match="No space left"):
        collect(opened(tmp_path, Full()), clock_set_ahead(), 0, dry_run=False)
    assert died.exists() and not dropped.exists()


def test_temporary_files_of_dead_writers_go(tmp_path: Path) -> None:
    """Of commits, and of a report that tried whether it can write."""
    ledger = opened(tmp_path)
    ledger.commit(batch())
    now = now_ms()
    for name, at_ms in {"old": now - 2 * DAY_MS, "ahead": now + 9 * DAY_MS, "new": now}.items():
        for place in ("metrics", "metrics/_ledger"):
            file = tmp_path / place / f".{name}.tmp"
            file.touch()
            os.utime(file, (at_ms / 1000, at_ms / 1000))
    assert collect(ledger, now, DAY_MS, dry_run=False) == 4
    assert [file.name for file in tmp_path.rglob("*.tmp")] == [".new.tmp"] * 2
