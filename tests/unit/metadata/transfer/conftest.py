"""The data directory that others are adopted into."""

from __future__ import annotations

from pathlib import Path

import pytest

from kbroker.metadata import meta_properties
from tests.support.led_log import LedLogManager
from tests.unit.metadata.transfer.trees import used_store


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Of a broker that was started once."""
    directory = tmp_path / "data"
    used_store(directory)
    meta_properties.ensure(directory, "a cluster", 0)
    manager = LedLogManager([directory])
    manager.start()
    manager.stop()
    return directory
