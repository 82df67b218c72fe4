"""Who serves, leads and is asked lives: what may be otherwise for a moment, and not for longer.

Looked at every PERIOD_MS. Of a broker that stands still or does not reach the store nothing is
said: it cannot know. What is found wrong may be on its way to be right; what is wrong without a
break for longer than the rule allows is a violation.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from kbroker.metadata.controller import records
from kbroker.metadata.image import NO_CONTROLLER, NO_LEADER

if TYPE_CHECKING:
    from tests.simulation.broker import Running
    from tests.simulation.cluster import Cluster

PERIOD_MS = 100
# Events wait, the store is slow, and a controller hangs for 600 ms at most each.
HEARD_WITHIN_MS = 1_500
# In the same step as the image that says so; it may come between two looks.
GIVEN_UP_WITHIN_MS = 50


class Wrong(NamedTuple):
    rule: str
    detail: str
    within_ms: int


class Living:
    """See the head of this file."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._since: dict[Wrong, int] = {}

    def begin(self) -> None:
        self._cluster.loop.later(PERIOD_MS, self._look)

    def _look(self) -> None:
        now_ms = self._cluster.loop.now_ms
        found = dict.fromkeys(self._wrong())
        self._since = {each: self._since.get(each, now_ms) for each in found}
        for wrong, since_ms in self._since.items():
            if now_ms - since_ms > wrong.within_ms:
                self._cluster.safety.fail(wrong.rule, f"{wrong.detail}, since {since_ms} ms")
        self.begin()

    def _wrong(self) -> Iterator[Wrong]:
        office = NO_CONTROLLER
        for running in self._cluster.reachable():
            yield from self._of_broker(running)
            if running.controller.active:
                office = running.node_id
        if office != NO_CONTROLLER:
            yield from self._of_leaders(office)

    def _of_broker(self, running: Running) -> Iterator[Wrong]:
        node = self._cluster.ensemble.tree.find(records.broker_path(running.node_id))
        if running.leads_any and (node is None or node.owner != running.session.session_id):
            told = f"broker {running.node_id} leads, and its registration is gone or another's"
            yield Wrong("who leads is registered", told, HEARD_WITHIN_MS)
        now = running.controller.image.controller_id
        for asked in running.links.unanswered:
            if now not in (asked, NO_CONTROLLER):
                told = f"broker {running.node_id} waits for {asked}, and {now} is the controller"
                yield Wrong("who is no controller is not waited for", told, GIVEN_UP_WITHIN_MS)

    def _of_leaders(self, office: int) -> Iterator[Wrong]:
        safety, tree = self._cluster.safety, self._cluster.ensemble.tree
        for name in (*self._cluster.names, *self._cluster.homes):
            state = safety.partition(name).state
            if state is None or state.leader == NO_LEADER:
                continue
            if tree.find(records.broker_path(state.leader)) is None:
                told = f"{state.leader} leads {name} under controller {office}"
                yield Wrong("the dead do not lead", told, HEARD_WITHIN_MS)
