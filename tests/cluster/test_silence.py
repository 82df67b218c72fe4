"""The allowed silence of each part because of a fault: bounds that are passed are reported."""

from __future__ import annotations

from typing import Final

import pytest

from kbroker.types import TopicPartition
from tests.cluster.history import History
from tests.cluster.silence import FAILOVER_S, REBALANCE_S, Happened, measured, too_long

HUNG: Final = TopicPartition("numbers", 0)
HEALTHY: Final = TopicPartition("numbers", 1)
LASTED_S: Final = 8.0
FAULT: Final = Happened("hang-leader", LASTED_S, {HUNG})
MORE_S: Final = 0.1


def reported(hung_s: float, healthy_s: float, commits_s: float) -> list[str]:
    return too_long(FAULT, {HUNG: hung_s, HEALTHY: healthy_s}, commits_s)


def test_the_bounds_themselves_are_kept() -> None:
    assert reported(LASTED_S + FAILOVER_S, FAILOVER_S, LASTED_S + FAILOVER_S + REBALANCE_S) == []


@pytest.mark.parametrize(
    ("silences_s", "who"),
    [
        ((LASTED_S + FAILOVER_S + MORE_S, 0.0, 0.0), "numbers-0 was"),
        ((0.0, FAILOVER_S + MORE_S, 0.0), "numbers-1, which is healthy, was"),
        ((0.0, 0.0, LASTED_S + FAILOVER_S + REBALANCE_S + MORE_S), "commits were"),
    ],
)
def test_a_longer_silence_is_reported(silences_s: tuple[float, float, float], who: str) -> None:
    (text,) = reported(*silences_s)
    assert text.startswith(f"hang-leader: {who} silent for ")


def test_the_longest_silence_of_each_is_measured() -> None:
    found = measured(FAULT, {HUNG: 9.0, HEALTHY: 1.0}, 2.0)
    assert (found.silent_s, found.healthy_s, found.commits_s, found.beyond_s) == (9, 1, 2, 1)


def test_a_silence_ends_with_an_acknowledgement_of_that_partition(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now_s = [100.0]
    monkeypatch.setattr("tests.cluster.history.time.monotonic", lambda: now_s[0])
    history = History()

    def acknowledge(place: TopicPartition, at_s: float) -> None:
        now_s[0] = at_s
        history.acknowledge(place, history.send(place, 7), 0)

    acknowledge(HUNG, 100.0)
    acknowledge(HEALTHY, 100.0)
    now_s[0] = 110.0
    history.watch_silence()  # what was before does not count
    acknowledge(HEALTHY, 111.0)
    acknowledge(HEALTHY, 115.0)
    acknowledge(HUNG, 119.0)
    acknowledge(HUNG, 119.5)
    assert history.silences_s() == {HUNG: 9.0, HEALTHY: 4.0}
