"""How dirty a compacted log is, and how far it may be cleaned now.

The *clean* part is what was cleaned before, the *dirty* one what came since. Not to be cleaned yet
are the active segment, what is not below the last stable offset, and segments with a record younger
than `min.compaction.lag.ms`. A log is worth it when the dirty bytes are more than
`min.cleanable.dirty.ratio` of all, or when its oldest dirty record has waited for longer than
`max.compaction.lag.ms`. Rules are Apache Kafka's (KIP-58, KIP-354). Pure functions.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from kbroker.config.key import LONG_MAX
from kbroker.log.engine._results import SegmentFigures
from kbroker.log.engine.partition_log import Compaction


class Cleanable(NamedTuple):
    """What a cleaning now would take: keys of `first_dirty` to below `end`, where a segment ends.

    `late_ms`: for how long `max.compaction.lag.ms` has been over, 0: it is not.
    """

    first_dirty: int
    end: int
    clean_bytes: int
    dirty_bytes: int
    late_ms: int

    @property
    def ratio(self) -> float:
        """The dirty share."""
        total = self.clean_bytes + self.dirty_bytes
        return self.dirty_bytes / total if total else 0.0

    def worth_it(self, rules: Compaction) -> bool:
        return self.dirty_bytes > 0 and (self.late_ms > 0 or self.ratio > rules.dirty_ratio_min)


def look(
    segments: Sequence[SegmentFigures],
    log_start_offset: int,
    log_end_offset: int,
    cleaned_to: int,
    last_stable_offset: int,
    rules: Compaction,
    now_ms: int,
) -> Cleanable:
    """`segments`, oldest first; the last one is active."""
    sealed = segments[:-1]
    ends = [segment.base_offset for segment in segments[1:]]
    first_dirty = max(cleaned_to, log_start_offset)
    if first_dirty > log_end_offset:
        first_dirty = log_start_offset
    end = clean_bytes = dirty_bytes = 0
    oldest_ms = LONG_MAX
    for segment, segment_end in zip(sealed, ends, strict=True):
        young = segment.max_timestamp_ms > now_ms - rules.lag_min_ms
        if segment_end > last_stable_offset or (
            segment_end > first_dirty and rules.lag_min_ms > 0 and young
        ):
            break
        end = segment_end
        if segment_end <= first_dirty:
            clean_bytes += segment.size_bytes
            continue
        dirty_bytes += segment.size_bytes
        if segment.first_timestamp_ms > 0:
            oldest_ms = min(oldest_ms, segment.first_timestamp_ms)
    late_ms = 0
    if rules.lag_max_ms < LONG_MAX and oldest_ms < LONG_MAX:
        late_ms = max(0, now_ms - rules.lag_max_ms - oldest_ms)
    return Cleanable(first_dirty, end, clean_bytes, dirty_bytes, late_ms)
