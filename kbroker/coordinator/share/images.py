"""What is kept of a share-partition: immutable values.

A share-partition is a partition of a topic as one share group reads it. Its state says which
offsets are done, or were delivered how often; the leader of the partition decides that, and the
share coordinator keeps it (KIP-932). Offsets below the start are done. An offset from the start on
of which no batch says anything is available, and was not delivered.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final, NamedTuple
from uuid import UUID

from kbroker.types import uuid_text

# Of a start that is not known yet: the first fetch finds it, by share.auto.offset.reset.
NO_START: Final = -1
# How many offsets are done: not known, as after a request of version 0.
NO_COUNT: Final = -1
# In a request: leave the epoch as it is, and fence nothing.
NO_EPOCH: Final = -1


class DeliveryState(IntEnum):
    """The number is that of records and requests. A record that a member has acquired is kept as
    AVAILABLE, or not at all. ARCHIVING (KIP-1191): a copy of it goes to a dead-letter topic."""

    AVAILABLE = 0
    ACKNOWLEDGED = 2
    ARCHIVING = 3
    ARCHIVED = 4


class SharePartition(NamedTuple):
    """Whose state: of a partition of this topic, in this group."""

    group_id: str
    topic_id: UUID
    partition: int

    @property
    def coordinator_key(self) -> str:
        """By which its coordinator is found; FindCoordinator has it with key type 2."""
        return f"{self.group_id}:{uuid_text(self.topic_id)}:{self.partition}"


class StateBatch(NamedTuple):
    """Offsets with one state and one delivery count; both ends are included."""

    first_offset: int
    last_offset: int
    state: int  # a DeliveryState
    delivery_count: int
