"""What the checkpoints of a data directory say of the logs in it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from kbroker.log.engine.checkpoints import (
    CLEANER_FILE,
    HIGH_WATERMARK_FILE,
    LOG_START_FILE,
    RECOVERY_POINT_FILE,
)
from kbroker.log.engine.listener import LogListener
from kbroker.log.engine.partition_log import PartitionLog
from kbroker.types import TopicPartition


def line_of(file: str, log: PartitionLog, listener: LogListener) -> int:
    """Of a log that is open."""
    if file == RECOVERY_POINT_FILE:
        return log.settled_recovery_point
    if file == HIGH_WATERMARK_FILE:
        log.checkpointed_high_watermark = listener.high_watermark_of(log)
        return log.checkpointed_high_watermark
    if file == CLEANER_FILE:
        return log.cleaned_to if log.compacts else 0
    return log.log_start_offset


def lines_of(
    file: str,
    kept: Mapping[TopicPartition, int],
    logs: Iterable[PartitionLog],
    listener: LogListener,
) -> dict[TopicPartition, int]:
    """Of those that are open what holds now, of the others what is `kept`, an unknown start as
    well. A start of 0 needs no line, nor does a log that was never cleaned."""
    lines = {**kept, **{log.name: line_of(file, log, listener) for log in logs}}
    if file in (LOG_START_FILE, CLEANER_FILE):
        lines = {name: offset for name, offset in lines.items() if offset != 0}
    return lines
