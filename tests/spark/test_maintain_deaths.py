"""Maintenance that is ended at each of its steps, that is there twice, whose clock is set."""

from __future__ import annotations

from datetime import date, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from spark_jobs import maintain as job
from spark_jobs import tables
from spark_jobs.schema import METRICS, TABLES
from tests.spark.deaths import COMMITS, FIRST, STEPS, Death, World
from tests.spark.things import THINGS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(600)]


@pytest.fixture
def world(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    """Two small parts of a day, one of the next, two of the quarantine, samples of both days;
    a fold after every third commit."""
    monkeypatch.setitem(TABLES, "things", THINGS)
    monkeypatch.setattr(job, "FOLD_AFTER", 3)
    made = World(spark, tmp_path)
    made.land_things(0, 1, unreadable=1)
    made.land_things(0, unreadable=1)
    made.land_samples(0, 1)
    return made


def test_ended_at_each_of_its_steps(world: World) -> None:
    """Each maintenance dies at the first step that none has died at, the next one goes on."""
    died: list[str] = []

    def at(step: str) -> None:
        if step in STEPS and step not in died:
            died.append(step)
            raise Death

    while not world.maintain(at):
        world.check(FIRST)
    assert world.state(METRICS.name).expired == world.state("things").expired == {FIRST}
    while set(died) < STEPS:
        world.days += 1.1
        world.maintain(at)
        world.check(FIRST)
        assert len(world.said) < 100, died
    world.finish()
    world.check(FIRST)
    world.check_done()
    assert not any("not maintained" in line for line in world.said)


def test_two_at_once(world: World) -> None:
    """Before each commit of the one the other makes the same, and is ended then; in the middle of
    a removal it does all there is to be done."""
    met: list[str] = []

    def at(step: str) -> None:
        what, _, when = step.rpartition(" ")
        if when != "begun" or step in met or step not in STEPS:
            return
        met.append(step)

        def other(other_step: str) -> None:
            if what in COMMITS and other_step == f"{what} committed":
                raise Death

        assert world.maintain(other) is (what not in COMMITS), step
        world.check(FIRST)

    while len(met) < len(COMMITS) + 1:
        assert world.maintain(at)
        world.check(FIRST)
        world.days += 1.1
        assert world.days < 9, met
    refused = [line for line in world.said if "another maintenance is running; try again" in line]
    assert [line.split(":")[0] for line in refused] == ["hourly", "metrics"]
    assert not any("not maintained" in line or "\n" in line for line in world.said)
    world.finish()
    world.check(FIRST)
    world.check_done()


def test_a_clock_that_is_set_ahead_and_back(world: World) -> None:
    """By ten days: the rows of those days expire early. All else is as if it had not been."""
    assert world.maintain()
    raw_days = world.raw_days
    early = [str(date.fromisoformat(FIRST) + timedelta(days)) for days in range(1 + 10)]
    for turn, days in enumerate((10, 0, -10, 0)):
        if turn == 1:
            world.land_samples(6)  # of a date that would have expired, but had no rows
        world.land_things(40)
        world.age(20)  # so that only the ledger knows the files that are needed
        reader = tables.read(world.spark, world.root, "things", repeats=True)
        seen = reader.count()
        world.days = days
        assert world.maintain(raw_days=raw_days)
        world.check(*early)
        if days <= 0:
            assert reader.count() == seen, "what was dropped just now may still be read"
    world.days = 0
    world.finish()
    world.check(*early)
    world.check_done()
