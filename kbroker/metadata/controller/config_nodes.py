"""The settings of brokers, groups and subscriptions, as the tree has them.

Place in the flow: read by the controller with all else (`nodes.py`), and by a broker that starts,
before there is an image.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from types import MappingProxyType

from kbroker.errors import DataDirectoryError
from kbroker.metadata.controller import records
from kbroker.metadata.image import ConfigKind, ConfigResource
from kbroker.metadata.store.base import MetadataStore, NoNodeError

log = logging.getLogger("kbroker.controller")


def load_resource_configs(
    store: MetadataStore,
    kinds: Iterable[ConfigKind] = tuple(ConfigKind),
    known: Mapping[ConfigResource, Mapping[str, str]] = MappingProxyType({}),
) -> dict[ConfigResource, Mapping[str, str]]:
    """The settings of brokers, groups and subscriptions, none where the store is new. Those that
    cannot be read are as they were `known`; DataDirectoryError if they were not."""
    loaded: dict[ConfigResource, Mapping[str, str]] = {}
    for kind in kinds:
        folder = records.CONFIG_FOLDERS[kind]
        try:
            nodes = store.children_data(folder)
        except NoNodeError:
            continue
        for child, node in nodes.items():
            path = f"{folder}/{child}"
            try:
                resource = records.config_resource(kind, child)
            except DataDirectoryError as error:
                log.error("settings of no broker, remove their node: %s", error.message)
                continue
            try:
                loaded[resource] = records.decode_configs(path, node.data)
            except DataDirectoryError as error:
                if resource not in known:
                    raise
                log.error("settings stay as they were: %s", error.message)
                loaded[resource] = known[resource]
    return loaded
