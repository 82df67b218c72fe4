"""The security of a listener: which key is the stronger one, and what is refused with a reason."""

from __future__ import annotations

import ssl

import pytest

from kbroker.config import BrokerConfig, SecurityProtocol
from kbroker.config.cipher_suites import TLS_1_2_SUITES, TLS_1_3_SUITES, unknown_suite
from kbroker.config.dynamic import THIS_BROKER, check_broker
from kbroker.config.listener_security import ListenerSecurity
from kbroker.errors import ConfigError, KafkaError

PEM = ("ssl.keystore.type=PEM", "ssl.keystore.location=/etc/broker.pem")
SCRAM = ("sasl.enabled.mechanisms=SCRAM-SHA-512,PLAIN",)


def _load(protocol: str, *overrides: str) -> BrokerConfig:
    return BrokerConfig.load(
        overrides=[
            "listeners=IN://127.0.0.1:1,OUT-SIDE://127.0.0.1:2",
            f"listener.security.protocol.map=IN:PLAINTEXT,OUT-SIDE:{protocol}",
            "inter.broker.listener.name=IN",
            *overrides,
        ]
    )


def _security(protocol: str, *overrides: str) -> ListenerSecurity:
    return _load(protocol, *overrides).security_of("OUT-SIDE")


@pytest.mark.parametrize("protocol", list(SecurityProtocol))
def test_the_four_protocols(protocol: SecurityProtocol) -> None:
    config = _load(protocol.value, *PEM, *SCRAM)
    found = config.security_of("OUT-SIDE")
    assert (found.name, found.protocol) == ("OUT-SIDE", protocol)
    assert found.uses_tls is protocol.value.endswith("SSL")
    assert found.uses_sasl is protocol.value.startswith("SASL")
    assert config.security_of("IN").protocol is SecurityProtocol.PLAINTEXT


def test_a_listeners_own_key_is_stronger() -> None:
    config = _load(
        "SSL",
        *PEM,
        "ssl.client.auth=requested",
        "listener.name.out-side.ssl.client.auth=required",
        "listener.name.OUT-SIDE.ssl.cipher.suites=TLS_AES_128_GCM_SHA256",
    )
    out, inside = config.security_of("OUT-SIDE"), config.security_of("IN")
    assert (out["ssl.client.auth"], inside["ssl.client.auth"]) == ("required", "requested")
    assert out.name_of("ssl.client.auth") == "listener.name.out-side.ssl.client.auth"
    assert inside.name_of("ssl.client.auth") == "ssl.client.auth"
    assert out.is_own("ssl.client.auth") and not inside.is_own("ssl.client.auth")
    assert out["ssl.cipher.suites"] == ()  # the prefix is in small letters
    assert out["ssl.enabled.protocols"] == ("TLSv1.2", "TLSv1.3")


def test_a_mechanisms_own_key_is_the_strongest() -> None:
    key = "connections.max.reauth.ms"
    found = _security(
        "SASL_PLAINTEXT",
        *SCRAM,
        f"{key}=1",
        f"listener.name.out-side.{key}=2",
        f"listener.name.out-side.scram-sha-512.{key}=3",
    )
    assert found.of_mechanism("SCRAM-SHA-512", key) == 3
    assert found.of_mechanism("PLAIN", key) == found[key] == 2
    assert found.is_of_mechanism("SCRAM-SHA-512", key)
    assert not found.is_of_mechanism("PLAIN", key)
    assert _security("SASL_PLAINTEXT", *SCRAM, f"{key}=1").of_mechanism("PLAIN", key) == 1


@pytest.mark.parametrize(
    ("protocol", "settings", "expected"),
    [
        ("SSL", (), "none"),
        ("SSL", ("ssl.client.auth=required",), "required"),
        ("SASL_SSL", ("ssl.client.auth=required",), "none"),
        ("SASL_SSL", ("listener.name.out-side.ssl.client.auth=required",), "required"),
        ("SASL_SSL", ("listener.name.in.ssl.client.auth=required",), "none"),
    ],
)
def test_client_auth_of_all_listeners_is_not_for_sasl_ssl(
    protocol: str, settings: tuple[str, ...], expected: str
) -> None:
    assert _security(protocol, *PEM, *SCRAM, *settings).client_auth == expected


def test_mechanisms_that_are_not_served_are_left_out() -> None:
    found = _security("SASL_PLAINTEXT", "sasl.enabled.mechanisms=GSSAPI,PLAIN,X")
    assert found.mechanisms == ("PLAIN",)


