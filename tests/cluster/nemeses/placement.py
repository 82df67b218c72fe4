"""Partitions move between brokers under load."""

from __future__ import annotations

from kbroker.errors import ErrorCode, KafkaError
from kbroker.peer.client import Client
from kbroker.types import TopicPartition
from tests.cluster.brokers import NODES, PLACES, THREE, wait
from tests.cluster.nemeses.base import Nemesis


class Reassign(Nemesis):
    """Every partition is to be on other brokers, or on the same in another order."""

    name, touches = "reassign", ("placement",)
    hold_s = (0.0, 0.3)

    def begin(self) -> str:
        self._targets = {
            place: self.dice.sample(NODES, 3 if place.topic == THREE else 2) for place in PLACES
        }
        self.cluster.admin("partitions move", self._ask)
        return " ".join(
            f"{place}:{''.join(map(str, nodes))}" for place, nodes in self._targets.items()
        )

    def _ask(self, client: Client) -> None:
        for result in client.reassign(self._targets):
            if result.error is not ErrorCode.NONE:
                raise KafkaError(result.error, result.message or "")

    def end(self) -> str:
        wait("they are where they are to be", self._are_there)
        return ""

    def _are_there(self) -> bool:
        return all(arrived(self, place, nodes) for place, nodes in self._targets.items())


def arrived(nemesis: Nemesis, place: TopicPartition, nodes: list[int]) -> bool:
    views = [seen for node in NODES if (seen := nemesis.cluster.seen_by(node))]
    return bool(views) and all(place in seen and [*seen[place].replicas] == nodes for seen in views)


ALL = (Reassign,)
