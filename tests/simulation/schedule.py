"""The acts of a history and their times, drawn from a seed alone.

An act is a method of `Cluster` with its arguments; its effect ends by itself. Faults and the
requests of clients are acts alike, so a history is its schedule and its seed. If acts are left out
of the schedule (`shrink.py`), the others stay as they were.
"""

from __future__ import annotations

import random

from tests.simulation.act import Act
from tests.simulation.cluster import BROKERS, EVERY_BROKER, GROUPS, HOMES, PARTITIONS
from tests.simulation.group_crowd import MEMBERS
from tests.simulation.network import CLIENTS

FAULTS_MIN, FAULTS_MAX = 3, 12
SPAN_MS_MIN, SPAN_MS_MAX = 2_500, 6_000
SLOW_MS = 3_800


def schedule_of(dice: random.Random, *, twice: bool = True) -> tuple[list[Act], int]:
    """Acts by milliseconds since the topic is there, and the time at which faults end. `twice`:
    mostly with two rare events that a fault needs one after the other."""
    end_ms = dice.randint(SPAN_MS_MIN, SPAN_MS_MAX)
    acts = [_fault(dice, end_ms) for _ in range(dice.randint(FAULTS_MIN, FAULTS_MAX))]
    acts += _close_together(dice, end_ms)
    acts += _usurped(dice, end_ms)
    for _ in range(dice.randint(40, 80)):
        how = (dice.choice((0, 0, 1, 2, 3)), dice.randrange(PARTITIONS))
        acts.append(Act(dice.randrange(end_ms), "produce", how))
    for method, count in (("consume", 8), ("ask_end", 8)):
        for _ in range(count):
            act = Act(dice.randrange(end_ms), method, (dice.randrange(PARTITIONS),))
            acts.append(act)
    acts += _started_again(dice, end_ms)
    for _ in range(dice.randint(6, 12)):
        acts.append(Act(dice.randrange(end_ms), "commit", (dice.randrange(len(GROUPS)),)))
    for _ in range(dice.randint(5, 10)):
        how = (dice.randrange(len(GROUPS)), int(dice.random() < 0.8))
        acts.append(Act(dice.randrange(end_ms), "ask_committed", how))
    acts += _moves(dice, end_ms)
    acts += _two_of_one(dice, end_ms)
    acts += _overtaken(dice, end_ms)
    acts += _settings(dice, end_ms)
    acts += _lives_and_does_not_fetch(dice)
    acts += _deletions(dice, end_ms)
    acts += _several_members(dice, end_ms)
    acts += _groups_go(dice, end_ms)
    acts += _missed_images(dice, end_ms)
    acts += _back_and_forth(dice, end_ms)
    acts += _topics_go(dice, end_ms)
    acts += _disbanded(dice, end_ms)
    if dice.random() < 0.06:
        acts = _after_a_slow_follower(dice, acts)
    if twice:
        acts += _leads_twice(dice, end_ms)
    if twice and dice.random() < 0.4:
        # After most faults, which would come between the two events.
        at_ms = end_ms + dice.randint(300, 1_500)
        acts += dice.choice((_joins_a_broken_session, _loads_twice))(dice, at_ms)
    return sorted(acts), end_ms


def _fault(dice: random.Random, end_ms: int) -> Act:
    at_ms = dice.randrange(end_ms)
    one, other = dice.sample(BROKERS, 2)
    # Shorter and longer than a session, a request and the time a follower may lag.
    for_ms = round(dice.choice((30, 200, 1_000, 2_500)) * dice.uniform(0.5, 1.5))
    what = dice.choice(_WHAT)
    match what:
        case "kill" | "stop" | "pause" | "isolate" | "alone" | "fill_disk" | "cut_power":
            return Act(at_ms, what, (one, for_ms))
        case "cut" | "part":
            return Act(at_ms, what, (one, dice.choice((other, other, CLIENTS)), for_ms))
        case "drop":
            return Act(at_ms, what, (one, dice.choice((other, CLIENTS))))
        case "depose":
            return Act(at_ms, what)
        case "prefer":
            return Act(at_ms, what, (dice.randrange(HOMES + 1),))
    return Act(at_ms, what, (one,))


