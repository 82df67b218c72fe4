"""The ZooKeeper of measured clusters: a process like the brokers, held still and counted apart."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from lab import zookeeper
from lab.jars import ZOOKEEPER_VERSION
from perf.brokers.base import HERE, Broker, Place

HEAP: Final = "256m"


class ZooKeeper(Broker):
    """One server; `directory` keeps its data from one start to the next."""

    name = "zookeeper"

    def __init__(
        self, directory: Path, port: int = 0, *, session_ms_max: int = 0, place: Place = HERE
    ) -> None:
        """`session_ms_max`: the longest session that a broker is given; 0: 20 ticks, 10 s."""
        super().__init__(directory, port, place=place)
        self._settings = {"maxSessionTimeout": session_ms_max} if session_ms_max else {}

    def prepare(self) -> None:
        data = self.directory / "data"
        zookeeper.configure(self.directory, data, self.port, self._settings, self.host)

    def command(self) -> list[str]:
        return zookeeper.command(self.directory, HEAP)

    def answers(self) -> bool:
        return bool(zookeeper.mode(self.port, self.host))

    def version(self) -> str:
        return ZOOKEEPER_VERSION
