"""Long polls of many partitions while everything that can answer them happens at once.

    python -m tests.system.long_polls --seconds 120           a broker of its own, by hand
    python -m tests.system.long_polls --bootstrap HOST:PORT   one that runs already

Readers follow 34 to 480 partitions each, of which few are written. Beside them: small appends,
batches that make a run longer than 1 MiB (so that a second handler takes while the first one still
appends), topics that recompress and that sync before they answer, DeleteRecords, settings that
change, topics that go, and connections that go while they wait.

What must hold: the broker lives; no client has an error that it should not have; and **no fetch
waits for its deadline**. A patient reader's deadline lies far after the end of the run, so a
wake-up that is lost shows as a reader that gets nothing: at the end every reader has every record
that was acknowledged. Impatient readers, with deadlines of some milliseconds, race the deadline as
well.
"""

from __future__ import annotations

import argparse
import random
import socket
import struct
import sys
import threading
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Final

from kbroker.testing.plain import PlainBroker
from kbroker.types import ApiKey
from tests.fuzz.mutate import framed
from tests.fuzz.target import Admin
from tests.support import schemas
from tests.support.record_batches import build_batch

Address = tuple[str, int]
Partition = tuple[str, int]
Step = Callable[[], object]

PARTITIONS: Final = 480
READERS: Final = 16
PARTITIONS_READ_MIN: Final = 34
POLLED, SYNCED, REPACKED, LARGE = "polled", "synced", "repacked", "large"
SMALL: Final = {"segment.bytes": "16777216", "file.delete.delay.ms": "1000"}
TOPICS: Final = {
    POLLED: SMALL,
    SYNCED: SMALL | {"flush.messages": "1"},
    REPACKED: SMALL | {"compression.type": "gzip"},
    LARGE: SMALL,
}
RECORDS: Final = 2  # of a small batch
FEW: Final = 6  # partitions of a topic that are written
FOR_EVER_MS: Final = 3_600_000
# A reader that gets nothing for so long, while its partitions are written, was forgotten.
SILENCE_S: Final = 60.0
LARGE_BYTES: Final = 1_200_000
MAX_BYTES: Final = 1 << 20
KEPT_RECORDS: Final = 200  # DeleteRecords leaves so many
OFFSET_OUT_OF_RANGE, TOPIC_UNKNOWN = 1, 3
_RESET: Final = struct.pack("ii", 1, 0)
_PARTITION = struct.Struct(">ihqqqii")


