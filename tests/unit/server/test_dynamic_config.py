"""Values set at run time over those of the start, and the parts that are notified."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from kbroker.config import BrokerConfig
from kbroker.errors import ErrorCode, KafkaError
from kbroker.metadata.controller import records
from kbroker.metadata.controller.config_nodes import load_resource_configs
from kbroker.metadata.controller.skeleton import ensure_skeleton
from kbroker.metadata.image import ClusterImage, ConfigKind, ConfigResource
from kbroker.metadata.store.embedded import EmbeddedStore
from kbroker.server.dynamic_config import DynamicConfig
from kbroker.server.lifecycle import nothing

EVERY = ConfigResource(ConfigKind.BROKER, "")
OWN = ConfigResource(ConfigKind.BROKER, "1")
OTHER = ConfigResource(ConfigKind.BROKER, "2")


def image(**by_name: Mapping[str, str]) -> ClusterImage:
    resources = {"every": EVERY, "own": OWN, "other": OTHER}
    return ClusterImage().with_configs({resources[name]: own for name, own in by_name.items()})


def started(*overrides: str, on_failure: Callable[[], None] = nothing) -> DynamicConfig:
    return DynamicConfig(BrokerConfig.load(overrides=("node.id=1", *overrides)), on_failure)


def test_one_brokers_value_is_stronger_than_everybodys_and_both_than_the_files() -> None:
    held = started("num.io.threads=5")
    seen = []
    for settings in (
        {"every": {"num.io.threads": "6"}},
        {"every": {"num.io.threads": "6"}, "own": {"num.io.threads": "7"}},
        {"own": {"num.io.threads": "7"}, "other": {"num.io.threads": "9"}},
        {"other": {"num.io.threads": "9"}},
    ):
        held.follow(image(**settings))
        seen.append(held.config["num.io.threads"])
    assert seen == [6, 7, 7, 5]


def test_followers_are_notified_once_and_one_that_fails_does_not_keep_the_others_back(
    caplog: pytest.LogCaptureFixture,
) -> None:
    held = started()
    changes: list[tuple[int, int]] = []

    def failing(before: BrokerConfig, now: BrokerConfig) -> None:
        raise OSError("no thread to be had")

    held.add("what fails", failing)
    held.add(
        "what works",
        lambda before, now: changes.append((before["num.io.threads"], now["num.io.threads"])),
    )
    changed = image(own={"num.io.threads": "9"})
    held.follow(changed)
    held.follow(changed)
    held.follow(changed.with_configs({ConfigResource(ConfigKind.GROUP, "g"): {"a": "1"}}))
    assert changes == [(8, 9)]
    assert "what fails cannot follow" in caplog.text


def test_a_part_that_could_not_follow_is_called_again_from_its_last_configuration() -> None:
    asked_again: list[None] = []
    held = started(on_failure=lambda: asked_again.append(None))
    seen: list[tuple[int, int]] = []
    short = True

    def resize(before: BrokerConfig, now: BrokerConfig) -> None:
        if short:
            raise RuntimeError("can't start new thread")
        seen.append((before["num.io.threads"], now["num.io.threads"]))

    held.add("the handlers", resize)
    held.follow(image(own={"num.io.threads": "9"}))
    held.follow(image(own={"num.io.threads": "10"}))
    assert held.lagging == ["the handlers"] and len(asked_again) == 2
    held.try_again()
    assert len(asked_again) == 3
    short = False
    held.try_again()
    held.try_again()
    assert seen == [(8, 10)] and held.lagging == []


def test_why_something_cannot_follow_is_said_once(caplog: pytest.LogCaptureFixture) -> None:
    held = started()
    why = "can't start new thread"

    def resize(before: BrokerConfig, now: BrokerConfig) -> None:
        if why:
            raise RuntimeError(why)

    def said() -> int:
        return caplog.text.count("the handlers cannot follow")

    held.add("the handlers", resize)
    held.follow(image(own={"num.io.threads": "9"}))
    for _ in range(3):
        held.try_again()
    assert said() == 1
    why = "Cannot allocate memory"
    held.try_again()
    assert said() == 2
    why = ""
    held.try_again()
    why = "Cannot allocate memory"
    held.follow(image(own={"num.io.threads": "10"}))
    assert said() == 3


def test_settings_that_are_not_allowed_any_more_are_left_out(
    caplog: pytest.LogCaptureFixture,
) -> None:
    held = started()
    held.follow(
        image(
            own={"num.io.threads": "x", "log.segment.bytes": "2000000", "of.a.plugin": "1"},
            every={"num.io.threads": "4"},
        )
    )
    assert (held.config["num.io.threads"], held.config["log.segment.bytes"]) == (4, 2_000_000)
    assert "left out" in caplog.text and "num.io.threads='x'" in caplog.text


def test_a_value_that_does_not_go_with_the_others_is_left_out_alone(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Such as one that was stored before its bounds were checked."""
    held = started()
    stored = {"group.streams.assignment.interval.ms": "20000", "log.retention.ms": "77"}
    held.follow(image(own={"num.network.threads": "65", "num.io.threads": "4"}, every=stored))
    assert held.config["num.network.threads"] <= 64
    assert held.config["group.streams.assignment.interval.ms"] <= 15_000
    assert (held.config["num.io.threads"], held.config["log.retention.ms"]) == (4, 77)
    assert "more than there can be" in caplog.text and "is not between" in caplog.text


