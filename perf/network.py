"""A loopback of the comparison's own: no other traffic, and no pacing.

Where the kernel's default congestion control paces (bbr), a large answer on loopback waits for
timers and not for the broker, and the figures of a 1 MB fetch say nothing. Congestion control is
the sender's choice and so not the generator's; but it belongs to a network namespace. `enter`
moves the calling thread, and with it every process and thread that it starts later, into a new one
whose loopback is up and whose default is loss-based. That needs privileges; without them the run
goes on where it is, and what was found is said.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import socket
import struct
from pathlib import Path

CLONE_NEWNET = 0x40000000
SIOCGIFFLAGS, SIOCSIFFLAGS = 0x8913, 0x8914
IFF_UP = 1
CONGESTION_CONTROL = Path("/proc/sys/net/ipv4/tcp_congestion_control")
LOSS_BASED = ("cubic", "reno")


def congestion_control() -> str:
    try:
        return CONGESTION_CONTROL.read_text().strip()
    except OSError:
        return "unknown"


def paces(name: str) -> bool:
    return name.startswith("bbr")


def bring_up(device: bytes) -> None:
    """A device of this thread's network. OSError."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        request = struct.pack("16sh14x", device, 0)
        flags = struct.unpack_from("h", fcntl.ioctl(any_socket, SIOCGIFFLAGS, request), 16)[0]
        fcntl.ioctl(any_socket, SIOCSIFFLAGS, struct.pack("16sh14x", device, flags | IFF_UP))


def enter() -> str:
    """Move this thread into a network of its own; says where it is now."""
    try:
        enter_new()
    except OSError as error:
        return f"shared ({error.strerror}), {congestion_control()}"
    return f"own namespace, {congestion_control()}"


def enter_new() -> None:
    """The same. OSError without the privilege."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(CLONE_NEWNET):
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    bring_up(b"lo")
    if congestion_control() not in LOSS_BASED:
        for name in LOSS_BASED:
            try:
                CONGESTION_CONTROL.write_text(name)
                break
            except OSError:
                continue  # not built in; try the next one
