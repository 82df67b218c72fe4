"""Acts of `Cluster` on the share groups of a simulated cluster.

`serve_shares` comes first: without it there is no `__share_group_state`, and members do nothing.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any, cast

from kbroker.coordinator.share.state_topic import new_topic
from kbroker.errors import ErrorCode
from kbroker.metadata.controller import NewTopic
from kbroker.metadata.controller.feature_changes import FeatureUpdate, UpgradeType
from kbroker.metadata.features import SHARE_VERSION
from kbroker.metadata.image import SHARE_STATE_TOPIC
from kbroker.types import TopicPartition
from tests.simulation.share_clients import ShareMember
from tests.simulation.share_ledger import ShareLedger

if TYPE_CHECKING:
    from tests.simulation.broker import Broker, Running
    from tests.simulation.cluster import Cluster
    from tests.simulation.loop import StepLoop

# Members, by their groups.
MEMBERS = ("s1", "s1", "s2", "s2")
_RETRY_MS = 30
_CONFIGS = {"min.insync.replicas": "2"}


class ShareActs:
    """See the head of this file."""

    brokers: dict[int, Broker]
    loop: StepLoop
    has_shares: bool
    is_healed: bool

    def _prepare_shares(self, dice: random.Random) -> None:
        cluster = cast("Cluster", self)
        self.share_states: list[TopicPartition] = []
        self.share_ledger = ShareLedger(cluster)
        self.share_members = [
            ShareMember(cluster, number, group, random.Random(dice.random()))
            for number, group in enumerate(MEMBERS, start=1)
        ]

    def controllers(self) -> list[Running]:
        raise NotImplementedError

    def serve_shares(self, partitions: int) -> None:
        """There is a state topic of so many partitions, once share.version is 1; until it is there,
        since a controller that is asked may end."""
        if self.share_states:
            return
        self.loop.later(_RETRY_MS, self.serve_shares, partitions)
        running = next(iter(self.controllers()), None)
        if running is None:
            return
        brokers = [*self.brokers]
        assignments = {
            index: (*brokers[at:], *brokers[:at])
            for index in range(partitions)
            for at in [(index + 1) % len(brokers)]
        }
        configs = {**new_topic(running.config, len(brokers)).configs, **_CONFIGS}
        topic = NewTopic(SHARE_STATE_TOPIC, assignments=assignments, configs=configs)

        def made(results: Any) -> None:
            if results[0].error in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
                self.share_states = [
                    TopicPartition(SHARE_STATE_TOPIC, each) for each in assignments
                ]
                if self.is_healed:
                    self._end_shares()

        if running.controller.image.features.level(SHARE_VERSION):
            running.controller.create_topics([topic], False, made)
        else:
            update = FeatureUpdate(SHARE_VERSION, 1, UpgradeType.UPGRADE)
            running.controller.update_features([update], False, lambda error: None)

    def share(self, member: int) -> None:
        """It comes into its group, and fetches from then on."""
        if self.share_states:
            self.share_members[member].come()

    def unshare(self, member: int, politely: int) -> None:
        """It leaves; or its process ends, and its connections with it."""
        self.share_members[member].go(politely=bool(politely))

    def _end_shares(self) -> None:
        """All members are in their groups, and accept every record."""
        for member in self.share_members:
            member.is_good = True
            if self.share_states:
                member.come()
