"""The share-partitions of a broker: nothing of them is imported or kept before a client fetches.

    handlers             -> get    the service, made at the first call
    controller's thread  -> show   share-partitions that this broker does not lead any more end: on
                                   a handler, since there may be many, each with its answers

The settings of groups are parsed once for an image and a configuration. Any thread; a lock around
the making, and around the image that is to be followed.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from kbroker.clock import Clock
    from kbroker.config import BrokerConfig
    from kbroker.config.share_settings import ShareGroupSettings
    from kbroker.coordinator.share.seams import Persister
    from kbroker.engine._hot import HotPath
    from kbroker.engine._shares import HotShares
    from kbroker.engine.share.dead_letters import Topics
    from kbroker.engine.share.service import ShareService
    from kbroker.failures import Failures
    from kbroker.metadata.image import ClusterImage
    from kbroker.purgatory.purgatory import Purgatory
    from kbroker.purgatory.timer import Timer

# Groups whose settings are kept as they were parsed: clients name them.
_SETTINGS_MAX: Final = 10_000


class _Parsed(NamedTuple):
    """The settings of groups, by this image and this configuration."""

    config: BrokerConfig
    image: ClusterImage
    by_group: dict[str, ShareGroupSettings]


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
        waiting: Purgatory,
        dead_letters: Callable[[], Topics] | None = None,
    ) -> None:
        """`dead_letters`: the way to dead-letter topics; None: there are none."""
        self._config = config
        self._clock = clock
        self._timer = timer
        self._hot = hot
        self._image = image
        self._persister = persister
        self._failures = failures
        self._waiting = waiting
        self._dead_letters = dead_letters
        self._lock = threading.Lock()
        self._made: ShareService | None = None
        self._shown: ClusterImage | None = None  # what the share-partitions are to follow
        self._parsed: _Parsed | None = None

    def get(self) -> ShareService:
        with self._lock:
            if self._made is None:
                self._made = self._make()
            return self._made

    @property
    def made(self) -> ShareService | None:
        """None: no client has fetched for a share group."""
        return self._made

    def show(self, image: ClusterImage) -> None:
        """This is the published image now."""
        if self._made is None:
            return
        with self._lock:
            is_first, self._shown = self._shown is None, image
        if is_first:
            try:
                self._made.call_soon(self._follow)
            except Exception as error:
                self._shown = None  # the next image is followed
                self._failures.note("following the image", error)

    def _follow(self) -> None:
        with self._lock:
            image, self._shown = self._shown, None
        if self._made is not None and image is not None:
            self._made.leaders.follow(image, self._config().node_id)

    def settings(self, group_id: str) -> ShareGroupSettings:
        """Of a share group, at this moment."""
        from kbroker.config import share_settings
        from kbroker.metadata.image import ConfigKind

        config, image, parsed = self._config(), self._image(), self._parsed
        if parsed is None or parsed.config is not config or parsed.image is not image:
            parsed = self._parsed = _Parsed(config, image, {})
        found = parsed.by_group.get(group_id)
        if found is None:
            own = image.configs_of(ConfigKind.GROUP, group_id)
            found = share_settings.share_group_settings(config, own)
            if len(parsed.by_group) >= _SETTINGS_MAX:
                parsed.by_group.clear()
            parsed.by_group[group_id] = found
        return found

    def _hot_shares(self) -> HotShares:
        from kbroker.engine._shares import HotShares

        return HotShares(self._hot)

    def _make(self) -> ShareService:
        from kbroker.engine.share.dead_letters import Route
        from kbroker.engine.share.figures import ShareFigures
        from kbroker.engine.share.leaders import ShareLeaders
        from kbroker.engine.share.parts import Parts
        from kbroker.engine.share.service import ShareService
        from kbroker.engine.share.turns import Turns
        from kbroker.limits import SHARE_DEAD_LETTER_TURNS_MAX
        from kbroker.replica._committed_read import aborted_transactions
        from kbroker.replica.share.sessions import ShareSessions

        hot, figures = self._hot_shares(), ShareFigures()
        call_later, persister = self._timer.call_later, self._persister()

        def call_soon(call: Callable[[], object]) -> None:
            hot.call_soon(lambda _: call())

        route = None
        if self._dead_letters is not None:
            turns = Turns(SHARE_DEAD_LETTER_TURNS_MAX, call_soon)
            route = Route(self._dead_letters(), turns)
        leaders = ShareLeaders(
            lambda wake, forget: Parts(
                self._clock, persister, self.settings, call_later, call_soon, hot.await_records,
                aborted_transactions, wake, forget, self._failures, figures, route,
            ),
            self._waiting,
        )  # fmt: skip
        sessions = ShareSessions(lambda: self._config()["group.share.max.share.sessions"])
        return ShareService(
            leaders, sessions, self._waiting, self.settings, hot.await_end, call_soon, call_later,
            figures, self._failures,
        )  # fmt: skip
