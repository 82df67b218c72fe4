"""How much a producer notices of another partition's slow disk, in kbroker and in Apache Kafka.

    python -m tests.system.slow_disk_beside --slow-ms 20 --rounds 5

The preloaded disk (tests/support/disk.c) makes each read and write of one topic's files take so
much longer. A producer writes to another topic at a fixed rate, alone and then beside four that
write to the slow one as fast as they are answered; latencies count from the intended send time.
Needs a quiet machine: what is said is p99 beside against p99 alone, round by round.
"""

from __future__ import annotations

import argparse
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from confluent_kafka import Producer

from perf.brokers import Broker, KafkaBroker, KbrokerBroker
from perf.cells import Bench
from perf.neighbour import FIXED
from tests.support.disk import Disk

SLOW_TOPIC = "slow-files"
WRITERS = 4
WARM_S = 20.0  # of Apache Kafka, whose compiler needs requests


class SlowDiskKbroker(KbrokerBroker):
    disk: Disk

    def environment(self) -> dict[str, str]:
        return super().environment() | self.disk.environment()


class SlowDiskKafka(KafkaBroker):
    disk: Disk

    def environment(self) -> dict[str, str]:
        return super().environment() | self.disk.environment()


BROKERS: dict[str, type[SlowDiskKbroker] | type[SlowDiskKafka]] = {
    "kbroker": SlowDiskKbroker,
    "kafka": SlowDiskKafka,
}


@contextmanager
def writers(address: str) -> Iterator[list[int]]:
    """Producers of the slow topic; how many records of each were acknowledged."""
    done = threading.Event()
    written = [0] * WRITERS

    def write(number: int) -> None:
        producer = Producer({"bootstrap.servers": address, "acks": "1", "linger.ms": 0})
        while not done.is_set():
            producer.produce(SLOW_TOPIC, b"x" * 1000, partition=0)
            written[number] += producer.flush(30) == 0
        producer.flush(30)

    threads = [threading.Thread(target=write, args=(number,)) for number in range(WRITERS)]
    for thread in threads:
        thread.start()
    try:
        yield written
    finally:
        done.set()
        for thread in threads:
            thread.join()


def measure(broker: Broker, disk: Disk, rounds: int, slow_ms: int) -> None:
    bench = Bench(broker, seconds=3.0)
    with broker.client() as client:
        client.create_topics([SLOW_TOPIC], 1)
    if broker.name == "kafka":
        Bench(broker, seconds=WARM_S, warm_s=0).run(FIXED)
    for number in range(rounds):
        disk.be("ok")
        alone = bench.run(FIXED)
        with writers(broker.address) as written:
            disk.be(f"slow {slow_ms}")
            beside = bench.run(FIXED)
            disk.be("ok")
        before, after = alone.percentile_us(99), beside.percentile_us(99)
        print(
            f"{broker.name} round {number}: p99 {before:,.0f} us alone, {after:,.0f} us beside:"
            f" x {after / before:.2f}; {sum(written)} records on the slow disk", flush=True
        )  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--slow-ms", type=int, default=20)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--brokers", default="kbroker,kafka")
    chosen = parser.parse_args()
    for name in chosen.brokers.split(","):
        with tempfile.TemporaryDirectory(prefix="kbroker-slow-disk-") as root:
            disk = Disk(Path(root), files=f"/{SLOW_TOPIC}-", operations="read,write")
            broker = BROKERS[name](Path(root) / "broker")
            broker.disk = disk
            with broker:
                measure(broker, disk, chosen.rounds, chosen.slow_ms)


if __name__ == "__main__":
    main()
