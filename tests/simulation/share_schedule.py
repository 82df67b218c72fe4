"""The acts on share groups in a history: drawn from dice of their own, so that all other acts are
the same with them and without.
"""

from __future__ import annotations

import random

from tests.simulation.act import Act
from tests.simulation.cluster import BROKERS, PARTITIONS, SHARES
from tests.simulation.fault_points import FAULTS, POINTS, SHARE_POINTS
from tests.simulation.share_acts import MEMBERS


def shares_of(seed: int, end_ms: int) -> list[Act]:
    """Of this history."""
    dice = random.Random(f"shares {seed}")
    acts = [Act(0, "serve_shares", (dice.choice((1, 1, 2)),))]
    for member in range(len(MEMBERS)):
        acts += _life(dice, end_ms, member)
    for _ in range(dice.choice((0, 1, 2, 4))):
        acts.append(_fault(dice, end_ms))
    for _ in range(dice.choice((0, 0, 1, 3))):
        acts += _moved(dice, end_ms)
    for _ in range(dice.choice((0, 0, 1, 2))):
        how = dice.randrange(PARTITIONS), dice.choice((10, 50, 90, 100, 0))
        acts.append(Act(dice.randrange(end_ms), "delete_records", how))
    return acts


def _life(dice: random.Random, end_ms: int, member: int) -> list[Act]:
    """It comes early, and perhaps goes and comes again."""
    at_ms, acts = dice.randint(50, end_ms // 2), []
    for _ in range(dice.choice((1, 1, 2, 3))):
        acts.append(Act(at_ms, "share", (member,)))
        at_ms += dice.choice((dice.randint(20, 300), dice.randint(300, 3_000)))
        acts.append(Act(at_ms, "unshare", (member, int(dice.random() < 0.4))))
        at_ms += dice.choice((1, 50, dice.randint(50, 1_000)))
    return acts if dice.random() < 0.5 else acts[:-1]


def _fault(dice: random.Random, end_ms: int) -> Act:
    """A broker fails at a step."""
    for_ms = round(dice.choice((30, 200, 1_000, 2_500)) * dice.uniform(0.5, 1.5))
    delay_ms = dice.choice((0, 0, 0, dice.randint(1, 5)))
    how = POINTS.index(dice.choice(SHARE_POINTS)), dice.randrange(len(FAULTS)), delay_ms, for_ms
    return Act(dice.randrange(end_ms), "arm", how)


def _moved(dice: random.Random, end_ms: int) -> list[Act]:
    """Others coordinate the states, or lead a partition, and perhaps back at once."""
    at_ms, acts = dice.randrange(end_ms), []
    index = dice.choice((SHARES, SHARES, *range(PARTITIONS)))
    for _ in range(dice.choice((1, 1, 2, 3))):
        acts.append(Act(at_ms, "reassign", (index, *dice.sample(BROKERS, 3))))
        acts.append(Act(at_ms + 3, "prefer", (index,)))
        at_ms += dice.choice((dice.randint(5, 60), dice.randint(20, 600)))
    return acts
