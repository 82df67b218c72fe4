"""A broker that is stopped before it was ready leaves its directory, and the cluster, in order."""

from __future__ import annotations

import signal
from concurrent.futures import ThreadPoolExecutor

import pytest

from kbroker.clock import SystemClock
from kbroker.config import BrokerConfig
from kbroker.errors import KafkaError
from kbroker.log.opening.data_directory import CLEAN_SHUTDOWN_FILE
from kbroker.metadata.controller import records
from kbroker.metadata.store.zookeeper import ZooKeeperStore
from kbroker.metadata.store.zookeeper_settings import ZooKeeperSettings
from kbroker.peer.address import Address
from kbroker.peer.link import open_link
from kbroker.testing.broker import Broker
from kbroker.testing.process import BrokerFailed
from lab.ports import free_port
from tests.clients.agents.driver import eventually as until
from tests.support.zookeeper import ZooKeeper

pytestmark = [pytest.mark.java, pytest.mark.timeout(300)]

ANSWER_MS = 1_000
UNKNOWN_NODE = 9


def answers(broker: Broker) -> bool:
    try:
        open_link(Address("127.0.0.1", broker.port), "test", ANSWER_MS, SystemClock()).close()
    except KafkaError:
        return False
    return True


def test_a_broker_that_waits_for_its_first_image_is_stopped_in_order(zookeeper: ZooKeeper) -> None:
    connect = f"zookeeper.connect={zookeeper.connect}{zookeeper.chroot()}"
    settings = dict([connect.split("=", 1)], **{"node.id": "1"})
    config = BrokerConfig.load(overrides=[connect])
    path = records.broker_path(1)
    broker = Broker(settings, port=free_port(), topics={"t": 2})
    mark = broker.data_dir / CLEAN_SHUTDOWN_FILE
    try:
        broker.start()
        assert broker.stop() == 0 and mark.exists()
        elsewhere = ZooKeeperStore.open(ZooKeeperSettings.of(config))
        # A controller that never says anything.
        elsewhere.create(
            records.CONTROLLER, records.encode_controller(UNKNOWN_NODE, 0), ephemeral=True
        )
        with ThreadPoolExecutor(1) as pool:
            start = pool.submit(broker.start)
            until(lambda: elsewhere.exists(path) and answers(broker), "it waits")
            assert not mark.exists()
            broker.signal(signal.SIGTERM)
            failure = start.exception()
        assert isinstance(failure, BrokerFailed)
        assert failure.exit_status == 0, failure
        assert mark.exists()
        assert not elsewhere.exists(path)
        elsewhere.close()
        broker.start()
        assert "recovered" not in broker.log_text()
    finally:
        broker.close()
