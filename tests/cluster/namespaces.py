"""Networks and disks of this run alone; the machine's own stay as they are. Needs root.

`leave_the_machine` gives this process, and all that it starts from then on, a network and mounts of
their own; a `Namespace` (lab/namespaces.py) is a further network.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Final

from lab import namespaces
from lab.namespaces import DEVICE

MTU: Final = 60_000  # what brokers say passes in few packets


def are_possible() -> bool:
    """Whether this process may make them."""
    return os.geteuid() == 0 and os.access("/dev/net/tun", os.R_OK | os.W_OK)


def leave_the_machine() -> None:
    """Before there are other threads."""
    namespaces.enter_new(with_mounts=True)
    run("mount", "--make-rprivate", "/")


def run(*command: str) -> None:
    try:
        subprocess.run(command, check=True, capture_output=True, text=True, timeout=30)
    except subprocess.CalledProcessError as error:
        raise OSError(f"{' '.join(command)}: {error.stderr.strip()}") from error


def open_device(*addresses: str) -> int:
    """A network device with these addresses; its packets are read and written here."""
    device = namespaces.open_tun()
    for address in addresses:
        run("ip", "address", "add", f"{address}/24", "dev", DEVICE.decode())
    run("ip", "link", "set", DEVICE.decode(), "up", "mtu", str(MTU))
    return device


class Disk:
    """A small file system in memory, mounted at `place`."""

    def __init__(self, place: Path, size_mib: int) -> None:
        self.place = place
        place.mkdir(parents=True, exist_ok=True)
        run("mount", "-t", "tmpfs", "-o", f"size={size_mib}m", "none", str(place))

    @property
    def _filler(self) -> Path:
        return self.place / "filler"

    def fill(self) -> int:
        """To the last page; gives the bytes that this took."""
        free = os.statvfs(self.place)
        left = free.f_bavail * free.f_frsize
        with open(self._filler, "wb") as filler:
            while left > 0:
                try:
                    os.posix_fallocate(filler.fileno(), filler.tell(), left)
                    break
                except OSError:  # another process writes meanwhile
                    left //= 2
            return os.fstat(filler.fileno()).st_size

    def empty(self) -> None:
        self._filler.unlink(missing_ok=True)

    def close(self) -> None:
        run("umount", "--lazy", str(self.place))
