"""Rule for calm histories: elections come to an end.

A history is calm if no broker dies, no connection fails and no replica is moved in it. An election
then has one cause, such as a leader with too little room for producers, and the next leader stays.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from kbroker.types import TopicPartition
    from tests.simulation.act import Act
    from tests.simulation.cluster import Cluster

PERIOD_MS: Final = 100
ELECTIONS_MAX: Final = 5
ELECTIONS_WITHIN_MS: Final = 5_000
# Acts of clients, and one that causes one election at most.
CALM: Final = frozenset({"produce", "consume", "ask_end", "commit", "ask_committed", "nearly_full"})


def is_calm(acts: Iterable[Act]) -> bool:
    return all(act.what in CALM for act in acts)


class Elections:
    """See the head of this file."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._epochs: dict[TopicPartition, deque[int]] = {}

    def begin(self) -> None:
        self._cluster.loop.later(PERIOD_MS, self._look)

    def _look(self) -> None:
        for name in self._cluster.logs:
            self._look_at(name)
        self.begin()

    def _look_at(self, name: TopicPartition) -> None:
        state = self._cluster.safety.partition(name).state
        if state is None:
            return
        looks = ELECTIONS_WITHIN_MS // PERIOD_MS
        epochs = self._epochs.setdefault(name, deque(maxlen=looks))
        epochs.append(state.leader_epoch)
        if epochs[-1] - epochs[0] >= ELECTIONS_MAX:
            detail = f"{name}: epoch {epochs[0]}, and {epochs[-1]} within {ELECTIONS_WITHIN_MS} ms"
            self._cluster.safety.fail("elections come to an end", detail)
