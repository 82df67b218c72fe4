"""Brokers are killed, stand still, or stop in order and start again."""

from __future__ import annotations

from tests.cluster.brokers import NODES, ClusterBroker, all_at_once
from tests.cluster.nemeses.base import Nemesis


class Kill(Nemesis):
    """kill -9: the next start finds what was written, the session outlives the process."""

    name, touches = "kill", ("processes",)

    def begin(self) -> str:
        self._node, line = self.victim()
        self.cluster.brokers[self._node].kill9()
        return line

    def end(self) -> str:
        self.cluster.brokers[self._node].start()
        return ""


class KillAll(Nemesis):
    """All at once, so that none is left in sync; they come back in any order."""

    name, touches = "kill-all", ("processes",)
    hold_s = (0.0, 4.0)

    def begin(self) -> str:
        all_at_once(each.kill9 for each in self.cluster.brokers.values())
        return "1 2 3"

    def end(self) -> str:
        nodes = self.dice.sample(NODES, len(NODES))
        if self.dice.random() < 0.5:
            all_at_once(self.cluster.brokers[node].start for node in nodes)
            return "all at once"
        for node in nodes:
            self.cluster.brokers[node].start()
        return "back " + " ".join(map(str, nodes))


class Pause(Nemesis):
    """SIGSTOP, for less or for longer than a session: it goes on with its old state."""

    name, touches = "pause", ("processes",)
    hold_s = (0.3, 9.0)

    def begin(self) -> str:
        self._node, line = self.victim()
        self.cluster.brokers[self._node].pause()
        return line

    def end(self) -> str:
        self.cluster.brokers[self._node].resume()
        return ""


class PauseAndKill(Pause):
    """It is stopped, others lead, and it is killed before it knows."""

    name = "pause-kill"
    hold_s = (2.0, 6.0)

    def end(self) -> str:
        super().end()
        self.moment(0.3)
        self.cluster.brokers[self._node].kill9()
        self.cluster.brokers[self._node].start()
        return "killed, started"


class Restart(Nemesis):
    """SIGTERM, and a start."""

    name, touches = "restart", ("processes",)
    hold_s = (0.0, 3.0)

    def begin(self) -> str:
        self._node, line = self.victim()
        stop_in_order(self.cluster.brokers[self._node])
        return line

    def end(self) -> str:
        self.cluster.brokers[self._node].start()
        return ""


class RollingRestart(Nemesis):
    """One after the other, the next one when all are in sync again."""

    name, touches = "rolling-restart", ("processes",)
    hold_s = (0.0, 0.0)

    def begin(self) -> str:
        nodes = self.dice.sample(NODES, len(NODES))
        for node in nodes:
            broker = self.cluster.brokers[node]
            stop_in_order(broker)
            broker.start()
            self.cluster.wait_in_sync()
        return " ".join(map(str, nodes))


def stop_in_order(broker: ClusterBroker) -> None:
    status = broker.stop(60.0)
    if status != 0:
        raise RuntimeError(f"broker {broker.node} ended with exit status {status} after SIGTERM")


ALL = (Kill, KillAll, Pause, PauseAndKill, Restart, RollingRestart)
