"""The settings of one consumer group as they are now: its own ones, and those of all groups.

Values are read at each use, so a new one holds from the member's next heartbeat on. Any thread.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from kbroker.coordinator.consumer_group.migration import Policy
from kbroker.coordinator.group.group_settings import GroupSettings

if TYPE_CHECKING:
    from kbroker.config import BrokerConfig
    from kbroker.metadata.image import ClusterImage


class Settings(NamedTuple):
    """Of one group, at this moment."""

    size_max: int
    session_timeout_ms: int
    heartbeat_interval_ms: int
    assignment_interval_ms: int
    assignors: tuple[str, ...]
    pattern_refresh_ms: int
    policy: Policy = Policy.BIDIRECTIONAL
    classic_size_max: int = 2**31 - 1


class ConsumerSettings:
    """`config` and `image` give the broker's settings and the image that is published."""

    def __init__(
        self, config: Callable[[], BrokerConfig], image: Callable[[], ClusterImage]
    ) -> None:
        self._config = config
        self._own = GroupSettings(config, image)

    def of(self, group_id: str) -> Settings:
        config = self._config()
        own = self._own.consumer(group_id)
        return Settings(
            config["group.consumer.max.size"],
            own.session_timeout_ms,
            own.heartbeat_interval_ms,
            own.assignment_interval_ms,
            config["group.consumer.assignors"],
            config["group.consumer.regex.refresh.interval.ms"],
            Policy(config["group.consumer.migration.policy"].lower()),
            config["group.max.size"],
        )
