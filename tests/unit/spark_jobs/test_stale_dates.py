"""Which dates are to be rolled up: what expired decides it date by date, not up to a bound."""

from __future__ import annotations

import pytest

from spark_jobs.ledger import Commit, LiveUnit, batch_key
from spark_jobs.ledger_state import Book
from spark_jobs.rollup import stale_dates

FIRST, SECOND, THIRD = "2026-08-01", "2026-08-02", "2026-08-03"


def lands(book: Book, number: int, *dates: str) -> None:
    units = tuple(LiveUnit(f"batch-{number}", date, 1) for date in dates)
    book.add(Commit(batch_key("q", number), "batch", number, units, topic="t",
                    ranges={0: (number, number + 1)}))  # fmt: skip


@pytest.fixture
def raw() -> Book:
    """The second of three dates has expired; the others wait, as while their roll-up fails."""
    found = Book()
    lands(found, 0, FIRST, SECOND, THIRD)
    found.add(Commit("expire-1", "expire", 1, drops=(("batch-0", SECOND),)))
    return found


def test_a_date_whose_rows_expired_is_not_made_again_of_late_rows(raw: Book) -> None:
    """It would take the place of a roll-up of all its rows, though an older date still waits."""
    hourly = Book()
    hourly.add(Commit("hours-1", "merge", 1, covers={SECOND: 1}))
    lands(raw, 2, SECOND)
    assert list(stale_dates(raw.state(), hourly.state())) == [FIRST, THIRD]


def test_dates_that_had_no_rows_when_others_expired_are_made(raw: Book) -> None:
    """Of before what expired, and of a clock that was set ahead too."""
    lands(raw, 2, "2026-07-01", "2026-12-01")
    found = stale_dates(raw.state(), Book().state())
    assert list(found) == ["2026-07-01", FIRST, THIRD, "2026-12-01"]
