"""A broker's two data directories, and a log that moves between them."""

from __future__ import annotations

import math
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kbroker.clock import ManualClock
from kbroker.log.upkeep.mover import LogMover
from kbroker.protocol.record_batch import decode_batches
from kbroker.types import TopicPartition
from tests.support.led_log import LedLog, LedLogManager
from tests.support.record_batches import Record, build_batch

TOPIC_ID = uuid.UUID(int=77)
NAME = TopicPartition("words", 0)
SETTINGS: dict[str, Any] = {
    "segment_bytes": 1_500, "index_interval_bytes": 200, "segment_index_bytes": 4_096,
    "file_delete_delay_ms": 0,
}  # fmt: skip


class Two:
    """A broker's two data directories, and one log in the first."""

    def __init__(self, place: Path, **settings: Any) -> None:
        self.first, self.second = place / "first", place / "second"
        self.settings = {**SETTINGS, **settings}
        self.values: list[bytes] = []
        self.start()

    def start(self) -> None:
        self.clock = ManualClock()
        self.rate: Callable[[], float] = lambda: math.inf  # of a move, in bytes a second
        self.manager = LedLogManager(
            [self.first, self.second], boot_id="one", clock=self.clock,
            segment_delete_delay_ms=0, move_bytes_per_second=lambda: self.rate(),
        )  # fmt: skip
        self.manager.start()
        self.log = self.manager.open(*NAME, TOPIC_ID, self.settings)
        self.log.set_leadership(1, True, 1, 1)

    def append(self, count: int = 1) -> None:
        for _ in range(count):
            value = b"%06d" % len(self.values) + b"." * 60
            self.values.append(value)
            key = b"key %d" % (len(self.values) % 7)
            result = self.log.append(build_batch([Record(value, key)]))
            assert result.error == 0 and result.base_offset == len(self.values) - 1

    @property
    def mover(self) -> LogMover:
        return self.manager.moves.mover

    def move(self, path: Path) -> None:
        self.on_this_thread(lambda: self.mover.ask(NAME, str(path)))

    def begin_moves_again(self) -> None:
        self.on_this_thread(self.mover.begin_again)

    def on_this_thread(self, ask: Callable[[], None]) -> None:
        """What is asked for is done here."""
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(self.mover, "_follow", lambda: None)
            ask()
        self.mover.move_all()

    def here(self) -> list[str]:
        """In which directories it is."""
        return [path.name for path in (self.first, self.second) if (path / str(NAME)).is_dir()]

    def read(self) -> list[bytes]:
        return [record.value or b"" for record in records_of(self.log)]

    def remove_left_over(self) -> None:
        for _ in self.manager.remove_deleted():
            pass

    def close(self) -> None:
        self.manager.stop()


def records_of(log: LedLog) -> Iterator[Any]:
    offset = log.log_start_offset
    while data := log.read(offset):
        for batch in decode_batches(data):
            yield from batch.records
            offset = batch.last_offset + 1


def names(path: Path) -> set[str]:
    return {entry.name for entry in path.iterdir()}
