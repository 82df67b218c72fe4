"""In-sync sets as their leader asks for them: who lags, who has caught up, who is waited for."""

from __future__ import annotations

import logging
import random
import uuid
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kbroker.clock import NS_PER_MS
from kbroker.errors import ErrorCode, KafkaError
from kbroker.replica import in_sync
from kbroker.replica.in_sync import (
    HOLD_MS_MAX,
    NEAR_MS,
    REFUSED_PAUSE_MS,
)
from kbroker.replica.leadership import set_leadership
from tests.support.led_log import open_led_log
from tests.support.record_batches import build_batch
from tests.support.standing_disk import standing
from tests.unit.replica.in_sync_rig import BROKERS, LAG_MS, LEADER, ONE, PARTITION, TWO, Rig


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig]:
    log = open_led_log(tmp_path / "words-0", "words", 0, uuid.UUID(int=1), {})
    yield Rig(log)
    log.close()


def test_a_log_that_is_being_changed_gets_its_role_when_that_is_over(rig: Rig) -> None:
    rig.lead(LEADER, ONE, TWO)
    with standing(("write", ".log")) as disk:
        writing = disk.begin(lambda: rig.log.append(build_batch()))
        # Nothing of the epoch that is led already waits for the write.
        disk.soon(lambda: rig.lead(LEADER, ONE, partition_epoch=8))
        assert rig.log.leader_epoch == 4 and disk.soon(rig.log.followers)[0][1]
        disk.soon(lambda: rig.lead(LEADER, ONE, partition_epoch=9, leader_epoch=5))
        assert rig.log.leader_epoch == 4
        rig.clock.advance(LAG_MS + 1)
        assert disk.soon(rig.look) == []  # of an epoch that has not begun nothing is asked
        assert rig.log.leader_epoch == 4
        disk.go_on()
        writing.result()
    rig.look()
    assert (rig.log.leader_epoch, rig.log.epochs.entries[-1]) == (5, (5, 1))


def test_a_follower_without_new_records_for_too_long_is_to_leave(rig: Rig) -> None:
    rig.lead(LEADER, ONE, TWO)
    rig.fill(3)
    rig.fetch(ONE, 3)
    rig.fetch(TWO, 2)
    rig.clock.advance(LAG_MS)
    assert rig.look() == []
    rig.clock.advance(1)
    assert rig.look() == [(LEADER, ONE)]
    (change,) = rig.asked[-1]
    assert change.in_sync == {LEADER: 10, ONE: 20}
    assert (change.leader_epoch, change.partition_epoch) == (4, 7)


def test_sets_in_effect_are_counted_and_not_requested_ones(rig: Rig) -> None:
    rig.lead(LEADER, ONE, TWO)
    rig.fill(3)
    rig.fetch(ONE, 3)
    rig.clock.advance(LAG_MS + 1)
    for _ in range(3):  # it is asked for until its outcome is known
        assert rig.look() == [(LEADER, ONE)]
        rig.answer(None)
    assert (rig.sets.shrinks, rig.sets.expands) == (0, 0)
    for epoch, isr, counted in (
        (8, (LEADER, ONE), (1, 0)),
        (8, (LEADER, ONE), (1, 0)),  # the same word once more
        (9, (LEADER, ONE, TWO), (1, 1)),
        (10, (LEADER,), (2, 1)),  # both died
    ):
        rig.lead(*isr, partition_epoch=epoch)
        assert (rig.sets.shrinks, rig.sets.expands) == counted


