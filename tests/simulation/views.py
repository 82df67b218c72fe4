"""What `safety` keeps of each partition, and of each broker's log of it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from kbroker.types import TopicPartition
from tests.simulation.losses import Losses

if TYPE_CHECKING:
    from kbroker.metadata.controller import records as nodes
    from kbroker.metadata.image import PartitionImage
    from kbroker.replica._replica import Replica
    from tests.simulation.broker import Running
    from tests.simulation.contents import Contents, Record


@dataclass(eq=False)
class View:
    """What is known of one broker's log of one partition, over its starts."""

    node_id: int
    name: TopicPartition
    contents: Contents
    replica: Replica | None = None  # None: its broker is down
    high_watermark: int = 0
    stable: int = 0  # the last stable offset, while it leads in that epoch
    stable_in: int = -1
    end_offset: int = 0
    log_start: int = 0
    leader_epoch: int = -1
    partition_epoch: int = -1
    leads: bool = False
    values: set[bytes] = field(default_factory=set)
    checked: int = 0  # up to where it was compared with what is committed
    synced_to: int | None = None  # behind a power cut: what it had on the disk
    # The partition epoch in which it was no replica any more: its files may have gone since.
    removed_in: int | None = None
    last_removed_in: int = -1  # the last one, also where it is a replica again

    def is_known_in(self, state: PartitionImage) -> bool:
        """This log, not one before it: it was not given away since, to begin again with nothing."""
        return self.node_id in state.replicas and self.last_removed_in <= state.partition_epoch


@dataclass
class Partition:
    """What is known of a partition."""

    name: TopicPartition
    committed: list[Record] = field(default_factory=list)
    places: dict[bytes, int] = field(default_factory=dict)  # of what is committed, by value
    leaders: dict[int, Running] = field(default_factory=dict)  # by epoch
    views: dict[int, View] = field(default_factory=dict)
    state: nodes.PartitionRecord | None = None  # in the store
    last_numbers: dict[bytes, int] = field(default_factory=dict)  # by producer
    losses: Losses = field(default_factory=Losses)
    lost: bool = False  # as many lost a committed record as may not
    # By a move that has not ended.
    deleted_to: int = 0  # as it was answered, in that epoch or before
    deleted_in: int = -1
    undeleted: set[int] = field(default_factory=set)  # were not there then
    # And offsets, by producer id and epoch.
    sequences: dict[tuple[int, int], tuple[int, int]] = field(default_factory=dict)
    adding: set[int] = field(default_factory=set)
    removing: set[int] = field(default_factory=set)

    def is_deleted(self, offset: int) -> bool:
        """At one broker at least. Who copies its log knows no producer of what was there."""
        return any(offset < view.log_start for view in self.views.values())
