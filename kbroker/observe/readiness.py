"""Whether this broker accepts Kafka's requests just now, and if not, why.

The lifecycle's steps set the phase from the main thread; the admin side asks from its own. A broker
is ready while it is running, none of its threads is dead, nothing that a start begins waits to be
tried again, and every log directory can be written;
what a directory says is asked for anew each time, two system calls each. In a cluster it must be
registered as well, and have the cluster's metadata.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

STARTING: Final = "starting"
RUNNING: Final = "running"
STOPPING: Final = "stopping"


class Check(NamedTuple):
    """One condition of readiness; `detail` says what is wrong, or how it is."""

    name: str
    ok: bool
    detail: str


class Readiness:
    """Written by the main thread, read by any."""

    def __init__(
        self,
        log_dirs: Sequence[str],
        dead_threads: Callable[[], Sequence[str]] = tuple,
        informed: Callable[[], bool] | None = None,
        failing: Callable[[], Mapping[str, str]] = dict,
    ) -> None:
        """`dead_threads`: names of our threads that are lost (health.py). `failing`: what is to run
        once, has failed and is tried again, with the last error. `informed`: whether a
        broker of a cluster has the cluster's metadata; None: it is in no cluster."""
        self._log_dirs = tuple(log_dirs)
        self._dead_threads = dead_threads
        self._informed = informed
        self._failing = failing
        # Of listeners, by name, how long they are valid. No reason not to be ready: others serve.
        self.certificates: Callable[[], Mapping[str, str]] = dict
        self.phase = STARTING
        self._absent: frozenset[Path] = frozenset()
        self._failed: Callable[[], Collection[Path]] = tuple
        self._unread: Callable[[Path], int] = lambda path: 0

    def follow_directories(
        self,
        absent: Iterable[Path],
        failed: Callable[[], Collection[Path]],
        unread: Callable[[Path], int],
    ) -> None:
        """`absent` are not used, since a disk is not mounted there; `failed` have served, and do no
        more. `unread`: how many logs a crash left there that are still to be read; the others are
        served, so that is no reason not to be ready."""
        self._absent, self._failed, self._unread = frozenset(absent), failed, unread

    def checks(self) -> list[Check]:
        """All conditions; the broker is ready when each is ok."""
        accepts = Check("kafka-requests", self.phase == RUNNING, self.phase)
        if self._informed is not None and self.phase == RUNNING:
            informed = self._informed()
            accepts = Check(
                accepts.name,
                informed,
                RUNNING if informed else "not registered, or without metadata",
            )
        dead = [
            Check(f"thread {name}", False, "is dead: restart the broker")
            for name in self._dead_threads()
        ]
        failing = [
            Check(name, False, f"has failed and is tried again every second: {error}")
            for name, error in self.failing().items()
        ]
        times = [
            Check(f"certificate {name}", True, time) for name, time in self.certificates().items()
        ]
        directories = [self._directory(path) for path in self._log_dirs]
        return [accepts, *dead, *failing, *times, *directories]

    def failing(self) -> Mapping[str, str]:
        """What has failed and is tried again, by name, with why."""
        return self._failing()

    @property
    def running(self) -> bool:
        return self.phase == RUNNING

    def _directory(self, path: str) -> Check:
        name = f"log-dir {path}"
        if Path(path) in self._absent:
            return Check(name, False, "offline: what it held is not there")
        if Path(path) in self._failed():
            return Check(name, False, "offline: it has failed")
        try:
            read_only = os.statvfs(path).f_flag & os.ST_RDONLY
        except FileNotFoundError:
            # Made by a later step of the start; gone while running is another matter.
            missing_is_ok = self.phase == STARTING
            return Check(name, missing_is_ok, "not there yet" if missing_is_ok else "is gone")
        except OSError as error:
            return Check(name, False, f"offline: {error.strerror}")
        if read_only or not os.access(path, os.W_OK):
            return Check(name, False, "offline: cannot be written")
        left = self._unread(Path(path))
        return Check(name, True, f"online; {left} logs are being recovered" if left else "online")