def test_of_values_that_do_not_go_together_none_holds_where_two_are_wrong() -> None:
    held = started()
    held.follow(image(own={"num.network.threads": "65", "num.io.threads": "2000"}))
    assert held.config["num.network.threads"] <= 64 and held.config["num.io.threads"] <= 1_000


def test_secrets_are_not_in_the_log_and_idle_keys_are_named(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    held = started()
    name = "listener.name.plaintext.ssl.key.password"
    held.follow(image(own={name: "geheim", "of.a.plugin": "geheim", "background.threads": "12"}))
    assert "geheim" not in caplog.text
    assert "background.threads=12" in caplog.text
    assert f"without effect in this version: background.threads, {name}, of.a.plugin" in caplog.text


def test_a_store_of_an_earlier_version_gets_the_new_folders(tmp_path: Path) -> None:
    store = EmbeddedStore.open(tmp_path)
    assert load_resource_configs(store) == {}
    held = started()
    held.load(store)
    assert held.config["num.io.threads"] == 8
    cluster = ensure_skeleton(store, "a-cluster")
    for folder in records.CONFIG_FOLDERS.values():
        store.delete(folder)
    assert ensure_skeleton(store, "another") == cluster
    names = {EVERY: "1", OWN: "2", ConfigResource(ConfigKind.GROUP, "a/b.\u00e9 %"): "3"}
    for resource, value in names.items():
        store.create(records.config_path(resource), records.encode_configs({"k": value}))
    assert load_resource_configs(store) == {r: {"k": value} for r, value in names.items()}
    store.close()


@pytest.mark.parametrize("name", [".", "..", "a/../b", "<default>", "\u0000", "x" * 900])
def test_any_name_has_a_place_of_its_own(name: str) -> None:
    resource = ConfigResource(ConfigKind.GROUP, name)
    path = records.config_path(resource)
    folder, _, child = path.rpartition("/")
    assert folder == "/config/groups"
    assert records.config_resource(ConfigKind.GROUP, child) == resource


@pytest.mark.parametrize(
    ("resource", "settings", "code"),
    [
        (OWN, {"node.id": "1"}, ErrorCode.INVALID_REQUEST),
        (OWN, {"listeners": "PLAINTEXT://:1"}, ErrorCode.INVALID_REQUEST),
        (EVERY, {"sasl.enabled.mechanisms": "PLAIN"}, ErrorCode.INVALID_REQUEST),
        (OWN, {"max.connections": "0"}, ErrorCode.INVALID_REQUEST),
        (OWN, {"max.connections.per.ip": "0"}, ErrorCode.INVALID_REQUEST),
        (OWN, {"num.io.threads": "3"}, ErrorCode.INVALID_REQUEST),
        (ConfigResource(ConfigKind.GROUP, "g"), {"nope": "1"}, ErrorCode.INVALID_CONFIG),
        (
            ConfigResource(ConfigKind.CLIENT_METRICS, "m"),
            {"match": "client_id=" + "(" * 20_000},
            ErrorCode.INVALID_CONFIG,
        ),
    ],
)
def test_settings_that_are_refused(
    resource: ConfigResource, settings: Mapping[str, str], code: ErrorCode
) -> None:
    with pytest.raises(KafkaError) as raised:
        started().check(resource, settings)
    assert raised.value.code == code


def test_a_pattern_is_looked_at_and_not_compiled() -> None:
    # Python takes five seconds to compile this one.
    pattern = "client_id=(?i)" + "[\x01-\uffff]" * 1_000
    began = time.process_time()
    started().check(ConfigResource(ConfigKind.CLIENT_METRICS, "m"), {"match": pattern})
    assert time.process_time() - began < 1


def test_steps_of_a_pool_are_measured_from_its_size_now() -> None:
    held = started("num.io.threads=4")
    held.check(OWN, {"num.io.threads": "8"})
    held.follow(image(own={"num.io.threads": "8"}))
    held.check(OWN, {"num.io.threads": "16"})
    with pytest.raises(KafkaError, match="at least half the current value 8"):
        held.check(OWN, {"num.io.threads": "3"})
    # The value of all brokers does not hold here as long as this broker has its own.
    held.check(EVERY, {"num.io.threads": "100"})
    with pytest.raises(KafkaError, match=r"num\.network\.threads=65 is more"):
        held.check(OWN, {"num.io.threads": "8", "num.network.threads": "65"})


@pytest.mark.parametrize("resource", [OWN, EVERY])
def test_lists_are_edited_from_the_default_on(resource: ConfigResource) -> None:
    held = started("log.cleanup.policy=compact")
    held.follow(image(every={"log.cleanup.policy": "compact"}))
    name = "log.cleanup.policy"
    assert held.edit_list(resource, {}, name, "compact", True) == "delete,compact"
    assert held.edit_list(resource, {}, name, "delete", False) == ""
    assert held.edit_list(resource, {name: "compact"}, name, "delete", True) == "compact,delete"


# --- SASL -----------------------------------------------------------------------------------------

_PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule required"
_JAAS = "listener.name.secure.plain.sasl.jaas.config"
_ENABLED = "listener.name.secure.sasl.enabled.mechanisms"
_WITH_SASL = (
    "listeners=SECURE://127.0.0.1:0",
    "listener.security.protocol.map=SECURE:SASL_PLAINTEXT",
    "inter.broker.listener.name=SECURE",
    "sasl.enabled.mechanisms=PLAIN",
    "sasl.mechanism.inter.broker.protocol=PLAIN",
    f'{_JAAS}={_PLAIN} username="b" password="x" user_b="x";',
)
_LOCKED_OUT = [
    {_ENABLED: "OAUTHBEARER"},
    {_ENABLED: "SCRAM-SHA-512"},
    {"sasl.mechanism.inter.broker.protocol": "SCRAM-SHA-512"},
    {_JAAS: f'{_PLAIN} user_b="x";'},
]


@pytest.mark.parametrize("settings", _LOCKED_OUT)
@pytest.mark.parametrize("resource", [OWN, EVERY])
def test_settings_that_would_let_no_user_log_in_are_refused(
    settings: Mapping[str, str], resource: ConfigResource
) -> None:
    """No client could take them back, and the broker would not start again."""
    held = started(*_WITH_SASL)
    with pytest.raises(KafkaError) as raised:
        held.check(resource, settings)
    assert raised.value.code is ErrorCode.INVALID_REQUEST
    held.check(OWN, {_JAAS: f'{_PLAIN} username="b" password="y" user_b="y" user_c="z";'})


@pytest.mark.parametrize("settings", _LOCKED_OUT)
def test_stored_settings_that_would_let_no_user_log_in_are_left_out(
    settings: Mapping[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    """The controller, which has another configuration, may have taken them."""
    held = started(*_WITH_SASL)
    held.follow(image(own={**settings, "num.io.threads": "9"}))
    assert held.config["num.io.threads"] == 9
    security = held.config.security_of("SECURE")
    assert security.mechanisms == ("PLAIN",)
    assert held.config["sasl.mechanism.inter.broker.protocol"] == "PLAIN"
    assert "a setting made at run time is left out" in caplog.text
    assert '"x"' not in caplog.text
