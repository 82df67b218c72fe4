"""The admin port: cheap until a request comes, one worker afterwards, nothing left at the end."""

from __future__ import annotations

import asyncio
import errno
import gc
import logging
import os
import socket
import threading
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

import pytest

from kbroker.config.admin_listeners import AdminListener
from kbroker.errors import AddressInUse, UserError
from kbroker.limits import ADMIN_JOBS_MAX, ADMIN_QUESTIONS_MAX
from kbroker.own_thread import OwnThread
from kbroker.peer.control_loop import ControlLoop
from kbroker.server import admin_port
from kbroker.server.admin_port import THREAD_NAME, AdminPort, Busy
from tests.unit.net.harness import eventually

LOOPBACK = (AdminListener("127.0.0.1", 0),)
JOBS_MAX = ADMIN_JOBS_MAX + ADMIN_QUESTIONS_MAX


class FakeHttp:
    """Counts what it is asked for."""

    def __init__(self) -> None:
        self.served: Sequence[socket.socket] = ()
        self.served_by = ""
        self.starts = 0
        self.stops = 0
        self.started = threading.Event()
        self.fails = 0  # so many times yet
        self.has_failed = threading.Event()

    threads: ClassVar[tuple[OwnThread, ...]] = ()

    def serve(self, sockets: Sequence[socket.socket]) -> FakeHttp:
        if self.fails:
            self.fails -= 1
            self.has_failed.set()
            raise OSError(errno.EMFILE, "Too many open files")
        self.served = list(sockets)
        self.served_by = threading.current_thread().name
        return self

    async def start(self) -> None:
        self.starts += 1
        self.started.set()

    async def stop(self) -> None:
        self.stops += 1


@pytest.fixture
def loop() -> Iterator[ControlLoop]:
    loop = ControlLoop()
    loop.start()
    yield loop
    loop.stop()


@pytest.fixture
def http() -> FakeHttp:
    return FakeHttp()


@pytest.fixture
def port(loop: ControlLoop, http: FakeHttp) -> Iterator[AdminPort]:
    gc.collect()  # what other tests have dropped goes now, or in the midst of this one
    files = {*os.listdir("/proc/self/fd")}
    port = AdminPort(http.serve, loop.submit)
    yield port
    port.stop()
    assert THREAD_NAME not in {thread.name for thread in threading.enumerate()}
    # Those of others may have gone; a client that another test left may be about to connect.
    eventually(lambda: {*os.listdir("/proc/self/fd")} <= files, "no file is left open")


def address_of(port: AdminPort) -> tuple[str, int]:
    host, _, number = port.url.removeprefix("http://").rpartition(":")
    return host.strip("[]"), int(number)


def connect(port: AdminPort) -> socket.socket:
    return socket.create_connection(address_of(port), timeout=60)


def test_nothing_is_served_before_a_request_comes(port: AdminPort, http: FakeHttp) -> None:
    port.bind(LOOPBACK, may_be_taken=False)
    port.start()
    port.stop()
    assert (http.served, http.starts, http.stops) == ((), 0, 0)


def test_the_first_connection_has_it_served(port: AdminPort, http: FakeHttp) -> None:
    port.bind(LOOPBACK, may_be_taken=False)
    port.start()
    with connect(port):
        assert http.started.wait(60)
    port.stop()
    assert http.served_by == THREAD_NAME
    assert len(http.served) == http.starts == 1
    assert http.stops >= 1


def test_a_request_that_fails_with_the_first_connection_is_tried_again(
    port: AdminPort, http: FakeHttp, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(admin_port, "TASK_RETRY_MS", 1)
    http.fails = 3
    port.bind(LOOPBACK, may_be_taken=False)
    port.start()
    with connect(port):
        assert http.started.wait(60)
    assert port.failures.count == 3 and http.starts == 1


def test_a_stop_ends_the_pause_between_two_tries(port: AdminPort, http: FakeHttp) -> None:
    http.fails = 1_000_000
    port.bind(LOOPBACK, may_be_taken=False)
    port.start()
    with connect(port):
        assert http.has_failed.wait(60)
        port.stop()
    assert http.starts == 0


def test_work_is_done_by_the_thread_and_refused_beyond_the_bound(
    port: AdminPort, http: FakeHttp, loop: ControlLoop
) -> None:
    port.bind(LOOPBACK, may_be_taken=False)
    port.start()
    go = threading.Event()

    def job() -> str:
        assert go.wait(60)
        return threading.current_thread().name

    async def many() -> list[Any]:
        tasks = [asyncio.ensure_future(port.run(job)) for _ in range(JOBS_MAX + 1)]
        await asyncio.sleep(0)  # each has begun
        go.set()
        return await asyncio.gather(*tasks, return_exceptions=True)

    with connect(port):
        assert http.started.wait(60)
        *done, refused = loop.submit(many()).result(60)
    assert done == [THREAD_NAME] * JOBS_MAX
    assert isinstance(refused, Busy)


def test_a_job_that_fails_is_its_callers_alone(
    port: AdminPort, http: FakeHttp, loop: ControlLoop
) -> None:
    port.bind(LOOPBACK, may_be_taken=False)
    port.start()
    with connect(port):
        assert http.started.wait(60)
        with pytest.raises(ZeroDivisionError):
            loop.submit(port.run(lambda: 1 // 0)).result(60)
        assert loop.submit(port.run(lambda: 5)).result(60) == 5


def test_both_loopbacks_share_a_free_port(port: AdminPort) -> None:
    listeners = (AdminListener("127.0.0.1", 0), AdminListener("::1", 0))
    port.bind(listeners, may_be_taken=False)
    port.start()
    number = address_of(port)[1]
    with socket.create_connection(("127.0.0.1", number), timeout=60):
        pass
    if os.path.exists("/proc/net/if_inet6"):
        with socket.create_connection(("::1", number), timeout=60):
            pass


def test_an_empty_host_is_every_address(port: AdminPort) -> None:
    port.bind((AdminListener("", 0),), may_be_taken=False)
    port.start()
    assert address_of(port)[0] == "127.0.0.1"
    with connect(port):
        pass


def test_a_port_that_is_taken(port: AdminPort, caplog: pytest.LogCaptureFixture) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        listeners = (AdminListener("127.0.0.1", taken.getsockname()[1]),)
        with pytest.raises(AddressInUse, match=r"admin\.listeners"):
            port.bind(listeners, may_be_taken=False)
        with caplog.at_level(logging.WARNING, "kbroker.admin"):
            port.bind(listeners, may_be_taken=True)
    assert "taken" in caplog.text
    assert port.url == ""
    port.start()


def test_an_address_of_another_machine(port: AdminPort) -> None:
    with pytest.raises(UserError, match="cannot listen"):
        port.bind((AdminListener("192.0.2.1", 0),), may_be_taken=True)
