"""The list of principals with most connections, which a page of the console has."""

from __future__ import annotations

import pytest

from kbroker import _net
from kbroker.security.session import Principal
from tests.unit.net.harness import Rig

PIECE = 200


def test_a_long_list_is_made_in_pieces(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    count = 10 * PIECE
    found = [(Principal("User", f"u{number:05d}"), 0, 1 + number % 3) for number in range(count)]
    found.append((Principal("User", "u00000"), 0, 9))  # of another mechanism, say
    pauses: list[None] = []
    monkeypatch.setattr(_net, "session_connections", lambda listeners: found)
    monkeypatch.setattr(_net, "let_go_of_gil", lambda: pauses.append(None))
    rows, total = rig.server.connections_by_principal(3)
    assert total == count
    most = [("User:u00000", 10), ("User:u00002", 3), ("User:u00005", 3)]
    assert [row[1:] for row in rows] == most
    assert len(pauses) == 2 * count // PIECE
