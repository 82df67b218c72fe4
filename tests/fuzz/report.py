"""The verdict on a run of hostile frames: the figures, the bars, and the table that is printed."""

from __future__ import annotations

import socket
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import chain
from typing import Final, NamedTuple

from kbroker.errors import ErrorCode
from kbroker.types import ApiKey
from tests.fuzz.answers import NO_CODE, Tally
from tests.fuzz.corpus import PRODUCE
from tests.fuzz.mutate import LAST, Maker
from tests.fuzz.neighbour import Neighbour, percentile
from tests.fuzz.target import Admin, prepare

GROWTH_BYTES_MAX: Final = 20 << 20
# 112 and the name of a topic, as the allocator rounds it, and a place in a table.
SESSION_PARTITION_BYTES: Final = 148
PYTHON_BLOCK_BYTES: Final = 100  # on the average: they have up to 512
P99_RATIO_MAX: Final = 2.0
# Phases of a run, as they are reported.
WARM_UP: Final = "sound frames, the warm-up"
HOSTILE: Final = "hostile frames"
COMPARED: Final = "as many sound frames"
OWN_CONNECTIONS: Final = 4
CHUNKS_MAX: Final = 4
FILES_LEFT_MAX: Final = 3  # the connections that look
LOG_LINES_PER_S_MAX: Final = 20
# Answers that must have been seen, or the frames did not get where they were meant to go.
REACHED: Final = {
    (PRODUCE, ErrorCode.NONE): "batches were appended",
    (PRODUCE, ErrorCode.CORRUPT_MESSAGE): "a wrong CRC",
    (PRODUCE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION): "an absent topic",
    (PRODUCE, ErrorCode.INVALID_RECORD): "invalid records",
    (PRODUCE, ErrorCode.MESSAGE_TOO_LARGE): "bombs",
    (PRODUCE, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE): "an unknown codec",
    (PRODUCE, ErrorCode.INVALID_REQUIRED_ACKS): "other acks",
    (PRODUCE, ErrorCode.UNKNOWN_TOPIC_ID): "an absent topic id",
    (PRODUCE, ErrorCode.INVALID_TIMESTAMP): "a timestamp out of the window",
    (PRODUCE, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER): "a sequence with a gap",
    (ApiKey.FETCH, ErrorCode.NONE): "fetches",
    (ApiKey.FETCH, ErrorCode.OFFSET_OUT_OF_RANGE): "fetches out of range",
    (ApiKey.API_VERSIONS, ErrorCode.UNSUPPORTED_VERSION): "an unknown ApiVersions",
}
REACHED_FROM: Final = 50_000  # below so many frames some may be missing by chance


def beyond(objects: Mapping[str, int]) -> list[str]:
    """What should have gone with the connections: a member that has left may be waited for."""
    if not objects:
        return []
    waiting = objects["members"] + OWN_CONNECTIONS
    bounds = {
        "connections": waiting,
        "requests": waiting,
        "frame_copies": waiting,
        "parked_requests": 0,
        "watches": 0,
        "slot_rings": OWN_CONNECTIONS,
        "chunks": CHUNKS_MAX,
    }
    return [
        f"{objects[kind]:,} {kind.replace('_', ' ')}, at most {bound:,}"
        for kind, bound in bounds.items()
        if objects[kind] > bound
    ]


class Memory(NamedTuple):
    """What a broker says that it uses; resident memory has what allocators keep free, too."""

    used: int = 0  # of the C allocator, in bytes
    python_blocks: int = 0
    session_partitions: int = 0  # they fill up to a bound of their own

    @property
    def kept(self) -> int:
        python = self.python_blocks * PYTHON_BLOCK_BYTES
        return self.used + python - self.session_partitions * SESSION_PARTITION_BYTES


