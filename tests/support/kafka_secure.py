"""Apache Kafka with a listener that wants TLS and a password: what options must pass through.

    with SecureKafkaBroker() as broker:
        broker.client_settings()        # of a Java client, and so of Spark's connector

One more listener beside the plain one of KafkaBroker: SASL_SSL with SCRAM-SHA-512, its certificate
made for this run by keytool (part of every Java runtime), for 127.0.0.1, signed by itself. The
user is written into the storage when it is formatted. The plain listener is what the test writes
and checks by; the secure one refuses who has not the certificate or has a wrong password.
"""

from __future__ import annotations

import secrets
import subprocess
from pathlib import Path

from lab.ports import free_port
from tests.support import requirements
from tests.support.kafka import KafkaBroker

KEYTOOL_TIMEOUT_S = 60
MECHANISM = "SCRAM-SHA-512"
USER = "reports"
_LOGIN = "org.apache.kafka.common.security.scram.ScramLoginModule"


class SecureKafkaBroker(KafkaBroker):
    def __init__(self) -> None:
        super().__init__()
        self.password = secrets.token_hex(16)
        self._store_password = secrets.token_hex(16)
        self.secure_port = free_port()

    @property
    def secure_bootstrap(self) -> str:
        return f"127.0.0.1:{self.secure_port}"

    @property
    def certificate(self) -> Path:
        """The broker's, as PEM: a client trusts exactly this one."""
        return self.scratch_dir / "broker.pem"

    def client_settings(self, password: str | None = None) -> dict[str, str]:
        """A Java client's; `password` instead of the right one."""
        return {
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": MECHANISM,
            "sasl.jaas.config": f'{_LOGIN} required username="{USER}" '
            f'password="{password or self.password}";',
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self.certificate),
        }

    def prepare(self) -> None:
        if not self.certificate.exists():
            self._make_certificate()
        super().prepare()

    def format_arguments(self) -> tuple[str, ...]:
        return ("--add-scram", f"{MECHANISM}=[name={USER},password={self.password}]")

    def settings(self) -> dict[str, str]:
        plain = super().settings()
        secure = f"SASL_SSL://127.0.0.1:{self.secure_port}"
        return {
            **plain,
            "listeners": f"{plain['listeners']},{secure}",
            "advertised.listeners": f"{plain['advertised.listeners']},{secure}",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,"
            "SASL_SSL:SASL_SSL",
            "sasl.enabled.mechanisms": MECHANISM,
            f"listener.name.sasl_ssl.{MECHANISM.lower()}.sasl.jaas.config": f"{_LOGIN} required;",
            "ssl.keystore.type": "PKCS12",
            "ssl.keystore.location": str(self._store),
            "ssl.keystore.password": self._store_password,
        }

    @property
    def _store(self) -> Path:
        return self.scratch_dir / "broker.p12"

    def _make_certificate(self) -> None:
        store = [
            "-alias", "broker", "-keystore", str(self._store), "-storetype", "PKCS12",
            "-storepass", self._store_password,
        ]  # fmt: skip
        self._keytool(
            "-genkeypair", *store, "-keyalg", "EC", "-groupname", "secp256r1", "-validity", "2",
            "-dname", "CN=127.0.0.1", "-ext", "SAN=IP:127.0.0.1",
        )  # fmt: skip
        self._keytool("-exportcert", *store, "-rfc", "-file", str(self.certificate))

    @staticmethod
    def _keytool(*arguments: str) -> None:
        requirements.java()
        tool = requirements.program("keytool", "a Java runtime brings it")
        subprocess.run(
            [tool, *arguments], check=True, capture_output=True, timeout=KEYTOOL_TIMEOUT_S
        )
