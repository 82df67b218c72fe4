"""A broker that was started elsewhere: an address, and perhaps a pid whose CPU may be read.

It is never started, held or stopped from here, and its directory is not touched.
"""

from __future__ import annotations

from pathlib import Path

from perf.brokers.base import Broker, BrokerError

NO_DIRECTORY = Path("/nonexistent")


class AttachedBroker(Broker):
    """Measured over the wire alone."""

    name = "attached"

    def __init__(self, host: str, port: int, pid: int = 0) -> None:
        super().__init__(NO_DIRECTORY, port)
        self.host = host
        self._pid = pid

    @property
    def pid(self) -> int:
        if not self._pid:
            raise BrokerError("this needs the broker's pid: --broker-pid")
        return self._pid

    @property
    def measured_pid(self) -> int:
        return self._pid

    def held_bytes(self) -> int | None:
        """Nothing of a JVM, whose garbage is not known."""
        runs = Path(f"/proc/{self.pid}/comm").read_text().strip()
        return None if runs == "java" else super().held_bytes()

    def launch(self) -> None:
        raise BrokerError("an attached broker is not started from here")

    def start(self) -> None:
        self.wait_ready()

    def check_alive(self) -> None:
        return

    def hold(self) -> None:
        return

    def resume(self) -> None:
        return

    def stop(self) -> None:
        return

    def kill(self) -> None:
        return

    def discard(self) -> None:
        return
