"""20 kills of the streaming job and some of the broker: not a row lost or doubled."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.spark import kills

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(1800)]

SEED = 20261122
KILLS = 20  # each point twice


def test_not_a_row_is_lost_or_doubled(spark: SparkSession, tmp_path: Path) -> None:
    print(f"seed {SEED}")
    found = kills.Kills(tmp_path, KILLS, SEED, print).run(
        lambda run, bootstrap: kills.compare(spark, run, bootstrap)
    )
    print(found)
    assert found.points == {point: KILLS // len(kills.POINTS) for point in kills.POINTS}
    assert found.found.keys() >= {kills.LOGGED, kills.UNCOMMITTED, kills.UNFINISHED}
    assert found.broker_kills == KILLS // kills.BROKER_EVERY
    assert min(found.records, found.unreadable, found.repeats) > 0
