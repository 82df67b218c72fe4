"""The settings of one share group as they are now: its own ones, and those of all groups.

Values are read at each use, so a new one holds from the member's next heartbeat on. Any thread.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from kbroker.config.group_settings import share_member_settings
from kbroker.coordinator.consumer_group.settings import Settings
from kbroker.coordinator.share_group.assignor import SIMPLE
from kbroker.metadata.image import ConfigKind

if TYPE_CHECKING:
    from kbroker.config import BrokerConfig
    from kbroker.metadata.image import ClusterImage


class ShareSettings:
    """`config` and `image` give the broker's settings and the image that is published."""

    def __init__(
        self, config: Callable[[], BrokerConfig], image: Callable[[], ClusterImage]
    ) -> None:
        self._config = config
        self._image = image

    def of(self, group_id: str) -> Settings:
        config = self._config()
        own = share_member_settings(config, self._image().configs_of(ConfigKind.GROUP, group_id))
        return Settings(
            config["group.share.max.size"],
            own.session_timeout_ms,
            own.heartbeat_interval_ms,
            own.assignment_interval_ms,
            (SIMPLE,),
            0,  # there are no patterns
        )

    def retry_ms(self) -> int:
        """Before a share-partition that got no state is asked for again."""
        pause_ms: int = self._config()["group.share.initialize.retry.interval.ms"]
        return pause_ms