@dataclass
class Result:
    seed: int
    judged: bool = True  # or latencies, resident memory and open files were not looked at
    tally: Tally = field(default_factory=Tally)
    strangers: Tally = field(default_factory=Tally)  # of clients that had not logged in
    took_s: float = 0.0
    resident_warm: int = 0
    resident_after: int = 0
    memory_warm: Memory | None = None
    memory_after: Memory | None = None
    files_before: int = 0
    files_after: int = 0
    neighbour: Neighbour | None = None
    log: str | None = None
    acts: Counter[str] = field(default_factory=Counter)  # of clients that leave
    objects: dict[str, int] = field(default_factory=dict)  # that live when all have left
    marks: list[tuple[str, float]] = field(default_factory=list)
    rates: dict[str, float] = field(default_factory=dict)  # frames a second, by phase
    failures: list[str] = field(default_factory=list)
    p99_ratio_max: float = P99_RATIO_MAX

    def mark(self, phase: str) -> None:
        self.marks.append((phase, time.monotonic()))

    def rounds(self, phase: str) -> list[list[float]]:
        """The neighbour's latencies in ms, each time that this phase went on."""
        assert self.neighbour is not None
        ends = [at for _, at in self.marks[1:]]
        return [
            self.neighbour.latencies_ms(begin, end)
            for (name, begin), end in zip(self.marks, ends, strict=False)
            if name == phase
        ]

    def phases(self) -> dict[str, list[float]]:
        """The neighbour's latencies in ms, by phase."""
        names = [name for name, _ in self.marks if name == "alone" or name in self.rates]
        return {name: [*chain.from_iterable(self.rounds(name))] for name in dict.fromkeys(names)}

    def p99_ratio(self, beside: str) -> float:
        """Beside hostile frames, to that beside sound ones; 0 where there was no such phase.

        The least of the rounds, each beside the sound frames next to it: what frames do to a
        neighbour they do in each, and what else this machine does in a second or two is in one.
        """
        sound = [percentile(each, 0.99) for each in self.rounds(beside)]
        felt = [percentile(each, 0.99) for each in self.rounds(HOSTILE)]
        if not sound:
            return 0.0
        sound *= 1 if len(sound) == len(felt) else len(felt)  # the warm-up comes once
        return min(a / b if b else float("inf") for a, b in zip(felt, sound, strict=True))

    def growth(self) -> int:
        if self.memory_warm is None or self.memory_after is None:
            return 0  # no process could be asked
        return self.memory_after.kept - self.memory_warm.kept

    def files_max(self) -> int:
        """How many may be open in the end. A member that has left may be waited for, and its
        connection stays as long (see beyond)."""
        waiting = max(0, self.objects.get("connections", 0) - OWN_CONNECTIONS)
        return self.files_before + FILES_LEFT_MAX + waiting

    def check(self) -> None:
        """Fills `failures`."""
        tally, failures = self.tally, self.failures
        failures += tally.failures + self.strangers.failures
        if tally.frames >= REACHED_FROM:
            failures += [
                f"not reached: {item}" for kind, item in REACHED.items() if not tally.answers[kind]
            ]
            if not tally.record_errors:
                failures.append("not reached: no answer named a wrong record")
            if not tally.closes or not tally.broken:
                failures.append("not reached: nothing ended a connection")
        growth = self.growth()
        if growth > GROWTH_BYTES_MAX:
            failures.append(f"the memory in use grew by {growth / 1e6:.1f} MB")
        if self.judged and self.files_after > self.files_max():
            failures.append(f"{self.files_after} open files, {self.files_before} before")
        failures += [f"stays: {item}" for item in beyond(self.objects)]
        if self.neighbour is not None:
            failures += [f"the neighbour: {error}" for error in self.neighbour.errors[:5]]
            if self.p99_ratio(COMPARED) > self.p99_ratio_max:
                failures.append(f"the neighbour's p99 is {self.p99_ratio(COMPARED):.2f} x")
        if self.log is not None:
            self._check_log(self.log)

    def _check_log(self, log: str) -> None:
        lines = [line for line in log.splitlines() if "Traceback" in line or " failed: " in line]
        if lines:
            self.failures.append(f"in the log, {len(lines)} times: {lines[:3]}")
        lines_max = 100 + LOG_LINES_PER_S_MAX * (self.took_s + 10)
        if log.count("\n") > lines_max:
            self.failures.append(f"{log.count(chr(10)):,} lines in the log")

    def text(self) -> str:
        tally = self.tally
        out = [f"seed {self.seed}: {tally.frames:,} frames in {self.took_s:.1f} s"]
        out[0] += f", {tally.frames / max(self.took_s, 0.001):,.0f}/s"
        out.append(f"{'API':<28}{'answer':<38}{'count':>12}  first frame")
        for (key, code), count in sorted(tally.answers.items()):
            number = tally.numbers.get((key, code), -1)
            out.append(f"{_api(key):<28}{_code(code):<38}{count:>12,}  {number}")
        for key, count in tally.closes.most_common(20):
            out.append(f"{_api(key):<28}{'connection closed':<38}{count:>12,}")
        for item, count in tally.broken.items():
            out.append(f"{'(broken framing)':<28}{item:<38}{count:>12,}")
        out.append(
            f"without an answer {tally.silent:,} (acks=0), given up waiting {tally.waited:,}, "
            f"connections {tally.connects:,}, answers read by kio {tally.decoded:,}, "
            f"of these with a record named {tally.record_errors:,}"
        )
        if strangers := self.strangers.frames:
            ended = sum(self.strangers.closes.values()) + self.strangers.broken["ended"]
            out.append(
                f"strangers {strangers:,} frames, {ended:,} of them ended a connection, "
                f"{sum(self.strangers.answers.values()):,} answered"
            )
        out.append(
            f"resident {self.resident_warm / 1e6:.1f} -> {self.resident_after / 1e6:.1f} MB, "
            f"open files {self.files_before} -> {self.files_after}"
        )
        out.append(self._memory_text())
        live = ", ".join(f"{n:,} {item.replace('_', ' ')}" for item, n in self.objects.items() if n)
        out.append(f"live objects at the end: {live or 'not asked'}")
        acts = ", ".join(f"{item.replace('_', ' ')} {n:,}" for item, n in self.acts.items())
        out.append(f"left in the midst of: {acts or 'nothing'}")
        if self.log is not None:
            out.append(f"log lines {self.log.count(chr(10)):,}")
        if self.neighbour is not None:
            out += self._neighbour_text(self.neighbour)
        # First, so that it stays when the output is cut.
        verdict = [f"FAILED: {item}" for item in self.failures] or ["all bars are met"]
        return "\n".join([*verdict, *out, *verdict])

    def _memory_text(self) -> str:
        warm, after = self.memory_warm, self.memory_after
        if warm is None or after is None:
            return "memory in use: not asked"
        return (
            f"memory in use {warm.used / 1e6:.1f} -> {after.used / 1e6:.1f} MB, "
            f"of Python {warm.python_blocks:,} -> {after.python_blocks:,} blocks, "
            f"of fetch sessions {warm.session_partitions:,} -> {after.session_partitions:,} "
            f"partitions, without these {self.growth() / 1e6:+.1f} MB"
        )

    def _neighbour_text(self, neighbour: Neighbour) -> list[str]:
        out = [f"neighbour: {len(neighbour.samples):,} produces, {len(neighbour.errors)} errors"]
        for name, values in self.phases().items():
            p50, p99, top = (percentile(values, q) for q in (0.5, 0.99, 1.0))
            line = f"  {name:<26} p50 {p50:.2f}  p99 {p99:.2f}  max {top:.1f} ms"
            out.append(f"{line}  {len(values):,} of them, {self.rates.get(name, 0):,.0f} frames/s")
        for name in (each for each in (COMPARED, WARM_UP) if each in self.rates):
            out.append(f"  p99 beside {HOSTILE} / beside {name}: {self.p99_ratio(name):.2f}")
        return out


def _api(key: int) -> str:
    api = ApiKey.for_key(key)
    return f"{key} {api.label}" if api is not None else f"{key}"


def _code(code: int) -> str:
    if code == NO_CODE:
        return "answered"
    try:
        return f"{code} {ErrorCode(code).name}"
    except ValueError:
        return str(code)


def show_one(address: tuple[str, int], seed: int, number: int) -> None:
    """Sends one frame of a seed alone and prints it with its answer."""
    admin = Admin(address)
    kind, frame = Maker(seed, prepare(admin)).frame(number)
    print(f"frame {number}: {len(frame)} bytes, kind {kind}\n{frame.hex()}")
    with socket.create_connection(address, timeout=5) as connection:
        connection.sendall(frame)
        if kind == LAST:
            connection.shutdown(socket.SHUT_WR)
        try:
            answer = connection.recv(1 << 16)
            print(f"answer: {answer.hex()}" if answer else "the connection was closed")
        except OSError as error:
            print(f"no answer: {error!r}")
    admin.topics()
    print("the broker answers")
    admin.close()
