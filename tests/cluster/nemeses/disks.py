"""Files of a broker hang: what is done to them does not come back; then it does.

All files of a broker, or those of one log of the broker that has a role: it is the controller,
leads the partition, follows it, or coordinates the group. Of one log it may be a kind of operation
alone. Logs are opened and removed with a topic that is made for it. What is asked of a file without
waiting for the disk (`open_now`, `read_now`) never hangs on a machine, and does not here.

What a broker leads when a log of its begins to hang counts as hit with it: who shares a run of the
request handlers with the first write that hangs waits for it (ADR 25). What it is elected for later
does not, nor what others lead.

No other fault of a process comes meanwhile: who is killed or paused could not be asked to let go.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from typing import ClassVar, Final

from kbroker.coordinator.runtime._shard_table import partition_for
from kbroker.errors import KafkaError, UserError
from kbroker.peer.client import Client
from kbroker.testing.file_faults import OPERATIONS
from kbroker.types import TopicPartition
from tests.cluster.brokers import NODES, PLACES, SETTINGS, Cluster, ClusterBroker, wait
from tests.cluster.load import GROUP
from tests.cluster.nemeses.base import Nemesis
from tests.cluster.nemeses.scratch import Scratch

OFFSETS: Final = TopicPartition(
    "__consumer_offsets", partition_for(GROUP, int(str(SETTINGS["offsets.topic.num.partitions"])))
)
WAITING: Final = tuple(each for each in OPERATIONS if not each.endswith("_now"))
ON_A_LOG: Final = {
    "writing": ("write", "allocate", "truncate"),
    "syncing": ("sync",),
    "rolling": ("open",),
    "everything": WAITING,
}
OPENING: Final = "opening"
REMOVING: Final = "removing"
ON_A_NEW_LOG: Final = {OPENING: ("mkdir", "open", "list"), REMOVING: ("rename", "unlink")}
HANGS_S: Final = 15.0  # by then an operation of a kind that is rare has come
POLL_S: Final = 0.01
ASK_TIMEOUT_MS: Final = 3_000


class _Hang(Nemesis):
    touches = ("disks",)
    hold_s = (0.5, 9.0)
    _began_s = 0.0  # when the first operation hung; 0: none has

    def hang(self, node: int, path_part: str, operations: tuple[str, ...]) -> None:
        self.broker: ClusterBroker = self.cluster.brokers[node]
        self.broker.hang(path_part, operations)

    def wait_until_it_hangs(self) -> str:
        until = time.monotonic() + HANGS_S
        while self.broker.hung() == 0:
            if time.monotonic() > until:
                return ", nothing hung yet"
            time.sleep(POLL_S)
        self._began_s = time.monotonic()
        return ""

    def let_go(self) -> str:
        count = self.broker.let_files_go()
        if self._began_s:
            self.lasted_s = time.monotonic() - self._began_s
        return f"{count} operations hung"

    def end(self) -> str:
        line = self.let_go()
        self.clean()
        return line

    def clean(self) -> None:
        """With every broker there, and nothing that hangs."""


class HangDisk(_Hang):
    """Every file of a broker's logs, those that are beside them too."""

    name = "hang-disk"

    def begin(self) -> str:
        node, line = self.victim()
        self.hit = [place for place in PLACES if node in replicas_of(self.cluster, place)]
        self.hang(node, str(self.cluster.brokers[node].data_dir), WAITING)
        return f"{line}, all files{self.wait_until_it_hangs()}"


