"""`kbroker health --admin`: what a page of /readyz becomes, and what is no such page."""

from __future__ import annotations

import http.server
import json
import ssl
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from kbroker.cli import health
from kbroker.cli.admin_checks import check_url, readiness
from kbroker.cli.main import main
from kbroker.errors import UsageError
from kbroker.findings.checks import FAILING, OK, WARNING, Check
from tests.support.certificates import Authority

TIMEOUT_MS = 20_000
READY = (
    "[+] kafka-requests: running\n"
    "[+] certificate SSL: expires in 90.0 days\n"
    "[+] certificate ADMIN: expires in 3.5 days\n"
    "[+] log-dir /data: online\n"
    "ok\n"
)
NOT_READY = (
    "[-] kafka-requests: starting\n"
    "[+] certificate SSL: has expired: new clients do not connect\n"
    "not ready\n"
)


class Port:
    """An admin port that answers the same to all."""

    def __init__(self) -> None:
        self.status, self.page = 200, READY
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                assert self.path == "/readyz?verbose"
                self.send_response(outer.status)
                self.end_headers()
                self.wfile.write(outer.page.encode())

            def log_message(self, *_: object) -> None:
                pass

        self.http = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.http.daemon_threads = True
        self.scheme = "http"
        threading.Thread(target=self.http.serve_forever, args=(0.01,), daemon=True).start()

    @property
    def url(self) -> str:
        return f"{self.scheme}://127.0.0.1:{self.http.server_port}"

    def seen(self) -> list[Check]:
        return list(readiness(self.url, TIMEOUT_MS))


@pytest.fixture
def port() -> Iterator[Port]:
    made = Port()
    yield made
    made.http.shutdown()
    made.http.server_close()


def test_a_broker_that_is_ready(port: Port) -> None:
    ready, first, second = port.seen()
    assert ready == Check(OK, "admin", f"{port.url} is ready")
    assert first == Check(
        OK, "certificate", f"{port.url}: the certificate of SSL expires in 90 days"
    )
    assert (second.verdict, second.name) == (WARNING, "certificate")
    assert second.seen == f"{port.url}: the certificate of ADMIN expires in 3 days"


def test_a_broker_that_is_not_ready(port: Port) -> None:
    port.status, port.page = 503, NOT_READY
    starting, expired = port.seen()
    assert starting.verdict == expired.verdict == FAILING
    assert starting.seen == f"{port.url}: kafka-requests: starting"
    assert expired.seen == f"{port.url}: the certificate of SSL has expired"


@pytest.mark.parametrize(
    ("status", "page", "why"),
    [
        (404, "", "answers 404"),
        (503, "what\n", "is not ready"),
        (200, "x" * 300_000, "its page is too long"),
    ],
)
def test_pages_of_something_else(port: Port, status: int, page: str, why: str) -> None:
    port.status, port.page = status, page
    (line,) = port.seen()
    assert line.verdict == FAILING and why in line.seen and line.fix


def test_text_of_others_is_not_written_as_it_is(port: Port) -> None:
    port.status, port.page = 503, "[-] log-dir /\x1b[31m: gone\n"
    (line,) = port.seen()
    assert "\x1b" not in line.seen


def test_no_broker_at_the_address() -> None:
    (line,) = readiness("http://127.0.0.1:1", TIMEOUT_MS)
    assert line.verdict == FAILING and "refused" in line.seen


@pytest.mark.parametrize(
    "url",
    ["localhost:9644", "ftp://h:1", "https://h", "https://u:p@h:1", "https://h:1/metrics", ""],
)
def test_no_address(url: str) -> None:
    with pytest.raises(UsageError, match="is no address"):
        check_url(url)


def test_https_with_the_authority_of_the_command_config(
    port: Port, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The protocol of the file is that of Kafka's listener, and may be another."""
    authority = Authority(tmp_path)
    made = authority.issue("broker")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(made.chain, made.key)
    port.http.socket = context.wrap_socket(port.http.socket, server_side=True)
    port.scheme = "https"
    (untrusted,) = port.seen()
    assert untrusted.verdict == FAILING and "--command-config" in untrusted.fix
    file = tmp_path / "client.properties"
    file.write_text(f"ssl.truststore.type=PEM\nssl.truststore.location={authority.certificate}\n")
    monkeypatch.setattr(health, "_look", lambda *_: [])
    words = ["health", "--admin", port.url, "--command-config", str(file), "-o", "json"]
    assert main(words) == 1
    document = json.loads(capsys.readouterr().out)
    assert document["status"] == WARNING
    assert [each["name"] for each in document["checks"]] == ["admin", *["certificate"] * 2]
