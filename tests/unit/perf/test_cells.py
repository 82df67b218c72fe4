"""What a block checks of the broker that it measured."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from dataclasses import replace
from typing import cast

import pytest

from perf.cells import BY_KEY, CellError, check_count
from perf.client import Client
from perf.requests import Topic

TOPIC = Topic("t", uuid.UUID(int=1).bytes, 2)
CELL = BY_KEY["p-1k-4x5"]


class Following:
    """Its high watermarks move on each time they are asked for, up to the last of these."""

    def __init__(self, *sums: int) -> None:
        self._sums: Iterator[int] = iter(sums)
        self._last = 0

    def offsets(self, topic: Topic) -> list[int]:
        self._last = next(self._sums, self._last)
        return [self._last, *(topic.partitions - 1) * [0]]


def test_records_that_the_followers_still_lack_are_waited_for() -> None:
    there = cast(Client, Following(560, 700, 747))
    check_count("here", there, replace(CELL, replicas=3), TOPIC, 747)


@pytest.mark.parametrize(("replicas", "sums"), [(1, (560, 747)), (1, (748,)), (3, (748,))])
def test_another_count_is_no_figure(replicas: int, sums: tuple[int, ...]) -> None:
    there = cast(Client, Following(*sums))
    with pytest.raises(CellError, match="747 records were acknowledged, the log holds"):
        check_count("here", there, replace(CELL, replicas=replicas), TOPIC, 747)
