"""The state that `safety` keeps of each partition, and of each broker's log of it."""

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
    """The known state of one broker's log of one partition, over its starts."""

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
    checked: int = 0  # the end of the part that was compared with the committed records
    synced_to: int | None = None  # after a power cut: the end of the part on the disk
    # The partition epoch in which it ceased to be a replica: its files may be removed since.
    removed_in: int | None = None
    last_removed_in: int = -1  # the last one, also where it is a replica again

    def is_known_in(self, state: PartitionImage) -> bool:
        """Whether the state is of this log, not of one before it that was removed since."""
        return self.node_id in state.replicas and self.last_removed_in <= state.partition_epoch


@dataclass
class Partition:
    """The known state of a partition."""

    name: TopicPartition
    committed: list[Record] = field(default_factory=list)
    places: dict[bytes, int] = field(default_factory=dict)  # of committed records, by value
    leaders: dict[int, Running] = field(default_factory=dict)  # by epoch
    views: dict[int, View] = field(default_factory=dict)
    state: nodes.PartitionRecord | None = None  # in the store
    last_numbers: dict[bytes, int] = field(default_factory=dict)  # by producer
    losses: Losses = field(default_factory=Losses)
    lost: bool = False  # min.insync.replicas or more have lost a committed record
    # By a move that has not ended.
    deleted_to: int = 0  # as it was answered, in that epoch or before
    deleted_in: int = -1
    undeleted: set[int] = field(default_factory=set)  # were not there then
    # And offsets, by producer id and epoch.
    sequences: dict[tuple[int, int], tuple[int, int]] = field(default_factory=dict)
    adding: set[int] = field(default_factory=set)
    removing: set[int] = field(default_factory=set)

    def is_deleted(self, offset: int) -> bool:
        """At one broker at least. A replica that copies its log has no state of those producers."""
        return any(offset < view.log_start for view in self.views.values())
