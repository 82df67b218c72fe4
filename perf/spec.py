"""The input of a run of the load generator: plain data, no behaviour.

perf.cells and perf.requests fill these in, perf/_load.pyx copies them into C. Units are in the
names; a count of 0 means "no limit" where a limit is meant.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

Role = Literal["produce", "fetch", "repeat"]


@dataclass(frozen=True)
class Batch:
    """One record batch inside a produce template."""

    at: int  # byte position in the frame
    size: int
    records: int
    slot: int  # index into Connection.partitions
    crc: int  # with base sequence and stamp zero
    stamp_at: int = -1  # byte position of the send time inside the batch


@dataclass(frozen=True)
class Partition:
    """One partition as one connection begins with it."""

    index: int
    next_sequence: int = 0
    expected_offset: int = -1  # exact next offset where this connection is the only writer
    fetch_offset: int = 0
    start_offset: int = 0
    end_offset: int = 0


@dataclass(frozen=True)
class Connection:
    """A connection: its template (produce, repeat) or its request header (fetch)."""

    frame: bytes
    partitions: tuple[Partition, ...] = ()
    batches: tuple[Batch, ...] = ()
    idempotent: bool = False
    # fetch: the name's bytes, or the 16 bytes of the topic id; repeat: what every answer must be
    # after its correlation id, nothing for anything
    topic: bytes = b""


@dataclass(frozen=True)
class Stream:
    """Connections that carry the same kind of traffic, with one rate and one histogram."""

    role: Role
    version: int
    connections: tuple[Connection, ...]
    acks: int = 1
    in_flight: int = 1
    rate: float = 0.0  # requests per second over all connections; 0 is a closed loop
    coalesce: bool = False  # requests that may go at the same moment leave in one send
    send_limit: int = 0
    max_wait_ms: int = 500
    min_bytes: int = 1
    max_bytes: int = 50 << 20
    partition_max_bytes: int = 1 << 20
    tail: bool = False  # fetch: follow the end of the log
    session: bool = False
    isolation: int = 0  # fetch: 1 reads what is committed
    stamped_at: int = 0  # fetch: where in a batch the send time sits, 0 for none
    uniform_bytes: int = 0  # fetch: size of every batch in the log, 0 if they differ
    uniform_records: int = 0
    verify_every: int = 64


@dataclass(frozen=True)
class Run:
    """One run: the first stream decides when the window begins and ends."""

    host: str
    port: int
    streams: tuple[Stream, ...] = field(default=())
    broker_pid: int = 0
    warm_s: float = 0.3
    warm_requests: int = 0
    window_s: float = 2.0
    window_requests: int = 0
    window_bytes: int = 0
    window_records: int = 0  # counted from the start of the run
    stall_s: float = 10.0
