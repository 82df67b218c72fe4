"""Brokers of a cluster in memory that are killed, and whose sessions end at once.

ZooKeeper ends a session when nothing has come for its timeout, six seconds in most tests. That it
does so is asked for in tests/system/test_testing_cluster.py and, of Apache ZooKeeper, in
tests/system/test_replication.py; where a test is about what follows, it need not wait.
"""

from __future__ import annotations

from kbroker.testing import Cluster, ClusterBroker


def kill(cluster: Cluster, broker: ClusterBroker) -> None:
    """SIGKILL, then the end of its session."""
    session = cluster.zookeeper.tree.node(f"/brokers/ids/{broker.broker_id}").owner
    broker.kill9()
    cluster.zookeeper.expire(session)