@pytest.mark.parametrize(
    ("protocol", "settings", "reason"),
    [
        ("SASL_PLAINTEXT", (), r"none is served \(Kerberos\)"),
        ("SASL_PLAINTEXT", ("sasl.enabled.mechanisms=",), r"\(none\) none is served"),
        ("SASL_PLAINTEXT", ("sasl.enabled.mechanisms=plain",), r"\(plain\) none is served"),
        ("SSL", (), "has no certificate"),
        ("SSL", (*PEM[1:], "ssl.keystore.type=BCFKS"), "no type of store"),
        ("SSL", (*PEM, "ssl.keystore.password=secret"), "no password of its own"),
        ("SSL", (*PEM, "ssl.keystore.key=secret"), "certificate.chain is not"),
        ("SSL", (*PEM, "ssl.keystore.certificate.chain=secret"), "keystore.key is not"),
        (
            "SSL",
            (*PEM, "ssl.keystore.key=secret", "ssl.keystore.certificate.chain=secret"),
            "both set",
        ),
        ("SSL", (*PEM, "ssl.truststore.certificates=secret"), r"truststore.type=JKS"),
        (
            "SSL",
            (
                *PEM,
                "ssl.truststore.type=PEM",
                "ssl.truststore.location=/t.pem",
                "ssl.truststore.certificates=secret",
            ),
            "both set",
        ),
        ("SSL", (*PEM, "ssl.truststore.password=secret"), "there is no trust store"),
        (
            "SSL",
            (
                *PEM,
                "ssl.truststore.type=PEM",
                "ssl.truststore.location=/t.pem",
                "ssl.truststore.password=secret",
            ),
            "no password of its own",
        ),
        ("SSL", (*PEM, "ssl.enabled.protocols=TLSv1.1,TLSv1.2"), "TLSv1.1 cannot be served"),
        ("SSL", (*PEM, "ssl.enabled.protocols="), "there is none"),
        ("SSL", (*PEM, "ssl.cipher.suites=TLS_RSA_WITH_RC4_128_SHA"), "no cipher suite"),
        ("SSL", (*PEM, "ssl.cipher.suites=ECDHE-RSA-AES128-GCM-SHA256"), "no cipher suite"),
    ],
)
def test_refused_with_a_reason(protocol: str, settings: tuple[str, ...], reason: str) -> None:
    with pytest.raises(ConfigError, match=reason) as caught:
        _load(protocol, *settings)
    assert "secret" not in str(caught.value)


def test_a_plain_listener_looks_at_none_of_it() -> None:
    _load("PLAINTEXT", "ssl.cipher.suites=X", "ssl.keystore.password=p")


def test_the_name_of_a_refused_key_has_the_prefix() -> None:
    with pytest.raises(ConfigError, match=r"^KB1002 listener\.name\.out-side\.ssl\.keystore\.type"):
        _load("SSL", *PEM, "listener.name.out-side.ssl.keystore.type=BKS")


@pytest.mark.parametrize("kind", ["JKS", "jks", "PKCS12"])
def test_stores_of_java_may_have_passwords(kind: str) -> None:
    _load(
        "SSL",
        "ssl.keystore.location=/k.jks",
        "ssl.keystore.password=secret",
        f"ssl.keystore.type={kind}",
        "ssl.truststore.location=/t.jks",
        "ssl.truststore.password=secret",
        f"ssl.truststore.type={kind}",
    )


def test_a_setting_at_run_time_is_judged_as_well() -> None:
    config = _load("SSL", *PEM)
    with pytest.raises(KafkaError, match="no cipher suite"):
        check_broker(config, THIS_BROKER, {"listener.name.out-side.ssl.cipher.suites": "X"})
    key = "listener.name.out-side.ssl.cipher.suites"
    check_broker(config, THIS_BROKER, {key: "TLS_AES_128_GCM_SHA256"})


def test_names_of_suites_are_those_of_openssl() -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.set_ciphers("ALL:COMPLEMENTOFALL:@SECLEVEL=0")
    known = {each["name"] for each in context.get_ciphers()}
    assert set(TLS_1_2_SUITES.values()) <= known
    default = {each["name"] for each in context.get_ciphers() if each["protocol"] == "TLSv1.3"}
    assert default <= TLS_1_3_SUITES
    assert unknown_suite([*TLS_1_2_SUITES, *TLS_1_3_SUITES]) is None
    assert unknown_suite(["TLS_AES_128_GCM_SHA256", "TLS_DHE_PSK_WITH_NULL_SHA"]) == (
        "TLS_DHE_PSK_WITH_NULL_SHA"
    )
