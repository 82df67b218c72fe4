"""Networks and mounts of this run alone; the machine's own stay as they are. Needs root.

`leave_the_machine` gives this process, and all that it starts from then on, a network and mounts of
their own; a `Namespace` is a further network. They are held by nothing but processes and open
files: when the last of those is gone, however it ended, so are they.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import struct
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Final, TypeVar

_CLONE_NEWNS: Final = 0x0002_0000
_CLONE_NEWNET: Final = 0x4000_0000
_TUNSETIFF: Final = 0x4004_54CA
_TUN_WITHOUT_HEADER: Final = 0x1001
DEVICE: Final = "tun0"
MTU: Final = 60_000  # what brokers say passes in few packets

_libc: Final = ctypes.CDLL(None, use_errno=True)
T = TypeVar("T")


def are_possible() -> bool:
    """Whether this process may make them."""
    return os.geteuid() == 0 and os.access("/dev/net/tun", os.R_OK | os.W_OK)


def leave_the_machine() -> None:
    """Before there are other threads."""
    _call("unshare", _CLONE_NEWNS | _CLONE_NEWNET)
    run("mount", "--make-rprivate", "/")
    run("ip", "link", "set", "lo", "up")


def run(*command: str) -> None:
    try:
        subprocess.run(command, check=True, capture_output=True, text=True, timeout=30)
    except subprocess.CalledProcessError as error:
        raise OSError(f"{' '.join(command)}: {error.stderr.strip()}") from error


def open_device(*addresses: str) -> int:
    """A network device with these addresses; its packets are read and written here."""
    device = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
    fcntl.ioctl(device, _TUNSETIFF, struct.pack("16sH22x", DEVICE.encode(), _TUN_WITHOUT_HEADER))
    for address in addresses:
        run("ip", "address", "add", f"{address}/24", "dev", DEVICE)
    run("ip", "link", "set", DEVICE, "up", "mtu", str(MTU))
    return device


class Namespace:
    """A network with its own loopback and nothing else; what `call` does is done in it."""

    def __init__(self) -> None:
        self._file = _in_a_thread(self._make)
        self.call(lambda: run("ip", "link", "set", "lo", "up"))

    def _make(self) -> int:
        _call("unshare", _CLONE_NEWNET)
        return os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)

    def call(self, work: Callable[[], T]) -> T:
        def inside() -> T:
            _call("setns", self._file, _CLONE_NEWNET)
            return work()

        return _in_a_thread(inside)

    def close(self) -> None:
        os.close(self._file)


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
                except OSError:  # somebody writes meanwhile
                    left //= 2
            return os.fstat(filler.fileno()).st_size

    def empty(self) -> None:
        self._filler.unlink(missing_ok=True)

    def close(self) -> None:
        run("umount", "--lazy", str(self.place))


def _call(function: str, *arguments: int) -> None:
    if getattr(_libc, function)(*arguments):
        number = ctypes.get_errno()
        raise OSError(number, f"{function}: {os.strerror(number)}")


def _in_a_thread(work: Callable[[], T]) -> T:
    """A network is a thread's; its children inherit it."""
    found: list[T] = []
    failed: list[BaseException] = []

    def do() -> None:
        try:
            found.append(work())
        except BaseException as error:
            failed.append(error)

    thread = threading.Thread(target=do)
    thread.start()
    thread.join()
    if failed:
        raise failed[0]
    return found[0]
