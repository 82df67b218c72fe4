"""What the tree has of a broker's data directories and of the logs that should be in them.

Place in the flow: as `nodes.py`, for a broker that starts: it compares its directories with these
nodes before anything else reads a log (`server/directories.py`). Not under the controller's fence.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from uuid import UUID

from kbroker.metadata.controller import records
from kbroker.metadata.store.base import MetadataStore, NoNodeError


def load_replicas(
    store: MetadataStore,
) -> Iterator[tuple[str, UUID, tuple[tuple[int, ...], ...]]]:
    """Every topic, its id, the brokers of each of its partitions; none where the store is new."""
    if not store.exists(records.TOPICS):
        return
    for name, node in store.children_data(records.TOPICS).items():
        topic = records.decode_topic(records.topic_path(name), node.data)
        yield name, topic.topic_id, _with_a_log(store, name, topic)


def _with_a_log(
    store: MetadataStore, name: str, topic: records.TopicRecord
) -> tuple[tuple[int, ...], ...]:
    """The replicas of each partition without those that are being added and may have no log yet."""
    replicas = list(topic.replicas)
    for index, adding in topic.adding.items():
        path = records.partition_state_path(name, index)
        joined: set[int] = set()
        for node in store.get_many([path]).values():  # none: the topic is deleted meanwhile
            state = records.decode_partition(path, node.data)
            joined = {*state.isr, *state.eligible}
        replicas[index] = tuple(
            node for node in replicas[index] if node not in adding or node in joined
        )
    return tuple(replicas)


def load_used_directories(store: MetadataStore, node_id: int) -> dict[str, str]:
    """The data directories that a broker has used, by id; where they were last."""
    path = records.used_directories_path(node_id)
    try:
        return records.decode_used_directories(path, store.get(path).data)
    except NoNodeError:
        return {}


def save_used_directories(
    store: MetadataStore, node_id: int, directories: Mapping[str, str]
) -> None:
    """The broker's own node, which no other broker writes; not written if it says so already."""
    path = records.used_directories_path(node_id)
    data = records.encode_used_directories(directories)
    store.ensure(records.USED_DIRECTORIES)
    if not store.exists(path):
        store.create(path, data)
    elif store.get(path).data != data:
        store.set(path, data)
