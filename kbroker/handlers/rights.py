"""The rights that each API needs, in the order in which Apache Kafka checks them.

Place in the flow: `registry.py` puts these into its rows. The dispatch checks a right that a
request needs as a `whole`, if there is an authorizer (`Services.authorizer`; there is none yet, and
every request is allowed). The other rights are per item, and nothing checks them yet: an authorizer
that denies single topics must not be used before handlers do.

An empty row needs no right. The request of an API that lists (groups, transactions, all topics)
names none of the resources; `in_response` marks it.

Immutable; any thread.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Any, Final
from uuid import UUID

from kbroker.handlers import configs
from kbroker.security.rights import CLUSTER_NAME, Names, Operation, ResourceType, Right
from kbroker.types import ApiKey

_GROUP_KEY, _TRANSACTION_KEY = 0, 1  # what FindCoordinator looks for
# Between brokers, on any listener.
SHARE_STATE_KEYS: Final = (
    ApiKey.INITIALIZE_SHARE_GROUP_STATE,
    ApiKey.READ_SHARE_GROUP_STATE,
    ApiKey.WRITE_SHARE_GROUP_STATE,
    ApiKey.DELETE_SHARE_GROUP_STATE,
    ApiKey.READ_SHARE_GROUP_STATE_SUMMARY,
)


def cluster(message: Any) -> Iterable[str]:
    return (CLUSTER_NAME,)


def in_response(message: Any) -> Iterable[str]:
    """The handler finds the resources: it lists them."""
    return ()


def named(field: str, each: str = "name") -> Names:
    """The items of an array of records, by name, or by id where the version has ids."""

    def names(message: Any) -> Iterable[str | UUID]:
        for item in getattr(message, field) or ():
            name = getattr(item, each) or getattr(item, "topic_id", None)
            if name is not None:
                yield name

    return names


def texts(field: str) -> Names:
    """The items of an array of strings."""
    return lambda message: getattr(message, field) or ()


def one(field: str) -> Names:
    """A field of the request; null: the right is not needed."""

    def name(message: Any) -> Iterable[str]:
        value = getattr(message, field)
        return () if value is None else (value,)

    return name


def _replica(message: Any) -> int:
    state = message.replica_state
    replica_id: int = message.replica_id if state is None else state.replica_id
    return replica_id


def _cluster_of_a_follower(message: Any) -> Iterable[str]:
    return (CLUSTER_NAME,) if _replica(message) >= 0 else ()


def _fetched_topics(message: Any) -> Iterable[str | UUID]:
    return () if _replica(message) >= 0 else named("topics", "topic")(message)


def _created_by_metadata(message: Any) -> Iterable[str | UUID]:
    return named("topics")(message) if message.allow_auto_topic_creation else ()


def _deleted(message: Any) -> Iterable[str | UUID]:
    return (*message.topic_names, *named("topics")(message))


def _fetched_groups(message: Any) -> Iterable[str]:
    return [each.group_id for each in message.groups] or (message.group_id,)


def _topics_of_groups(message: Any) -> Iterable[str | UUID]:
    for each in (message, *message.groups):
        yield from named("topics")(each)


def _topics_of_a_topology(message: Any) -> Iterable[str | UUID]:
    for part in () if message.topology is None else message.topology.subtopologies:
        yield from texts("source_topics")(part)
        yield from texts("repartition_sink_topics")(part)
        yield from named("repartition_source_topics")(part)
        yield from named("state_changelog_topics")(part)


def _described_topics(message: Any) -> Iterable[str | UUID]:
    for each in message.groups:
        yield from named("topics", "topic_name")(each)


def _coordinators(key_type: int) -> Names:
    def names(message: Any) -> Iterable[str]:
        if message.key_type != key_type:
            return ()
        return message.coordinator_keys or (message.key,)

    return names


def _configs(*types: int) -> Names:
    def names(message: Any) -> Iterable[str]:
        return [each.resource_name for each in message.resources if each.resource_type in types]

    return names


def _cluster_configs(message: Any) -> Iterable[str]:
    if _configs(configs.BROKER, configs.BROKER_LOGGER, configs.CLIENT_METRICS)(message):
        return (CLUSTER_NAME,)
    return ()


def _cluster_of_an_idempotent(message: Any) -> Iterable[str]:
    return (CLUSTER_NAME,) if message.transactional_id is None else ()


def _transaction_of_client(message: Any) -> Iterable[str]:
    return () if message.transactions else (message.v3_and_below_transactional_id,)


def _cluster_of_brokers(message: Any) -> Iterable[str]:
    return (CLUSTER_NAME,) if message.transactions else ()


def _other_owner(message: Any) -> Iterable[str]:
    if message.owner_principal_name is None:
        return ()
    return (f"{message.owner_principal_type}:{message.owner_principal_name}",)


def _owners(message: Any) -> Iterable[str]:
    return [f"{each.principal_type}:{each.principal_name}" for each in message.owners or ()]


def _on(type_: ResourceType) -> Callable[..., Right]:
    def right(
        operation: Operation, names: Names, *, whole: bool = False, instead: Right | None = None
    ) -> Right:
        return Right(operation, type_, names, whole, instead)

    return right


_topic: Final = _on(ResourceType.TOPIC)
_group: Final = _on(ResourceType.GROUP)
_transaction: Final = _on(ResourceType.TRANSACTIONAL_ID)
_token: Final = _on(ResourceType.DELEGATION_TOKEN)
_user: Final = _on(ResourceType.USER)
_cluster: Final = _on(ResourceType.CLUSTER)


def _whole_cluster(operation: Operation) -> tuple[Right, ...]:
    return (_cluster(operation, cluster, whole=True),)


def _own_group(operation: Operation) -> Right:
    return _group(operation, one("group_id"), whole=True)


def _config_rights(operation: Operation) -> tuple[Right, ...]:
    return (
        _cluster(operation, _cluster_configs),
        _topic(operation, _configs(configs.TOPIC)),
        _group(operation, _configs(configs.GROUP)),
    )


_MEMBER: Final = (_own_group(Operation.READ),)
_CREATE_ANY: Final = _cluster(Operation.CREATE, cluster)
_DELETE_ANY: Final = _cluster(Operation.DELETE, cluster)
_DESCRIBE_ANY: Final = _cluster(Operation.DESCRIBE, cluster)

RIGHTS: Final[Mapping[ApiKey, tuple[Right, ...]]] = MappingProxyType(
    {
        ApiKey.PRODUCE: (
            _transaction(Operation.WRITE, one("transactional_id"), whole=True),
            _topic(Operation.WRITE, named("topic_data")),
        ),
        ApiKey.FETCH: (
            _cluster(Operation.CLUSTER_ACTION, _cluster_of_a_follower),
            _topic(Operation.READ, _fetched_topics),
        ),
        ApiKey.LIST_OFFSETS: (_topic(Operation.DESCRIBE, named("topics")),),
        ApiKey.METADATA: (
            _topic(Operation.DESCRIBE, named("topics")),
            _topic(Operation.CREATE, _created_by_metadata, instead=_CREATE_ANY),
        ),
        ApiKey.OFFSET_COMMIT: (*_MEMBER, _topic(Operation.READ, named("topics"))),
        ApiKey.OFFSET_FETCH: (
            _group(Operation.DESCRIBE, _fetched_groups),
            _topic(Operation.DESCRIBE, _topics_of_groups),
        ),
        ApiKey.FIND_COORDINATOR: (
            _group(Operation.DESCRIBE, _coordinators(_GROUP_KEY)),
            _transaction(Operation.DESCRIBE, _coordinators(_TRANSACTION_KEY)),
        ),
        ApiKey.JOIN_GROUP: _MEMBER,
        ApiKey.HEARTBEAT: _MEMBER,
        ApiKey.LEAVE_GROUP: _MEMBER,
        ApiKey.SYNC_GROUP: _MEMBER,
        ApiKey.DESCRIBE_GROUPS: (_group(Operation.DESCRIBE, texts("groups")),),
        ApiKey.LIST_GROUPS: (_group(Operation.DESCRIBE, in_response, instead=_DESCRIBE_ANY),),
        ApiKey.API_VERSIONS: (),
        ApiKey.CREATE_TOPICS: (
            _topic(Operation.CREATE, named("topics"), instead=_CREATE_ANY),
            _topic(Operation.DESCRIBE_CONFIGS, named("topics")),
        ),
        ApiKey.DELETE_TOPICS: (
            _topic(Operation.DESCRIBE, _deleted, instead=_DELETE_ANY),
            _topic(Operation.DELETE, _deleted, instead=_DELETE_ANY),
        ),
        ApiKey.DELETE_RECORDS: (_topic(Operation.DELETE, named("topics")),),
        ApiKey.INIT_PRODUCER_ID: (
            _transaction(Operation.WRITE, one("transactional_id"), whole=True),
            # Or WRITE on any topic, which no name says.
            _cluster(Operation.IDEMPOTENT_WRITE, _cluster_of_an_idempotent),
        ),
        ApiKey.ADD_PARTITIONS_TO_TXN: (
            _cluster(Operation.CLUSTER_ACTION, _cluster_of_brokers, whole=True),
            _transaction(Operation.WRITE, _transaction_of_client),
            _topic(Operation.WRITE, named("v3_and_below_topics")),
        ),
        ApiKey.ADD_OFFSETS_TO_TXN: (
            _transaction(Operation.WRITE, one("transactional_id"), whole=True),
            _own_group(Operation.READ),
        ),
        ApiKey.END_TXN: (_transaction(Operation.WRITE, one("transactional_id"), whole=True),),
        ApiKey.OFFSET_FOR_LEADER_EPOCH: (
            _topic(
                Operation.DESCRIBE,
                named("topics", "topic"),
                instead=_cluster(Operation.CLUSTER_ACTION, cluster),
            ),
        ),
        ApiKey.WRITE_TXN_MARKERS: (
            _cluster(Operation.CLUSTER_ACTION, cluster, instead=_cluster(Operation.ALTER, cluster)),
        ),
        ApiKey.TXN_OFFSET_COMMIT: (
            _transaction(Operation.WRITE, one("transactional_id"), whole=True),
            _own_group(Operation.READ),
            _topic(Operation.READ, named("topics")),
        ),
        ApiKey.SASL_HANDSHAKE: (),
        ApiKey.SASL_AUTHENTICATE: (),
        ApiKey.DESCRIBE_ACLS: _whole_cluster(Operation.DESCRIBE),
        ApiKey.CREATE_ACLS: _whole_cluster(Operation.ALTER),
        ApiKey.DELETE_ACLS: _whole_cluster(Operation.ALTER),
        ApiKey.DESCRIBE_CONFIGS: _config_rights(Operation.DESCRIBE_CONFIGS),
        ApiKey.ALTER_CONFIGS: _config_rights(Operation.ALTER_CONFIGS),
        ApiKey.INCREMENTAL_ALTER_CONFIGS: _config_rights(Operation.ALTER_CONFIGS),
        ApiKey.ALTER_REPLICA_LOG_DIRS: _whole_cluster(Operation.ALTER),
        ApiKey.DESCRIBE_LOG_DIRS: (_cluster(Operation.DESCRIBE, cluster),),
        ApiKey.CREATE_PARTITIONS: (_topic(Operation.ALTER, named("topics")),),
        ApiKey.CREATE_DELEGATION_TOKEN: (_user(Operation.CREATE_TOKENS, _other_owner),),
        # Of the owner and the renewers of the token; not by ACLs.
        ApiKey.RENEW_DELEGATION_TOKEN: (),
        ApiKey.EXPIRE_DELEGATION_TOKEN: (),
        ApiKey.DESCRIBE_DELEGATION_TOKEN: (
            _token(
                Operation.DESCRIBE, in_response, instead=_user(Operation.DESCRIBE_TOKENS, _owners)
            ),
        ),
        ApiKey.DELETE_GROUPS: (_group(Operation.DELETE, texts("groups_names")),),
        ApiKey.ELECT_LEADERS: _whole_cluster(Operation.ALTER),
        ApiKey.ALTER_PARTITION_REASSIGNMENTS: _whole_cluster(Operation.ALTER),
        ApiKey.LIST_PARTITION_REASSIGNMENTS: _whole_cluster(Operation.DESCRIBE),
        ApiKey.OFFSET_DELETE: (
            _own_group(Operation.DELETE),
            _topic(Operation.READ, named("topics")),
        ),
        ApiKey.DESCRIBE_CLIENT_QUOTAS: _whole_cluster(Operation.DESCRIBE_CONFIGS),
        ApiKey.ALTER_CLIENT_QUOTAS: _whole_cluster(Operation.ALTER_CONFIGS),
        ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: _whole_cluster(Operation.DESCRIBE),
        ApiKey.ALTER_USER_SCRAM_CREDENTIALS: _whole_cluster(Operation.ALTER),
        # DESCRIBE on the cluster decides only about the operations in the response.
        ApiKey.DESCRIBE_CLUSTER: (),
        ApiKey.DESCRIBE_PRODUCERS: (_topic(Operation.READ, named("topics")),),
        ApiKey.UPDATE_FEATURES: _whole_cluster(Operation.ALTER),
        ApiKey.UNREGISTER_BROKER: _whole_cluster(Operation.ALTER),
        ApiKey.DESCRIBE_TRANSACTIONS: (
            _transaction(Operation.DESCRIBE, texts("transactional_ids")),
            _topic(Operation.DESCRIBE, in_response),
        ),
        ApiKey.LIST_TRANSACTIONS: (_transaction(Operation.DESCRIBE, in_response),),
        ApiKey.CONSUMER_GROUP_HEARTBEAT: (
            *_MEMBER,
            # Each of them: without one the request fails.
            _topic(Operation.DESCRIBE, texts("subscribed_topic_names")),
        ),
        ApiKey.CONSUMER_GROUP_DESCRIBE: (
            _group(Operation.DESCRIBE, texts("group_ids")),
            _topic(Operation.DESCRIBE, in_response),
        ),
        ApiKey.SHARE_GROUP_HEARTBEAT: (
            *_MEMBER,
            # Each of them: without one the request fails.
            _topic(Operation.DESCRIBE, texts("subscribed_topic_names")),
        ),
        ApiKey.SHARE_GROUP_DESCRIBE: (
            _group(Operation.DESCRIBE, texts("group_ids")),
            _topic(Operation.DESCRIBE, in_response),
        ),
        ApiKey.STREAMS_GROUP_HEARTBEAT: (
            *_MEMBER,
            # Each of them: without one the request fails.
            _topic(Operation.DESCRIBE, _topics_of_a_topology),
            # Those of the application that are missing; the answer says where it may not.
            _topic(Operation.CREATE, in_response, instead=_CREATE_ANY),
        ),
        ApiKey.STREAMS_GROUP_DESCRIBE: (
            _group(Operation.DESCRIBE, texts("group_ids")),
            _topic(Operation.DESCRIBE, in_response),
        ),
        **dict.fromkeys(SHARE_STATE_KEYS, _whole_cluster(Operation.CLUSTER_ACTION)),
        ApiKey.SHARE_FETCH: (*_MEMBER, _topic(Operation.READ, named("topics", "topic_id"))),
        ApiKey.SHARE_ACKNOWLEDGE: (*_MEMBER, _topic(Operation.READ, named("topics", "topic_id"))),
        ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS: (
            _group(Operation.DESCRIBE, named("groups", "group_id")),
            _topic(Operation.DESCRIBE, _described_topics),
        ),
        ApiKey.ALTER_SHARE_GROUP_OFFSETS: (
            *_MEMBER,
            _topic(Operation.READ, named("topics", "topic_name")),
        ),
        ApiKey.DELETE_SHARE_GROUP_OFFSETS: (
            _own_group(Operation.DELETE),
            _topic(Operation.READ, named("topics", "topic_name")),
        ),
        ApiKey.LIST_CONFIG_RESOURCES: _whole_cluster(Operation.DESCRIBE_CONFIGS),
        ApiKey.DESCRIBE_TOPIC_PARTITIONS: (_topic(Operation.DESCRIBE, named("topics")),),
        # Between brokers.
        ApiKey.UPDATE_METADATA: _whole_cluster(Operation.CLUSTER_ACTION),
        ApiKey.CONTROLLED_SHUTDOWN: _whole_cluster(Operation.CLUSTER_ACTION),
        ApiKey.ALTER_PARTITION: _whole_cluster(Operation.CLUSTER_ACTION),
        ApiKey.ENVELOPE: _whole_cluster(Operation.CLUSTER_ACTION),
    }
)
