"""What lies between the brokers loses packets, in both directions or in one, or is late."""

from __future__ import annotations

from tests.cluster.brokers import NODES
from tests.cluster.nemeses.base import Nemesis
from tests.cluster.router import CLIENTS, ZOOKEEPER, Network, Way

NAMES = {CLIENTS: "clients", ZOOKEEPER: "ZooKeeper"}


class _Link(Nemesis):
    touches = ("network",)
    isolated = True
    hold_s = (0.5, 9.0)

    @property
    def network(self) -> Network:
        assert self.cluster.network is not None
        return self.cluster.network

    def end(self) -> str:
        self.network.mend()
        return ""


class Cut(_Link):
    """A broker on one side, on the other those that are drawn."""

    name = "cut"

    def begin(self) -> str:
        node, line = self.victim()
        others = [each for each in NODES if each != node]
        sides = [others, others[:1], [*others, ZOOKEEPER], [*others, ZOOKEEPER, CLIENTS],
                 [ZOOKEEPER]]  # fmt: skip
        side = self.dice.choice(sides)
        self.network.drop(*both_ways(node, side))
        return f"{line} | {named(side)}"


class OneWayCut(_Link):
    """A broker's packets get lost, and it gets all others; or the other way round."""

    name = "one-way-cut"

    def begin(self) -> str:
        node, line = self.victim()
        others = [each for each in NODES if each != node]
        side = self.dice.choice([others, others[:1], others[1:], [*others, ZOOKEEPER], [ZOOKEEPER]])
        if self.dice.random() < 0.5:
            self.network.drop(*((node, each) for each in side))
            return f"{line} > {named(side)}"
        self.network.drop(*((each, node) for each in side))
        return f"{line} < {named(side)}"


class Delay(_Link):
    """Packets are late, from some tens of milliseconds to most of a session."""

    name = "delay"

    def begin(self) -> str:
        node, line = self.victim()
        milliseconds = round(20 * 40 ** self.dice.random())
        side = [each for each in (*NODES, ZOOKEEPER, CLIENTS) if each != node]
        side = self.dice.choice([side, side[:2], side[:3]])
        self.network.delay(milliseconds, *both_ways(node, side))
        return f"{milliseconds} ms, {line} | {named(side)}"


def both_ways(node: int, side: list[int]) -> list[Way]:
    return [way for each in side for way in ((node, each), (each, node))]


def named(side: list[int]) -> str:
    return " ".join(NAMES.get(each, str(each)) for each in side)


ALL = (Cut, OneWayCut, Delay)
