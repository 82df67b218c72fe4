"""Stores of Java: made by keytool, and read as the PEM that they were made of."""

from __future__ import annotations

import random
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from kbroker.errors import ConfigError
from kbroker.security.java_stores import java_store
from kbroker.security.jks import entries_of
from kbroker.security.stores import Stores, read_stores, read_trusted
from kbroker.security.tls import tls_context
from tests.support import requirements
from tests.support.certificates import Authority, Certificate, openssl
from tests.unit.security.test_tls import security_of

STORE_PASSWORD = "hush-store"
KEY_PASSWORD = "hush-kéy"
KINDS = ("JKS", "PKCS12")


def keytool(*arguments: str | Path) -> None:
    tool = requirements.program("keytool", "a Java runtime brings it")
    done = subprocess.run(
        [tool, "-J-Dfile.encoding=UTF-8", "-J-Dsun.jnu.encoding=UTF-8", *map(str, arguments)],
        capture_output=True, timeout=60, env={"LC_ALL": "C.UTF-8", "PATH": "/usr/bin:/bin"},
    )  # fmt: skip
    assert done.returncode == 0, (done.stdout + done.stderr).decode(errors="replace")


def der_of(pem: bytes) -> list[bytes]:
    """The bodies of blocks in PEM, whatever their line ends."""
    blocks = pem.replace(b"\n", b"").split(b"-----BEGIN ")[1:]
    return [each.split(b"-----")[1] for each in blocks]


@dataclass(frozen=True)
class JavaFiles:
    """By kind: a key store with the key's issuer beside it, and a trust store with two."""

    directory: Path
    certificate: Certificate
    issuer: Path

    def key_store(self, kind: str) -> Path:
        return self.directory / f"keys.{kind.lower()}"

    def trust_store(self, kind: str) -> Path:
        return self.directory / f"trusted.{kind.lower()}"


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> JavaFiles:
    directory = tmp_path_factory.mktemp("java")
    authority = Authority(directory)
    other = Authority(directory, "other-authority")
    made = JavaFiles(directory, authority.issue("broker"), authority.certificate)
    first = made.key_store("PKCS12")
    openssl(
        "pkcs12", "-export", "-in", made.certificate.chain, "-inkey", made.certificate.key,
        "-certfile", authority.certificate, "-name", "broker", "-out", first,
        "-passout", f"pass:{STORE_PASSWORD}",
    )  # fmt: skip
    keytool(
        "-importkeystore", "-noprompt", "-alias", "broker",
        "-srckeystore", first, "-srcstorepass", STORE_PASSWORD,
        "-destkeystore", made.key_store("JKS"), "-deststoretype", "JKS",
        "-deststorepass", STORE_PASSWORD, "-destkeypass", KEY_PASSWORD,
    )  # fmt: skip
    for kind in KINDS:
        for alias, each in (("one", authority), ("two", other)):
            keytool(
                "-importcert", "-noprompt", "-alias", alias, "-file", each.certificate,
                "-keystore", made.trust_store(kind), "-storetype", kind,
                "-storepass", STORE_PASSWORD,
            )  # fmt: skip
    return made


def settings_of(files: JavaFiles, kind: str, named: str = "") -> list[str]:
    needs_extra(kind)
    return [
        f"ssl.keystore.location={files.key_store(kind)}",
        f"ssl.keystore.type={named or kind}",
        f"ssl.keystore.password={STORE_PASSWORD}",
        *([f"ssl.key.password={KEY_PASSWORD}"] if kind == "JKS" else []),
        f"ssl.truststore.location={files.trust_store(kind)}",
        f"ssl.truststore.type={named or kind}",
        f"ssl.truststore.password={STORE_PASSWORD}",
    ]


def needs_extra(kind: str) -> None:
    if kind == "PKCS12":
        try:
            import cryptography  # noqa: F401
        except ImportError:
            requirements.skip_missing("cryptography", "the extra [test] brings it")


def read(*settings: str) -> Stores:
    return read_stores(security_of(*settings))


