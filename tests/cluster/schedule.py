"""Which fault comes when: from a seed, without looking at the cluster.

Nemeses come from a shuffled deck, so each kind comes equally often. Some faults have a second one
inside, of parts that the first does not touch: it begins and ends while the first holds. After most
faults all brokers come back in sync before the next; after some it is enough that records are
acknowledged again.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from tests.cluster.nemeses.base import Nemesis

WITHIN_SHARE: Final = 0.25
HASTY_SHARE: Final = 0.25
# A broker cannot start while it does not reach ZooKeeper, nor be asked while it is stopped.
MAY_BE_WITHIN: Final[Mapping[str, Sequence[str]]] = {
    "processes": ("network", "clocks"),
    "placement": ("processes", "network", "clocks"),
    "disks": ("network", "clocks", "zookeeper"),
    "clocks": ("processes", "network", "zookeeper"),
    "network": ("clocks",),
    "zookeeper": ("clocks", "network"),
}


class Fault(NamedTuple):
    nemesis: str
    seed: int  # of all that it draws itself
    hold_s: float
    in_sync: bool = True  # is waited for after it
    within: Fault | None = None


def schedule(seed: int, kinds: Mapping[str, type[Nemesis]], faults: int) -> list[Fault]:
    """So many faults; one within another counts."""
    dice = random.Random(seed)
    deck = _deck(dice, sorted(kinds))
    found: list[Fault] = []
    count = 0
    while count < faults:
        fault = _drawn(dice, next(deck), kinds)._replace(in_sync=dice.random() >= HASTY_SHARE)
        count += 1
        inside = [
            name for name in sorted(kinds) if may_be_within(kinds[name], kinds[fault.nemesis])
        ]
        if inside and count < faults and dice.random() < WITHIN_SHARE:
            fault = fault._replace(within=_drawn(dice, dice.choice(inside), kinds))
            count += 1
        found.append(fault)
    return found


def may_be_within(inner: type[Nemesis], outer: type[Nemesis]) -> bool:
    return all(one in MAY_BE_WITHIN[other] for one in inner.touches for other in outer.touches)


def fixed(names: Sequence[str], seed: int, kinds: Mapping[str, type[Nemesis]]) -> list[Fault]:
    """These, one after the other."""
    dice = random.Random(seed)
    return [_drawn(dice, name, kinds) for name in names]


def capped(fault: Fault, longest_s: float) -> Fault:
    within = None if fault.within is None else capped(fault.within, longest_s)
    return fault._replace(hold_s=min(fault.hold_s, longest_s), within=within)


def _drawn(dice: random.Random, name: str, kinds: Mapping[str, type[Nemesis]]) -> Fault:
    return Fault(name, dice.getrandbits(32), dice.uniform(*kinds[name].hold_s))


def _deck(dice: random.Random, names: list[str]) -> Iterator[str]:
    while True:
        yield from dice.sample(names, len(names))
