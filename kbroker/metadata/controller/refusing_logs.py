"""Logs that refuse producers for want of room: others should lead them, as long as others can.

Place in the flow: brokers say it with their answers (`ImageAnswer.refusing`), this one by its own
`Propagation`; `PartitionChanges` has those of other brokers kept here, and asks which partitions
another broker is to lead. Such a log is as good as any other: it follows, is in sync, and leads on
where all others refuse as well, because an election would help no producer.

On the controller's thread only.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace

from kbroker.metadata.controller.propagation import Propagation
from kbroker.metadata.image import PartitionImage
from kbroker.types import TopicPartition


class RefusingLogs:
    """See the head of this file."""

    def __init__(self, propagation: Propagation, node_id: int) -> None:
        self._propagation = propagation
        self._node_id = node_id
        self._at: dict[int, tuple[TopicPartition, ...]] = {}

    def note(self, node_id: int, names: Sequence[TopicPartition]) -> bool:
        """A broker refuses producers at these, and at no others; whether that is news."""
        news = self._at.get(node_id, ()) != tuple(names)
        self._at[node_id] = tuple(names)
        return news

    def forget_others(self, node_ids: Collection[int] = ()) -> None:
        """But for these brokers: who starts again, or is asked again, says it again."""
        self._at = {node_id: names for node_id, names in self._at.items() if node_id in node_ids}

    def all(self) -> frozenset[tuple[TopicPartition, int]]:
        at = {**self._at, self._node_id: self._propagation.refusing}
        return frozenset((name, node_id) for node_id, names in at.items() for name in names)

    def led_elsewhere(
        self,
        states: Iterable[PartitionImage],
        brokers: Collection[int],
        closed: Collection[tuple[TopicPartition, int]],
    ) -> list[PartitionImage]:
        """Those of these states whose leaders refuse and that another of the `brokers` can lead,
        which is in sync, has a log that is not `closed`, and does not refuse; led by that one.
        Nothing else changes: all that are in sync stay so."""
        refusing = self.all()
        changed: list[PartitionImage] = []
        for each in states if refusing else ():
            name = TopicPartition(each.topic, each.index)
            if (name, each.leader) not in refusing:
                continue
            for node in each.replicas:
                able = node in each.isr and node in brokers and (name, node) not in closed
                if able and (name, node) not in refusing:
                    epoch = each.leader_epoch + 1
                    changed.append(replace(each, leader=node, leader_epoch=epoch))
                    break
        return changed
