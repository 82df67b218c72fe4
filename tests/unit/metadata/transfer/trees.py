"""The tree that a broker without a cluster leaves in its store."""

from __future__ import annotations

from pathlib import Path

from kbroker.metadata.controller import ConfigChange, NewTopic
from kbroker.metadata.image import ClusterImage
from kbroker.metadata.store.embedded import EmbeddedStore
from kbroker.metadata.transfer.file import Export
from kbroker.metadata.transfer.tree import read_tree
from tests.unit.metadata.controller.harness import OneBroker

EXPORTED_AT = "2026-11-24T06:00:00Z"
LAST_PRODUCER_ID = 1_999


def used_store(directory: Path, topics: int = 2) -> ClusterImage:
    """Two terms of a controller, the second after a crash: topics, settings, two blocks of ids."""
    broker = OneBroker(directory)
    broker.start()
    broker.create(*(NewTopic(f"orders-{each}", configs={"a": "1"}) for each in range(topics)))
    broker.create("gone")
    broker.delete("gone")
    broker.take_ids(1_000)
    broker.restart(new_epochs_at_start=True)
    broker.alter(ConfigChange("orders-0", {"b": "2"}))
    assert broker.take_ids(1_000).first == 1_000
    image = broker.image
    broker.stop()
    return image


def export_of(directory: Path) -> Export:
    store = EmbeddedStore.open(directory)
    try:
        return Export.of(read_tree(store), EXPORTED_AT)
    finally:
        store.close()