class _HangInRole(_Hang):
    def whose(self) -> tuple[int, TopicPartition]:
        """The broker, and which log of its."""
        raise NotImplementedError

    def begin(self) -> str:
        node, log = self.whose()
        way = self.dice.choice([*ON_A_LOG, *ON_A_NEW_LOG])
        self._scratch: Scratch | None = None
        if way in ON_A_LOG:
            led = [place for place in PLACES if self.cluster.leader(place) == node]
            self.hit = {log, *led} & {*PLACES}
            self.hang(node, f"/{log}", ON_A_LOG[way])
            line = f"{way} {log}"
        else:
            self.hit = []
            self._scratch = Scratch(self.cluster)
            line = f"{way} {self._scratch.name}"
            self._hang_new_log(node, self._scratch, way)
        return f"{node}, {line}{self.wait_until_it_hangs()}"

    def _hang_new_log(self, node: int, scratch: Scratch, way: str) -> None:
        if way == REMOVING:
            scratch.make()
        self._ask, self._is_done = (
            (scratch.create, scratch.is_everywhere)
            if way == OPENING
            else (scratch.delete, scratch.is_gone)
        )
        self.hang(node, f"/{scratch.name}-", ON_A_NEW_LOG[way])
        self._asking = threading.Thread(target=self._ask_once, args=(self._ask,))
        self._asking.start()

    def _ask_once(self, ask: Callable[[Client], None]) -> None:
        reached = ",".join(each.address for each in self.cluster.brokers.values())
        try:
            with Client(reached, timeout_ms=ASK_TIMEOUT_MS) as client:
                ask(client)
        except (KafkaError, UserError, OSError):
            pass  # it may take as long as the files hang, and is asked again after that

    def clean(self) -> None:
        if self._scratch is not None:
            self._asking.join()
            wait(f"{self._scratch.name} is made or removed", self._do)
            self._scratch.remove()

    def _do(self) -> bool:
        if not self._is_done():
            self.cluster.admin(self.name, self._ask)
        return self._is_done()


class HangLeader(_HangInRole):
    name = "hang-leader"

    def whose(self) -> tuple[int, TopicPartition]:
        place = self.place()
        return wait(f"{place} is led", lambda: self.cluster.leader(place)), place


class HangFollower(HangLeader):
    name = "hang-follower"

    def whose(self) -> tuple[int, TopicPartition]:
        leader, place = super().whose()
        replicas = replicas_of(self.cluster, place)
        return self.dice.choice([node for node in replicas if node != leader]), place


class HangController(_HangInRole):
    name = "hang-controller"

    def whose(self) -> tuple[int, TopicPartition]:
        node = wait("there is a controller", self.cluster.controller)
        places = [place for place in PLACES if node in replicas_of(self.cluster, place)]
        return node, self.dice.choice(places)


class HangCoordinator(_HangInRole):
    """Of the group; the log is that of its offsets."""

    name = "hang-coordinator"

    def whose(self) -> tuple[int, TopicPartition]:
        return wait("the group has a coordinator", lambda: self.cluster.leader(OFFSETS)), OFFSETS


ROLES: Final = (HangLeader, HangFollower, HangController, HangCoordinator)


class HangAndKill(Nemesis):
    """One log hangs, in any of the roles, and another broker is killed: others are elected."""

    name, touches = "hang-and-kill", ("disks", "processes")
    hold_s: ClassVar[tuple[float, float]] = (6.0, 9.0)

    def __init__(self, cluster: Cluster, dice: random.Random) -> None:
        super().__init__(cluster, dice)
        self._role: _HangInRole = dice.choice(ROLES)(cluster, dice)

    def begin(self) -> str:
        line = self._role.begin()
        self.hit = self._role.hit
        others = [node for node in NODES if node != self._role.broker.node]
        led = {self.cluster.leader(place) for place in PLACES if place not in self.hit}
        self._victim = self.dice.choice([node for node in others if node in led] or others)
        self.cluster.brokers[self._victim].kill9()
        return f"{self._role.name} {line}, killed {self._victim}"

    def end(self) -> str:
        line = self._role.let_go()
        self.lasted_s = self._role.lasted_s
        self.cluster.brokers[self._victim].start()
        self._role.clean()
        return line


class HangThenKill(Nemesis):
    """Who hangs is killed, as an operator would do it, and starts: its disk answers again."""

    name, touches = "hang-then-kill", ("disks", "processes")

    def __init__(self, cluster: Cluster, dice: random.Random) -> None:
        super().__init__(cluster, dice)
        self._hang: _Hang = dice.choice((HangDisk, *ROLES))(cluster, dice)

    def begin(self) -> str:
        return f"{self._hang.name} {self._hang.begin()}"

    def end(self) -> str:
        broker = self._hang.broker
        count = broker.hung()
        broker.kill9()
        broker.start()
        self._hang.clean()
        return f"{count} operations hung"


def replicas_of(cluster: Cluster, place: TopicPartition) -> tuple[int, ...]:
    seen = wait("victim tells", lambda: cluster.seen_by(NODES[0]))
    return tuple(seen[place].replicas)


ALL = (HangDisk, *ROLES, HangAndKill, HangThenKill)
