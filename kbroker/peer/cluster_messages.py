"""DescribeCluster, as our client asks it: which operations it may do on the cluster (KIP-430).

As `messages`. Pure functions, any thread.
"""

from __future__ import annotations

from kbroker.errors import ErrorCode, KafkaError
from kbroker.peer.messages import error_code
from kbroker.protocol import messages as tables
from kbroker.protocol.wire import Reader
from kbroker.security.rights import Operation


def encode_describe_cluster(version: int) -> bytes:
    table = tables.describe_cluster
    return table.Request(include_cluster_authorized_operations=True).encode(version)


def decode_operations(reader: Reader, version: int) -> frozenset[Operation]:
    """Those that are known here; none for a client that may not describe the cluster."""
    response = tables.describe_cluster.Response.read(reader, version)
    error = error_code(response.error_code)
    if error is not ErrorCode.NONE:
        raise KafkaError(error, response.error_message or "the cluster cannot be described")
    bits = response.cluster_authorized_operations
    if bits < 0:  # it was not answered
        return frozenset()
    return frozenset(each for each in Operation if bits >> each & 1)
