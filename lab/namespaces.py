"""Networks of this process's own, which the rest of the machine does not see. They need root.

    far = Namespace.new()
    with far.entered():                  # what is started here lives in the far network
        ...

A network belongs to a thread, and what the thread starts inherits it. It is held by nothing but
processes and open files: when the last of those is gone, however it ended, so is the network.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import socket
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, NamedTuple, Self

DEVICE: Final = b"tun0"
_CLONE_NEWNS: Final = 0x0002_0000
_CLONE_NEWNET: Final = 0x4000_0000
_SIOCGIFFLAGS, _SIOCSIFFLAGS = 0x8913, 0x8914
_IFF_UP: Final = 1
_TUNSETIFF: Final = 0x4004_54CA
_IFF_TUN, _IFF_NO_PI = 0x0001, 0x1000
_libc: Final = ctypes.CDLL(None, use_errno=True)


def enter_new(*, with_mounts: bool = False) -> None:
    """Move the calling thread into a new network whose loopback is up. OSError."""
    _call("unshare", _CLONE_NEWNET | (_CLONE_NEWNS if with_mounts else 0))
    bring_up(b"lo")


class Namespace(NamedTuple):
    """A network that an open file holds."""

    fd: int

    @classmethod
    def here(cls) -> Self:
        """The calling thread's. OSError."""
        return cls(os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC))

    @classmethod
    def new(cls) -> Self:
        """One with its own loopback and nothing else; the thread stays where it is. OSError."""
        before = cls.here()
        try:
            enter_new()
            return cls.here()
        finally:
            before.enter()
            before.close()

    def enter(self) -> None:
        """Move the calling thread into it. OSError."""
        _call("setns", self.fd, _CLONE_NEWNET)

    @contextmanager
    def entered(self) -> Iterator[None]:
        """The calling thread is in it meanwhile, and with it what it starts."""
        before = self.here()
        try:
            self.enter()
            yield
        finally:
            before.enter()
            before.close()

    def close(self) -> None:
        os.close(self.fd)


def open_tun(more_flags: int = 0) -> int:
    """The TUN device of the calling thread's network, not up yet: packets are read and written at
    the descriptor. OSError."""
    device = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
    flags = _IFF_TUN | _IFF_NO_PI | more_flags
    fcntl.ioctl(device, _TUNSETIFF, struct.pack("16sH22x", DEVICE, flags))
    return device


def bring_up(device: bytes) -> None:
    """A device of the calling thread's network. OSError."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        request = struct.pack("16sh14x", device, 0)
        flags = struct.unpack_from("h", fcntl.ioctl(any_socket, _SIOCGIFFLAGS, request), 16)[0]
        fcntl.ioctl(any_socket, _SIOCSIFFLAGS, struct.pack("16sh14x", device, flags | _IFF_UP))


def _call(function: str, *arguments: int) -> None:
    if getattr(_libc, function)(*arguments):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), function)
