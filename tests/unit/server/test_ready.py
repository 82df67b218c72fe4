"""The ready line and the ready file."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import pytest

from kbroker.errors import UserError
from kbroker.server.ready import ready_line, remove_ready_file, write_ready_file


def test_the_line_is_the_one_that_tools_search_for() -> None:
    line = ready_line(0, 0.214, "127.0.0.1", 9092)
    assert line == "[KafkaServer id=0] started (kbroker) in 0.21 s on 127.0.0.1:9092"
    assert re.search(r"\[KafkaServer id=\d+\] started", line)
    assert ready_line(1, 0.2, "::1", 9092).endswith("on [::1]:9092")


def test_the_file_has_the_node_and_its_addresses(tmp_path: Path) -> None:
    path = tmp_path / "ready.json"
    path.write_text("an older one")
    seen: list[str] = []
    write_ready_file(
        path,
        node_id=0,
        bootstrap="127.0.0.1:1",
        admin="",
        say=lambda: seen.append(path.read_text()),
    )
    assert seen == ["an older one"]
    assert json.loads(path.read_text()) == {
        "pid": os.getpid(),
        "node_id": 0,
        "bootstrap": "127.0.0.1:1",
        "admin": "",
    }
    assert list(tmp_path.iterdir()) == [path]
    remove_ready_file(path)
    remove_ready_file(path)
    assert not path.exists()


def test_a_place_that_cannot_be_written_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="ready file") as caught:
        write_ready_file(
            tmp_path / "no" / "ready", node_id=1, bootstrap="", admin="", say=lambda: None
        )
    assert caught.value.fix
