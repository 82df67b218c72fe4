"""The audit log: lines, bounds, and a disk that is full or hangs."""

from __future__ import annotations

import errno
import json
import os
import stat
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kbroker import limits
from kbroker.clock import ManualClock
from kbroker.security import audit
from kbroker.security.audit import AuditFile, AuditLog, Bounds, Kind, denied, refused_login
from kbroker.security.denials import Denials
from kbroker.security.rights import Operation, Resource, ResourceType
from kbroker.types import ApiKey
from tests.unit.net.harness import eventually

WAIT_S = 10


class World:
    def __init__(self, path: Path, bounds: Bounds) -> None:
        self.path = path
        self.clock = ManualClock()
        self.log = AuditLog(str(path), bounds, self.clock, 7)
        self.log.start()

    def note(self, kind: Kind = Kind.CHANGE, **fields: object) -> bool:
        return self.log.note(kind, lambda: {"event": "Test", **fields})

    def records(self) -> list[dict[str, Any]]:
        """All that was noted, after a stop."""
        self.log.stop()
        return [json.loads(line) for line in self.path.read_text().splitlines()]


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Callable[..., World]]:
    made: list[World] = []

    def one(bytes_max: int = 1 << 20, files_max: int = 3, lines_per_second: int = 100_000) -> World:
        made.append(World(tmp_path / "audit.log", Bounds(bytes_max, files_max, lines_per_second)))
        return made[-1]

    yield one
    for each in made:
        each.log.stop()


def test_a_line(make: Callable[..., World]) -> None:
    world = make()
    world.clock.set_wall_ms(1_764_462_067_042)
    assert world.note(Kind.LOGIN, principal="User:\n\x1b[31m\u202e")
    text = world.path.read_text() if world.log.stop() is None else ""
    assert text == (
        '{"time":"2025-11-30T00:21:07.042Z","node_id":7,"kind":"authentication","event":"Test",'
        '"principal":"User:\\n\\u001b[31m\\u202e"}\n'
    )
    assert stat.S_IMODE(world.path.stat().st_mode) == 0o600


def test_each_kind_has_its_rate_and_the_rest_is_counted(make: Callable[..., World]) -> None:
    world = make(lines_per_second=2)
    assert [world.note(Kind.LOGIN, n=n) for n in range(5)] == [True, True, False, False, False]
    assert world.note(Kind.CHANGE, n=9)
    world.clock.advance(1_000)
    assert world.note(Kind.LOGIN, n=5)
    records = world.records()
    assert [each["n"] for each in records if each["event"] == "Test"] == [0, 1, 9, 5]
    (left_out,) = (each for each in records if each["event"] == "LeftOut")
    assert (left_out["kind"], left_out["count"], left_out["because_of"]) == (
        "authentication", 3, "rate",
    )  # fmt: skip


def test_the_count_is_written_although_nothing_more_comes(make: Callable[..., World]) -> None:
    world = make(lines_per_second=1)
    for _ in range(3):
        world.note()

    def counted() -> bool:
        world.clock.advance(limits.AUDIT_LEFT_OUT_PERIOD_MS)
        counts = [json.loads(line).get("count", 0) for line in world.path.read_text().splitlines()]
        return sum(counts) == 2

    eventually(counted, "a line with the count")


def test_files_turn_over_and_the_oldest_goes(make: Callable[..., World], tmp_path: Path) -> None:
    world = make(bytes_max=1_000, files_max=3)
    for n in range(50):
        world.note(n=n, text="x" * 100)
    world.log.stop()
    names = sorted(each.name for each in tmp_path.iterdir())
    assert names == ["audit.log", "audit.log.1", "audit.log.2"]
    seen = []
    for name in reversed(names):
        file = tmp_path / name
        assert file.stat().st_size <= 1_000
        seen += [json.loads(line)["n"] for line in file.read_text().splitlines()]
    assert seen == list(range(50 - len(seen), 50)) and len(seen) > 10


def test_one_file_alone(make: Callable[..., World], tmp_path: Path) -> None:
    world = make(bytes_max=1_000, files_max=1)
    for n in range(50):
        world.note(n=n, text="x" * 100)
    assert world.records()[-1]["n"] == 49
    assert [each.name for each in tmp_path.iterdir()] == ["audit.log"]


def test_a_file_that_another_program_moved(make: Callable[..., World], tmp_path: Path) -> None:
    world = make()
    written = threading.Event()
    world.log.note(Kind.CHANGE, lambda: {"n": 1})
    world.log.note(Kind.CHANGE, lambda: written.set() or {"n": 2})
    assert written.wait(WAIT_S)
    os.replace(world.path, tmp_path / "moved")
    world.note(n=3)
    records = world.records()
    moved = [json.loads(line) for line in (tmp_path / "moved").read_text().splitlines()]
    assert [each["n"] for each in (*moved, *records)] == [1, 2, 3] and moved


