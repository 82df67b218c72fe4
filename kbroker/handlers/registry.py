"""The list of the APIs that this broker serves, and the dispatch of every cold request.

Each row joins the versions of `protocol/versions.py` to the function of one API family and to the
function that makes that family's error answers. ApiVersions answers exactly these rows, so an API
is advertised when, and only when, it is here. Produce, Fetch, Metadata, OffsetCommit, Heartbeat,
ConsumerGroupHeartbeat, AddPartitionsToTxn and EndTxn are "hot": the compiled request path takes
whole runs of them, and passes on those that it cannot decide. The cold half of Produce needs that
path, so the server puts it in with `with_hot`.

A row says all that the dispatch has to know of an API: the rights that it needs, the quota that it
counts for, whether only the controller serves it, and whether it is between brokers. An API between
brokers is served on their listener (`inter.broker.listener.name`) only, and is never listed.

`dispatch` runs on a request-handler thread, once per cold request, and never raises. A key or
version that is not served has no error body in the protocol, so the connection is closed, except
that an unknown ApiVersions version is answered (KIP-511). Malformed bytes close the connection;
anything else unexpected becomes UNKNOWN_SERVER_ERROR in the shape of the answer.

`Registry` is immutable.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from enum import Enum
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from kbroker.errors import ErrorCode, KafkaError
from kbroker.handlers import (
    alter_partition,
    configs,
    controlled_shutdown,
    envelope,
    find_coordinator,
    heartbeat,
    init_producer_id,
    join_group,
    leave_group,
    list_offsets,
    metadata,
    offset_commit,
    offset_fetch,
    offset_for_leader_epoch,
    sync_group,
    update_metadata,
)
from kbroker.handlers.api_versions import ApiVersions, Listed
from kbroker.handlers.authorization import authorize
from kbroker.handlers.call import Call, Shape, Table
from kbroker.handlers.envelope import Forwarded
from kbroker.handlers.forwarding import (
    always,
    forward,
    is_for_another,
    is_on_brokers_listener,
)
from kbroker.handlers.group_protocols import CONSUMER, SHARE, STREAMS, GroupProtocol, is_served
from kbroker.handlers.reply import (
    Failure,
    answer_exception,
    api_name,
    close,
    close_not_served,
)
from kbroker.handlers.rights import RIGHTS, SHARE_STATE_KEYS
from kbroker.metadata.controller.image_updates import (
    IN_SYNC_KEY,
    IN_SYNC_VERSION,
    SHUTDOWN_KEY,
    SHUTDOWN_VERSION,
    UPDATE_KEY,
    UPDATE_PART_VERSION,
    UPDATE_VERSION,
)
from kbroker.protocol import messages
from kbroker.protocol.versions import SERVED, VersionRange
from kbroker.security.rights import Right
from kbroker.types import ApiKey

if TYPE_CHECKING:
    from kbroker.handlers.services import ColdRequest, Services
    from kbroker.protocol.messages.table import Message

Handle = Callable[["Services", "ColdRequest"], None]
HandleCall = Callable[["Services", Call[Any]], None]
# Whether the controller alone can do what this message asks for.
ForController = Callable[["Services", Any], bool]


_tables: dict[ApiKey, Table] = {}


# Of requests that are fields, or one array of texts; most have records within records.
_TEXTS: Final = 10
# Of a request that was forwarded, beside what is decoded of it.
_COPIES_IN_ENVELOPE: Final = 3


class Throttle(Enum):
    """The quota that a request counts for, besides the time that handlers take for it."""

    PRODUCE = "producer_byte_rate"
    FETCH = "consumer_byte_rate"
    MUTATION = "controller_mutation_rate"
    TIME_ONLY = "request_percentage"
    EXEMPT = ""  # between brokers


class Api(NamedTuple):
    """One API: what is served and listed, which rights it needs, and what handles it.

    `handle` is None for a hot API without a cold half: such a request never comes here.
    """

    key: ApiKey
    handle: Handle | None
    failure: Failure | None
    rights: tuple[Right, ...]  # in the order in which they are checked; empty: none is needed
    throttle: Throttle = Throttle.TIME_ONLY
    hot: bool = False
    # Handles a request that was read by its table, instead of `handle`.
    call: HandleCall | None = None
    shape: Shape | None = None
    for_controller: ForController | None = None  # None: any broker does it
    # The memory that a decoded request takes, at most, for each byte of its body, in bytes.
    memory_factor: int = _TEXTS
    # The versions of an API between brokers; those of the others are in `SERVED`.
    between_brokers: VersionRange | None = None
    # Listed, and served, only where groups of this protocol are.
    protocol: GroupProtocol | None = None

    @property
    def table(self) -> Table:
        """The messages of this API, imported at the first request."""
        table = _tables.get(self.key)
        if table is None:
            table = _tables[self.key] = getattr(messages, self.key.name.lower())
        return table

    @property
    def name(self) -> str:
        return self.key.label

    @property
    def versions(self) -> VersionRange:
        return SERVED[self.key] if self.between_brokers is None else self.between_brokers

    @property
    def min_version(self) -> int:
        return self.versions.min

    @property
    def max_version(self) -> int:
        return self.versions.max

    @property
    def advertised_min(self) -> int:
        return self.versions.advertised_min


class Registry:
    """The rows by key, ApiVersions made from them, and the dispatch over them."""

    __slots__ = ("_api_versions", "_by_key", "apis")

    def __init__(self, apis: Iterable[Api]) -> None:
        made_here = (ApiKey.API_VERSIONS, ApiKey.ENVELOPE)
        rows = [api for api in apis if api.key not in made_here]
        own = SERVED[ApiKey.API_VERSIONS]
        listed = [
            Listed(api.key, api.advertised_min, api.max_version, api.protocol)
            for api in rows
            if api.between_brokers is None
        ]
        self._api_versions = ApiVersions([*listed, Listed(ApiKey.API_VERSIONS, own.min, own.max)])
        rows.append(self._row_of_api_versions())
        rows.append(self._row_of_envelope(rows))
        self.apis: tuple[Api, ...] = tuple(sorted(rows, key=lambda api: api.key))
        self._by_key = {int(api.key): api for api in self.apis}

    def _row_of_api_versions(self) -> Api:
        versions, key = self._api_versions, ApiKey.API_VERSIONS
        return Api(key, versions.handle, versions.failure, RIGHTS[key])

    def _row_of_envelope(self, rows: Iterable[Api]) -> Api:
        row = _between_brokers(ApiKey.ENVELOPE, envelope.VERSION, self._serve_envelope)
        inside = [api.memory_factor for api in rows if api.for_controller is not None]
        return row._replace(memory_factor=max(inside, default=0) + _COPIES_IN_ENVELOPE)

    def with_hot(self, key: ApiKey, handle: Handle, failure: Failure | None) -> Registry:
        """This registry with a cold half for a hot API."""
        return Registry(
            api._replace(handle=handle, failure=failure) if api.key is key else api
            for api in self.apis
        )

    @property
    def unsupported_api_versions(self) -> bytes:
        """The answer to ApiVersions of a version that is not known."""
        return self._api_versions.unsupported_version

    def get(self, api_key: int) -> Api | None:
        return self._by_key.get(api_key)

    def dispatch(self, services: Services, request: ColdRequest) -> None:
        """Handle one cold request; whatever happens is an answer or a closed connection."""
        api = self._by_key.get(request.api_key)
        try:
            if api is not None and _is_served(services, request, api):
                if api.call is not None:
                    _call(services, request, api, api.call)
                elif api.handle is None:
                    close(request, f"{api_name(request)} is served by the compiled path only")
                else:
                    _authorize(services, api, request)
                    api.handle(services, request)
            elif request.api_key == ApiKey.API_VERSIONS:
                request.respond(self._api_versions.unsupported_version)
            else:
                close_not_served(request)
        except Exception as error:
            answer_exception(request, api.failure if api is not None else None, error)

    def _serve_envelope(self, services: Services, call: Call[Any]) -> None:
        """Serve the request inside, for the client that it names."""
        request = Forwarded(call)
        api = self._by_key.get(request.api_key)
        if api is None or request.api_version not in api.versions:
            raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, f"{api_name(request)} is not served")
        if api.for_controller is None:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST, f"{api_name(request)} is not to be forwarded"
            )
        self.dispatch(services, request)


def _is_served(services: Services, request: ColdRequest, api: Api) -> bool:
    if api.between_brokers is None:
        return request.api_version in SERVED[api.key]
    is_inside = is_on_brokers_listener(services, request)
    return is_inside and request.api_version in api.between_brokers


def _call(services: Services, request: ColdRequest, api: Api, handle: HandleCall) -> None:
    call: Call[Any] = Call(request, api.table, api.shape)
    with call:
        if api.protocol is not None and not is_served(services, api.protocol):
            call.fail(ErrorCode.UNSUPPORTED_VERSION)
            return
        if (
            api.for_controller is not None
            and is_for_another(services, request)
            and api.for_controller(services, call.message)
        ):
            forward(services, call)  # where it is authorized and recorded
            return
        if services.audit is not None:
            from kbroker.handlers.audited import watch  # few brokers have an audit log

            watch(services, call, api.key)
        _authorize(services, api, request, call.message)
        handle(services, call)


def _authorize(
    services: Services, api: Api, request: ColdRequest, message: Message | None = None
) -> None:
    """KafkaError: the client lacks a right without which nothing of the request is done."""
    if services.authorizer is not None:
        authorize(services.authorizer, request, api.rights, message, api.key)


def _api(
    key: ApiKey,
    call: HandleCall,
    shape: Shape | None = None,
    throttle: Throttle = Throttle.TIME_ONLY,
    *,
    hot: bool = False,
    for_controller: ForController | None = None,
    memory_factor: int = _TEXTS,
    protocol: GroupProtocol | None = None,
) -> Api:
    rights = RIGHTS[key]
    return Api(
        key, None, None, rights, throttle, hot, call, shape, for_controller, memory_factor,
        protocol=protocol,
    )  # fmt: skip


def _between_brokers(
    key: ApiKey, version: int, call: HandleCall, *, last_version: int | None = None
) -> Api:
    last = version if last_version is None else last_version
    versions = VersionRange(version, last, version)
    rights, throttle = RIGHTS[key], Throttle.EXEMPT
    return Api(key, None, None, rights, throttle, call=call, between_brokers=versions)


def _late(module: str, function: str = "handle") -> HandleCall:
    """A handler that is imported at the first request: few brokers need it, or seldom."""

    def handle(services: Services, call: Call[Any]) -> None:
        getattr(import_module(f"kbroker.handlers.{module}"), function)(services, call)

    return handle


def _late_failure(module: str, function: str = "failure") -> Shape:
    def failure(call: Call[Any], code: ErrorCode, message: str | None) -> Message:
        made: Message = getattr(import_module(f"kbroker.handlers.{module}"), function)(
            call, code, message
        )
        return made

    return failure


def _late_for_controller(module: str) -> ForController:
    def is_for_controller(services: Services, message: Any) -> bool:
        found = import_module(f"kbroker.handlers.{module}").is_for_controller(services, message)
        return bool(found)

    return is_for_controller


def _share_state(key: ApiKey) -> Api:
    """Of share coordinators; their clients are brokers."""
    return _api(key, _late("share_state"), protocol=SHARE)


def _share_offsets(key: ApiKey, memory_factor: int) -> Api:
    name = key.name.lower()
    return _api(key, _late(name), _late_failure(name), memory_factor=memory_factor, protocol=SHARE)


APIS: Final[tuple[Api, ...]] = (
    Api(ApiKey.PRODUCE, None, None, RIGHTS[ApiKey.PRODUCE], Throttle.PRODUCE, hot=True),
    Api(ApiKey.FETCH, None, None, RIGHTS[ApiKey.FETCH], Throttle.FETCH, hot=True),
    _api(ApiKey.LIST_OFFSETS, list_offsets.handle, memory_factor=45),
    _api(ApiKey.METADATA, metadata.handle, metadata.failure, hot=True, memory_factor=35),
    _api(
        ApiKey.OFFSET_COMMIT,
        offset_commit.handle,
        offset_commit.failure,
        hot=True,
        memory_factor=45,
    ),
    _api(ApiKey.OFFSET_FETCH, offset_fetch.handle, offset_fetch.failure, memory_factor=50),
    _api(ApiKey.FIND_COORDINATOR, find_coordinator.handle, find_coordinator.failure),
    _api(ApiKey.JOIN_GROUP, join_group.handle, join_group.failure, memory_factor=25),
    _api(ApiKey.HEARTBEAT, heartbeat.handle, hot=True),
    _api(ApiKey.LEAVE_GROUP, leave_group.handle, memory_factor=25),
    _api(ApiKey.SYNC_GROUP, sync_group.handle, memory_factor=25),
    _api(ApiKey.DESCRIBE_GROUPS, _late("describe_groups"), _late_failure("describe_groups")),
    _api(ApiKey.LIST_GROUPS, _late("list_groups")),
    _api(
        ApiKey.CREATE_TOPICS,
        _late("topics", "handle_create"),
        throttle=Throttle.MUTATION,
        for_controller=always,
        memory_factor=25,
    ),
    _api(
        ApiKey.DELETE_TOPICS,
        _late("topics", "handle_delete"),
        _late_failure("topics", "delete_failure"),
        Throttle.MUTATION,
        for_controller=always,
    ),
    _api(
        ApiKey.DELETE_RECORDS,
        _late("delete_records"),
        _late_failure("delete_records"),
        memory_factor=45,
    ),
    _api(
        ApiKey.INIT_PRODUCER_ID,
        init_producer_id.handle,
        init_producer_id.failure,
        for_controller=init_producer_id.is_for_controller,
    ),
    _api(
        ApiKey.ADD_PARTITIONS_TO_TXN,
        _late("add_partitions_to_txn"),
        _late_failure("add_partitions_to_txn"),
        hot=True,
        memory_factor=45,
    ),
    _api(ApiKey.ADD_OFFSETS_TO_TXN, _late("add_offsets_to_txn")),
    _api(ApiKey.END_TXN, _late("end_txn"), hot=True),
    _api(
        ApiKey.OFFSET_FOR_LEADER_EPOCH,
        offset_for_leader_epoch.handle,
        offset_for_leader_epoch.failure,
        memory_factor=45,
    ),
    _api(
        ApiKey.CREATE_PARTITIONS,
        _late("partitions"),
        throttle=Throttle.MUTATION,
        for_controller=always,
        memory_factor=60,
    ),
    _api(ApiKey.OFFSET_DELETE, _late("offset_delete"), memory_factor=25),
    _api(
        ApiKey.TXN_OFFSET_COMMIT,
        _late("txn_offset_commit"),
        _late_failure("txn_offset_commit"),
        memory_factor=45,
    ),
    _api(ApiKey.DELETE_GROUPS, _late("delete_groups")),
    _api(ApiKey.DESCRIBE_CONFIGS, configs.handle_describe, memory_factor=35),
    _api(
        ApiKey.ALTER_CONFIGS,
        _late("alter_configs", "handle_alter"),
        for_controller=_late_for_controller("alter_configs"),
        memory_factor=35,
    ),
    _api(
        ApiKey.INCREMENTAL_ALTER_CONFIGS,
        _late("alter_configs", "handle_incremental"),
        for_controller=_late_for_controller("alter_configs"),
        memory_factor=35,
    ),
    _api(
        ApiKey.ELECT_LEADERS,
        _late("elect_leaders"),
        _late_failure("elect_leaders"),
        for_controller=always,
        memory_factor=45,
    ),
    _api(
        ApiKey.ALTER_PARTITION_REASSIGNMENTS,
        _late("reassignments", "handle_alter"),
        _late_failure("reassignments", "alter_failure"),
        for_controller=always,
        memory_factor=45,
    ),
    _api(
        ApiKey.LIST_PARTITION_REASSIGNMENTS,
        _late("reassignments", "handle_list"),
        for_controller=always,
        memory_factor=45,
    ),
    _api(
        ApiKey.DESCRIBE_CLIENT_QUOTAS,
        _late("client_quotas", "handle_describe"),
        memory_factor=20,
    ),
    _api(
        ApiKey.ALTER_CLIENT_QUOTAS,
        _late("client_quotas", "handle_alter"),
        _late_failure("client_quotas", "alter_failure"),
        for_controller=always,
        memory_factor=60,
    ),
    _api(
        ApiKey.ALTER_REPLICA_LOG_DIRS,
        _late("alter_log_dirs"),
        _late_failure("alter_log_dirs"),
        memory_factor=45,
    ),
    _api(ApiKey.DESCRIBE_LOG_DIRS, _late("log_dirs"), memory_factor=45),
    _api(ApiKey.DESCRIBE_PRODUCERS, _late("describe_producers"), memory_factor=45),
    _api(
        ApiKey.CONSUMER_GROUP_HEARTBEAT,
        _late("consumer_group_heartbeat"),
        hot=True,
        protocol=CONSUMER,
    ),
    _api(
        ApiKey.CONSUMER_GROUP_DESCRIBE,
        _late("consumer_group_describe"),
        _late_failure("group_protocols", "describe_failure"),
        protocol=CONSUMER,
    ),
    _api(ApiKey.SHARE_GROUP_HEARTBEAT, _late("share_group_heartbeat"), protocol=SHARE),
    _api(
        ApiKey.SHARE_GROUP_DESCRIBE,
        _late("share_group_describe"),
        _late_failure("share_group_describe"),
        protocol=SHARE,
    ),
    _api(ApiKey.SHARE_FETCH, _late("share_fetch"), memory_factor=30, protocol=SHARE),
    _api(ApiKey.SHARE_ACKNOWLEDGE, _late("share_acknowledge"), memory_factor=30, protocol=SHARE),
    *(_share_state(key) for key in SHARE_STATE_KEYS),
    _api(
        ApiKey.STREAMS_GROUP_HEARTBEAT,
        _late("streams_group_heartbeat"),
        memory_factor=80,
        protocol=STREAMS,
    ),
    _api(
        ApiKey.STREAMS_GROUP_DESCRIBE,
        _late("streams_group_describe"),
        _late_failure("streams_group_describe"),
        protocol=STREAMS,
    ),
    _share_offsets(ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS, memory_factor=40),
    _share_offsets(ApiKey.ALTER_SHARE_GROUP_OFFSETS, memory_factor=40),
    _share_offsets(ApiKey.DELETE_SHARE_GROUP_OFFSETS, memory_factor=25),
    _api(ApiKey.LIST_CONFIG_RESOURCES, _late("list_config_resources")),
    _api(ApiKey.DESCRIBE_CLUSTER, _late("cluster"), _late_failure("cluster")),
    _api(
        ApiKey.DESCRIBE_TOPIC_PARTITIONS,
        _late("describe_topic_partitions"),
        _late_failure("describe_topic_partitions"),
        memory_factor=30,
    ),
    _api(ApiKey.UNREGISTER_BROKER, _late("unregister_broker"), for_controller=always),
    _api(
        ApiKey.UPDATE_FEATURES,
        _late("update_features"),
        _late_failure("update_features"),
        for_controller=always,
        memory_factor=25,
    ),
    _api(ApiKey.WRITE_TXN_MARKERS, _late("write_txn_markers"), memory_factor=45),
    _api(ApiKey.SASL_HANDSHAKE, _late("sasl_state", "handle_handshake")),
    _api(ApiKey.SASL_AUTHENTICATE, _late("sasl_state", "handle_authenticate")),
    # What is not there, as Apache Kafka answers where it is not configured.
    _api(ApiKey.DESCRIBE_ACLS, _late("acls", "handle_describe")),
    _api(
        ApiKey.CREATE_ACLS,
        _late("acls", "handle_create"),
        _late_failure("acls", "create_failure"),
        for_controller=_late_for_controller("acls"),
        memory_factor=15,
    ),
    _api(
        ApiKey.DELETE_ACLS,
        _late("acls", "handle_delete"),
        _late_failure("acls", "delete_failure"),
        for_controller=_late_for_controller("acls"),
        memory_factor=15,
    ),
    _api(
        ApiKey.CREATE_DELEGATION_TOKEN,
        _late("delegation_tokens", "handle_create"),
        _late_failure("delegation_tokens", "create_failure"),
        for_controller=always,
        memory_factor=25,
    ),
    _api(
        ApiKey.RENEW_DELEGATION_TOKEN,
        _late("delegation_tokens", "handle_renew"),
        _late_failure("delegation_tokens", "renew_failure"),
        for_controller=always,
    ),
    _api(
        ApiKey.EXPIRE_DELEGATION_TOKEN,
        _late("delegation_tokens", "handle_expire"),
        _late_failure("delegation_tokens", "expire_failure"),
        for_controller=always,
    ),
    _api(
        ApiKey.DESCRIBE_DELEGATION_TOKEN,
        _late("delegation_tokens", "handle_describe"),
        memory_factor=25,
    ),
    _api(
        ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS,
        _late("scram_credentials", "handle_describe"),
        _late_failure("scram_credentials", "describe_failure"),
        memory_factor=30,
    ),
    _api(
        ApiKey.ALTER_USER_SCRAM_CREDENTIALS,
        _late("scram_credentials", "handle_alter"),
        _late_failure("scram_credentials", "alter_failure"),
        for_controller=always,
        memory_factor=30,
    ),
    _api(ApiKey.DESCRIBE_TRANSACTIONS, _late("transactions", "handle_describe")),
    _api(ApiKey.LIST_TRANSACTIONS, _late("transactions", "handle_list")),
    _between_brokers(
        UPDATE_KEY, UPDATE_VERSION, update_metadata.handle, last_version=UPDATE_PART_VERSION
    ),
    _between_brokers(SHUTDOWN_KEY, SHUTDOWN_VERSION, controlled_shutdown.handle),
    _between_brokers(IN_SYNC_KEY, IN_SYNC_VERSION, alter_partition.handle),
)

REGISTRY: Final = Registry(APIS)


def dispatch(services: Services, request: ColdRequest) -> None:
    """`Registry.dispatch` of the registry that is built in."""
    REGISTRY.dispatch(services, request)
