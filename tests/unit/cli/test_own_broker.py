"""`kbroker health --here`: what process 1 was started with, and what it answers."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread

import pytest

from kbroker.cli import own_broker
from kbroker.cli.main import main

Started = Callable[..., None]


@pytest.fixture
def started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Started:
    """started(WORD, ...): process 1 has these arguments."""

    def write(*words: str) -> None:
        line = "\0".join(("/usr/bin/python3.11", "-I", "/usr/bin/kbroker", *words, ""))
        (tmp_path / "cmdline").write_text(line)

    monkeypatch.setattr(own_broker, "FIRST_PROCESS", tmp_path / "cmdline")
    return write


class Page(BaseHTTPRequestHandler):
    status, text = 200, "ok"

    def do_GET(self) -> None:
        self.send_response(self.status)
        self.end_headers()
        self.wfile.write(self.text.encode())

    def log_message(self, *_: object) -> None:
        """Standard error is the test's."""


@pytest.fixture
def admin() -> Iterator[int]:
    with HTTPServer(("127.0.0.1", 0), Page) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        yield server.server_port
        server.shutdown()
        thread.join()


@pytest.mark.parametrize(("status", "text", "exit_status"), [
    (200, "ok", 0),
    (200, "[+] certificate SSL: expires in 1.0 days\nok", 0),
    (503, "[-] kafka-requests: starting\nnot ready", 1),
])  # fmt: skip
def test_the_admin_port_of_the_file_it_was_started_with(
    started: Started, admin: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    status: int, text: str, exit_status: int, capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    monkeypatch.setattr(Page, "status", status)
    monkeypatch.setattr(Page, "text", text)
    (tmp_path / "server.properties").write_text(f"admin.listeners=http://:{admin}\n")
    started("start", str(tmp_path / "server.properties"))
    assert main(["health", "--here"]) == exit_status
    assert f"http://127.0.0.1:{admin}" in capsys.readouterr().out


def test_a_listener_where_there_is_no_admin_port(
    started: Started, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("KBROKER_ADMIN_LISTENERS", "none")
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
        monkeypatch.setenv("KAFKA_LISTENERS", "PLAINTEXT://:1")
        started("start", "--override", f"listeners=PLAINTEXT://0.0.0.0:{port}")
        assert main(["health", "--here"]) == 0
        assert "accepts connections" in capsys.readouterr().out
    assert main(["health", "--here"]) == 1
    assert "Connection refused" in capsys.readouterr().out


def test_another_process_1(started: Started, monkeypatch: pytest.MonkeyPatch) -> None:
    """The variables alone then."""
    started("bash")
    monkeypatch.setenv("KAFKA_LISTENERS", "PLAINTEXT://:12345")
    (listener,) = own_broker.config_here().listeners.listeners
    assert listener.port == 12345
