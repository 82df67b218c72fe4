"""A small blocking client for the command line and for tools.

Each method does one thing and returns when it is done or raises: `UserError` when no broker can be
reached, `KafkaError` when a broker refuses. `cluster.py` decides which broker is asked, and what is
tried again. A produce that is sent again after a lost connection may be stored twice unless its
batches carry a producer id; `Producer` gives them one.

Owner: the thread that made it; not for two threads at once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, Self

from kbroker.clock import Clock, SystemClock
from kbroker.errors import ErrorCode, KafkaError, UserError
from kbroker.peer import admin_messages, config_messages, messages, placement_messages
from kbroker.peer.admin_messages import DeleteRecordsResult
from kbroker.peer.cluster import RETRY_BACKOFF_MS, Cluster, Decode
from kbroker.peer.config_messages import (
    BROKER_RESOURCE,
    LOGGER_RESOURCE,
    TOPIC_RESOURCE,
    ConfigValue,
    LogDirectory,
    Resource,
)
from kbroker.peer.isolation import READ_UNCOMMITTED
from kbroker.peer.messages import (
    ClusterMetadata,
    FetchResult,
    NewTopic,
    OffsetResult,
    ProduceResult,
    ProducerId,
    TopicResult,
)
from kbroker.peer.placement_messages import PartitionResult, ReassignedPartition
from kbroker.types import ApiKey, TopicPartition

if TYPE_CHECKING:
    from kbroker.protocol.wire import Reader
    from kbroker.security.client_login import ClientLogin
    from kbroker.security.rights import Operation


class Client:
    """One cluster, reached through any of its brokers."""

    def __init__(
        self,
        bootstrap: str,
        *,
        client_id: str = "kbroker-cli",
        timeout_ms: int = 30_000,
        clock: Clock | None = None,
        login: ClientLogin | None = None,
        home: int | None = None,
    ) -> None:
        """`login`: where the brokers ask for one. `home`: as of a `Cluster`."""
        self.cluster: Final = Cluster(
            bootstrap,
            client_id=client_id,
            timeout_ms=timeout_ms,
            clock=clock if clock is not None else SystemClock(),
            login=login,
            home=home,
        )
        self._timeout_ms = timeout_ms

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self.cluster.close()

    def metadata(
        self, topics: Sequence[str] | None = None, *, auto_create: bool = False
    ) -> ClusterMetadata:
        """`None` asks for every topic. A topic's own error is in its entry."""
        return self.cluster.metadata(topics, auto_create=auto_create)

    def partitions(self, topic: str, *, auto_create: bool = False) -> list[int]:
        """The topic's partitions once all have a leader; raises if the topic is not there."""
        return self.cluster.await_topic(topic, auto_create=auto_create)

    def create_topics(
        self, topics: Sequence[NewTopic], *, validate_only: bool = False
    ) -> list[TopicResult]:
        return self.cluster.at_controller(
            ApiKey.CREATE_TOPICS,
            lambda version: messages.encode_create_topics(
                version, topics, timeout_ms=self._timeout_ms, validate_only=validate_only
            ),
            messages.decode_create_topics,
        )

    def delete_topics(self, names: Sequence[str]) -> list[TopicResult]:
        return self.cluster.at_controller(
            ApiKey.DELETE_TOPICS,
            lambda version: messages.encode_delete_topics(
                version, names, timeout_ms=self._timeout_ms
            ),
            messages.decode_delete_topics,
        )

    def create_partitions(
        self,
        counts: Mapping[str, int],
        *,
        validate_only: bool = False,
        assignments: Mapping[str, Sequence[Sequence[int]]] = MappingProxyType({}),
    ) -> list[TopicResult]:
        """`counts` are those that the topics shall have in all; `assignments` the brokers of each
        new partition, of topics where they are not left to the broker."""
        return self.cluster.at_controller(
            ApiKey.CREATE_PARTITIONS,
            lambda version: admin_messages.encode_create_partitions(
                version,
                counts,
                timeout_ms=self._timeout_ms,
                validate_only=validate_only,
                assignments=assignments,
            ),
            admin_messages.decode_create_partitions,
        )

    def delete_records(
        self, offsets: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, DeleteRecordsResult]:
        """The first offset to be left in each partition, or TO_HIGH_WATERMARK."""
        return self._at_leaders(
            offsets,
            ApiKey.DELETE_RECORDS,
            lambda version, share: admin_messages.encode_delete_records(
                version, share, timeout_ms=self._timeout_ms
            ),
            admin_messages.decode_delete_records,
        )

    def reassign(
        self, targets: Mapping[TopicPartition, Sequence[int] | None]
    ) -> list[PartitionResult]:
        """The brokers where each partition is to be, the preferred leader first; None: where it
        was. It is on its way then; `reassignments` says what has not come there."""
        return self.cluster.at_controller(
            ApiKey.ALTER_PARTITION_REASSIGNMENTS,
            lambda version: placement_messages.encode_reassign(
                version, targets, timeout_ms=self._timeout_ms
            ),
            placement_messages.decode_reassign,
        )

    def reassignments(self) -> dict[TopicPartition, ReassignedPartition]:
        """Every partition that is on its way to other brokers."""
        return self.cluster.anywhere(
            ApiKey.LIST_PARTITION_REASSIGNMENTS,
            lambda version: placement_messages.encode_list_reassignments(
                version, timeout_ms=self._timeout_ms
            ),
            placement_messages.decode_list_reassignments,
        )

    def cluster_operations(self) -> frozenset[Operation]:
        """What the client may do on the cluster; nothing if it may not describe it."""
        from kbroker.peer import cluster_messages  # for the console alone

        return self.cluster.anywhere(
            ApiKey.DESCRIBE_CLUSTER,
            cluster_messages.encode_describe_cluster,
            cluster_messages.decode_operations,
        )

    def elect_leaders(
        self, kind: int, partitions: Sequence[TopicPartition] | None
    ) -> list[PartitionResult]:
        """PREFERRED_ELECTION or UNCLEAN_ELECTION; None: of every partition that needs one, and
        those that need none are left out of the answer."""
        return self.cluster.at_controller(
            ApiKey.ELECT_LEADERS,
            lambda version: placement_messages.encode_elect_leaders(
                version, kind, partitions, timeout_ms=self._timeout_ms
            ),
            placement_messages.decode_elect_leaders,
        )

    def topic_configs(self, topic: str) -> list[ConfigValue]:
        return self.configs(Resource(TOPIC_RESOURCE, topic))

    def configs(
        self, resource: Resource, keys: Sequence[str] | None = None, *, details: bool = False
    ) -> list[ConfigValue]:
        """Settings of one resource: all, or those named; with synonyms and documentation, or not.

        A broker is asked for its own and its loggers'. A topic that is not there is not waited for.
        """

        def encode(version: int) -> bytes:
            return config_messages.encode_describe_configs(version, resource, keys, details=details)

        def decode(reader: Reader, version: int) -> list[ConfigValue] | KafkaError:
            try:
                return config_messages.decode_describe_configs(reader, version)
            except KafkaError as error:
                if error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                    return error
                raise

        node_id = _node_id(resource)
        if node_id is None:
            found = self.cluster.anywhere(ApiKey.DESCRIBE_CONFIGS, encode, decode)
        else:
            found = self.cluster.at_broker(node_id, ApiKey.DESCRIBE_CONFIGS, encode, decode)
        if isinstance(found, KafkaError):
            raise found
        return found

    def config_resources(self, kind: int) -> list[str]:
        """The names of resources of one kind that have settings of their own."""
        return self.cluster.anywhere(
            ApiKey.LIST_CONFIG_RESOURCES,
            lambda version: config_messages.encode_list_config_resources(version, kind),
            config_messages.decode_list_config_resources,
        )

    def alter_configs(
        self,
        resources: Sequence[Resource],
        values: Mapping[str, str],
        unset: Sequence[str],
        *,
        validate_only: bool = False,
    ) -> list[TopicResult]:
        """Set some keys and let go of others, of each resource; the rest stays as it is."""
        api_key, decode = ApiKey.INCREMENTAL_ALTER_CONFIGS, config_messages.decode_alter_configs
        results: list[TopicResult] = []
        for node_id, share in _by_node(resources).items():

            def encode(version: int, share: Sequence[Resource] = share) -> bytes:
                return config_messages.encode_alter_configs(
                    version, share, values, unset, validate_only=validate_only
                )

            if node_id is None:
                results += self.cluster.at_controller(api_key, encode, decode)
            else:
                results += self.cluster.at_broker(node_id, api_key, encode, decode)
        return results

    def log_directories(
        self, *, of_all: bool = True, partitions: Sequence[TopicPartition] | None = None
    ) -> dict[int, list[LogDirectory]]:
        """The data directories of every broker, by its id; not `of_all`: of those that answer. With
        every partition in them, or with those that are named."""
        answers = self.cluster.everywhere(
            ApiKey.DESCRIBE_LOG_DIRS,
            lambda version: config_messages.encode_describe_log_dirs(version, partitions),
            config_messages.decode_describe_log_dirs,
            of_all=of_all,
        )
        for answer in answers.values():
            if of_all and isinstance(answer, KafkaError):
                raise answer
        return {node_id: answer for node_id, answer in answers.items() if isinstance(answer, list)}

    def move_logs(
        self, node_id: int, partitions: Sequence[TopicPartition], path: str
    ) -> dict[TopicPartition, ErrorCode]:
        """One broker's replicas go to another of its data directories, in the background."""
        return self.cluster.at_broker(
            node_id,
            ApiKey.ALTER_REPLICA_LOG_DIRS,
            lambda version: config_messages.encode_alter_log_dirs(version, partitions, path),
            config_messages.decode_alter_log_dirs,
        )

    def init_producer_id(self) -> ProducerId:
        return self.cluster.anywhere(
            ApiKey.INIT_PRODUCER_ID,
            messages.encode_init_producer_id,
            messages.decode_init_producer_id,
        )

    def produce(
        self, batches: Mapping[TopicPartition, bytes], *, acks: int = -1
    ) -> dict[TopicPartition, ProduceResult]:
        """One batch for each partition; with acks=0 the results are made up, all without error."""

        def encode(version: int, share: Mapping[TopicPartition, bytes]) -> bytes:
            return messages.encode_produce(version, share, acks=acks, timeout_ms=self._timeout_ms)

        if acks != 0:
            return self._at_leaders(batches, ApiKey.PRODUCE, encode, messages.decode_produce)
        sent = self.cluster.until_answered(
            batches, lambda left: self.cluster.send_to_leaders(left, ApiKey.PRODUCE, encode)
        )
        unknown = ProduceResult(
            error=ErrorCode.NONE, message=None, base_offset=-1, log_append_time_ms=-1
        )
        return dict.fromkeys(sent, unknown)

    def fetch(
        self,
        positions: Mapping[TopicPartition, int],
        *,
        max_wait_ms: int = 500,
        min_bytes: int = 1,
        max_bytes: int = 50 * 1024 * 1024,
        partition_max_bytes: int = 1024 * 1024,
        isolation: int = READ_UNCOMMITTED,
    ) -> dict[TopicPartition, FetchResult]:
        """One fetch from every leader concerned; a retriable error is just a partition left out."""

        def encode(version: int, asked: Mapping[TopicPartition, int]) -> bytes:
            return messages.encode_fetch(
                version,
                asked,
                max_wait_ms=max_wait_ms,
                min_bytes=min_bytes,
                max_bytes=max_bytes,
                partition_max_bytes=partition_max_bytes,
                isolation=isolation,
            )

        results = self.cluster.ask_leaders(positions, ApiKey.FETCH, encode, messages.decode_fetch)
        if not results and positions:
            self.cluster.sleep_ms(RETRY_BACKOFF_MS)  # all leaders moved: do not spin
        return results

    def list_offsets(
        self, timestamps: Mapping[TopicPartition, int], *, isolation: int = READ_UNCOMMITTED
    ) -> dict[TopicPartition, OffsetResult]:
        """By timestamp in ms, or EARLIEST_TIMESTAMP / LATEST_TIMESTAMP; offset -1 is "none"."""
        return self._at_leaders(
            timestamps,
            ApiKey.LIST_OFFSETS,
            lambda version, share: messages.encode_list_offsets(
                version, share, isolation, timeout_ms=self._timeout_ms
            ),
            messages.decode_list_offsets,
        )

    def _at_leaders(
        self,
        asked: Mapping[TopicPartition, Any],
        api_key: ApiKey,
        encode: Callable[[int, Mapping[TopicPartition, Any]], bytes],
        decode: Decode[dict[TopicPartition, Any]],
    ) -> dict[TopicPartition, Any]:
        return self.cluster.until_answered(
            asked, lambda left: self.cluster.ask_leaders(left, api_key, encode, decode)
        )


def _node_id(resource: Resource) -> int | None:
    """The broker that alone answers for a resource."""
    if resource.kind not in (BROKER_RESOURCE, LOGGER_RESOURCE) or not resource.name:
        return None
    if not resource.name.isascii() or not resource.name.isdecimal():
        raise UserError(f"'{resource.name}' is no broker", "give its number")
    return int(resource.name)


def _by_node(resources: Sequence[Resource]) -> dict[int | None, list[Resource]]:
    grouped: dict[int | None, list[Resource]] = {}
    for resource in resources:
        grouped.setdefault(_node_id(resource), []).append(resource)
    return grouped
