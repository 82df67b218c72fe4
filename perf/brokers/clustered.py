"""Brokers that are one of several, and the quorum controller where those of Apache Kafka meet.

kbroker's meet at a ZooKeeper (perf/brokers/zookeeper.py). Apache Kafka's controller is a process of
its own here, so that what it costs is not taken for a broker's.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from perf.brokers import own_figures
from perf.brokers.base import HERE, Place
from perf.brokers.kafka import HELD_STILL_MS, KafkaBroker
from perf.brokers.kbroker import KbrokerBroker
from perf.brokers.own_figures import OwnFigures
from perf.brokers.zookeeper import ZooKeeper

CONTROLLER_ID: Final = 100
CONTROLLER_HEAP: Final = "256m"

Settings = Mapping[str, object]


def _lines(settings: Settings) -> tuple[str, ...]:
    return tuple(f"{key}={value}" for key, value in settings.items())


class ClusterNode(KbrokerBroker):
    """A kbroker of a cluster, ready when it says so."""

    def __init__(
        self,
        directory: Path,
        port: int = 0,
        *,
        node_id: int,
        zookeeper: ZooKeeper,
        settings: Settings,
        place: Place = HERE,
        checkout: Path | None = None,
    ) -> None:
        self.node_id = node_id
        whose = {"node.id": node_id, "zookeeper.connect": zookeeper.address}
        lines = _lines({**whose, **settings})
        super().__init__(directory, port, lines, place=place, checkout=checkout)

    def answers(self) -> bool:
        return self.ready_file.exists()

    def tell_figures(self) -> None:
        super().tell_figures()
        self._overrides += _lines({"admin.listeners": f"http://{self._tells_at}"})

    def own_figures(self) -> OwnFigures:
        return own_figures.of_kbroker(self._tells_at)


class KafkaController(KafkaBroker):
    """Apache Kafka's quorum controller, alone in its quorum."""

    name = "kafka-controller"

    def __init__(
        self, directory: Path, *, holdable: bool, settings: Settings, place: Place = HERE
    ) -> None:
        super().__init__(directory, heap=CONTROLLER_HEAP, holdable=holdable, place=place)
        listener = f"CONTROLLER://{self.address}"
        roles = {
            "process.roles": "controller",
            "node.id": CONTROLLER_ID,
            "controller.quorum.voters": self.voters,
            "listeners": listener,
            "advertised.listeners": listener,
        }
        self._overrides = _lines({**roles, **settings})

    @property
    def voters(self) -> str:
        return f"{CONTROLLER_ID}@{self.address}"


class KafkaNode(KafkaBroker):
    """A broker of Apache Kafka that is no controller."""

    def __init__(
        self,
        directory: Path,
        *,
        node_id: int,
        controller: KafkaController,
        settings: Settings,
        place: Place = HERE,
    ) -> None:
        super().__init__(directory, holdable=False, place=place)  # which the controller decides
        self.node_id = node_id
        roles = {
            "process.roles": "broker",
            "node.id": node_id,
            "controller.quorum.voters": controller.voters,
            "listeners": f"PLAINTEXT://{self.address}",
        }
        self._overrides = _lines({**roles, **settings})

    def tell_figures(self) -> None:
        super().tell_figures()
        self._jvm_flags += own_figures.jmx_flags(self._tells_at)

    def own_figures(self) -> OwnFigures:
        return own_figures.of_kafka(self._tells_at)


# For brokers that are held still between their turns: their sessions do not end, and a follower
# stays in sync, although their clocks went on.
HELD_STILL: Final[Settings] = {"replica.lag.time.max.ms": HELD_STILL_MS}
HELD_STILL_KBROKER: Final[Settings] = {
    **HELD_STILL,
    "zookeeper.session.timeout.ms": HELD_STILL_MS,
    "zookeeper.connection.timeout.ms": 30_000,
}
