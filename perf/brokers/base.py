"""A broker under measurement: a process and a data directory of its own, held still between turns.

`start` returns when the port accepts; `hold` and `resume` stop and continue the process, so that
two brokers that are both alive and warm do not measure each other. `stop` ends it with SIGTERM
and, if that takes too long, SIGKILL; so does the end of the process that started it, however it
comes (lab/child.py). Only a process that this object started is ever signalled.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, Protocol

from lab import child
from lab.ports import free_port
from perf.client import Client
from perf.process import memory

if TYPE_CHECKING:
    from perf.brokers.own_figures import OwnFigures

START_WAIT_S = 60.0
STOP_WAIT_S = 30.0
POLL_S = 0.01
LOG_TAIL_BYTES = 2_000
COMPILER, COLLECTOR = "compiler", "collector"  # kinds of a language runtime's own threads


class Place(Protocol):
    """Where a broker runs: an address, and the network in which its process is started."""

    @property
    def host(self) -> str: ...

    def entered(self) -> AbstractContextManager[None]: ...


class _Here:
    """Loopback of the network in which the calling thread is."""

    host = "127.0.0.1"

    def entered(self) -> AbstractContextManager[None]:
        return nullcontext()


HERE: Final[Place] = _Here()


class BrokerError(Exception):
    """The broker did not start, or went away."""


class Broker:
    """One broker process. Subclasses say how it is prepared and what its command is."""

    start_wait_s = START_WAIT_S

    name = "broker"
    is_limit = False
    # Kind -> how the names of such threads begin, where the runtime has any.
    runtime_threads: Mapping[str, tuple[str, ...]] = MappingProxyType({})

    def __init__(self, directory: Path, port: int = 0, *, place: Place = HERE) -> None:
        self.directory = directory
        self.place = place
        self.host = place.host
        self.port = port or free_port()
        self.log_path = directory / f"{self.name}.log"
        self._process: subprocess.Popen[bytes] | None = None
        self._asked_to_stop = False
        self._tells_at = ""  # host:port, where it says figures of itself
        self.started_ns = 0

    # What a subclass gives.

    def prepare(self) -> None:
        """What has to be there before the process starts: formatted directories, files."""

    def command(self) -> list[str]:
        raise NotImplementedError

    def environment(self) -> dict[str, str]:
        # A broker that compiles itself at every start is not what users install.
        return {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}

    def version(self) -> str:
        return ""

    def tell_figures(self) -> None:
        """Before it is started: it has to answer `own_figures`."""
        self._tells_at = f"{self.host}:{free_port()}"

    @property
    def tells_at(self) -> str:
        """host:port, after `tell_figures`."""
        return self._tells_at

    def own_figures(self) -> OwnFigures:
        """What it says of itself. BrokerError of a kind that says nothing."""
        raise BrokerError(f"{self.name} says no figures of itself")

    # What callers use.

    @property
    def pid(self) -> int:
        if self._process is None:
            raise BrokerError(f"{self.name} is not running")
        return self._process.pid

    @property
    def measured_pid(self) -> int:
        """Whose CPU a block counts; 0 where that is not known."""
        return self.pid

    @property
    def measured_pids(self) -> tuple[int, ...]:
        """The same of each process that has a part in the work."""
        return (self.measured_pid,) if self.measured_pid else ()

    @property
    def own_pids(self) -> tuple[int, ...]:
        """All of its processes: their CPU is no other process's."""
        return self.measured_pids

    @property
    def address(self) -> str:
        return f"{self.host}:{self.port}"

    def launch(self) -> None:
        """Start the process; return at once."""
        self.directory.mkdir(parents=True, exist_ok=True)
        self._asked_to_stop = False
        with self.log_path.open("ab") as log, self.place.entered():
            self.started_ns = time.monotonic_ns()
            self._process = child.start(
                self.command(),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=self.environment(),
                cwd=self.directory,
            )

    def start(self) -> None:
        """Prepare, start, wait until it answers."""
        self.directory.mkdir(parents=True, exist_ok=True)
        self.prepare()
        self.launch()
        self.wait_ready()

    def answers(self) -> bool:
        """Whether it can be used by now."""
        try:
            with self.client() as client:
                client.api_versions()
            return True
        except OSError:
            return False

    def wait_ready(self) -> None:
        give_up = time.monotonic() + self.start_wait_s
        while True:
            self.check_alive()
            if self.answers():
                return
            if time.monotonic() > give_up:
                raise BrokerError(f"{self.name} did not answer: {self.log_tail()}")
            time.sleep(POLL_S)

    def check_alive(self) -> None:
        if not self.runs:
            raise BrokerError(f"{self.name} is not running: {self.log_tail()}")

    @property
    def runs(self) -> bool:
        """Whether its process is there; one that is held still is."""
        return self._process is not None and self._process.poll() is None

    def client(self) -> Client:
        return Client(self.host, self.port, limit=self.is_limit)

    def hold(self) -> None:
        os.kill(self.pid, signal.SIGSTOP)

    def resume(self) -> None:
        os.kill(self.pid, signal.SIGCONT)

    def held_bytes(self) -> int | None:
        """Memory that is in use, garbage apart; None where that is not known."""
        return memory(self.pid).anonymous

    def terminate(self) -> None:
        """Ask it to stop, and do not wait; `stop` does not ask again, which means "at once"."""
        os.kill(self.pid, signal.SIGTERM)
        self._asked_to_stop = True

    def stop(self) -> None:
        if self._process is None:
            return
        process, self._process = self._process, None
        if process.poll() is None:
            process.send_signal(signal.SIGCONT)
            if not self._asked_to_stop:
                process.terminate()
            try:
                process.wait(STOP_WAIT_S)
            except subprocess.TimeoutExpired:
                process.kill()
        process.wait()

    def kill(self) -> None:
        """SIGKILL: for recovery cells."""
        if self._process is not None:
            process, self._process = self._process, None
            process.kill()
            process.wait()

    def discard(self) -> None:
        """Stop and remove the data directory."""
        self.stop()
        shutil.rmtree(self.directory, ignore_errors=True)

    def log_tail(self) -> str:
        try:
            data = self.log_path.read_bytes()
        except FileNotFoundError:
            return "(no log)"
        return data[-LOG_TAIL_BYTES:].decode(errors="replace").strip() or "(empty log)"

    def __enter__(self) -> Broker:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.discard()
