"""`kbroker doctor` and /readyz on certificates: how long they are valid."""

from __future__ import annotations

from pathlib import Path

import pytest

from kbroker.cli.certificate_checks import certificates
from kbroker.clock import ManualClock
from kbroker.config import BrokerConfig
from kbroker.findings.certificates import expiries
from kbroker.findings.checks import FAILING, OK, WARNING, Check
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


def test_the_admin_port_is_a_listener(store: Path) -> None:
    settings = ["admin.listeners=https://127.0.0.1:0", "ssl.keystore.type=PEM"]
    settings.append(f"listener.name.admin.ssl.keystore.location={store}")
    first, _ = certificates(BrokerConfig.load(overrides=settings), ManualClock(until_ms(store) - 1))
    assert first.seen == "ADMIN: the certificate of CN=broker expires in 0 days"


# --- of brokers, for `kbroker health` -------------------------------------------------------------

DAY_S = 86_400.0


def test_all_are_valid_for_long() -> None:
    assert expiries({}) == []
    (line,) = expiries({1: 20.5 * DAY_S})
    assert line == Check(OK, "certificate", "broker 1: its certificate expires in 20 days")
    (line,) = expiries({1: 90 * DAY_S, 2: 20 * DAY_S, 3: 60 * DAY_S})
    assert line.seen == "3 brokers; the first, broker 2: its certificate expires in 20 days"


def test_those_that_expire_soon() -> None:
    first, second = expiries({1: 3.5 * DAY_S, 2: 20 * DAY_S, 3: -1.0})
    assert (first.verdict, second.verdict) == (WARNING, FAILING)
    assert first.seen == "broker 1: its certificate expires in 3 days"
    assert second.seen == "broker 3: its certificate has expired"
    assert first.fix and second.fix
