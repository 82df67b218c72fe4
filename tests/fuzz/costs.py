"""What a byte sent costs: CPU, bytes that are kept, written and answered, frame by frame.

    python -m tests.fuzz.costs --draws 4000 --seed 1       against a broker of its own

The candidates are sound frames of every API in its first and last version, the same with counts
that fit and items repeated, batches of every kind from the pool, and hostile frames of a seed. Each
is sent alone on a quiet broker, after it a Produce of nothing whose answer says that it was dealt
with; the kernel says what the broker's threads did meanwhile. The dearest are sent again several
times and the median counts. A frame shorter than a KB may cost what a KB may.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import random
import secrets
import socket
import statistics
import struct
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Final, NamedTuple

from kbroker import limits
from kbroker.testing.plain import PlainBroker as Broker
from kbroker.types import ApiKey
from tests.fuzz.corpus import Ids, Template, templates
from tests.fuzz.excess import counted, distinct, filled, nameless, repeated
from tests.fuzz.mutate import BLOCK, LAST, Maker, framed
from tests.fuzz.talk import MAY_WAIT, SENTINEL, SENTINEL_ID
from tests.fuzz.target import OVERRIDES, Admin, prepare
from tests.fuzz.unread import UNREAD_MAX, beyond, kept
from tests.system import process_facts

CPU_MS_PER_KB_MAX: Final = 1.0
# Work that was asked for: a topic that is made (1.4 to 1.8 ms), and a bomb, whose price is
# that of the 64 MB it may unpack to, whatever its length (gzip: 130 ms, packed anew 280).
CPU_MS_PER_KB_OF_TOPICS_MAX: Final = 3.0
# Seven bytes name a resource of which nothing is asked, and a KB names 150 of them.
CPU_MS_PER_KB_OF_RESOURCES_MAX: Final = 2.0
CPU_MS_OF_BOMB_MAX: Final = 200.0
CPU_MS_OF_BOMB_PACKED_ANEW_MAX: Final = 350.0
BOMB: Final = "MB of zeros"
PACKED_ANEW: Final = "target-repacked"
WRITTEN_PER_KB_MAX: Final = 256 << 10  # a topic that is made is a commit of some pages
KEPT_PER_KB_MAX: Final = 64 << 10
FETCH_BYTES_MAX: Final = 56 << 20  # fetch.max.bytes, and heads
FOLLOWED: Final = 100_000  # as many as a session takes
_SESSION_ID: Final = 4 + 5 + 4 + 2  # in an answer to Fetch, with its size
SHORT_BYTES_MAX: Final = 64 << 10
PEAK_MAX: Final = 300 << 20  # one request's memory while it is served
WORST: Final = 10
AGAIN: Final = 40  # of the dearest at first sight
ROUNDS: Final = 3
WAIT_S: Final = 10.0
_COUNTS: Final = (1_000, 20_000, 100_001)
_TIMES: Final = (30, 1_000, 4_000)
_COPIES: Final = 20  # over which what is kept is looked at


class Candidate(NamedTuple):
    """A frame; or, made from the answer to one before it, one of the same length."""

    name: str
    frame: bytes
    before: bytes = b""
    then: Callable[[bytes], bytes] | None = None


class Cost(NamedTuple):
    """Of one frame; by begun KB of it."""

    candidate: Candidate
    cpu_ms: float
    written: float
    kept: float = 0.0
    peak: float = 0.0  # more resident while it was served
    answer_bytes: int = 0  # the length of its answer

    @property
    def kib(self) -> float:
        return max(1.0, len(self.candidate.frame) / 1024)

    def text(self) -> str:
        return (
            f"{self.cpu_ms / self.kib:>9.3f} ms/KB {self.written / self.kib / 1024:>9.1f} KB/KB"
            f" {self.kept / self.kib / 1024:>8.1f} KB/KB {self.peak / 1e6:>7.1f} MB"
            f" {self.cpu_ms:>9.2f} ms {self.answer_bytes / 1e6:>7.2f} MB"
            f" {len(self.candidate.frame):>9,} bytes  {self.candidate.name}"
        )


HEADING: Final = (
    f"{'CPU':>15} {'written':>15} {'kept':>14} {'peak':>10} {'CPU':>12} {'answer':>10}"
    f" {'length':>15}  frame"
)


# --- candidates ----------------------------------------------------------------------------------


def candidates(seed: int, ids: Ids, draws: int) -> Iterator[Candidate]:
    """Batches first; the rest in an order of the seed's, for runs that have no time for all."""
    maker = Maker(seed, ids)
    for name, frame in maker.batches():
        yield Candidate(f"Produce of {name}", frame)
    yield from sessions()
    rest = [*_of_apis(ids), *_drawn(maker, draws, seed)]
    random.Random(seed).shuffle(rest)
    for make in rest:
        yield make()


