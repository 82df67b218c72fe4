"""A follower alone in a process, as a broker has it: a loop, a fetcher, links, logs and replicas.

    python process.py PORT PARTITIONS DIRECTORY

It follows the partitions of one topic from a leader on that port until its standard input ends.
Run as a file, with the sources of the build to measure first in PYTHONPATH: it imports nothing else
of perf, and of kbroker only names that earlier builds have, too.
"""

from __future__ import annotations

import logging
import random
import sys
from pathlib import Path
from uuid import UUID

from kbroker.clock import SystemClock
from kbroker.config import BrokerConfig
from kbroker.failures import Failures
from kbroker.log.opening.loader import open_partition_log
from kbroker.peer.address import Address
from kbroker.peer.control_loop import ControlLoop
from kbroker.replica._replica import Replica
from kbroker.replica.fetcher import Us
from kbroker.replica.fetcher_manager import FetcherManager, Leader
from kbroker.replica.fetcher_settings import fetcher_settings, leader_links
from kbroker.types import TopicPartition

TOPIC, TOPIC_ID = "rounds", UUID(int=1 << 100 | 1)
LEADER_ID, OWN_ID = 1, 2
SEED = 1


def main(port: int, partitions: int, directory: Path) -> None:
    logging.basicConfig(level=logging.INFO, stream=sys.stderr)
    replicas: dict[TopicPartition, Replica] = {}
    for index in range(partitions):
        path = directory / f"{TOPIC}-{index}"
        replica = Replica(open_partition_log(path, TOPIC, index, TOPIC_ID, {}))
        replica.set_leadership(LEADER_ID, False, 0, 2)
        replicas[TopicPartition(TOPIC, index)] = replica
    config = BrokerConfig.load(overrides=["replica.fetch.response.max.bytes=10485760"])
    loop = ControlLoop("kbroker-fetcher")
    loop.start()
    manager = FetcherManager(
        Us(OWN_ID, lambda: 7),
        loop.submit,
        leader_links(config, "kbroker-replica"),
        replicas.get,
        fetcher_settings(config),
        SystemClock(),
        random.Random(SEED),
        Failures("followers", logging.getLogger("kbroker")),
        lambda _: None,
    )
    leader = Leader(TOPIC_ID, LEADER_ID, Address("127.0.0.1", port), 0)
    manager.follow(dict.fromkeys(replicas, leader))
    print("ready", flush=True)
    sys.stdin.read()
    manager.stop()
    loop.stop()
    for replica in replicas.values():
        replica.log.close(clean=False)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3]))
