"""The settings of one streams group as they are now: its own ones, and those of all groups.

Values are read at each use, so a new one holds from the member's next heartbeat on. Any thread.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from kbroker.config.group_settings import StreamsSettings, streams_settings
from kbroker.coordinator.consumer_group.settings import Settings
from kbroker.coordinator.streams_group.assignor import STICKY
from kbroker.metadata.image import ConfigKind

if TYPE_CHECKING:
    from kbroker.config import BrokerConfig
    from kbroker.metadata.image import ClusterImage


class StreamsGroupSettings:
    """`config` and `image` give the broker's settings and the image that is published."""

    def __init__(
        self, config: Callable[[], BrokerConfig], image: Callable[[], ClusterImage]
    ) -> None:
        self._config = config
        self._image = image

    def own(self, group_id: str) -> StreamsSettings:
        return streams_settings(
            self._config(), self._image().configs_of(ConfigKind.GROUP, group_id)
        )

    def of(self, group_id: str) -> Settings:
        own = self.own(group_id)
        return Settings(
            self._config()["group.streams.max.size"],
            own.session_timeout_ms,
            own.heartbeat_interval_ms,
            own.assignment_interval_ms,
            (STICKY,),
            0,  # there are no patterns
        )
