"""A leader learns of its followers' starts together with the in-sync sets that go with them."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kbroker.replica import in_sync
from kbroker.replica._replica import Replica
from kbroker.replica.leadership import set_leadership
from tests.support.led_log import open_led_log
from tests.unit.replica.in_sync_rig import (
    BROKERS,
    LEADER,
    ONE,
    PARTITION,
    TWO,
    Rig,
    assert_refused,
    image_of,
)


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig]:
    log = open_led_log(tmp_path / "words-0", "words", 0, uuid.UUID(int=1), {})
    yield Rig(log)
    log.close()


def test_a_restarted_follower_is_known_without_a_change_of_the_partition(rig: Rig) -> None:
    """It was not in sync, so nothing changed for the partition when it came back."""
    rig.sets.know(image_of(BROKERS))
    led = rig.lead(LEADER)
    later = {**BROKERS, ONE: replace(BROKERS[ONE], epoch=40)}
    rig.fetch(ONE, 0, broker_epoch=40)
    assert rig.look() == []  # its leader does not know that start
    rig.sets.know(image_of(later, led))
    assert_refused(rig, ONE, 20)
    assert rig.look(later) == [(LEADER, ONE)]


def test_a_start_that_ends_a_membership_is_not_known_before_the_set_without_it(rig: Rig) -> None:
    """The controller says both in one image. Between `know` and `lead` the new start would count
    as a member, and a record as committed that only the leader has."""
    rig.sets.know(image_of(BROKERS))
    rig.lead(LEADER, ONE)
    rig.fill(1)
    later = {**BROKERS, ONE: replace(BROKERS[ONE], epoch=40)}
    image = image_of(later, replace(PARTITION, isr=(LEADER,), partition_epoch=8))
    for _ in range(2):  # an image may be applied in parts, and once more
        rig.sets.know(image)
        assert_refused(rig, ONE, 40)
        # Whatever else is applied in between is of the image before.
        rig.fetch(TWO, 1)
        rig.look(later)
        assert_refused(rig, ONE, 40)
    assert rig.log.high_watermark == 0
    rig.lead(LEADER, partition_epoch=8)
    assert rig.log.high_watermark == 1
    rig.fetch(ONE, 1, broker_epoch=40)
    assert_refused(rig, ONE, 20)


def test_a_start_is_known_in_the_first_image_that_has_the_partition_as_it_is(rig: Rig) -> None:
    """An image with another state was given up before that was applied."""
    rig.sets.know(image_of(BROKERS))
    led = rig.lead(LEADER)
    later = {**BROKERS, ONE: replace(BROKERS[ONE], epoch=40)}
    rig.sets.know(image_of(later, replace(led, partition_epoch=8)))
    rig.fetch(ONE, 0)
    rig.sets.know(image_of(later, led))
    assert_refused(rig, ONE, 20)
    rig.fetch(ONE, 0, broker_epoch=40)


def test_a_lossy_start_is_not_known_while_it_is_a_member(rig: Rig) -> None:
    """The controller could not take it out: it cannot read the partition's state."""
    rig.sets.know(image_of(BROKERS))
    led = rig.lead(LEADER, ONE, TWO)
    rig.fill(1)
    lossy = {**BROKERS, ONE: replace(BROKERS[ONE], epoch=40, lossy=True)}
    rig.sets.know(image_of(lossy, led))
    assert_refused(rig, ONE, 40)
    rig.lead(LEADER, ONE, TWO)  # all is read and applied once more
    assert_refused(rig, ONE, 40)
    lossy[TWO] = replace(BROKERS[TWO], epoch=50)  # of which nothing is lost
    rig.sets.know(image_of(lossy, led))
    assert_refused(rig, ONE, 40)
    rig.fetch(TWO, 1, broker_epoch=50)
    assert rig.log.high_watermark == 0
    rig.sets.know(image_of({**lossy, ONE: replace(lossy[ONE], lossy=False)}, led))
    rig.fetch(ONE, 1, broker_epoch=40)
    assert rig.log.high_watermark == 1


def test_a_lossy_start_that_has_joined_again_is_known(rig: Rig) -> None:
    """Of another topic the controller still cannot read the state: the start is lossy for it."""
    rig.sets.know(image_of(BROKERS))
    rig.lead(LEADER, ONE)
    lossy = {**BROKERS, ONE: replace(BROKERS[ONE], epoch=40, lossy=True)}
    rig.sets.know(image_of(lossy, replace(PARTITION, isr=(LEADER,), partition_epoch=8)))
    rig.lead(LEADER, partition_epoch=8)
    rig.fetch(ONE, 0, broker_epoch=40)
    rig.sets.know(image_of(lossy, replace(PARTITION, isr=(LEADER, ONE), partition_epoch=9)))
    again = rig.lead(LEADER, ONE, partition_epoch=9)
    rig.fetch(ONE, 0, broker_epoch=40)
    rig.sets.know(image_of({**lossy, TWO: replace(BROKERS[TWO], epoch=50)}, again))
    rig.fetch(ONE, 0, broker_epoch=40)
    assert_refused(rig, TWO, 30)


def test_a_log_that_takes_no_epoch_keeps_no_other_from_hearing_of_starts(
    rig: Rig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = open_led_log(tmp_path / "broken-0", "broken", 0, uuid.UUID(int=2), {})
    rig.sets.know(image_of(BROKERS))
    of_broken = replace(PARTITION, topic="broken")
    rig.sets.lead(broken, of_broken)
    led = rig.lead(LEADER)

    def applied(node_id: int, replica: Replica, *how: Any) -> None:
        if replica is broken:
            raise OSError("the disk is full")
        set_leadership(node_id, replica, *how)

    monkeypatch.setattr(in_sync, "set_leadership", applied)
    later = {**BROKERS, ONE: replace(BROKERS[ONE], epoch=40)}
    rig.sets.know(image_of(later, led, of_broken))
    assert_refused(rig, ONE, 20)
    broken.close()