_WHAT = (
    "kill", "kill", "kill", "kill", "stop", "pause", "pause", "isolate", "isolate", "alone", "cut",
    "cut", "part", "drop", "lose_answer", "depose", "fill_disk", "cut_power", "cut_power",
    "checkpoint", "checkpoint", "prefer", "prefer",
)  # fmt: skip


def _usurped(dice: random.Random, end_ms: int) -> list[Act]:
    """A former controller that does not know its successor yet, and has work left."""
    if dice.random() < 0.7:
        return []
    at_ms = dice.randrange(end_ms)
    one, other = dice.sample(BROKERS, 2)
    mute_ms = dice.randint(20, 60)
    hangs_at_ms = at_ms + mute_ms + dice.choice((dice.randint(3, 25), dice.randint(0, 150)))
    return [
        Act(at_ms, "mute", (one, mute_ms)),
        Act(at_ms + 5, "kill", (other, 20)),
        Act(hangs_at_ms, "hang", (dice.randint(200, 600),)),
        Act(hangs_at_ms + dice.randint(20, 150), "depose"),
    ]


def _moves(dice: random.Random, end_ms: int) -> list[Act]:
    """Partitions go to other brokers, one move after the other, or stay after all."""
    if dice.random() < 0.5:
        return []
    acts = []
    for _ in range(dice.randint(1, 6)):
        index, at_ms = dice.randrange(HOMES + 1), dice.randrange(end_ms)
        for _ in range(dice.choice((1, 1, 2, 4))):
            target = dice.sample(BROKERS, dice.randint(2, 3)) if dice.random() < 0.8 else ()
            acts.append(Act(at_ms, "reassign", (index, *target)))
            at_ms += dice.randint(1, 120)
    return acts


def _two_of_one(dice: random.Random, end_ms: int) -> list[Act]:
    """A copy of a running or paused broker is started, or its registration is taken."""
    if dice.random() < 0.75:
        return []
    at_ms, node_id = dice.randrange(end_ms), dice.choice(BROKERS)
    acts = [Act(at_ms, dice.choice(("twin", "usurp")), (node_id, dice.randint(200, 4_000)))]
    if dice.random() < 0.4:
        what = dice.choice(("pause", "isolate", "kill"))
        acts.append(Act(at_ms + dice.randint(1, 300), what, (node_id, dice.randint(20, 2_500))))
    return acts


def _overtaken(dice: random.Random, end_ms: int) -> list[Act]:
    """A broker's request arrives after a newer decision: a follower comes back into the in-sync set
    and leaves it again, and the first request of its leader arrives after the second. Mostly before
    another broker has become the controller."""
    if dice.random() < 0.75:
        return []
    at_ms = dice.randrange(dice.choice((300, end_ms)))
    controller, follower, leader = dice.choice((BROKERS, dice.sample(BROKERS, 3)))
    if dice.random() < 0.5:
        follower, leader = leader, follower
    late_ms, parted_ms = dice.randint(1_600, 3_500), dice.randint(1_800, 3_000)
    return [
        Act(at_ms, "kill", (follower, dice.randint(15, 60))),
        Act(at_ms + dice.randint(50, 120), "late", (leader, controller, late_ms)),
        Act(at_ms + dice.randint(350, 550), "part", (follower, leader, parted_ms)),
    ]


def _missed_images(dice: random.Random, end_ms: int) -> list[Act]:
    """A broker misses several images, and then receives all decisions at once: others leave and
    join, or partitions go and come back. Or no broker knows the outcome of an election."""
    acts = []
    if dice.random() < 0.3:
        at_ms, (one, other) = dice.randrange(end_ms), dice.sample(BROKERS, 2)
        acts.append(Act(at_ms, "deafen", (one, dice.choice((300, 1_000, 2_500)))))
        if dice.random() < 0.5:
            acts.append(Act(at_ms - dice.randrange(50), "kill", (other, dice.randint(15, 60))))
        else:
            index = dice.randrange(HOMES + 1)
            stay = tuple(each for each in BROKERS if each != other)
            acts.append(Act(at_ms + 5, "reassign", (index, *stay)))
            acts.append(Act(at_ms + dice.randint(15, 120), "reassign", (index, *BROKERS)))
    if dice.random() < 0.1:
        at_ms = dice.randrange(end_ms)
        acts += [Act(at_ms, "lose_answer", (each,)) for each in BROKERS]
        acts.append(Act(at_ms + 1, "depose"))
    return [each._replace(at_ms=max(0, each.at_ms)) for each in acts]


