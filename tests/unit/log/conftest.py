"""A log in a temporary directory, opened and opened again as the manager does."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kbroker.log.engine.partition_log import PartitionLog, has_no_checkpoint
from kbroker.log.opening.loader import Checkpointed
from tests.support.led_log import LedLog, open_led_log
from tests.unit.log.compacted_log import Compacted
from tests.unit.log.two_directories import Two

TOPIC_ID = uuid.UUID("6ba7b810-9dad-11d1-80b4-00c04fd430c8")
OpenLog = Callable[..., LedLog]


@pytest.fixture
def open_log(tmp_path: Path) -> Iterator[OpenLog]:
    """Opens the log of one partition and leads it; called again, opens what is there now."""
    opened: list[LedLog] = []

    def open_it(
        *,
        clean: bool = False,
        recovery_point: int = 0,
        high_watermark: int = 0,
        log_start_offset: int = 0,
        leader_epoch: int = 0,
        lead: bool = True,
        points_fell: Callable[[PartitionLog], None] = has_no_checkpoint,
        **settings: Any,
    ) -> LedLog:
        log = open_led_log(
            tmp_path / "words-0", "words", 0, TOPIC_ID, settings,
            Checkpointed(clean, recovery_point, high_watermark, log_start_offset),
            points_fell=points_fell,
        )  # fmt: skip
        if lead:
            log.set_leadership(1, True, leader_epoch, 1)
        opened.append(log)
        return log

    yield open_it
    for log in opened:
        log.close(clean=False)


@pytest.fixture
def log(open_log: OpenLog) -> LedLog:
    return open_log()


@pytest.fixture
def two(tmp_path: Path) -> Iterator[Two]:
    """Two data directories of one broker."""
    it = Two(tmp_path)
    yield it
    it.close()


@pytest.fixture
def compacted(tmp_path: Path) -> Iterator[Compacted]:
    it = Compacted(tmp_path / "data")
    yield it
    it.stop()
