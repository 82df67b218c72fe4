from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from kbroker.metadata.store.base import MetadataStore
from tests.unit.metadata.store.harness import IMPLEMENTATIONS, Harness


@pytest.fixture(params=IMPLEMENTATIONS)
def harness(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Harness]:
    made = request.param(request, tmp_path / "store")
    yield made
    made.close()


@pytest.fixture
def store(harness: Harness) -> MetadataStore:
    return harness.session()
