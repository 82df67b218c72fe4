"""`make cluster`: what it says can be typed, a broker may be killed, Ctrl-C ends it all."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Final

import pytest

from kbroker.log.opening.data_directory import CLEAN_SHUTDOWN_FILE
from lab import child
from tests.support import zookeeper
from tests.support.source_tree import ROOT

pytestmark = [pytest.mark.java, pytest.mark.timeout(180)]

WAIT_S: Final = 60
RECORDS: Final = 1_000


class Started:
    def __init__(self, process: subprocess.Popen[bytes], port: int) -> None:
        self.process = process
        self.port = port
        self.said = ""

    def until(self, what: str) -> str:
        assert self.process.stdout is not None
        while what not in self.said:
            line = self.process.stdout.readline()
            assert line, self.said
            self.said += line.decode()
        return self.said


def ports_in_a_row(count: int) -> int:
    """The first of so many that are free now."""
    for begin in range(30_000, 32_700, 37):  # after those of lab.ports
        with ExitStack() as held:
            try:
                for port in range(begin, begin + count):
                    held.enter_context(socket.create_server(("127.0.0.1", port)))
            except OSError:
                continue
            return begin
    raise AssertionError("no ports")


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Started]:
    zookeeper.required()
    port = ports_in_a_row(7)
    process = child.start(
        [sys.executable, "-m", "lab.local_cluster", "--port", str(port), "--data",
         str(tmp_path / "data"), "--zookeeper-port", str(port + 3), "--admin-port", str(port + 4)],
        cwd=ROOT, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip
    yield Started(process, port)
    process.kill()
    process.wait()


def run(started: Started, *words: str, at: int, given: str = "") -> str:
    ran = subprocess.run(
        [sys.executable, "-m", "kbroker", *words, "-b", f"127.0.0.1:{started.port + at}"],
        input=given, capture_output=True, text=True, cwd=ROOT, timeout=WAIT_S, check=False,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


def test_its_instructions_work_and_it_ends_in_order(cluster: Started) -> None:
    printed = cluster.until("Ctrl-C")
    pids = [int(pid) for pid in re.findall(r"process (\d+);", printed)]
    assert len(pids) == 3
    assert f"kill -9 {pids[0]}" in printed
    run(cluster, "topic", "create", "orders", "--partitions", "3", at=0)
    lines = "".join(f"{n}\n" for n in range(RECORDS))
    run(cluster, "produce", "orders", at=0, given=lines)
    os.kill(pids[0], signal.SIGKILL)
    cluster.until("broker 1 has ended")
    read = run(cluster, "consume", "orders", "-e", at=2)
    assert sorted(read.split(), key=int) == lines.split()
    cluster.process.send_signal(signal.SIGINT)
    assert cluster.process.wait(WAIT_S) == 0
    for pid in pids:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)
    homes = [Path(each).parent for each in re.findall(r"log: (\S+)", printed)]
    stopped = [(home / "data" / CLEAN_SHUTDOWN_FILE).exists() for home in homes]
    assert stopped == [False, True, True]  # in order, who was not killed
