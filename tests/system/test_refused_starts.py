"""A broker that may not join what it was pointed to: one line with the fix, and a status.

Real processes at a real ZooKeeper; who is there already serves on.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path

import pytest
from kazoo.client import KazooClient
from kazoo.security import make_acl

from kbroker.errors import ConfigError, DataDirectoryError, MetadataStoreError, UserError
from kbroker.testing.plain import PlainBroker as Broker
from kbroker.testing.process import BrokerFailed
from lab.ports import free_port
from tests.clients.adapters import Confluent, Record
from tests.support.zookeeper import ZooKeeper
from tests.system.conftest import MakeBroker

pytestmark = [pytest.mark.client, pytest.mark.java, pytest.mark.timeout(180)]


def refused(broker: Broker, kind: type[UserError]) -> str:
    """The one line of why, of a start that fails so."""
    with pytest.raises(BrokerFailed) as failed:
        broker.start()
    assert failed.value.exit_status == kind.exit_code, failed.value
    (line,) = [each for each in failed.value.log.splitlines() if kind.ident in each]
    assert " -> " in line
    assert "Traceback" not in failed.value.log
    return line


def serves(broker: Broker) -> bool:
    (delivered,) = Confluent(broker.bootstrap).produce("t", [Record(b"x")])
    return broker.alive and delivered.error == 0


def at(connect: str, node_id: int = 1) -> Mapping[str, object]:
    return {"zookeeper.connect": connect, "node.id": node_id}


@pytest.mark.parametrize("is_copy", [True, False])
def test_an_id_that_is_in_use(
    zookeeper: ZooKeeper, make_broker: MakeBroker, tmp_path: Path, is_copy: bool
) -> None:
    """Of another broker, or of the one from whose data directory this is a copy."""
    connect = zookeeper.connect + zookeeper.chroot()
    first = make_broker(at(connect)).start()
    assert serves(first)
    data_dir = tmp_path / "twin"
    if is_copy:
        shutil.copytree(first.data_dir, data_dir)
    settings = {**at(connect), "zookeeper.session.timeout.ms": 1_000}  # it waits as long, and 2 s
    line = refused(make_broker(settings, data_dir=data_dir), DataDirectoryError)
    assert "node.id 1 is in use" in line
    assert serves(first)


def test_a_foreign_cluster(zookeeper: ZooKeeper, make_broker: MakeBroker) -> None:
    ours, theirs = (zookeeper.connect + zookeeper.chroot() for _ in range(2))
    moved = make_broker(at(ours)).start()
    assert moved.stop() == 0
    other = make_broker(at(theirs, 2)).start()
    there = make_broker(at(theirs), data_dir=moved.data_dir)
    line = refused(there, DataDirectoryError)
    assert "the metadata store belongs to cluster" in line
    assert serves(other)
    nowhere = make_broker(at(zookeeper.connect + zookeeper.chroot()), data_dir=moved.data_dir)
    assert "there is no cluster in ZooKeeper at" in refused(nowhere, DataDirectoryError)


@pytest.mark.parametrize("below", [True, False], ids=["to be made", "that is there"])
def test_a_path_that_cannot_be_written(
    zookeeper: ZooKeeper, make_broker: MakeBroker, below: bool
) -> None:
    chroot = zookeeper.chroot()
    client = KazooClient(zookeeper.connect)
    client.start(30)
    try:
        client.create(chroot, acl=[make_acl("world", "anyone", read=True)])
    finally:
        client.stop()
        client.close()
    path = f"{chroot}/below" if below else chroot
    line = refused(make_broker(at(zookeeper.connect + path)), ConfigError)
    assert (path if below else "does not let this broker write /") in line
    assert "zookeeper.auth.scheme" in line


def test_a_zookeeper_that_does_not_answer(make_broker: MakeBroker) -> None:
    settings = {**at(f"127.0.0.1:{free_port()}"), "zookeeper.connection.timeout.ms": 1_000}
    line = refused(make_broker(settings), MetadataStoreError)
    assert "no ZooKeeper answers at 127.0.0.1:" in line
