"""Apache Kafka 3.9 and kbroker in turn on one tree in ZooKeeper: each acts by the other's nodes.

Users, quotas, ACLs and delegation tokens are made at each of them by the same tools of 3.9. Their
answers about all of them are compared. What follows from them is expected of both: which logins are
accepted, what each user may do with each topic, and which clients are throttled.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final, NamedTuple

import pytest
from kazoo.client import KazooClient

from kbroker.errors import ErrorCode, KafkaError
from kbroker.peer.acl_messages import decode_describe_acls, encode_describe_acls
from kbroker.peer.client import Client
from kbroker.peer.messages import NewTopic
from kbroker.peer.quota_messages import decode_describe_quotas, encode_describe_quotas
from kbroker.peer.token_messages import (
    KnownToken,
    decode_create_token,
    decode_describe_tokens,
    decode_expire_token,
    encode_create_token,
    encode_describe_tokens,
    encode_expire_token,
)
from kbroker.peer.user_messages import decode_describe_users, encode_describe_users
from kbroker.protocol import messages
from kbroker.protocol.wire import Reader
from kbroker.security.acl_filter import AclFilter
from kbroker.security.acls import PatternType, Permission
from kbroker.security.client_login import ClientLogin
from kbroker.security.delegation_token import password_of
from kbroker.security.rights import Operation, ResourceType
from kbroker.security.session import Principal
from kbroker.testing.plain import PlainBroker
from kbroker.types import ApiKey
from lab.ports import free_port
from tests.clients.agents.driver import comes_to_be
from tests.clients.agents.tools import Tools
from tests.support import jars
from tests.support.kafka_3_9 import OldKafkaBroker
from tests.support.record_batches import build_batch
from tests.support.zookeeper import ZooKeeper

pytestmark = [pytest.mark.java, pytest.mark.slow, pytest.mark.timeout(300)]

CONFIGS: Final = "kafka.admin.ConfigCommand"
ACLS: Final = "kafka.admin.AclCommand"
OURS, THEIRS = "ours", "theirs"
NAMES: Final = (OURS, THEIRS)
PASSWORD: Final = "a password"
ADMIN: Final = ClientLogin("PLAIN", "admin", PASSWORD)
MECHANISMS: Final = ("SCRAM-SHA-256", "SCRAM-SHA-512")
TOPICS: Final = ("orders", "orders-of-ours", "orders-of-theirs", "private")
SPECIAL: Final = "*+%,=<~"
SLOW, FAST = 100, 1_000_000_000  # bytes a second
RECORD_BYTES: Final = 20_000
EVERYTHING: Final = {
    Operation.READ, Operation.WRITE, Operation.CREATE, Operation.DELETE, Operation.ALTER,
    Operation.DESCRIBE, Operation.DESCRIBE_CONFIGS, Operation.ALTER_CONFIGS,
}  # fmt: skip
_MODULES: Final = "org.apache.kafka.common.security"
FOLDERS: Final = (
    "/config/users", "/config/clients", "/config/ips", "/delegation_token/tokens",
    *(
        f"{kind}/{type_}"
        for kind in ("/kafka-acl", "/kafka-acl-extended/prefixed")
        for type_ in ("Topic", "Group", "Cluster", "TransactionalId", "DelegationToken", "User")
    ),
)  # fmt: skip
EVERY_ACL: Final = AclFilter(
    ResourceType.ANY, None, PatternType.ANY, None, None, Operation.ANY, Permission.ANY
)

Rights = dict[str, set[Operation]]  # of the topics that are seen
Change = tuple[tuple[str, ...], dict[str, str]]  # an entity, and its settings


def odd(name: str) -> str:
    """With characters that the name of a node cannot have, or that mean something in it."""
    return f"{name} /{SPECIAL}"


def user(name: str) -> tuple[str, ...]:
    return ("--entity-type", "users", "--entity-name", name)


def client(name: str) -> tuple[str, ...]:
    return ("--entity-type", "clients", "--entity-name", name)


def address(text: str) -> tuple[str, ...]:
    return ("--entity-type", "ips", "--entity-name", text)


def default(kind: str) -> tuple[str, ...]:
    return ("--entity-type", kind, "--entity-default")


def changes(name: str) -> list[Change]:
    """Users and quotas. One call of the tool changes one credential, or quotas: two credentials of
    a user in one request are refused, here and by Apache Kafka 4.3."""
    return [
        (user(name), {"SCRAM-SHA-256": f"[password={PASSWORD}]"}),
        (user(name), {"SCRAM-SHA-512": f"[iterations=8192,password={PASSWORD}]"}),
        (user(odd(name)), {"SCRAM-SHA-256": f"[password={PASSWORD}]"}),
        (user(name), {"producer_byte_rate": str(SLOW), "request_percentage": "1000.5"}),
        (user(name) + client(odd("fast")), {"producer_byte_rate": str(FAST)}),
        (user(odd(name)) + default("clients"), {"consumer_byte_rate": "1024"}),
        (user(f"{name} ünï"), {"SCRAM-SHA-512": f"[password={PASSWORD}]"}),
        (client(f"slow {name}"), {"producer_byte_rate": str(SLOW)}),
        (address(f"192.0.2.{len(name)}"), {"connection_creation_rate": "7"}),
    ]


def defaults(number: int) -> list[Change]:
    return [
        (default("users"), {"controller_mutation_rate": f"{number}.5"}),
        (default("clients"), {"consumer_byte_rate": f"{number}000000"}),
        (default("users") + default("clients"), {"consumer_byte_rate": f"{number}000001"}),
        (default("ips"), {"connection_creation_rate": f"{number}000"}),
    ]


def acls(name: str) -> list[tuple[str, ...]]:
    allow, odd_one = ("--allow-principal", f"User:{name}"), f"User:{odd(name)}"
    prefixed = ("--resource-pattern-type", "prefixed")
    return [
        (*allow, "--operation", "Read", "--topic", "orders"),
        (*allow, "--operation", "Write", "--operation", "AlterConfigs", "--topic", "ord",
         *prefixed),
        ("--allow-principal", odd_one, "--operation", "All", "--topic", f"orders-of-{name}"),
        ("--deny-principal", f"User:{name}", "--operation", "AlterConfigs",
         "--topic", f"orders-of-{name}", *prefixed),
        ("--allow-principal", "User:*", "--allow-host", "192.0.2.8", "--operation", "Describe",
         "--topic", f"orders-of-{name}"),
        (*allow, "--operation", "All", "--topic", "*", "--allow-host", "192.0.2.9"),
        (*allow, "--operation", "Read", "--group", SPECIAL, *prefixed),
        (*allow, "--operation", "Create", "--cluster"),
        (*allow, "--operation", "Write", "--transactional-id", SPECIAL),
        (*allow, "--operation", "Describe", "--delegation-token", "*"),
        (*allow, "--operation", "CreateTokens", "--user-principal", f"User:{SPECIAL}"),
    ]  # fmt: skip


class Effects(NamedTuple):
    """Of the users, quotas, ACLs and token of one side. None in place of rights: not let in."""

    rights: list[Rights | None]
    rights_of_refused: list[Rights | None]
    throttled: list[bool | None]


def expected(name: str) -> Effects:
    own, others = (f"orders-of-{each}" for each in (name, *(set(NAMES) - {name})))
    of_configs = {Operation.ALTER_CONFIGS, Operation.DESCRIBE_CONFIGS}
    write = {Operation.WRITE, Operation.DESCRIBE}
    of_user = {
        "orders": {Operation.READ} | write | of_configs,
        own: write | {Operation.DESCRIBE_CONFIGS},
        others: write | of_configs,
    }
    of_odd = {own: EVERYTHING}
    of_admin = dict.fromkeys(TOPICS, EVERYTHING)
    return Effects([of_user, of_user, of_odd, of_admin], [None, None], [True, False, False, True])


class Side:
    """The broker that runs now, as its administrators and users see it."""

    def __init__(self, tools: Tools, zookeeper: str, port: int, secure_port: int) -> None:
        self._tools = tools
        self._zookeeper = zookeeper
        self._bootstrap = f"127.0.0.1:{port}"
        self._secure = f"127.0.0.1:{secure_port}"

    # -- what is changed

    def tool(self, name: str, *words: str, in_zookeeper: bool = False) -> None:
        to = ("--bootstrap-server", self._bootstrap)
        if in_zookeeper:
            to = ("--zookeeper", self._zookeeper)
        ran = self._tools.attempt(name, *to, *words)
        assert ran.returncode == 0, (words, (ran.stdout + ran.stderr).decode())

    def set(self, entity: tuple[str, ...], settings: dict[str, str], **how: bool) -> None:
        text = ",".join(f"{key}={value}" for key, value in settings.items())
        self.tool(CONFIGS, "--alter", *entity, "--add-config", text, **how)

    def remove(self, entity: tuple[str, ...], settings: Iterable[str]) -> None:
        self.tool(CONFIGS, "--alter", *entity, "--delete-config", ",".join(settings))

    def fill(self, name: str, number: int) -> None:
        for entity, settings in (*changes(name), *defaults(number)):
            self.set(entity, settings)
        for words in acls(name):
            self.tool(ACLS, "--add", *words)

    def clear(self, name: str) -> None:
        for entity, settings in changes(name):
            self.remove(entity, settings)
        for words in acls(name):
            self.tool(ACLS, "--remove", "--force", *words)

    def create_topics(self, *names: str) -> None:
        with Client(self._bootstrap) as client:
            made = client.create_topics([NewTopic(name, 1, 1) for name in names])
        assert [each.error for each in made] == [ErrorCode.NONE] * len(names), made

    def create_token(self, renewer: str) -> KnownToken:
        renewers = [Principal("User", renewer)]
        made: KnownToken = self._ask(
            ApiKey.CREATE_DELEGATION_TOKEN,
            lambda version: encode_create_token(version, None, renewers, -1),
            decode_create_token,
        )
        return made

    def end_token(self, made: KnownToken) -> None:
        self._ask(
            ApiKey.EXPIRE_DELEGATION_TOKEN,
            lambda version: encode_expire_token(version, made.hmac, -1),
            decode_expire_token,
        )

    # -- what is seen

    def described(self) -> dict[str, list[Any]]:
        """All of it, as DescribeUserScramCredentials and its like answer."""
        users = self._ask(
            ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS,
            lambda version: encode_describe_users(version, None),
            decode_describe_users,
        )
        quotas = self._ask(
            ApiKey.DESCRIBE_CLIENT_QUOTAS,
            lambda version: encode_describe_quotas(version, None),
            decode_describe_quotas,
        )
        acls = self._ask(
            ApiKey.DESCRIBE_ACLS,
            lambda version: encode_describe_acls(version, EVERY_ACL),
            decode_describe_acls,
        )
        tokens = self._ask(
            ApiKey.DESCRIBE_DELEGATION_TOKEN,
            lambda version: encode_describe_tokens(version, None),
            decode_describe_tokens,
        )
        return {
            "users": sorted((each.name, each.iterations) for each in users),
            "quotas": sorted((str(each.entity), dict(each.quotas)) for each in quotas),
            "acls": sorted(acls),
            "tokens": sorted((repr(each.token), each.hmac) for each in tokens),
        }

    def topics(self) -> dict[str, object]:
        """Ids, leaders and replicas by name."""
        with Client(self._bootstrap) as client:
            found = client.metadata().topics
        return {
            name: (each.topic_id, [(part.leader, part.replicas) for part in each.partitions])
            for name, each in found.items()
        }

    def effects(self, name: str, token: KnownToken) -> Effects:
        first, second = (ClientLogin(each, name, PASSWORD) for each in MECHANISMS)
        other = first._replace(name=odd(name))
        logins = [first, second, other, by_token(token)]
        refused = [first._replace(password="another"), other._replace(mechanism=MECHANISMS[1])]
        own = f"orders-of-{name}"
        return Effects(
            [self._rights(each) for each in logins],
            [self._rights(each) for each in refused],
            [
                self._is_throttled(first, "any", "orders"),
                self._is_throttled(first, odd("fast"), "orders"),
                self._is_throttled(other, "any", own),
                self._is_throttled(other, f"slow {name}", own),
            ],
        )

    def lets_in(self, login: ClientLogin) -> bool:
        return self._rights(login) is not None

    def _rights(self, login: ClientLogin) -> Rights | None:
        """None: it is not let in."""
        table = messages.metadata
        request = table.Request(
            topics=[table.MetadataRequestTopic(name=name) for name in TOPICS],
            allow_auto_topic_creation=False,
            include_topic_authorized_operations=True,
        )
        try:
            answer = self._ask(ApiKey.METADATA, request.encode, decoder(table), login)
        except KafkaError as error:
            assert error.code is ErrorCode.SASL_AUTHENTICATION_FAILED, error
            return None
        return {
            each.name: {it for it in Operation if each.topic_authorized_operations >> it & 1}
            for each in answer.topics
            if each.error_code != ErrorCode.TOPIC_AUTHORIZATION_FAILED
        }

    def _is_throttled(self, login: ClientLogin, client_id: str, topic: str) -> bool | None:
        """Whether the answer to one large produce request says so; None: it is not let in."""
        table = messages.produce
        try:
            with Client(self._secure, login=login, client_id=client_id) as client:
                topic_id = client.metadata([topic]).topics[topic].topic_id
                data = table.PartitionData(index=0, records=build_batch([bytes(RECORD_BYTES)]))
                sent = table.TopicData(name=topic, topic_id=topic_id, partition_data=[data])
                request = table.Request(acks=1, timeout_ms=30_000, topic_data=[sent])
                answer = client.cluster.anywhere(ApiKey.PRODUCE, request.encode, decoder(table))
        except KafkaError as error:
            assert error.code is ErrorCode.SASL_AUTHENTICATION_FAILED, error
            return None
        (written,) = answer.responses[0].partition_responses
        # Its user may come before its ACL.
        allowed = (ErrorCode.NONE, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        assert written.error_code in allowed, written
        return bool(answer.throttle_time_ms > 0)

    def _ask(self, key: ApiKey, encode: Any, decode: Any, login: ClientLogin = ADMIN) -> Any:
        with Client(self._secure, login=login) as client:
            return client.cluster.anywhere(key, encode, decode)


def decoder(table: Any) -> Any:
    def decode(reader: Reader, version: int) -> Any:
        return table.Response.decode(reader.raw(reader.left), version)

    return decode


def by_token(made: KnownToken) -> ClientLogin:
    password = password_of(made.hmac)
    return ClientLogin(MECHANISMS[1], made.token.token_id, password, is_token=True)


def settings_at(zookeeper: str, port: int, secure_port: int) -> dict[str, str]:
    """Of a broker of either kind."""
    scram = f"{_MODULES}.scram.ScramLoginModule required;"
    return {
        "zookeeper.connect": zookeeper,
        "listeners": f"PLAINTEXT://127.0.0.1:{port},SECURE://127.0.0.1:{secure_port}",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SECURE:SASL_PLAINTEXT",
        "inter.broker.listener.name": "PLAINTEXT",
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
        "listener.name.secure.plain.sasl.jaas.config": (
            f'{_MODULES}.plain.PlainLoginModule required user_admin="{PASSWORD}";'
        ),
        "listener.name.secure.scram-sha-256.sasl.jaas.config": scram,
        "listener.name.secure.scram-sha-512.sasl.jaas.config": scram,
        "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
        "super.users": "User:ANONYMOUS;User:admin",
        "delegation.token.secret.key": "of both",
    }


@pytest.fixture
def tools() -> Iterator[Tools]:
    made = Tools(kafka=jars.OLD_KAFKA)
    yield made
    made.close()


def test_each_side_acts_by_the_nodes_of_the_other(zookeeper: ZooKeeper, tools: Tools) -> None:
    connect = zookeeper.connect + zookeeper.chroot()
    port, secure_port = free_port(), free_port()
    settings = settings_at(connect, port, secure_port)
    side = Side(tools, connect, port, secure_port)
    with PlainBroker({**settings, "admin.listeners": "http://127.0.0.1:0"}, port=port) as broker:
        side.create_topics(*TOPICS)
        side.fill(OURS, 2)
        # 3.9 reads it, and cannot set it: it looks for a host called 2001%3Adb8%3A%3A2.
        side.set(address("2001:db8::2"), {"connection_creation_rate": "7"})
        of_ours = side.create_token(OURS)
        described, topics = side.described(), side.topics()
        assert side.effects(OURS, of_ours) == expected(OURS)
        broker.stop()

        with OldKafkaBroker(settings, port=port):
            comes_to_be(side.topics, topics)
            assert side.described() == described
            assert side.effects(OURS, of_ours) == expected(OURS)
            side.create_topics("made-by-theirs")
            comes_to_be(lambda: len(side.topics()), len(topics) + 1)
            side.fill(THEIRS, 3)
            of_theirs = side.create_token(THEIRS)
            comes_to_be(lambda: side.effects(THEIRS, of_theirs), expected(THEIRS))
            side.clear(OURS)
            side.end_token(of_ours)
            described, topics = side.described(), side.topics()

        broker.start()
        assert side.described() == described
        assert side.topics() == topics and "made-by-theirs" in topics
        assert side.effects(THEIRS, of_theirs) == expected(THEIRS)
        assert not side.lets_in(by_token(of_ours))
        assert not side.lets_in(ClientLogin(MECHANISMS[0], OURS, PASSWORD))

        # 3.9's tool writes into ZooKeeper itself, and our controller follows.
        side.set(user(OURS), {MECHANISMS[0]: "[password=another]"}, in_zookeeper=True)
        comes_to_be(lambda: side.lets_in(ClientLogin(MECHANISMS[0], OURS, "another")), True)
        side.tool(CONFIGS, "--alter", *user(OURS), "--delete-config", MECHANISMS[0])
        side.clear(THEIRS)
        side.end_token(of_theirs)
        side.remove(address("2001:db8::2"), ["connection_creation_rate"])
        for entity, quotas in defaults(3):
            side.remove(entity, quotas)
        assert not any(side.described().values())
        assert left_below(connect) == set()


def left_below(connect: str) -> set[str]:
    """Nodes of an entity, an ACL or a token."""
    client = KazooClient(connect)
    client.start()
    try:
        return {f"{each}/{child}" for each in FOLDERS for child in client.get_children(each)}
    finally:
        client.stop()
        client.close()