def _back_and_forth(dice: random.Random, end_ms: int) -> list[Act]:
    """A broker leads again before the work of its last leadership is over: a load, or a write that
    waits."""
    if dice.random() < 0.75:
        return []
    at_ms, index = dice.randrange(end_ms), dice.choice((HOMES, HOMES, dice.randrange(HOMES)))
    first, *others = dice.sample(BROKERS, 3)
    acts = []
    for turn in range(dice.randint(2, 5)):
        leader, *rest = (others[0], first, others[1]) if turn % 2 == 0 else (first, *others)
        acts.append(Act(at_ms, "reassign", (index, leader, *rest)))
        acts.append(Act(at_ms + 3, "prefer", (index,)))
        at_ms += dice.choice((dice.randint(5, 60), dice.randint(20, 300)))
    return acts


def _lead(at_ms: int, index: int, leader: int, *rest: int) -> list[Act]:
    """It is the preferred leader, and the leader if it is in sync."""
    return [Act(at_ms, "reassign", (index, leader, *rest)), Act(at_ms + 3, "prefer", (index,))]


def _produces(dice: random.Random, index: int, begins_ms: int, for_ms: int) -> list[Act]:
    """By every producer, at about the same time."""
    return [Act(begins_ms + dice.randrange(for_ms), "produce", (each, index)) for each in range(4)]


def _leads_twice(dice: random.Random, end_ms: int) -> list[Act]:
    """A broker leads in two epochs, and another one between them that lacks the last records of the
    first: positions noted in the first epoch are wrong in the second. The third broker has those
    records, and is late in the second epoch."""
    if dice.random() < 0.7:
        return []
    at_ms, index = dice.randrange(end_ms), dice.randrange(PARTITIONS)
    first, between, third = dice.sample(BROKERS, 3)
    acts = _lead(at_ms, index, first, between, third)
    at_ms += dice.randint(60, 300)
    acts.append(Act(at_ms, "reset", (between, first, dice.randint(40, 120))))
    acts += _produces(dice, index, at_ms, 40)
    at_ms += dice.randint(20, 60)
    acts += _lead(at_ms, index, between, first, third)
    if dice.random() < 0.5:
        acts.append(Act(at_ms, "reset", (third, between, dice.randint(50, 400))))
    at_ms += dice.randint(30, 250)
    acts += _produces(dice, index, at_ms - 20, 40)
    acts += _lead(at_ms, index, first, between, third)
    acts.append(Act(at_ms, "reset", (third, first, dice.randint(40, 400))))
    acts += _produces(dice, index, at_ms + 5, 60)
    return acts


def _joins_a_broken_session(dice: random.Random, at_ms: int) -> list[Act]:
    """A follower has to fetch more partitions from a broker, and its requests do not arrive."""
    leader, follower, other = dice.sample(BROKERS, 3)
    acts = []
    for index in dice.sample(range(HOMES + 1), dice.randint(1, HOMES + 1)):
        acts += _lead(at_ms + dice.randint(0, 30), index, leader, follower, other)
    return [
        *acts,
        Act(at_ms + dice.randint(0, 60), "reset", (follower, leader, 700)),
        Act(at_ms + 2_000, "ask_end", (0,)),  # nothing else happens until then
    ]


