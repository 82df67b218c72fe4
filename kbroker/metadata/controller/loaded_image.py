"""The cluster as the store says it, and what has changed since the image before.

Place in the flow: a controller that takes office, or whose image may differ from the store, reads
everything and makes an image of it. Who leads is as it was written last; the controller elects
after this. On the controller's thread.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from kbroker.metadata.controller.own_nodes import load_features
from kbroker.metadata.image import ClusterImage, ImageDelta, delta_between

if TYPE_CHECKING:
    from kbroker.metadata.controller.access_changes import AccessChanges
    from kbroker.metadata.controller.nodes import LoadedMetadata, MetadataNodes


def load_image(
    nodes: MetadataNodes, access: AccessChanges, known: ClusterImage, made: ClusterImage
) -> tuple[ClusterImage, LoadedMetadata]:
    """`made`, with all that the store has; what cannot be read of it is as it was `known`."""
    acls, loaded = access.load_acls(nodes), nodes.load(known)
    image = made.with_brokers(loaded.brokers).with_topics(loaded.topics)
    image = image.with_configs(loaded.configs).with_features(known.features)
    image = image.with_features(load_features(nodes.store)).with_acls(acls)
    return access.read_into(image, nodes.store), loaded


def delta_since(before: ClusterImage, image: ClusterImage, loaded: LoadedMetadata) -> ImageDelta:
    """What to apply; topics that are deleted already too, since their logs may be there."""
    first = ImageDelta(created=tuple(image.topics.values()))
    delta = first if before.version == 0 else delta_between(before, image)
    deleted = {each.topic_id: each for each in (*delta.deleted, *loaded.deletions)}
    return replace(delta, deleted=tuple(deleted.values()), from_store=True)
