"""The settings of the authorizer."""

from __future__ import annotations

from typing import Any
from unittest.mock import Mock

import pytest

from kbroker.clock import ManualClock
from kbroker.config import BrokerConfig
from kbroker.errors import ConfigError
from kbroker.metadata.image import ClusterImage
from kbroker.scheduler import Scheduler
from kbroker.security.acl_set import NO_ACL_SET
from kbroker.security.rights import Operation, Resource, ResourceType
from kbroker.security.session import Principal, Session
from kbroker.server.authorizer import NAMES, Access, authorizer_of, denials_of
from kbroker.types import ApiKey


def config(*overrides: str) -> BrokerConfig:
    return BrokerConfig.load(None, {}, list(overrides))


def test_without_a_name_there_is_none() -> None:
    denials = denials_of(config(), ManualClock())
    assert denials is None
    assert authorizer_of(config(), lambda: NO_ACL_SET, denials) is None


@pytest.mark.parametrize("name", NAMES)
def test_both_names_of_apache_kafka_are_ours(name: str) -> None:
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
def test_settings_that_are_refused(override: str, line: str) -> None:
    settings = config(f"authorizer.class.name={NAMES[0]}", override)
    with pytest.raises(ConfigError, match=line):
        authorizer_of(settings, lambda: NO_ACL_SET, denials_of(settings, ManualClock()))


def test_nothing_is_open_to_everyone_before_the_first_image() -> None:
    """That there are no ACLs is known with an image."""

    class Known:
        image = ClusterImage()

    settings = config(
        f"authorizer.class.name={NAMES[0]}",
        "super.users=User:root",
        "allow.everyone.if.no.acl.found=true",
    )
    controller: Any = Known()
    clock = ManualClock()
    access = Access(settings, clock, lambda: controller, Scheduler(clock, "test"))
    access.make()
    assert access.authorizer is not None

    def denied(name: str) -> bool:
        session = Session(Principal("User", name), None, "L", "127.0.0.1")
        resources = [Resource(each, "x") for each in ResourceType if each is not ResourceType.ANY]
        found = access.authorizer.authorize(  # type: ignore[union-attr]
            session, Operation.DESCRIBE, resources, ApiKey.METADATA, quiet=True
        )
        assert len(found) in (0, len(resources))
        return bool(found)

    assert denied("anna") and not denied("root")
    Known.image = ClusterImage().at_version(1)
    assert not denied("anna")


@pytest.mark.parametrize(("setting", "period_ms"), [(1, 500), (700, 700), (10**12, 86_400_000)])
def test_tokens_are_looked_at_no_more_often_than_twice_a_second(
    setting: int, period_ms: int
) -> None:
    """Apache Kafka allows an interval of 1 ms."""
    scheduler = Mock()
    settings = config(
        "delegation.token.secret.key=secret",
        f"delegation.token.expiry.check.interval.ms={setting}",
    )
    Access(settings, ManualClock(), Mock(), scheduler).make()
    (scheduled,) = scheduler.schedule.call_args_list
    assert scheduled.args[0] == "tokens" and scheduled.args[2] == period_ms