class Stress:
    """The load against one broker. `run` says what went wrong; an empty list is what must be."""

    def __init__(
        self, address: Address, *, partitions: int = PARTITIONS, readers: int = READERS
    ) -> None:
        self.address = address
        self.partitions = partitions
        self.problems: list[str] = []
        self.done: dict[str, int] = {}
        self.written: list[Partition] = [
            *((POLLED, i * partitions // FEW) for i in range(FEW)),
            *((topic, i) for topic in (SYNCED, REPACKED) for i in range(FEW)),
        ]
        # What was acknowledged, and what DeleteRecords may have taken; each has one writer.
        self.ends = dict.fromkeys(self.written, 0)
        self.starts = dict.fromkeys(self.written, 0)
        self.ending = threading.Event()
        self._all_written = threading.Event()
        self._readers = [_Reader(self, number, readers) for number in range(readers)]
        thirds = [self.written[i::3] for i in range(3)]
        self._roles: list[tuple[str, Callable[[], Step]]] = [
            *((f"writer {i}", _Writer(self, third)) for i, third in enumerate(thirds)),
            ("large", _LargeWriter(self)),
            ("deletes", _Deleter(self)),
            ("settings", _Settings(self)),
            ("churn", _Churn(self)),
            ("leavers", _Leavers(self)),
        ]

    def prepare(self) -> None:
        admin = Admin(self.address)
        for name, configs in TOPICS.items():
            admin.create(name, self.partitions if name == POLLED else FEW, configs)
        admin.close()

    def run(self, seconds: float) -> list[str]:
        self.prepare()
        readers = [threading.Thread(target=r.follow, daemon=True) for r in self._readers]
        roles = [
            threading.Thread(target=self._play, args=role, daemon=True) for role in self._roles
        ]
        for thread in (*readers, *roles):
            thread.start()
        self.ending.wait(seconds)
        self.ending.set()
        for thread in roles:
            thread.join(SILENCE_S)
        self._write_the_last()
        for thread in readers:
            thread.join(SILENCE_S)
        self.problems += [f"{name} did nothing" for name, _ in self._roles if name not in self.done]
        self.problems += [r.missing() for r in self._readers if r.missing()]
        return self.problems

    def may_leave(self) -> bool:
        return self._all_written.is_set()

    def _write_the_last(self) -> None:
        # Nothing comes after this: it wakes each reader, who has all of it then or was forgotten.
        for partition in self.written:
            self.ends[partition] += RECORDS
        self._all_written.set()
        try:
            _Writer(self, self.written).append(_Talk(self.address), self.written)
        except OSError as error:
            self.fail(f"the last writer: {error!r}")

    def fail(self, problem: str) -> None:
        self.problems.append(problem)
        self.ending.set()

    def count(self, name: str) -> None:
        self.done[name] = self.done.get(name, 0) + 1

    def _play(self, name: str, role: Callable[[], Step]) -> None:
        try:
            step = role()
            while not self.ending.is_set():
                step()
                self.count(name)
        except Exception as error:
            self.fail(f"{name}: {error!r}")


class _Talk:
    def __init__(self, address: Address) -> None:
        self.socket = socket.create_connection(address, timeout=SILENCE_S)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._stream = self.socket.makefile("rb")

    def ask(self, *frames: bytes) -> list[bytes]:
        self.socket.sendall(b"".join(frames))
        return [self.receive() for _ in frames]

    def receive(self) -> bytes:
        head = self._stream.read(4)
        if len(head) < 4:
            raise ConnectionError("the broker ended the connection")
        return self._stream.read(int.from_bytes(head, "big"))


# --- frames ---------------------------------------------------------------------------------------


def _named(name: str) -> bytes:
    return struct.pack(">h", len(name)) + name.encode()


def produce_frame(partition: Partition, batch: bytes) -> bytes:
    """Produce v3, acks=1, to one partition."""
    name, index = partition
    body = struct.pack(">hhihhhii", 0, 3, 1, -1, -1, 1, 30_000, 1) + _named(name)
    return framed(body + struct.pack(">iii", 1, index, len(batch)) + batch)


def fetch_frame(
    asked: dict[Partition, int],
    *,
    wait_ms: int,
    min_bytes: int = 1,
    session: tuple[int, int] = (0, -1),
) -> bytes:
    """Fetch v7 of these partitions from these offsets on."""
    by_topic: dict[str, list[bytes]] = {}
    for (name, index), offset in asked.items():
        entry = struct.pack(">iqqi", index, offset, -1, 1 << 16)
        by_topic.setdefault(name, []).append(entry)
    body = struct.pack(">hhih", 1, 7, 1, -1)
    body += struct.pack(">iiiibii", -1, wait_ms, min_bytes, MAX_BYTES, 0, *session)
    body += struct.pack(">i", len(by_topic))
    for name, entries in by_topic.items():
        body += _named(name) + struct.pack(">i", len(entries)) + b"".join(entries)
    return framed(body + struct.pack(">i", 0))


def end_of(records: bytes) -> int:
    """The offset after the last whole batch; -1 if there is none."""
    end, at = -1, 0
    while at + 61 <= len(records):
        base, length = struct.unpack_from(">qi", records, at)
        if at + 12 + length > len(records):
            break
        end = base + struct.unpack_from(">i", records, at + 23)[0] + 1
        at += 12 + length
    return end


def fetched(answer: bytes) -> tuple[int, int, dict[Partition, tuple[int, bytes]]]:
    """Error, session and, of each partition, its error and its records."""
    error, session, topics = struct.unpack_from(">hii", answer, 8)
    at = 18
    out: dict[Partition, tuple[int, bytes]] = {}
    for _ in range(topics):
        (length,) = struct.unpack_from(">h", answer, at)
        name = answer[at + 2 : at + 2 + length].decode()
        (count,) = struct.unpack_from(">i", answer, at + 2 + length)
        at += 6 + length
        for _ in range(count):
            index, code, *_, size = _PARTITION.unpack_from(answer, at)
            at += _PARTITION.size
            out[name, index] = code, answer[at : at + max(size, 0)]
            at += max(size, 0)
    return error, session, out


# --- who waits ------------------------------------------------------------------------------------


class _Reader:
    """Follows its partitions by long polls alone; every other one in a session."""

    def __init__(self, stress: Stress, number: int, readers: int) -> None:
        self._stress = stress
        self.name = f"reader {number}"
        most = stress.partitions + 2 * FEW
        count = PARTITIONS_READ_MIN + number * (most - PARTITIONS_READ_MIN) // max(1, readers - 1)
        idle = [(POLLED, i) for i in range(stress.partitions) if (POLLED, i) not in stress.written]
        picked = [*stress.written, *idle[: count - len(stress.written)]]
        random.Random(number).shuffle(picked)
        self._offsets = dict.fromkeys(sorted(picked, key=lambda p: p[0]), 0)
        self._in_session = number % 2 == 1
        self._wait_ms = (FOR_EVER_MS, FOR_EVER_MS, FOR_EVER_MS, 7)[number % 4]
        self._session = (0, 0)
        self._changed: dict[Partition, int] = {}

    def missing(self) -> str:
        """What was acknowledged and has not been read, in words."""
        ends = self._stress.ends
        lagging = {p: (self._offsets[p], end) for p, end in ends.items() if self._offsets[p] < end}
        return f"{self.name} has not got {lagging}" if lagging else ""

    def follow(self) -> None:
        try:
            talk = _Talk(self._stress.address)
            while not self._stress.may_leave() or self.missing():
                self._take(talk.ask(self._frame())[0])
                self._stress.count(self.name)
        except TimeoutError:
            self._stress.fail(f"{self.name} waited for {SILENCE_S:.0f} s: {self.missing()}")
        except Exception as error:
            self._stress.fail(f"{self.name}: {error!r}")

    def _frame(self) -> bytes:
        if not self._in_session:
            return fetch_frame(self._offsets, wait_ms=self._wait_ms)
        asked = self._offsets if self._session[1] == 0 else self._changed
        return fetch_frame(asked, wait_ms=self._wait_ms, session=self._session)

    def _take(self, answer: bytes) -> None:
        error, session, partitions = fetched(answer)
        if error:
            raise ValueError(f"error {error} of a whole fetch")
        self._session = (session, self._session[1] + 1) if session else (0, 0)
        self._changed = {}
        for partition, (code, records) in partitions.items():
            offset = self._offsets[partition]
            if code == OFFSET_OUT_OF_RANGE:
                offset = max(offset, self._stress.starts[partition])
            elif code:
                raise ValueError(f"error {code} of {partition}")
            else:
                offset = max(offset, end_of(records))
            self._offsets[partition] = self._changed[partition] = offset


class _Leavers:
    """Connections that go while their fetch waits: reset, ended, half closed."""

    def __init__(self, stress: Stress) -> None:
        self._stress = stress

    def __call__(self) -> Step:
        turn = 0

        def step() -> None:
            nonlocal turn
            turn += 1
            # At the ends, so that it waits, or is woken just now, or finds something.
            frame = fetch_frame(dict(self._stress.ends), wait_ms=FOR_EVER_MS)
            with socket.create_connection(self._stress.address, timeout=SILENCE_S) as peer:
                peer.sendall(frame)
                if turn % 3 == 0:
                    peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
                elif turn % 3 == 1:
                    peer.shutdown(socket.SHUT_WR)
                    while peer.recv(1 << 16):
                        pass
            time.sleep(0.005)

        return step


# --- what wakes -----------------------------------------------------------------------------------


class _Writer:
    """Small appends to its own partitions, several in one send."""

    def __init__(self, stress: Stress, partitions: list[Partition]) -> None:
        self._stress = stress
        self._partitions = partitions
        batch = build_batch([b"word" * 8] * RECORDS)
        self._frames = {p: produce_frame(p, batch) for p in partitions}

    def __call__(self) -> Step:
        talk = _Talk(self._stress.address)
        turns = random.Random(len(self._partitions))

        def step() -> None:
            nonlocal talk
            chosen = [turns.choice(self._partitions) for _ in range(4)]
            try:
                self.append(talk, chosen)
            except ConnectionError:
                # A topic whose codec changes while a batch is repacked: nothing was written, and
                # the client is to send it again. Nothing else may end a producer's connection.
                if not any(topic == REPACKED for topic, _ in chosen):
                    raise
                talk = _Talk(self._stress.address)
            time.sleep(0.002)

        return step

    def append(self, talk: _Talk, chosen: list[Partition]) -> None:
        answers = talk.ask(*(self._frames[p] for p in chosen))
        for partition, answer in zip(chosen, answers, strict=True):
            # correlation, topics, name, partitions, index, error, base offset
            at = 4 + 4 + 2 + len(partition[0]) + 4 + 4
            code, base = struct.unpack_from(">hq", answer, at)
            if code:
                raise ValueError(f"error {code} from {partition}")
            self._stress.ends[partition] = base + RECORDS


class _LargeWriter:
    """Batches of 1.2 MB to partitions that are not polled; most are refused, and leave no bytes."""

    def __init__(self, stress: Stress) -> None:
        self._stress = stress

    def __call__(self) -> Step:
        talk = _Talk(self._stress.address)
        sound = build_batch([b"x" * (LARGE_BYTES // 4)] * 3)
        spoilt = build_batch([b"x" * LARGE_BYTES])[:-1] + b"?"
        turn = 0

        def step() -> None:
            nonlocal turn
            turn += 1
            batch = spoilt if turn % 8 else sound
            talk.ask(produce_frame((LARGE, turn % FEW), batch))
            time.sleep(0.005)

        return step


class _Deleter:
    """DeleteRecords up to near the end, and everything that was large."""

    def __init__(self, stress: Stress) -> None:
        self._stress = stress

    def __call__(self) -> Step:
        admin = Admin(self._stress.address)
        module = schemas.request_module(ApiKey.DELETE_RECORDS, 2)
        turn = 0

        def delete(partition: Partition, offset: int) -> None:
            entry = module.DeleteRecordsPartition(partition_index=partition[1], offset=offset)
            topic = module.DeleteRecordsTopic(name=partition[0], partitions=(entry,))
            timeout = timedelta(seconds=30)
            admin.ask(ApiKey.DELETE_RECORDS, 2, topics=(topic,), timeout=timeout)

        def step() -> None:
            nonlocal turn
            turn += 1
            written = self._stress.written
            partition = written[turn % len(written)]
            start = self._stress.ends[partition] - KEPT_RECORDS
            if start > self._stress.starts[partition]:
                self._stress.starts[partition] = start  # before: who is out of range looks here
                delete(partition, start)
            delete((LARGE, turn % FEW), -1)
            time.sleep(0.01)

        return step


class _Settings:
    """`flush.messages` and `compression.type` change under the writers."""

    def __init__(self, stress: Stress) -> None:
        self._stress = stress

    def __call__(self) -> Step:
        admin = Admin(self._stress.address)
        module = schemas.request_module(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1)
        changes = [
            *((SYNCED, "flush.messages", value) for value in ("3", "1")),
            *((REPACKED, "compression.type", value) for value in ("producer", "gzip")),
        ]
        turn = 0

        def step() -> None:
            nonlocal turn
            turn += 1
            topic, key, value = changes[turn % len(changes)]
            config = module.AlterableConfig(name=key, config_operation=0, value=value)
            resource = module.AlterConfigsResource(
                resource_type=2, resource_name=topic, configs=(config,)
            )
            admin.ask(
                ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, resources=(resource,), validate_only=False
            )
            time.sleep(0.05)

        return step


class _Churn:
    """A topic that is deleted while a fetch waits for it; the fetch is answered at once."""

    def __init__(self, stress: Stress) -> None:
        self._stress = stress

    def __call__(self) -> Step:
        admin = Admin(self._stress.address)
        talk = _Talk(self._stress.address)
        turn = 0

        def step() -> None:
            nonlocal turn
            turn += 1
            name = f"goes-{turn % 3}"
            admin.create(name, 2, {})
            talk.socket.sendall(fetch_frame({(name, 0): 0, (name, 1): 0}, wait_ms=FOR_EVER_MS))
            admin.delete([name])
            codes = {code for code, _ in fetched(talk.receive())[2].values()}
            if TOPIC_UNKNOWN not in codes:
                raise ValueError(f"a deleted topic is answered with {codes}")

        return step


# --- by hand --------------------------------------------------------------------------------------


def address_of(bootstrap: str) -> Address:
    host, _, port = bootstrap.rpartition(":")
    return host, int(port)


def main() -> int:
    parser = argparse.ArgumentParser(description="Long polls beside everything that answers them.")
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--partitions", type=int, default=PARTITIONS)
    parser.add_argument("--bootstrap", help="a broker that runs; without it, one is started")
    arguments = parser.parse_args()
    broker = None if arguments.bootstrap else PlainBroker().start()
    stress = Stress(
        address_of(broker.bootstrap if broker else arguments.bootstrap),
        partitions=arguments.partitions,
    )
    try:
        problems = stress.run(arguments.seconds)
        if broker is not None and (status := broker.stop()):
            problems.append(f"the broker ended with status {status}")
    finally:
        if broker is not None:
            broker.close()
    print(", ".join(f"{name} {count}" for name, count in sorted(stress.done.items())))
    print("\n".join(problems) or "every fetch was woken by its records")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
