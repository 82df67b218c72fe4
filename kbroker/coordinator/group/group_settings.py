"""The settings of each group as they are now, by the group's id.

Place in the flow: a client alters them (IncrementalAlterConfigs, resources of type 32), the
controller stores them, every broker has them in its image. The coordinator asks at the moment when
it needs a value, so a change holds from the next heartbeat on.

Any thread; holds no lock, and keeps no group: the image is the store.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from kbroker.config.group_settings import ConsumerGroupSettings, consumer_group_settings
from kbroker.metadata.image import ConfigKind

if TYPE_CHECKING:
    from kbroker.config import BrokerConfig
    from kbroker.metadata.image import ClusterImage


class GroupSettings:
    """`config` and `image` give the broker's settings and the image that is published."""

    def __init__(
        self, config: Callable[[], BrokerConfig], image: Callable[[], ClusterImage]
    ) -> None:
        self._config: Final = config
        self._image: Final = image

    def consumer(self, group_id: str) -> ConsumerGroupSettings:
        own = self._image().configs_of(ConfigKind.GROUP, group_id)
        return consumer_group_settings(self._config(), own)
