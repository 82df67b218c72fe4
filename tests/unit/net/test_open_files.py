"""EMFILE: accepting pauses, nothing else does, and it goes on when there is room again."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from tests.unit.net.harness import Client, cold_frame, eventually

SPARE = 6


def test_accepting_pauses_at_the_limit_and_recovers(tmp_path: Path) -> None:
    child = subprocess.Popen(
        [sys.executable, "-m", "tests.unit.net.open_files_child", str(tmp_path), str(SPARE)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert child.stdin is not None and child.stdout is not None
    clients: list[Client] = []

    def figures() -> dict[str, int]:
        assert child.stdin is not None and child.stdout is not None
        child.stdin.write("\n")
        child.stdin.flush()
        out: dict[str, int] = json.loads(child.stdout.readline())
        return out

    try:
        port = int(child.stdout.readline())
        clients += [Client(port) for _ in range(SPARE + 4)]
        eventually(lambda: figures()["paused"] >= 2, "accepting has paused, and tried again")
        assert figures()["connections"] == SPARE
        # Those that are in are served as ever, again and again.
        for i in range(50):
            clients[i % SPARE].send(cold_frame(b"in", i))
            assert clients[i % SPARE].receive_cold() == (i, b"in")
        waiting = clients[SPARE:]
        for client in waiting:
            client.send(cold_frame(b"was waiting"))
        assert not any(client.has_bytes() for client in waiting)
        for client in clients[:4]:
            client.close()
        for client in waiting:
            assert client.receive_cold() == (1, b"was waiting")
        assert figures()["accepted"] == SPARE + 4
    finally:
        for client in clients:
            client.close()
        child.stdin.close()
        assert child.wait(60) == 0
