"""From exec until a broker leads ten thousand partitions, as its own Metadata says.

One broker of a cluster whose meeting place is up: after a clean stop, and for information after
kill -9, where the time until its old registration has gone is in the figure (ZooKeeper ends a dead
broker's session by its timeout; Apache Kafka's controller takes the new process at once, or after
its own). Every partition holds a record. Metadata of all topics is asked for again 50 ms after
each answer, which is how fine the figure is: an answer about ten thousand partitions costs both
sides some tens of milliseconds, and a loop without a pause would take a processor from the start.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from perf.bars import MIB
from perf.brokers.base import Broker, BrokerError
from perf.client import Client
from perf.cluster.brokers import KINDS, Cluster, until
from perf.cluster.topics import create_many, write_one_each
from perf.idle import raise_file_limit
from perf.judge import value_bar
from perf.measurement import Measurement
from perf.process import Watch, cpu_ns, memory
from perf.stats import estimate
from perf.tables import interval
from perf.wire import WireError

NODE: Final = 1
START_WAIT_S: Final = 180.0
CREATE_WAIT_S: Final = 180.0
PAUSE_S: Final = 0.05
START_BAR_S: Final = 10.0
# So that a start after kill -9 does not wait for ZooKeeper longer than it must.
SETTINGS: Final[Mapping[str, Mapping[str, object]]] = {
    "kbroker": {"zookeeper.session.timeout.ms": 6_000},
    "kafka": {},
}
STOPPED, KILLED = "stopped", "killed"


@dataclass(frozen=True)
class Start:
    """One start; `after`: how the process before it ended."""

    broker: str
    round: int
    after: str
    led_s: float
    cpu_s: float  # of the process until then
    resident_bytes: int
    quiet: bool

    def to_json(self) -> dict[str, Any]:
        return dict(self.__dict__)


def _led(client: Client) -> int:
    return sum(each.leader >= 0 and not each.code for each in client.cluster(None).partitions)


def _until_led(broker: Broker, partitions: int) -> float:
    """Asks until it leads them all; seconds since exec."""
    give_up_s = time.monotonic() + START_WAIT_S
    client: Client | None = None
    try:
        while time.monotonic() < give_up_s:
            try:
                client = client or broker.client()
                if _led(client) == partitions:
                    return (time.monotonic_ns() - broker.started_ns) / 1e9
            except (OSError, WireError):
                if client is not None:
                    client.close()
                client = None
                broker.check_alive()
            time.sleep(PAUSE_S)
    finally:
        if client is not None:
            client.close()
    raise BrokerError(f"{broker.name} does not lead {partitions}: {broker.log_tail()}")


def started(cluster: Cluster, number: int, after: str, partitions: int) -> Start:
    broker = cluster.nodes[NODE]
    broker.prepare()
    watch = Watch([os.getpid(), cluster.meeting.pid])
    broker.launch()
    watch.include(broker.pid)
    led_s = _until_led(broker, partitions)
    spent_s = cpu_ns(broker.pid) / 1e9
    resident = memory(broker.pid).resident
    return Start(cluster.name, number, after, led_s, spent_s, resident, watch.guard().quiet)


def fill(cluster: Cluster, partitions: int, say: Callable[[str], None]) -> None:
    began_s = time.monotonic()
    with cluster.client(NODE) as client:
        topics = create_many(client, "start", partitions, [[NODE]])
        what = f"{cluster.name} leads {partitions} partitions"
        until(what, lambda: _led(client) == partitions, CREATE_WAIT_S)
        write_one_each(client, topics)
    say(f"{cluster.name}: {partitions:,} partitions made in {time.monotonic() - began_s:.1f} s")


def measure(
    root: Path, say: Callable[[str], None], *, brokers: Sequence[str], rounds: int, partitions: int
) -> list[Start]:
    """One kind of broker after the other."""
    found = []
    raise_file_limit()
    for kind in brokers:
        with KINDS[kind](root / kind, 1, settings=SETTINGS[kind]) as cluster:
            fill(cluster, partitions, say)
            for number in range(rounds):
                for after in (STOPPED, KILLED):
                    broker = cluster.nodes[NODE]
                    broker.stop() if after == STOPPED else broker.kill()
                    found.append(started(cluster, number, after, partitions))
                    say(f"{kind} {after}: {found[-1].led_s:.2f} s")
    return found


def report(found: Sequence[Start], plan: Mapping[str, Any]) -> Measurement:
    rows = []
    for kind in dict.fromkeys(one.broker for one in found):
        for after in (STOPPED, KILLED):
            some = [one for one in found if (one.broker, one.after) == (kind, after)]
            columns = (
                [one.led_s for one in some],
                [one.cpu_s for one in some],
                [one.resident_bytes / MIB for one in some],
            )
            rows.append([kind, after, *(interval(estimate(each)) for each in columns)])
    ours = [one for one in found if (one.broker, one.after) == ("kbroker", STOPPED)]
    what = f"start with {plan['partitions']:,} partitions after a clean stop"
    bars = [value_bar(what, START_BAR_S, "s", [(one.led_s, one.quiet) for one in ours])]
    head = ("broker", "it was", "exec to all led, s", "CPU until then, s", "resident MB")
    start = f"start with {plan['partitions']} partitions"
    return Measurement.of(
        plan, head, rows, bars, found, lambda one: [(f"{start}, {one.after}", one.led_s, "s")]
    )
