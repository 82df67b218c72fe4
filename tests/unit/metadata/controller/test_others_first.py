"""What is decided reaches the other brokers while the controller's own logs follow, or hang."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from kbroker.metadata.image import ImageDelta
from tests.unit.metadata.controller.brokers import Cluster, Wire, agree, follow
from tests.unit.metadata.controller.harness import WAIT_S, OneBroker, eventually


class HangingLogs:
    """The logs of one broker hang, from the next change of leaders on, until `go_on`."""

    def __init__(self, broker: OneBroker) -> None:
        self._apply: Callable[..., Any] = broker.replicas.apply
        self.hang = threading.Event()
        self.go_on = threading.Event()
        broker.replicas.apply = self.apply  # type: ignore[method-assign]

    def apply(self, image: Any, delta: ImageDelta) -> Any:
        if delta.changed and not self.hang.is_set():
            self.hang.set()
            assert self.go_on.wait(WAIT_S)
        return self._apply(image, delta)


def cluster_with_hanging_logs(tmp_path: Path) -> tuple[Cluster, Wire, HangingLogs]:
    # The first broker's logs go through here from the start: what it calls is bound once.
    wire = Wire()
    made: list[HangingLogs] = []

    class Hanging(OneBroker):
        def start(self, *args: Any, **options: Any) -> Any:
            if self.node_id == 1:
                made.append(HangingLogs(self))
            return super().start(*args, **options)

    return Cluster(tmp_path, wire, Hanging), wire, made[0]


def test_the_others_elect_while_the_controllers_own_logs_hang(tmp_path: Path) -> None:
    cluster, _, logs = cluster_with_hanging_logs(tmp_path)
    try:
        cluster.make(3, 2, 1)
        follow(cluster)
        assert cluster.state.leader == 3

        dead = cluster.brokers.pop(3)
        dead.stop()
        assert logs.hang.wait(WAIT_S)
        seen = cluster.brokers[2]
        eventually(lambda: seen.image.topics["t"].partitions[0].leader == 2)
        assert cluster.state.leader == 3  # readers here do not see what the logs do not follow yet

        logs.go_on.set()
        eventually(lambda: cluster.state.leader == 2)
    finally:
        logs.go_on.set()
        for broker in cluster.brokers.values():
            broker.stop()


def test_an_announced_image_is_published_under_its_version_and_sent_once(tmp_path: Path) -> None:
    cluster, wire, logs = cluster_with_hanging_logs(tmp_path)
    logs.go_on.set()
    try:
        cluster.make(3, 2, 1)
        follow(cluster)
        wire.sent.clear()
        cluster.brokers.pop(3).stop()
        eventually(lambda: cluster.state.leader == 2)
        eventually(lambda: agree(cluster.brokers[2].image, cluster.controller.image))
        sent = [update.version for node_id, update in wire.sent if node_id == 2]
        assert sent == [cluster.controller.image.version]
    finally:
        for broker in cluster.brokers.values():
            broker.stop()