@pytest.mark.parametrize("named", KINDS)
@pytest.mark.parametrize("kind", KINDS)
def test_a_key_store_has_its_key_and_chain(files: JavaFiles, kind: str, named: str) -> None:
    settings = settings_of(files, kind, named)  # Java opens each under the other's name
    found = read(*settings)
    assert found.password == b""
    assert der_of(found.key) == der_of(files.certificate.key.read_bytes())
    chain = files.certificate.chain.read_bytes() + files.issuer.read_bytes()
    assert der_of(found.chain) == der_of(chain)
    assert len(der_of(found.trusted or b"")) == 2
    served = tls_context(security_of(*settings, "ssl.client.auth=required"), found)
    assert served.subject.endswith(b"broker")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("password", ["", "other", "hush"])
def test_another_password(files: JavaFiles, kind: str, password: str) -> None:
    wanted = "" if password == "" else f"={password}"
    settings = [
        f"{each.partition('=')[0]}{wanted or '='}" if "password" in each else each
        for each in settings_of(files, kind)
    ]
    with pytest.raises(ConfigError, match=r"ssl\.\w+\.location=.*password") as caught:
        read(*settings)
    assert "hush-" not in str(caught.value)


def test_the_key_s_own_password_is_another_one(files: JavaFiles) -> None:
    settings = [each for each in settings_of(files, "JKS") if "ssl.key.password" not in each]
    with pytest.raises(ConfigError, match="the password of its key is another"):
        read(*settings)


def test_a_trust_store_has_no_key(files: JavaFiles) -> None:
    settings = settings_of(files, "JKS")
    settings[0] = f"ssl.keystore.location={files.trust_store('JKS')}"
    with pytest.raises(ConfigError, match="there is no private key in it"):
        read(*settings)


def test_a_key_s_certificates_are_not_trusted(files: JavaFiles) -> None:
    settings = settings_of(files, "JKS")
    settings[4] = f"ssl.truststore.location={files.key_store('JKS')}"
    with pytest.raises(ConfigError, match="no trusted certificate"):
        read_trusted(security_of(*settings))


def test_pkcs12_without_the_extra(files: JavaFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = settings_of(files, "PKCS12")
    for name in list(sys.modules):
        if name.partition(".")[0] == "cryptography":
            monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "cryptography", None)
    with pytest.raises(ConfigError, match=r"a PKCS12 store, which needs the extra \[security\]"):
        read(*settings)


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "neither JKS nor PKCS12"),
        (b"\xce\xce\xce\xce" + bytes(100), "JCEKS"),
        (b"-----BEGIN CERTIFICATE-----\n", "a file in PEM -> set the store's type"),
        (b"\xfe\xed\xfe\xed", "no JKS store"),
        (b"\xfe\xed\xfe\xed\0\0\0\x03\0\0\0\0" + bytes(20), "version 3"),
        (b"\xfe\xed\xfe\xed\0\0\0\x02\xff\xff\xff\xff" + bytes(20), "4294967295 entries"),
        (b"\xfe\xed\xfe\xed\0\0\0\x02\0\0\0\x01\0\0\0\x03\0\0" + bytes(28), "kind 3"),
        (b"\xfe\xed\xfe\xed\0\0\0\x02\0\0\0\0x" + bytes(20), "something after"),
    ],
)
def test_files_that_are_no_stores(data: bytes, reason: str) -> None:
    with pytest.raises((ValueError, ConfigError), match=reason):
        java_store(data, "", "")


def test_a_store_that_was_changed_or_cut(files: JavaFiles) -> None:
    dice = random.Random(1)
    whole = files.key_store("JKS").read_bytes()
    for _ in range(300):
        changed = bytearray(whole)
        changed[dice.randrange(4, len(whole))] ^= 1 << dice.randrange(8)
        with pytest.raises(ValueError, match="was changed"):
            entries_of(bytes(changed), STORE_PASSWORD)
        del changed[dice.randrange(len(changed)) :]
        with pytest.raises(ValueError, match=r"."):
            java_store(bytes(changed), "", KEY_PASSWORD)
    for _ in range(300):  # without a password nothing says that it was changed
        changed = bytearray(whole)
        changed[dice.randrange(4, 100)] = dice.randrange(256)
        answer: Any = None
        try:
            answer = entries_of(bytes(changed), "")
        except ValueError:
            pass
        assert answer is None or len(answer) <= 1
