"""Apache Kafka 3.9's kafka-acls beside our controller, on one ZooKeeper: each reads the other's.

The tool writes with AclAuthorizer, in ZooKeeper itself, so this is the proof that nodes and notices
are those of 3.9.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from kbroker.metadata.controller.acl_records import acl_path, decode_acls, encode_acls
from kbroker.metadata.store.zookeeper import ZooKeeperStore
from kbroker.metadata.store.zookeeper_settings import ZooKeeperSettings
from kbroker.security.acl_filter import AclFilter
from kbroker.security.acls import Acl, Entry, Pattern, PatternType, Permission
from kbroker.security.rights import Operation, ResourceType
from tests.support import jars, kafka_classes
from tests.support.zookeeper import ZooKeeper
from tests.unit.metadata.controller.harness import OneBroker, eventually, wait

pytestmark = [pytest.mark.java, pytest.mark.timeout(300)]

TOOL_TIMEOUT_S = 60
EVERYTHING = AclFilter(
    ResourceType.ANY, None, PatternType.ANY, None, None, Operation.ANY, Permission.ANY
)


class World:
    """A controller, and the tool."""

    def __init__(self, zookeeper: ZooKeeper, directory: Path) -> None:
        self._connect = zookeeper.connect
        self.chroot = zookeeper.chroot()
        self.settings = ZooKeeperSettings((zookeeper.connect,), self.chroot, 10_000, 30_000)
        self.broker = OneBroker(directory)
        self.broker.start(ZooKeeperStore.open(self.settings))

    def tool(self, *arguments: str) -> str:
        ran = subprocess.run(
            kafka_classes.command(
                "kafka.admin.AclCommand", "--authorizer",
                "kafka.security.authorizer.AclAuthorizer", "--authorizer-properties",
                f"zookeeper.connect={self._connect}{self.chroot}", *arguments,
                kafka=jars.OLD_KAFKA,
            ),
            capture_output=True, text=True, timeout=TOOL_TIMEOUT_S, stdin=subprocess.DEVNULL,
        )  # fmt: skip
        assert ran.returncode == 0, ran.stdout + ran.stderr
        return ran.stdout

    @property
    def acls(self) -> list[Acl]:
        return sorted(self.broker.image.acls)

    def create(self, *acls: Acl) -> None:
        controller = self.broker.controller
        assert not any(wait(lambda done: controller.create_acls(acls, done)))

    def delete(self, wanted: AclFilter) -> None:
        wait(lambda done: self.broker.controller.delete_acls([wanted], done))

    def data(self, pattern: Pattern) -> bytes:
        return self.broker.store.get(acl_path(pattern)).data


@pytest.fixture
def world(zookeeper: ZooKeeper, tmp_path: Path) -> Iterator[World]:
    made = World(zookeeper, tmp_path)
    yield made
    made.broker.stop()


def allowed(type_: ResourceType, name: str, operation: Operation, **more: PatternType) -> Acl:
    kind = more.get("kind", PatternType.LITERAL)
    return Acl(Pattern(type_, kind, name), Entry("User:anna", "*", operation, Permission.ALLOW))


TOPIC = allowed(ResourceType.TOPIC, "orders", Operation.READ)
PREFIX = allowed(ResourceType.TRANSACTIONAL_ID, "shop.", Operation.WRITE, kind=PatternType.PREFIXED)
CLUSTER = allowed(ResourceType.CLUSTER, "kafka-cluster", Operation.IDEMPOTENT_WRITE)
DENIED = Acl(TOPIC.pattern, Entry("User:bert", "10.0.0.1", Operation.ALL, Permission.DENY))
OF_ANNA = ("--allow-principal", "User:anna")


def test_each_reads_the_acls_of_the_other(world: World) -> None:
    world.tool("--add", *OF_ANNA, "--operation", "Read", "--topic", "orders")
    eventually(lambda: world.acls == [TOPIC])
    # To the byte, of one ACL; the order of several is a hash table's there.
    assert world.data(TOPIC.pattern) == encode_acls(world.broker.image.acls.of(TOPIC.pattern))
    world.tool(
        "--add", *OF_ANNA, "--operation", "Write", "--transactional-id", "shop.",
        "--resource-pattern-type", "prefixed",
    )  # fmt: skip
    world.tool("--add", *OF_ANNA, "--operation", "IdempotentWrite", "--cluster")
    eventually(lambda: world.acls == sorted([TOPIC, PREFIX, CLUSTER]))
    for acl in (PREFIX, CLUSTER):
        assert world.data(acl.pattern) == encode_acls(world.broker.image.acls.of(acl.pattern))

    world.create(DENIED)
    listed = world.tool("--list", "--topic", "orders")
    assert "(principal=User:anna, host=*, operation=READ, permissionType=ALLOW)" in listed
    assert "(principal=User:bert, host=10.0.0.1, operation=ALL, permissionType=DENY)" in listed

    world.tool(
        "--remove", "--force", "--deny-principal", "User:bert", "--deny-host", "10.0.0.1",
        "--operation", "All", "--topic", "orders",
    )  # fmt: skip
    eventually(lambda: world.acls == sorted([TOPIC, PREFIX, CLUSTER]))
    assert decode_acls("/n", world.data(TOPIC.pattern)) == world.broker.image.acls.of(TOPIC.pattern)
    world.delete(EVERYTHING)
    assert world.acls == []
    assert "orders" not in world.tool("--list")
