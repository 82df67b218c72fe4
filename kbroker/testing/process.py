"""A server process under test: start it, know when it is ready, end it in three ways.

Purpose: what a test needs from any broker that runs in a process of its own, whichever program it
is. Broker (broker.py) is the kbroker one; the test suite also drives Apache Kafka through this
class so that its expectations can be checked against the original.

A ServerProcess owns one temporary directory with the log, the ready file and, unless the caller
brought one, the data directory. Leaving the `with` block stops the process, says so if its exit
status was not 0, and removes the directory; when the block failed, the end of the log is attached
to the exception as a note. keeper.py ends the servers of a killed test process and removes its
files.

Threads: none of its own. One instance belongs to one test; any thread may read `running()`.
Never does: touch a process that it did not start, listen on anything but loopback.
"""

from __future__ import annotations

import atexit
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Protocol, Self

from kbroker.testing import keeper

LOG_TAIL_LINES = 200
STOP_TIMEOUT_S = 30.0

# Settings that would reach the server through the environment rule of its image: a broker under
# test sees only what its test gave it.
_CONFIG_PREFIXES = ("KBROKER_", "KAFKA_")

_running: set[ServerProcess] = set()
_swept: set[str] = set()  # prefixes of directories that have been looked for


class Watcher(Protocol):
    """Looks at servers that come to their end; what it raises is the failure of the test."""

    def stopping(self, server: ServerProcess) -> None:
        """It runs, and its `with` block has ended well."""

    def stopped(self, server: ServerProcess) -> None:
        """It has ended by `stop`."""


# The project's own tests look here whether anything was left.
watchers: list[Watcher] = []


class BrokerFailed(RuntimeError):
    """The process did not start, died on its own, or ended with an unexpected status."""

    def __init__(self, message: str, exit_status: int | None, log: str) -> None:
        super().__init__(message)
        self.exit_status = exit_status
        self.log = log
        self.add_note(f"--- end of the broker's log ---\n{log_tail(log)}")


def log_tail(log: str, lines: int = LOG_TAIL_LINES) -> str:
    return "\n".join(log.splitlines()[-lines:])


def running() -> tuple[ServerProcess, ...]:
    """The servers that this process started and has not ended: their logs explain a failure."""
    return tuple(_running)


@atexit.register
def _kill_what_was_left() -> None:
    for server in running():
        server.kill9()
    keeper.end()


class Process(Protocol):
    """What is used of subprocess.Popen."""

    @property
    def pid(self) -> int: ...
    def poll(self) -> int | None: ...
    def wait(self, timeout: float | None = None) -> int: ...
    def send_signal(self, sig: int) -> None: ...
    def kill(self) -> None: ...


