"""Samples of share state, with a coordinator and without one."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from kbroker.coordinator.runtime.loader import LoadTimes
from kbroker.coordinator.share.requests import Initialize, Read
from kbroker.metrics.catalogue import BY_KEY
from kbroker.metrics.samples import FROM_FIGURES
from kbroker.observe import share_figures
from tests.unit.coordinator.share.world import KEY, World, key_of


def values(share: Any) -> dict[str, float]:
    found = share_figures.samples(share)
    assert found.keys() <= BY_KEY.keys()
    return {key: row[1] for key, (row,) in found.items()}  # type: ignore[misc]


def test_without_share_groups_all_is_zero() -> None:
    assert set(values(None).values()) == {0}
    assert values(SimpleNamespace(made=None, waiting=7))["share_state_waiting"] == 7


def test_figures_of_a_coordinator() -> None:
    world = World()
    for number in range(3):
        world.done(Initialize(key_of(number), 1, 0))
    world.ask(Read(KEY._replace(group_id="other"), 0))
    times = LoadTimes().with_one(20).with_one(40)
    made = SimpleNamespace(coordinator=world.coordinator, loader=SimpleNamespace(times=times))
    assert values(SimpleNamespace(made=made, waiting=0)) == {
        "share_states": 3, "share_state_records": 3, "share_state_refused": 1,
        "share_state_unwritten": 0, "share_state_load_max": 40, "share_state_load_avg": 30,
        "share_state_waiting": 0,
    }  # fmt: skip


def test_samples_of_the_topic_name_labels_that_there_are() -> None:
    labels = {
        "share_acknowledgements": share_figures.TYPES, "share_archived": share_figures.REASONS,
    }  # fmt: skip
    named = [field for kind in FROM_FIGURES for field in kind.fields if field.of]
    assert {field.figure for field in named} == labels.keys()
    assert all(set(field.of) <= set(labels[field.figure]) for field in named)