def test_a_set_that_is_settled_at_a_glance_is_so_in_detail(rig: Rig) -> None:
    """A thousand partitions at rest are passed over without a look at each follower."""
    dice = random.Random(5)
    at_a_glance = 0
    rig.lead(LEADER, ONE, TWO)
    rig.fill(2)
    for epoch in range(8, 1000):
        isr = (LEADER, *dice.choice(((ONE, TWO), (ONE, TWO), (ONE,), ())))
        brokers = {each: BROKERS[each] for each in BROKERS if dice.random() < 0.95}
        rig.clock.advance(dice.choice((0, 1, LAG_MS // 2, LAG_MS, 2 * LAG_MS)))
        rig.lead(*isr, partition_epoch=epoch)
        rig.fill(dice.choice((0, 0, 1)))
        for each in (ONE, TWO):
            if dice.random() < 0.8:
                rig.fetch(each, rig.log.log_end_offset - dice.choice((0, 0, 1)))
        (led,) = rig.sets._led.values()
        settled = led.is_settled(frozenset(brokers), rig.clock.monotonic_ns() - LAG_MS * NS_PER_MS)
        at_a_glance += settled
        if settled:
            assert {*rig.sets._wanted(led, brokers)} == {*isr}
    assert at_a_glance > 100


def test_a_follower_with_all_records_stays_however_long_nothing_comes(rig: Rig) -> None:
    rig.lead(LEADER, ONE, TWO)
    rig.fetch(ONE, 0)
    rig.fetch(TWO, 0)
    rig.clock.advance(100 * LAG_MS)
    assert rig.look() == []


def test_a_new_leader_gives_all_the_whole_time(rig: Rig) -> None:
    rig.clock.advance(10 * LAG_MS)
    rig.lead(LEADER, ONE, TWO)
    rig.fill(1)
    rig.clock.advance(LAG_MS)
    assert rig.look() == []
    rig.clock.advance(1)
    assert rig.look() == [(LEADER,)]


def test_a_leaver_is_waited_for_until_the_controller_has_said_so(rig: Rig) -> None:
    rig.lead(LEADER, ONE, TWO)
    rig.fill(3)
    rig.clock.advance(LAG_MS + 1)
    rig.fetch(ONE, 3)
    assert rig.look() == [(LEADER, ONE)]
    assert rig.log.high_watermark == 0
    rig.lead(LEADER, ONE, partition_epoch=8)
    assert rig.log.high_watermark == 3


def test_a_follower_that_has_caught_up_is_to_join_and_is_waited_for_from_then_on(rig: Rig) -> None:
    rig.lead(LEADER)
    rig.fill(3)
    assert rig.log.high_watermark == 3
    rig.fetch(ONE, 2)
    assert rig.look() == []
    rig.fetch(ONE, 3)
    assert rig.look() == [(LEADER, ONE)]
    rig.fill(2)
    assert rig.log.high_watermark == 3, "asked for, so it may be elected"
    rig.fetch(ONE, 5)
    assert rig.log.high_watermark == 5


def before_it_waits(
    rig: Rig, monkeypatch: pytest.MonkeyPatch, happens: Callable[[], object]
) -> None:
    """Once, between the look at the followers and the word to the log, as handlers do."""

    def applies(*how: Any) -> bool:
        monkeypatch.setattr(in_sync, "set_leadership", set_leadership)
        happens()
        return set_leadership(*how)

    monkeypatch.setattr(in_sync, "set_leadership", applies)


def test_a_follower_that_lags_again_before_it_is_waited_for_is_not_requested(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Elected, it would lead without a record that is committed."""
    rig.lead(LEADER)
    rig.fill(3)
    rig.fetch(ONE, 3)
    before_it_waits(rig, monkeypatch, lambda: rig.fill(1))
    assert rig.look() == []
    assert rig.log.high_watermark == 4
    rig.fetch(ONE, 4)
    assert rig.look() == [(LEADER, ONE)]


def test_a_follower_that_lags_again_keeps_no_other_from_joining(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig.lead(LEADER)
    rig.fill(3)
    rig.fetch(ONE, 3)
    rig.fetch(TWO, 3)
    before_it_waits(rig, monkeypatch, lambda: (rig.fill(1), rig.fetch(ONE, 4)))
    assert rig.look() == [(LEADER, ONE)]
    rig.fill(1)
    rig.fetch(ONE, 5)
    assert rig.log.high_watermark == 5, "nothing waits for a broker that was not asked for"


def behind_by_one(rig: Rig) -> None:
    """Two lacks nothing but what came while its fetch was under way; the leader and One are in
    sync, and what is appended is committed with One's fetch."""
    rig.lead(LEADER, ONE)
    rig.fill(3)
    rig.fetch(ONE, 3)
    for at in (3, 4):
        rig.clock.advance(1)
        rig.fetch(TWO, at)
        rig.fill(1)
        rig.fetch(ONE, at + 1)
    assert rig.log.high_watermark == 5


def test_the_high_watermark_waits_for_a_replica_that_is_about_to_reach_it(rig: Rig) -> None:
    """Or under load, which never stops, it would be reached by chance."""
    behind_by_one(rig)
    assert rig.look() == []  # and from now on it waits
    rig.fill(1)
    rig.fetch(ONE, 6)
    assert rig.log.high_watermark == 5
    rig.fetch(TWO, 5)
    assert rig.look() == [(LEADER, ONE, TWO)]
    rig.fetch(ONE, 6)
    assert rig.log.high_watermark == 5, "nor while it is asked for"
    rig.fetch(TWO, 6)
    assert rig.log.high_watermark == 6


def test_it_waits_a_second_at_most_and_then_not_for_a_while(rig: Rig) -> None:
    behind_by_one(rig)
    rig.look()
    rig.fill(1)
    rig.fetch(ONE, 6)
    for _ in range(HOLD_MS_MAX // 100):
        rig.clock.advance(100)
        rig.fetch(TWO, 4)  # it comes, and takes nothing in
        assert rig.look() == []
    rig.clock.advance(101)
    rig.look()
    rig.fetch(ONE, 6)
    assert rig.log.high_watermark == 6
    for at in (6, 7):
        rig.clock.advance(1)
        rig.fetch(TWO, at)
        rig.fill(1)
        rig.fetch(ONE, at + 1)
    rig.look()
    rig.fill(1)
    rig.fetch(ONE, 9)
    assert rig.log.high_watermark == 9, "not again so soon"


def test_it_waits_for_none_that_lags_far(rig: Rig) -> None:
    behind_by_one(rig)
    rig.clock.advance(NEAR_MS)
    rig.fetch(TWO, 4)
    rig.look()
    rig.fill(1)
    rig.fetch(ONE, 6)
    assert rig.log.high_watermark == 6


def test_a_follower_that_would_have_to_leave_at_once_does_not_join(rig: Rig) -> None:
    """It is beyond what the slowest member has, and still a long way from the leader's end."""
    rig.lead(LEADER, TWO)
    rig.fill(4)
    rig.clock.advance(LAG_MS + 1)
    rig.fetch(TWO, 4)
    rig.fill(4)
    rig.fetch(ONE, 5)
    assert rig.look() == []
    rig.fetch(ONE, 8)
    assert rig.look() == [(LEADER, ONE, TWO)]


def test_one_request_at_a_time(rig: Rig) -> None:
    rig.lead(LEADER)
    rig.fetch(ONE, 0)
    assert rig.look() == [(LEADER, ONE)]
    rig.fetch(TWO, 0)
    assert rig.look() == []
    rig.answer([rig.lead(LEADER, ONE, partition_epoch=8)])
    assert rig.look() == [(LEADER, ONE, TWO)]


def test_below_the_leaders_own_beginning_none_joins(rig: Rig) -> None:
    """The high watermark of a new leader may lie below records that its predecessor committed."""
    rig.lead(LEADER)
    rig.fill(5)
    rig.lead(LEADER, ONE, partition_epoch=8)
    rig.lead(LEADER, leader_epoch=5, partition_epoch=9)
    rig.log.set_high_watermark(0)
    rig.fetch(ONE, 4)
    assert rig.look() == []
    rig.fetch(ONE, 5)
    assert rig.look() == [(LEADER, ONE)]


@pytest.mark.parametrize("brokers", [{LEADER, TWO}, {LEADER, ONE, TWO}])
def test_the_dead_and_those_of_another_start_do_not_join(rig: Rig, brokers: set[int]) -> None:
    rig.lead(LEADER)
    rig.fetch(ONE, 0, broker_epoch=19)  # its start before
    assert rig.look({each: BROKERS[each] for each in brokers}) == []


def test_a_refused_follower_is_not_waited_for(rig: Rig) -> None:
    rig.lead(LEADER)
    rig.fetch(ONE, 0)
    assert rig.look() == [(LEADER, ONE)]
    rig.fill(1)
    assert rig.log.high_watermark == 0
    rig.answer([KafkaError(ErrorCode.INELIGIBLE_REPLICA)])
    assert rig.log.high_watermark == 1
    rig.fetch(ONE, 1)
    assert rig.look() == []
    rig.clock.advance(REFUSED_PAUSE_MS)
    assert rig.look() == [(LEADER, ONE)]


def test_a_refused_join_keeps_no_follower_that_lags_in_the_set(rig: Rig) -> None:
    rig.lead(LEADER, ONE)
    rig.fill(3)
    rig.fetch(ONE, 1)
    rig.clock.advance(LAG_MS + 1)
    rig.fetch(TWO, 3)
    for _ in range(2):  # it stays ineligible, and caught up
        assert rig.look() == [(LEADER, TWO)]
        rig.answer([KafkaError(ErrorCode.INELIGIBLE_REPLICA)])
        assert rig.look() == [(LEADER,)]
        rig.answer(None)
        rig.clock.advance(REFUSED_PAUSE_MS)
        rig.lead(LEADER, ONE, partition_epoch=8)
        rig.fetch(TWO, 3)


def test_each_refused_broker_waits_for_its_own_pause(rig: Rig) -> None:
    rig.lead(LEADER)
    rig.fetch(ONE, 0)
    assert rig.look() == [(LEADER, ONE)]
    rig.answer([KafkaError(ErrorCode.INELIGIBLE_REPLICA)])
    rig.fetch(TWO, 0)
    assert rig.look() == [(LEADER, TWO)]
    rig.answer([KafkaError(ErrorCode.INELIGIBLE_REPLICA)])
    assert rig.look() == []
    rig.clock.advance(REFUSED_PAUSE_MS)
    assert rig.look() == [(LEADER, ONE)]


def test_brokers_that_were_refused_together_are_asked_for_apart(
    rig: Rig, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "kbroker")
    rig.lead(LEADER)
    rig.fetch(ONE, 0)
    rig.fetch(TWO, 0)
    assert rig.look() == [(LEADER, ONE, TWO)]
    rig.answer([KafkaError(ErrorCode.INELIGIBLE_REPLICA)])
    for _ in range(3):  # neither is eligible
        rig.clock.advance(REFUSED_PAUSE_MS)
        for broker in (ONE, TWO):
            assert rig.look() == [(LEADER, broker)]
            rig.answer([KafkaError(ErrorCode.INELIGIBLE_REPLICA)])
        assert rig.look() == []
    assert len([each for each in caplog.records if each.levelno == logging.INFO]) == 3
    rig.clock.advance(REFUSED_PAUSE_MS)
    assert rig.look() == [(LEADER, ONE)]
    rig.answer([KafkaError(ErrorCode.INELIGIBLE_REPLICA)])
    assert rig.look() == [(LEADER, TWO)]
    rig.answer([None])
    rig.lead(LEADER, TWO, partition_epoch=8)
    rig.lead(LEADER, partition_epoch=9)
    rig.clock.advance(REFUSED_PAUSE_MS)
    rig.fetch(TWO, 0)
    assert rig.look() == [(LEADER, TWO)]  # it has been a member since
    rig.answer([None])


def test_a_repeated_refusal_has_one_line(rig: Rig, caplog: pytest.LogCaptureFixture) -> None:
    def is_refused() -> list[str]:
        caplog.clear()
        assert rig.look() == [(LEADER, ONE)]
        rig.answer([KafkaError(ErrorCode.INELIGIBLE_REPLICA)])
        rig.clock.advance(REFUSED_PAUSE_MS)
        return [each.getMessage() for each in caplog.records if each.levelno == logging.INFO]

    caplog.set_level(logging.INFO, "kbroker")
    rig.lead(LEADER)
    rig.fetch(ONE, 0)
    assert [len(is_refused()) for _ in range(3)] == [1, 0, 0]
    rig.fill(1)
    assert rig.look() == []  # it lacks something again, and does not join
    rig.fetch(ONE, 1)
    assert len(is_refused()) == 1
    rig.lead(LEADER, partition_epoch=8)
    assert len(is_refused()) == 1


def test_an_answer_that_was_lost_keeps_both_sets_and_asks_the_same_again(rig: Rig) -> None:
    rig.lead(LEADER)
    rig.fetch(ONE, 0)
    rig.look()
    rig.answer(None)
    rig.fill(1)
    assert rig.log.high_watermark == 0
    rig.fetch(TWO, 1)
    rig.look()
    assert rig.asked[1] == rig.asked[0]
    rig.answer([KafkaError(ErrorCode.INVALID_UPDATE_VERSION)])  # the first one was done
    assert rig.log.high_watermark == 0
    assert rig.look() == [(LEADER, ONE, TWO)]
    assert rig.log.high_watermark == 0
    rig.lead(LEADER, ONE, partition_epoch=8)
    rig.fetch(ONE, 1)
    assert rig.log.high_watermark == 1


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.KAFKA_STORAGE_ERROR,  # the store failed: perhaps it has it
        ErrorCode.UNKNOWN_SERVER_ERROR,  # the controller did, perhaps after the write
        ErrorCode.NOT_CONTROLLER,  # its session ended over the write
        ErrorCode.UNKNOWN_TOPIC_ID,
    ],
)
def test_a_follower_that_may_have_joined_is_waited_for(rig: Rig, code: ErrorCode) -> None:
    rig.lead(LEADER)
    rig.fetch(ONE, 0)
    rig.look()
    rig.answer([KafkaError(code)])
    rig.fill(1)
    assert rig.log.high_watermark == 0, "it may be elected"
    rig.look({LEADER: BROKERS[LEADER], TWO: BROKERS[TWO]})  # even if it has died meanwhile
    assert rig.asked[1] == rig.asked[0]
    rig.answer([KafkaError(ErrorCode.INELIGIBLE_REPLICA)])
    assert rig.log.high_watermark == 1


def test_the_controller_goes_away_after_an_answer_that_was_lost(rig: Rig) -> None:
    """It wrote the set, and died: what could not be sent again says nothing of the first."""
    rig.lead(LEADER)
    rig.fetch(ONE, 0)
    rig.look()
    rig.answer(None)
    rig.look()
    rig.answer([KafkaError(ErrorCode.NOT_CONTROLLER)])
    rig.fill(1)
    assert rig.log.high_watermark == 0
    rig.lead(LEADER, ONE, partition_epoch=8)
    assert rig.log.high_watermark == 0
    rig.fetch(ONE, 1)
    assert rig.log.high_watermark == 1


def test_one_partition_that_is_asked_for_again_keeps_no_other_waiting(
    rig: Rig, tmp_path: Path
) -> None:
    other = open_led_log(tmp_path / "words-1", "words", 1, uuid.UUID(int=1), {})
    rig.lead(LEADER)
    rig.fetch(ONE, 0)
    rig.look()
    rig.answer([KafkaError(ErrorCode.KAFKA_STORAGE_ERROR)])
    rig.sets.lead(other, replace(PARTITION, index=1, isr=(LEADER,)))
    other.note_fetch(TWO, 0, rig.clock.monotonic_ns(), broker_epoch=BROKERS[TWO].epoch)
    assert rig.look() == [(LEADER, ONE), (LEADER, TWO)]
    other.close()


def test_another_epoch_ends_a_requested_set(rig: Rig) -> None:
    rig.lead(LEADER)
    rig.fetch(ONE, 0)
    rig.look()
    rig.answer(None)
    rig.lead(LEADER, leader_epoch=5, partition_epoch=9)
    rig.fill(1)
    assert rig.log.high_watermark == 1
    assert rig.look() == []


def test_a_former_leader_requests_nothing(rig: Rig) -> None:
    rig.lead(LEADER)
    rig.fetch(ONE, 0)
    rig.sets.lead(rig.log, replace(PARTITION, leader=ONE, leader_epoch=5))
    assert rig.look() == []
    rig.lead(LEADER, leader_epoch=6, partition_epoch=10)
    rig.sets.forget([rig.log.topic_id])
    rig.fetch(ONE, 0)
    assert rig.look() == []


def test_an_earlier_topic_of_the_same_name_is_not_this_one(rig: Rig) -> None:
    """A deletion that could not be finished is repeated with each reading of the store."""
    rig.lead(LEADER)
    rig.fetch(ONE, 0)
    rig.sets.forget([uuid.UUID(int=2)])
    assert rig.look() == [(LEADER, ONE)]


def test_a_log_that_was_closed_and_opened_again_is_the_one_that_is_looked_at(
    rig: Rig, tmp_path: Path
) -> None:
    """Another topic of the same request could not be opened: all are closed and tried again."""
    rig.lead(LEADER)
    rig.log.close()
    rig.log = open_led_log(tmp_path / "words-0", "words", 0, uuid.UUID(int=1), {})
    rig.lead(LEADER)
    rig.fetch(ONE, 0)
    assert rig.look() == [(LEADER, ONE)]
