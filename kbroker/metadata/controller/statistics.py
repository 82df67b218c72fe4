"""The controller in figures: what `Controller.statistics` answers, for metrics and tests."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from kbroker.metadata.controller.event_loop import EventLoop
    from kbroker.metadata.controller.events import Event
    from kbroker.metadata.controller.partition_changes import Elections
    from kbroker.metadata.image import ClusterImage
    from kbroker.metrics.durations import Durations


class ControllerStatistics(NamedTuple):
    active: bool
    controller_epoch: int
    image_version: int
    events_queued: int
    events_handled: int
    events_failed: int
    topics: int
    partitions: int
    offline_partitions: int
    leader_elections: int
    unclean_elections: int
    events_waited: Durations
    events_took: Durations

    @classmethod
    def of(
        cls,
        image: ClusterImage,
        loop: EventLoop[Event],
        office: tuple[bool, int],
        counts: tuple[int, int],
        elections: Elections,
    ) -> ControllerStatistics:
        """`office`: whether this broker is in office, and its controller's epoch. `counts`: events
        that were handled, and of these those that failed."""
        return cls(
            *office,
            image.version,
            loop.queued,
            *counts,
            len(image.topics),
            image.partition_count,
            image.offline_partition_count,
            elections.leaders,
            elections.unclean,
            loop.waited,
            loop.took,
        )
