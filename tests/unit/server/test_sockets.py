"""What the configuration says of the network, in the numbers that the network core gets."""

from __future__ import annotations

from unittest.mock import Mock, call

import pytest

from kbroker.config import BrokerConfig
from kbroker.errors import UserError
from kbroker.replica.throttled_replicas import LEADER_RATE
from kbroker.server import sockets


def test_answers_that_wait_may_hold_an_eighth_of_memory_or_the_configured_bytes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sockets, "memory_limit", lambda: 1 << 30)
    assert sockets.unsent_bytes_max(BrokerConfig.load()) == 1 << 27
    config = BrokerConfig.load(overrides=["queued.max.response.bytes=1048576"])
    assert sockets.unsent_bytes_max(config) == 1 << 20


@pytest.mark.parametrize("bound", [0, -2, 1_048_575])
def test_a_bound_that_would_cut_off_clients_that_read_is_refused(bound: int) -> None:
    with pytest.raises(UserError, match=r"queued\.max\.response\.bytes"):
        BrokerConfig.load(overrides=[f"queued.max.response.bytes={bound}"])


@pytest.mark.parametrize("verifies", [True, False])
def test_whether_transactions_are_verified_may_change(
    monkeypatch: pytest.MonkeyPatch, verifies: bool
) -> None:
    hot = Mock()
    path: Mock = hot.return_value
    monkeypatch.setattr(sockets, "HotPath", hot)
    config = BrokerConfig.load(
        overrides=[f"{sockets.VERIFIES}={str(verifies).lower()}", "request.timeout.ms=777"]
    )
    assert sockets.hot_path(config, Mock(), Mock()) == path
    assert hot.call_args.kwargs["verification_ms"] == 777
    path.verify_transactions.assert_called_once_with(verifies)
    sockets.hot_path_follows(path, config)
    assert path.verify_transactions.call_args_list[1:] == [call(verifies)]
    path.throttle_leader.assert_called_once_with(config[LEADER_RATE])


@pytest.mark.parametrize(
    ("protocol", "authenticates", "transports"),
    [
        ("PLAINTEXT", False, 0),
        ("SSL", False, 1),
        ("SASL_PLAINTEXT", True, 0),
        ("SASL_SSL", True, 1),
    ],
)
def test_the_four_protocols(protocol: str, authenticates: bool, transports: int) -> None:
    settings = [
        "listeners=L://127.0.0.1:0",
        f"listener.security.protocol.map=L:{protocol}",
        "inter.broker.listener.name=L",
        "sasl.enabled.mechanisms=SCRAM-SHA-256",
        "ssl.keystore.type=PEM",
        "ssl.keystore.location=/broker.pem",
    ]
    server, tls = Mock(), Mock()
    sockets.listen_all(server, BrokerConfig.load(overrides=settings), tls)
    (bound,) = server.listen.call_args_list
    assert bound.kwargs["authenticates"] is authenticates
    assert tls.call_count == transports


def test_a_listener_with_tls_has_a_transport() -> None:
    settings = [
        "listeners=PLAINTEXT://127.0.0.1:0,SSL://127.0.0.1:0",
        "ssl.keystore.type=PEM",
        "ssl.keystore.location=/broker.pem",
    ]
    server, tls = Mock(), Mock()
    sockets.listen_all(server, BrokerConfig.load(overrides=settings), tls)
    plain, secured = server.listen.call_args_list
    assert plain.kwargs["transport"] is None
    assert secured.kwargs["transport"] is tls.return_value
    assert [each.args[0].name for each in tls.call_args_list] == ["SSL"]
