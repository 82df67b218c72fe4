"""What TLS costs a broker: CPU of the same requests over its plain and its TLS listener, in pairs.

    python -m perf.tls_cost                        # kbroker: plain beside TLS
    python -m perf.tls_cost --kafka                # and Apache Kafka, in the same rounds
    python -m perf.tls_cost --rounds 9 --cells produce-16k,fetch-1m --json FILE

A round is one block of every cell by every listener of every broker, in an order that turns with
each round. The client is one thread of this process with one connection, a number of requests in
flight; its own cost is not in the figures, which are the broker's CPU time by /proc. What counts
are ratios within a round: TLS over plain of one broker, and one broker over the other. The machine
has to be quiet: `beside` is the share of it that others had, which should be next to nothing.

TLS 1.3 with AES-128-GCM and ECDSA P-256, whatever the brokers prefer otherwise.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import ssl
import statistics
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from lab.ports import free_port
from perf.batch import of_size
from perf.brokers import Broker, KafkaBroker, KbrokerBroker
from perf.machine import machine_line, version_line
from perf.process import Watch, cpu_ns
from perf.requests import FETCH, Topic, produce
from perf.spec import Partition
from perf.wire import Writer, frame, read_exactly, request_header

SUITE: Final = "TLS_AES_128_GCM_SHA256"
TOPIC: Final = "tls-cost"
WARM_REQUESTS: Final = 3_000  # of each cell and listener, before the first round: a JVM needs them
PLAIN: Final = "plain"
TLS: Final = "tls"


@dataclass(frozen=True)
class Cell:
    """`size`: of a produced batch, or of the bytes that a fetch returns."""

    name: str
    size: int
    requests: int
    in_flight: int
    fetches: bool = False


CELLS: Final = (
    Cell("produce-100", 100, 20_000, 8),
    Cell("produce-1-at-a-time", 100, 8_000, 1),
    Cell("produce-16k", 16 << 10, 6_000, 4),
    Cell("produce-64k", 64 << 10, 2_000, 4),
    Cell("fetch-16k", 16 << 10, 6_000, 1, fetches=True),
    Cell("fetch-1m", 1 << 20, 400, 1, fetches=True),
)
# Fetches find 40 of these.
FILLING: Final = Cell("", 64 << 10, 0, 1)


@dataclass(frozen=True)
class Block:
    cell: str
    broker: str
    listener: str
    round: int
    requests: int
    megabytes: float
    cpu_us: float
    wall_s: float
    beside: float


def make_certificate(directory: Path) -> None:
    """broker.pem, key and certificate, for 127.0.0.1, signed by itself."""
    key, chain = directory / "key.pem", directory / "chain.pem"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256",
         "-noenc", "-keyout", key, "-out", chain, "-days", "2", "-subj", "/CN=perf",
         "-addext", "subjectAltName=IP:127.0.0.1"],
        check=True, capture_output=True,
    )  # fmt: skip
    (directory / "broker.pem").write_bytes(key.read_bytes() + chain.read_bytes())


def tls_settings(store: Path) -> tuple[str, ...]:
    return (
        "listener.name.ssl.ssl.keystore.type=PEM",
        f"listener.name.ssl.ssl.keystore.location={store}",
        f"listener.name.ssl.ssl.cipher.suites={SUITE}",
        "listener.name.ssl.ssl.enabled.protocols=TLSv1.3",
    )


class TwoListeners(KbrokerBroker):
    """Its listeners are in its settings."""

    def command(self) -> list[str]:
        line = super().command()
        at = line.index("--port")
        return line[:at] + line[at + 2 :]


class Pair:
    """A broker with both listeners, and a connection to each."""

    def __init__(self, broker: Broker, tls_port: int, chain: Path) -> None:
        self.broker = broker
        with broker.client() as client:
            client.create_topics([TOPIC], 1, {"retention.ms": "-1"})  # its records have no time
            self.topic = client.topic(TOPIC)
        context = ssl.create_default_context(cafile=str(chain))
        tls = socket.create_connection(("127.0.0.1", tls_port))
        self.connections: dict[str, socket.socket] = {
            PLAIN: socket.create_connection(("127.0.0.1", broker.port)),
            TLS: context.wrap_socket(tls, server_hostname="127.0.0.1"),
        }

        for each in self.connections.values():
            each.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def close(self) -> None:
        for each in self.connections.values():
            each.close()


def frame_of(cell: Cell, topic: Topic) -> bytes:
    if not cell.fetches:
        partition = Partition(0)
        return produce(7, topic, [(partition, of_size(cell.size))], acks=1).frame
    w = Writer(False)
    w.put("iiiibii", -1, 0, 1, cell.size, 0, 0, -1)  # full, without a session
    w.count(1).string(topic.name).count(1).put("iiqqi", 0, -1, 0, -1, cell.size).count(0)
    return frame(request_header(FETCH, 10), bytes(w.data))


def exchange(connection: socket.socket, request: bytes, count: int, in_flight: int) -> int:
    """Bytes of the answers to so many requests."""
    answered, sent, received = 0, min(in_flight, count), 0
    connection.sendall(request * sent)
    while answered < count:
        size = int.from_bytes(read_exactly(connection, 4), "big")
        read_exactly(connection, size)
        received += size
        answered += 1
        if sent < count:
            connection.sendall(request)
            sent += 1
    return received


def block(pair: Pair, cell: Cell, listener: str, round_: int) -> Block:
    request = frame_of(cell, pair.topic)
    pid = pair.broker.measured_pid
    watch = Watch([pid, os.getpid()])
    before_ns, began = cpu_ns(pid), time.monotonic()
    received = exchange(pair.connections[listener], request, cell.requests, cell.in_flight)
    wall_s, cpu_us = time.monotonic() - began, (cpu_ns(pid) - before_ns) / 1000
    moved = received if cell.fetches else len(request) * cell.requests
    guard = watch.guard()
    return Block(
        cell.name, pair.broker.name, listener, round_, cell.requests, moved / 1e6, cpu_us, wall_s,
        guard.others + guard.steal,
    )  # fmt: skip


def brokers(directory: Path, names: Sequence[str], stack: ExitStack) -> list[Pair]:
    make_certificate(directory)
    settings = tls_settings(directory / "broker.pem")
    pairs = []
    for name in names:
        port, tls_port = free_port(), free_port()
        listeners = f"PLAINTEXT://127.0.0.1:{port},SSL://127.0.0.1:{tls_port}"
        overrides = (f"listeners={listeners}", f"advertised.listeners={listeners}", *settings)
        broker: Broker
        if name == "kafka":
            kafka = KafkaBroker(directory / name, port, holdable=False)
            controller = f"CONTROLLER://127.0.0.1:{kafka.controller_port}"
            security = "PLAINTEXT:PLAINTEXT,SSL:SSL,CONTROLLER:PLAINTEXT"
            kafka.override(
                f"listeners={listeners},{controller}", *overrides[1:],
                f"listener.security.protocol.map={security}",
            )  # fmt: skip
            broker = kafka
        else:
            broker = TwoListeners(directory / name, port, overrides)
        stack.enter_context(broker)
        pairs.append(Pair(broker, tls_port, directory / "chain.pem"))
        stack.callback(pairs[-1].close)
    return pairs


def rounds(pairs: Sequence[Pair], cells: Sequence[Cell], count: int) -> Iterator[Block]:
    sides = [(pair, listener) for pair in pairs for listener in (PLAIN, TLS)]
    for pair in pairs:
        exchange(pair.connections[PLAIN], frame_of(FILLING, pair.topic), 40, 1)  # what is fetched
    for pair, listener in sides:
        for cell in cells:
            warm = min(WARM_REQUESTS, cell.requests)
            exchange(pair.connections[listener], frame_of(cell, pair.topic), warm, cell.in_flight)
    for number in range(count):
        at = number % len(sides)
        for cell in cells:
            for pair, listener in sides[at:] + sides[:at]:
                yield block(pair, cell, listener, number)


def lines(blocks: Sequence[Block], cells: Sequence[Cell]) -> Iterator[str]:
    """A line for each cell and broker: medians, and the median of the ratios within rounds."""
    names = list(dict.fromkeys(each.broker for each in blocks))
    for cell in cells:
        cpu = {
            (each.broker, each.listener, each.round): each.cpu_us
            for each in blocks
            if each.cell == cell.name
        }
        numbers = sorted({number for _, _, number in cpu})
        of_cell = [each for each in blocks if each.cell == cell.name]
        for name in names:
            plain, tls = ([cpu[name, side, n] for n in numbers] for side in (PLAIN, TLS))
            over = statistics.median(a / b for a, b in zip(tls, plain, strict=True))
            more = statistics.median(a - b for a, b in zip(tls, plain, strict=True))
            megabytes = statistics.median(e.megabytes for e in of_cell if e.broker == name)
            yield (
                f"{cell.name:<20} {name:<8} plain {statistics.median(plain) / cell.requests:8.1f}"
                f" TLS {statistics.median(tls) / cell.requests:8.1f} us/request,"
                f" TLS/plain {over:.2f}, +{more / cell.requests:.1f} us/request,"
                f" +{more / megabytes:.0f} us/MB"
            )
        if {"kafka", "kbroker"} <= {*names}:
            ratio = statistics.median(
                cpu["kbroker", TLS, n] / cpu["kafka", TLS, n] for n in numbers
            )
            yield f"{cell.name:<20} kbroker / kafka over TLS: {ratio:.2f}"


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m perf.tls_cost", description=__doc__)
    parser.add_argument("--kafka", action="store_true", help="Apache Kafka in the same rounds")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--cells", default=",".join(each.name for each in CELLS))
    parser.add_argument("--json", type=Path, help="where all blocks are written")
    options = parser.parse_args(arguments)
    wanted = options.cells.split(",")
    cells = [each for each in CELLS if each.name in wanted]
    names = ["kbroker", *(["kafka"] if options.kafka else [])]
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="tls-cost-")))
        pairs = brokers(directory, names, stack)
        blocks = list(rounds(pairs, cells, options.rounds))
    print(machine_line())
    print(f"{version_line()}; beside: {max(each.beside for each in blocks):.0%} at most")
    for line in lines(blocks, cells):
        print(line)
    if options.json:
        options.json.write_text(json.dumps([asdict(each) for each in blocks], indent=1))


if __name__ == "__main__":
    main()
