"""The journal: what was appended is there again, damage is said, one writer at a time."""

from __future__ import annotations

from pathlib import Path

import pytest

from perf.studies.journal import LINE_BYTES_MAX, Journal, JournalError, plan_hash

PLAN = {"points": ["a", "b"], "rounds": 3}


def test_entries_are_there_again(tmp_path: Path) -> None:
    with Journal(tmp_path, "s", PLAN) as journal:
        assert journal.entries == []
        journal.append({"n": 1})
        journal.append({"n": 2})
    with Journal(tmp_path, "s", PLAN) as journal:
        assert journal.entries == [{"n": 1}, {"n": 2}]
        journal.append({"n": 3})
    with Journal(tmp_path, "s", dict(reversed(PLAN.items()))) as journal:
        assert [entry["n"] for entry in journal.entries] == [1, 2, 3]


def test_another_plan_has_another_file(tmp_path: Path) -> None:
    with Journal(tmp_path, "s", PLAN) as first, Journal(tmp_path, "s", {**PLAN, "rounds": 4}) as b:
        first.append({"n": 1})
        assert first.path != b.path
        assert b.entries == []
    assert plan_hash(PLAN) == plan_hash(dict(reversed(PLAN.items())))


@pytest.mark.parametrize("cut", [1, 5, 8])
def test_a_line_cut_by_a_crash_is_dropped(tmp_path: Path, cut: int) -> None:
    with Journal(tmp_path, "s", PLAN) as journal:
        journal.append({"n": 1})
        journal.append({"n": 2})
        path = journal.path
    path.write_bytes(path.read_bytes()[:-cut])
    with Journal(tmp_path, "s", PLAN) as journal:
        assert journal.entries == [{"n": 1}]
        journal.append({"n": 4})
    with Journal(tmp_path, "s", PLAN) as journal:
        assert journal.entries == [{"n": 1}, {"n": 4}]


def test_a_head_cut_by_a_crash_is_written_anew(tmp_path: Path) -> None:
    with Journal(tmp_path, "s", PLAN) as journal:
        path = journal.path
    path.write_bytes(path.read_bytes()[:10])
    with Journal(tmp_path, "s", PLAN) as journal:
        journal.append({"n": 1})
    with Journal(tmp_path, "s", PLAN) as journal:
        assert journal.entries == [{"n": 1}]


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (b"nonsense\n", "damaged in line 3"),
        (b"[1]\n", "damaged in line 3"),
        (b"[" * 100_000 + b"\n", "damaged in line 3"),
        (b'{"n": "' + b"x" * LINE_BYTES_MAX + b'"}\n', "damaged in line 3"),
        (b"\xff\xfe\n", "damaged in line 3"),
    ],
)
def test_damage_is_said_in_one_line(tmp_path: Path, damage: bytes, said: str) -> None:
    with Journal(tmp_path, "s", PLAN) as journal:
        journal.append({"n": 1})
        path = journal.path
    path.write_bytes(path.read_bytes() + damage + b'{"n": 2}\n')
    with pytest.raises(JournalError, match=said) as caught:
        Journal(tmp_path, "s", PLAN)
    assert "\n" not in str(caught.value) and "remove it" in str(caught.value)


def test_a_head_of_another_plan_is_refused(tmp_path: Path) -> None:
    with Journal(tmp_path, "s", PLAN) as journal:
        path = journal.path
    path.write_bytes(b'{"study": "s", "plan": "other"}\n')
    with pytest.raises(JournalError, match="does not begin with its plan"):
        Journal(tmp_path, "s", PLAN)


def test_one_writer_at_a_time(tmp_path: Path) -> None:
    with (
        Journal(tmp_path, "s", PLAN) as journal,
        pytest.raises(JournalError, match="is in use"),
    ):
        Journal(tmp_path, "s", PLAN)
    with Journal(tmp_path, "s", PLAN) as again:
        assert again.path == journal.path


def test_cleared_is_empty(tmp_path: Path) -> None:
    with Journal(tmp_path, "s", PLAN) as journal:
        journal.append({"n": 1})
        journal.clear()
        journal.append({"n": 2})
    with Journal(tmp_path, "s", PLAN) as journal:
        assert journal.entries == [{"n": 2}]


def test_an_entry_too_large_is_refused(tmp_path: Path) -> None:
    with Journal(tmp_path, "s", PLAN) as journal, pytest.raises(JournalError, match="an entry of"):
        journal.append({"n": "x" * LINE_BYTES_MAX})
