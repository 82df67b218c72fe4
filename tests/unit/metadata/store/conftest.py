from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from kbroker.metadata.store.base import MetadataStore
from tests.unit.metadata.store.harness import HARNESSES, EmbeddedHarness


@pytest.fixture(params=sorted(HARNESSES))
def harness(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[EmbeddedHarness]:
    made = HARNESSES[request.param](tmp_path / "store")
    yield made
    made.close()


@pytest.fixture
def store(harness: EmbeddedHarness) -> MetadataStore:
    return harness.session()
