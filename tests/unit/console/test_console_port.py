"""By which listener a visitor's client comes in, and when this broker's own figures are read."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from kbroker.config import BrokerConfig
from kbroker.errors import UserError
from kbroker.observe.readiness import RUNNING, STARTING, STOPPING, Readiness
from kbroker.observe.why.facts import About, Question
from kbroker.server.console_port import ConsolePort

INSIDE = "inter.broker.listener.name=INSIDE"
MAP = "listener.security.protocol.map=INSIDE:PLAINTEXT,OUTSIDE:{}"
LISTENERS = "listeners=INSIDE://127.0.0.1:9092,OUTSIDE://0.0.0.0:9093"
ACLS = "authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer"
SCRAM = "sasl.enabled.mechanisms=SCRAM-SHA-512"


def port(*settings: str) -> ConsolePort:
    config = BrokerConfig.load(None, {}, list(settings))
    broker: Any = SimpleNamespace(config=config, own_address=lambda listener: listener)
    return ConsolePort(broker)


def inside_and(protocol: str, *settings: str) -> ConsolePort:
    return port(LISTENERS, MAP.format(protocol), INSIDE, *settings)


def way(asked: ConsolePort, *, is_local: bool) -> tuple[str, bool]:
    """The listener, and whether visitors log in."""
    found = asked.way(is_local=is_local)
    return found.address, bool(found.mechanisms)


@pytest.mark.parametrize("is_local", [True, False])
def test_without_authentication_every_visitor_comes_in(is_local: bool) -> None:
    assert way(port(), is_local=is_local) == ("PLAINTEXT", False)
    assert way(inside_and("PLAINTEXT"), is_local=is_local) == ("INSIDE", False)


def test_a_listener_of_brokers_is_no_way_in_for_visitors_of_elsewhere() -> None:
    """Where clients authenticate, they have to as well, with an authorizer or without."""
    asked = inside_and("SASL_PLAINTEXT", SCRAM)
    assert way(asked, is_local=False) == ("OUTSIDE", True)
    assert way(asked, is_local=True) == ("INSIDE", False)


def test_no_password_goes_to_an_advertised_address_without_tls() -> None:
    """Another machine may be there, which would read it."""
    advertised = "advertised.listeners=INSIDE://127.0.0.1:9092,OUTSIDE://balancer:9093"
    assert way(inside_and("SASL_PLAINTEXT", SCRAM, advertised), is_local=False) == ("OUTSIDE", True)


@pytest.mark.parametrize(
    ("protocol", "settings"),
    [
        ("SASL_PLAINTEXT", ["sasl.enabled.mechanisms=OAUTHBEARER"]),
        ("SSL", ["listener.name.outside.ssl.client.auth=required"]),
    ],
)
def test_a_visitor_that_cannot_log_in_is_refused(protocol: str, settings: list[str]) -> None:
    asked = unchecked(protocol, settings)
    with pytest.raises(UserError, match="no way into this broker"):
        asked.way(is_local=False)
    assert way(asked, is_local=True) == ("INSIDE", False)


def unchecked(protocol: str, settings: list[str]) -> ConsolePort:
    """With listeners whose keys are in no file here."""
    values = {"listener.name.outside.ssl.client.auth": "none", "sasl.enabled.mechanisms": ""}
    values.update(each.split("=", 1) for each in settings)
    auth = values["listener.name.outside.ssl.client.auth"]
    protocols = {"INSIDE": "PLAINTEXT", "OUTSIDE": protocol}
    config = FakeConfig(
        {"authorizer.class.name": ""},
        SimpleNamespace(
            names=tuple(protocols), inter_broker_name="INSIDE", protocol_of=protocols.__getitem__
        ),
        SimpleNamespace(
            mechanisms=tuple(values["sasl.enabled.mechanisms"].split(",")), client_auth=auth
        ),
    )
    broker: Any = SimpleNamespace(config=config, own_address=lambda listener: listener)
    return ConsolePort(broker)


class FakeConfig(dict[str, Any]):
    def __init__(self, values: dict[str, Any], listeners: Any, security: Any) -> None:
        super().__init__(values)
        self.listeners = listeners
        self.security_of = lambda name: security


def test_with_an_authorizer_visitors_of_elsewhere_log_in_or_stay_out() -> None:
    with pytest.raises(UserError):
        port(ACLS).way(is_local=False)
    assert way(port(ACLS), is_local=True) == ("PLAINTEXT", False)
    assert way(inside_and("SASL_PLAINTEXT", SCRAM, ACLS), is_local=True) == ("OUTSIDE", True)


@pytest.mark.parametrize("phase", [STARTING, STOPPING])
def test_figures_and_causes_are_read_while_the_broker_runs(phase: str) -> None:
    readiness = Readiness([])
    answers = SimpleNamespace(why=lambda question: {"causes": []})
    broker: Any = SimpleNamespace(
        readiness=readiness, observation=answers, figures=lambda *, every_partition: "figures"
    )
    asked, question = ConsolePort(broker), Question(About.SLOW)
    readiness.phase = phase
    for read in (asked.figures, lambda: asked.why(question)):
        with pytest.raises(UserError, match=f"this broker is {phase}"):
            read()
    readiness.phase = RUNNING
    assert (asked.figures(), asked.why(question)) == ("figures", {"causes": []})
