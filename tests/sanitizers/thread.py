"""ThreadSanitizer over request queue, tables, appends and parking: `make test-tsan`.

One broker runs from the sanitized copy, under everything at once: producers with trains of every
codec, long polls, reads of what is not in memory, Metadata, topics that come and go, settings and
records that change, hostile frames, connections that are reset, scrapes. Then comes the stress of
tests/system/long_polls.py: fetches of many partitions beside runs above 1 MiB, syncs,
DeleteRecords, deletions, settings that change, connections that go (`--long-polls SECONDS` is that
alone). The load runs without the sanitizer, from the tree's own build. Every report that names our
code fails; the broker must stop cleanly. The fuzzer may take KBROKER_SANITIZER_TESTS_S seconds.
"""

from __future__ import annotations

import argparse
import os
import socket
import struct
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Final

from kbroker.testing.plain import PlainBroker as Broker
from kbroker.types import ApiKey
from perf import members
from perf.client import Client
from tests.fuzz.mutate import framed
from tests.fuzz.target import OVERRIDES, Admin
from tests.sanitizers import tree
from tests.support.record_batches import CODECS, build_batch
from tests.system.long_polls import Stress

LOAD_S: Final = 40.0
LONG_POLLS_S: Final = 30.0
LONG_POLLS_PARTITIONS: Final = 200
FUZZ_FRAMES: Final = 40_000
FUZZ_TIMEOUT_S: Final = float(os.environ.get("KBROKER_SANITIZER_TESTS_S", "240"))
SUPPRESSIONS: Final = Path(__file__).with_name("tsan.supp")
TOPIC: Final = "raced"
PARTITIONS: Final = 3
_RESET: Final = struct.pack("ii", 1, 0)

Stop = threading.Event


# The fuzzer's, but for its short sessions: members here outlive any pause. Now and then an answer
# waits for the disk, and the flusher comes beside.
SETTINGS = {
    **OVERRIDES,
    "group.max.session.timeout.ms": 1_800_000,
    "log.flush.interval.messages": 200,
    "log.flush.scheduler.interval.ms": 50,
    "log.initial.task.delay.ms": 0,
}


class SanitizedBroker(Broker):
    start_timeout_s = 120.0

    def __init__(self, copy: Path, environment: dict[str, str]) -> None:
        wanted = {k: v for k, v in environment.items() if os.environ.get(k) != v}
        super().__init__(SETTINGS, env=wanted, cwd=copy, python=sys.executable)


def main() -> int:
    parser = argparse.ArgumentParser(description="The broker's races, under ThreadSanitizer.")
    parser.add_argument("--long-polls", type=float, metavar="SECONDS", help="that stress alone")
    long_polls_s: float | None = parser.parse_args().long_polls
    copy = tree.sanitized_copy("thread")
    folder = tree.fresh_reports(copy)
    environment = tree.environment(
        copy,
        ["libtsan.so"],
        {
            "TSAN_OPTIONS": f"log_path={folder}/tsan:history_size=4:exitcode=0"
            f":suppressions={SUPPRESSIONS}",
        },
    )
    problems: list[str] = []
    broker = SanitizedBroker(copy, environment)
    try:
        broker.start()
        if long_polls_s is None:
            _load(broker, problems)
        _long_polls(broker, problems, long_polls_s or LONG_POLLS_S)
        status = broker.stop(timeout_s=60)
        if status:
            problems.append(f"the broker ended with status {status}")
    except Exception as error:
        problems.append(f"{error!r}\n{broker.log_text()[-2000:]}")
    finally:
        broker.close()
    marks = ("WARNING: ThreadSanitizer", "ERROR: ThreadSanitizer")
    return tree.verdict("thread", tree.reports(folder, marks), problems)


# --- the load ------------------------------------------------------------------------------------


def _address(broker: Broker) -> tuple[str, int]:
    host, _, port = broker.bootstrap.rpartition(":")
    return host, int(port)


def _long_polls(broker: Broker, problems: list[str], seconds: float) -> None:
    stress = Stress(_address(broker), partitions=LONG_POLLS_PARTITIONS)
    problems += stress.run(seconds)
    print("long polls: " + ", ".join(f"{name} {n}" for name, n in sorted(stress.done.items())))


