"""What a nemesis is: something goes wrong when it begins and is as it was when it has ended.

`begin` and `end` say in a few words what they did, and to which broker. Between the two lie the
seconds of `hold_s`. Everything is drawn from the dice that a nemesis is given, so a seed gives it
all but for the present leader. No other one touches what it `touches` at the same time.
"""

from __future__ import annotations

import random
import time
from collections.abc import Collection
from typing import ClassVar

from kbroker.types import TopicPartition
from tests.cluster.brokers import NODES, PLACES, Cluster


class Nemesis:
    """See the head of this file."""

    name: ClassVar[str]
    touches: ClassVar[tuple[str, ...]]  # processes, network, zookeeper, clocks, disks, placement
    hold_s: ClassVar[tuple[float, float]] = (0.2, 6.0)  # a session lasts 3 s
    isolated: ClassVar[bool] = False  # needs a network, or a disk, for each broker

    def __init__(self, cluster: Cluster, dice: random.Random) -> None:
        self.cluster = cluster
        self.dice = dice
        self.hit: Collection[TopicPartition] = PLACES  # may be silent while it lasts
        self.lasted_s = 0.0  # 0: from the call of `begin` to the return of `end`

    def begin(self) -> str:
        raise NotImplementedError

    def end(self) -> str:
        return ""

    # --- targets -

    def node(self) -> int:
        return self.dice.choice(NODES)

    def victim(self) -> tuple[int, str]:
        """Any broker, more often the leader of a partition or the controller."""
        drawn = self.dice.choice(("any", "leader", "leader", "controller"))
        place = self.place()
        found = None
        if drawn == "leader":
            found = self.cluster.leader(place)
        elif drawn == "controller":
            found = self.cluster.controller()
        node = self.node()
        if found is None:
            return node, str(node)
        return found, f"{found}, {'controller' if drawn == 'controller' else f'leads {place}'}"

    def place(self) -> TopicPartition:
        return self.dice.choice(PLACES)

    def moment(self, longest_s: float) -> None:
        """A moment of at most so long passes, most often a short one."""
        time.sleep(longest_s * self.dice.random() ** 3)
