"""What the log manager asks of the replicas whose logs it holds, and what it tells them.

Replicas are above logs: `replica/held_replicas.py` is the listener of a broker, and is handed to
the log manager when that is made.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from kbroker.log.engine.partition_log import PartitionLog


class LogListener(Protocol):
    """Called by any thread."""

    def high_watermark_of(self, log: PartitionLog) -> int:
        """For the checkpoint: that of its replica, or what the last checkpoint said. Also called
        under the log manager's own lock, when a log is closed, so it takes no lock."""
        ...

    def went_offline(self, log: PartitionLog) -> None:
        """The log cannot be used any more; called more than once for one log, and never under the
        log manager's own lock."""
        ...
