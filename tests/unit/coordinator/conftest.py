"""The log of a partition of `__consumer_offsets`, and the table over it."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from kbroker.coordinator.group._groups import GroupTable
from kbroker.log.opening.loader import Checkpointed
from tests.support.led_log import LedLog, open_led_log
from tests.unit.coordinator.tables import opened

TOPIC_ID = uuid.UUID("6ba7b810-9dad-11d1-80b4-00c04fd430c8")


@pytest.fixture
def log(tmp_path: Path) -> Iterator[LedLog]:
    log = open_led_log(
        tmp_path / "__consumer_offsets-0", "__consumer_offsets", 0, TOPIC_ID, {"compacted": True},
        Checkpointed(False, 0, 0),
    )  # fmt: skip
    log.set_leadership(1, True, 0, 1)
    yield log
    log.close(clean=False)


@pytest.fixture
def table(log: LedLog) -> GroupTable:
    return opened(log)
