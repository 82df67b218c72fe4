"""The admin port of a real broker: lazy, bounded, honest about its state."""

from __future__ import annotations

import os
import select
import socket
import time
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import pytest

from kbroker.testing.plain import PlainBroker as Broker
from lab.ports import free_port
from tests.clients.adapters import Confluent, Record
from tests.system import process_facts
from tests.system.conftest import MakeBroker

pytestmark = pytest.mark.client

ADDRESS_IN_USE = 4
CONNECTIONS_MAX = 32
DAY_MS = 86_400_000
CHECKPOINTS = (
    "log.flush.offset.checkpoint.interval.ms",
    "log.flush.start.offset.checkpoint.interval.ms",
    "replica.high.watermark.checkpoint.interval.ms",
)


class Page(NamedTuple):
    status: int
    text: str


def get(broker: Broker, path: str) -> Page:
    try:
        with urllib.request.urlopen(broker.admin + path, timeout=60) as answer:
            return Page(answer.status, answer.read().decode())
    except urllib.error.HTTPError as error:
        return Page(error.code, error.read().decode())


def address(broker: Broker) -> tuple[str, int]:
    host, _, port = broker.admin.removeprefix("http://").rpartition(":")
    return host, int(port)


def test_health_and_readiness(broker: Broker) -> None:
    assert get(broker, "/healthz").status == 200
    assert get(broker, "/readyz") == (200, "ok\n")
    assert get(broker, "/metrics").status == 200


def test_nothing_of_http_is_loaded_before_it_is_asked_for(broker: Broker) -> None:
    Confluent(broker.bootstrap).produce("t", [Record(b"x")])
    process_facts.wait_until_quiet(broker.pid)
    idle = process_facts.resident_bytes(broker.pid)
    get(broker, "/metrics")
    assert process_facts.resident_bytes(broker.pid) - idle > 4 << 20  # which was saved


def test_a_log_directory_that_is_gone(make_broker: MakeBroker) -> None:
    broker = make_broker(dict.fromkeys(CHECKPOINTS, DAY_MS)).start()
    get(broker, "/healthz")  # what the first page loads is not waited for in between
    moved = broker.data_dir.rename(broker.data_dir.with_name("moved"))
    answer = get(broker, "/readyz")
    moved.rename(broker.data_dir)
    assert answer.status == 503
    assert f"[-] log-dir {broker.data_dir}: is gone" in answer.text
    assert get(broker, "/readyz").status == 200


def test_a_stop_in_the_middle_of_the_imports(make_broker: MakeBroker) -> None:
    broker = make_broker().start()
    with socket.create_connection(address(broker)):
        assert broker.stop() == 0


def asked(broker: Broker) -> socket.socket:
    """A connection that has had an answer."""
    made = socket.create_connection(address(broker), timeout=60)
    made.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
    assert b"200" in made.recv(1024)
    return made


def is_ended(client: socket.socket) -> bool:
    try:
        return client.recv(1024) == b""
    except ConnectionResetError:
        return True


def test_connections_are_bounded(broker: Broker) -> None:
    """One that owes a request makes room."""
    get(broker, "/healthz")
    held = [socket.create_connection(address(broker), timeout=60)]
    held[0].sendall(b"GET /healthz HTTP/1.1\r\nHo")
    # Each is answered before the next one comes, or some wait until their SYN is sent again.
    held += [asked(broker) for _ in range(CONNECTIONS_MAX)]
    while not any(map(is_ended, select.select(held, [], [], 60)[0])):
        pass  # the rest of an answer
    assert get(broker, "/healthz")
    for each in held:
        each.close()


@pytest.mark.parametrize(
    "sent",
    [
        b"\x00\x00\x00\x0c\x00\x12\x00\x00\x00\x00\x00\x01\x00\x01x" + b"\r\n\r\n",
        b"GET /" + b"x" * 20_000,
        b"GET / HTTP/1.1\r\n" + b"a: b\r\n" * 5_000,
        b"GET / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100000000\r\n\r\n",
        b"POST /metrics HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n",
    ],
)
def test_bytes_that_are_no_request_are_refused_and_closed(broker: Broker, sent: bytes) -> None:
    with socket.create_connection(address(broker), timeout=60) as rude:
        answer = b""
        try:
            rude.sendall(sent)
            while data := rude.recv(4096):
                answer += data
        except ConnectionError:
            pass
    assert answer == b"" or answer.split()[1] in (b"400", b"413")
    assert get(broker, "/healthz").status == 200


def test_a_taken_port_that_was_asked_for(make_broker: MakeBroker) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        broker = make_broker({"admin.listeners": f"http://127.0.0.1:{port}"})
        with pytest.raises(Exception, match="exit status 4") as caught:
            broker.start()
    assert caught.value.exit_status == ADDRESS_IN_USE  # type: ignore[attr-defined]
    assert f"error: KB1003 http://127.0.0.1:{port} of admin.listeners" in broker.log_text()


@pytest.mark.parametrize("value", ["", "none"])
def test_no_admin_port(make_broker: MakeBroker, value: str) -> None:
    broker = make_broker({"admin.listeners": value}).start()
    assert broker.admin == ""
    assert broker.stop() == 0


def test_a_start_that_takes_long_answers_meanwhile(make_broker: MakeBroker) -> None:
    """A checkpoint that is a pipe holds up the opening of the logs until it is written to."""
    broker = make_broker({"admin.listeners": f"http://127.0.0.1:{free_port()}"})
    broker.start().stop()
    checkpoint = broker.data_dir / "recovery-point-offset-checkpoint"
    checkpoint.unlink(missing_ok=True)  # a broker without logs writes none
    os.mkfifo(checkpoint)
    url = broker.overrides["admin.listeners"]
    with ThreadPoolExecutor(1) as pool:
        starting = pool.submit(broker.start)
        try:
            health, ready = when_bound(url, "/healthz"), when_bound(url, "/readyz")
        finally:
            checkpoint.write_text("0\n0\n")
        starting.result(60)
    assert health.status == 200
    assert ready.status == 503 and "[-] kafka-requests: starting\n" in ready.text
    assert get(broker, "/readyz").status == 200


def when_bound(url: str, path: str) -> Page:
    deadline = time.monotonic() + 60
    while True:
        try:
            with urllib.request.urlopen(url + path, timeout=60) as answer:
                return Page(answer.status, answer.read().decode())
        except urllib.error.HTTPError as error:
            return Page(error.code, error.read().decode())
        except OSError:
            assert time.monotonic() < deadline


def test_connections_are_kept_for_the_next_scrape(broker: Broker) -> None:
    with socket.create_connection(address(broker), timeout=60) as scraper:
        for _ in range(3):
            scraper.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
            answer = b""
            while not answer.endswith(b"ok\n"):
                answer += scraper.recv(4096)
            assert answer.startswith(b"HTTP/1.1 200")