def _loads_twice(dice: random.Random, at_ms: int) -> list[Act]:
    """A coordinator loses its groups while it loads them and gets them again; meanwhile commits
    are made at another coordinator."""
    group = dice.randrange(len(GROUPS))
    first, between, third = dice.sample(BROKERS, 3)
    acts = _lead(at_ms, HOMES, between, first, third)
    acts += [Act(at_ms + each, "commit", (each % len(GROUPS),)) for each in range(20, 200, 45)]
    at_ms += 250
    acts += [Act(at_ms, "slow_loads", (first, 1_500)), *_lead(at_ms, HOMES, first, between, third)]
    at_ms += dice.randint(30, 60)
    acts += _lead(at_ms, HOMES, between, first, third)
    acts += [Act(at_ms + each, "commit", (group,)) for each in range(10, 100, 20)]
    at_ms += dice.randint(80, 200)
    acts += _lead(at_ms, HOMES, first, between, third)
    asks = range(at_ms + 20, at_ms + 1_500, 30)
    return [*acts, *(Act(each, "ask_committed", (group, 1)) for each in asks)]


def _deletions(dice: random.Random, end_ms: int) -> list[Act]:
    """Records are deleted; mostly a broker fails after that, and files are removed."""
    if dice.random() < 0.6:
        return []
    acts = []
    for _ in range(dice.randint(1, 3)):
        at_ms, index = dice.randrange(end_ms), dice.randrange(PARTITIONS)
        if dice.random() < 0.7:
            how = (index, dice.choice((0, 30, 60, 100)))
            acts.append(Act(at_ms, "delete_records", how))
        else:
            acts.append(Act(at_ms, "retain", (index, dice.choice((1, 700, 1_500)))))
        if dice.random() < 0.5:
            acts.append(Act(at_ms + dice.randint(5, 100), "checkpoint", (dice.choice(BROKERS),)))
        if dice.random() < 0.6:
            what = dice.choice(("kill", "kill", "cut_power", "alone"))
            how = (dice.choice(BROKERS), dice.randint(20, 900))
            acts.append(Act(at_ms + dice.randint(2, 200), what, how))
    return acts