def sessions() -> Iterator[Candidate]:
    """The next fetch of a session in which many partitions are followed that are not there."""
    for version in (12, 13):
        topic = bytes(15) + b"t" if version > 12 else b"\2t"
        partitions = b"".join(
            struct.pack(">iiqiqi", index, -1, 0, -1, -1, 1 << 20) + b"\0"
            for index in range(FOLLOWED)
        )
        topics = b"\2" + topic + counted(True, FOLLOWED) + partitions + b"\0"
        yield Candidate(
            f"Fetch v{version}, the next of {FOLLOWED} partitions that are missing",
            _fetch(version, 0, 0, b"\1"),
            _fetch(version, 0, 0, topics),
            partial(_next_fetch, version),
        )


def _fetch(version: int, session_id: int, epoch: int, topics: bytes) -> bytes:
    head = struct.pack(">hhih", ApiKey.FETCH, version, 7, -1) + b"\0"
    body = struct.pack(">iiiibii", -1, 0, 1, 1 << 20, 0, session_id, epoch)
    return framed(head + body + topics + b"\1" + b"\1" + b"\0")


def _next_fetch(version: int, answer: bytes) -> bytes:
    (session_id,) = struct.unpack_from(">i", answer, _SESSION_ID)
    return _fetch(version, session_id, 1, b"\1")


def _of_apis(ids: Ids) -> Iterator[Callable[[], Candidate]]:
    for key, of_api in templates(ids).items():
        versions = sorted({each.version for each in of_api})
        for each in of_api:
            if each.version in (versions[0], versions[-1]):
                yield from _of_template(f"{ApiKey(key).label} v{each.version}", each)


