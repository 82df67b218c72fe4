"""Passwords that are set at run time are stored encrypted, or not at all."""

from __future__ import annotations

import pytest

from kbroker.config import BrokerConfig
from kbroker.errors import ErrorCode, KafkaError
from kbroker.metadata.controller.config_changes import ResourceChange, plan_change
from kbroker.metadata.image import ClusterImage, ConfigKind, ConfigResource
from kbroker.security.sealed_text import PASSWORD_BYTES_MAX, is_sealed
from kbroker.server.dynamic_config import DynamicConfig

OWN = ConfigResource(ConfigKind.BROKER, "1")
KEY = "listener.name.plaintext.ssl.key.password"
JAAS = "listener.name.secure.plain.sasl.jaas.config"
PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule required"
WITH_SASL = (
    "listeners=SECURE://127.0.0.1:0",
    "listener.security.protocol.map=SECURE:SASL_PLAINTEXT",
    "inter.broker.listener.name=SECURE",
    "sasl.enabled.mechanisms=PLAIN",
    "sasl.mechanism.inter.broker.protocol=PLAIN",
    f'{JAAS}={PLAIN} username="b" password="x" user_b="x";',
)


def started(secret: str = "", old: str = "", *settings: str) -> DynamicConfig:
    secrets = {"password.encoder.secret": secret, "password.encoder.old.secret": old}
    given = [f"{name}={value}" for name, value in secrets.items() if value]
    return DynamicConfig(BrokerConfig.load(overrides=("node.id=1", *given, *settings)))


def planned(
    held: DynamicConfig,
    before: dict[str, str],
    wanted: dict[str, str],
    resource: ConfigResource = OWN,
) -> dict[str, str]:
    plan = plan_change(before, ResourceChange(resource, wanted), held)
    if isinstance(plan, KafkaError):
        raise plan
    return plan


def after(held: DynamicConfig, stored: dict[str, str]) -> BrokerConfig:
    held.follow(ClusterImage().with_configs({OWN: stored}))
    return held.config


def test_a_password_is_stored_encrypted_and_held_as_it_is() -> None:
    held = started("a-secret")
    stored = planned(held, {}, {KEY: "geheim", "num.io.threads": "9"})
    assert is_sealed(stored[KEY]) and "geheim" not in stored[KEY]
    assert stored["num.io.threads"] == "9"
    config = after(held, stored)
    assert config[KEY] == "geheim" and config["num.io.threads"] == 9
    assert planned(held, stored, {KEY: "geheim"}) == stored  # no change where it is the same
    assert planned(held, stored, {KEY: "other"})[KEY] != stored[KEY]
    # What looks like an encrypted text is a password like any other.
    twice = planned(held, {}, {KEY: stored[KEY]})
    assert after(held, twice)[KEY] == stored[KEY]


def test_an_encrypted_text_counts_when_another_setting_changes() -> None:
    held = started("a-secret", "", *WITH_SASL)
    text = f'{PLAIN} username="b" password="y" user_b="y";'
    stored = planned(held, {}, {JAAS: text})
    assert is_sealed(stored[JAAS])
    assert planned(held, stored, {"num.io.threads": "9"})[JAAS] == stored[JAAS]
    with pytest.raises(KafkaError, match="PLAIN"):
        planned(held, stored, {JAAS: f'{PLAIN} user_b="y";'})


def test_a_given_text_is_judged_as_it_is_stored() -> None:
    """Also one that looks encrypted."""
    held = started("a-secret", "", *WITH_SASL)
    sealed = planned(held, {}, {JAAS: f'{PLAIN} username="b" password="y" user_b="y";'})
    for before in ({}, sealed):
        with pytest.raises(KafkaError):
            planned(held, before, {JAAS: sealed[JAAS]})
    foreign = planned(started("other"), {}, {KEY: "geheim"})[KEY]
    assert after(held, planned(held, {}, {KEY: foreign}))[KEY] == foreign


def test_settings_that_are_not_known_may_be_passwords() -> None:
    wanted = {"ssl.key.pasword": "geheim"}
    assert planned(started(), {}, wanted) == wanted
    held = started("a-secret")
    stored = planned(held, {}, wanted)
    assert is_sealed(stored["ssl.key.pasword"])
    assert after(held, stored)["ssl.key.pasword"] == "geheim"
    assert planned(held, wanted, wanted) != wanted


def test_without_the_secret_no_password_is_stored() -> None:
    held = started()
    with pytest.raises(KafkaError, match=r"password\.encoder\.secret") as refused:
        planned(held, {}, {KEY: "geheim"})
    assert refused.value.code is ErrorCode.INVALID_REQUEST
    assert "geheim" not in str(refused.value)
    assert planned(held, {}, {"num.io.threads": "9"}) == {"num.io.threads": "9"}
    group = ConfigResource(ConfigKind.GROUP, "g")
    settings = {"consumer.session.timeout.ms": "50000"}
    assert planned(held, {}, settings, group) == settings


def test_a_password_that_would_be_too_long_encrypted_is_refused_before() -> None:
    held = started("a-secret")
    longest = "\u00e9" * (PASSWORD_BYTES_MAX // 2)
    for text in (longest, "x" * PASSWORD_BYTES_MAX):
        assert after(held, planned(held, {}, {KEY: text}))[KEY] == text
    for text in (longest + "x", "x" * 32_767):
        with pytest.raises(KafkaError, match=f"{KEY}.* at most {PASSWORD_BYTES_MAX} bytes"):
            planned(held, {}, {KEY: text})


def test_a_plain_text_of_earlier_remains_until_it_is_set_again() -> None:
    old = {KEY: "geheim"}
    held = started()
    assert after(held, old)[KEY] == "geheim"
    assert planned(held, old, {"num.io.threads": "9"})[KEY] == "geheim"
    assert planned(held, old, {KEY: "geheim"}) == old
    assert plan_change(old, ResourceChange(OWN, remove=frozenset({KEY})), held) == {}
    held = started("a-secret")
    assert after(held, old)[KEY] == "geheim"
    assert is_sealed(planned(held, old, {KEY: "geheim"})[KEY])


def test_a_secret_that_is_replaced_is_read_until_the_passwords_are_set_again() -> None:
    stored = planned(started("first"), {}, {KEY: "geheim"})
    held = started("second", "first")
    assert after(held, stored)[KEY] == "geheim"
    for text in ("geheim", "other"):  # also where it is the same as before
        newer = planned(held, stored, {KEY: text})
        assert after(started("second"), newer)[KEY] == text


@pytest.mark.parametrize("secret", ["", "another"])
def test_a_password_that_cannot_be_decrypted_is_left_out(
    secret: str, caplog: pytest.LogCaptureFixture
) -> None:
    stored = planned(started("first"), {}, {KEY: "geheim", "num.io.threads": "9"})
    held = started(secret, "", f"{KEY}=of-the-file")
    config = after(held, stored)
    assert config[KEY] == "of-the-file" and config["num.io.threads"] == 9
    assert f"{KEY} cannot be decrypted: " in caplog.text
    assert stored[KEY] not in caplog.text and "geheim" not in caplog.text
    # It stays where it is stored, and another setting can be made.
    assert planned(held, stored, {"num.io.threads": "10"})[KEY] == stored[KEY]
