"""Leadership goes back to the preferred replicas: `auto.leader.rebalance.enable`.

After a broker was away others lead what it led, and that does not come back by itself. Every
`leader.imbalance.check.interval.seconds` the controller has the preferred replicas lead again that
live and are in sync, ELECTIONS_MAX of them at a time, so that clients of many partitions do not all
look for their leaders at once.
"""

from __future__ import annotations

import itertools
import logging
from typing import TYPE_CHECKING, Final

from kbroker.metadata.controller.partition_states import not_preferred

if TYPE_CHECKING:
    from collections.abc import Callable

    from kbroker.config import BrokerConfig
    from kbroker.metadata.controller import Controller
    from kbroker.metadata.controller.events import Outcomes
    from kbroker.scheduler import Scheduler

log: Final = logging.getLogger("kbroker.controller")

ELECTIONS_MAX: Final = 1_000


class LeaderRebalance:
    """See the head of this file. On the scheduler's thread; elections are the controller's."""

    def __init__(self, controller: Callable[[], Controller]) -> None:
        self._controller = controller

    def schedule(self, scheduler: Scheduler, config: BrokerConfig) -> None:
        if config["auto.leader.rebalance.enable"]:
            period_ms = config["leader.imbalance.check.interval.seconds"] * 1000
            scheduler.schedule("leader-rebalance", self.look, period_ms)

    def look(self) -> None:
        controller = self._controller()
        if not controller.active:
            return
        wanted = list(itertools.islice(not_preferred(controller.image), ELECTIONS_MAX))
        if wanted:
            controller.elect_leaders(False, wanted, _tell)


def _tell(elections: Outcomes) -> None:
    elected = sum(error is None for _, error in elections)
    log.info("%d of %d preferred replicas lead again", elected, len(elections))
