"""Clients of four addresses of IPv6, in a network of its own: run by test_unauthenticated.py."""

import socket
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

from kbroker.security.session import ANONYMOUS
from tests.unit.net.harness import Rig, eventually

HOSTS = ("fd00:1::1", "fd00:1::", "fd00:1::1:2:3:4", "fd00:2::1")


def is_ended(client: socket.socket) -> bool:
    with suppress(ConnectionResetError):
        return client.recv(1) == b""
    return True


def connected(rig: Rig, host: str) -> socket.socket:
    return socket.create_connection(("::1", rig.port), 60, source_address=(host, 0))


def main() -> None:
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    for host in HOSTS:
        subprocess.run(["ip", "-6", "address", "add", f"{host}/128", "dev", "lo"], check=True)
    listener = {"authenticates": True, "principal": ANONYMOUS}
    rig = Rig(Path(sys.argv[1]), hosts=("::1",), listener=listener, opening_per_ip_max=3)
    for _ in range(2):  # the counts are given back
        taken = [connected(rig, host) for host in HOSTS]
        eventually(lambda: rig.total("connections") == 4)
        assert all(is_ended(connected(rig, host)) for host in HOSTS[:3])
        taken.append(connected(rig, HOSTS[3]))
        eventually(lambda: rig.total("connections") == 5)
        for client in taken:
            client.close()
        eventually(lambda: rig.total("connections") == 0)
    rig.close()


if __name__ == "__main__":
    main()