def _several_members(dice: random.Random, end_ms: int) -> list[Act]:
    """They come, go and fall silent, for longer than a session or not."""
    if dice.random() < 0.7:
        return []
    acts = [Act(dice.randrange(end_ms // 2), "come", (each,)) for each in range(MEMBERS)]
    for _ in range(dice.randint(2, 5)):
        member, at_ms = dice.randrange(MEMBERS), dice.randrange(end_ms // 4, end_ms)
        if dice.random() < 0.5:
            acts.append(Act(at_ms, "go", (member,)))
            acts.append(Act(at_ms + dice.randint(10, 800), "come", (member,)))
        else:
            acts.append(Act(at_ms, "fall_silent", (member, dice.randint(200, 1_800))))
    return acts


def _groups_go(dice: random.Random, end_ms: int) -> list[Act]:
    """Groups are deleted after a commit or during one; mostly a broker fails."""
    if dice.random() < 0.5:
        return []
    acts = []
    for _ in range(dice.randint(1, 3)):
        at_ms = dice.randrange(end_ms)
        acts.append(Act(at_ms, "commit", (0,)))
        acts.append(Act(at_ms + dice.randint(0, 150), "delete_group", (dice.randrange(2),)))
        if dice.random() < 0.5:
            acts.append(Act(at_ms + dice.randint(0, 200), "commit", (0,)))
        if dice.random() < 0.6:
            what = dice.choice(("kill", "alone", "pause"))
            how = (dice.choice(BROKERS), dice.randint(20, 1_500))
            acts.append(Act(at_ms + dice.randint(2, 300), what, how))
        acts.append(Act(at_ms + dice.randint(50, 2_000), "ask_committed", (0, 1)))
    return acts


def _disbanded(dice: random.Random, end_ms: int) -> list[Act]:
    """The group of several, and deleted; others are its coordinator then."""
    if dice.random() < 0.75:
        return []
    at_ms = dice.randrange(end_ms)
    acts = [Act(max(0, at_ms - dice.randint(500, 1_500)), "come", (each,)) for each in range(2)]
    deleted_at_ms = at_ms + dice.randint(100, 600)
    acts += [Act(at_ms, "disband"), Act(deleted_at_ms, "delete_crowd")]
    for _ in range(2):
        moved_at_ms = deleted_at_ms + dice.randint(50, 600)
        acts.append(Act(moved_at_ms, "reassign", (HOMES, *dice.sample(BROKERS, 3))))
        acts.append(Act(moved_at_ms + 3, "prefer", (HOMES,)))
    return acts


def _lives_and_does_not_fetch(dice: random.Random) -> list[Act]:
    """For longer than a follower may lag."""
    if dice.random() < 0.8:
        return []
    return [Act(dice.randrange(400), "hang_fetchers", (dice.choice(BROKERS), 5_500))]


def _after_a_slow_follower(dice: random.Random, acts: list[Act]) -> list[Act]:
    """For longer than a follower may lag, a broker fetches more slowly than a producer that does
    not wait produces. All other acts come after that."""
    index = dice.randrange(PARTITIONS)
    return [
        Act(0, "slow_fetchers", (dice.choice(BROKERS), SLOW_MS)),
        *(Act(at_ms, "produce", (3, index)) for at_ms in range(0, SLOW_MS, 100)),
        *(each._replace(at_ms=each.at_ms + SLOW_MS) for each in acts),
    ]


def _topics_go(dice: random.Random, end_ms: int) -> list[Act]:
    """They are made and deleted; mostly the store fails with that."""
    if dice.random() < 0.8:
        return []
    acts = []
    for _ in range(dice.randint(1, 3)):
        at_ms = dice.randrange(end_ms)
        acts.append(Act(at_ms, "make_topic"))
        at_ms += dice.randint(50, 1_000)
        fails = dice.choice(("lose_answer", "lose_answer", "isolate", "depose", "kill", ""))
        if fails:
            how = (dice.randint(20, 900),) if fails in ("isolate", "kill") else ()
            for node_id in BROKERS if fails == "lose_answer" else (dice.choice(BROKERS),):
                where = () if fails == "depose" else (node_id, *how)
                acts.append(Act(at_ms - dice.randint(0, 3), fails, where))
        acts.append(Act(at_ms, "delete_topic"))
    return acts


def _settings(dice: random.Random, end_ms: int) -> list[Act]:
    """Brokers have another min.insync.replicas one after the other, or one of them alone."""
    if dice.random() < 0.5:
        return []
    at_ms = dice.randrange(end_ms)
    acts = []
    for number in dice.choice(((1,), (1,), (1, 2))):
        for node_id in dice.sample(BROKERS, dice.randint(1, 3)):
            acts.append(Act(at_ms, "renew", (node_id, number, dice.randint(20, 400))))
            at_ms += dice.randint(100, 900)
    if dice.random() < 0.5:
        for _ in range(dice.randint(1, 3)):
            how = (dice.choice((EVERY_BROKER, *BROKERS)), dice.choice((0, 1, 2)))
            acts.append(Act(dice.randrange(end_ms), "override", how))
    return acts


def _close_together(dice: random.Random, end_ms: int) -> list[Act]:
    """Brokers that fail one shortly after the other, which is where the rules are needed."""
    if dice.random() < 0.4:
        return []
    at_ms = dice.randrange(end_ms)
    acts = []
    for node_id in dice.sample(BROKERS, dice.randint(2, 3)):
        what = dice.choice(("kill", "kill", "cut_power", "pause", "alone"))
        acts.append(Act(at_ms, what, (node_id, round(dice.uniform(20, 900)))))
        at_ms += round(dice.uniform(0, 400))
    return acts


def _started_again(dice: random.Random, end_ms: int) -> list[Act]:
    """A follower restarts, and its leader or the controller uses its state from before."""
    if dice.random() < 0.4:
        return []
    at_ms = dice.randrange(end_ms)
    one, other = dice.sample(BROKERS, 2)
    if dice.random() < 0.5:
        # Its leader, which does not receive its first fetches.
        return [
            Act(at_ms, "cut_power", (one, dice.randint(15, 60))),
            Act(at_ms, "cut", (one, other, dice.randint(150, 600))),
        ]
    # The controller, which its leader asks to have it in sync again.
    return [
        Act(at_ms, "kill", (one, 20)),
        Act(at_ms + dice.randint(30, 80), "hang", (dice.randint(150, 400),)),
        Act(at_ms + dice.randint(100, 200), "cut_power", (one, 20)),
    ]
