"""A table's ledger: numbered files, each created once, and the state that follows from them."""

from __future__ import annotations

import errno
import json
import os
import threading
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kbroker.errors import InvariantError
from spark_jobs import ledger as module
from spark_jobs.files import LocalFiles
from spark_jobs.ledger import (
    Commit,
    Ledger,
    LedgerConflict,
    LedgerDamaged,
    LedgerError,
    LiveUnit,
    State,
    batch_key,
    new_unit,
)
from spark_jobs.ledger_json import commit_from, commit_json, fold_from, fold_json
from spark_jobs.ledger_state import DROPS_KEPT_MS, Book

DAY = "2026-11-22"
TOPIC, ID = "orders", "id-1"


def opened(place: Path) -> Ledger:
    return Ledger(LocalFiles(), str(place / "metrics"))


def batch(number: int, first: int, until: int, *, query: str = "q", partition: int = 0,
          topic_id: str = ID, topic: str = TOPIC) -> Commit:  # fmt: skip
    unit = LiveUnit(f"batch-{query}-{number}-{partition}", DAY, until - first)
    return Commit(batch_key(query, number), "batch", 1000 + number, (unit,), topic=topic,
                  topic_id=topic_id, ranges={partition: (first, until)},
                  max_event_time_ms=5000 + number)  # fmt: skip


def test_nothing_is_there_yet(tmp_path: Path) -> None:
    ledger = opened(tmp_path)
    assert ledger.state() == State()
    assert ledger.ends() == {}
    assert not ledger.committed(batch_key("q", 0))
    assert ledger.fold() is None


def test_a_batch_is_committed_once(tmp_path: Path) -> None:
    ledger = opened(tmp_path)
    assert ledger.commit(batch(0, 5, 8))
    assert not ledger.commit(batch(0, 5, 8))
    assert not opened(tmp_path).commit(batch(0, 8, 9))
    assert ledger.commit(batch(1, 8, 9))
    state = opened(tmp_path).state()
    assert state == ledger.state()
    assert state.number == 2
    assert [(unit.date, unit.rows) for unit in state.units] == [(DAY, 3), (DAY, 1)]
    assert state.ends == {TOPIC: (ID, {0: 9})}
    assert state.max_event_time_ms == 5001
    assert state.touched == {DAY: 2}


def test_a_ledger_sees_the_commits_of_others(tmp_path: Path) -> None:
    mine, theirs = opened(tmp_path), opened(tmp_path)
    assert mine.state().number == 0
    theirs.commit(batch(0, 0, 3))
    assert mine.committed(batch_key("q", 0))
    assert mine.commit(batch(1, 3, 4))
    assert theirs.ends() == {TOPIC: (ID, {0: 4})}


def test_ranges_follow_each_other(tmp_path: Path) -> None:
    ledger = opened(tmp_path)
    ledger.commit(batch(0, 0, 3))
    for first in (2, 4):
        with pytest.raises(
            LedgerConflict, match=f"orders-0: the table ends at offset 3, .* {first}"
        ):
            ledger.commit(batch(0, first, 9, query="another"))
    ledger.commit(batch(1, 100, 101, partition=1))  # a partition that is new begins anywhere
    assert ledger.commit(batch(0, 3, 9, query="another"))
    assert ledger.ends() == {TOPIC: (ID, {0: 9, 1: 101})}


def test_another_topic_of_the_same_name_is_refused_until_the_gap_is_accepted(
    tmp_path: Path,
) -> None:
    ledger = opened(tmp_path)
    ledger.commit(batch(0, 0, 30))
    anew = batch(0, 0, 5, query="anew", topic_id="id-2")
    with pytest.raises(LedgerConflict, match="the topic was re-created"):
        ledger.commit(anew)
    ledger.accept_gap(TOPIC, "id-2", {0: (30, 30)}, {0: 0}, "re-created")
    assert ledger.commit(anew)
    state = opened(tmp_path).state()
    assert state.ends == {TOPIC: ("id-2", {0: 5})}
    assert [(gap.topic_id, gap.ranges, gap.reason) for gap in state.gaps] == [
        (ID, {0: (30, 30)}, "re-created")
    ]


