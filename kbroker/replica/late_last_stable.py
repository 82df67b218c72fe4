"""Last stable offsets that are late: a look for each on the disk, until it is found.

A log's appends do not wait for the disk to tell where an open transaction begins
(`_last_stable.pyx`), so this task of the scheduler asks it. Mostly there is none, which costs a
load of a number. A replica is a step. Of one that the disk does not tell there is a line.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Final

from kbroker.log_lines import LogLines
from kbroker.replica._late_offsets import find, is_late, late_count

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
        if is_late(replica) and replica.online:
            if find(replica):
                wake(replica)
            if is_late(replica):
                lines.write(
                    logging.WARNING, "late",
                    "%s: the disk does not tell where its oldest open transaction begins; committed"
                    " reads end at offset %d until it does -> look at the disk",
                    replica.name, replica.last_stable_offset,
                )  # fmt: skip
            yield
