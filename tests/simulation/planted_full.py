"""Faults that histories of nearly full disks must find; a plant is described in `plant.py`."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import replace
from typing import Any

from kbroker.metadata.controller.refusing_logs import RefusingLogs
from kbroker.metadata.image import PartitionImage
from kbroker.types import TopicPartition
from tests.simulation.plant import Plant


def _any_other(
    refusing: RefusingLogs, states: Iterable[PartitionImage], brokers: Collection[int], closed: Any
) -> list[PartitionImage]:
    """A leader with too little room is replaced by a broker with as little."""
    found = []
    for each in states:
        if (TopicPartition(each.topic, each.index), each.leader) in refusing.all():
            others = [node for node in each.isr if node != each.leader and node in brokers]
            found += [
                replace(each, leader=node, leader_epoch=each.leader_epoch + 1)
                for node in others[:1]
            ]
    return found


_note = RefusingLogs.note


def _always_news(refusing: RefusingLogs, *how: Any) -> bool:
    """After any answer of a broker, another one is to lead."""
    _note(refusing, *how)
    return True


PLANTED_WHERE_FULL: dict[str, Plant] = {
    "elections-without-end": Plant(
        RefusingLogs,
        "led_elsewhere",
        _any_other,
        1,
        also=((RefusingLogs, "note", _always_news),),
        first=21,
    ),
}