class ServerProcess:
    """Base of the brokers under test. A subclass gives the command and tells readiness."""

    name = "server"
    start_timeout_s = 30.0
    ready_poll_s = 0.002  # short against the start-up budget of 0.3 s
    clean_exit_statuses: tuple[int, ...] = (0,)

    def __init__(
        self,
        overrides: Mapping[str, object] | None = None,
        data_dir: str | Path | None = None,
        port: int = 0,
        *,
        env: Mapping[str, str] | None = None,
        cwd: str | Path | None = None,
    ) -> None:
        self.overrides = {k: _property_text(v) for k, v in (overrides or {}).items()}
        self.port = port
        self._env = dict(env or {})
        self._cwd = cwd
        self._root = Path(tempfile.mkdtemp(prefix=self._prefix))
        self._owner: int | None = keeper.own(self._root)
        self.data_dir = Path(data_dir) if data_dir is not None else self._root / "data"
        self._process: Process | None = None
        self._bootstrap = ""

    # -- what a subclass supplies

    def command(self) -> list[str]:
        raise NotImplementedError

    def prepare(self) -> None:
        """Called before each start; may create files below `self.scratch_dir`."""

    def poll_ready(self) -> str | None:
        """The bootstrap address once requests are accepted, None until then."""
        raise NotImplementedError

    def environment(self) -> dict[str, str]:
        """The process's environment; a subclass may add to it."""
        inherited = {k: v for k, v in os.environ.items() if not k.startswith(_CONFIG_PREFIXES)}
        return {**inherited, **self._env}

    def launch(self) -> Process:
        """Begins the process; `start` waits until it is ready."""
        with open(self.log_path, "ab") as log:
            return subprocess.Popen(
                self.command(),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=self.environment(),
                cwd=self._cwd,
                # Ctrl-C is the test's: it ends the server when it has done with it.
                start_new_session=True,
                pass_fds=() if self._owner is None else (self._owner,),
            )

    # -- what a test reads

    @property
    def _prefix(self) -> str:
        return f"{self.name}-test-"

    @property
    def scratch_dir(self) -> Path:
        return self._root

    @property
    def log_path(self) -> Path:
        return self._root / "broker.log"

    @property
    def bootstrap(self) -> str:
        """host:port for a client's bootstrap.servers."""
        return self._bootstrap

    @property
    def pid(self) -> int:
        return self._live().pid

    @property
    def alive(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def log_text(self, start: int = 0) -> str:
        """What the process has written, over all its starts, from the byte `start` of it on."""
        try:
            return self.log_path.read_bytes()[start:].decode(errors="replace")
        except FileNotFoundError:
            return ""

    def log_bytes(self) -> int:
        """How much `log_text` has by now."""
        try:
            return self.log_path.stat().st_size
        except FileNotFoundError:
            return 0

    # -- life cycle

    def start(self) -> Self:
        """Run the process and return when it accepts requests. Raises BrokerFailed otherwise."""
        if self.alive:
            raise RuntimeError(f"{self.name} already runs as process {self.pid}")
        if self._process is not None:
            self._forget()  # it ended by itself
        if self._prefix not in _swept:
            _swept.add(self._prefix)
            keeper.sweep(self._prefix)
        self.prepare()
        self._process = self.launch()
        _running.add(self)
        keeper.keep(self._root, self._process.pid)
        self._wait_until_ready()
        self.port = int(self._bootstrap.rpartition(":")[2])
        return self

    def stop(self, timeout_s: float = STOP_TIMEOUT_S) -> int:
        """SIGTERM, then wait. Returns the exit status; past the timeout kills and raises."""
        process = self._live()
        process.send_signal(signal.SIGTERM)
        try:
            status = self.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self.kill9()
            raise BrokerFailed(
                f"{self.name} had not stopped {timeout_s} s after SIGTERM", None, self.log_text()
            ) from None
        for watcher in watchers:
            watcher.stopped(self)
        return status

    def wait(self, timeout_s: float = STOP_TIMEOUT_S) -> int:
        """Wait for the process to end by itself and return its exit status."""
        status = self._live().wait(timeout_s)
        self._forget()
        return status

    def signal(self, number: int) -> None:
        self._live().send_signal(number)

    def kill9(self) -> None:
        """End the process with no chance to clean up; what it wrote stays in the page cache."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._forget()

    def restart(self) -> Self:
        """Start again on the same port and data; stops the running process first, if any."""
        if self._process is not None:
            self.stop()
        return self.start()

    def close(self) -> None:
        """End the process, if it still runs, and remove the temporary directory."""
        self.kill9()
        shutil.rmtree(self._root, ignore_errors=True)
        keeper.forget(self._root)
        if self._owner is not None:
            os.close(self._owner)
            self._owner = None

    def __enter__(self) -> Self:
        try:
            return self.start()
        except BaseException:
            self.close()
            raise

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            if error is not None:
                error.add_note(f"--- end of the broker's log ---\n{log_tail(self.log_text())}")
            elif self._process is not None:
                self._stop_cleanly()
        finally:
            self.close()

    # -- inner workings

    def _stop_cleanly(self) -> None:
        if not self.alive:
            status = self.wait()
            raise BrokerFailed(
                f"{self.name} ended by itself with exit status {status}", status, self.log_text()
            )
        for watcher in watchers:
            watcher.stopping(self)
        status = self.stop()
        if status not in self.clean_exit_statuses:
            raise BrokerFailed(
                f"{self.name} ended with exit status {status} after SIGTERM",
                status,
                self.log_text(),
            )

    def _wait_until_ready(self) -> None:
        process = self._live()
        deadline = time.monotonic() + self.start_timeout_s
        while True:
            ended = process.poll() is not None  # looked at first: it may be ready and end between
            bootstrap = self.poll_ready()
            if bootstrap is not None:
                self._bootstrap = bootstrap
                return
            if ended:
                status = self.wait()
                raise BrokerFailed(
                    f"{self.name} did not start: exit status {status}", status, self.log_text()
                )
            if time.monotonic() > deadline:
                self.kill9()
                raise BrokerFailed(
                    f"{self.name} was not ready after {self.start_timeout_s} s",
                    None,
                    self.log_text(),
                )
            time.sleep(self.ready_poll_s)

    def _live(self) -> Process:
        if self._process is None:
            raise RuntimeError(f"{self.name} is not running")
        return self._process

    def _forget(self) -> None:
        if self._process is not None:
            keeper.keep(self._root, None)
        self._process = None
        _running.discard(self)


def _property_text(value: object) -> str:
    """A setting as server.properties writes it."""
    return str(value).lower() if isinstance(value, bool) else str(value)
