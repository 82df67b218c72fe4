"""ACLs at the controller: nodes as Apache Kafka 3.9 has them, its notices, the other brokers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

import pytest

from kbroker.errors import DataDirectoryError, ErrorCode, KafkaError
from kbroker.metadata.controller import Controller, acl_changes
from kbroker.metadata.controller.acl_changes import NOTICES_KEPT_MS, DeleteResults
from kbroker.metadata.controller.acl_records import (
    ACL_FOLDERS,
    LITERAL_CHANGES,
    PREFIXED_CHANGES,
    acl_path,
    decode_acls,
    decode_notice,
    encode_acls,
    encode_notice,
    notice_path,
)
from kbroker.metadata.controller.nodes import MetadataNodes
from kbroker.metadata.store.base import Create, Delete
from kbroker.metadata.store.base import Operation as Change
from kbroker.security.acl_filter import AclFilter
from kbroker.security.acl_set import NO_ACL_SET
from kbroker.security.acls import (
    Acl,
    Entry,
    Pattern,
    PatternType,
    Permission,
    ResourceAcls,
)
from kbroker.security.authorizer import Rules
from kbroker.security.rights import Operation, ResourceType
from tests.unit.metadata.controller.brokers import Cluster, Wire, follow
from tests.unit.metadata.controller.harness import OneBroker, eventually, wait

T = Pattern(ResourceType.TOPIC, PatternType.LITERAL, "t")
P = Pattern(ResourceType.TRANSACTIONAL_ID, PatternType.PREFIXED, "p.")
READ = Entry("User:a", "*", Operation.READ, Permission.ALLOW)
DENY = Entry("User:*", "10.0.0.1", Operation.CLUSTER_ACTION, Permission.DENY)
EVERYTHING = AclFilter(
    ResourceType.ANY, None, PatternType.ANY, None, None, Operation.ANY, Permission.ANY
)
T_NODE = (
    b'{"acls":[{"principal":"User:a","permissionType":"Allow",'
    b'"host":"*","operation":"Read"}],"version":1}'
)
P_NODE = (
    b'{"acls":[{"principal":"User:*","permissionType":"Deny",'
    b'"host":"10.0.0.1","operation":"ClusterAction"}],"version":1}'
)
P_NOTICE = b'{"version":1,"resourceType":"TRANSACTIONAL_ID","name":"p.","patternType":"PREFIXED"}'


def create(controller: Controller, *acls: Acl) -> list[KafkaError | None]:
    return wait(lambda done: controller.create_acls(acls, done))


def delete(controller: Controller, *filters: AclFilter) -> DeleteResults:
    return wait(lambda done: controller.delete_acls(filters, done))


def acls_of(controller: Controller) -> list[Acl]:
    return sorted(controller.image.acls)


def notices(broker: OneBroker, folder: str = LITERAL_CHANGES) -> list[bytes]:
    return [node.data for node in broker.store.children_data(folder).values()]


def test_acls_are_written_as_apache_kafka_does_and_kept(broker: OneBroker) -> None:
    assert create(broker.controller, Acl(T, READ), Acl(P, DENY)) == [None, None]
    assert acls_of(broker.controller) == sorted([Acl(T, READ), Acl(P, DENY)])
    assert broker.store.get("/kafka-acl/Topic/t").data == T_NODE
    path = "/kafka-acl-extended/prefixed/TransactionalId/p."
    assert broker.store.get(path).data == P_NODE
    assert notices(broker) == [b"TOPIC:t"]
    assert notices(broker, PREFIXED_CHANGES) == [P_NOTICE]
    kept = broker.controller.image.acls
    assert broker.restart().image.acls == kept
    assert delete(broker.controller, EVERYTHING) == [[Acl(T, READ), Acl(P, DENY)]]
    assert acls_of(broker.controller) == []
    assert not broker.store.exists("/kafka-acl/Topic/t") and not broker.store.exists(path)
    assert broker.restart().image.acls == NO_ACL_SET


def test_every_folder_is_there_from_the_start(broker: OneBroker) -> None:
    assert all(broker.store.exists(path) for path in ACL_FOLDERS)


def test_existing_acls_are_not_written_again(broker: OneBroker) -> None:
    create(broker.controller, Acl(T, READ))
    writes, version = broker.store.writes, broker.controller.image.version
    assert create(broker.controller, Acl(T, READ)) == [None]
    assert delete(broker.controller, EVERYTHING._replace(name="u")) == [[]]
    assert (broker.store.writes, broker.controller.image.version) == (writes, version)


def test_one_of_two_acls_is_deleted(broker: OneBroker) -> None:
    write = Acl(T, READ._replace(operation=Operation.WRITE))
    create(broker.controller, Acl(T, READ), write)
    found = delete(
        broker.controller,
        EVERYTHING._replace(operation=Operation.WRITE),
        EVERYTHING._replace(type=ResourceType.TOPIC, name="t", kind=PatternType.MATCH,
                            operation=Operation.WRITE),
        EVERYTHING._replace(principal="User:b"),
    )  # fmt: skip
    assert found == [[write], [write], []]
    assert acls_of(broker.controller) == [Acl(T, READ)]
    assert broker.store.get("/kafka-acl/Topic/t").data == T_NODE


@pytest.mark.parametrize("name", ["a/b", ".", "..", "a\nb", "\ufff0", "\ue000", "\U0001f600"])
def test_a_name_that_the_store_does_not_take(broker: OneBroker, name: str) -> None:
    bad, good = create(broker.controller, Acl(T._replace(name=name), READ), Acl(T, READ))
    assert bad is not None and bad.code is ErrorCode.INVALID_REQUEST
    assert good is None
    assert acls_of(broker.controller) == [Acl(T, READ)]


def test_bounds(broker: OneBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(acl_changes, "ACLS_MAX", 2)
    monkeypatch.setattr(acl_changes, "NODE_BYTES_MAX", 150)
    one, two = Acl(T, READ), Acl(T, DENY)
    errors = create(broker.controller, one, two)
    assert [error and error.code for error in errors] == [ErrorCode.POLICY_VIOLATION] * 2
    other = Acl(T._replace(name="u"), READ)
    assert create(broker.controller, one, other) == [None, None]
    (error,) = create(broker.controller, Acl(P, DENY))
    assert error is not None and error.code is ErrorCode.POLICY_VIOLATION
    assert acls_of(broker.controller) == [one, other]


def test_another_program_writes_acls(broker: OneBroker) -> None:
    """As the tools of Apache Kafka 3.9 do: the node first, then a notice."""
    tool = broker.store.new_session()
    tool.create(acl_path(T), encode_acls(ResourceAcls.of([READ])))
    tool.multi([Create(notice_path(T), encode_notice(T), sequential=True)])
    eventually(lambda: acls_of(broker.controller) == [Acl(T, READ)])
    tool.create(acl_path(P), encode_acls(ResourceAcls.of([DENY])))
    tool.multi([Create(notice_path(P), encode_notice(P), sequential=True)])
    eventually(lambda: len(acls_of(broker.controller)) == 2)
    tool.delete(acl_path(T))
    tool.multi([Create(notice_path(T), encode_notice(T), sequential=True)])
    eventually(lambda: acls_of(broker.controller) == [Acl(P, DENY)])
    for junk in (b"", b"\xff", b"TOPIC:", b"NONE:t", b"TOPIC:a/b"):
        tool.multi([Create(notice_path(T), junk, sequential=True)])
    tool.create(f"{LITERAL_CHANGES}/by_hand", b"TOPIC:t")
    assert create(broker.controller, Acl(T, READ)) == [None]
    assert len(acls_of(broker.controller)) == 2
    tool.close()


def test_a_change_is_made_to_the_content_of_the_node(broker: OneBroker) -> None:
    """A notice that has not come yet, or never comes, loses no ACL."""
    create(broker.controller, Acl(T, READ))
    tool = broker.store.new_session()
    tool.set(acl_path(T), encode_acls(ResourceAcls.of([READ, DENY])))
    write = READ._replace(operation=Operation.WRITE)
    assert create(broker.controller, Acl(T, write)) == [None]
    assert acls_of(broker.controller) == sorted([Acl(T, READ), Acl(T, DENY), Acl(T, write)])
    tool.close()


def test_a_write_that_another_program_overtakes_is_made_again(broker: OneBroker) -> None:
    create(broker.controller, Acl(T, READ))
    tool, store = broker.store.new_session(), broker.store
    multi = store.multi
    left = 3

    def racing(operations: Sequence[Change]) -> list[int]:
        nonlocal left
        if left:
            left -= 1
            tool.set(acl_path(T), tool.get(acl_path(T)).data)
        return multi(operations)

    store.multi = racing  # type: ignore[method-assign]
    assert create(broker.controller, Acl(T, DENY)) == [None]
    assert left == 0
    assert acls_of(broker.controller) == sorted([Acl(T, READ), Acl(T, DENY)])
    tool.close()


def test_notices_are_removed(broker: OneBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    create(broker.controller, Acl(T, READ))
    eventually(lambda: len(broker.controller._access._acls._notices) == 1)
    broker.clock.advance(ms=NOTICES_KEPT_MS)
    create(broker.controller, Acl(T, DENY))
    eventually(lambda: len(notices(broker)) == 1)
    monkeypatch.setattr(acl_changes, "NOTICES_KEPT_MAX", 2)
    for each in (Operation.WRITE, Operation.ALTER, Operation.DELETE):
        create(broker.controller, Acl(T, READ._replace(operation=each)))
    eventually(lambda: len(notices(broker)) == 2)


def test_a_damaged_node_changes_nothing(broker: OneBroker) -> None:
    create(broker.controller, Acl(T, READ))
    tool = broker.store.new_session()
    tool.set(acl_path(T), b"{")
    tool.multi([Create(notice_path(T), encode_notice(T), sequential=True)])
    broker.controller.reload()
    assert create(broker.controller, Acl(P, DENY)) == [None]
    assert acls_of(broker.controller) == sorted([Acl(T, READ), Acl(P, DENY)])
    tool.close()


def test_a_resource_whose_node_was_never_readable_is_closed(
    broker: OneBroker, caplog: pytest.LogCaptureFixture
) -> None:
    """Not the whole cluster with it: this controller may be the one that has just been elected."""
    create(broker.controller, Acl(T, READ), Acl(P, DENY))
    broker.store.set(acl_path(T), b"{")
    broker.store.ensure("/kafka-acl/Cluster/another")
    controller = broker.restart()
    assert f"t is closed: metadata node {acl_path(T)}" in caplog.text
    assert "Cluster/another is of no resource" in caplog.text
    assert controller.image.acls.of(T) == acl_changes.CLOSED
    rules, resource = (
        Rules(frozenset({"User:root"}), allow_if_no_acl=True),
        (ResourceType.TOPIC, "t"),
    )
    for user, allowed in (("User:a", False), ("User:root", True)):
        decision = rules.decide(controller.image.acls, user, "h", Operation.READ, *resource)
        assert decision.allowed is allowed
    # Nothing is written over what an operator may still repair.
    for _ in range(2):
        refused, done = create(controller, Acl(T, READ), Acl(P, READ))
        assert refused is not None and refused.code is ErrorCode.KAFKA_STORAGE_ERROR
        assert done is None
        kept, gone = delete(
            controller, EVERYTHING._replace(name="t"), EVERYTHING._replace(name="p.")
        )
        assert isinstance(kept, KafkaError) and kept.code is ErrorCode.KAFKA_STORAGE_ERROR
        assert isinstance(gone, list) and Acl(P, READ) in gone
        assert broker.store.get(acl_path(T)).data == b"{"
    tool = broker.store.new_session()
    tool.set(acl_path(T), T_NODE)
    tool.multi([Create(notice_path(T), encode_notice(T), sequential=True)])
    tool.close()
    eventually(lambda: acls_of(controller) == [Acl(T, READ)])


@pytest.mark.parametrize(
    "data",
    [
        b'{"version":2,"acls":[]}',
        b'{"version":1}',
        b'{"version":1,"acls":[1]}',
        T_NODE.replace(b"Read", b"Peek"),
        T_NODE.replace(b"Allow", b"Perhaps"),
        T_NODE.replace(b'"User:a"', b"1"),
        T_NODE.replace(b"User:a", b"a"),
        T_NODE.replace(b'"host":"*"', b'"host":null'),
    ],
)
def test_a_node_that_holds_no_acls_is_refused(data: bytes) -> None:
    assert decode_acls("/n", T_NODE) == ResourceAcls.of([READ])
    with pytest.raises(DataDirectoryError):
        decode_acls("/n", data)


@pytest.mark.parametrize("pattern", [T, P, T._replace(name="\u00e9:\u00e9")])
def test_a_notice_names_its_resource(pattern: Pattern) -> None:
    assert decode_notice(notice_path(pattern), encode_notice(pattern)) == pattern


def test_other_brokers_have_them(cluster: Cluster, wire: Wire) -> None:
    one, two = cluster.controller.controller, cluster.brokers[2].controller
    assert create(one, Acl(T, READ), Acl(P, DENY)) == [None, None]
    follow(cluster)
    assert two.image.acls == one.image.acls and len(two.image.acls) == 2
    delete(one, EVERYTHING._replace(type=ResourceType.TOPIC))
    follow(cluster)
    assert acls_of(two) == [Acl(P, DENY)]
    (error,) = create(two, Acl(T, READ))
    assert error is not None and error.code is ErrorCode.NOT_CONTROLLER


@pytest.mark.parametrize("name", ["a b ", "a\u3000b", "\u00a0", "%2F", "\u200b=,"])
def test_strange_names_are_names(broker: OneBroker, name: str) -> None:
    acl = Acl(Pattern(ResourceType.GROUP, PatternType.LITERAL, name), READ)
    assert create(broker.controller, acl) == [None]
    assert broker.restart().image.acls.of(acl.pattern) == ResourceAcls.of([READ])
    assert decode_notice(notice_path(acl.pattern), encode_notice(acl.pattern)) == acl.pattern
    assert delete(broker.controller, EVERYTHING) == [[acl]]


def test_filters_that_match_too_much(broker: OneBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(acl_changes, "MATCHED_ACLS_MAX", 3)
    monkeypatch.setattr(acl_changes, "SEARCHED_ACLS_MAX", 4)
    one, two = Acl(T, READ), Acl(T, DENY)
    create(broker.controller, one, two)
    named = EVERYTHING._replace(type=ResourceType.TOPIC, name="t", principal="User:a")
    none = EVERYTHING._replace(principal="User:none")
    found = delete(broker.controller, EVERYTHING, named, named, none, none)
    assert [sorted(each) if isinstance(each, list) else each.code for each in found] == [
        sorted([one, two]), [one], ErrorCode.POLICY_VIOLATION, [], [],
    ]  # fmt: skip
    create(broker.controller, one, two)
    others = [EVERYTHING._replace(host=host) for host in ("a", "b", "c")]
    found = delete(broker.controller, *others)
    assert [sorted(each) if isinstance(each, list) else each.code for each in found] == [
        [], [], ErrorCode.POLICY_VIOLATION
    ]  # fmt: skip
    assert acls_of(broker.controller) == sorted([one, two])


def test_many_notices_are_removed_at_once(
    broker: OneBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(acl_changes, "NOTICES_KEPT_MAX", 5)
    many = [Acl(T._replace(name=f"t{number}"), READ) for number in range(200)]
    before = broker.store.writes
    create(broker.controller, *many)
    eventually(lambda: len(notices(broker)) == 5)
    assert broker.store.writes - before < 10


def test_notices_that_another_program_removes_too(
    broker: OneBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(acl_changes, "NOTICES_KEPT_MAX", 1)
    removed: list[str] = []
    write = MetadataNodes.write

    def overtaken(nodes: MetadataNodes, units: Iterable[Sequence[Change]]) -> None:
        units = list(units)
        if len(units) > 1 and isinstance(units[0][0], Delete) and not removed:
            removed.append(units[0][0].path)
            broker.store.delete(units[0][0].path)
        write(nodes, units)

    monkeypatch.setattr(MetadataNodes, "write", overtaken)
    create(broker.controller, *(Acl(T._replace(name=f"t{number}"), READ) for number in range(9)))
    eventually(lambda: len(notices(broker)) == 1)
    assert len(removed) == 1


def test_a_broker_without_an_image_has_the_acls_of_the_store(tmp_path: Path) -> None:
    """The controller needs a right there, to send it one."""
    cluster = Cluster(tmp_path, Wire())
    assert cluster.wire is not None
    create(cluster.controller.controller, Acl(T, READ))
    cluster.brokers.pop(3).stop()
    cluster.wire.loses.add(3)
    cluster.start(3, tmp_path)
    new = cluster.brokers[3].controller
    eventually(lambda: acls_of(new) == [Acl(T, READ)])
    # And those that are created now, so that a right that was missing helps.
    create(cluster.controller.controller, Acl(P, DENY))
    eventually(lambda: acls_of(new) == sorted([Acl(T, READ), Acl(P, DENY)]))
    store = cluster.controller.embedded
    store.set(acl_path(T), b"[]")
    tool = store.new_session()
    tool.multi([Create(notice_path(P), encode_notice(P), sequential=True)])
    eventually(lambda: acls_of(new) == sorted([Acl(T, READ), Acl(P, DENY)]))
    for node_id in (3, 2, 1):
        cluster.brokers[node_id].stop()


def test_acls_that_are_not_deleted_are_not_said_to_be(
    broker: OneBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another program's node may be larger than ours can be, or have a name that ours has not."""
    one, two, other = Acl(T, READ), Acl(T, DENY), Acl(P, READ)
    create(broker.controller, one, two, other)
    monkeypatch.setattr(acl_changes, "NODE_BYTES_MAX", 30)
    denied = EVERYTHING._replace(permission=Permission.DENY)
    found = delete(broker.controller, denied, EVERYTHING._replace(name="p."))
    assert [each if isinstance(each, list) else each.code for each in found] == [
        ErrorCode.POLICY_VIOLATION, [other],
    ]  # fmt: skip
    assert acls_of(broker.controller) == sorted([one, two])

    def refuses(pattern: Pattern) -> str:
        raise ValueError("a name of 2,000 characters")

    monkeypatch.setattr(acl_changes, "acl_path", refuses)
    (error,) = delete(broker.controller, EVERYTHING)
    assert isinstance(error, KafkaError) and error.code is ErrorCode.INVALID_REQUEST
    assert acls_of(broker.controller) == sorted([one, two])
