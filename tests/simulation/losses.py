"""The brokers that may have lost records of a partition, each until it is in sync again."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from kbroker.metadata.image import NO_LEADER

if TYPE_CHECKING:
    from kbroker.metadata.controller.records import PartitionRecord
    from tests.simulation.contents import Record


def put_in(before: PartitionRecord, state: PartitionRecord) -> int:
    """The last leader, where the controller puts it in sync because no other replica is left: no
    leader has seen what it has."""
    return before.last_leader if state.isr == (before.last_leader,) else NO_LEADER


class Losses:
    """By value: brokers that may have lost it."""

    def __init__(self) -> None:
        self._lost_at: dict[bytes, set[int]] = {}

    def add(self, node_id: int, records: Iterable[Record]) -> None:
        for record in records:
            self._lost_at.setdefault(record.value, set()).add(node_id)

    def has_all_again(self, node_id: int) -> None:
        for lost_at in self._lost_at.values():
            lost_at.discard(node_id)

    def of(self, record: Record) -> set[int]:
        return self._lost_at.get(record.value, set())
