"""Every row of the registry names its rights, and dispatch checks them before the handler runs."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any, Final
from uuid import UUID

import pytest

from kbroker.errors import ErrorCode
from kbroker.handlers.registry import APIS, REGISTRY, Api, Registry, Throttle
from kbroker.handlers.rights import RIGHTS, in_response
from kbroker.metadata.features import SHARE_VERSION, STREAMS_VERSION, first_features
from kbroker.protocol import messages
from kbroker.protocol._messages import Kind
from kbroker.protocol.messages.table import Record
from kbroker.protocol.versions import SERVED
from kbroker.security.rights import (
    CLUSTER_NAME,
    DENIED,
    OPERATIONS,
    Operation,
    Resource,
    ResourceType,
    Right,
)
from kbroker.security.session import Session
from kbroker.types import ApiKey
from tests.unit.handlers.support import FakeBroker, FakeRequest
from tests.unit.handlers.test_between_brokers import FakePeers

# T, G, C, X, D, U: topic, group, cluster, transactional id, delegation token, user. "*": without it
# the request fails as a whole. Taken from the rules of Apache Kafka 4.3, not from the code.
TABLE: Final = {
    ApiKey.PRODUCE: "*WRITE X; WRITE T",
    ApiKey.FETCH: "CLUSTER_ACTION C; READ T",
    ApiKey.LIST_OFFSETS: "DESCRIBE T",
    ApiKey.METADATA: "DESCRIBE T; CREATE C (quiet) or CREATE T",
    ApiKey.OFFSET_COMMIT: "*READ G; READ T",
    ApiKey.OFFSET_FETCH: "DESCRIBE G; DESCRIBE T",
    ApiKey.FIND_COORDINATOR: "DESCRIBE G; DESCRIBE X",
    ApiKey.JOIN_GROUP: "*READ G",
    ApiKey.HEARTBEAT: "*READ G",
    ApiKey.LEAVE_GROUP: "*READ G",
    ApiKey.SYNC_GROUP: "*READ G",
    ApiKey.DESCRIBE_GROUPS: "DESCRIBE G",
    ApiKey.LIST_GROUPS: "DESCRIBE C (quiet) or DESCRIBE G",
    ApiKey.API_VERSIONS: "",
    ApiKey.CREATE_TOPICS: "CREATE C (quiet) or CREATE T; DESCRIBE_CONFIGS T",
    ApiKey.DELETE_TOPICS: "DELETE C (quiet) or DESCRIBE T; DELETE C (quiet) or DELETE T",
    ApiKey.DELETE_RECORDS: "DELETE T",
    ApiKey.INIT_PRODUCER_ID: "*WRITE X; IDEMPOTENT_WRITE C",
    ApiKey.ADD_PARTITIONS_TO_TXN: "*CLUSTER_ACTION C; WRITE X; WRITE T",
    ApiKey.ADD_OFFSETS_TO_TXN: "*WRITE X; *READ G",
    ApiKey.END_TXN: "*WRITE X",
    ApiKey.OFFSET_FOR_LEADER_EPOCH: "CLUSTER_ACTION C (quiet) or DESCRIBE T",
    ApiKey.WRITE_TXN_MARKERS: "ALTER C (quiet) or CLUSTER_ACTION C",
    ApiKey.TXN_OFFSET_COMMIT: "*WRITE X; *READ G; READ T",
    ApiKey.DESCRIBE_ACLS: "*DESCRIBE C",
    ApiKey.CREATE_ACLS: "*ALTER C",
    ApiKey.DELETE_ACLS: "*ALTER C",
    ApiKey.DESCRIBE_CONFIGS: "DESCRIBE_CONFIGS C; DESCRIBE_CONFIGS T; DESCRIBE_CONFIGS G",
    ApiKey.ALTER_CONFIGS: "ALTER_CONFIGS C; ALTER_CONFIGS T; ALTER_CONFIGS G",
    ApiKey.INCREMENTAL_ALTER_CONFIGS: "ALTER_CONFIGS C; ALTER_CONFIGS T; ALTER_CONFIGS G",
    ApiKey.ALTER_REPLICA_LOG_DIRS: "*ALTER C",
    ApiKey.DESCRIBE_LOG_DIRS: "DESCRIBE C",
    ApiKey.CREATE_PARTITIONS: "ALTER T",
    ApiKey.SASL_HANDSHAKE: "",
    ApiKey.SASL_AUTHENTICATE: "",
    ApiKey.CREATE_DELEGATION_TOKEN: "CREATE_TOKENS U",
    ApiKey.RENEW_DELEGATION_TOKEN: "",
    ApiKey.EXPIRE_DELEGATION_TOKEN: "",
    ApiKey.DESCRIBE_DELEGATION_TOKEN: "DESCRIBE_TOKENS U (quiet) or DESCRIBE D",
    ApiKey.DELETE_GROUPS: "DELETE G",
    ApiKey.ELECT_LEADERS: "*ALTER C",
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: "*ALTER C",
    ApiKey.LIST_PARTITION_REASSIGNMENTS: "*DESCRIBE C",
    ApiKey.OFFSET_DELETE: "*DELETE G; READ T",
    ApiKey.DESCRIBE_CLIENT_QUOTAS: "*DESCRIBE_CONFIGS C",
    ApiKey.ALTER_CLIENT_QUOTAS: "*ALTER_CONFIGS C",
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: "*DESCRIBE C",
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: "*ALTER C",
    ApiKey.DESCRIBE_CLUSTER: "",
    ApiKey.DESCRIBE_PRODUCERS: "READ T",
    ApiKey.UPDATE_FEATURES: "*ALTER C",
    ApiKey.UNREGISTER_BROKER: "*ALTER C",
    ApiKey.DESCRIBE_TRANSACTIONS: "DESCRIBE X; DESCRIBE T",
    ApiKey.LIST_TRANSACTIONS: "DESCRIBE X",
    ApiKey.CONSUMER_GROUP_HEARTBEAT: "*READ G; DESCRIBE T",
    ApiKey.CONSUMER_GROUP_DESCRIBE: "DESCRIBE G; DESCRIBE T",
    ApiKey.LIST_CONFIG_RESOURCES: "*DESCRIBE_CONFIGS C",
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: "DESCRIBE T",
    ApiKey.SHARE_GROUP_HEARTBEAT: "*READ G; DESCRIBE T",
    ApiKey.SHARE_GROUP_DESCRIBE: "DESCRIBE G; DESCRIBE T",
    ApiKey.STREAMS_GROUP_HEARTBEAT: "*READ G; DESCRIBE T; CREATE C (quiet) or CREATE T",
    ApiKey.STREAMS_GROUP_DESCRIBE: "DESCRIBE G; DESCRIBE T",
    ApiKey.SHARE_FETCH: "*READ G; READ T",
    ApiKey.SHARE_ACKNOWLEDGE: "*READ G; READ T",
    ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS: "DESCRIBE G; DESCRIBE T",
    ApiKey.ALTER_SHARE_GROUP_OFFSETS: "*READ G; READ T",
    ApiKey.DELETE_SHARE_GROUP_OFFSETS: "*DELETE G; READ T",
    ApiKey.INITIALIZE_SHARE_GROUP_STATE: "*CLUSTER_ACTION C",
    ApiKey.READ_SHARE_GROUP_STATE: "*CLUSTER_ACTION C",
    ApiKey.WRITE_SHARE_GROUP_STATE: "*CLUSTER_ACTION C",
    ApiKey.DELETE_SHARE_GROUP_STATE: "*CLUSTER_ACTION C",
    ApiKey.READ_SHARE_GROUP_STATE_SUMMARY: "*CLUSTER_ACTION C",
    ApiKey.UPDATE_METADATA: "*CLUSTER_ACTION C",
    ApiKey.CONTROLLED_SHUTDOWN: "*CLUSTER_ACTION C",
    ApiKey.ALTER_PARTITION: "*CLUSTER_ACTION C",
    ApiKey.ENVELOPE: "*CLUSTER_ACTION C",
}
LETTERS: Final = {
    ResourceType.TOPIC: "T", ResourceType.GROUP: "G", ResourceType.CLUSTER: "C",
    ResourceType.TRANSACTIONAL_ID: "X", ResourceType.DELEGATION_TOKEN: "D", ResourceType.USER: "U",
}  # fmt: skip
ID: Final = UUID(int=9)


def in_words(right: Right) -> str:
    words = f"{'*' if right.whole else ''}{right.operation.name} {LETTERS[right.type]}"
    return words if right.instead is None else f"{in_words(right.instead)} (quiet) or {words}"


def test_every_row_names_its_rights() -> None:
    rows = {api.key: "; ".join(map(in_words, api.rights)) for api in REGISTRY.apis}
    assert rows == TABLE
    assert set(RIGHTS) == set(TABLE)


def test_every_row_is_complete() -> None:
    for api in REGISTRY.apis:
        between = api.between_brokers is not None
        assert (api.key in SERVED) is not between
        assert (api.throttle is Throttle.EXEMPT) is between
        assert not (between and (api.hot or api.for_controller is not None))
        # A right that the dispatch checks has no alternative, and the request names its resources.
        for right in api.rights:
            assert not right.whole or (right.instead is None and right.names is not in_response)
    kinds = {api.key: api.throttle for api in APIS if api.between_brokers is None}
    assert {key for key, kind in kinds.items() if kind is not Throttle.TIME_ONLY} == {
        ApiKey.PRODUCE, ApiKey.FETCH,
        ApiKey.CREATE_TOPICS, ApiKey.DELETE_TOPICS, ApiKey.CREATE_PARTITIONS,
    }  # fmt: skip


# Requests with some of their fields.
partial: Final[Any] = messages
NAMED: Final = [
    (partial.produce.Request(
        transactional_id="x", acks=1, timeout_ms=1,
        topic_data=[partial.produce.TopicData(name="t"), partial.produce.TopicData(topic_id=ID)],
    ), [["x"], ["t", ID]]),
    (partial.produce.Request(acks=1, timeout_ms=1), [[], []]),
    (partial.fetch.Request(
        replica_id=3, topics=[partial.fetch.FetchTopic(topic="t")]), [[CLUSTER_NAME], []]),
    (partial.fetch.Request(
        replica_state=partial.fetch.ReplicaState(replica_id=3)), [[CLUSTER_NAME], []]),
    (partial.fetch.Request(
        replica_state=partial.fetch.ReplicaState(),
        topics=[partial.fetch.FetchTopic(topic_id=ID)]), [[], [ID]]),
    (partial.metadata.Request(
        topics=[partial.metadata.MetadataRequestTopic(name="t")],
        allow_auto_topic_creation=False), [["t"], []]),
    (partial.metadata.Request(
        topics=[partial.metadata.MetadataRequestTopic(name="t")]), [["t"], ["t"]]),
    (partial.metadata.Request(topics=None), [[], []]),
    (partial.offset_commit.Request(
        group_id="g", topics=[partial.offset_commit.OffsetCommitRequestTopic(name="t")]),
     [["g"], ["t"]]),
    (partial.offset_fetch.Request(
        group_id="g", topics=[partial.offset_fetch.OffsetFetchRequestTopics(name="t")]),
     [["g"], ["t"]]),
    (partial.offset_fetch.Request(groups=[
        partial.offset_fetch.OffsetFetchRequestGroup(group_id="g", topics=None),
        partial.offset_fetch.OffsetFetchRequestGroup(group_id="h", topics=[
            partial.offset_fetch.OffsetFetchRequestTopics(topic_id=ID)])]),
     [["g", "h"], [ID]]),
    (partial.find_coordinator.Request(key="g"), [["g"], []]),
    (partial.find_coordinator.Request(key_type=1, coordinator_keys=["x", "y"]), [[], ["x", "y"]]),
    (partial.heartbeat.Request(group_id="g", generation_id=1, member_id=""), [["g"]]),
    (partial.describe_groups.Request(groups=["g", "h"]), [["g", "h"]]),
    (partial.delete_groups.Request(groups_names=["g"]), [["g"]]),
    (partial.create_topics.Request(
        topics=[partial.create_topics.Topic(name="t", num_partitions=1, replication_factor=1)]),
     [["t"], ["t"]]),
    (partial.delete_topics.Request(topic_names=["t"], timeout_ms=1), [["t"], ["t"]]),
    (partial.delete_topics.Request(
        topics=[partial.delete_topics.Topic(topic_id=ID)], timeout_ms=1), [[ID], [ID]]),
    (partial.init_producer_id.Request(transactional_id="", transaction_timeout_ms=1), [[""], []]),
    (partial.init_producer_id.Request(transactional_id=None, transaction_timeout_ms=1),
     [[], [CLUSTER_NAME]]),
    (partial.offset_for_leader_epoch.Request(
        topics=[partial.offset_for_leader_epoch.OffsetForLeaderTopic(topic="t")]), [["t"]]),
    (partial.describe_configs.Request(resources=[
        partial.describe_configs.DescribeConfigsResource(resource_type=kind, resource_name=name)
        for kind, name in ((4, "1"), (8, "1"), (2, "t"), (32, "g"))]),
     [[CLUSTER_NAME], ["t"], ["g"]]),
    (partial.describe_configs.Request(resources=[
        partial.describe_configs.DescribeConfigsResource(resource_type=2, resource_name="t")]),
     [[], ["t"], []]),
    (partial.create_delegation_token.Request(
        owner_principal_type="User", owner_principal_name="a", max_lifetime_ms=1), [["User:a"]]),
    (partial.create_delegation_token.Request(max_lifetime_ms=1), [[]]),
    (partial.describe_delegation_token.Request(owners=None), [[]]),
    (partial.describe_transactions.Request(transactional_ids=["x"]), [["x"], []]),
    (partial.describe_share_group_offsets.Request(groups=[
        partial.describe_share_group_offsets.RequestGroup(group_id="g", topics=[
            partial.describe_share_group_offsets.RequestTopic(topic_name="t")]),
        partial.describe_share_group_offsets.RequestGroup(group_id="h", topics=None)]),
     [["g", "h"], ["t"]]),
    (partial.alter_share_group_offsets.Request(group_id="g", topics=[
        partial.alter_share_group_offsets.RequestTopic(topic_name="t")]), [["g"], ["t"]]),
    (partial.describe_acls.Request(
        resource_type_filter=2, resource_name_filter=None, pattern_type_filter=3,
        principal_filter=None, host_filter=None, operation=2, permission_type=3),
     [[CLUSTER_NAME]]),
]  # fmt: skip


@pytest.mark.parametrize(
    ("message", "names"),
    [pytest.param(*each, id=type(each[0]).__module__.rpartition(".")[2]) for each in NAMED],
)
def test_the_resources_of_a_request(message: Any, names: list[list[str | UUID]]) -> None:
    assert [list(right.names(message)) for right in RIGHTS[message.api]] == names


def test_whose_token_is_described() -> None:
    (right,) = RIGHTS[ApiKey.DESCRIBE_DELEGATION_TOKEN]
    assert right.instead is not None
    owner = messages.describe_delegation_token.DescribeDelegationTokenOwner(
        principal_type="User", principal_name="a"
    )
    request = messages.describe_delegation_token.Request(owners=[owner])
    assert list(right.instead.names(request)) == ["User:a"]


class Denying:
    """Denies one operation, and keeps its calls."""

    def __init__(self, denied: Operation | None) -> None:
        self.denied = denied
        self.calls: list[tuple[Session, Operation, Sequence[Resource]]] = []

    def authorize(
        self,
        session: Session,
        operation: Operation,
        resources: Sequence[Resource],
        request: ApiKey,
        *,
        quiet: bool = False,
    ) -> Collection[Resource]:
        self.calls.append((session, operation, resources))
        return resources if operation is self.denied else ()

    def operations(self, session: Session, type_: ResourceType) -> Callable[[str], int]:
        allowed = sum(1 << each for each in OPERATIONS[type_] if each is not self.denied)
        return lambda name: allowed

    def authorize_by_type(
        self, session: Session, operation: Operation, type_: ResourceType, request: ApiKey
    ) -> bool:
        return operation is not self.denied


# The right of an Envelope is in test_envelope.py.
WHOLE: Final = [
    (api, right)
    for api in REGISTRY.apis
    if not api.hot and api.key is not ApiKey.ENVELOPE
    for right in api.rights
    if right.whole
]


def filled(record: type[Record]) -> Any:
    """Every text is "x", and every array has one item."""
    values: dict[str, Any] = {}
    for name, field in record.fields.items():
        value: Any = "x" if field.kind is Kind.STRING else 0
        if field.is_array:
            values[name] = [value if field.record is None else filled(field.record)]
        elif field.kind is Kind.STRING:
            values[name] = value
    return record(**values)


def body_of(api: Api) -> bytes:
    if api.call is None:
        return b""
    body: bytes = filled(api.table.Request).encode(api.max_version)
    return body


def ask(api: Api, authorizer: Denying) -> tuple[FakeRequest, list[str]]:
    """The request with its answer, and the handlers that ran."""
    broker = FakeBroker()
    broker.services.peers = FakePeers()
    broker.services.authorizer = authorizer
    image = broker.controller.image
    levels = first_features().changed({SHARE_VERSION: 1, STREAMS_VERSION: 1})
    broker.controller.publish(image.with_features(levels))
    ran: list[str] = []

    def run(*_: object) -> None:
        ran.append(api.name)

    handled = api._replace(**{"handle" if api.call is None else "call": run})
    request = FakeRequest(api.key, api.max_version, body_of(api), client_id="c")
    Registry([handled]).dispatch(broker.services, request)
    return request, ran


@pytest.mark.parametrize(("api", "right"), [pytest.param(*each, id=each[0].name) for each in WHOLE])
def test_no_handler_runs_for_a_request_that_is_denied(api: Api, right: Right) -> None:
    authorizer = Denying(right.operation)
    request, ran = ask(api, authorizer)
    assert not ran
    assert request.closed is None
    assert int(DENIED[right.type]).to_bytes(2, "big") in (request.answer or b"")
    session, operation, (resource,) = authorizer.calls[-1]
    assert (session.client_id, session.client_host, str(session.principal)) == (
        "c", "127.0.0.1", "User:ANONYMOUS",
    )  # fmt: skip
    assert operation is right.operation
    assert resource == Resource(right.type, CLUSTER_NAME if right.type == 4 else "x")


@pytest.mark.parametrize(("api", "right"), [pytest.param(*each, id=each[0].name) for each in WHOLE])
def test_a_handler_runs_for_a_request_that_is_allowed(api: Api, right: Right) -> None:
    authorizer = Denying(None)
    request, ran = ask(api, authorizer)
    assert ran == [api.name]
    assert request.answer is None and request.closed is None
    assert [operation for _, operation, _ in authorizer.calls] == [
        each.operation for each in api.rights if each.whole
    ]


def test_a_denied_request_has_the_error_in_its_own_shape() -> None:
    api = REGISTRY.get(ApiKey.ALTER_REPLICA_LOG_DIRS)
    assert api is not None
    table = messages.alter_replica_log_dirs
    moved = table.Request(dirs=[table.AlterReplicaLogDir(path="/d", topics=[
        table.AlterReplicaLogDirTopic(name="t", partitions=[0, 1])])])  # fmt: skip
    broker = FakeBroker()
    broker.services.authorizer = Denying(Operation.ALTER)
    request = broker.send(api.key, 2, moved.encode(2))
    response = table.Response.decode(request.answer or b"", 2)
    assert [each.error_code for each in response.results[0].partitions] == [
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    ] * 2  # fmt: skip
    assert not broker.replicas.moved


def test_a_request_without_a_transaction_needs_no_right_to_one() -> None:
    api = REGISTRY.get(ApiKey.INIT_PRODUCER_ID)
    assert api is not None
    authorizer = Denying(Operation.WRITE)
    broker = FakeBroker()
    broker.services.authorizer = authorizer
    request = messages.init_producer_id.Request(transactional_id=None, transaction_timeout_ms=1)
    assert broker.send(api.key, 4, request.encode(4)).answer is not None
    assert [operation for _, operation, _ in authorizer.calls] == [Operation.IDEMPOTENT_WRITE]


def test_every_type_of_resource_has_an_error() -> None:
    assert set(DENIED) == set(ResourceType) - {ResourceType.ANY}
