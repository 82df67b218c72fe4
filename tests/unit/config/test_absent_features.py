"""A setting that asks for an absent feature ends the start, and is refused while it runs."""

from __future__ import annotations

import pytest

from kbroker.config import BrokerConfig, ConfigSource
from kbroker.config.absent_features import ABSENT
from kbroker.config.definition import BROKER_KEYS
from kbroker.config.dynamic import check_broker, with_overrides
from kbroker.config.key import BOOLEAN
from kbroker.errors import ConfigError, KafkaError

BUILDER = "principal.builder.class"


def _text(key: str) -> str:
    return "true" if BROKER_KEYS[key].type is BOOLEAN else "com.example.Own"


@pytest.mark.parametrize("key", [each.key for each in ABSENT])
def test_a_start_is_refused(key: str) -> None:
    with pytest.raises(ConfigError) as refused:
        BrokerConfig.load(overrides=[f"{key}={_text(key)}"])
    assert refused.value.cause.startswith(f"{key}={_text(key)} (--override): ")
    assert refused.value.fix.startswith("leave it unset")


@pytest.mark.parametrize("key", [each.key for each in ABSENT])
def test_a_value_that_asks_for_nothing_more_is_taken(key: str) -> None:
    (absent,) = (each for each in ABSENT if each.key == key)
    for value in absent.same:
        text = str(value).lower() if isinstance(value, bool) else value or ""
        BrokerConfig.load(overrides=[f"{key}={text}"])
    assert BrokerConfig.load()[key] in (*absent.same, None)


def test_a_listener_of_its_own_is_refused_as_well() -> None:
    name = f"listener.name.internal.{BUILDER}"
    with pytest.raises(ConfigError, match=f"{name}=com.example.Own "):
        BrokerConfig.load(overrides=[f"{name}=com.example.Own"])


def test_a_change_while_it_runs_is_refused_and_a_stored_one_is_left_out() -> None:
    started = BrokerConfig.load()
    source = ConfigSource.DYNAMIC_BROKER_CONFIG
    with pytest.raises(KafkaError, match="Java classes do not run here"):
        check_broker(started, source, {BUILDER: "com.example.Own"})
    config, left_out = with_overrides(
        started, {}, {BUILDER: "com.example.Own", "num.io.threads": "9"}
    )
    assert config["num.io.threads"] == 9 and config[BUILDER] is None
    assert [error.cause.partition(" ")[0] for error in left_out] == [f"{BUILDER}=com.example.Own"]


def test_several_stored_ones_are_left_out_and_the_others_hold() -> None:
    """An earlier version took them while it ran: no key of a listener is lost for that."""
    engine = "listener.name.plaintext.ssl.engine.factory.class"
    refused = {BUILDER: "com.example.Own", engine: "com.example.Own"}
    held = {"num.io.threads": "9", "listener.name.plaintext.ssl.keystore.location": "/k.pem"}
    config, left_out = with_overrides(BrokerConfig.load(), {}, {**refused, **held})
    assert config["num.io.threads"] == 9 and set(held) <= {*config.set_names()}
    assert not set(refused) & {*config.set_names()}
    named = [error.cause.partition("=")[0] for error in left_out]
    assert sorted(named) == sorted(refused)
