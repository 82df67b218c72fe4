"""ServerProcess against small programs that start, fail, linger or refuse to stop."""

from __future__ import annotations

import signal
import sys
from pathlib import Path

import pytest

from kbroker.testing.process import BrokerFailed, ServerProcess, running

READY = "print('up', flush=True); open('ready', 'w').write('127.0.0.1:%s' % (PORT or 4711))"
LINGER = "import signal; signal.pause()"
# Waited for, not handled: a handler that the interpreter runs just before `pause` is slept through.
GRACEFUL = (
    "import signal, sys; signal.pthread_sigmask(signal.SIG_BLOCK, [15]); "
    f"{READY}; signal.sigwait([15]); sys.exit(STATUS)"
)


class Program(ServerProcess):
    """A server whose program is the text of a test; it makes the file `ready` when it is."""

    name = "program"
    start_timeout_s = 60.0

    def __init__(self, program: str, status: int = 0, **options: object) -> None:
        super().__init__(**options)  # type: ignore[arg-type]
        self._cwd = self.scratch_dir
        self._program = program
        self._status = status

    def command(self) -> list[str]:
        return [
            sys.executable,
            "-c",
            f"PORT = {self.port}; STATUS = {self._status}\n{self._program}",
        ]

    def prepare(self) -> None:
        (self.scratch_dir / "ready").unlink(missing_ok=True)

    def poll_ready(self) -> str | None:
        try:
            return (self.scratch_dir / "ready").read_text() or None
        except FileNotFoundError:
            return None


def test_it_runs_inside_the_block_and_leaves_nothing() -> None:
    with Program(GRACEFUL) as server:
        assert server.alive and server in running()
        assert server.bootstrap == "127.0.0.1:4711"
        assert server.log_text() == "up\n"
        scratch = server.scratch_dir
        assert scratch.is_dir()
    assert not server.alive and server not in running()
    assert not scratch.exists()


def test_a_program_that_fails_to_start_tells_status_and_log() -> None:
    before = running()
    with pytest.raises(BrokerFailed) as caught, Program("print('no port'); raise SystemExit(4)"):
        pass
    assert caught.value.exit_status == 4
    assert "no port" in caught.value.log
    assert "no port" in caught.value.__notes__[0]
    assert set(running()) == set(before)


def test_a_program_that_is_never_ready_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Program, "start_timeout_s", 0.05)
    before = running()
    with pytest.raises(BrokerFailed, match="was not ready"), Program(LINGER):
        pass
    assert set(running()) == set(before)


def test_an_unclean_end_fails_the_block() -> None:
    failing = pytest.raises(BrokerFailed, match="exit status 9 after SIGTERM")
    with failing, Program(GRACEFUL, status=9):
        pass


def test_dying_unnoticed_fails_the_block() -> None:
    failing = pytest.raises(BrokerFailed, match="ended by itself with exit status 7")
    with failing as caught, Program(f"{READY}; raise SystemExit(7)") as server:
        server._live().wait()
    assert caught.value.exit_status == 7


def test_a_failing_block_carries_the_log() -> None:
    with pytest.raises(ZeroDivisionError) as caught, Program(GRACEFUL):
        1 / 0  # noqa: B018
    assert "up" in caught.value.__notes__[0]


def test_a_program_that_ignores_sigterm_is_killed_and_reported() -> None:
    stubborn = f"import signal; signal.signal(15, signal.SIG_IGN); {READY}; signal.pause()"
    with Program(stubborn) as server:
        with pytest.raises(BrokerFailed, match="had not stopped"):
            server.stop(timeout_s=0.05)
        assert not server.alive


def test_restart_keeps_port_and_data_and_appends_to_the_log() -> None:
    with Program(GRACEFUL) as server:
        first, data_dir = server.pid, server.data_dir
        server.restart()
        assert server.pid != first
        assert (server.port, server.bootstrap) == (4711, "127.0.0.1:4711")
        assert server.data_dir == data_dir
        assert server.log_text() == "up\nup\n"


def test_kill9_needs_no_consent_and_is_not_a_failure() -> None:
    with Program(GRACEFUL) as server:
        server.kill9()
        assert not server.alive
        server.kill9()  # again is nothing


def test_signal_and_wait() -> None:
    with Program(GRACEFUL, status=3) as server:
        server.signal(signal.SIGTERM)
        assert server.wait() == 3


def test_settings_of_the_tests_do_not_reach_the_server(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KBROKER_LISTENERS", "x")
    monkeypatch.setenv("KAFKA_LISTENERS", "x")
    monkeypatch.setenv("UNRELATED", "kept")
    environment = Program(LINGER, env={"KBROKER_LOG_DIRS": "/d"}).environment()
    assert "KBROKER_LISTENERS" not in environment and "KAFKA_LISTENERS" not in environment
    assert environment["UNRELATED"] == "kept"
    assert environment["KBROKER_LOG_DIRS"] == "/d"


def test_settings_are_written_as_properties_write_them(tmp_path: Path) -> None:
    server = Program(LINGER, overrides={"a": True, "b": 5, "c": "text"}, data_dir=tmp_path)
    assert server.overrides == {"a": "true", "b": "5", "c": "text"}
    assert server.data_dir == tmp_path
