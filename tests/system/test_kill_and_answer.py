"""The first answer after kill -9 under load: a bound of time, alone on the machine."""

from __future__ import annotations

import socket
import struct
import time

import pytest

from tests.clients.adapters import Admin
from tests.clients.adapters.confluent import eventually
from tests.support import servers
from tests.support.alone import delay
from tests.system.test_kill import ACKNOWLEDGED_PER_ROUND, LOADS, PARTITIONS, TOPIC, Load

pytestmark = [pytest.mark.client, pytest.mark.alone]

FIRST_ANSWER_S_MAX = 1.0  # from exec on; `perf startup` measures it


def test_the_first_answer_after_a_kill_comes_soon() -> None:
    with servers.make() as server:
        Admin(server.bootstrap, settle=servers.reference()).create(TOPIC, PARTITIONS)
        load = Load(server.bootstrap, "one", LOADS[0])
        load.start()
        try:
            eventually(lambda: len(load.acknowledged) > ACKNOWLEDGED_PER_ROUND)
            server.kill9()
        finally:
            load.finish()
        started = time.monotonic()
        server.start()
        first_answer(server.bootstrap)
        took_s = time.monotonic() - started
        if not servers.reference():
            assert took_s <= FIRST_ANSWER_S_MAX * delay()
        servers.assert_nothing_unexpected(server)


def first_answer(bootstrap: str) -> None:
    """One ApiVersions request, version 0, and its answer."""
    host, _, port = bootstrap.rpartition(":")
    with socket.create_connection((host, int(port)), timeout=60) as connection:
        request = struct.pack(">hhih", 18, 0, 7, -1)
        connection.sendall(struct.pack(">i", len(request)) + request)
        answer = connection.recv(10, socket.MSG_WAITALL)
    _size, correlation_id, error = struct.unpack(">iih", answer)
    assert (correlation_id, error) == (7, 0)
