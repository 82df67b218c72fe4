"""The controller is killed within a decision, of each kind that it takes.

A client asks for the decision; the controller dies a drawn moment later, or as soon as ZooKeeper
has the decision, before any other broker knows. The next controller finds all of the decision or
nothing, and does it when it is asked again.
"""

from __future__ import annotations

import random
import threading
import time
from typing import ClassVar, Final

from kbroker.errors import KafkaError, UserError
from kbroker.peer.client import Client
from kbroker.peer.config_messages import TOPIC_RESOURCE, Resource
from kbroker.peer.placement_messages import PREFERRED_ELECTION
from kbroker.types import TopicPartition
from tests.cluster.brokers import NODES, TWO, Cluster, wait
from tests.cluster.nemeses.base import Nemesis
from tests.cluster.nemeses.placement import arrived
from tests.cluster.nemeses.scratch import Scratch, refused

LONGEST_S: Final = 0.05
WRITTEN_S: Final = 5.0
LOOK_S: Final = 0.001


class ControllerKilled(Nemesis):
    """A subclass says what is asked, which node of ZooKeeper tells that it was decided, and what
    all brokers know when it has been done."""

    touches: ClassVar[tuple[str, ...]] = ("processes",)
    hold_s = (0.0, 4.0)

    def __init__(self, cluster: Cluster, dice: random.Random) -> None:
        super().__init__(cluster, dice)
        self.scratch = Scratch(cluster)

    def prepare(self) -> None:
        """What must be there before."""

    def ask(self, client: Client) -> None:
        raise NotImplementedError

    def node_path(self) -> str:
        raise NotImplementedError

    def is_done(self) -> bool:
        raise NotImplementedError

    def clean(self) -> None:
        self.scratch.remove()

    def begin(self) -> str:
        self.prepare()
        controller = wait("there is a controller", self.cluster.controller)
        path = self.node_path()
        before = self.cluster.meeting.version(path)
        # Through another broker, which is there to ask again.
        through = self.cluster.brokers[self.dice.choice([n for n in NODES if n != controller])]
        asking = threading.Thread(target=self._ask_once, args=(through.address,))
        asking.start()
        if self.dice.random() < 0.5:
            self.moment(LONGEST_S)
            moment = "soon"
        else:
            until = time.monotonic() + WRITTEN_S
            while self.cluster.meeting.version(path) == before and time.monotonic() < until:
                time.sleep(LOOK_S)
            moment = "when it was written"
        self.killed = controller
        self.cluster.brokers[controller].kill9()
        asking.join()
        return f"{controller}, {moment}"

    def _ask_once(self, address: str) -> None:
        try:
            with Client(address, timeout_ms=3_000) as client:
                self.ask(client)
        except (KafkaError, UserError, OSError):
            pass  # it dies, and whether it has been decided is open

    def end(self) -> str:
        self.cluster.brokers[self.killed].start()
        wait(f"{self.name} is done", self._do)
        self.clean()
        return ""

    def _do(self) -> bool:
        if not self.is_done():
            self.cluster.admin(self.name, self.ask)
        return self.is_done()


class InCreation(ControllerKilled):
    name = "controller-create"

    def ask(self, client: Client) -> None:
        self.scratch.create(client)

    def node_path(self) -> str:
        return f"/brokers/topics/{self.scratch.name}"

    def is_done(self) -> bool:
        return self.scratch.is_everywhere()


class InDeletion(ControllerKilled):
    name = "controller-delete"

    def prepare(self) -> None:
        self.scratch.make()

    def ask(self, client: Client) -> None:
        self.scratch.delete(client)

    def node_path(self) -> str:
        return f"/brokers/topics/{self.scratch.name}"

    def is_done(self) -> bool:
        return self.scratch.is_gone()

    def clean(self) -> None:
        pass


