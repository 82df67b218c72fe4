"""The streaming job is killed, the broker now and then: no row is lost or doubled.

At one point for each state that a kill can leave; `python -m tests.spark.kills` tries all.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.spark import kills

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(1800)]

SEED = 20261122
KILLS = len(kills.OF_EACH_KIND)  # each once


def test_not_a_row_is_lost_or_doubled(spark: SparkSession, tmp_path: Path) -> None:
    print(f"seed {SEED}")
    found = kills.Kills(tmp_path, KILLS, SEED, print, kills.OF_EACH_KIND).run(
        lambda run, bootstrap: kills.compare(spark, run, bootstrap)
    )
    print(found)
    assert found.points == {point: 1 for point in kills.OF_EACH_KIND}
    assert found.found.keys() >= {kills.LOGGED, kills.UNCOMMITTED, kills.UNFINISHED}
    assert found.broker_kills == KILLS // kills.BROKER_EVERY
    assert min(found.records, found.unreadable, found.repeats) > 0
