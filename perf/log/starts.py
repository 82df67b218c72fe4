"""A broker that starts on a directory with data: what is removed before, and when it is ready.

It is ready when every partition has answered ListOffsets with the end that its log must have: the
topics are asked one after the other, the next once all partitions of the one before have answered,
so that the last answer is the time and what was lost is never ready. The clock begins at exec.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from perf.brokers.base import Broker, BrokerError
from perf.client import Client, ClientError
from perf.cluster.brokers import until
from perf.process import Reads, Watch, cpu_ns, reads
from perf.requests import Topic
from perf.wire import WireError

PAUSE_S: Final = 0.005  # after an attempt that failed: how fine the figure is
START_WAIT_S: Final = 600.0
STOP_WAIT_S: Final = 180.0
CLEAN_MARK: Final = ".kafka_cleanshutdown"
RECOVERY_POINTS: Final = "recovery-point-offset-checkpoint"
# Both brokers write both, by Apache Kafka's names. Without the first the next start recovers,
# without the second it does so from each log's beginning.
SPARING: Final = (CLEAN_MARK, RECOVERY_POINTS)
_CHUNK_BYTES: Final = 1 << 20


@dataclass(frozen=True)
class Ready:
    """One start, until every partition has answered."""

    seconds: float
    cpu_s: float  # of the process until then
    reads: Reads
    quiet: bool


def data_of(broker: Broker) -> Path:
    return broker.directory / "data"


def log_bytes(data: Path, topics: Sequence[Topic]) -> int:
    """Of the record files of these topics."""
    return sum(
        path.stat().st_size for topic in topics for path in data.glob(f"{topic.name}-*/*.log")
    )


def spare_nothing(data: Path) -> list[str]:
    """Removes what spares a start the reading of its logs; the names that were there."""
    removed = []
    for name in SPARING:
        path = data / name
        if path.exists():
            path.unlink()
            removed.append(name)
    return removed


def read_into_cache(directory: Path) -> int:
    """Reads every file below it, so that the page cache has them; how many bytes there are."""
    buffer = bytearray(_CHUNK_BYTES)
    total = 0
    for path in sorted(directory.rglob("*")):
        if not path.is_file():
            continue
        with path.open("rb", buffering=0) as file:
            while got := file.readinto(buffer):
                total += got
    return total


def until_answered(
    broker: Broker, topics: Sequence[Topic], end_offset: int, wait_s: float = START_WAIT_S
) -> float:
    """When every partition of all topics had answered with this end, by time.monotonic(); of no
    topic, when the broker answered at all."""
    if not topics:
        broker.wait_ready()
    give_up_s = time.monotonic() + wait_s
    client: Client | None = None
    ready, last = 0, "nothing was answered"
    try:
        while ready < len(topics):
            try:
                client = client or broker.client()
                ends = client.offsets(topics[ready])
                if all(end == end_offset for end in ends):
                    ready += 1
                    continue
                last = f"{topics[ready].name} ends at {min(ends)} to {max(ends)}, not {end_offset}"
            except ClientError as error:  # not led yet, or not by a log that is open
                last = str(error)
            except (OSError, WireError) as error:
                if client is not None:
                    client.close()
                client, last = None, str(error)
                broker.check_alive()
            if time.monotonic() > give_up_s:
                raise BrokerError(f"{broker.name} is not ready within {wait_s:.0f} s: {last}")
            time.sleep(PAUSE_S)
    finally:
        if client is not None:
            client.close()
    return time.monotonic()


def timed_start(broker: Broker, topics: Sequence[Topic], end_offset: int) -> Ready:
    """Starts it, as it was prepared; from exec until all of these have answered."""
    broker.prepare()
    watch = Watch([os.getpid()])
    broker.launch()
    watch.include(broker.pid)
    seconds = until_answered(broker, topics, end_offset) - broker.started_ns / 1e9
    return Ready(seconds, cpu_ns(broker.pid) / 1e9, reads(broker.pid), watch.guard().quiet)


def stop_cleanly(broker: Broker) -> None:
    """Asks it to stop and waits until it has. BrokerError where it left no clean mark."""
    broker.terminate()
    until(f"{broker.name} has stopped", lambda: not broker.runs, STOP_WAIT_S)
    broker.stop()
    if not (data_of(broker) / CLEAN_MARK).exists():
        raise BrokerError(f"{broker.name} did not stop cleanly: {broker.log_tail()}")
