"""What ZooKeeper says of kbrokers: when one ceases to be alive, and which is the controller."""

from __future__ import annotations

import json
import threading
import time
from typing import Final

CONNECT_S: Final = 30.0


class Departures:
    """When each broker's registration went, by time.monotonic(). `connect` may end in a path."""

    def __init__(self, connect: str) -> None:
        from kazoo.client import KazooClient

        self._client = KazooClient(connect)
        self._ids: set[str] = set()
        self._gone: dict[str, float] = {}
        self._lock = threading.Lock()
        self._client.start(CONNECT_S)
        self._client.ChildrenWatch("/brokers/ids", self._changed)

    def _changed(self, ids: list[str]) -> None:
        with self._lock:
            for gone in self._ids - {*ids}:
                self._gone[gone] = time.monotonic()
            self._ids = {*ids}

    def of(self, node: int) -> float | None:
        """Of the last time that it went, once; None while it is there."""
        with self._lock:
            return self._gone.pop(str(node), None)

    def controller(self) -> int:
        """The broker that is elected now; Metadata names any that is alive. -1: none."""
        from kazoo.exceptions import NoNodeError

        try:
            data, _ = self._client.get("/controller")
        except NoNodeError:
            return -1
        return int(json.loads(data)["brokerid"])

    def close(self) -> None:
        self._client.stop()
        self._client.close()
