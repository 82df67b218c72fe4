"""What systemd gets: datagrams of sd_notify(3), and nothing where it does not listen."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from kbroker.server.service_manager import ServiceManager


@pytest.fixture
def systemd(tmp_path: Path) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listening:
        listening.bind(str(tmp_path / "notify"))
        listening.settimeout(10)
        yield listening


def made(environment: dict[str, str], pid: int = 7) -> ServiceManager:
    manager = ServiceManager.of(environment, pid)
    assert manager is not None
    return manager


def test_each_change_is_a_datagram(systemd: socket.socket) -> None:
    manager = made({"NOTIFY_SOCKET": systemd.getsockname()})
    manager.ready("node 1 serves 127.0.0.1:9092")
    assert systemd.recv(4096) == b"READY=1\nSTATUS=node 1 serves 127.0.0.1:9092"
    manager.reloading()
    first, second = systemd.recv(4096).split(b"\n")
    assert first == b"RELOADING=1"
    assert second.startswith(b"MONOTONIC_USEC=") and second[15:].isdigit()
    manager.alive()
    assert systemd.recv(4096) == b"WATCHDOG=1"
    manager.stopping("stops on SIGTERM")
    assert systemd.recv(4096) == b"STOPPING=1\nSTATUS=stops on SIGTERM"
    manager.close()


def test_a_name_of_the_abstract_namespace() -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listening:
        listening.bind("")  # the kernel gives it a name
        listening.settimeout(10)
        name = listening.getsockname()
        manager = made({"NOTIFY_SOCKET": "@" + name[1:].decode()})
        manager.alive()
        assert listening.recv(4096) == b"WATCHDOG=1"
        manager.close()


def test_processes_that_the_broker_starts_do_not_inherit_it() -> None:
    watched = {"WATCHDOG_USEC": "30000000", "WATCHDOG_PID": "7"}
    environment = {"NOTIFY_SOCKET": "/x", **watched, "A": "b"}
    manager = made(environment)
    assert manager.watchdog_ms == 30_000
    assert environment == {"A": "b"}
    manager.close()


@pytest.mark.parametrize(
    "watched", [{}, {"WATCHDOG_USEC": "x"}, {"WATCHDOG_USEC": "9", "WATCHDOG_PID": "8"}]
)
def test_a_watchdog_that_is_not_for_this_process(watched: dict[str, str]) -> None:
    manager = made({"NOTIFY_SOCKET": "/x", **watched})
    assert manager.watchdog_ms is None
    manager.close()


@pytest.mark.parametrize("address", ["", "vsock:2:1", "name"])
def test_an_address_that_is_no_local_socket(address: str) -> None:
    assert ServiceManager.of({"NOTIFY_SOCKET": address}, 7) is None


def test_a_manager_that_does_not_listen_costs_one_line(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    manager = made({"NOTIFY_SOCKET": str(tmp_path / "gone")})
    manager.ready("x")
    manager.alive()
    assert len(caplog.records) == 1
    manager.close()


def test_a_manager_that_reads_nothing_does_not_block(systemd: socket.socket) -> None:
    manager = made({"NOTIFY_SOCKET": systemd.getsockname()})
    for _ in range(2_000):
        manager.alive()
    manager.close()
