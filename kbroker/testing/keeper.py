"""Servers of a test process that was killed end with it, and their directories go.

`keep` tells a small process of its own which servers there are. It reads from a pipe whose other
end only this process holds: its end, however it comes, is the end of the pipe, and then the keeper
ends what it knows of, SIGTERM first, and removes the directories. It is in a session of its own, so
that what kills this process and its group does not reach it.

Where both were killed, a directory is found by the next start: `own` holds a lock on a file in it,
which the server inherits, so a lock that is free means that no process is left: `sweep` removes it.

This file is also the keeper's program: it imports nothing but the standard library.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterable
from pathlib import Path
from typing import IO, Final

OWNER: Final = ".owner"
TERM_MS: Final = 10_000  # a broker's clean stop takes tenths of a second
KILL_MS: Final = 10_000
END_S: Final = 30.0

_lock = threading.Lock()
_keeper: subprocess.Popen[str] | None = None
_keeper_of = 0  # the process that started it: a fork's children have one of their own


def own(directory: Path) -> int:
    """A descriptor that says that the directory is in use, as long as a process has it open."""
    begun = directory / f"{OWNER}.new"  # under its name it is locked: `sweep` may look just now
    owner = os.open(begun, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    fcntl.flock(owner, fcntl.LOCK_EX | fcntl.LOCK_NB)
    begun.rename(directory / OWNER)
    return owner


def keep(directory: Path, pid: int | None) -> None:
    """The server of this directory runs as `pid`; None: not at present."""
    _tell({"directory": str(directory), "pid": None if pid == os.getpid() else pid})


def forget(directory: Path) -> None:
    """The directory is gone."""
    if _keeper_of == os.getpid():
        _tell({"directory": str(directory), "gone": True})


def end() -> None:
    """At the end of this process: waits until what was left is ended and removed."""
    global _keeper
    with _lock:
        keeper, _keeper = _keeper, None
    if keeper is not None and _keeper_of == os.getpid() and keeper.stdin is not None:
        with contextlib.suppress(OSError, subprocess.TimeoutExpired):
            # In words: a fork of this process may hold the pipe open.
            keeper.stdin.write(json.dumps({"end": True}) + "\n")
            keeper.stdin.close()
            keeper.wait(END_S)


def sweep(prefix: str, folder: str | None = None) -> None:
    """Removes directories of servers that no process holds any more."""
    for directory in Path(folder or tempfile.gettempdir()).glob(f"{prefix}*"):
        with contextlib.suppress(OSError):  # in use, or gone meanwhile
            owner = os.open(directory / OWNER, os.O_RDWR | os.O_CLOEXEC)
            try:
                fcntl.flock(owner, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(directory, ignore_errors=True)
            finally:
                os.close(owner)


def _tell(what: dict[str, object]) -> None:
    global _keeper, _keeper_of
    with _lock:
        if _keeper is None or _keeper_of != os.getpid():
            _keeper_of = os.getpid()
            _keeper = subprocess.Popen(
                [sys.executable, "-I", "-S", __file__],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
                cwd="/",
                text=True,
            )
        stream = _keeper.stdin
        if stream is None:
            return
        with contextlib.suppress(OSError):  # it was killed: the next sweep does its work
            stream.write(json.dumps(what) + "\n")
            stream.flush()


# --- the keeper's own process --------------------------------------------------------------------


def main(lines: Iterable[str] | IO[str]) -> None:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    known: dict[str, int | None] = {}  # by directory: a descriptor of the process, or none
    for line in lines:
        message = json.loads(line)
        if message.get("end"):
            break
        process = known.pop(message["directory"], None)
        if process is not None:
            os.close(process)
        if not message.get("gone"):
            known[message["directory"]] = _opened(message["pid"])
    running = [process for process in known.values() if process is not None]
    for process in running:
        _signal(process, signal.SIGTERM)
    for process in running:
        if not _has_ended(process, TERM_MS):
            _signal(process, signal.SIGKILL)
            _has_ended(process, KILL_MS)
    for directory in known:
        shutil.rmtree(directory, ignore_errors=True)


def _opened(pid: int | None) -> int | None:
    """A descriptor is of this process and never of another with the same number."""
    try:
        return None if pid is None else os.pidfd_open(pid)
    except OSError:
        return None


def _signal(process: int, number: int) -> None:
    with contextlib.suppress(OSError):
        signal.pidfd_send_signal(process, number)


def _has_ended(process: int, within_ms: int) -> bool:
    poll = select.poll()
    poll.register(process, select.POLLIN)
    return bool(poll.poll(within_ms))


if __name__ == "__main__":
    main(sys.stdin)