def _load(broker: Broker, problems: list[str]) -> None:
    address = _address(broker)
    admin = Admin(address)
    admin.create(TOPIC, PARTITIONS, {})
    admin.close()
    stop = Stop()
    done: dict[str, int] = {}
    roles: list[tuple[str, Callable[[], Callable[[], object]]]] = [
        *((f"producer {i}", _Producer(address, i)) for i in range(3)),
        *((f"reader {i}", _Reader(address, i)) for i in range(4)),
        *((f"member {i}", _Member(address, i)) for i in range(3)),
        ("metadata", _Metadata(address)),
        ("churn", _Churn(address)),
        ("resets", _Resets(address)),
        ("cold reads", _ColdReads(address, broker.data_dir)),
        ("scrapes", _Scrapes(str(broker.ready["admin"]))),
    ]

    def play(name: str, role: Callable[[], Callable[[], object]]) -> None:
        try:
            step = role()
            while not stop.is_set():
                step()
                done[name] = done.get(name, 0) + 1
        except Exception as error:
            problems.append(f"{name}: {error!r}")

    threads = [threading.Thread(target=play, args=role, daemon=True) for role in roles]
    for thread in threads:
        thread.start()
    until = time.monotonic() + LOAD_S
    _fuzz(broker, problems)
    time.sleep(max(0.0, until - time.monotonic()))
    stop.set()
    for thread in threads:
        thread.join(60)
    print("load: " + ", ".join(f"{name} {count}" for name, count in sorted(done.items())))
    problems += [f"{name} did nothing" for name, _ in roles if not done.get(name)]


def _fuzz(broker: Broker, problems: list[str]) -> None:
    # Its bars of memory and time are for a plain build; that it comes to its end is asked for here.
    command = [
        sys.executable, "-m", "tests.fuzz.frames", "--frames", str(FUZZ_FRAMES), "--seed", "1",
        "--workers", "1", "--bootstrap", broker.bootstrap, "--pid", str(broker.pid), "--unjudged",
    ]  # fmt: skip
    fuzzed = subprocess.run(
        command, cwd=tree.ROOT, capture_output=True, text=True, timeout=FUZZ_TIMEOUT_S, check=False
    )
    if "neighbour:" not in fuzzed.stdout:
        problems.append(f"the fuzzer did not end: {fuzzed.stdout[-500:]} {fuzzed.stderr[-1500:]}")


class _Talk:
    """A connection with frames of Produce v3 and Fetch v4."""

    def __init__(self, address: tuple[str, int]) -> None:
        self.socket = socket.create_connection(address, timeout=60)
        self.stream = self.socket.makefile("rb")

    def receive(self) -> bytes:
        (size,) = struct.unpack(">i", self.stream.read(4))
        return self.stream.read(size)


def produce_frame(partition: int, batch: bytes, acks: int = 1) -> bytes:
    body = struct.pack(">hhihh", 0, 7, 1, -1, -1) + struct.pack(">hii", acks, 1000, 1)
    body += struct.pack(">h", len(TOPIC)) + TOPIC.encode()
    return framed(body + struct.pack(">iii", 1, partition, len(batch)) + batch)


def fetch_frame(partition: int, offset: int, wait_ms: int, min_bytes: int) -> bytes:
    body = struct.pack(">hhih", 1, 4, 1, -1)
    body += struct.pack(">iiiib", -1, wait_ms, min_bytes, 1 << 20, 0)
    body += struct.pack(">ih", 1, len(TOPIC)) + TOPIC.encode()
    return framed(body + struct.pack(">iiqi", 1, partition, offset, 1 << 16))


class _Producer:
    def __init__(self, address: tuple[str, int], number: int) -> None:
        self._address = address
        self._number = number

    def __call__(self) -> Callable[[], object]:
        talk = _Talk(self._address)
        batches = [build_batch([b"race" * 20] * 5, codec=codec) for codec in CODECS]
        frames = [
            produce_frame((self._number + i) % PARTITIONS, batch, acks=(1, -1)[i % 2])
            for i, batch in enumerate(batches)
        ]
        silent = produce_frame(self._number, batches[0], acks=0)

        def step() -> None:
            talk.socket.sendall(b"".join(frames) * 4 + silent)
            for _ in range(4 * len(frames)):
                talk.receive()

        return step


