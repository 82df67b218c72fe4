"""The reckoning itself: each thing that may not happen is found where it does."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.chaos import verify
from tests.chaos.consumers import began_in_a_library
from tests.chaos.journal import (
    ASSIGNED,
    COMMITTED,
    DONE,
    LOST,
    PRODUCED,
    REVOKED,
    Journal,
    Line,
    read,
    runs,
)
from tests.chaos.watch import Seen, State

SECOND = verify.SECOND_NS


def line(second: float, kind: str, *words: object) -> Line:
    return Line(int(second * SECOND), kind, tuple(map(str, words)))


def state(second: float, name: str, members: int = 2) -> State:
    return State(int(second * SECOND), name, members)


def seen(second: float, **offsets: int) -> Seen:
    return Seen(int(second * SECOND), {int(key[1:]): value for key, value in offsets.items()})


def processed(*lines: Line, **ends: int) -> list[str]:
    by_number = {int(key[1:]): value for key, value in ends.items()}
    all_of_it = verify.Processed()
    all_of_it.add(lines, by_number)
    return verify.not_processed(all_of_it, by_number)


def test_a_gap_is_found() -> None:
    assert processed(line(1, DONE, 0, 0, 4), line(2, DONE, 0, 6, 9), p0=10) == [
        "partition 0: 1 of 10 never processed: [5]"
    ]
    assert processed(line(1, DONE, 0, 0, 4), p0=5, p1=2) == [
        "partition 1: 2 of 2 never processed: [0, 1]"
    ]


def test_twice_is_no_gap() -> None:
    all_of_it = verify.Processed()
    all_of_it.add([line(1, DONE, 0, 0, 4), line(2, DONE, 0, 3, 9)], {0: 10})
    assert verify.not_processed(all_of_it, {0: 10}) == []
    assert (all_of_it.records, all_of_it.again) == (10, 2)


def test_an_answered_record_that_the_log_does_not_have() -> None:
    assert verify.not_stored([line(1, PRODUCED, 0, 9)], {0: 10}) == []
    assert len(verify.not_stored([line(1, PRODUCED, 0, 10)], {0: 10})) == 1


def test_a_commit_that_goes_back_or_beyond_the_end() -> None:
    rising = [seen(1, p0=-1), seen(2, p0=5), seen(3, p0=7)]
    assert verify.went_back(rising, {0: 7}) == []
    assert len(verify.went_back(rising, {0: 6})) == 1
    assert len(verify.went_back([*rising, seen(4, p0=6)], {0: 7})) == 1
    assert len(verify.went_back([*rising, seen(4, p0=-1)], {0: 7})) == 1


def test_an_answered_commit_that_is_not_returned() -> None:
    journals = {"a": [line(2, COMMITTED, "0:5")], "b": [line(3, COMMITTED, "0:8", "1:2")]}
    looks = [seen(1, p0=-1, p1=-1), seen(2.5, p0=5, p1=-1), seen(3.5, p0=8, p1=2)]
    assert verify.commits_lost(journals, looks) == []
    assert verify.commits_lost(journals, [seen(2.9, p0=4, p1=-1)]) != []
    assert verify.commits_lost(journals, [seen(3.1, p0=8, p1=1)]) != []
    assert verify.commits_lost(journals, [seen(2.9, p0=5, p1=-1)]) == []


REBALANCE = [
    *(state(0, "Stable"), state(10, "PreparingRebalance")),
    *(state(13, "CompletingRebalance"), state(15, "Stable")),
]
FED = {0: [int(t * SECOND) for t in range(20)]}


def test_a_partition_that_stays_is_read_on() -> None:
    reading = {"a": [line(1, ASSIGNED, 0, 1), line(12, DONE, 0, 3, 4)]}
    result, wrong = verify.stays(reading, REBALANCE, {}, FED)
    assert wrong == []
    assert (result.held, result.read, result.longest_pause_ns) == (1, 1, 3 * SECOND)


def test_a_partition_that_stays_and_is_not_read() -> None:
    idle = {"a": [line(1, ASSIGNED, 0), line(9, DONE, 0, 1, 2), line(16, DONE, 0, 3, 4)]}
    assert len(verify.stays(idle, REBALANCE, {}, FED)[1]) == 1
    assert verify.stays(idle, REBALANCE, {"a": [(11 * SECOND, 12 * SECOND)]}, FED)[1] == []
    assert verify.stays(idle, REBALANCE, {}, {})[1] == []
    moved = {"a": [line(1, ASSIGNED, 0), line(11, REVOKED, 0)]}
    assert verify.stays(moved, REBALANCE, {}, FED) == (verify.Stays(), [])
    lost = {"a": [line(1, ASSIGNED, 0), line(11, LOST, 0), line(12, ASSIGNED, 0)]}
    assert verify.stays(lost, REBALANCE, {}, FED) == (verify.Stays(), [])


def test_a_partition_given_back_and_had_again() -> None:
    for_nothing = {"a": [line(1, ASSIGNED, 0), line(11, REVOKED, 0), line(14, ASSIGNED, 0)]}
    assert len(verify.bounced(for_nothing, REBALANCE, {})) == 1
    passed_on = {
        "a": [line(1, ASSIGNED, 0), line(11, REVOKED, 0), line(14, ASSIGNED, 0)],
        "b": [line(12, ASSIGNED, 0), line(13, REVOKED, 0)],
    }
    assert verify.bounced(passed_on, REBALANCE, {}) == []


def test_a_journal_is_read_as_it_was_written(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    journal = Journal(path)
    journal.write(ASSIGNED, 0, 1)
    journal.done([(0, [5, 6, 7, 9]), (1, [])])
    journal.close()
    with open(path, "a", encoding="utf-8") as file:
        file.write("17 done 0 9")  # cut by a SIGKILL
    assert [(each.kind, each.words) for each in read(path)] == [
        (ASSIGNED, ("0", "1")),
        (DONE, ("0", "5", "7")),
        (DONE, ("0", "9", "9")),
    ]
    assert list(runs([])) == []


def error_of(*modules: str) -> BaseException:
    """Raised in the last of these modules, each of which was called by the one before."""
    call: tuple[str, dict[str, Any]] = ("raise ValueError", {"__name__": modules[-1]})
    for name in reversed(modules[:-1]):
        call = ("exec(*call)", {"__name__": name, "call": call})
    with pytest.raises(ValueError) as caught:
        exec(*call)
    return caught.value


@pytest.mark.parametrize(
    ("modules", "theirs"),
    [
        (("tests.chaos.consumers.aio", "aiokafka.consumer.fetcher"), True),
        (("tests.chaos.consumers.aio", "aiokafka.client", "asyncio.tasks"), True),
        (("tests.chaos.consumers.aio", "aiokafka.client", "tests.chaos.consumers.aio"), False),
        (("tests.chaos.consumers.aio", "asyncio.tasks"), False),
        (("tests.chaos.consumers.confluent",), False),
    ],
)
def test_whose_error_it_is(modules: tuple[str, ...], theirs: bool) -> None:
    assert began_in_a_library(error_of(*modules)) is theirs
