"""The acts on transactions in a history: drawn from dice of their own, so that all other acts are
the same with them and without.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

from tests.simulation.act import Act
from tests.simulation.cluster import BROKERS, PARTITIONS, STATES
from tests.simulation.fault_points import (
    FAULTS,
    FIRST_FAULTS,
    FIRST_POINTS,
    MORE_FAULTS,
    MORE_POINTS,
    POINTS,
)
from tests.simulation.transaction_acts import FEW_EPOCHS, HOUR_MS, LEVEL, OLD, PRODUCERS

HAVE_TRANSACTIONS = 0.3  # of all histories


def transactions_of(seed: int, end_ms: int, *, always: bool = False) -> list[Act]:
    """Of this history; mostly none."""
    dice = random.Random(f"transactions {seed}")
    if dice.random() >= HAVE_TRANSACTIONS and not always:
        return []
    level = dice.choice((LEVEL, LEVEL, LEVEL, 1, 0))
    epochs = dice.choice((FEW_EPOCHS, FEW_EPOCHS, 0))
    acts = [Act(0, "serve_transactions", (dice.choice((1, 1, 2)), epochs, level))]
    if level < LEVEL or dice.random() < 0.1:
        to = LEVEL if level < LEVEL else 1
        acts.append(Act(dice.randrange(end_ms // 4, end_ms), "change_level", (to,)))
    for _ in range(dice.randint(15, 50)):
        producer = dice.choice((0, 0, 0, 0, 1, 2, 2))
        acts.append(Act(dice.randrange(end_ms), "transact", (producer,)))
    for _ in range(dice.randint(0, 3)):
        acts.append(Act(dice.randrange(end_ms), "crash", (dice.randrange(len(PRODUCERS)),)))
    for _ in range(dice.randint(8, 20)):
        acts.append(Act(dice.randrange(end_ms), "read_committed", (dice.randrange(PARTITIONS),)))
    for _ in range(dice.randint(3, 8)):
        acts.append(Act(dice.randrange(end_ms), "ask_transacted"))
    for _ in range(dice.choice((0, 1, 2, 4))):
        acts.append(_fault(dice, end_ms))
    for _ in range(dice.choice((0, 0, 1, 3))):
        acts += _moved(dice, end_ms)
    if dice.random() < 0.1:
        how = dice.choice(BROKERS), -HOUR_MS, dice.randint(200, 3_000)
        acts.append(Act(dice.randrange(end_ms), "step_clock", how))
    # Drawn last: the acts that schedules had before these are the same.
    for _ in range(dice.choice((0, 0, 1, 2))):
        points, faults = dice.choice(((MORE_POINTS, FAULTS), (POINTS, MORE_FAULTS)))
        acts.append(_fault(dice, end_ms, points, faults))
    for _ in range(dice.choice((0, 0, 1, 3))):
        acts += _hurried(dice, end_ms)
    if dice.random() < 0.05:
        how = dice.choice(BROKERS), HOUR_MS, dice.randint(200, 3_000)
        acts.append(Act(dice.randrange(end_ms), "step_clock", how))
    return acts


def _fault(
    dice: random.Random,
    end_ms: int,
    points: Sequence[str] = FIRST_POINTS,
    faults: Sequence[str] = FIRST_FAULTS,
) -> Act:
    """A broker fails at a step of a transaction, one of these."""
    for_ms = round(dice.choice((30, 200, 1_000, 2_500)) * dice.uniform(0.5, 1.5))
    delay_ms = dice.choice((0, 0, 0, dice.randint(1, 5)))
    point, fault = dice.randrange(len(points)), dice.randrange(len(faults))
    how = POINTS.index(points[point]), FAULTS.index(faults[fault]), delay_ms, for_ms
    return Act(dice.randrange(end_ms), "arm", how)


def _hurried(dice: random.Random, end_ms: int) -> list[Act]:
    """The marker of a transaction comes between the look at a batch of it and the append."""
    at_ms = dice.randrange(end_ms)
    how = OLD, dice.randint(3, 10), dice.choice((20, 50, 150, 400))
    return [Act(at_ms, "hurry", how), Act(at_ms + 1, "transact", (OLD,))]


def _moved(dice: random.Random, end_ms: int) -> list[Act]:
    """Others coordinate the ids, and perhaps back at once."""
    at_ms, acts = dice.randrange(end_ms), []
    for _ in range(dice.choice((1, 1, 2, 3))):
        acts.append(Act(at_ms, "reassign", (STATES, *dice.sample(BROKERS, 3))))
        acts.append(Act(at_ms + 3, "prefer", (STATES,)))
        at_ms += dice.choice((dice.randint(5, 60), dice.randint(20, 600)))
    return acts