def test_a_line_after_one_that_was_cut(make: Callable[..., World], tmp_path: Path) -> None:
    (tmp_path / "audit.log").write_bytes(b'{"time":"20')
    world = make()
    world.note(n=1)
    world.log.stop()
    first, second = world.path.read_text().splitlines()
    assert first == '{"time":"20' and json.loads(second)["n"] == 1


# --- a disk that does not take lines --------------------------------------------------------------


def test_a_full_disk_costs_lines_and_a_count(
    make: Callable[..., World], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    world, write, room = make(), os.write, [12, 0, 0]
    failed = threading.Event()

    def full(descriptor: int, data: bytes) -> int:
        if not room:
            return write(descriptor, data)
        left = room.pop(0)
        if not left:
            if not room:
                failed.set()
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return write(descriptor, data[:left])

    monkeypatch.setattr(os, "write", full)
    assert world.note(n=1) and world.note(n=2)
    assert failed.wait(WAIT_S)
    world.note(n=3)
    world.log.stop()
    cut, *rest = world.path.read_text().splitlines()
    assert cut == '{"time":"202'
    records = [json.loads(line) for line in rest]
    assert sorted(each.get("n") or 0 for each in records) == [0, 3]
    assert [each["count"] for each in records if each["event"] == "LeftOut"] == [2]
    assert "cannot be written: No space left on device" in caplog.text


def test_a_disk_that_hangs_stops_no_request(
    make: Callable[..., World], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(audit, "AUDIT_WAITING_MAX", 3)
    world, hangs, goes_on = make(), threading.Event(), threading.Event()
    write = AuditFile.write

    def hang(file: AuditFile, line: bytes) -> None:
        hangs.set()
        assert goes_on.wait(WAIT_S)
        write(file, line)

    monkeypatch.setattr(AuditFile, "write", hang)
    assert world.note(n=0)
    assert hangs.wait(WAIT_S)
    assert [world.note(n=n) for n in range(1, 6)] == [True, True, True, False, False]
    goes_on.set()
    records = world.records()
    assert [each["n"] for each in records if "n" in each] == [0, 1, 2, 3]
    assert sum(each["count"] for each in records if each["event"] == "LeftOut") == 2


def test_requests_that_wait_have_a_bound(make: Callable[..., World]) -> None:
    world = make()
    size = limits.AUDIT_WAITING_BYTES_MAX + 1
    assert not world.log.note(Kind.CHANGE, dict, size)
    assert world.note(n=1)
    left_out, record = sorted(world.records(), key=lambda each: "n" in each)
    assert left_out["because_of"] == "queue" and record["n"] == 1


def test_a_record_that_cannot_be_made(make: Callable[..., World]) -> None:
    world = make()

    def raises() -> dict[str, object]:
        raise ZeroDivisionError

    world.log.note(Kind.CHANGE, raises)
    world.note(n=1)
    first, second = world.records()
    assert first["event"] == "Unreadable" and first["error"] == "ZeroDivisionError"
    assert second["n"] == 1


def test_a_long_line_loses_its_items(make: Callable[..., World]) -> None:
    world = make()
    world.note(items=["x" * limits.AUDIT_LINE_BYTES_MAX])
    (record,) = world.records()
    assert "items" not in record and record["cut_bytes"] > limits.AUDIT_LINE_BYTES_MAX


def test_a_file_that_cannot_be(tmp_path: Path) -> None:
    log = AuditLog(str(tmp_path / "none" / "audit.log"), Bounds(1, 1, 1), ManualClock(), 1)
    with pytest.raises(FileNotFoundError):
        log.start()


def test_a_pipe_or_a_device_is_no_file(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (str(tmp_path / "pipe"), "/dev/null", str(tmp_path)):
        with pytest.raises(OSError):
            AuditFile(path, Bounds(1, 1, 1)).open()


# --- what is in a record --------------------------------------------------------------------------


def test_a_login_that_was_refused() -> None:
    assert refused_login("anna\n", "10.0.0.7", "SECURE", "why")() == {
        "event": "Authentication",
        "claimed_user": "anna\\n",
        "host": "10.0.0.7",
        "listener": "SECURE",
        "outcome": "refused",
        "reason": "why",
    }


def test_denials_first_and_repeated() -> None:
    clock, seen = ManualClock(), []

    def noted(*arguments: Any) -> None:
        seen.append(denied(*arguments)())

    denials = Denials(clock, noted)
    resource = Resource(ResourceType.TOPIC, "orders")
    for _ in range(3):
        clock.advance(1_000)
        denials.note(
            "User:anna", "10.0.0.7", Operation.READ, resource, ApiKey.FETCH, 1, "DefaultDeny"
        )
    clock.advance(limits.DENIALS_PERIOD_MS)
    denials.write()
    first, repeated = seen
    assert first == {
        "event": "Fetch",
        "principal": "User:anna",
        "host": "10.0.0.7",
        "outcome": "refused",
        "operation": "READ",
        "resource_type": "Topic",
        "resource": "orders",
        "rule": "DefaultDeny",
    }
    assert repeated["count"] == 2
    assert str(repeated["first"]) < str(repeated["last"])
