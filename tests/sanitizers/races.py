"""What is alike in runs under ThreadSanitizer: the broker, those who play with it, the reports.

The load runs in this process, without the sanitizer; only the broker has it.
"""

from __future__ import annotations

import os
import socket
import struct
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from kbroker.testing.plain import PlainBroker
from tests.sanitizers import tree

TOPIC: Final = "raced"
PARTITIONS: Final = 3
_SUPPRESSIONS: Final = Path(__file__).with_name("tsan.supp")
MARKS: Final = ("WARNING: ThreadSanitizer", "ERROR: ThreadSanitizer")

Address = tuple[str, int]
# Begins in its own thread, by connecting; what that answers is done over and over.
Role = Callable[[], Callable[[], object]]


def environment(copy: Path, folder: Path) -> dict[str, str]:
    """For a program of the copy, whose reports go to `folder`."""
    options = f"log_path={folder}/tsan:history_size=4:exitcode=0:suppressions={_SUPPRESSIONS}"
    return tree.environment(copy, ["libtsan.so"], {"TSAN_OPTIONS": options})


class SanitizedBroker(PlainBroker):
    """A broker of the modules in `copy`, whose reports go to `folder`."""

    start_timeout_s = 120.0

    def __init__(self, copy: Path, folder: Path, settings: Mapping[str, object]) -> None:
        wanted = {k: v for k, v in environment(copy, folder).items() if os.environ.get(k) != v}
        super().__init__(settings, env=wanted, cwd=copy, python=sys.executable)

    @property
    def address(self) -> Address:
        host, _, port = self.bootstrap.rpartition(":")
        return host, int(port)


def run(copy: Path, settings: Mapping[str, object], what: str, load: Load) -> int:
    """A broker of the copy under a load, which answers what went wrong; the exit status."""
    folder = tree.fresh_reports(copy)
    broker = SanitizedBroker(copy, folder, settings)
    problems: list[str] = []
    try:
        broker.start()
        problems += load(broker)
        if status := broker.stop(timeout_s=60):
            problems.append(f"the broker ended with status {status}")
    except Exception as error:
        problems.append(f"{error!r}\n{broker.log_text()[-2000:]}")
    finally:
        broker.close()
    return tree.verdict(what, tree.reports(folder, MARKS), problems)


Load = Callable[[SanitizedBroker], list[str]]


def play(
    roles: Mapping[str, Role], seconds: float, meanwhile: Callable[[], object] = bool
) -> list[str]:
    """Every role in a thread of its own for so long, and for as long as `meanwhile` takes."""
    stop = threading.Event()
    done: dict[str, int] = {}
    problems: list[str] = []

    def act(name: str, role: Role) -> None:
        try:
            step = role()
            while not stop.is_set():
                step()
                done[name] = done.get(name, 0) + 1
        except Exception as error:
            problems.append(f"{name}: {error!r}")

    threads = [threading.Thread(target=act, args=each, daemon=True) for each in roles.items()]
    for thread in threads:
        thread.start()
    until = time.monotonic() + seconds
    meanwhile()
    time.sleep(max(0.0, until - time.monotonic()))
    stop.set()
    for thread in threads:
        thread.join(60)
    print("load: " + ", ".join(f"{name} {count}" for name, count in sorted(done.items())))
    return problems + [f"{name} did nothing" for name in roles if not done.get(name)]


class Talk:
    """A connection for frames that are made already."""

    def __init__(self, address: Address) -> None:
        self.socket = socket.create_connection(address, timeout=60)
        self.stream = self.socket.makefile("rb")

    def send(self, frames: bytes) -> None:
        self.socket.sendall(frames)

    def receive(self) -> bytes:
        (size,) = struct.unpack(">i", self.stream.read(4))
        return self.stream.read(size)


def scrapes(url: str) -> Role:
    def begin() -> Callable[[], object]:
        def step() -> None:
            with urllib.request.urlopen(f"{url}/metrics", timeout=60) as answer:
                answer.read()
            time.sleep(0.2)

        return step

    return begin
