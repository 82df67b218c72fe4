"""What the audit log has of requests that change something."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kbroker.handlers.audited import AUDITED, HIDDEN, Asked
from kbroker.handlers.registry import APIS
from kbroker.handlers.rights import RIGHTS
from kbroker.metadata.image import ClusterImage
from kbroker.protocol import messages
from kbroker.security.audit import Kind
from kbroker.security.authorizer import AclAuthorizer, Rules
from kbroker.security.denials import Denials
from kbroker.security.rights import Operation
from kbroker.security.scram import ScramMechanism
from kbroker.security.session import Principal
from kbroker.types import ApiKey
from tests.unit.handlers.test_with_controller import Broker, WaitingRequest
from tests.unit.net.harness import eventually

ANNA = Principal("User", "anna")
TOPIC, BROKER = 2, 4
SECRET = "a secret that no line has"
# They change what they are about, and are not for the audit log: records, offsets of consumers,
# members, and the work of brokers.
NOT_AUDITED = {
    ApiKey.PRODUCE,
    ApiKey.OFFSET_COMMIT,
    ApiKey.TXN_OFFSET_COMMIT,
    ApiKey.ADD_PARTITIONS_TO_TXN,
    ApiKey.ADD_OFFSETS_TO_TXN,
    ApiKey.END_TXN,
    ApiKey.INIT_PRODUCER_ID,
    ApiKey.WRITE_TXN_MARKERS,
    ApiKey.METADATA,
    ApiKey.STREAMS_GROUP_HEARTBEAT,
}


class Audit:
    """Makes the records at once."""

    def __init__(self) -> None:
        self.records: list[dict[str, Any]] = []

    def note(self, kind: Kind, make: Any, size_bytes: int = 0) -> bool:
        assert kind is Kind.CHANGE
        self.records.append(json.loads(json.dumps(make())))
        return True


class Audited(Broker):
    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        audit: Any = Audit()
        self.audit = self.services.audit = audit

    def record(self, key: ApiKey, version: int, message: Any) -> dict[str, Any]:
        (record,) = self.records(key, version, message)
        return record

    def records(self, key: ApiKey, version: int, message: Any) -> list[dict[str, Any]]:
        self.audit.records.clear()
        body = message.encode(version)
        request = WaitingRequest(
            int(key), version, body, principal=ANNA, client_id="tool", peer_host="10.0.0.7"
        )
        self.dispatch(request)
        assert request.answered.wait(60) and request.closed is None, request.closed
        return list(self.audit.records)

    def dispatch(self, request: WaitingRequest) -> None:
        from kbroker.handlers.registry import REGISTRY

        REGISTRY.dispatch(self.services, request)

    def create(self, *names: str, **configs: str) -> dict[str, Any]:
        table = messages.create_topics
        made = [table.Config(name=key.replace("_", "."), value=configs[key]) for key in configs]
        topics = [
            table.Topic(
                name=each, num_partitions=2, replication_factor=1, assignments=[], configs=made
            )
            for each in names
        ]
        return self.record(ApiKey.CREATE_TOPICS, 7, table.Request(topics=topics))

    def alter(self, kind: int, name: str, *changes: tuple[str, int, str | None]) -> dict[str, Any]:
        table = messages.incremental_alter_configs
        configs = [
            table.AlterableConfig(name=key, config_operation=operation, value=value)
            for key, operation, value in changes
        ]
        resource = table.AlterConfigsResource(
            resource_type=kind, resource_name=name, configs=configs
        )
        request = table.Request(resources=[resource], validate_only=False)
        return self.record(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, request)


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Audited]:
    made = Audited(tmp_path / "metadata")
    yield made
    made.stop()


def test_a_topic_that_is_created_and_one_that_is_not(broker: Audited) -> None:
    record = broker.create("orders", retention_ms="5")
    assert record == {
        "event": "CreateTopics",
        "principal": "User:anna",
        "host": "10.0.0.7",
        "client_id": "tool",
        "listener": "PLAINTEXT",
        "outcome": "done",
        "items": [
            {
                "resource": "topic:orders",
                "partitions": 2,
                "replication_factor": 1,
                "configs": {"retention.ms": "5"},
            }
        ],
    }
    record = broker.create("orders", "new")
    assert record["outcome"] == "partly"
    assert [each.get("error") for each in record["items"]] == ["TOPIC_ALREADY_EXISTS", None]


def test_a_topic_that_metadata_creates(broker: Audited) -> None:
    table = messages.metadata
    topics = [table.MetadataRequestTopic(name="orders")]
    request = table.Request(topics=topics, allow_auto_topic_creation=True)
    broker.records(ApiKey.METADATA, 12, request)
    eventually(lambda: bool(broker.audit.records), "a record")
    (record,) = broker.audit.records
    assert (record["event"], record["principal"]) == ("AutoCreateTopics", "User:anna")
    assert record["outcome"] == "done" and record["items"] == [{"resource": "topic:orders"}]


def test_deleted_topics_have_their_names(broker: Audited) -> None:
    broker.create("orders")
    topic_id = broker.controller.image.topics["orders"].topic_id
    table = messages.delete_topics
    request = table.Request(topics=[table.Topic(name=None, topic_id=topic_id)], timeout_ms=1000)
    record = broker.record(ApiKey.DELETE_TOPICS, 6, request)
    assert record["items"] == [{"resource": "topic:orders", "partitions_before": 2}]


def test_settings_before_and_after(broker: Audited) -> None:
    broker.create("orders", retention_ms="5")
    changes = [("retention.ms", 0, "7"), ("cleanup.policy", 2, "compact"), ("segment.ms", 1, None)]
    record = broker.alter(TOPIC, "orders", *changes)
    assert record["items"] == [
        {
            "resource": "topic:orders",
            "settings": [
                {"key": "retention.ms", "operation": "set", "value": "7", "before": "5"},
                {
                    "key": "cleanup.policy",
                    "operation": "append",
                    "value": "compact",
                    "before": None,
                },
                {"key": "segment.ms", "operation": "delete", "value": None, "before": None},
            ],
        }
    ]


def test_settings_that_a_replacement_removes(broker: Audited) -> None:
    broker.create("orders", retention_ms="5", segment_ms="60000")
    table = messages.alter_configs
    config = table.AlterableConfig(name="segment.ms", value="70000")
    resource = table.AlterConfigsResource(
        resource_type=TOPIC, resource_name="orders", configs=[config]
    )
    request = table.Request(resources=[resource], validate_only=False)
    (item,) = broker.record(ApiKey.ALTER_CONFIGS, 2, request)["items"]
    assert item["removed"] == ["retention.ms"]
    (setting,) = item["settings"]
    assert (setting["before"], setting["value"]) == ("60000", "70000")


@pytest.mark.parametrize(
    "key",
    [
        "listener.name.secure.plain.sasl.jaas.config",
        "ssl.keystore.password",
        "listener.name.secure.ssl.key.password",
        "ssl.keystore.key",
        "ssl.keystore.pasword",  # misspelt
    ],
)
def test_secrets_are_hidden(broker: Audited, key: str) -> None:
    record = broker.alter(BROKER, "1", (key, 0, SECRET))
    (item,) = record["items"]
    assert item["settings"][0]["value"] == HIDDEN
    assert SECRET not in json.dumps(record)


def test_a_user_is_recorded_without_its_credential(broker: Audited) -> None:
    table = messages.alter_user_scram_credentials
    salted = ScramMechanism.SHA_256.salted("pw", b"salt of anna", 4096)
    upsertion = table.ScramCredentialUpsertion(
        name="bert", mechanism=1, iterations=4096, salt=b"salt of anna", salted_password=salted
    )
    deletion = table.ScramCredentialDeletion(name="carl", mechanism=2)
    request = table.Request(deletions=[deletion], upsertions=[upsertion])
    record = broker.record(ApiKey.ALTER_USER_SCRAM_CREDENTIALS, 0, request)
    assert record["items"] == [
        {
            "resource": "user:carl",
            "change": "delete",
            "mechanism": "SCRAM-SHA-512",
            "error": "RESOURCE_NOT_FOUND",
        },
        {
            "resource": "user:bert",
            "change": "set",
            "mechanism": "SCRAM-SHA-256",
            "iterations": 4096,
            "had_one": False,
        },
    ]


def test_acls(broker: Audited) -> None:
    denials = Denials(broker.services.clock)
    broker.services.authorizer = AclAuthorizer(
        Rules(frozenset({"User:anna"})), lambda: broker.controller.image.acls, denials
    )
    table = messages.create_acls
    creation = table.AclCreation(
        resource_type=2, resource_name="ord", resource_pattern_type=4, principal="User:bert",
        host="*", operation=3, permission_type=3,
    )  # fmt: skip
    acl = {
        "resource": "acl:ord",
        "resource_type": "Topic",
        "pattern_type": "PREFIXED",
        "acl_principal": "User:bert",
        "acl_host": "*",
        "operation": "READ",
        "permission": "ALLOW",
    }
    record = broker.record(ApiKey.CREATE_ACLS, 3, table.Request(creations=[creation]))
    assert record["items"] == [acl]
    wanted = messages.delete_acls.DeleteAclsFilter(
        resource_type_filter=1, resource_name_filter=None, pattern_type_filter=1,
        principal_filter=None, host_filter=None, operation=1, permission_type=1,
    )  # fmt: skip
    request = messages.delete_acls.Request(filters=[wanted])
    assert broker.record(ApiKey.DELETE_ACLS, 3, request)["items"] == [acl]
    # Nothing is left to match.
    assert broker.record(ApiKey.DELETE_ACLS, 3, request)["items"] == [{"resource": "acls:*"}]


def test_a_request_that_lacks_a_right(broker: Audited) -> None:
    denials = Denials(broker.services.clock)
    broker.services.authorizer = AclAuthorizer(
        Rules(frozenset()), lambda: broker.controller.image.acls, denials
    )
    record = broker.create("orders")
    assert record["outcome"] == "refused"
    assert record["items"][0]["error"] == "TOPIC_AUTHORIZATION_FAILED"
    request = messages.unregister_broker.Request(broker_id=3)
    record = broker.record(ApiKey.UNREGISTER_BROKER, 0, request)
    assert record["outcome"] == "refused"
    assert record["items"] == [{"resource": "broker:3", "error": "CLUSTER_AUTHORIZATION_FAILED"}]


def test_a_request_that_only_asks_is_no_change(broker: Audited) -> None:
    table = messages.create_topics
    topic = table.Topic(
        name="a", num_partitions=1, replication_factor=1, assignments=[], configs=[]
    )
    request = table.Request(topics=[topic], validate_only=True)
    assert broker.records(ApiKey.CREATE_TOPICS, 7, request) == []


def test_many_items_are_counted(broker: Audited) -> None:
    table = messages.delete_groups
    request = table.Request(groups_names=[f"g{n}" for n in range(150)])
    record = broker.record(ApiKey.DELETE_GROUPS, 2, request)
    assert len(record["items"]) == 100 and record["more_items"] == 50


def test_more_partitions_and_where_they_move(broker: Audited) -> None:
    broker.create("orders")
    table = messages.create_partitions
    topic = table.CreatePartitionsTopic(name="orders", count=3, assignments=None)
    request = table.Request(topics=[topic], timeout_ms=1000, validate_only=False)
    record = broker.record(ApiKey.CREATE_PARTITIONS, 3, request)
    assert record["items"] == [
        {"resource": "topic:orders", "partitions": 3, "partitions_before": 2}
    ]
    moves = messages.alter_partition_reassignments
    partition = moves.ReassignablePartition(partition_index=0, replicas=[9])
    moved = moves.Request(topics=[moves.ReassignableTopic(name="orders", partitions=[partition])])
    (item,) = broker.record(ApiKey.ALTER_PARTITION_REASSIGNMENTS, 0, moved)["items"]
    assert item == {
        "resource": "partition:orders-0",
        "replicas": [9],
        "replicas_before": [1],
        "error": "INVALID_REPLICA_ASSIGNMENT",
    }


def test_quotas() -> None:
    table = messages.alter_client_quotas
    entity = [
        table.EntityData(entity_type="user", entity_name="anna"),
        table.EntityData(entity_type="client-id", entity_name=None),
    ]
    ops = [
        table.OpData(key="producer_byte_rate", value=1024.0, remove=False),
        table.OpData(key="consumer_byte_rate", value=0.0, remove=True),
    ]
    request = table.Request(entries=[table.EntryData(entity=entity, ops=ops)], validate_only=False)
    result = table.Result(error_code=0, error_message=None, entity=entity)
    asked = Asked(ClusterImage(), request, table.Response(entries=[result]))
    (item,) = AUDITED[ApiKey.ALTER_CLIENT_QUOTAS](asked)
    assert item.resource == "quota:user=anna,client-id=<default>"
    assert item.more == {"quotas": {"producer_byte_rate": 1024.0, "consumer_byte_rate": None}}


def test_offsets_of_a_share_group() -> None:
    alter, delete = messages.alter_share_group_offsets, messages.delete_share_group_offsets
    asked = alter.Request(group_id="g", topics=[
        alter.RequestTopic(topic_name="t", partitions=[
            alter.RequestPartition(partition_index=1, start_offset=7)])])  # fmt: skip
    made = alter.Response(responses=[
        alter.ResponseTopic(topic_name="t", topic_id=None, partitions=[
            alter.ResponsePartition(partition_index=1)])])  # fmt: skip
    before = ClusterImage()
    (item,) = AUDITED[ApiKey.ALTER_SHARE_GROUP_OFFSETS](Asked(before, asked, made))
    assert (item.resource, item.error) == ("group:g", 0)
    assert item.more == {"offset_of": "partition:t-1", "to": 7}
    refused = alter.Response(error_code=30, responses=[])
    (item,) = AUDITED[ApiKey.ALTER_SHARE_GROUP_OFFSETS](Asked(before, asked, refused))
    assert (item.resource, item.error, item.more) == ("group:g", 30, {})

    request = delete.Request(group_id="g", topics=[delete.RequestTopic(topic_name="t")])
    gone = delete.Response(responses=[
        delete.ResponseTopic(topic_name="t", topic_id=None, error_code=3)])  # fmt: skip
    (item,) = AUDITED[ApiKey.DELETE_SHARE_GROUP_OFFSETS](Asked(before, request, gone))
    assert (item.resource, item.error, item.more) == ("group:g", 3, {"offsets_of": "t"})
    not_empty = delete.Response(error_code=68, responses=[])
    (item,) = AUDITED[ApiKey.DELETE_SHARE_GROUP_OFFSETS](Asked(before, request, not_empty))
    assert (item.resource, item.error) == ("group:g", 68)


CHANGING = frozenset(
    {
        Operation.WRITE,
        Operation.CREATE,
        Operation.DELETE,
        Operation.ALTER,
        Operation.ALTER_CONFIGS,
        Operation.CREATE_TOKENS,
    }
)


def test_no_api_that_changes_something_is_forgotten() -> None:
    changing = {
        api.key
        for api in APIS
        if api.between_brokers is None
        and any(right.operation in CHANGING for right in RIGHTS[api.key])
    }
    assert changing - NOT_AUDITED <= AUDITED.keys()
