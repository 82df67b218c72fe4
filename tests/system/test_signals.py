"""SIGHUP and its kin: a closed terminal is a clean stop, the rest is survived."""

from __future__ import annotations

import fcntl
import os
import pty
import signal
import subprocess
import sys
import termios
from pathlib import Path

import pytest

from kbroker.log.opening.data_directory import CLEAN_SHUTDOWN_FILE
from kbroker.testing.plain import PlainBroker as Broker
from tests.clients.adapters import Admin, Confluent, Record
from tests.clients.adapters.confluent import eventually
from tests.support import requirements
from tests.system.conftest import MakeBroker

pytestmark = pytest.mark.client


class OnATerminal(Broker):
    """A broker that was started in a terminal of its own, as in a window."""

    def launch(self) -> subprocess.Popen[bytes]:
        self.master, slave = pty.openpty()
        try:
            with self.log_path.open("ab") as log:
                return subprocess.Popen(
                    self.command(), env=self.environment(), stdin=slave, stdout=log, stderr=log,
                    start_new_session=True,
                    preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
                )  # fmt: skip
        finally:
            os.close(slave)

    def close_terminal(self) -> None:
        os.close(self.master)


def test_closing_the_terminal_is_a_clean_stop(tmp_path: Path) -> None:
    broker = OnATerminal(data_dir=tmp_path / "data")
    with broker:
        Confluent(broker.bootstrap).produce("t", [Record(b"x")])
        broker.signal(signal.SIGHUP)  # the terminal is there
        eventually(lambda: "were read again" in broker.log_text())
        Confluent(broker.bootstrap).produce("t", [Record(b"y")])
        broker.close_terminal()
        assert broker.wait() == 0
        assert (tmp_path / "data" / CLEAN_SHUTDOWN_FILE).exists()
        assert "stopping on SIGHUP" in broker.log_text()


@pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2])
def test_a_broker_without_a_terminal_goes_on(broker: Broker, number: signal.Signals) -> None:
    broker.signal(number)
    eventually(lambda: number.name in broker.log_text())
    assert [d.error for d in Confluent(broker.bootstrap).produce("t", [Record(b"x")])] == [0]
    assert broker.stop() == 0


def test_sighup_tries_a_partition_again_that_is_offline(make_broker: MakeBroker) -> None:
    broker = make_broker().start()
    Admin(broker.bootstrap).create("t", 2)
    client = Confluent(broker.bootstrap)
    client.produce("t", [Record(b"kept")], partition=1)
    assert broker.stop() == 0
    log, away = Path(broker.data_dir) / "t-1", Path(broker.data_dir).parent / "away"
    os.rename(log, away)
    log.write_text("in the way")
    broker.start()
    assert "t-1 is offline" in broker.log_text()
    client = Confluent(broker.bootstrap)
    assert [d.error for d in client.produce("t", [Record(b"x")], partition=0)] == [0]
    log.unlink()
    os.rename(away, log)
    broker.signal(signal.SIGHUP)
    eventually(lambda: "were read again" in broker.log_text())
    assert [r.value for r in client.consume("t", 1, partition=1)] == [b"kept"]


def test_sigterm_ends_process_1_before_the_start_has_handlers(tmp_path: Path) -> None:
    """The kernel drops SIGTERM for process 1 of a container as long as there is no handler. The
    configuration is a pipe without content, so the start waits in its first step."""
    if os.geteuid() != 0:
        requirements.skip_on_this_machine("namespaces need root")
    unshare = requirements.program("unshare", "Debian has it in util-linux")
    settings = tmp_path / "server.properties"
    os.mkfifo(settings)
    process = subprocess.Popen(
        [unshare, "--pid", "--fork", "--kill-child", sys.executable, "-m", "kbroker", "start",
         str(settings)],
    )  # fmt: skip
    try:
        with settings.open("w"):  # it has opened the other end
            (first,) = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
            os.kill(int(first), signal.SIGTERM)
            assert process.wait(30) == 128 + signal.SIGTERM
    finally:
        process.kill()
