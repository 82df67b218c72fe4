"""How soon another broker acknowledges, once ZooKeeper has ended a dead leader's session.

    python -m tests.system.failover --kills 20

Three brokers, a partition of three replicas, two of which must be in sync. Its leader is killed -9;
a watch on /brokers/ids says when its session has ended, and a raw client asks the two others by
turns to append with acks=-1 until one of them does. What a user waits is the rest of the session's
timeout (zookeeper.session.timeout.ms, 18 s by default) and this.
"""

from __future__ import annotations

import argparse
import socket
import statistics
import struct
import sys
import time
from typing import Final

from kbroker.errors import ErrorCode
from kbroker.peer.messages import decode_produce, encode_produce
from kbroker.protocol.wire import Reader
from kbroker.testing.plain import PlainBroker
from kbroker.types import ApiKey, TopicPartition
from perf.cluster.departures import Departures
from tests.support.record_batches import build_batch
from tests.support.zookeeper import ZooKeeper
from tests.system.leader_kills import TIMEOUT_S, TOPIC, Cluster

PRODUCE_VERSION: Final = 9
WHERE: Final = TopicPartition(TOPIC, 0)
PAUSE_S: Final = 0.001


class Appender:
    """One connection; one record at a time."""

    def __init__(self, broker: PlainBroker) -> None:
        host, _, port = broker.bootstrap.rpartition(":")
        self._connection = socket.create_connection((host, int(port)), TIMEOUT_S)
        self._connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._stream = self._connection.makefile("rb")
        body = encode_produce(
            PRODUCE_VERSION, {WHERE: build_batch([b"one"])}, acks=-1, timeout_ms=10_000
        )
        header = struct.pack(">hhihb", ApiKey.PRODUCE, PRODUCE_VERSION, 0, -1, 0)
        self._frame = struct.pack(">i", len(header) + len(body)) + header + body

    def append(self) -> ErrorCode:
        self._connection.sendall(self._frame)
        (size,) = struct.unpack(">i", self._stream.read(4))
        reader = Reader(self._stream.read(size)[5:], flexible=True)
        return decode_produce(reader, PRODUCE_VERSION)[WHERE].error

    def close(self) -> None:
        self._stream.close()
        self._connection.close()


def fail_over(cluster: Cluster, departures: Departures) -> tuple[float, float]:
    """From the end of the session to the first answer, and from the kill; seconds."""
    leader, _ = cluster.partitions()[WHERE.partition]
    others = [Appender(broker) for node, broker in cluster.brokers.items() if node != leader]
    killed_s = time.monotonic()
    cluster.brokers[leader].kill9()
    done = False
    while not done:
        for other in others:
            error = other.append()
            done = error is ErrorCode.NONE
            if done:
                break
            if time.monotonic() - killed_s > TIMEOUT_S:
                raise TimeoutError(f"no broker appends: {error.name}")
        time.sleep(PAUSE_S)
    answered_s = time.monotonic()
    for other in others:
        other.close()
    ended_s = departures.of(leader)
    if ended_s is None:
        raise RuntimeError("a broker acknowledged before the session ended")
    cluster.brokers[leader].start()
    cluster.wait("all are in sync", cluster.in_sync)
    return answered_s - ended_s, answered_s - killed_s


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--kills", type=int, default=20)
    options = parser.parse_args()
    with ZooKeeper() as zookeeper:
        connect = zookeeper.connect + zookeeper.chroot()
        cluster = Cluster(connect)
        try:
            cluster.create()
            departures = Departures(connect)
            found = [fail_over(cluster, departures) for _ in range(options.kills)]
            departures.close()
        finally:
            cluster.close()
    after_end = sorted(each for each, _ in found)
    print(
        f"{len(found)} leaders killed; from the end of the session to the first answer elsewhere "
        f"{statistics.median(after_end):.3f} s in the middle, {after_end[0]:.3f} to "
        f"{after_end[-1]:.3f}; from the kill {statistics.median(each for _, each in found):.2f} s"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
