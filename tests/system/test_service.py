"""A broker under systemd: what it says on the notification socket, and the unit itself."""

from __future__ import annotations

import signal
import socket
import subprocess
from pathlib import Path

import pytest

from kbroker.testing.plain import PlainBroker as Broker
from tests.support import requirements
from tests.support.source_tree import ROOT

UNIT = ROOT / "deploy" / "kbroker.service"
EXPOSURE_MAX = 20  # tenths, of 100; `systemd-analyze security`


@pytest.mark.client
def test_a_service_manager_is_notified_of_each_change(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listening:
        listening.bind(str(tmp_path / "notify"))
        listening.settimeout(30)

        class Watched(Broker):
            def environment(self) -> dict[str, str]:
                watched = {"NOTIFY_SOCKET": listening.getsockname(), "WATCHDOG_USEC": "3000000"}
                return {**super().environment(), **watched}

        def received() -> list[str]:
            return listening.recv(4096).decode().splitlines()

        with Watched(data_dir=tmp_path / "data") as broker:
            assert received() == ["READY=1", f"STATUS=node 1 serves {broker.bootstrap}"]
            assert [received(), received()] == [["WATCHDOG=1"], ["WATCHDOG=1"]]
            broker.signal(signal.SIGHUP)
            news = [line for line in (received(), received(), received()) if line != ["WATCHDOG=1"]]
            assert news[0][0] == "RELOADING=1" and news[1][0] == "READY=1"
            assert broker.stop() == 0
        last = received()
        while last == ["WATCHDOG=1"]:
            last = received()
        assert last == ["STOPPING=1", "STATUS=stops on SIGTERM"]


def test_the_unit_leaves_little_open() -> None:
    program = requirements.program("systemd-analyze", "`apt-get install systemd` installs it")
    looked = subprocess.run(
        [program, "security", "--offline=true", "--threshold", str(EXPOSURE_MAX), str(UNIT)],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert looked.returncode == 0, looked.stdout[-2_000:] + looked.stderr


def test_systemd_knows_every_line_of_the_unit(tmp_path: Path) -> None:
    program = requirements.program("systemd-analyze", "`apt-get install systemd` installs it")
    here = tmp_path / UNIT.name
    here.write_text(UNIT.read_text().replace("/opt/kbroker/bin/kbroker", "/bin/true"))
    looked = subprocess.run(
        [program, "verify", "--man=no", str(here)], capture_output=True, text=True, check=False
    )
    assert [line for line in looked.stderr.splitlines() if UNIT.name in line] == []
