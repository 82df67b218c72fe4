"""The nodes that every other node of the metadata tree is below, and the id of the cluster.

Place in the flow: the start of the controller's thread, before the broker registers. A new cluster
gets its feature levels here, a store of an earlier kbroker the folders that have come since.
"""

from __future__ import annotations

from kbroker.metadata.controller import own_nodes, records
from kbroker.metadata.controller.acl_records import ACL_FOLDERS
from kbroker.metadata.controller.token_records import TOKEN_FOLDERS
from kbroker.metadata.features import first_features
from kbroker.metadata.store.base import (
    Create,
    MetadataStore,
    MultiError,
    NodeExistsError,
    Operation,
)


def ensure_skeleton(store: MetadataStore, cluster_id: str) -> str:
    """Create what every other node hangs under; the cluster's id, ours if it had none."""
    known = store.exists(records.CLUSTER_ID)
    # What has come since, or is ours alone: a store may be an earlier kbroker's or Apache Kafka's.
    later = (
        *records.CONFIG_FOLDERS.values(),
        records.DELETED_TOPICS,
        records.LOG_DIR_EVENTS,
        records.LOSSES,
        *ACL_FOLDERS,
        *TOKEN_FOLDERS,
    )
    if known:
        for path in later:
            store.ensure(path)
        return records.decode_cluster_id(records.CLUSTER_ID, store.get(records.CLUSTER_ID).data)
    # All in one multi, so that a cluster id is proof of a whole skeleton.
    all_of_them = (*records.SKELETON, *ACL_FOLDERS, *TOKEN_FOLDERS)
    missing = [path for path in all_of_them if not store.exists(path)]
    operations: list[Operation] = [Create(path) for path in missing]
    operations.append(Create(records.CONTROLLER_EPOCH, records.encode_controller_epoch(0)))
    operations.append(Create(records.CLUSTER_ID, records.encode_cluster_id(cluster_id)))
    operations += own_nodes.writing(store, first_features())
    try:
        store.multi(operations)
    except MultiError as error:
        if not isinstance(error.cause, NodeExistsError):
            raise
    return records.decode_cluster_id(records.CLUSTER_ID, store.get(records.CLUSTER_ID).data)
