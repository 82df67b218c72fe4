"""Figures of transactions that hold consumers of committed records: of leaders, of open ones."""

from __future__ import annotations

from typing import Any

from kbroker.cluster.open_transactions import Figures
from kbroker.observe.transaction_figures import samples
from kbroker.replica._partition_figures import PartitionFigures
from kbroker.types import TopicPartition

A, B, C = (TopicPartition("t", index) for index in range(3))


def row(high_watermark: int, last_stable_offset: int, *, is_leader: bool = True) -> Any:
    numbers = dict.fromkeys(PartitionFigures._fields, 0)
    return PartitionFigures(**numbers)._replace(
        is_leader=is_leader, high_watermark=high_watermark, last_stable_offset=last_stable_offset
    )


ROWS = [(A, row(10, 4)), (B, row(10, 10)), (C, row(50, 1, is_leader=False))]


def test_the_most_of_the_partitions_led_here() -> None:
    figures = Figures({A: 7.5, B: 90.0}, late=1, aborted=3)  # what B waited for has just ended
    assert samples(ROWS, figures, every_figure=False) == {
        "last_stable_lag": [((), 6)],
        "last_stable_age": [((), 7.5)],
        "late_transactions": [((), 1)],
        "hanging_transactions": [((), 3)],
    }
    found = samples(ROWS, figures, every_figure=True)
    assert found["partition_stable_lag"] == [(("t", "0"), 6), (("t", "1"), 0)]
    assert found["partition_stable_age"] == [(("t", "0"), 7.5)]


def test_a_broker_without_transactions() -> None:
    found = samples([], None, every_figure=True)
    assert [rows for rows in found.values()] == [
        [((), 0)],
        [((), 0.0)],
        [((), 0)],
        [((), 0)],
        [],
        [],
    ]
