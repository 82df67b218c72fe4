"""Liveness: leaders and controllers are alive. A rule may be broken for a moment, and no longer.

The rules are checked every PERIOD_MS, but not for a broker that is paused or does not reach the
store: it cannot know. A follower that lags leaves the in-sync set; this is checked where the
follower, its leader and the controller reach each other. A follower that does not fetch leaves the
set, too, and acks=all goes on; this is checked where all processes reach each other, and no broker
still waits for an earlier request that was lost. A condition that is wrong may be about to change:
it is a violation if it lasts, without a break, for longer than its rule allows.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from kbroker.clock import NS_PER_MS
from kbroker.metadata.controller import records
from kbroker.metadata.image import NO_CONTROLLER, NO_LEADER
from tests.simulation.broker import LAG_MS

if TYPE_CHECKING:
    from kbroker.types import TopicPartition
    from tests.simulation.broker import Running
    from tests.simulation.cluster import Cluster
    from tests.simulation.views import Partition, View

PERIOD_MS = 100
# Events wait, the store is slow, and a controller hangs for 600 ms at most each.
NOTIFIED_WITHIN_MS = 1_500
# It is given up in the same step as the image comes, which may be between two looks.
GIVEN_UP_WITHIN_MS = 50
# After the longest time that a follower may lag, and half of it.
LAG_WITHIN_MS = LAG_MS * 3 // 2 + NOTIFIED_WITHIN_MS
COMMITTED_WITHIN_MS = LAG_WITHIN_MS + NOTIFIED_WITHIN_MS
# A fetch waits for half a second at its leader.
FETCHED_WITHIN_MS = 1_200
ENOUGH = 2  # in sync, for every min.insync.replicas that a broker has


class Wrong(NamedTuple):
    rule: str
    detail: str
    within_ms: int


class Living:
    """See the head of this file."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._since: dict[Wrong, int] = {}
        self._ends: dict[TopicPartition, tuple[int, deque[int]]] = {}  # by leader epoch
        # As of this look.
        self._reachable: list[Running] = []
        self._registered: dict[int, int] = {}  # and by which session

    def begin(self) -> None:
        self._cluster.loop.later(PERIOD_MS, self._look)

    def _look(self) -> None:
        now_ms = self._cluster.loop.now_ms
        self._reachable = self._cluster.reachable()
        tree = self._cluster.ensemble.tree
        nodes = {each: tree.find(records.broker_path(each)) for each in self._cluster.brokers}
        self._registered = {each: node.owner for each, node in nodes.items() if node is not None}
        found = dict.fromkeys(self._wrong())
        self._since = {each: self._since.get(each, now_ms) for each in found}
        for wrong, since_ms in self._since.items():
            if now_ms - since_ms > wrong.within_ms:
                self._cluster.safety.fail(wrong.rule, f"{wrong.detail}, since {since_ms} ms")
        self.begin()

    def _wrong(self) -> Iterator[Wrong]:
        office = NO_CONTROLLER
        for running in self._reachable:
            yield from self._of_broker(running)
            if running.controller.active:
                office = running.node_id
        if office != NO_CONTROLLER:
            yield from self._of_leaders(office)
            yield from self._of_lag(office)
            if self._cluster.network.is_whole:
                yield from self._of_followers()

    def _of_broker(self, running: Running) -> Iterator[Wrong]:
        if running.leads_any and not self._is_registered(running):
            detail = f"broker {running.node_id} leads, and its registration is gone or another's"
            yield Wrong("a leader is registered", detail, NOTIFIED_WITHIN_MS)
        unanswered = running.links.unanswered
        now = running.controller.image.controller_id if unanswered else NO_CONTROLLER
        for asked in unanswered:
            if now not in (asked, NO_CONTROLLER):
                detail = f"broker {running.node_id} waits for {asked}, and {now} is the controller"
                yield Wrong("a former controller is not awaited", detail, GIVEN_UP_WITHIN_MS)

    def _is_registered(self, running: Running) -> bool:
        """By its own session, not by that of another process."""
        return self._registered.get(running.node_id) == running.session.session_id

    def _of_leaders(self, office: int) -> Iterator[Wrong]:
        safety = self._cluster.safety
        for name in self._cluster.logs:
            state = safety.partition(name).state
            if state is None or state.leader == NO_LEADER:
                continue
            if state.leader not in self._registered:
                detail = f"{state.leader} leads {name} under controller {office}"
                yield Wrong("the dead do not lead", detail, NOTIFIED_WITHIN_MS)
        for running in self._reachable:
            if running.node_id == office or self._cluster.network.is_whole:
                yield from self._of_image(running)

    def _of_image(self, running: Running) -> Iterator[Wrong]:
        """A broker refuses images while another process has its registration."""
        if not self._is_registered(running):
            return
        image = running.controller.image
        for name in self._cluster.logs:
            partition = image.partition(*name)
            if partition is None or partition.leader == NO_LEADER:
                continue
            if partition.leader not in self._registered:
                detail = f"{partition.leader} leads {name}, as broker {running.node_id} has it"
                yield Wrong("the dead do not lead in any image", detail, NOTIFIED_WITHIN_MS)

    def _of_lag(self, office: int) -> Iterator[Wrong]:
        """A follower in sync has the records that its leader had LAG_MS ago."""
        for name in self._cluster.logs:
            partition = self._cluster.safety.partition(name)
            state = partition.state
            view = None if state is None else partition.views.get(state.leader)
            leader = None if state is None else self._cluster.brokers.get(state.leader)
            lives = leader is not None and leader.running in self._reachable
            if state is None or view is None or not (lives and view.leads):
                self._ends.pop(name, None)
                continue
            if view.leader_epoch != state.leader_epoch:
                # A leader counts from the beginning of its epoch, whose image may come late.
                self._ends.pop(name, None)
                continue
            ends = self._ends_of(name, state.leader_epoch, view.end_offset)
            for node_id in state.isr:
                other, places = partition.views.get(node_id), {office, state.leader, node_id}
                if other is None or other.replica is None or other.end_offset >= ends[0]:
                    continue
                if self._cluster.network.is_whole_between(places):
                    detail = f"broker {node_id}, at {name} led by {state.leader} in epoch"
                    detail += f" {state.leader_epoch}"
                    yield Wrong("a lagging follower leaves the set", detail, NOTIFIED_WITHIN_MS)

    def _of_followers(self) -> Iterator[Wrong]:
        for name in self._cluster.logs:
            partition = self._cluster.safety.partition(name)
            state = partition.state
            if state is None or state.leader == NO_LEADER:
                continue
            leader = self._cluster.brokers[state.leader].running
            view = partition.views.get(state.leader)
            if leader not in self._reachable or view is None or not view.leads:
                continue
            hang = {*state.isr} & {*self._hang(view)}
            where = f"{name}, led by {state.leader} in epoch {state.leader_epoch}"
            for node_id in self._not_fetching(partition, view):
                detail = f"broker {node_id} follows {where}, and does not fetch it"
                yield Wrong("a follower fetches", detail, NOTIFIED_WITHIN_MS)
            for node_id in sorted(hang):
                detail = f"broker {node_id} is in sync at {where}"
                yield Wrong("a hung follower leaves the in-sync set", detail, LAG_WITHIN_MS)
            if view.high_watermark < view.end_offset and len(state.isr) >= ENOUGH:
                detail = f"{view.high_watermark} of more, {where}"
                yield Wrong("records that are written are committed", detail, COMMITTED_WITHIN_MS)

    def _ends_of(self, name: TopicPartition, epoch: int, end_offset: int) -> deque[int]:
        """The leader's log end offsets of the last LAG_MS; a follower in sync has the oldest."""
        if self._ends.get(name, (-1,))[0] != epoch:
            self._ends[name] = epoch, deque([0], maxlen=LAG_MS // PERIOD_MS + 1)
        _, ends = self._ends[name]
        ends.append(end_offset)
        return ends

    def _not_fetching(self, partition: Partition, leader: View) -> Iterator[int]:
        """Live followers that know their leader and have not fetched for long."""
        if self._cluster.scheduler is not None:  # disks hang there
            return
        now_ns = round(self._cluster.loop.time() * 1e9)
        for node_id, _, _, _, fetched_ns, _ in _followers_of(leader):
            view, running = partition.views.get(node_id), self._cluster.brokers[node_id].running
            if running not in self._reachable or running.disk_failed or view is None:
                continue
            busy = running.fetches_slowly or running.fetchers_hang_until_ms > running.process.now_ms
            is_open = view.replica is not None and view.replica.online
            follows = is_open and view.leader_epoch == leader.leader_epoch
            if follows and not busy and now_ns - fetched_ns > FETCHED_WITHIN_MS * NS_PER_MS:
                yield node_id

    def _hang(self, leader: View) -> Iterator[int]:
        """Followers that fetch nothing, and lack records of their leader's log."""
        for node_id, _, end_offset, *_ in _followers_of(leader):
            running = self._cluster.brokers[node_id].running
            hangs_until_ms = 0.0 if running is None else running.fetchers_hang_until_ms
            if hangs_until_ms > self._cluster.loop.now_ms and end_offset < leader.end_offset:
                yield node_id


def _followers_of(leader: View) -> list[tuple[int, bool, int, int, int, int]]:
    """As its replica has them; none while its log is being changed."""
    try:
        return [] if leader.replica is None else leader.replica.followers()
    except BlockingIOError:
        return []
