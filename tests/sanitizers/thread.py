"""ThreadSanitizer over request queue, tables, appends and parking: `make test-tsan`.

First comes what a lone broker is not asked to do (`in_process.py`). Then one broker runs from the
sanitized copy, under everything at once: producers with trains of every codec, long polls, reads
of old records on the disk, Metadata, topics that come and go, settings and records that change,
hostile frames, connections that are reset, scrapes. Then the stress of tests/system/long_polls.py:
fetches of many partitions beside runs above 1 MiB, syncs, DeleteRecords, deletions, settings that
change, connections that go (`--long-polls SECONDS` is that alone). The load runs without the
sanitizer, from the tree's own build. Every report that names our code fails; the broker must stop
cleanly. The tests in one process and the fuzzer may take KBROKER_SANITIZER_TESTS_S seconds each.
"""

from __future__ import annotations

import argparse
import os
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from kbroker.types import ApiKey
from tests.fuzz.mutate import framed
from tests.fuzz.target import OVERRIDES, Admin
from tests.sanitizers import groups, in_process, races, tree
from tests.sanitizers.races import (
    PARTITIONS,
    TOPIC,
    Address,
    Role,
    SanitizedBroker,
    Talk,
    play,
    scrapes,
)
from tests.support.record_batches import CODECS, build_batch
from tests.system.long_polls import Stress

LOAD_S: Final = 40.0
LONG_POLLS_S: Final = 30.0
LONG_POLLS_PARTITIONS: Final = 200
FUZZ_FRAMES: Final = 40_000
FUZZ_TIMEOUT_S: Final = float(os.environ.get("KBROKER_SANITIZER_TESTS_S", "600"))
_RESET: Final = struct.pack("ii", 1, 0)

# The fuzzer's, but for its short sessions: members here outlive any pause. Now and then an answer
# waits for the disk, and the flusher comes beside.
SETTINGS = {
    **OVERRIDES,
    "group.max.session.timeout.ms": 1_800_000,
    "group.min.session.timeout.ms": groups.SESSION_MS,
    "log.flush.interval.messages": 200,
    "log.flush.scheduler.interval.ms": 50,
    "log.initial.task.delay.ms": 0,
}


def main() -> int:
    parser = argparse.ArgumentParser(description="The broker's races, under ThreadSanitizer.")
    parser.add_argument("--long-polls", type=float, metavar="SECONDS", help="that stress alone")
    long_polls_s: float | None = parser.parse_args().long_polls

    def load(broker: SanitizedBroker) -> list[str]:
        problems = [] if long_polls_s is not None else _load(broker)
        return problems + _long_polls(broker, long_polls_s or LONG_POLLS_S)

    copy = tree.sanitized_copy("thread")
    alone = 0 if long_polls_s is not None else in_process.run(copy, FUZZ_TIMEOUT_S)
    return races.run(copy, SETTINGS, "thread", load) or alone


# --- the load ------------------------------------------------------------------------------------


def _long_polls(broker: SanitizedBroker, seconds: float) -> list[str]:
    stress = Stress(broker.address, partitions=LONG_POLLS_PARTITIONS)
    problems = stress.run(seconds)
    print("long polls: " + ", ".join(f"{name} {n}" for name, n in sorted(stress.done.items())))
    return problems


def _load(broker: SanitizedBroker) -> list[str]:
    address = broker.address
    admin = Admin(address)
    admin.create(TOPIC, PARTITIONS, {})
    admin.close()
    roles: dict[str, Role] = {
        **{f"producer {i}": _Producer(address, i) for i in range(3)},
        **{f"reader {i}": _Reader(address, i) for i in range(4)},
        **groups.roles(address),
        "metadata": _Metadata(address),
        "churn": _Churn(address),
        "resets": _Resets(address),
        "cold reads": _ColdReads(address, broker.data_dir),
        "scrapes": scrapes(str(broker.ready["admin"])),
    }
    problems: list[str] = []
    return problems + play(roles, LOAD_S, lambda: _fuzz(broker, problems))


def _fuzz(broker: SanitizedBroker, problems: list[str]) -> None:
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
    def __init__(self, address: Address, number: int) -> None:
        self._address = address
        self._number = number

    def __call__(self) -> Callable[[], object]:
        talk = Talk(self._address)
        batches = [build_batch([b"race" * 20] * 5, codec=codec) for codec in CODECS]
        frames = [
            produce_frame((self._number + i) % PARTITIONS, batch, acks=(1, -1)[i % 2])
            for i, batch in enumerate(batches)
        ]
        silent = produce_frame(self._number, batches[0], acks=0)

        def step() -> None:
            talk.send(b"".join(frames) * 4 + silent)
            for _ in range(4 * len(frames)):
                talk.receive()

        return step


class _Reader:
    """Follows a partition by long polls; every other time it asks for more than will come."""

    def __init__(self, address: Address, number: int) -> None:
        self._address = address
        self._partition = number % PARTITIONS

    def __call__(self) -> Callable[[], object]:
        talk = Talk(self._address)
        state = {"offset": 0, "turn": 0}

        def step() -> None:
            state["turn"] += 1
            wanted = 1 if state["turn"] % 4 else 1 << 30
            talk.send(fetch_frame(self._partition, state["offset"], 30, wanted))
            answer = talk.receive()
            # correlation, throttle, topics, name, partitions, index, error, high watermark
            (end,) = struct.unpack_from(">q", answer, 4 + 4 + 4 + 2 + len(TOPIC) + 4 + 4 + 2)
            state["offset"] = max(0, end - (state["turn"] % 3))

        return step


class _Metadata:
    def __init__(self, address: Address) -> None:
        self._address = address

    def __call__(self) -> Callable[[], object]:
        return Admin(self._address).topics


class _Churn:
    """Topics are made, written to, read and deleted, while others read and write beside them."""

    def __init__(self, address: Address) -> None:
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
    from tests.support import schemas

    module = schemas.request_module(ApiKey.LIST_OFFSETS, 6)
    partition = module.ListOffsetsPartition(
        partition_index=0, current_leader_epoch=-1, timestamp=-1
    )
    topic = module.ListOffsetsTopic(name=name, partitions=(partition,))
    return {"replica_id": -1, "isolation_level": 0, "topics": (topic,)}


class _Resets:
    def __init__(self, address: Address) -> None:
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

    def __init__(self, address: Address, data_dir: Path) -> None:
        self._address = address
        self._data_dir = data_dir

    def __call__(self) -> Callable[[], object]:
        talk = Talk(self._address)

        def step() -> None:
            for path in self._data_dir.glob(f"{TOPIC}-*/*.log"):
                file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
                try:
                    os.fdatasync(file)
                    os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
                finally:
                    os.close(file)
            for partition in range(PARTITIONS):
                talk.send(fetch_frame(partition, 0, 0, 1))
                talk.receive()

        return step


if __name__ == "__main__":
    sys.exit(main())
