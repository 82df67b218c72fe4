"""ZooKeeper is lost and comes back; a broker's session is over before the broker knows."""

from __future__ import annotations

from tests.cluster.brokers import wait
from tests.cluster.nemeses.base import Nemesis


class ZooKeeperLost(Nemesis):
    """No leader is elected meanwhile; leaders go on."""

    name, touches = "zookeeper", ("zookeeper",)
    hold_s = (0.3, 8.0)

    def begin(self) -> str:
        self.hit = ()
        return self.cluster.meeting.lose(self.dice)

    def end(self) -> str:
        self.cluster.meeting.come_back()
        return ""


class SessionExpired(Nemesis):
    """ZooKeeper ends the session of a broker that runs, which then has to begin another one."""

    name, touches = "expiry", ("zookeeper",)
    hold_s = (0.0, 1.0)

    def begin(self) -> str:
        node, line = self.victim()
        path = f"/brokers/ids/{node}"
        wait(f"broker {node} has a session", lambda: self.cluster.meeting.expire(path))
        return line


ALL = (ZooKeeperLost, SessionExpired)
