"""The context of a listener, made of its settings and files."""

from __future__ import annotations

from pathlib import Path

import pytest

from kbroker.config import BrokerConfig
from kbroker.config.listener_security import ListenerSecurity
from kbroker.errors import ConfigError
from kbroker.security.stores import read_stores
from kbroker.security.tls import tls_context
from tests.support.certificates import Authority, Certificate, openssl


def security_of(*settings: str) -> ListenerSecurity:
    config = BrokerConfig.load(
        overrides=[
            "listeners=SSL://127.0.0.1:1",
            "security.inter.broker.protocol=SSL",
            "ssl.keystore.type=PEM",
            "ssl.truststore.type=PEM",
            *settings,
        ]
    )
    return config.security_of("SSL")


def made(*settings: str) -> bytes:
    """The subject of the certificate that is served."""
    security = security_of(*settings)
    return tls_context(security, read_stores(security)).subject


@pytest.fixture
def store(tmp_path: Path, certificate: Certificate) -> Path:
    path = tmp_path / "store.pem"
    path.write_bytes(certificate.both)
    return path


def test_a_store_in_a_file(store: Path) -> None:
    assert made(f"ssl.keystore.location={store}").endswith(b"broker")


def test_a_store_in_settings_on_one_line(certificate: Certificate, authority: Authority) -> None:
    key, chain, trusted = (
        path.read_text().replace("\n", " ")
        for path in (certificate.key, certificate.chain, authority.certificate)
    )
    subject = made(
        f"listener.name.ssl.ssl.keystore.key={key}",
        f"listener.name.ssl.ssl.keystore.certificate.chain={chain}",
        f"ssl.truststore.certificates={trusted}",
        "ssl.client.auth=required",
    )
    assert subject.endswith(b"broker")


def test_an_encrypted_key(certificate: Certificate, tmp_path: Path) -> None:
    store = tmp_path / "encrypted.pem"
    key = openssl("pkcs8", "-topk8", "-in", certificate.key, "-passout", "pass:hush")
    store.write_bytes(key + certificate.chain.read_bytes())
    location = f"ssl.keystore.location={store}"
    assert made(location, "ssl.key.password=hush").endswith(b"broker")
    for settings in ((location,), (location, "ssl.key.password=hush hush")):
        with pytest.raises(ConfigError, match=r"ssl\.key\.password: the private key") as caught:
            made(*settings)
        assert "hush" not in str(caught.value)


def test_client_auth_without_a_trust_store_takes_the_machine_s(store: Path) -> None:
    assert made(f"ssl.keystore.location={store}", "ssl.client.auth=requested")


@pytest.mark.parametrize(
    ("suites", "versions"),
    [
        ("TLS_AES_128_GCM_SHA256", "TLSv1.2,TLSv1.3"),
        ("TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256", "TLSv1.2,TLSv1.3"),
        ("TLS_DHE_RSA_WITH_AES_256_GCM_SHA384,TLS_EMPTY_RENEGOTIATION_INFO_SCSV", "TLSv1.2"),
    ],
)
def test_suites(store: Path, suites: str, versions: str) -> None:
    location = f"ssl.keystore.location={store}"
    assert made(location, f"ssl.cipher.suites={suites}", f"ssl.enabled.protocols={versions}")


def test_suites_of_no_enabled_version(store: Path) -> None:
    with pytest.raises(ConfigError, match=r"ssl\.cipher\.suites: none of them is of TLSv1\.3"):
        made(
            f"ssl.keystore.location={store}",
            "ssl.cipher.suites=TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256",
            "ssl.enabled.protocols=TLSv1.3",
        )


def test_files_without_a_part(
    store: Path, tmp_path: Path, certificate: Certificate, authority: Authority
) -> None:
    def refused(text: bytes) -> str:
        store.write_bytes(text)
        with pytest.raises(ConfigError) as caught:
            made(f"ssl.keystore.location={store}")
        return caught.value.message

    assert "there is no certificate" in refused(certificate.key.read_bytes())
    assert "there are no private keys" in refused(certificate.chain.read_bytes())
    assert "not the certificate's" in refused(
        certificate.key.read_bytes() + authority.certificate.read_bytes()
    )
    with pytest.raises(ConfigError, match="No such file"):
        made(f"ssl.keystore.location={tmp_path / 'absent'}")
    with pytest.raises(ConfigError, match=r"ssl\.truststore\.location=.*no certificate"):
        made(f"ssl.keystore.location={store}", f"ssl.truststore.location={certificate.key}")


def test_a_library_that_is_none(store: Path) -> None:
    # The process has one library: the first that was bound stays.
    assert made(f"ssl.keystore.location={store}", "ssl.library.path=/absent").endswith(b"broker")


def test_stores_are_not_for_a_log(store: Path) -> None:
    assert repr(read_stores(security_of(f"ssl.keystore.location={store}"))) == "<Stores>"
