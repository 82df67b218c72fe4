"""The controller in figures: what `Controller.statistics` answers, for metrics and tests."""

from __future__ import annotations

from typing import NamedTuple


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
