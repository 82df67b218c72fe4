"""Which versions of which API exist, which of them we serve, and how their headers look: data.

`SERVED` is the set of one Apache Kafka release, 4.3, cut down to this broker's APIs; clients
infer features from such ranges, so a range is either the whole of 4.3's or absent. The registry
joins a handler to each row and ApiVersions answers exactly the registry.

`FLEXIBLE_SINCE` covers every API of 4.3, also those that are not served: a header must be read
before it is known whether its API is one of ours. The flexible versions (KIP-482) use request
header v2 and response header v1; the others use v1 and v0. Two exceptions: the ApiVersions response
always has header v0, because a client reads it before the versions are negotiated, and the
ControlledShutdown v0 request has header v0.

Immutable, level "protocol"; any thread may use it.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Final, NamedTuple

from kbroker.types import ApiKey

if TYPE_CHECKING:
    from collections.abc import Mapping

# For APIs (SaslHandshake, OffsetDelete) whose messages never become flexible.
NEVER: Final = 2**15


class VersionRange(NamedTuple):
    """The versions of one API that we serve, and the lowest one that ApiVersions lists.

    `advertised_min` is lower than `min` for Produce alone: librdkafka before 2.11.1 stops
    compressing in silence where a broker does not list version 0 (KAFKA-18659), so Kafka 4 lists
    0 to 2 as well and closes the connection of a client that uses them.
    """

    min: int
    max: int
    advertised_min: int

    def __contains__(self, version: object) -> bool:
        return isinstance(version, int) and self.min <= version <= self.max


def _served(low: int, high: int, advertised_min: int | None = None) -> VersionRange:
    return VersionRange(low, high, low if advertised_min is None else advertised_min)


SERVED: Final[Mapping[ApiKey, VersionRange]] = MappingProxyType(
    {
        ApiKey.PRODUCE: _served(3, 13, advertised_min=0),
        ApiKey.FETCH: _served(4, 18),
        ApiKey.LIST_OFFSETS: _served(1, 11),
        ApiKey.METADATA: _served(0, 13),
        ApiKey.OFFSET_COMMIT: _served(2, 10),
        ApiKey.OFFSET_FETCH: _served(1, 10),
        ApiKey.FIND_COORDINATOR: _served(0, 6),
        ApiKey.JOIN_GROUP: _served(0, 9),
        ApiKey.HEARTBEAT: _served(0, 4),
        ApiKey.LEAVE_GROUP: _served(0, 5),
        ApiKey.SYNC_GROUP: _served(0, 5),
        ApiKey.DESCRIBE_GROUPS: _served(0, 6),
        ApiKey.LIST_GROUPS: _served(0, 5),
        ApiKey.SASL_HANDSHAKE: _served(0, 1),
        ApiKey.API_VERSIONS: _served(0, 4),
        ApiKey.CREATE_TOPICS: _served(2, 7),
        ApiKey.DELETE_TOPICS: _served(1, 6),
        ApiKey.DELETE_RECORDS: _served(0, 2),
        ApiKey.INIT_PRODUCER_ID: _served(0, 5),
        ApiKey.OFFSET_FOR_LEADER_EPOCH: _served(2, 4),
        ApiKey.WRITE_TXN_MARKERS: _served(1, 2),
        ApiKey.ADD_PARTITIONS_TO_TXN: _served(0, 5),
        ApiKey.ADD_OFFSETS_TO_TXN: _served(0, 4),
        ApiKey.END_TXN: _served(0, 5),
        ApiKey.TXN_OFFSET_COMMIT: _served(0, 5),
        ApiKey.DESCRIBE_ACLS: _served(1, 3),
        ApiKey.CREATE_ACLS: _served(1, 3),
        ApiKey.DELETE_ACLS: _served(1, 3),
        ApiKey.DESCRIBE_CONFIGS: _served(1, 4),
        ApiKey.ALTER_CONFIGS: _served(0, 2),
        ApiKey.ALTER_REPLICA_LOG_DIRS: _served(1, 2),
        ApiKey.DESCRIBE_LOG_DIRS: _served(1, 5),
        ApiKey.SASL_AUTHENTICATE: _served(0, 2),
        ApiKey.CREATE_PARTITIONS: _served(0, 3),
        ApiKey.CREATE_DELEGATION_TOKEN: _served(1, 3),
        ApiKey.RENEW_DELEGATION_TOKEN: _served(1, 2),
        ApiKey.EXPIRE_DELEGATION_TOKEN: _served(1, 2),
        ApiKey.DESCRIBE_DELEGATION_TOKEN: _served(1, 3),
        ApiKey.ELECT_LEADERS: _served(0, 2),
        ApiKey.DELETE_GROUPS: _served(0, 2),
        ApiKey.OFFSET_DELETE: _served(0, 0),
        ApiKey.INCREMENTAL_ALTER_CONFIGS: _served(0, 1),
        ApiKey.ALTER_PARTITION_REASSIGNMENTS: _served(0, 1),
        ApiKey.LIST_PARTITION_REASSIGNMENTS: _served(0, 0),
        ApiKey.DESCRIBE_CLIENT_QUOTAS: _served(0, 1),
        ApiKey.ALTER_CLIENT_QUOTAS: _served(0, 1),
        ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: _served(0, 0),
        ApiKey.ALTER_USER_SCRAM_CREDENTIALS: _served(0, 0),
        ApiKey.UPDATE_FEATURES: _served(0, 2),
        ApiKey.DESCRIBE_CLUSTER: _served(0, 2),
        ApiKey.DESCRIBE_PRODUCERS: _served(0, 0),
        ApiKey.DESCRIBE_TRANSACTIONS: _served(0, 0),
        ApiKey.LIST_TRANSACTIONS: _served(0, 2),
        ApiKey.CONSUMER_GROUP_HEARTBEAT: _served(0, 1),
        ApiKey.CONSUMER_GROUP_DESCRIBE: _served(0, 1),
        ApiKey.LIST_CONFIG_RESOURCES: _served(0, 1),
        ApiKey.UNREGISTER_BROKER: _served(0, 0),
        ApiKey.DESCRIBE_TOPIC_PARTITIONS: _served(0, 0),
        ApiKey.SHARE_GROUP_HEARTBEAT: _served(1, 1),
        ApiKey.SHARE_GROUP_DESCRIBE: _served(1, 1),
        ApiKey.SHARE_FETCH: _served(1, 2),
        ApiKey.SHARE_ACKNOWLEDGE: _served(1, 2),
        ApiKey.INITIALIZE_SHARE_GROUP_STATE: _served(0, 0),
        ApiKey.READ_SHARE_GROUP_STATE: _served(0, 0),
        ApiKey.WRITE_SHARE_GROUP_STATE: _served(0, 1),
        ApiKey.DELETE_SHARE_GROUP_STATE: _served(0, 0),
        ApiKey.READ_SHARE_GROUP_STATE_SUMMARY: _served(0, 1),
        ApiKey.STREAMS_GROUP_HEARTBEAT: _served(0, 0),
        ApiKey.STREAMS_GROUP_DESCRIBE: _served(0, 0),
        ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS: _served(0, 1),
        ApiKey.ALTER_SHARE_GROUP_OFFSETS: _served(0, 0),
        ApiKey.DELETE_SHARE_GROUP_OFFSETS: _served(0, 0),
    }
)

# Responses that do not begin with their throttle time, or have none.
_THROTTLE_ELSEWHERE: Final = frozenset(
    {
        ApiKey.PRODUCE,
        ApiKey.API_VERSIONS,
        ApiKey.OFFSET_DELETE,
        ApiKey.SASL_HANDSHAKE,
        ApiKey.SASL_AUTHENTICATE,
        ApiKey.WRITE_TXN_MARKERS,
        ApiKey.CREATE_DELEGATION_TOKEN,
        ApiKey.RENEW_DELEGATION_TOKEN,
        ApiKey.EXPIRE_DELEGATION_TOKEN,
        ApiKey.DESCRIBE_DELEGATION_TOKEN,
        ApiKey.INITIALIZE_SHARE_GROUP_STATE,
        ApiKey.READ_SHARE_GROUP_STATE,
        ApiKey.WRITE_SHARE_GROUP_STATE,
        ApiKey.DELETE_SHARE_GROUP_STATE,
        ApiKey.READ_SHARE_GROUP_STATE_SUMMARY,
    }
)
_THROTTLE_LATER: Final[Mapping[int, int]] = MappingProxyType(
    {
        ApiKey.LIST_OFFSETS: 2,
        ApiKey.METADATA: 3,
        ApiKey.OFFSET_COMMIT: 3,
        ApiKey.OFFSET_FETCH: 3,
        ApiKey.FIND_COORDINATOR: 1,
        ApiKey.JOIN_GROUP: 2,
        ApiKey.HEARTBEAT: 1,
        ApiKey.LEAVE_GROUP: 1,
        ApiKey.SYNC_GROUP: 1,
        ApiKey.DESCRIBE_GROUPS: 1,
        ApiKey.LIST_GROUPS: 1,
    }
)
# The first version whose response begins with its throttle time, by API.
THROTTLE_FIRST_SINCE: Final[Mapping[ApiKey, int]] = MappingProxyType(
    {key: _THROTTLE_LATER.get(key, 0) for key in SERVED if key not in _THROTTLE_ELSEWHERE}
)

FLEXIBLE_SINCE: Final[Mapping[int, int]] = MappingProxyType(
    {
        ApiKey.PRODUCE: 9,
        ApiKey.FETCH: 12,
        ApiKey.LIST_OFFSETS: 6,
        ApiKey.METADATA: 9,
        ApiKey.LEADER_AND_ISR: 4,
        ApiKey.STOP_REPLICA: 2,
        ApiKey.UPDATE_METADATA: 6,
        ApiKey.CONTROLLED_SHUTDOWN: 3,
        ApiKey.OFFSET_COMMIT: 8,
        ApiKey.OFFSET_FETCH: 6,
        ApiKey.FIND_COORDINATOR: 3,
        ApiKey.JOIN_GROUP: 6,
        ApiKey.HEARTBEAT: 4,
        ApiKey.LEAVE_GROUP: 4,
        ApiKey.SYNC_GROUP: 4,
        ApiKey.DESCRIBE_GROUPS: 5,
        ApiKey.LIST_GROUPS: 3,
        ApiKey.SASL_HANDSHAKE: NEVER,
        ApiKey.API_VERSIONS: 3,
        ApiKey.CREATE_TOPICS: 5,
        ApiKey.DELETE_TOPICS: 4,
        ApiKey.DELETE_RECORDS: 2,
        ApiKey.INIT_PRODUCER_ID: 2,
        ApiKey.OFFSET_FOR_LEADER_EPOCH: 4,
        ApiKey.ADD_PARTITIONS_TO_TXN: 3,
        ApiKey.ADD_OFFSETS_TO_TXN: 3,
        ApiKey.END_TXN: 3,
        ApiKey.WRITE_TXN_MARKERS: 1,
        ApiKey.TXN_OFFSET_COMMIT: 3,
        ApiKey.DESCRIBE_ACLS: 2,
        ApiKey.CREATE_ACLS: 2,
        ApiKey.DELETE_ACLS: 2,
        ApiKey.DESCRIBE_CONFIGS: 4,
        ApiKey.ALTER_CONFIGS: 2,
        ApiKey.ALTER_REPLICA_LOG_DIRS: 2,
        ApiKey.DESCRIBE_LOG_DIRS: 2,
        ApiKey.SASL_AUTHENTICATE: 2,
        ApiKey.CREATE_PARTITIONS: 2,
        ApiKey.CREATE_DELEGATION_TOKEN: 2,
        ApiKey.RENEW_DELEGATION_TOKEN: 2,
        ApiKey.EXPIRE_DELEGATION_TOKEN: 2,
        ApiKey.DESCRIBE_DELEGATION_TOKEN: 2,
        ApiKey.DELETE_GROUPS: 2,
        ApiKey.ELECT_LEADERS: 2,
        ApiKey.INCREMENTAL_ALTER_CONFIGS: 1,
        ApiKey.ALTER_PARTITION_REASSIGNMENTS: 0,
        ApiKey.LIST_PARTITION_REASSIGNMENTS: 0,
        ApiKey.OFFSET_DELETE: NEVER,
        ApiKey.DESCRIBE_CLIENT_QUOTAS: 1,
        ApiKey.ALTER_CLIENT_QUOTAS: 1,
        ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: 0,
        ApiKey.ALTER_USER_SCRAM_CREDENTIALS: 0,
        ApiKey.VOTE: 0,
        ApiKey.BEGIN_QUORUM_EPOCH: 1,
        ApiKey.END_QUORUM_EPOCH: 1,
        ApiKey.DESCRIBE_QUORUM: 0,
        ApiKey.ALTER_PARTITION: 2,
        ApiKey.UPDATE_FEATURES: 0,
        ApiKey.ENVELOPE: 0,
        ApiKey.FETCH_SNAPSHOT: 0,
        ApiKey.DESCRIBE_CLUSTER: 0,
        ApiKey.DESCRIBE_PRODUCERS: 0,
        ApiKey.BROKER_REGISTRATION: 0,
        ApiKey.BROKER_HEARTBEAT: 0,
        ApiKey.UNREGISTER_BROKER: 0,
        ApiKey.DESCRIBE_TRANSACTIONS: 0,
        ApiKey.LIST_TRANSACTIONS: 0,
        ApiKey.ALLOCATE_PRODUCER_IDS: 0,
        ApiKey.CONSUMER_GROUP_HEARTBEAT: 0,
        ApiKey.CONSUMER_GROUP_DESCRIBE: 0,
        ApiKey.CONTROLLER_REGISTRATION: 0,
        ApiKey.GET_TELEMETRY_SUBSCRIPTIONS: 0,
        ApiKey.PUSH_TELEMETRY: 0,
        ApiKey.ASSIGN_REPLICAS_TO_DIRS: 0,
        ApiKey.LIST_CONFIG_RESOURCES: 0,
        ApiKey.DESCRIBE_TOPIC_PARTITIONS: 0,
        ApiKey.SHARE_GROUP_HEARTBEAT: 1,
        ApiKey.SHARE_GROUP_DESCRIBE: 1,
        ApiKey.SHARE_FETCH: 1,
        ApiKey.SHARE_ACKNOWLEDGE: 1,
        ApiKey.ADD_RAFT_VOTER: 0,
        ApiKey.REMOVE_RAFT_VOTER: 0,
        ApiKey.UPDATE_RAFT_VOTER: 0,
        ApiKey.INITIALIZE_SHARE_GROUP_STATE: 0,
        ApiKey.READ_SHARE_GROUP_STATE: 0,
        ApiKey.WRITE_SHARE_GROUP_STATE: 0,
        ApiKey.DELETE_SHARE_GROUP_STATE: 0,
        ApiKey.READ_SHARE_GROUP_STATE_SUMMARY: 0,
        ApiKey.STREAMS_GROUP_HEARTBEAT: 0,
        ApiKey.STREAMS_GROUP_DESCRIBE: 0,
        ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS: 0,
        ApiKey.ALTER_SHARE_GROUP_OFFSETS: 0,
        ApiKey.DELETE_SHARE_GROUP_OFFSETS: 0,
    }
)


def is_flexible(api_key: int, version: int) -> bool:
    """Whether this version's messages use compact types and tagged fields; False if unknown."""
    since = FLEXIBLE_SINCE.get(api_key)
    return since is not None and version >= since


def request_header_version(api_key: int, version: int) -> int:
    """0, 1 or 2. An ApiVersions version that we do not know is read as the newest we know."""
    if api_key == ApiKey.CONTROLLED_SHUTDOWN and version == 0:
        return 0
    return 2 if is_flexible(api_key, version) else 1


def response_header_version(api_key: int, version: int) -> int:
    """0 (correlation id) or 1 (with tagged fields)."""
    if api_key == ApiKey.API_VERSIONS:
        return 0
    return 1 if is_flexible(api_key, version) else 0
