"""Carries the packets between the networks of a run, drops some and is late with others.

    python -m tests.cluster.router HOST[,HOST]=DEVICE ...

DEVICE is an open network device, HOST the last byte of its address. A line on standard
input replaces the rules: {"drop": [[1, 2], ...], "delay_ms": [[1, 2, 50], ...]}, each from, to.
Packets from one host to another keep their order. The end of the input is the end.

`Network` is the side of the run: it makes the networks, starts this program and tells it the rules.
"""

from __future__ import annotations

import contextlib
import heapq
import json
import os
import select
import subprocess
import sys
import time
from typing import Any, Final

from lab.namespaces import Namespace
from tests.cluster.namespaces import MTU, open_device

SUBNET: Final = "10.77.0"
CLIENTS: Final = 100
ZOOKEEPER: Final = 200
_SOURCE: Final = 15  # the last byte of the address, in a header of IPv4
_DESTINATION: Final = 19
_PACKETS_A_TURN: Final = 64
_INPUT: Final = 0

Way = tuple[int, int]


class Router:
    def __init__(self, devices: dict[int, int]) -> None:
        """`devices` by host."""
        self._devices = devices
        self._dropped: set[Way] = set()
        self._delay_s: dict[Way, float] = {}
        self._free_s: dict[Way, float] = {}  # nothing overtakes what was sent before it
        self._late: list[tuple[float, int, int, bytes]] = []
        self._count = 0

    def set_rules(self, rules: dict[str, Any]) -> None:
        self._dropped = {(source, to) for source, to in rules.get("drop", ())}
        self._delay_s = {(source, to): ms / 1000 for source, to, ms in rules.get("delay_ms", ())}

    def take(self, packet: bytes, now_s: float) -> None:
        if len(packet) <= _DESTINATION or packet[0] >> 4 != 4:
            return
        way = packet[_SOURCE], packet[_DESTINATION]
        device = self._devices.get(way[1])
        if device is None or way in self._dropped:
            return
        due_s = max(now_s + self._delay_s.get(way, 0.0), self._free_s.get(way, 0.0))
        if due_s <= now_s:
            self._give(device, packet)
            return
        self._free_s[way] = due_s
        self._count += 1
        heapq.heappush(self._late, (due_s, self._count, device, packet))

    def give_what_is_due(self, now_s: float) -> float | None:
        """Seconds until the next packet is."""
        while self._late and self._late[0][0] <= now_s:
            _, _, device, packet = heapq.heappop(self._late)
            self._give(device, packet)
        return self._late[0][0] - now_s if self._late else None

    def _give(self, device: int, packet: bytes) -> None:
        with contextlib.suppress(OSError):  # full: it is lost, as packets are
            os.write(device, packet)


def main(words: list[str]) -> None:
    devices: dict[int, int] = {}
    for word in words:
        hosts, _, device = word.partition("=")
        devices |= {int(host): int(device) for host in hosts.split(",")}
    router = Router(devices)
    poll = select.epoll()
    for each in {_INPUT, *devices.values()}:
        poll.register(each, select.EPOLLIN)
    while True:
        wait_s = router.give_what_is_due(time.monotonic())
        for ready, _ in poll.poll(-1 if wait_s is None else wait_s):
            if ready == _INPUT:
                line = sys.stdin.readline()
                if not line:
                    return
                router.set_rules(json.loads(line))
                print("set", flush=True)
                continue
            for _ in range(_PACKETS_A_TURN):
                try:
                    packet = os.read(ready, MTU + 100)
                except OSError:
                    break
                router.take(packet, time.monotonic())


class Network:
    """A network for each broker, and this process's own; a process in one reaches all others."""

    def __init__(self, nodes: tuple[int, ...]) -> None:
        self.namespaces = {node: Namespace.new() for node in nodes}
        devices = {str(node): self._device(node) for node in nodes}
        hub = open_device(*(f"{SUBNET}.{host}" for host in (CLIENTS, ZOOKEEPER)))
        devices[f"{CLIENTS},{ZOOKEEPER}"] = hub
        self._dropped: set[Way] = set()
        self._delay_ms: dict[Way, int] = {}
        self._router = subprocess.Popen(
            [sys.executable, "-m", "tests.cluster.router",
             *(f"{hosts}={device}" for hosts, device in devices.items())],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
            pass_fds=tuple(devices.values()), start_new_session=True,
        )  # fmt: skip
        for device in devices.values():
            os.close(device)
        self._tell()

    def _device(self, node: int) -> int:
        with self.namespaces[node].entered():
            return open_device(f"{SUBNET}.{node}")

    def drop(self, *ways: Way) -> None:
        self._dropped |= {*ways}
        self._tell()

    def delay(self, milliseconds: int, *ways: Way) -> None:
        self._delay_ms |= dict.fromkeys(ways, milliseconds)
        self._tell()

    def mend(self) -> None:
        self._dropped.clear()
        self._delay_ms.clear()
        self._tell()

    def _tell(self) -> None:
        delayed = [(*way, ms) for way, ms in self._delay_ms.items()]
        assert self._router.stdin is not None
        assert self._router.stdout is not None
        self._router.stdin.write(
            json.dumps({"drop": sorted(self._dropped), "delay_ms": delayed}) + "\n"
        )
        self._router.stdin.flush()
        if not self._router.stdout.readline():
            raise RuntimeError("the router has ended")

    def close(self) -> None:
        self._router.kill()
        self._router.wait()
        for each in self.namespaces.values():
            each.close()


if __name__ == "__main__":
    main(sys.argv[1:])
