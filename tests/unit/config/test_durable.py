"""deploy/durable.properties: a broker takes it as it is, and it says what it is for."""

from __future__ import annotations

from kbroker.config import BrokerConfig
from kbroker.config.definition import find_broker_key
from tests.support.source_tree import ROOT


def test_it_is_durable_and_every_key_is_known() -> None:
    config = BrokerConfig.load(str(ROOT / "deploy" / "durable.properties"))
    assert all(find_broker_key(name) is not None for name in config.set_names())
    assert config["default.replication.factor"] == config["offsets.topic.replication.factor"] == 3
    assert config["min.insync.replicas"] == 2
    assert config["unclean.leader.election.enable"] is False
