"""Records that say when they were meant to be sent and when they were: sender and receiver agree.

A value begins with three little-endian 8-byte numbers: its number in the block, from 0; when it was
due; when send() was called, both in ns of CLOCK_MONOTONIC, which all processes of a machine share.
The rest is filling. `Arrivals` checks the records (each once, in order) and makes histograms of
them. Bytes from a socket may be anything: a short value or a wrong number is an error.
"""

from __future__ import annotations

import struct
from array import array

import numpy as np
import numpy.typing as npt

from perf.histogram import BUCKETS, SUB, SUB_BITS, Histogram

HEAD = struct.Struct("<QQQ")
RECORDS_MAX = 4_000_000  # of a block: bounds what both sides hold


class StampError(Exception):
    """A record that was lost, doubled, reordered, or is none of ours."""


def value(number: int, due_ns: int, sent_ns: int, filling: bytes) -> bytes:
    return HEAD.pack(number, due_ns, sent_ns) + filling


class Arrivals:
    """What one receiver got: appended one by one, evaluated once."""

    def __init__(self) -> None:
        self.due_ns, self.sent_ns, self.at_ns = array("q"), array("q"), array("q")

    def __len__(self) -> int:
        return len(self.at_ns)

    def add(self, taken: bytes, now_ns: int) -> None:
        """StampError if this is not the next record."""
        expected = len(self.at_ns)
        if len(taken) < HEAD.size:
            raise StampError(f"a record of {len(taken)} bytes where number {expected} was due")
        number, due_ns, sent_ns = HEAD.unpack_from(taken)
        if number != expected:
            raise StampError(f"record {number} came where {expected} was due")
        if expected >= RECORDS_MAX or max(due_ns, sent_ns) > now_ns + 1_000_000_000:
            raise StampError(f"record {number} is too much, or of the future")
        self.due_ns.append(due_ns)
        self.sent_ns.append(sent_ns)
        self.at_ns.append(now_ns)

    def histograms(self, begin_ns: int, end_ns: int) -> tuple[Histogram, Histogram, int]:
        """(since send(), since due) of the records sent in the window, and how many came in it."""
        sent, due, at = (
            np.frombuffer(one, dtype=np.int64) if one else np.empty(0, dtype=np.int64)
            for one in (self.sent_ns, self.due_ns, self.at_ns)
        )
        inside = (sent >= begin_ns) & (sent < end_ns)
        came = int(((at >= begin_ns) & (at < end_ns)).sum())
        return histogram(at[inside] - sent[inside]), histogram(at[inside] - due[inside]), came


def histogram(values_ns: npt.NDArray[np.int64]) -> Histogram:
    """perf.histogram's buckets of many values at once; negative ones count as 0."""
    if not len(values_ns):
        return Histogram.empty()
    values = np.maximum(values_ns, 0)
    # The highest set bit by frexp is exact below 2^53 ns, 104 days.
    shift = np.maximum(np.frexp(values.astype(np.float64))[1] - 1 - SUB_BITS, 0)
    buckets = np.where(values < SUB, values, (shift << SUB_BITS) + (values >> shift))
    counts = np.bincount(buckets, minlength=BUCKETS).astype(np.uint64)
    return Histogram(counts, len(values), int(values.sum()), int(values.min()), int(values.max()))
