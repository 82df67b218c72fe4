"""ZooKeeper and a few brokers on loopback, for a first look at a cluster: `make cluster`.

    python -m lab.local_cluster [--brokers 3] [--port 9092] [--data DIRECTORY]

Brokers take the ports from `--port` on and have their data, and their logs, in a directory each;
another start goes on with them. Topics have a replica on each of three brokers and take writes with
two. Ctrl-C stops the brokers in order, then ZooKeeper. A broker that was killed starts again when
Enter is pressed.
"""

from __future__ import annotations

import argparse
import os
import select
import signal
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Final, NoReturn

from kbroker.testing.plain import PlainBroker
from kbroker.testing.process import BrokerFailed
from lab.jars import ZOOKEEPER_VERSION, JarsMissing
from lab.zookeeper import HOST, ZooKeeper

ZOOKEEPER_PORT: Final = 2181
ADMIN_PORT: Final = 9644
LOOK_S: Final = 0.2
REPLICAS_MAX: Final = 3


class LocalBroker(PlainBroker):
    """One broker of this cluster, with its metrics and health on a port of their own."""

    start_timeout_s = 60.0

    def __init__(self, home: Path, node: int, connect: str, given: argparse.Namespace) -> None:
        replicas = min(given.brokers, REPLICAS_MAX)
        self.address = f"{HOST}:{given.port + node - 1}"
        settings = {
            "node.id": node,
            "zookeeper.connect": connect,
            "listeners": f"PLAINTEXT://{self.address}",
            "admin.listeners": f"http://{HOST}:{given.admin_port + node - 1}",
            "default.replication.factor": replicas,
            "offsets.topic.replication.factor": replicas,
            "min.insync.replicas": max(1, replicas - 1),
        }
        super().__init__(settings, home / "data", env=os.environ)
        self.node = node
        self._home = home

    @property
    def log_path(self) -> Path:
        """It stays, with the data."""
        return self._home / "kbroker.log"


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m lab.local_cluster", description=__doc__)
    parser.add_argument("--brokers", type=int, default=3)
    parser.add_argument("--port", type=int, default=9092, help="of the first broker")
    parser.add_argument("--zookeeper-port", type=int, default=ZOOKEEPER_PORT)
    parser.add_argument("--admin-port", type=int, default=ADMIN_PORT, help="of the first broker")
    parser.add_argument("--data", type=Path, default=Path("data-cluster"))
    given = parser.parse_args(words)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _interrupt)
    home = given.data.resolve()
    with ExitStack() as ends:
        zookeeper = ZooKeeper(home / "zookeeper" / "data", given.zookeeper_port)
        ends.callback(zookeeper.close)
        brokers = []
        for node in range(1, given.brokers + 1):
            own = home / f"broker-{node}"
            own.mkdir(parents=True, exist_ok=True)
            brokers.append(LocalBroker(own, node, zookeeper.connect, given))
            ends.callback(brokers[-1].close)
        try:
            _start(zookeeper, brokers)
            _watch(brokers)
        except (BrokerFailed, JarsMissing) as error:
            print(f"error: {error}", *getattr(error, "__notes__", ()), sep="\n", file=sys.stderr)
            return 1
        except KeyboardInterrupt:
            return 0
        finally:
            _stop(zookeeper, brokers)


def _interrupt(number: int, frame: object) -> NoReturn:
    signal.signal(number, signal.SIG_IGN)  # once is enough: the rest is a stop in order
    raise KeyboardInterrupt


def _start(zookeeper: ZooKeeper, brokers: Sequence[LocalBroker]) -> None:
    began = time.monotonic()
    zookeeper.start()
    print(f"ZooKeeper {ZOOKEEPER_VERSION} on {zookeeper.connect}", flush=True)
    with ThreadPoolExecutor(len(brokers)) as pool:
        for started in [pool.submit(broker.start) for broker in brokers]:
            started.result()
    for broker in brokers:
        print(
            f"broker {broker.node} on {broker.address}, process {broker.pid}; metrics and health:"
            f" {broker.admin}; log: {broker.log_path}",
            flush=True,
        )
    print(_to_try(brokers, time.monotonic() - began), flush=True)


def _to_try(brokers: Sequence[LocalBroker], seconds: float) -> str:
    first, last = brokers[0].address, brokers[-1].address
    return f"""ready after {seconds:.1f} s; in another terminal:

    alias kbroker="$PWD/.venv/bin/kbroker"
    kbroker topic create orders --partitions 3 -b {first}
    seq 1000 | kbroker produce orders -b {first}
    kill -9 {brokers[0].pid}        # others lead what it led; Enter here starts it again
    kbroker topic describe orders -b {last}
    kbroker consume orders -e -b {last} | wc -l

Ctrl-C stops everything; the data stay."""


def _watch(brokers: Sequence[LocalBroker]) -> NoReturn:
    """Until it is interrupted."""
    ended: list[LocalBroker] = []
    at_a_terminal = sys.stdin.isatty()
    while True:
        for broker in brokers:
            if broker not in ended and not broker.alive:
                ended.append(broker)
                print(
                    f"broker {broker.node} has ended"
                    + ("; Enter starts it again" if at_a_terminal else ""),
                    flush=True,
                )
        if not (at_a_terminal and ended):
            time.sleep(LOOK_S)
        elif select.select([sys.stdin], [], [], LOOK_S)[0] and sys.stdin.readline():
            while ended:
                broker = ended.pop().start()
                print(f"broker {broker.node} runs as process {broker.pid}", flush=True)


def _stop(zookeeper: ZooKeeper, brokers: Sequence[LocalBroker]) -> None:
    running = [broker for broker in brokers if broker.alive]
    if running:
        print("stopping", flush=True)
    for broker in running:
        broker.signal(signal.SIGTERM)  # all at once: the last has no other to hand over to
    for broker in running:
        broker.wait()
    if zookeeper.alive:
        zookeeper.stop()


if __name__ == "__main__":
    sys.exit(main())
