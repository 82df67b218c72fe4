"""The controller in figures: what `Controller.statistics` answers, for metrics and tests."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from kbroker.metadata.image import ClusterImage


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
    unclean_elections: int

    @classmethod
    def of(
        cls,
        image: ClusterImage,
        *,
        active: bool,
        controller_epoch: int,
        events_queued: int,
        events_handled: int,
        events_failed: int,
        unclean_elections: int,
    ) -> ControllerStatistics:
        return cls(
            active,
            controller_epoch,
            image.version,
            events_queued,
            events_handled,
            events_failed,
            len(image.topics),
            image.partition_count,
            image.offline_partition_count,
            unclean_elections,
        )
