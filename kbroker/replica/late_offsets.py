"""Offsets that are late: a look for each on the disk, until it is found.

After a start, after a compaction, or where a follower begins in old records, memory may not know
where the high watermark of a leader lies, or the oldest open transaction. Appends and fetches do
not wait for the disk to tell it (`_late.pyx`), so this task of the scheduler asks it. Mostly there
is none, which costs a load of a number. A replica is a step. Of one that the disk does not tell
there is a line.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Final

from kbroker.log_lines import LogLines
from kbroker.replica._late_offsets import find, late_count, what_is_late

if TYPE_CHECKING:
    from kbroker.replica._replica import Replica
    from kbroker.types import TopicPartition

lines: Final = LogLines(logging.getLogger("kbroker.replica"))


def find_late(
    replicas: Callable[[], Mapping[TopicPartition, Replica]], wake: Callable[[Replica], None]
) -> Iterator[None]:
    """One look for each. `wake` answers the requests that are parked on a partition."""
    if not late_count():
        return
    for replica in list(replicas().values()):
        if what_is_late(replica) and replica.online:
            if find(replica):
                wake(replica)
            late = what_is_late(replica)
            if late:
                lines.write(
                    logging.WARNING, f"late {late}",
                    "%s: the disk does not tell where its %s lies; reads end at offset %d until it"
                    " does, and committed ones at %d -> look at the disk",
                    replica.name, late, replica.high_watermark, replica.last_stable_offset,
                )  # fmt: skip
            yield
