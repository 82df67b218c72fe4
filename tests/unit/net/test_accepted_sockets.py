"""What the acceptor sets on a connection, read back from the socket: it is in this process."""

from __future__ import annotations

import contextlib
import fcntl
import os
import socket
import stat
from collections.abc import Callable

import pytest

from tests.unit.net.harness import Client, Rig, cold_frame

BYTES = 48_000
KERNELS_OWN = 2  # it doubles what it is asked for, for its bookkeeping


def accepted(client: Client) -> int:
    """The other end of the client's connection, which the broker under test has."""
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):  # not connected, or closed meanwhile
            fd = int(name)
            # A file has no business here: the close of any descriptor of it gives up its locks.
            if not stat.S_ISSOCK(os.fstat(fd).st_mode):
                continue
            with socket.socket(fileno=os.dup(fd)) as end:
                # Both ends: the client's port may have been another's, of an earlier broker here.
                ends = (end.getpeername(), end.getsockname())
                if ends == (client.socket.getsockname(), client.socket.getpeername()):
                    return fd
    raise AssertionError("no descriptor has the other end")


def option(fd: int, level: int, name: int) -> int:
    with socket.socket(fileno=os.dup(fd)) as end:
        return end.getsockopt(level, name)


def connected(rig: Rig) -> int:
    client = rig.client()
    client.send(cold_frame(b"x"))
    assert client.receive_cold() == (1, b"x")
    return accepted(client)


def test_answers_leave_at_once_and_a_lost_client_is_noticed(rig: Rig) -> None:
    fd = connected(rig)
    assert option(fd, socket.IPPROTO_TCP, socket.TCP_NODELAY)
    assert option(fd, socket.SOL_SOCKET, socket.SO_KEEPALIVE)
    assert not os.get_blocking(fd)
    assert fcntl.fcntl(fd, fcntl.F_GETFD) & fcntl.FD_CLOEXEC


@pytest.mark.parametrize(
    ("setting", "name"),
    [("send_buffer_bytes", socket.SO_SNDBUF), ("receive_buffer_bytes", socket.SO_RCVBUF)],
)
def test_buffers_are_as_long_as_was_said_or_the_kernels_own(
    make_rig: Callable[..., Rig], setting: str, name: int
) -> None:
    said = connected(make_rig(**{setting: BYTES}))
    assert option(said, socket.SOL_SOCKET, name) == KERNELS_OWN * BYTES
    left = connected(make_rig(**{setting: -1}))
    assert option(left, socket.SOL_SOCKET, name) != KERNELS_OWN * BYTES


@pytest.mark.parametrize("host", ["127.0.0.1", "127.10.99.100", "127.255.200.9"])
def test_the_text_of_an_address(make_rig: Callable[..., Rig], host: str) -> None:
    rig = make_rig(dispatch=lambda request: request.respond(request.peer_host.encode()))
    with contextlib.closing(Client(rig.port, host=host)) as client:
        client.send(cold_frame())
        assert client.receive_cold() == (1, host.encode())
