"""Certificates for tests of TLS: an authority of the test's own, and what it issues.

    authority = Authority(directory)
    broker = authority.issue("broker", names=("DNS:localhost", "IP:127.0.0.1"))
    client_context(authority)                   # of Python's ssl, that trusts the authority

Made by the program `openssl`, with EC keys, since those are quick; valid for two days.
"""

from __future__ import annotations

import ssl
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.support import requirements

TIMEOUT_S: Final = 60
LOOPBACK: Final = ("DNS:localhost", "IP:127.0.0.1", "IP:::1")
_CURVE: Final = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256")


def openssl(*arguments: str | Path, data: bytes | None = None) -> bytes:
    """What the program writes; its complaint if it fails."""
    program = requirements.program("openssl", "`apt-get install openssl` installs it")
    done = subprocess.run(
        [program, *map(str, arguments)], input=data, capture_output=True, timeout=TIMEOUT_S
    )
    assert done.returncode == 0, done.stderr.decode(errors="replace")
    return done.stdout


@dataclass(frozen=True)
class Certificate:
    """Files in PEM: `chain` is the certificate with those of its issuers but the root."""

    chain: Path
    key: Path

    @property
    def both(self) -> bytes:
        """As a key store in PEM: the key, then the chain."""
        return self.key.read_bytes() + self.chain.read_bytes()


class Authority:
    """Signs certificates. `certificate`: its own, which is to be trusted."""

    def __init__(self, directory: Path, name: str = "authority") -> None:
        self.directory = directory
        self.certificate = directory / f"{name}.pem"
        self._key = directory / f"{name}.key"
        openssl(
            "req", "-x509", *_CURVE, "-noenc", "-keyout", self._key, "-out", self.certificate,
            "-days", "2", "-subj", f"/CN={name}",
        )  # fmt: skip

    def issue(
        self,
        name: str,
        *,
        subject: str = "",
        names: tuple[str, ...] = LOOPBACK,
        key: tuple[str, ...] = _CURVE,
        usage: str = "serverAuth,clientAuth",
        days: int = 2,
    ) -> Certificate:
        """A certificate for CN=`name`, or for `subject` as openssl writes it (/O=…/CN=…)."""
        made = Certificate(self.directory / f"{name}.pem", self.directory / f"{name}.key")
        openssl(
            "req", "-x509", *key, "-noenc", "-keyout", made.key, "-out", made.chain,
            "-CA", self.certificate, "-CAkey", self._key, "-days", str(days),
            "-subj", subject or f"/CN={name}", "-addext", f"subjectAltName={','.join(names)}",
            "-addext", f"extendedKeyUsage={usage}", "-addext", "basicConstraints=CA:FALSE",
        )  # fmt: skip
        return made


def client_context(authority: Authority, certificate: Certificate | None = None) -> ssl.SSLContext:
    """Trusts the authority, looks at names; shows `certificate` to the broker."""
    context = ssl.create_default_context(cafile=str(authority.certificate))
    if certificate is not None:
        context.load_cert_chain(certificate.chain, certificate.key)
    return context
