"""The replicas that this broker holds, by partition, as of now.

Place in the flow: made before the log manager, whose listener it is, and before the replica
manager, which replaces `now` on the controller's thread whenever a partition comes or goes. The
mapping itself is never changed, so any thread may read it without a lock.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final

from kbroker.types import TopicPartition

if TYPE_CHECKING:
    from kbroker.log.engine.partition_log import PartitionLog
    from kbroker.replica._replica import Replica


class HeldReplicas:
    """See the head of this file."""

    def __init__(self, wake: Callable[[Replica], None]) -> None:
        """`wake` answers the requests that wait at a replica, as far as they can be answered."""
        self.wake: Final = wake
        self.now: Mapping[TopicPartition, Replica] = {}

    def high_watermark_of(self, log: PartitionLog) -> int:
        """See `LogListener`."""
        replica = self._of(log)
        return log.checkpointed_high_watermark if replica is None else replica.high_watermark

    def went_offline(self, log: PartitionLog) -> None:
        """See `LogListener`: requests that wait for records of this log are answered."""
        replica = self._of(log)
        if replica is not None and replica.has_watchers:
            self.wake(replica)

    def _of(self, log: PartitionLog) -> Replica | None:
        replica = self.now.get(log.name)
        return replica if replica is not None and replica.log is log else None