def _drawn(maker: Maker, draws: int, seed: int) -> Iterator[Callable[[], Candidate]]:
    for block in range(draws // BLOCK + 1):
        for at, (kind, frame) in enumerate(maker.block(block)):
            number = block * BLOCK + at
            if kind != LAST and number < draws:
                yield partial(Candidate, f"frame {number} of seed {seed}", frame)


def _of_template(name: str, template: Template) -> Iterator[Callable[[], Candidate]]:
    """Made when it is their turn: all of them at once would be gigabytes."""
    yield partial(Candidate, f"{name}, sound", framed(template.whole))
    for at, array in enumerate(template.arrays):
        for count in _COUNTS:
            for unit, byte in itertools.product((1, 4, 8), (0, 1)):
                failure = f"{name}, array {at}: {count} of {unit} bytes {byte}"
                yield partial(_made, failure, filled, template, array, count, unit, byte)
        if array.count:
            for times in _TIMES:
                failure = f"{name}, array {at}: {times} times the same"
                yield partial(_made, failure, repeated, template, array, times)
                failure = f"{name}, array {at}: {times} of other names"
                yield partial(_made, failure, distinct, template, array, times)
                failure = f"{name}, array {at}: {times} without a name"
                yield partial(_made, failure, nameless, template, array, times)


def _made(name: str, make: Callable[..., bytes], *of: object) -> Candidate:
    return Candidate(name, framed(make(*of)))


# --- measuring -----------------------------------------------------------------------------------


class Meter:
    def __init__(self, address: tuple[str, int], pid: int) -> None:
        self._address = address
        self._pid = pid
        self.failures: list[str] = []
        self._base_ms_per_s = self._idle()

    def cost(self, candidate: Candidate, rounds: int = 1) -> Cost:
        """The median of some rounds."""
        found = [self._once(candidate) for _ in range(rounds)]
        return Cost(
            candidate,
            statistics.median(cpu for cpu, _, _ in found),
            statistics.median(written for _, written, _ in found),
            answer_bytes=max(size for _, _, size in found),
        )

    def with_kept(self, cost: Cost) -> Cost:
        before = process_facts.resident_bytes(self._pid)
        process_facts.forget_peak(self._pid)
        copies = _COPIES if cost.cpu_ms < 20 else 2
        for _ in range(copies):
            self._once(cost.candidate)
        kept = (process_facts.resident_bytes(self._pid) - before) / copies
        peak = process_facts.peak_bytes(self._pid) - before
        return cost._replace(kept=max(0.0, kept), peak=max(0.0, float(peak)))

    def _idle(self) -> float:
        cpu, at = self._cpu_ms(), time.monotonic()
        time.sleep(1.0)
        return (self._cpu_ms() - cpu) / (time.monotonic() - at)

    def _cpu_ms(self) -> float:
        return process_facts.cpu_ns(self._pid) / 1e6

    def _once(self, candidate: Candidate) -> tuple[float, float, int]:
        """CPU in ms and bytes written, less what the broker does by itself; bytes answered."""
        answered = 0
        frame = candidate.frame
        waits = int.from_bytes(candidate.frame[4:6], "big") in MAY_WAIT
        with socket.create_connection(self._address, timeout=WAIT_S) as peer:
            peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            peer.sendall(candidate.before + SENTINEL)
            answers = _until_sentinel(peer)
            if candidate.then is not None:
                frame = candidate.then(answers)
            written = process_facts.written_bytes(self._pid)
            cpu, at = self._cpu_ms(), time.monotonic()
            try:
                # Sent in pieces, so that an early end by the broker is noticed.
                peer.sendall(frame + SENTINEL)
                peer.settimeout(0.2 if waits else WAIT_S)
                answered = len(_until_sentinel(peer))
            except TimeoutError:
                if not waits:
                    self.failures.append(f"no answer in {WAIT_S} s: {candidate.name}")
            except OSError:
                pass  # an end is an answer
            self._settled()
            took = time.monotonic() - at
            used = self._cpu_ms() - cpu - took * self._base_ms_per_s
            return max(0.0, used), float(process_facts.written_bytes(self._pid) - written), answered

    def _settled(self) -> None:
        """Until no thread of the broker has worked for a moment."""
        until = time.monotonic() + WAIT_S
        before = self._cpu_ms()
        while time.monotonic() < until:
            time.sleep(0.002)
            now = self._cpu_ms()
            if now - before < 0.2:
                return
            before = now


def _until_sentinel(peer: socket.socket) -> bytes:
    """The answers up to the sentinel's; ConnectionError at the end of the stream."""
    received = bytearray()
    at = 0
    while True:
        data = peer.recv(1 << 18)
        if not data:
            raise ConnectionResetError("ended")
        received += data
        while len(received) - at >= 4:
            size = struct.unpack_from(">i", received, at)[0]
            if len(received) - at < 4 + size:
                break
            if received[at + 4 : at + 8] == SENTINEL_ID:
                return bytes(received[:at])
            at += 4 + size


def measure(
    address: tuple[str, int], pid: int, found: Iterator[Candidate], within_s: float,
    tell: Callable[[str], None] = print,
) -> tuple[list[Cost], list[str]]:  # fmt: skip
    """The costs, dearest first, and what is beyond its bound."""
    meter = Meter(address, pid)
    until = time.monotonic() + within_s
    costs: list[Cost] = []
    for candidate in found:
        if time.monotonic() > until:
            tell(f"stopped after {len(costs)} frames: {within_s} s are over")
            break
        costs.append(meter.cost(candidate))
    worst = {c.candidate for c in sorted(costs, key=_cpu)[-AGAIN:]}
    worst |= {c.candidate for c in sorted(costs, key=_written)[-WORST:]}
    worst |= {c.candidate for c in sorted(costs, key=_short_answer_bytes)[-WORST:]}
    again = [meter.with_kept(meter.cost(each, ROUNDS)) for each in worst]
    again.sort(key=_cpu, reverse=True)
    tell(f"{len(costs)} frames; the worst {WORST} by CPU:\n{HEADING}")
    for cost in again[:WORST]:
        tell(cost.text())
    tell(f"the worst {WORST} by bytes written or kept:")
    for cost in sorted(again, key=lambda c: _written(c) + c.kept / c.kib, reverse=True)[:WORST]:
        tell(cost.text())
    failures = meter.failures
    failures += [f"CPU: {c.text()}" for c in again if c.cpu_ms > cpu_ms_max(c)]
    failures += [f"written: {c.text()}" for c in again if _written(c) > WRITTEN_PER_KB_MAX]
    failures += [f"kept: {c.text()}" for c in again if c.kept / c.kib > KEPT_PER_KB_MAX]
    failures += [f"peak: {c.text()}" for c in again if c.peak > PEAK_MAX]
    failures += [f"answered: {c.text()}" for c in costs if c.answer_bytes > answer_max(c)]
    return again, failures


def _cpu(cost: Cost) -> float:
    return cost.cpu_ms / cost.kib


def cpu_ms_max(cost: Cost) -> float:
    name = cost.candidate.name
    if BOMB in name:
        return CPU_MS_OF_BOMB_PACKED_ANEW_MAX if PACKED_ANEW in name else CPU_MS_OF_BOMB_MAX
    begun = -(-len(cost.candidate.frame) // 1024)
    if name.startswith(ApiKey.CREATE_TOPICS.label):
        return begun * CPU_MS_PER_KB_OF_TOPICS_MAX
    if ", resources of type " in name:
        return begun * CPU_MS_PER_KB_OF_RESOURCES_MAX
    return begun * CPU_MS_PER_KB_MAX


def _short_answer_bytes(cost: Cost) -> int:
    """For little: what a frame that is long takes while it is served is another bound's."""
    return cost.answer_bytes if len(cost.candidate.frame) <= SHORT_BYTES_MAX else 0


def answer_max(cost: Cost) -> int:
    """Once what there is, and again what the limits of repeats let through. What a Fetch says that
    it takes is its own."""
    if cost.candidate.name.startswith("frame ") and not cost.candidate.before:
        return FETCH_BYTES_MAX
    again = limits.REPEATED_ANSWER_TIMES_MAX * len(cost.candidate.frame)
    return 2 * (limits.REPEATED_ANSWER_BYTES_MAX + again)


def _written(cost: Cost) -> float:
    return cost.written / cost.kib


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--draws", type=int, default=2_000, help="hostile frames of the seed")
    parser.add_argument("--seed", type=int, default=secrets.randbelow(1 << 31))
    parser.add_argument("--seconds", type=float, default=600)
    options = parser.parse_args()
    print(f"seed {options.seed}", flush=True)
    with contextlib.ExitStack() as stack:
        overrides = {**OVERRIDES, "queued.max.response.bytes": UNREAD_MAX}
        broker = stack.enter_context(Broker(overrides))
        host, _, port = broker.bootstrap.rpartition(":")
        address = (host, int(port))
        admin = Admin(address)
        found = candidates(options.seed, prepare(admin), options.draws)
        again, failures = measure(address, broker.pid, found, options.seconds)
        longest = [each.candidate for each in sorted(again, key=_short_answer_bytes)[-WORST:]]
        print("the longest answers, read by nothing:", *(each.name for each in longest), sep="\n  ")
        failures += beyond(kept(broker, longest))
        admin.topics()
        admin.close()
    print("\n".join(f"FAILED: {failure}" for failure in failures) or "all bars are met")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