def test_records_that_retention_took_are_a_gap(tmp_path: Path) -> None:
    ledger = opened(tmp_path)
    ledger.commit(batch(0, 0, 30))
    ledger.commit(batch(1, 0, 7, partition=1))
    ledger.accept_gap(TOPIC, ID, {0: (30, 55)}, {0: 55}, "retention")
    assert ledger.ends() == {TOPIC: (ID, {0: 55, 1: 7})}
    assert ledger.commit(batch(2, 55, 60))


def test_a_merge_takes_the_place_of_its_parts(tmp_path: Path) -> None:
    ledger = opened(tmp_path)
    ledger.commit(batch(0, 0, 3))
    ledger.commit(batch(1, 3, 7))
    small = ledger.state().units
    merged = LiveUnit(new_unit("merge"), DAY, 7, 2)
    merge = Commit("merge-1", "merge", 9, (merged,), drops=tuple(unit.part for unit in small))
    assert ledger.commit(merge)
    state = opened(tmp_path).state()
    assert state.units == (merged,)
    assert state.dropped == {unit.part: 9 for unit in small}
    assert state.touched == {DAY: 2}, "compaction brings no news"
    twice = Commit("merge-2", "merge", 9, (LiveUnit("merge-b", DAY, 7),), drops=merge.drops)
    with pytest.raises(LedgerConflict, match="not live"):
        ledger.commit(twice)
    assert not ledger.commit(merge)


def test_good_rows_and_those_set_aside_are_one_commit(tmp_path: Path) -> None:
    ledger = opened(tmp_path)
    good, aside = LiveUnit("batch-x", DAY, 2), LiveUnit("aside-x", DAY, 1)
    ledger.commit(Commit(batch_key("q", 0), "batch", 1, (good,), (aside,), topic=TOPIC,
                         ranges={0: (0, 4)}))  # fmt: skip
    assert len(list((tmp_path / "metrics/_ledger").iterdir())) == 1
    assert opened(tmp_path).state().quarantine == (aside,)
    again = Commit(batch_key("q", 1), "batch", 1, (LiveUnit("batch-y", DAY, 2),), (good,))
    with pytest.raises(InvariantError, match="used twice"):
        ledger.commit(again)


