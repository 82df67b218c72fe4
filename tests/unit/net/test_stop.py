"""The end of the network: answers on their way leave, nothing waits for ever."""

from __future__ import annotations

import socket
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import pytest

from kbroker._net import SocketServer
from tests.unit.net.harness import SETTINGS, Client, Gate, Rig, cold_frame, eventually


def test_an_idle_server_stops_at_once(make_rig: Callable[..., Rig]) -> None:
    rig = make_rig(processors=3, handlers=4)
    clients = [rig.client() for _ in range(10)]
    eventually(lambda: rig.total("connections") == 10)
    rig.stop()
    assert all(client.ended() for client in clients)
    with pytest.raises(OSError):
        socket.create_connection(("127.0.0.1", rig.port), timeout=1)


def test_a_request_in_service_is_answered_before_the_end(make_rig: Callable[..., Rig]) -> None:
    gate = Gate()
    rig = make_rig(dispatch=gate)
    client = rig.client()
    client.send(cold_frame(b"on its way", 4))
    gate.wait_for(1)
    gate.release()
    rig.stop()
    assert client.receive_cold() == (4, b"on its way")
    assert client.ended()


def test_no_processor_waits_for_another_to_stop(make_rig: Callable[..., Rig]) -> None:
    def connections() -> list[int]:
        return [each["connections"] for each in rig.server.statistics()["processors"]]

    gate = Gate()
    rig = make_rig(processors=2, dispatch=gate)
    held = rig.client()
    eventually(lambda: sum(connections()) == 1)
    of_the_first = connections() == [1, 0]
    idle = rig.client()
    eventually(lambda: connections() == [1, 1])
    if not of_the_first:
        held, idle = idle, held
    held.send(cold_frame(b"held"))  # of the Processor that a stop comes to first
    gate.wait_for(1)
    with ThreadPoolExecutor(1) as pool:
        stopping = pool.submit(rig.stop)
        assert idle.ended()
        eventually(lambda: connections()[1] == 0)  # counted a moment after its end
        assert connections() == [1, 0], "the second was asked when the first had ended"
        gate.release()
        stopping.result()
    assert held.receive_cold() == (1, b"held")


def network_threads() -> set[str]:
    found = set()
    for task in Path("/proc/self/task").iterdir():
        with suppress(OSError):  # one that has just ended
            if (task / "comm").read_text().startswith("network-"):
                found.add(task.name)
    return found


def test_a_resize_beside_a_stop_leaves_no_thread() -> None:
    """The one that stops waits for a Processor, and the other has the interpreter meanwhile."""
    before, interval_s = network_threads(), sys.getswitchinterval()
    server = SocketServer(**(SETTINGS | {"processors": 2}))
    server.start()
    server.resize(1)
    eventually(lambda: len(network_threads() - before) == 1)
    other = threading.Thread(target=server.resize, args=(3,))
    sys.setswitchinterval(1_000)  # no thread is made to hand it over
    try:
        other.start()
        server.stop()
        other.join()
    finally:
        sys.setswitchinterval(interval_s)
    eventually(lambda: network_threads() <= before, "a thread that was not stopped")


def test_a_connection_beside_a_stop_is_closed() -> None:
    for _ in range(50):
        server = SocketServer(**SETTINGS)
        (bound,) = server.listen("PLAINTEXT", [("127.0.0.1", 0)], principal=None)
        server.start()
        client = Client(bound[1])
        server.stop()
        assert client.ended()
        client.close()


def test_stopping_twice_is_the_same_as_once(make_rig: Callable[..., Rig]) -> None:
    rig = make_rig()
    rig.stop()
    rig.server.stop()
    rig.server.stop_accepting()
