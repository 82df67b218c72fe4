"""Every rule of the checker fails on a history that breaks it, and on that alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import pytest

from kbroker.types import TopicPartition
from tests.cluster.checker import check
from tests.cluster.history import INVALID, History, Record, record_of, value_of

PLACE: Final = TopicPartition("numbers", 0)
COUNT: Final = 6
Log = list[Record]


def sound() -> tuple[History, Log]:
    """Six records, acknowledged where they stand, read by a reader and by a group of two."""
    history = History()
    log = [history.send(PLACE, 7) for _ in range(COUNT)]
    for offset, record in enumerate(log):
        history.acknowledge(PLACE, record, offset)
        history.see("reader 1", PLACE, offset, value_of(record, 10))
    for member, first, end in (("member 1", 0, 4), ("member 2", 2, COUNT)):
        history.begin(member, PLACE)
        for offset in range(first, end):
            history.see(member, PLACE, offset, value_of(log[offset]))
        if member == "member 1":
            history.commit(PLACE, 2)
    return history, log


def drop_the_last(history: History, log: Log) -> None:
    history.acknowledge(PLACE, history.send(PLACE, 7), COUNT)


def acknowledge_elsewhere(history: History, log: Log) -> None:
    history.acknowledge(PLACE, log[0], 3)


def store_twice(history: History, log: Log) -> None:
    log.append(log[2])
    history.see("reader 1", PLACE, COUNT, value_of(log[2]))
    history.see("member 1", PLACE, COUNT, value_of(log[2]))


def store_later(history: History, log: Log) -> None:
    late, early = history.send(PLACE, 8), history.send(PLACE, 8)
    for offset, record in enumerate((early, late), COUNT):
        log.append(record)
        history.see("reader 1", PLACE, offset, value_of(record))
        history.see("member 1", PLACE, offset, value_of(record))


def acknowledge_what_was_sent_later_below(history: History, log: Log) -> None:
    """Of one that sends each record once: their order is its own affair, its answers are not."""
    history.sends_once(8)
    late, early = history.send(PLACE, 8), history.send(PLACE, 8)
    for offset, record in enumerate((early, late), COUNT):
        log.append(record)
        history.acknowledge(PLACE, record, offset)
        history.see("reader 1", PLACE, offset, value_of(record))
        history.see("member 1", PLACE, offset, value_of(record))


def store_what_nobody_sent(history: History, log: Log) -> None:
    log.append(Record(7, COUNT))
    history.see("reader 1", PLACE, COUNT, value_of(log[-1]))
    history.see("member 1", PLACE, COUNT, value_of(log[-1]))


def read_beyond_the_end(history: History, log: Log) -> None:
    history.see("reader 1", PLACE, COUNT, value_of(history.send(PLACE, 7)))


def read_something_else(history: History, log: Log) -> None:
    history.see("member 2", PLACE, 1, value_of(log[2]))


def read_with_a_hole(history: History, log: Log) -> None:
    for offset in (0, 1, 3, 4, 5):
        history.see("reader 2", PLACE, offset, value_of(log[offset]))


def stop_reading(history: History, log: Log) -> None:
    for offset in range(COUNT - 1):
        history.see("reader 2", PLACE, offset, value_of(log[offset]))


def leave_one_to_nobody(history: History, log: Log) -> None:
    record = history.send(PLACE, 7)
    log.append(record)
    history.see("reader 1", PLACE, COUNT, value_of(record))


def begin_before_the_commit(history: History, log: Log) -> None:
    history.commit(PLACE, 5)
    history.begin("member 3", PLACE)
    history.see("member 3", PLACE, 4, value_of(log[4]))


def commit_what_is_not_there(history: History, log: Log) -> None:
    history.commit(PLACE, COUNT + 1)


def tell_less_than_committed(history: History, log: Log) -> None:
    history.commit(PLACE, 5)
    for at in (5, 6, 4):
        history.see_committed(PLACE, history.committed_of(PLACE), at)


def refuse_one(history: History, log: Log) -> None:
    history.refuse(f"{history.send(PLACE, 7)}: OUT_OF_ORDER_SEQUENCE_NUMBER")


PLANTED: Final[dict[Callable[[History, Log], None], str]] = {
    drop_the_last: "lost moved",
    acknowledge_elsewhere: "moved",
    store_twice: "doubled",
    store_later: "reordered",
    acknowledge_what_was_sent_later_below: "fell",
    store_what_nobody_sent: "invented",
    read_beyond_the_end: "read then gone",
    read_something_else: "read then gone",
    read_with_a_hole: "skipped",
    stop_reading: "skipped",
    leave_one_to_nobody: "unread",
    begin_before_the_commit: "commit lost",
    commit_what_is_not_there: "commit lost",
    tell_less_than_committed: "commit went back",
    refuse_one: "refused",
}


def rules_broken(history: History, log: Log) -> list[str]:
    return list(dict.fromkeys(each.rule for each in check(history, {PLACE: log})))


def test_a_sound_history_breaks_no_rule() -> None:
    assert rules_broken(*sound()) == []


@pytest.mark.parametrize("plant", PLANTED, ids=lambda plant: plant.__name__)
def test_planted_faults_are_found(plant: Callable[[History, Log], None]) -> None:
    history, log = sound()
    plant(history, log)
    found = rules_broken(history, log)
    assert " ".join(found) == PLANTED[plant]


def test_every_rule_has_a_history_that_breaks_it() -> None:
    from tests.cluster.checker import RULES

    broken = {rule for rules in PLANTED.values() for rule in RULES if rule in rules}
    assert broken == {*RULES}


def test_records_of_a_producer_without_retries_may_be_out_of_order() -> None:
    history, log = sound()
    history.sends_once(8)
    store_later(history, log)
    assert rules_broken(history, log) == []


def test_many_violations_are_reported_in_few_lines() -> None:
    history, _ = sound()
    (*at, more) = [each.text for each in check(history, {PLACE: [Record(9, 0)] * 9})]
    assert len(at) < 40
    assert "more" in " ".join([*at, more])


def test_a_record_is_known_by_its_value() -> None:
    assert record_of(value_of(Record(3, 44), 17)) == Record(3, 44)
    assert record_of(b"something else") == record_of(None) == Record(INVALID, INVALID)


def test_progress_is_counted_after_the_mark() -> None:
    history, _ = sound()
    mark = history.mark()
    assert not history.gone_on(PLACE, mark)
    late = history.send(PLACE, 7)
    assert not history.gone_on(PLACE, mark)
    history.acknowledge(PLACE, late, COUNT)
    assert history.gone_on(PLACE, mark)
