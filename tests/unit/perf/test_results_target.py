"""A Java client's properties in librdkafka's words, and what is refused before anything runs."""

from __future__ import annotations

from pathlib import Path

import click
import pytest

from perf.results_target import Target, made, translated

SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"
PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"


def test_a_password_over_tls() -> None:
    java = {
        "bootstrap.servers": "elsewhere:9093",
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.jaas.config": f'{SCRAM} required username="ann" password="a \\"b\\" = c;";',
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": "/ca.pem",
        "ssl.endpoint.identification.algorithm": "",
    }
    assert translated(java) == {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.username": "ann",
        "sasl.password": 'a "b" = c;',
        "ssl.ca.location": "/ca.pem",
        "ssl.endpoint.identification.algorithm": "none",
    }


@pytest.mark.parametrize(
    ("java", "librdkafka"),
    [
        (
            {"ssl.keystore.type": "pem", "ssl.keystore.location": "/me.pem"},
            {"ssl.certificate.location": "/me.pem", "ssl.key.location": "/me.pem"},
        ),
        (
            {"ssl.keystore.type": "PEM", "ssl.keystore.certificate.chain": "C", "ssl.keystore.key":
             "K", "ssl.key.password": "p"},
            {"ssl.certificate.pem": "C", "ssl.key.pem": "K", "ssl.key.password": "p"},
        ),
        (
            {"ssl.keystore.type": "PKCS12", "ssl.keystore.location": "/me.p12",
             "ssl.keystore.password": "p"},
            {"ssl.keystore.location": "/me.p12", "ssl.keystore.password": "p"},
        ),
        (
            {"ssl.truststore.type": "PEM", "ssl.truststore.certificates": "C"},
            {"ssl.ca.pem": "C"},
        ),
        (
            {"sasl.jaas.config": f"{PLAIN} required username='ann' password='it''s';"},
            {"sasl.username": "ann", "sasl.password": "it"},
        ),
        ({"sasl.username": "ann", "made.up": "1"}, {"sasl.username": "ann", "made.up": "1"}),
    ],
)  # fmt: skip
def test_stores_and_the_rest(java: dict[str, str], librdkafka: dict[str, str]) -> None:
    assert translated(java) == librdkafka


@pytest.mark.parametrize(
    ("java", "said"),
    [
        ({"ssl.truststore.location": "/secret.jks"}, "ssl.truststore.location of a JKS store"),
        ({"ssl.truststore.type": "PKCS12", "ssl.truststore.location": "/x"}, "of a PKCS12 store"),
        ({"ssl.keystore.location": "/secret.jks"}, "ssl.keystore.type=PEM"),
        ({"sasl.jaas.config": "secret"}, "sasl.jaas.config: PlainLoginModule or"),
        ({"sasl.jaas.config": f"{PLAIN} required username='secret';"}, "username and password"),
        ({"sasl.jaas.config": f"a.Krb5LoginModule required {'x' * 10000};"}, "LoginModule"),
    ],
)
def test_a_setting_that_librdkafka_cannot_read_is_reported_without_its_value(
    java: dict[str, str], said: str
) -> None:
    with pytest.raises(ValueError) as refused:
        translated(java)
    text = str(refused.value)
    assert said in text and "secret" not in text and "\n" not in text


def test_from_a_file(tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    file.write_text("# for the report\nsecurity.protocol = SSL\nssl.truststore.type=PEM\n")
    found = made("a:1,[::1]:2", str(file))
    assert found == Target("a:1,[::1]:2", str(file), {"security.protocol": "SSL"})
    assert str(file) in found.options() and "SSL" not in repr(found)
    assert made(None, None) is None


@pytest.mark.parametrize(
    ("bootstrap", "config", "said"),
    [
        (None, "x", "goes with --results-bootstrap"),
        ("here", None, "'here' is not HOST:PORT"),
        ("a:1,b", None, "'b' is not HOST:PORT"),
        ("a:1", "/nowhere/at/all", "cannot read /nowhere/at/all"),
    ],
)
def test_a_wrong_option_is_one_line(bootstrap: str | None, config: str | None, said: str) -> None:
    with pytest.raises(click.UsageError) as refused:
        made(bootstrap, config)
    assert said in refused.value.message and "\n" not in refused.value.message