def test_writers_at_once_commit_one_after_the_other(tmp_path: Path) -> None:
    """Each of four has a partition of its own; every number is had once and nothing is lost."""
    each, failed = 25, []

    def write(writer: int) -> None:
        ledger = opened(tmp_path)
        try:
            for n in range(each):
                assert ledger.commit(batch(n, n, n + 1, query=f"w{writer}", partition=writer))
        except Exception as error:
            failed.append(error)

    threads = [threading.Thread(target=write, args=(writer,)) for writer in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert failed == []
    state = opened(tmp_path).state()
    assert state.number == 4 * each == len(state.units)
    assert state.ends == {TOPIC: (ID, {writer: each for writer in range(4)})}
    assert state.batches == {f"w{writer}": each - 1 for writer in range(4)}


def test_one_of_two_writers_wins_the_same_range(tmp_path: Path) -> None:
    first, second = opened(tmp_path), opened(tmp_path)
    assert first.state() == second.state()
    assert first.commit(batch(0, 0, 4, query="one"))
    with pytest.raises(LedgerConflict, match="the table ends at offset 4, the batch begins at 0"):
        second.commit(batch(0, 0, 4, query="two"))


# --- folds --------------------------------------------------------------------------------------


def folded_away(ledger: Ledger) -> None:
    """A fold, and nothing before its own commit left: more than is ever removed."""
    ledger.fold()
    commits, _ = ledger.numbers()
    for number in commits[:-1]:
        ledger.files.delete(f"{ledger.directory}/{number:020d}.json")


def test_a_fold_replaces_earlier_commits(tmp_path: Path) -> None:
    ledger = opened(tmp_path)
    for n in range(5):
        ledger.commit(batch(n, n, n + 1))
    before = ledger.state()
    folded_away(ledger)
    assert opened(tmp_path).state() == before
    again = opened(tmp_path)
    assert not again.commit(batch(3, 3, 4)), "a batch that is only in the fold"
    assert again.commit(batch(5, 5, 6))
    assert opened(tmp_path).ends() == {TOPIC: (ID, {0: 6})}


def test_a_writer_that_slept_through_a_fold_does_not_begin_a_second_history(tmp_path: Path) -> None:
    slept, empty, awake = opened(tmp_path), opened(tmp_path), opened(tmp_path)
    assert empty.state().number == 0
    awake.commit(batch(0, 0, 1))
    assert slept.state().number == 1
    for n in range(1, 6):
        awake.commit(batch(n, n, n + 1))
    folded_away(awake)
    for ledger in (slept, empty):
        assert ledger.commit(batch(awake.state().number, awake.state().number,
                                   awake.state().number + 1))  # fmt: skip
    assert slept.state() == empty.state() == opened(tmp_path).state()
    assert slept.ends() == {TOPIC: (ID, {0: 8})}


def test_a_ledger_folds_itself_now_and_then(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And keeps no more than the two newest folds and the commits after the older one."""
    monkeypatch.setattr(module, "FOLD_EVERY", 8)
    ledger, slept = opened(tmp_path), opened(tmp_path)
    assert slept.state().number == 0
    for n in range(8 * 5 + 2):
        ledger.commit(batch(n, n, n + 1))
        assert len(os.listdir(tmp_path / "metrics/_ledger")) <= 2 * 8 + 3
    assert ledger.numbers() == (list(range(32, 43)), [32, 40])
    assert opened(tmp_path).state() == ledger.state() == slept.state()


def test_files_of_years_go_in_bounded_steps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger = opened(tmp_path)
    for n in range(9):
        ledger.commit(batch(n, n, n + 1))
    monkeypatch.setattr(module, "REMOVED_MAX", 3)
    ledger.fold()
    for n in range(9, 12):
        ledger.commit(batch(n, n, n + 1))
        ledger.fold()
    assert ledger.numbers() == ([10, 11, 12], [9, 10, 11, 12])
    assert opened(tmp_path).state() == ledger.state()


def test_a_fold_that_finds_no_room_undoes_no_commit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Full(LocalFiles):
        def create(self, uri: str, data: bytes) -> bool:
            if ".fold." in uri:
                raise OSError(errno.ENOSPC, "No space left on device")
            return super().create(uri, data)

    monkeypatch.setattr(module, "FOLD_EVERY", 2)
    ledger = Ledger(Full(), str(tmp_path / "metrics"))
    for n in range(3):
        assert ledger.commit(batch(n, n, n + 1))
    assert opened(tmp_path).ends() == {TOPIC: (ID, {0: 3})}


def test_dropped_units_are_forgotten_after_days(tmp_path: Path) -> None:
    ledger = opened(tmp_path)
    for n in range(3):
        ledger.commit(batch(n, n, n + 1))
    first, second, _ = (unit.part for unit in ledger.state().units)
    ledger.commit(Commit("merge-1", "merge", 9, drops=(first,)))
    later = 10 + DROPS_KEPT_MS
    ledger.commit(Commit("merge-2", "merge", later, drops=(second,)))
    ledger.fold(later)
    assert opened(tmp_path).state().dropped == ledger.state().dropped == {second: later}


def test_a_drop_of_before_the_clock_was_set_back_is_not_forgotten(tmp_path: Path) -> None:
    """Nor is one of after it: the newest is not the last."""
    ledger = opened(tmp_path)
    for n in range(2):
        ledger.commit(batch(n, n, n + 1))
    first, second = (unit.part for unit in ledger.state().units)
    ahead = 100 * DROPS_KEPT_MS
    ledger.commit(Commit("merge-1", "merge", ahead, drops=(first,)))
    ledger.commit(Commit("merge-2", "merge", 9, drops=(second,)))
    ledger.fold(10)
    assert opened(tmp_path).state().dropped == {first: ahead, second: 9}


def test_the_dates_that_expired_are_remembered_and_no_others(tmp_path: Path) -> None:
    ledger = opened(tmp_path)
    days = [f"2026-11-{day}" for day in (20, 21, 22)]
    units = [LiveUnit(f"batch-{day}", day, 1) for day in days]
    ledger.commit(Commit(batch_key("q", 0), "batch", 1, tuple(units), topic=TOPIC,
                         ranges={0: (0, 3)}))  # fmt: skip
    ledger.commit(Commit("merge-1", "merge", 2, (LiveUnit("merge-a", days[0], 1),),
                         drops=(units[0].part,)))  # fmt: skip
    ledger.commit(Commit("expire-1", "expire", 3, drops=(units[1].part,)))
    assert opened(tmp_path).state().expired == {days[1]}
    ledger.fold()
    folded_away(ledger)
    assert opened(tmp_path).state().expired == {days[1]}


def test_a_fold_of_before_these_dates_were_kept_had_a_bound() -> None:
    state = State(1, touched={"2026-11-20": 1, "2026-11-21": 1, "2026-11-22": 1})
    fold = json.loads(fold_json(state))
    del fold["expired"]
    fold["expired_before"] = "2026-11-22"
    found = fold_from(json.dumps(fold).encode(), "here")
    assert found.expired == {"2026-11-20", "2026-11-21"}


# --- files on the disk are untrusted ------------------------------------------------------------


def test_a_missing_commit_is_noticed(tmp_path: Path) -> None:
    ledger = opened(tmp_path)
    for n in range(4):
        ledger.commit(batch(n, n, n + 1))
    (tmp_path / "metrics/_ledger" / f"{3:020d}.json").unlink()
    with pytest.raises(LedgerDamaged, match=r"00003\.json is missing"):
        opened(tmp_path).state()


def test_files_that_are_none_of_ours_are_passed_over(tmp_path: Path) -> None:
    ledger = opened(tmp_path)
    ledger.commit(batch(0, 0, 1))
    for name in (".00000000000000000002.json.ab.tmp", "notes.txt", "2.json", f"{7:020d}.json.crc"):
        (tmp_path / "metrics/_ledger" / name).write_text("{")
    assert opened(tmp_path).state().number == 1


GOOD = json.loads(commit_json(batch(0, 0, 3)))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (b"", "not JSON"),
        (b"[" * 100_000, "not JSON"),
        (b"[]", "not an object"),
        (b'{"format":1}', "no kind"),
        ({"format": 2}, "format"),
        ({"kind": "novelty"}, "kind 'novelty'"),
        ({"key": 5}, "key is int"),
        ({"units": [["../../etc", DAY, 1, 1]]}, "not a unit's name"),
        ({"units": [["batch-x", "../..", 1, 1]]}, "not a date"),
        ({"units": [["batch-x", DAY, True, 1]]}, "not a whole number"),
        ({"units": [["batch-x", DAY, 1]]}, "not a list of 4"),
        ({"drops": ["batch-x"]}, "not a list of 2"),
        ({"ranges": {"-1": [0, 1]}}, "not a partition"),
        ({"ranges": {"0": [0, "1"]}}, "not a whole number"),
        ({"ranges": []}, "not dict"),
    ],
)
def test_a_damaged_commit_is_one_line(
    tmp_path: Path, change: bytes | dict[str, object], said: str
) -> None:
    data = change if isinstance(change, bytes) else json.dumps(GOOD | change).encode()
    place = tmp_path / "metrics/_ledger"
    place.mkdir(parents=True)
    (place / f"{1:020d}.json").write_bytes(data)
    with pytest.raises(LedgerDamaged, match=said) as raised:
        opened(tmp_path).state()
    assert "\n" not in str(raised.value)
    assert f"{1:020d}.json" in str(raised.value)


def test_a_damaged_fold_can_be_done_without(tmp_path: Path) -> None:
    ledger = opened(tmp_path)
    for n in range(3):
        ledger.commit(batch(n, n, n + 1))
        ledger.fold()
    place = tmp_path / "metrics/_ledger"
    for spoiled in (b"", b'{"format":1'):
        (place / Ledger.name(3, fold=True)).write_bytes(spoiled)
        with pytest.raises(LedgerDamaged, match=r"03\.fold\.json: it is not JSON") as raised:
            opened(tmp_path).state()
        assert "-> remove it" in raised.value.message
    (place / Ledger.name(3, fold=True)).unlink()
    assert opened(tmp_path).state() == ledger.state()


def test_a_file_that_is_far_too_large_is_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened(tmp_path).commit(batch(0, 0, 3))
    monkeypatch.setattr(module, "BYTES_MAX", 100)
    with pytest.raises(LedgerDamaged, match=r"1\.json: .* bytes are more than is ever written"):
        opened(tmp_path).state()


names = st.text(min_size=1, max_size=8)
offsets = st.integers(0, 2**63 - 1)
units = st.builds(
    LiveUnit,
    st.from_regex(r"[a-z][a-z0-9-]{0,20}", fullmatch=True),
    st.dates().map(str),
    offsets,
    st.integers(1, 9),
)
commits = st.builds(
    Commit,
    names,
    st.sampled_from(["batch", "gap", "merge", "expire"]),
    offsets,
    st.lists(units, max_size=3).map(tuple),
    st.lists(units, max_size=3).map(tuple),
    st.lists(units.map(lambda unit: unit.part), max_size=3).map(tuple),
    topic=names,
    topic_id=names,
    query=names,
    ranges=st.dictionaries(st.integers(0, 9), st.tuples(offsets, offsets), max_size=3),
    ends=st.dictionaries(st.integers(0, 9), offsets, max_size=3),
    late=offsets,
    max_event_time_ms=st.none() | offsets,
    reason=st.text(max_size=20),
    covers=st.dictionaries(st.dates().map(str), offsets, max_size=3),
)


@given(commits)
def test_commits_come_back_as_they_were_written(commit: Commit) -> None:
    assert commit_from(commit_json(commit), "here") == commit


@given(st.lists(commits, max_size=6))
def test_a_fold_goes_on_as_the_commits_would_have(found: list[Commit]) -> None:
    whole, half = Book(), Book()
    for commit in found[:3]:
        whole.add(commit)
        half.add(commit)
    half = Book(fold_from(fold_json(half.state()), "here"))
    half.keys = set(whole.keys)  # remembered since the last fold only
    for commit in found[3:]:
        whole.add(commit)
        half.add(commit)
    assert half.state() == whole.state()


def test_an_error_names_the_fix(tmp_path: Path) -> None:
    ledger = opened(tmp_path)
    ledger.commit(batch(0, 0, 3))
    with pytest.raises(LedgerError) as raised:
        ledger.commit(batch(0, 1, 3, query="x"))
    assert raised.value.fix


def test_no_table_has_a_column_that_its_directories_would_hide() -> None:
    """Spark takes the names of directories for columns, before those of the rows."""
    from spark_jobs import ledger, schema
    from spark_jobs.rollup import HOURLY

    every = (*schema.TABLES.values(), schema.PLAIN, schema.QUARANTINE, schema.LIVE, HOURLY)
    assert "unit" in schema.RESULTS.column_names
    for table in every:
        assert ledger.UNIT_COLUMN not in table.column_names, table.name
    assert ledger.unit_of(ledger.unit_directory("batch-1")) == "batch-1"
    assert ledger.unit_of("event_date=2026-11-22") is None
