"""Data directories that are nearly full: who is refused there, and what goes."""

from __future__ import annotations

from pathlib import Path
from uuid import UUID

import pytest

from kbroker.clock import ManualClock
from kbroker.errors import ErrorCode, KafkaError
from kbroker.log.upkeep.free_space import FULL_BYTES, MAKE_ROOM_PERIOD_MS, FreeSpace
from tests.support.led_log import LedLog, LedLogManager
from tests.support.record_batches import build_batch
from tests.unit.log.conftest import OpenLog

LEAST = 1 << 30


class Volume:
    """A disk whose free bytes a test says, and one log on it."""

    def __init__(self, log: LedLog) -> None:
        self.log = log
        self.clock = ManualClock()
        self.free: int | OSError = 10 * LEAST
        self.least = LEAST
        self.rooms_made = 0
        self.own: set[str] = set()
        self._space = FreeSpace(
            lambda: [log.path.parent], lambda: [log.log], self.own.__contains__, lambda: self.least,
            self._make_room, self.clock, self._free_bytes,
        )  # fmt: skip

    def _free_bytes(self, directory: Path) -> int:
        assert directory == self.log.path.parent
        if isinstance(self.free, OSError):
            raise self.free
        return self.free

    def _make_room(self) -> None:
        self.rooms_made += 1

    def look(self, free: int | OSError) -> None:
        self.free = free
        for _ in self._space.look():
            pass


def test_a_directory_that_is_not_there_is_nobodys_trouble(
    volume: Volume, caplog: pytest.LogCaptureFixture
) -> None:
    volume.look(FileNotFoundError(2, "No such file or directory"))
    assert not caplog.text and append(volume.log) is ErrorCode.NONE


@pytest.fixture
def volume(open_log: OpenLog) -> Volume:
    return Volume(open_log())


def append(log: LedLog) -> ErrorCode:
    try:
        log.append(build_batch([b"a"]))
    except KafkaError as error:
        return error.code
    return ErrorCode.NONE


def test_producers_are_refused_until_there_is_room(volume: Volume) -> None:
    volume.look(LEAST)
    assert append(volume.log) is ErrorCode.NONE
    volume.look(LEAST - 1)
    assert append(volume.log) is ErrorCode.KAFKA_STORAGE_ERROR
    assert (volume.log.online, volume.log.failed_writes) == (True, 0)
    assert volume.log.read(0)
    volume.look(LEAST - 2)
    assert append(volume.log) is ErrorCode.KAFKA_STORAGE_ERROR
    volume.look(LEAST)
    assert append(volume.log) is ErrorCode.NONE


def test_writes_of_the_broker_itself_go_on(volume: Volume) -> None:
    volume.own.add("words")
    volume.look(0)
    assert append(volume.log) is ErrorCode.NONE


def test_a_bound_that_is_taken_back_refuses_no_producer(volume: Volume) -> None:
    volume.look(0)
    volume.least = 0
    volume.look(0)
    assert append(volume.log) is ErrorCode.NONE


def test_a_disk_that_does_not_answer_changes_nothing(volume: Volume) -> None:
    volume.look(0)
    volume.look(OSError(5, "Input/output error"))
    assert append(volume.log) is ErrorCode.KAFKA_STORAGE_ERROR
    assert volume.rooms_made == 1


def test_room_is_made_at_once_and_then_now_and_again(volume: Volume) -> None:
    volume.least = 0
    volume.look(FULL_BYTES)
    assert volume.rooms_made == 0
    for _ in range(3):
        volume.look(FULL_BYTES - 1)
    assert volume.rooms_made == 1
    volume.clock.advance(MAKE_ROOM_PERIOD_MS)
    volume.look(FULL_BYTES - 1)
    assert volume.rooms_made == 2


def test_a_log_that_is_moved_off_a_full_disk_is_refused_no_longer(tmp_path: Path) -> None:
    manager = LedLogManager([tmp_path / "first", tmp_path / "second"], clock=ManualClock())
    manager.start()
    log = manager.open("words", 0, UUID(int=7), {})
    log.set_leadership(1, True, 1, 1)
    free = {tmp_path / "first": LEAST - 1, tmp_path / "second": LEAST}
    space = FreeSpace(
        lambda: list(free), manager.open_logs, lambda topic: False, lambda: LEAST, lambda: None,
        ManualClock(), free.__getitem__,
    )  # fmt: skip
    list(space.look())
    assert append(log) is ErrorCode.KAFKA_STORAGE_ERROR
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(manager.moves.mover, "_follow", lambda: None)
        manager.moves.mover.ask(log.name, str(tmp_path / "second"))
    manager.moves.mover.move_all()
    assert log.path.parent.name == "second"
    list(space.look())
    assert append(log) is ErrorCode.NONE
    manager.stop()
