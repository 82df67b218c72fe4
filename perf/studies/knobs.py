"""The knobs of `kbroker perf tune`: which values are tried, and on which work each can show.

A knob is tried on the cells where it has a part in what happens; a knob of threads is not held
against a single connection. The document's value is computed for this machine (004 counts CPUs and
disks). A knob of replication is tried on clusters of two. What has no part in serving a request is
listed as such.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final, Literal

from kbroker.config import BROKER_KEYS
from kbroker.config.key import format_value
from perf.cells import Cell

DISKS: Final = 1  # a broker of the study has one log directory

How = Literal["broker", "topic", "codec"]


@dataclass(frozen=True)
class Knob:
    """A setting, its values and the work that it is tried on."""

    name: str  # as effects and results call it
    key: str  # of the broker's configuration (`how` codec: the producer's)
    how: How  # set for a broker of its own, for a topic, or by the producer
    values: tuple[str, ...]  # the default is added where it is missing
    cells: tuple[Cell, ...]
    document: str = ""  # the value that the document advises on this machine; "" none
    default: str = ""  # where it is not the configuration's
    topic_key: str = ""  # where the topic calls it otherwise
    also: tuple[str, ...] = ()  # what a broker with a value is given besides, key=value
    broker: Literal["kbroker", "kafka"] = "kbroker"
    brokers: int = 1  # of the cluster that it is tried on

    def tried(self) -> tuple[str, ...]:
        """Every value but the default."""
        return tuple(value for value in self.values if value != self.default)


@dataclass(frozen=True)
class Idle:
    """A key that changes nothing here, and why."""

    key: str
    why: str


def _default(key: str) -> str:
    row = BROKER_KEYS[key]
    return format_value(row, row.default) or ""


def _produce(key: str, title: str, size: int, connections: int, **more: object) -> Cell:
    return Cell(key, title, "produce", size, connections, 5, **more)  # type: ignore[arg-type]


MANY: Final = _produce("produce-1k-x16", "produce 1 KB, 16 connections x 5", 1000, 16)
PACED: Final = _produce(
    "produce-1k-paced", "produce 1 KB, 16 connections, 10,000/s", 1000, 16, rate=10_000.0
)
FOUR: Final = _produce("produce-1k-x4", "produce 1 KB, 4 connections x 5", 1000, 4)
WORDS: Final = _produce(
    "produce-text-16k", "produce batches of 16 x 1 KB of words, 4 connections x 5", 1000, 4,
    batch_bytes=16 << 10, words=True,
)  # fmt: skip
LARGE: Final = Cell("produce-64k", "produce 64 KB, 4 connections x 1", "produce", 64 << 10, 4)
READ: Final = Cell("fetch-16k", "fetch 16 KB, 4 connections", "fetch", 16 << 10, 4)
READ_LARGE: Final = Cell("fetch-1m", "fetch 1 MB, 4 connections", "fetch", 1 << 20, 4)

REPLICATED: Final = _produce(
    "produce-10k-all", "produce 10 KB, acks=-1, 2 replicas, 8 connections x 5", 10_000, 8,
    acks=-1, replicas=2,
)  # fmt: skip

NEVER: Final = "never"  # to the disk, but by the kernel's own will
FLUSHED: Final = Knob(
    "log.flush.interval.messages@kafka", "log.flush.interval.messages", "topic",
    (NEVER, "1", "100", "10000"), (FOUR,), default=NEVER, topic_key="flush.messages",
    broker="kafka",
)  # fmt: skip
# The flusher's first look is 30 s after the start, longer than a study's broker runs.
AT_ONCE: Final = "log.initial.task.delay.ms=0"
FLUSHING: Final = (
    replace(FLUSHED, name="log.flush.interval.messages", broker="kbroker"),
    Knob(
        "log.flush.interval.ms", "log.flush.interval.ms", "broker",
        (NEVER, "10", "100", "1000"), (FOUR,), default=NEVER,
        also=(AT_ONCE, "log.flush.scheduler.interval.ms=10"),
    ),
    Knob(  # log.flush.interval.ms is the same where it is not set
        "log.flush.scheduler.interval.ms", "log.flush.scheduler.interval.ms", "broker",
        (NEVER, "10", "100", "1000"), (FOUR,), default=NEVER, also=(AT_ONCE,),
    ),
)  # fmt: skip

CODECS: Final = ("gzip", "snappy", "lz4", "zstd")


def knobs(cpus: int | None = None, *, kafka: bool = False) -> tuple[Knob, ...]:
    """All knobs, for a machine with so many CPUs; `kafka`: what only Apache Kafka can show, too."""
    count = cpus or os.cpu_count() or 1
    twice = str(2 * count)
    fetchers = str(max(1, count // 4))
    buffers = ("32768", "102400", "1048576", "-1")
    found: tuple[Knob, ...] = (
        Knob(
            "num.network.threads", "num.network.threads", "broker",
            tuple(dict.fromkeys(("1", "2", "3", twice))), (MANY, PACED), document=twice,
        ),
        Knob(
            "num.io.threads", "num.io.threads", "broker",
            ("1", "2", "4", "8", "16"), (MANY, PACED), document=str(2 * DISKS),
        ),
        Knob(
            "compression.type", "compression.type", "topic",
            ("producer", "uncompressed", *CODECS), (WORDS,), document="lz4",
        ),
        Knob(
            "compression.type@producer", "compression.type", "codec",
            ("none", *CODECS), (WORDS,), document="lz4", default="none",
        ),
        Knob(
            "log.index.interval.bytes", "log.index.interval.bytes", "broker",
            ("512", "4096", "65536", "1048576"), (FOUR, READ), document="4096",
        ),
        Knob(
            "socket.send.buffer.bytes", "socket.send.buffer.bytes", "broker", buffers,
            (READ_LARGE, READ),
        ),
        Knob(
            "socket.receive.buffer.bytes", "socket.receive.buffer.bytes", "broker", buffers,
            (LARGE, FOUR),
        ),
        Knob(
            "num.replica.fetchers", "num.replica.fetchers", "broker",
            tuple(dict.fromkeys(("1", "2", "4", "8", fetchers))), (REPLICATED,), document=fetchers,
            brokers=2,
        ),
        *FLUSHING,
    )  # fmt: skip
    if kafka:
        found = (*found, FLUSHED)
    return tuple(_with_default(knob) for knob in found)


def _with_default(knob: Knob) -> Knob:
    default = knob.default or _default(knob.key)
    values = knob.values if default in knob.values else (default, *knob.values)
    return replace(knob, default=default, values=values)


NOT_TRIED: Final[Mapping[str, str]] = {
    "auto.leader.rebalance.enable": (
        "gives a broker back what it led before it was away; no part in serving a request;"
        " measured by kbroker perf cluster rebalance"
    ),
}


def idle() -> tuple[Idle, ...]:
    """The document's keys that change nothing here."""
    return tuple(Idle(key, why) for key, why in NOT_TRIED.items())
