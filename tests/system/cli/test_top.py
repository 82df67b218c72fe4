"""`kbroker top` against a running broker: figures that add up, in every form."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys

import pytest

from kbroker.cli.main import main
from kbroker.peer.client import Client
from kbroker.peer.groups import Groups
from kbroker.types import TopicPartition
from tests.system.cli.conftest import MakeTopic, Run


def test_frames(run: Run, client: Client, make_topic: MakeTopic, name: str) -> None:
    topic = make_topic(2, records=10)
    Groups(client).commit(name, {TopicPartition(topic, 0): 4, TopicPartition(topic, 1): 9})
    status, out, err = run("top", "-n", "2", "-d", "0.1", "-o", "json")
    assert (status, err) == (0, "")
    first, second = (json.loads(line) for line in out.splitlines())
    assert (first["messages_per_s"], second["messages_per_s"]) == (None, 0.0)
    (row,) = (row for row in second["topics"] if row["topic"] == topic)
    assert (row["partitions"], row["end_offsets"], row["messages_per_s"]) == (2, 20, 0.0)
    assert row["size_bytes"] > 0
    (group,) = (row for row in second["groups"] if row["group"] == name)
    assert (group["state"], group["lag"], group["lag_max"]) == ("Empty", 7, 6)
    assert len(run("top", "-o", "json")[1].splitlines()) == 1
    status, out, _ = run("top", "-n", "1", "--rows", "10000")
    assert status == 0 and f"{topic} " in out and f"{name} " in out


def test_no_server_there(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["top", "-n", "1", "-b", "127.0.0.1:1"]) == 1
    captured = capsys.readouterr()
    assert captured.out == "" and captured.err.count("\n") == 1


def read(terminal: int) -> bytes:
    """Nothing once the other end is closed, which a terminal calls an error."""
    try:
        return os.read(terminal, 65536)
    except OSError:
        return b""


def test_live_on_a_terminal_until_interrupted(bootstrap: str, make_topic: MakeTopic) -> None:
    """Drawn on the alternate screen, which is left again: status 0, nothing on standard error."""
    topic = make_topic()
    ours, theirs = pty.openpty()
    words = ["top", "-d", "0.2", "--rows", "10000", "-b", bootstrap]
    environment = {**os.environ, "TERM": "xterm", "LINES": "400", "COLUMNS": "120"}
    with subprocess.Popen(
        [sys.executable, "-m", "kbroker", *words],
        stdin=theirs, stdout=theirs, stderr=subprocess.PIPE, env=environment,
    ) as process:  # fmt: skip
        os.close(theirs)
        try:
            seen = b""
            while topic.encode() not in seen:
                seen += os.read(ours, 65536)
            process.send_signal(signal.SIGINT)
            seen += b"".join(iter(lambda: read(ours), b""))
            assert process.stderr is not None
            assert process.stderr.read() == b""
            assert process.wait(60) == 0
        finally:
            process.kill()  # or a failure would wait for it
    assert b"\x1b[?1049l" in seen
    os.close(ours)
