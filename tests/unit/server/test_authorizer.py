"""The settings of the authorizer; a broker does not start with one yet."""

from __future__ import annotations

from pathlib import Path

import pytest

from kbroker.clock import ManualClock
from kbroker.config import BrokerConfig
from kbroker.errors import ConfigError
from kbroker.security.acl_set import NO_ACL_SET
from kbroker.server import authorizer
from kbroker.server.authorizer import NAMES, authorizer_of, denials_of
from kbroker.server.broker import Broker


def config(*overrides: str) -> BrokerConfig:
    return BrokerConfig.load(None, {}, list(overrides))


def test_without_a_name_there_is_none() -> None:
    denials = denials_of(config(), ManualClock())
    assert denials is None
    assert authorizer_of(config(), lambda: NO_ACL_SET, denials) is None


@pytest.mark.parametrize("name", NAMES)
def test_a_broker_with_an_authorizer_does_not_start(name: str, tmp_path: Path) -> None:
    """Not every API asks it yet."""
    broker = Broker(config(f"authorizer.class.name={name}", f"log.dirs={tmp_path}"), tmp_path)
    with pytest.raises(ConfigError, match="does not check the rights of every request"):
        broker.start()


@pytest.mark.parametrize("name", NAMES)
def test_both_names_of_apache_kafka_are_ours(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(authorizer, "EVERY_API_ASKS", True)
    settings = config(
        f"authorizer.class.name={name}",
        "super.users=User:a; User:b",
        "allow.everyone.if.no.acl.found=true",
    )
    made = authorizer_of(settings, lambda: NO_ACL_SET, denials_of(settings, ManualClock()))
    assert made is not None
    assert made.rules.super_users == {"User:a", "User:b"}
    assert made.rules.allow_if_no_acl


@pytest.mark.parametrize(
    ("override", "line"),
    [
        ("authorizer.class.name=com.example.Mine", "is not an authorizer"),
        ("super.users=anna", "TYPE:NAME"),
    ],
)
def test_settings_that_are_refused(
    override: str, line: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(authorizer, "EVERY_API_ASKS", True)
    settings = config(f"authorizer.class.name={NAMES[0]}", override)
    with pytest.raises(ConfigError, match=line):
        authorizer_of(settings, lambda: NO_ACL_SET, denials_of(settings, ManualClock()))
