"""A block of `perf share-groups delivery` ends with its last record, not with members' waits."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any, cast

import pytest

from perf.cells import CellError
from perf.share_groups import delivery
from perf.share_groups.delivery import Line, drain, end_waits
from perf.share_groups.members import Member, Span, Taken


class ByCount:
    """A member whose responses are a byte: how many records they have."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, list[Span]]] = []

    def fetch(self, spans: list[Span], *_: int) -> bytes:
        self.asked.append(("fetch", list(spans)))
        return b"?"

    def acknowledge(self, spans: list[Span]) -> bytes:
        self.asked.append(("acknowledge", list(spans)))
        return b"!"

    def fetched(self, data: bytes) -> Taken:
        return Taken([(0, data[0] - 1)] if data[0] else [])

    def acknowledged(self, data: bytes) -> None:
        assert data == b"\0"


class Beside:
    """A line, and the broker's end of its connection."""

    def __init__(self, stack: ExitStack) -> None:
        ours, self._theirs = (stack.enter_context(each) for each in socket.socketpair())
        self.member = ByCount()
        self.line = Line(cast(Member, self.member), ours)

    def answers(self, *counts: int) -> None:
        for count in counts:
            self._theirs.sendall((1).to_bytes(4, "big") + bytes([count]))


@pytest.fixture
def two(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Beside, Beside]]:
    monkeypatch.setattr(delivery, "STALL_S", 0.2)
    with ExitStack() as stack:
        yield Beside(stack), Beside(stack)


def test_a_block_does_not_wait_for_fetches_that_get_nothing(two: tuple[Beside, Beside]) -> None:
    busy, idle = two
    busy.answers(5, 0)
    assert drain([busy.line, idle.line], 5) == [idle.line]
    assert busy.member.asked == [("fetch", []), ("acknowledge", [(0, 4)])]
    idle.answers(0)
    end_waits([idle.line])
    assert idle.line.spans == [] and not idle.line.is_last


def test_a_block_waits_for_its_last_acknowledgement(two: tuple[Beside, Beside]) -> None:
    busy, idle = two
    busy.answers(5)
    with pytest.raises(CellError, match="no response"):
        drain([busy.line, idle.line], 5)


def test_records_are_acknowledged_by_the_next_fetch(two: tuple[Beside, Beside]) -> None:
    busy, _ = two
    busy.answers(2, 0, 3, 0)
    assert drain([busy.line], 5) == []
    wanted: list[Any] = [("fetch", []), ("fetch", [(0, 1)]), ("fetch", []),
                         ("acknowledge", [(0, 2)])]  # fmt: skip
    assert busy.member.asked == wanted


def test_records_that_come_twice_are_an_error(two: tuple[Beside, Beside]) -> None:
    busy, idle = two
    busy.answers(6, 0)
    with pytest.raises(CellError, match="1 records were delivered twice"):
        drain([busy.line], 5)
    idle.answers(1)
    with pytest.raises(CellError, match="1 records were delivered twice"):
        end_waits([idle.line])
