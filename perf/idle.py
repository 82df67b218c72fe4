"""Idle connections: what ten thousand of them cost a broker, and who notices.

Each connection asks ApiVersions once and then stays. Measured: what the broker holds before and
after (anonymous memory; of a JVM the live heap after a forced collection, or nothing where that
cannot be had: garbage is no connection's), the broker's CPU while nothing happens, and the p99 of
an active client before and beside them. The kernel's share of a socket is not in it, and is the
same for every broker.
"""

from __future__ import annotations

import resource
import socket
import time
from dataclasses import dataclass, replace
from typing import Any

from perf.cells import BY_KEY, Bench
from perf.process import cpu_ns
from perf.requests import api_versions

SETTLE_S = 1.0
CONNECT_TIMEOUT_S = 20.0
SPARE_FILES = 256
ACTIVE = replace(BY_KEY["p-1k-4000"], key="idle-active", rate=2000.0)


@dataclass(frozen=True)
class IdleResult:
    """One measurement of idle connections on one broker."""

    broker: str
    connections: int
    bytes_each: float | None  # None: garbage could not be subtracted
    open_s: float
    cpu_share: float  # of one CPU, with all of them idle
    p99_before_us: float
    p99_beside_us: float
    quiet: bool = False  # unknown is not quiet

    def to_json(self) -> dict[str, Any]:
        return dict(self.__dict__)


def raise_file_limit() -> int:
    """The soft limit of open files up to the hard one; what is then free for connections."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return hard - SPARE_FILES


def open_idle(host: str, port: int, count: int) -> list[socket.socket]:
    """`count` connections that have each had ApiVersions answered."""
    question = api_versions().frame
    opened: list[socket.socket] = []
    try:
        for _ in range(count):
            one = socket.create_connection((host, port), CONNECT_TIMEOUT_S)
            opened.append(one)
            one.sendall(question)
            size = int.from_bytes(one.recv(4, socket.MSG_WAITALL), "big")
            if not size or len(one.recv(size, socket.MSG_WAITALL)) != size:
                raise ConnectionError(f"connection {len(opened)} was not answered")
    except BaseException:
        close_all(opened)
        raise
    return opened


def close_all(opened: list[socket.socket]) -> None:
    for one in opened:
        one.close()


def measure_idle(bench: Bench, count: int) -> IdleResult:
    """The cell. Memory for the broker's very first clients is not counted."""
    broker = bench.broker
    count = min(count, raise_file_limit())
    close_all(open_idle(broker.host, broker.port, 32))
    before_block = bench.run(ACTIVE)
    time.sleep(SETTLE_S)
    before = broker.held_bytes()
    began = time.monotonic()
    opened = open_idle(broker.host, broker.port, count)
    open_s = time.monotonic() - began
    try:
        time.sleep(SETTLE_S)
        after = broker.held_bytes()
        cpu = cpu_ns(broker.pid)
        time.sleep(SETTLE_S)
        share = (cpu_ns(broker.pid) - cpu) / (SETTLE_S * 1e9)
        beside = bench.run(ACTIVE)
    finally:
        close_all(opened)
    return IdleResult(
        broker.name,
        count,
        None if before is None or after is None else (after - before) / count,
        open_s,
        share,
        before_block.percentile_us(99),
        beside.percentile_us(99),
        quiet=before_block.guard.quiet and beside.guard.quiet,
    )