class InMorePartitions(ControllerKilled):
    name = "controller-partitions"

    def prepare(self) -> None:
        self.scratch.make()

    def ask(self, client: Client) -> None:
        refused(client.create_partitions({self.scratch.name: 5}))

    def node_path(self) -> str:
        return f"/brokers/topics/{self.scratch.name}"

    def is_done(self) -> bool:
        views = [self.cluster.seen_by(node) for node in NODES]
        return all(
            seen is not None and sum(place.topic == self.scratch.name for place in seen) == 5
            for seen in views
        )


class InSettings(ControllerKilled):
    name = "controller-settings"

    def prepare(self) -> None:
        self.scratch.make()
        self._value = str(self.dice.randrange(1_000_000, 9_000_000))

    def ask(self, client: Client) -> None:
        resource = Resource(TOPIC_RESOURCE, self.scratch.name)
        refused(client.alter_configs([resource], {"max.message.bytes": self._value}, ()))

    def node_path(self) -> str:
        return f"/config/topics/{self.scratch.name}"

    def is_done(self) -> bool:
        values = self.cluster.admin(
            "settings are published", lambda c: c.topic_configs(self.scratch.name)
        )
        return any(each.value == self._value for each in values)


class InReassignment(ControllerKilled):
    name, touches = "controller-reassign", ("processes", "placement")

    def prepare(self) -> None:
        self._place = TopicPartition(TWO, self.dice.randrange(2))
        self._nodes = self.dice.sample(NODES, 2)

    def ask(self, client: Client) -> None:
        refused(client.reassign({self._place: self._nodes}))

    def node_path(self) -> str:
        return f"/brokers/topics/{TWO}"

    def is_done(self) -> bool:
        return arrived(self, self._place, self._nodes)

    def clean(self) -> None:
        pass


class InElection(ControllerKilled):
    """Preferred replicas are to lead."""

    name = "controller-elect"

    def prepare(self) -> None:
        self._place = self.place()

    def ask(self, client: Client) -> None:
        refused(client.elect_leaders(PREFERRED_ELECTION, [self._place]))

    def node_path(self) -> str:
        return f"/brokers/topics/{self._place.topic}/partitions/{self._place.partition}/state"

    def is_done(self) -> bool:
        seen = self.cluster.seen_by(self.killed) or {}
        return self._place in seen and seen[self._place].leader == seen[self._place].replicas[0]

    def clean(self) -> None:
        pass


class _BehindAnother(ControllerKilled):
    """No client asks: something happens to another broker, and the controller decides on it."""

    def node_path(self) -> str:
        return self._path

    def prepare(self) -> None:
        controller = wait("there is a controller", self.cluster.controller)
        self.other = self.dice.choice([node for node in NODES if node != controller])
        seen = wait("the controller tells", lambda: self.cluster.seen_by(controller))
        places = [p for p, each in seen.items() if self.other in each.isr]
        place = self.dice.choice(sorted(places))
        self._path = f"/brokers/topics/{place.topic}/partitions/{place.partition}/state"

    def ask(self, client: Client) -> None:
        pass

    def is_done(self) -> bool:
        return True

    def clean(self) -> None:
        pass


class InDeath(_BehindAnother):
    """A broker is killed; its session ends, others are elected, and meanwhile so ends the
    controller."""

    name = "controller-death"

    def prepare(self) -> None:
        super().prepare()
        self.cluster.brokers[self.other].kill9()

    def end(self) -> str:
        self.cluster.brokers[self.other].start()
        return super().end()


class InSync(_BehindAnother):
    """A follower is stopped until it leaves the in-sync sets."""

    name = "controller-in-sync"

    def prepare(self) -> None:
        super().prepare()
        self.cluster.brokers[self.other].pause()

    def end(self) -> str:
        self.cluster.brokers[self.other].resume()
        return super().end()


ALL = (
    InCreation, InDeletion, InMorePartitions, InSettings, InReassignment, InElection, InDeath,
    InSync,
)  # fmt: skip
