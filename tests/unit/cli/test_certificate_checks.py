"""`kbroker doctor` and /readyz on certificates: how long they are valid."""

from __future__ import annotations

from pathlib import Path

import pytest

from kbroker.cli.certificate_checks import certificates
from kbroker.cli.checks import FAILING, OK, WARNING
from kbroker.clock import ManualClock
from kbroker.config import BrokerConfig
from kbroker.net._tls_context import TlsContext
from kbroker.observe.readiness import RUNNING, Readiness
from tests.support.certificates import Authority

DAY_MS = 86_400_000


def config(store: Path) -> BrokerConfig:
    return BrokerConfig.load(
        overrides=[
            "listeners=PLAINTEXT://127.0.0.1:1,SSL://127.0.0.1:2",
            "ssl.keystore.type=PEM",
            f"ssl.keystore.location={store}",
        ]
    )


@pytest.fixture
def store(tmp_path: Path) -> Path:
    path = tmp_path / "store.pem"
    path.write_bytes(Authority(tmp_path).issue("broker", days=40).both)
    return path


def until_ms(store: Path) -> int:
    context = TlsContext()
    context.use_certificates(store.read_bytes())
    return context.not_after * 1000


@pytest.mark.parametrize(
    ("days", "verdict", "seen"),
    [
        (20.5, OK, "expires in 20 days"),
        (13.5, WARNING, "expires in 13 days"),
        (0, FAILING, "has expired"),
        (41, FAILING, "is not valid yet"),
    ],
)
def test_the_time_of_a_certificate(store: Path, days: float, verdict: str, seen: str) -> None:
    clock = ManualClock(until_ms(store) - round(days * DAY_MS))
    first, library = certificates(config(store), clock)
    assert (first.verdict, library.verdict) == (verdict, OK)
    assert first.seen == f"SSL: the certificate of CN=broker {seen}"
    assert bool(first.fix) is (verdict != OK)
    assert library.seen.startswith("by OpenSSL ")


def test_a_store_that_cannot_be_served(store: Path) -> None:
    store.write_bytes(b"")
    first, *_ = certificates(config(store), ManualClock())
    assert first.verdict == FAILING
    assert "no private keys in it" in first.seen


def test_a_broker_without_tls_has_no_line() -> None:
    assert list(certificates(BrokerConfig.load(), ManualClock())) == []


def test_readyz_lists_them_and_is_ready(tmp_path: Path) -> None:
    readiness = Readiness([str(tmp_path)])
    readiness.phase = RUNNING
    readiness.certificates = lambda: {"SSL": "has expired: new clients do not connect"}
    (found,) = [each for each in readiness.checks() if each.name == "certificate SSL"]
    assert found.ok and found.detail == "has expired: new clients do not connect"
