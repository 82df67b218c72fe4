"""ZooKeeper and a few brokers on loopback, for a first look at a cluster: `make cluster`.

    python -m perf.local_cluster [--brokers 3] [--port 9092] [--data DIRECTORY]

Brokers take the ports from `--port` on and have their data, and their logs, in a directory each;
another start goes on with them. Topics have a replica on each of three brokers and take writes with
two. Ctrl-C stops the brokers in order, then ZooKeeper. A broker that was killed starts again at a
press of Enter.
"""

from __future__ import annotations

import argparse
import select
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NoReturn

from perf.brokers.base import BrokerError
from perf.brokers.clustered import ClusterNode
from perf.brokers.zookeeper import VERSION, ZooKeeper

ZOOKEEPER_PORT: Final = 2181
ADMIN_PORT: Final = 9644
LOOK_S: Final = 0.2
REPLICAS_MAX: Final = 3


class LocalNode(ClusterNode):
    """One broker of this cluster, with its metrics and health beside."""

    def __init__(
        self,
        directory: Path,
        port: int,
        admin_port: int,
        *,
        node_id: int,
        zookeeper: ZooKeeper,
        brokers: int,
    ) -> None:
        replicas = min(brokers, REPLICAS_MAX)
        self.admin_port = admin_port
        settings = {
            "admin.listeners": f"http://127.0.0.1:{self.admin_port}",
            "default.replication.factor": replicas,
            "offsets.topic.replication.factor": replicas,
            "min.insync.replicas": max(1, replicas - 1),
        }
        super().__init__(directory, port, node_id=node_id, zookeeper=zookeeper, settings=settings)


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m perf.local_cluster", description=__doc__)
    parser.add_argument("--brokers", type=int, default=3)
    parser.add_argument("--port", type=int, default=9092, help="of the first broker")
    parser.add_argument("--zookeeper-port", type=int, default=ZOOKEEPER_PORT)
    parser.add_argument("--admin-port", type=int, default=ADMIN_PORT, help="of the first broker")
    parser.add_argument("--data", type=Path, default=Path("data-cluster"))
    asked = parser.parse_args(words)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _interrupt)
    home = asked.data.resolve()
    zookeeper = ZooKeeper(home / "zookeeper", asked.zookeeper_port)
    nodes = [
        LocalNode(
            home / f"broker-{n + 1}",
            asked.port + n,
            asked.admin_port + n,
            node_id=n + 1,
            zookeeper=zookeeper,
            brokers=asked.brokers,
        )
        for n in range(asked.brokers)
    ]
    try:
        _start(zookeeper, nodes)
        _watch(nodes)
    except BrokerError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 0
    finally:
        _stop(zookeeper, nodes)


def _interrupt(number: int, frame: object) -> NoReturn:
    signal.signal(number, signal.SIG_IGN)  # once is enough: the rest is a stop in order
    raise KeyboardInterrupt


def _start(zookeeper: ZooKeeper, nodes: Sequence[LocalNode]) -> None:
    began = time.monotonic()
    zookeeper.start()
    print(f"ZooKeeper {VERSION} on {zookeeper.address}", flush=True)
    for node in nodes:
        node.directory.mkdir(parents=True, exist_ok=True)
        node.prepare()
        node.launch()
    for node in nodes:
        node.wait_ready()
        print(
            f"broker {node.node_id} on {node.address}, process {node.pid}; metrics and health:"
            f" http://127.0.0.1:{node.admin_port}; log: {node.log_path}",
            flush=True,
        )
    print(_to_try(nodes, time.monotonic() - began), flush=True)


def _to_try(nodes: Sequence[LocalNode], seconds: float) -> str:
    first, last = nodes[0].address, nodes[-1].address
    return f"""ready after {seconds:.1f} s; in another terminal:

    alias kbroker="$PWD/.venv/bin/kbroker"
    kbroker topic create orders --partitions 3 -b {first}
    seq 1000 | kbroker produce orders -b {first}
    kill -9 {nodes[0].pid}        # others lead what it led; Enter here starts it again
    kbroker topic describe orders -b {last}
    kbroker consume orders -e -b {last} | wc -l

Ctrl-C stops everything; the data stay."""


def _watch(nodes: Sequence[LocalNode]) -> NoReturn:
    """Until somebody has enough of it."""
    ended: list[LocalNode] = []
    asks = sys.stdin.isatty()
    while True:
        for node in nodes:
            if node not in ended and not node.runs:
                ended.append(node)
                print(
                    f"broker {node.node_id} has ended"
                    + ("; Enter starts it again" if asks else ""),
                    flush=True,
                )
        if not (asks and ended):
            time.sleep(LOOK_S)
        elif select.select([sys.stdin], [], [], LOOK_S)[0] and sys.stdin.readline():
            while ended:
                node = ended.pop()
                node.stop()  # takes its end in
                node.start()
                print(f"broker {node.node_id} runs as process {node.pid}", flush=True)


def _stop(zookeeper: ZooKeeper, nodes: Sequence[LocalNode]) -> None:
    running = [node for node in nodes if node.runs]
    if running:
        print("stopping", flush=True)
    for node in running:
        node.terminate()  # all at once: who stops last has nobody to hand over to
    for node in nodes:
        node.stop()
    zookeeper.stop()


if __name__ == "__main__":
    sys.exit(main())
