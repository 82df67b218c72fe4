"""The counters of many partitions at once; see _partition_figures.pyx."""

from collections.abc import Sequence
from typing import NamedTuple

from kbroker.replica._replica import Replica

BATCH: int

class PartitionFigures(NamedTuple):
    online: bool
    is_leader: bool
    in_sync_count: int
    min_in_sync: int
    log_start_offset: int
    log_end_offset: int
    high_watermark: int
    size_bytes: int
    segments: int
    appended_bytes: int
    appended_records: int
    produces: int
    refused_produces: int
    rejected_bytes: int
    fetches: int
    refused_fetches: int
    fetched_bytes: int
    last_stable_offset: int

# Of at most BATCH replicas, in their order.
def read(replicas: Sequence[Replica]) -> list[PartitionFigures]: ...
