"""Two networks on one machine, a round-trip time apart.

    with TwoNetworks() as networks:          # this thread is in the near one from now on
        networks.set_round_trip(0.0005)
        with networks.far.entered(): ...     # what is started here lives in the far one

Each is a network namespace of its own with a loopback and one TUN device; a process carries packets
between the two devices, each after a delay (perf/native/perf_line.h). It needs root, or a user that
may make namespaces and TUN devices. Nothing of it has a name: it is gone with the last process
that lives in it.
"""

from __future__ import annotations

import fcntl
import os
import socket
import statistics
import struct
import subprocess
import sys
import threading
import time
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from typing import Final, Self

from lab import child, namespaces
from lab.namespaces import DEVICE, Namespace
from perf import network
from perf.brokers.kbroker import ROOT
from perf.studies.study import StudyError

NEAR_HOST, FAR_HOST = "10.9.0.1", "10.9.0.2"
NETMASK: Final = "255.255.255.0"
MTU_BYTES: Final = 1500
PROBES, PROBES_LEFT_OUT = 200, 20
PROBE_TIMEOUT_S: Final = 5.0
LINE_TIMEOUT_S: Final = 30.0  # its interpreter starts in it

_TUNSETOFFLOAD: Final = 0x400454D0
_IFF_VNET_HDR: Final = 0x4000
_TUN_F_CSUM, _TUN_F_TSO4, _TUN_F_TSO6 = 0x01, 0x02, 0x04
_SIOCSIFADDR, _SIOCSIFNETMASK, _SIOCSIFMTU = 0x8916, 0x891C, 0x8922
_NETSTAT: Final = "/proc/thread-self/net/netstat"


class NetworkError(StudyError):
    """The networks cannot be made; the message says what they need."""


@dataclass(frozen=True)
class Network:
    """A network namespace, and the address of its device."""

    namespace: Namespace
    host: str

    def entered(self) -> AbstractContextManager[None]:
        """The calling thread is in it meanwhile, and with it what it starts."""
        return self.namespace.entered()

    def tcp_counters(self) -> dict[str, int]:
        """TcpExt of this namespace: zero windows that were advertised, and wanted ones among
        them."""
        with self.entered(), open(_NETSTAT, encoding="ascii") as lines:
            names, values = (line.split() for line in lines if line.startswith("TcpExt:"))
        return dict(zip(names[1:], map(int, values[1:]), strict=True))


def _open_tun() -> int:
    """The namespace's device, not up yet."""
    fd = namespaces.open_tun(_IFF_VNET_HDR)
    fcntl.ioctl(fd, _TUNSETOFFLOAD, _TUN_F_CSUM | _TUN_F_TSO4 | _TUN_F_TSO6)
    return fd


def _bring_up(host: str) -> None:
    def address(text: str) -> bytes:
        return struct.pack("HH4s8x", socket.AF_INET, 0, socket.inet_aton(text))

    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        for request, value in (
            (_SIOCSIFADDR, address(host)),
            (_SIOCSIFNETMASK, address(NETMASK)),
            (_SIOCSIFMTU, struct.pack("i12x", MTU_BYTES)),
        ):
            fcntl.ioctl(any_socket, request, struct.pack("16s16s8x", DEVICE, value))
    namespaces.bring_up(DEVICE)


class TwoNetworks:
    """The near and the far network. A context manager of the thread that makes them."""

    def __init__(self) -> None:
        self._exit = ExitStack()
        self._line: subprocess.Popen[bytes] | None = None
        self._control: socket.socket | None = None
        self.near = self.far = Network(Namespace(-1), "")

    def __enter__(self) -> Self:
        try:
            self._make()
        except OSError as error:
            self._exit.close()
            raise NetworkError(
                f"two networks a round trip apart need root, network namespaces and /dev/net/tun "
                f"({error.strerror or error}): run it as root"
            ) from None
        except BaseException:
            self._exit.close()
            raise
        return self

    def _make(self) -> None:
        before = Namespace.here()
        self._exit.callback(before.close)
        self._exit.callback(before.enter)
        tuns = []
        made = []
        for host in (FAR_HOST, NEAR_HOST):  # the thread stays in the one that is made last
            network.enter_new()
            made.append(Network(Namespace.here(), host))
            self._exit.callback(made[-1].namespace.close)
            tuns.append(_open_tun())
            self._exit.callback(os.close, tuns[-1])
            _bring_up(host)
        self.far, self.near = made
        command = [sys.executable, "-m", "perf.pipelining.line", *map(str, tuns), "0"]
        self._control, its_end = socket.socketpair()
        self._control.settimeout(LINE_TIMEOUT_S)
        with its_end:
            its_end.setblocking(False)  # the line looks for a new delay while it carries
            self._line = child.start(command, stdin=its_end, pass_fds=tuns, cwd=ROOT)
        self._exit.callback(self._line.wait)
        self._exit.callback(self._control.close)

    @property
    def line_pid(self) -> int:
        if self._line is None:
            raise NetworkError("the line is not there")
        return self._line.pid

    def set_round_trip(self, seconds: float) -> None:
        """For packets sent from now on; the line itself adds 30 to 100 us."""
        if self._control is None:
            raise NetworkError("the line is not there")
        delay = struct.pack("q", int(seconds / 2 * 1e9))
        try:
            self._control.sendall(delay)
            answer = self._control.recv(len(delay))
        except OSError as error:
            raise NetworkError(f"the process that carries packets has ended ({error})") from None
        if answer != delay:
            raise NetworkError("the process that carries packets has ended")

    def round_trip_s(self) -> float:
        """As one byte there and back on TCP takes it, the median."""
        with self.far.entered(), socket.create_server((FAR_HOST, 0)) as server:
            server.settimeout(PROBE_TIMEOUT_S)
            far_end = threading.Thread(target=echo, args=(server,), daemon=True)
            far_end.start()
            with self.near.entered():
                found = _probe(server.getsockname())
            far_end.join()
        return statistics.median(found)

    def __exit__(self, *_: object) -> None:
        self._exit.close()


def echo(server: socket.socket) -> None:
    """Gives one connection back what it sends, until it ends."""
    near, _ = server.accept()
    with near:
        near.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        while byte := near.recv(1):
            near.sendall(byte)


def _probe(address: tuple[str, int]) -> list[float]:
    found = []
    with socket.create_connection(address, PROBE_TIMEOUT_S) as far:
        far.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for _ in range(PROBES):
            began = time.perf_counter()
            far.sendall(b"x")
            far.recv(1)
            found.append(time.perf_counter() - began)
    return found[PROBES_LEFT_OUT:]
