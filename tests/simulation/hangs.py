"""The schedules of brokers with threads: disks hang, beside all other faults or alone.

Half of these histories are those of `schedule.py`, with hung disks. The others are calm: one broker
is killed, or one controller is deposed, and there is no other fault, so that the disk causes every
delay. In some of the calm ones no disk hangs, and every broker has too little room for producers.
"""

from __future__ import annotations

import random
from typing import Final, NamedTuple

from tests.simulation.act import Act
from tests.simulation.cluster import ALL_LOGS, BROKERS, GROUPS, HOMES, PARTITIONS
from tests.simulation.schedule import schedule_of

# As long as a session and as a follower may lag, and longer than both together.
HANG_MS: Final = (300, 1_500, 3_000, 6_000)
CALM_MS: Final = 9_000
CALM_HANG_MS: Final = (4_000, 6_000)


class Hung(NamedTuple):
    """A schedule, the time at which its faults end, whether nothing but one disk is late, and the
    settings of topics in place of the defaults."""

    acts: list[Act]
    end_ms: int
    calm: bool
    settings: dict[str, int]


def schedule_with_hangs(seed: int) -> Hung:
    dice = random.Random(f"hangs {seed}")
    if dice.random() < 0.5:
        return Hung(sorted(_calm(dice)), CALM_MS, True, {})
    acts, end_ms = schedule_of(random.Random(f"schedule {seed}"), twice=False)
    acts = [act for act in acts if act.what != "twin"]  # a copy is made of files that stand still
    for _ in range(dice.randint(1, 4)):
        for_ms = round(dice.choice(HANG_MS) * dice.uniform(0.5, 1.5))
        acts.append(Act(dice.randrange(end_ms), "hang_disk", (*_place(dice), for_ms)))
    if dice.random() < 0.5:
        return Hung(sorted(acts), end_ms, False, {})
    for _ in range(dice.randint(1, 3)):
        acts += _two_flushes(dice, dice.randrange(end_ms))
    for at_ms in range(0, end_ms, 100):
        acts.append(Act(at_ms, "checkpoint", (dice.choice(BROKERS),)))
    return Hung(sorted(acts), end_ms, False, {"flush_messages": 1})


def _two_flushes(dice: random.Random, at_ms: int) -> list[Act]:
    """Of one log at once, of which one fails: mostly its first leader's."""
    index = dice.randrange(PARTITIONS)
    node_id = _leads_first(index) if dice.random() < 0.7 else dice.choice(BROKERS)
    acts = [
        Act(at_ms, "hang_syncs", (node_id, index, dice.randint(50, 400))),
        Act(at_ms, "fail_sync", (node_id, index)),
    ]
    for producer in dice.sample(range(4), 3):
        acts.append(Act(at_ms + dice.randrange(30), "produce", (producer, index)))
    return acts


def _place(dice: random.Random) -> tuple[int, int]:
    """A broker, and one log of it, those of `__consumer_offsets`, or all."""
    return dice.choice(BROKERS), dice.choice((*range(PARTITIONS), HOMES, ALL_LOGS))


def _calm(dice: random.Random) -> list[Act]:
    acts = []
    for at_ms in range(50, CALM_MS, 60):
        how = (dice.choice((0, 0, 1, 2, 3)), dice.randrange(PARTITIONS))
        acts.append(Act(at_ms + dice.randrange(60), "produce", how))
    for at_ms in range(100, CALM_MS, 400):
        acts.append(Act(at_ms, "commit", (dice.randrange(len(GROUPS)),)))
        acts.append(Act(at_ms, "consume", (dice.randrange(PARTITIONS),)))
        acts.append(Act(at_ms, "checkpoint", (dice.choice(BROKERS),)))
    begins_ms = dice.randint(600, 1_500)
    if dice.random() < 0.2:
        for node_id in BROKERS:
            for_ms = CALM_MS - begins_ms
            acts.append(Act(begins_ms + dice.randrange(200), "nearly_full", (node_id, for_ms)))
        return acts
    node_id, index = _place(dice)
    leader = _leads_first(index)
    other = dice.choice([each for each in BROKERS if each != node_id])
    if node_id != leader and dice.random() < 0.6:
        other = leader  # the broker with the hung disk may be elected in its place
    also_ms = begins_ms + dice.randint(50, 1_500)
    acts.append(Act(begins_ms, "hang_disk", (node_id, index, dice.randint(*CALM_HANG_MS))))
    match dice.randrange(4):
        case 0 | 1 | 2:
            acts.append(Act(also_ms, "kill", (other, dice.randint(1_300, 4_000))))
        case 3:
            acts.append(Act(also_ms, "depose"))
    return acts


def _leads_first(index: int) -> int:
    """The leader of that partition as long as nothing happens; for all logs: any broker."""
    return BROKERS[(1 if index == HOMES else index) % len(BROKERS)]
