"""What the process says to systemd: sd_notify(3), one datagram for each change.

    READY=1        the broker accepts requests
    RELOADING=1    SIGHUP has come; READY=1 follows (Type=notify-reload)
    STOPPING=1     the end was asked for
    WATCHDOG=1     the broker is alive (`watchdog.py`), where the unit has WatchdogSec=

systemd names its socket in NOTIFY_SOCKET. Both are taken out of the environment, since they are not
meant for the processes that this one starts. A message that cannot be sent is lost: a broker does
not end because its manager does not listen. Imported only where there is a socket.
"""

from __future__ import annotations

import logging
import socket
import time
from collections.abc import MutableMapping
from typing import Final

logger: Final = logging.getLogger("kbroker.server")

_SOCKET: Final = "NOTIFY_SOCKET"
_WATCHDOG: Final = "WATCHDOG_USEC"
_WATCHDOG_PID: Final = "WATCHDOG_PID"
_USEC_PER_MS: Final = 1_000
_NS_PER_USEC: Final = 1_000
# Without READY=1 the manager takes the start for one that has failed.
_READY_WAIT_S: Final = 10.0


class ServiceManager:
    """`watchdog_ms`: the longest time without `alive`; None: it does not watch."""

    def __init__(self, address: str, watchdog_ms: int | None) -> None:
        """`address`: a path, or a name of Linux's abstract namespace that begins with @."""
        self._address = "\0" + address[1:] if address.startswith("@") else address
        self.watchdog_ms = watchdog_ms
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC)
        self._has_failed = False

    @classmethod
    def of(cls, environment: MutableMapping[str, str], pid: int) -> ServiceManager | None:
        """None: this process was not started by one that listens."""
        address = environment.pop(_SOCKET, "")
        timeout_us = environment.pop(_WATCHDOG, "")
        watched_pid = environment.pop(_WATCHDOG_PID, str(pid))
        if not address.startswith(("/", "@")):
            return None
        is_watched = timeout_us.isdecimal() and watched_pid == str(pid)
        return cls(address, int(timeout_us) // _USEC_PER_MS if is_watched else None)

    def ready(self, status: str) -> None:
        self._send("READY=1", f"STATUS={status}", wait_s=_READY_WAIT_S)

    def reloading(self) -> None:
        now_us = time.clock_gettime_ns(time.CLOCK_MONOTONIC) // _NS_PER_USEC
        self._send("RELOADING=1", f"MONOTONIC_USEC={now_us}")

    def stopping(self, status: str) -> None:
        self._send("STOPPING=1", f"STATUS={status}")

    def alive(self) -> None:
        self._send("WATCHDOG=1")

    def close(self) -> None:
        self._socket.close()

    def _send(self, *assignments: str, wait_s: float = 0) -> None:
        """`wait_s`: for room in the manager's queue."""
        try:
            self._socket.settimeout(wait_s)
            self._socket.sendto("\n".join(assignments).encode(), self._address)
        except OSError as error:
            if not self._has_failed:
                logger.warning(
                    "the service manager does not get notifications: %s", error.strerror or error
                )
            self._has_failed = True