class _Member:
    """Alone in its group: commits and heartbeats in one send, and now and then leaves and joins."""

    def __init__(self, address: tuple[str, int], number: int) -> None:
        self._address = address
        self._group = f"raced-{number}"

    def __call__(self) -> Callable[[], object]:
        talk = _Talk(self._address)
        client = Client(*self._address)
        topic = client.topic(TOPIC)

        def step() -> None:
            member = members.join(client, self._group)
            frames = members.heartbeat(member).frame + members.commit(member, topic, 0).frame
            for _ in range(100):
                talk.socket.sendall(frames)
                talk.receive()
                talk.receive()
            members.leave(client, member)

        return step


class _Reader:
    """Follows a partition by long polls; every other time it asks for more than will come."""

    def __init__(self, address: tuple[str, int], number: int) -> None:
        self._address = address
        self._partition = number % PARTITIONS

    def __call__(self) -> Callable[[], object]:
        talk = _Talk(self._address)
        state = {"offset": 0, "turn": 0}

        def step() -> None:
            state["turn"] += 1
            wanted = 1 if state["turn"] % 4 else 1 << 30
            talk.socket.sendall(fetch_frame(self._partition, state["offset"], 30, wanted))
            answer = talk.receive()
            # correlation, throttle, topics, name, partitions, index, error, high watermark
            (end,) = struct.unpack_from(">q", answer, 4 + 4 + 4 + 2 + len(TOPIC) + 4 + 4 + 2)
            state["offset"] = max(0, end - (state["turn"] % 3))

        return step


class _Metadata:
    def __init__(self, address: tuple[str, int]) -> None:
        self._address = address

    def __call__(self) -> Callable[[], object]:
        return Admin(self._address).topics


class _Churn:
    """Topics are made, written to, read and deleted, while others read and write beside them."""

    def __init__(self, address: tuple[str, int]) -> None:
        self._address = address

    def __call__(self) -> Callable[[], object]:
        admin = Admin(self._address)
        state = {"turn": 0}

        def step() -> None:
            state["turn"] += 1
            name = f"comes-and-goes-{state['turn'] % 3}"
            admin.create(name, 2, {})
            for _ in range(3):
                admin.produce(name, 0, build_batch([b"gone soon"]))
            admin.ask(ApiKey.LIST_OFFSETS, 6, **_latest(name))
            admin.delete([name])

        return step


def _latest(name: str) -> dict[str, object]:
    from kbroker.protocol import cold

    module = cold.request_module(ApiKey.LIST_OFFSETS, 6)
    partition = module.ListOffsetsPartition(
        partition_index=0, current_leader_epoch=-1, timestamp=-1
    )
    topic = module.ListOffsetsTopic(name=name, partitions=(partition,))
    return {"replica_id": -1, "isolation_level": 0, "topics": (topic,)}


class _Resets:
    def __init__(self, address: tuple[str, int]) -> None:
        self._address = address

    def __call__(self) -> Callable[[], object]:
        def step() -> None:
            with socket.create_connection(self._address, timeout=60) as peer:
                peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
                peer.sendall(fetch_frame(0, 0, 500, 1 << 30) + fetch_frame(1, 0, 0, 1))
            time.sleep(0.01)

        return step


class _ColdReads:
    """From the start of each partition, once its pages have left the memory: read ahead."""

    def __init__(self, address: tuple[str, int], data_dir: Path) -> None:
        self._address = address
        self._data_dir = data_dir

    def __call__(self) -> Callable[[], object]:
        talk = _Talk(self._address)

        def step() -> None:
            for path in self._data_dir.glob(f"{TOPIC}-*/*.log"):
                file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
                try:
                    os.fdatasync(file)
                    os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
                finally:
                    os.close(file)
            for partition in range(PARTITIONS):
                talk.socket.sendall(fetch_frame(partition, 0, 0, 1))
                talk.receive()

        return step


class _Scrapes:
    def __init__(self, url: str) -> None:
        self._url = url

    def __call__(self) -> Callable[[], object]:
        def step() -> None:
            with urllib.request.urlopen(f"{self._url}/metrics", timeout=60) as answer:
                answer.read()
            time.sleep(0.2)

        return step


if __name__ == "__main__":
    sys.exit(main())
