"""The share-partitions of a broker: nothing of them is imported or kept before a client fetches.

    handlers             -> get    the service, made at the first call
    controller's thread  -> show   share-partitions that this broker does not lead any more end

Any thread; a lock around the making.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kbroker.clock import Clock
    from kbroker.config import BrokerConfig
    from kbroker.config.share_settings import ShareGroupSettings
    from kbroker.coordinator.share.seams import Persister
    from kbroker.engine._hot import HotPath
    from kbroker.engine.share.service import ShareService
    from kbroker.failures import Failures
    from kbroker.metadata.image import ClusterImage
    from kbroker.purgatory.timer import Timer


class ShareServiceOnDemand:
    """See the module."""

    def __init__(
        self,
        config: Callable[[], BrokerConfig],
        clock: Clock,
        timer: Timer,
        hot: HotPath,
        image: Callable[[], ClusterImage],
        persister: Callable[[], Persister],
        failures: Failures,
    ) -> None:
        self._config = config
        self._clock = clock
        self._timer = timer
        self._hot = hot
        self._image = image
        self._persister = persister
        self._failures = failures
        self._lock = threading.Lock()
        self._made: ShareService | None = None

    def get(self) -> ShareService:
        with self._lock:
            if self._made is None:
                self._made = self._make()
            return self._made

    def show(self, image: ClusterImage) -> None:
        """This is the published image now."""
        if self._made is not None:
            self._made.leaders.follow(image, self._config().node_id)

    def _settings(self, group_id: str) -> ShareGroupSettings:
        from kbroker.config.share_settings import share_group_settings
        from kbroker.metadata.image import ConfigKind

        own = self._image().configs_of(ConfigKind.GROUP, group_id)
        return share_group_settings(self._config(), own)

    def _make(self) -> ShareService:
        from kbroker.engine._shares import HotShares
        from kbroker.engine.share.leaders import ShareLeaders
        from kbroker.engine.share.led import Parts
        from kbroker.engine.share.service import ShareService
        from kbroker.purgatory.purgatory import Purgatory
        from kbroker.replica._committed_read import aborted_transactions
        from kbroker.replica.share.sessions import ShareSessions

        hot = HotShares(self._hot)
        waiting = Purgatory("ShareFetch", self._timer)
        call_later, persister = self._timer.call_later, self._persister()

        def call_soon(call: Callable[[], object]) -> None:
            hot.call_soon(lambda _: call())

        leaders = ShareLeaders(
            lambda wake, forget: Parts(
                self._clock, persister, self._settings, call_later, call_soon, hot.await_records,
                aborted_transactions, wake, forget, self._failures,
            ),
            waiting,
        )  # fmt: skip
        sessions = ShareSessions(lambda: self._config()["group.share.max.share.sessions"])
        return ShareService(
            leaders, sessions, waiting, self._settings, hot.await_end, call_soon, call_later
        )
