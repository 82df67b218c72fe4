"""The HTTP side fails in its first moments on the control loop: it is tried again."""

from __future__ import annotations

import errno
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from kbroker.admin import server
from kbroker.server import admin_port as admin_port_module
from tests.unit.admin.test_timeouts import admin_port


def test_a_start_that_fails_half_way_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the same sockets, be they listened on already."""
    monkeypatch.setattr(admin_port_module, "TASK_RETRY_MS", 1)
    tries: list[int] = []

    class Failing(server._Uvicorn):
        async def startup(self, sockets: Any = None) -> None:
            tries.append(len(sockets))
            if len(tries) > 1:
                await super().startup(sockets)
            if len(tries) < 3:
                raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr(server, "_Uvicorn", Failing)
    with admin_port(tmp_path) as (host, port):
        url = f"http://{host}:{port}/healthz"
        for _ in range(2):  # the second try may have taken the first connection before it failed
            with urllib.request.urlopen(url, timeout=20) as answer:
                assert answer.status == 200
    assert tries == [1, 1, 1]
