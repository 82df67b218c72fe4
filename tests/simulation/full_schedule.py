"""The calm histories among those of one seed after the other: every broker's disk is nearly full.

No other fault happens in them, and `elections.py` looks at them. They are drawn from the seed by
themselves, so that all other histories are as they were.
"""

from __future__ import annotations

import random
from typing import Final

from tests.simulation.act import Act
from tests.simulation.cluster import BROKERS, GROUPS, PARTITIONS

CALM_MS: Final = 5_000
HOW_MANY: Final = 0.03


def full_schedule_of(seed: int) -> tuple[list[Act], int] | None:
    """Acts, and the time at which they end; None for most seeds."""
    dice = random.Random(f"full {seed}")
    if dice.random() >= HOW_MANY:
        return None
    acts = []
    for at_ms in range(50, CALM_MS, 100):
        how = (dice.choice((0, 0, 1, 2, 3)), dice.randrange(PARTITIONS))
        acts.append(Act(at_ms + dice.randrange(100), "produce", how))
    for at_ms in range(100, CALM_MS, 500):
        acts.append(Act(at_ms, "commit", (dice.randrange(len(GROUPS)),)))
        acts.append(Act(at_ms, "consume", (dice.randrange(PARTITIONS),)))
    begins_ms = dice.randint(300, 900)
    for node_id in dice.sample(BROKERS, dice.choice((1, 2, 3, 3, 3))):
        at_ms = begins_ms + dice.randrange(400)
        acts.append(Act(at_ms, "nearly_full", (node_id, CALM_MS - at_ms)))
    return sorted(acts), CALM_MS
