"""Samples of transactions: what consumers of committed records wait for. For the Observer.

The lag is of this moment. Ages are those of the last look at open transactions, at most ten seconds
ago; a transaction that has ended since is still in them. Pure functions; any thread.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from kbroker.observe.traffic_figures import Samples

if TYPE_CHECKING:
    from kbroker.cluster.open_transactions import Figures
    from kbroker.replica._partition_figures import PartitionFigures
    from kbroker.types import TopicPartition


def samples(
    rows: Sequence[tuple[TopicPartition, PartitionFigures]],
    is_open: Figures | None,
    *,
    every_figure: bool,
) -> Samples:
    """`is_open`: transactions; None: there has been none."""
    lags = {
        name: max(0, figures.high_watermark - figures.last_stable_offset)
        for name, figures in rows
        if figures.is_leader
    }
    ages = {} if is_open is None else {n: age for n, age in is_open.ages.items() if lags.get(n)}
    found: Samples = {
        "last_stable_lag": [((), max(lags.values(), default=0))],
        "last_stable_age": [((), max(ages.values(), default=0.0))],
        "late_transactions": [((), 0 if is_open is None else is_open.late)],
        "hanging_transactions": [((), 0 if is_open is None else is_open.aborted)],
    }
    if every_figure:
        found["partition_stable_lag"] = [
            ((name.topic, str(name.partition)), lag) for name, lag in lags.items()
        ]
        found["partition_stable_age"] = [
            ((name.topic, str(name.partition)), age) for name, age in ages.items()
        ]
    return found
