"""Listeners with TLS: what the log says of connections that fail, and certificates that change."""

from __future__ import annotations

import logging
import os
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from kbroker.clock import ManualClock
from kbroker.config import BrokerConfig
from kbroker.errors import ConfigError
from kbroker.net._tls_transport import ENDED
from kbroker.server.tls_listeners import LOOKS_UNREAD, TlsListeners
from tests.support.certificates import Authority

STORE_BYTES = 4096
FAILED = "OUT: TLS failed for"


class Served:
    """A broker's listeners, whose key store is a file."""

    def __init__(self, directory: Path) -> None:
        self.authority = Authority(directory)
        self.store = directory / "store.pem"
        self.settings: dict[str, str] = {}
        self.write("broker")
        self.listeners = TlsListeners(self)
        self.transport = self.listeners.transport_of(self.config.security_of("OUT"))

    @property
    def config(self) -> BrokerConfig:
        return self.with_settings()

    def with_settings(self, **settings: str) -> BrokerConfig:
        return BrokerConfig.load(
            overrides=[
                "listeners=IN://127.0.0.1:1,OUT://127.0.0.1:2",
                "listener.security.protocol.map=IN:PLAINTEXT,OUT:SSL",
                "inter.broker.listener.name=IN",
                "ssl.keystore.type=PEM",
                f"ssl.keystore.location={self.store}",
                *(f"{name}={value}" for name, value in (self.settings | settings).items()),
            ]
        )

    def write(self, name: str, subject: str = "/CN=broker", **options: Any) -> None:
        made = self.authority.issue(name, subject=subject, **options)
        self.store.write_bytes(made.both.ljust(STORE_BYTES, b"\n"))

    @property
    def certificate(self) -> bytes:
        return self.transport.tls_context.der


@pytest.fixture
def served(tmp_path: Path) -> Served:
    return Served(tmp_path)


def test_each_kind_of_failure_is_a_line(served: Served, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    failures = [
        ("wrong version number", "", 7, "10.0.0.1"),
        ("certificate verify failed", "certificate has expired", 1, "::1"),
        (ENDED, "", 100, "10.0.0.2"),
    ]
    served.listeners._transports["OUT"] = Mock(take_failures=lambda: failures)
    served.listeners.tell()
    assert [record.message for record in caplog.records] == [
        f"{FAILED} 7 connections, the last one from 10.0.0.1: wrong version number: the client does"
        " not speak TLS -> set its security.protocol to SSL",
        f"{FAILED} 1 connection, the last one from ::1: certificate verify failed (certificate has"
        " expired)",
    ]


def test_only_listeners_with_tls_are_looked_at(served: Served) -> None:
    scheduler = Mock()
    TlsListeners(served).schedule(scheduler, 10_000)
    scheduler.schedule.assert_not_called()
    served.listeners.schedule(scheduler, 10_000)
    tell, look = scheduler.schedule.call_args_list
    assert tell.args[:2] == ("TLS", served.listeners.tell)
    assert look.args == ("TLS files", served.listeners.look, 10_000)


# --- files that change ----------------------------------------------------------------------------


def test_a_new_file_is_served(served: Served, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    first = served.certificate
    served.listeners.look()
    assert served.certificate == first and not caplog.records
    served.write("renewed")
    served.listeners.look()
    assert served.certificate != first
    assert "OUT: new connections get the certificate that expires at" in caplog.text
    expiry = served.transport.tls_context.not_after
    assert served.listeners.expiries() == {"OUT": expiry}


def test_a_link_that_leads_elsewhere(served: Served, tmp_path: Path) -> None:
    """As Kubernetes replaces the files of a secret."""
    first = served.certificate
    served.write("renewed")
    other = tmp_path / "..data"
    served.store.rename(other)
    served.write("broker")
    served.listeners.look()
    before = served.certificate
    assert before != first
    served.store.unlink()
    served.store.symlink_to(other)
    served.listeners.look()
    assert served.certificate != before


def test_contents_are_read_every_so_often(served: Served) -> None:
    """Of a file that was written in place, in the same moment of a coarse clock."""
    first, before = served.certificate, served.store.stat()
    served.write("renewed")
    os.utime(served.store, ns=(before.st_atime_ns, before.st_mtime_ns))
    after = served.store.stat()
    assert (after.st_ino, after.st_size, after.st_mtime_ns) == (
        before.st_ino,
        before.st_size,
        before.st_mtime_ns,
    )
    served.listeners.look()
    assert served.certificate == first
    for _ in range(LOOKS_UNREAD - 1):
        served.listeners.look()
    assert served.certificate != first


def test_a_file_that_cannot_be_served_is_a_line_and_changes_nothing(
    served: Served, caplog: pytest.LogCaptureFixture
) -> None:
    first, whole = served.certificate, served.store.read_bytes()
    served.store.write_bytes(whole[:300])
    for _ in range(LOOKS_UNREAD):
        served.listeners.look()
    assert served.certificate == first
    (record,) = caplog.records
    assert "OUT keeps its TLS" in record.message and "cut short" in record.message
    served.store.unlink()
    served.listeners.look()
    assert "No such file" in caplog.records[-1].message
    served.write("renewed")
    served.listeners.look()
    assert served.certificate != first


def test_another_name_is_served_only_if_it_may(
    served: Served, caplog: pytest.LogCaptureFixture
) -> None:
    first = served.certificate
    served.write("foreign", subject="/CN=foreign")
    served.listeners.look()
    assert served.certificate == first
    assert "the new certificate is CN=foreign's, and the one in use CN=broker's" in caplog.text
    served.settings["ssl.allow.dn.changes"] = "true"
    served.listeners.follow(served.config, served.config)
    assert served.certificate != first


def test_alternative_names_may_become_more(
    served: Served, caplog: pytest.LogCaptureFixture
) -> None:
    first = served.certificate
    served.write("fewer", names=("DNS:localhost",))
    served.listeners.look()
    assert served.certificate == first
    assert "lacks 2 of the subject alternative names" in caplog.text
    served.write("more", names=("IP:127.0.0.1", "DNS:localhost", "IP:::1", "DNS:kafka"))
    served.listeners.look()
    assert served.certificate != first


# --- settings that change -------------------------------------------------------------------------


def test_a_setting_is_judged_and_then_followed(served: Served, tmp_path: Path) -> None:
    first = served.certificate
    other = tmp_path / "other.pem"
    key = "listener.name.out.ssl.keystore.location"
    with pytest.raises(ConfigError, match="No such file"):
        served.listeners.judge(served.with_settings(**{key: str(other)}))
    other.write_bytes(served.authority.issue("other", subject="/CN=broker").both)
    wanted = served.with_settings(**{key: str(other)})
    served.listeners.judge(wanted)
    assert served.certificate == first
    served.listeners.follow(served.config, wanted)
    assert served.certificate != first


def test_client_auth_may_change(served: Served) -> None:
    before = served.transport.tls_context
    key = "listener.name.out.ssl.client.auth"
    served.listeners.follow(served.config, served.with_settings(**{key: "requested"}))
    assert served.transport.tls_context is not before


def test_files_are_looked_at_on_demand(served: Served) -> None:
    scheduler = Mock()
    served.listeners.look_soon()  # before the scheduler runs there is nothing to do
    served.listeners.schedule(scheduler, 10_000)
    served.listeners.look_soon()
    scheduler.once.assert_called_once_with("TLS files at once", served.listeners.look, 0)


def test_files_are_looked_at_after_any_change_of_settings(served: Served) -> None:
    scheduler = Mock()
    served.listeners.schedule(scheduler, 10_000)
    served.listeners.judge(served.config)
    scheduler.once.assert_called_once_with("TLS files at once", served.listeners.look, 0)


# --- times and files that are out of the ordinary -------------------------------------------------

DAY_MS = 86_400_000


def test_a_certificate_that_expires_is_a_line(
    served: Served, caplog: pytest.LogCaptureFixture
) -> None:
    served.write("for long", days=40)
    served.listeners.look()
    clock = ManualClock(served.transport.tls_context.not_after * 1000 - 15 * DAY_MS)
    served.listeners._clock = clock
    served.listeners._lapses.clear()
    caplog.clear()
    for _ in range(4):
        served.listeners.look()
        served.listeners.look()
        clock.advance(5 * DAY_MS)
    assert [record.message for record in caplog.records] == [
        "OUT: its certificate expires in less than 14 days -> issue another one",
        "OUT: its certificate has expired -> issue another one",
    ]
    assert served.listeners.validities() == {"OUT": "has expired: new clients do not connect"}


def test_a_certificate_that_has_expired_does_not_take_the_place_of_one_that_has_not(
    served: Served, caplog: pytest.LogCaptureFixture
) -> None:
    first = served.certificate
    until_ms = served.transport.tls_context.not_after * 1000
    served.write("short", days=1)
    served.listeners._clock = ManualClock(until_ms - DAY_MS // 2)
    served.listeners.look()
    assert served.certificate == first
    assert "the new certificate has expired" in caplog.text
    served.listeners._clock = ManualClock(until_ms - DAY_MS - DAY_MS // 2)
    served.listeners.look()
    assert served.certificate != first


def test_a_pipe_in_the_place_of_a_store_is_no_file(
    served: Served, caplog: pytest.LogCaptureFixture
) -> None:
    """To read it would wait for one that writes, with the lock that the figures need, too."""
    first = served.certificate
    served.store.unlink()
    os.mkfifo(served.store)
    served.listeners.look()
    assert served.certificate == first
    assert "is no file" in caplog.text
    served.store.unlink()
    served.store.mkdir()
    served.listeners.look()
    assert "is no file" in caplog.text
    assert served.listeners.expiries()["OUT"] > 0


@pytest.mark.parametrize("broken", ["link", "cut", "loop", "gone"])
def test_a_store_that_cannot_be_read_leaves_the_one_in_use(
    served: Served, caplog: pytest.LogCaptureFixture, tmp_path: Path, broken: str
) -> None:
    first = served.certificate
    whole = served.store.read_bytes()
    served.store.unlink()
    if broken == "link":
        served.store.symlink_to(tmp_path / "absent")
    elif broken == "loop":
        served.store.symlink_to(served.store)
    elif broken == "cut":
        served.store.write_bytes(whole[:600])
    for _ in range(LOOKS_UNREAD):
        served.listeners.look()
    assert served.certificate == first
    assert len([each for each in caplog.records if "keeps its TLS" in each.message]) == 1
    served.store.unlink(missing_ok=True)
    served.write("again")
    served.listeners.look()
    assert served.certificate != first


def test_a_certificate_that_is_not_understood_is_a_line(
    served: Served, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A ValueError of our own parser: the other listeners are looked at nevertheless."""

    def broken(_: bytes) -> frozenset[bytes]:
        raise ValueError("a value that is cut")

    monkeypatch.setattr("kbroker.security.tls_changes.alternative_names", broken)
    first = served.certificate
    served.write("another")
    served.listeners.look()
    assert served.certificate == first
    assert "the new certificate: a value that is cut" in caplog.text
    with pytest.raises(ConfigError):
        served.listeners.judge(served.config)


class BetweenBrokers(Served):
    """The listener between brokers speaks TLS, and trusts the authority's file."""

    def with_settings(self, **settings: str) -> BrokerConfig:
        trusted = {
            "inter.broker.listener.name": "OUT",
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self.authority.certificate),
        }
        return super().with_settings(**(trusted | settings))


def test_brokers_go_on_accepting_each_other(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    served = BetweenBrokers(tmp_path)
    first = served.certificate
    served.write("renewed")
    served.listeners.look()
    second = served.certificate
    assert second != first
    (tmp_path / "stranger").mkdir()
    stranger = Authority(tmp_path / "stranger", "stranger")
    issued = stranger.issue("broker", subject="/CN=broker")
    served.store.write_bytes(issued.both.ljust(STORE_BYTES, b"\n"))
    served.listeners.look()
    assert served.certificate == second
    assert "brokers do not accept each other" in caplog.text
    with pytest.raises(ConfigError, match="do not accept each other"):
        served.listeners.judge(served.config)
    own = served.authority.certificate.read_bytes()
    served.authority.certificate.write_bytes(own + stranger.certificate.read_bytes())
    served.listeners.look()
    assert served.certificate == second  # the brokers that trust the first alone would not
    served.store.write_bytes(served.authority.issue("third", subject="/CN=broker").both)
    served.listeners.look()
    third = served.certificate
    assert third != second
    served.store.write_bytes(issued.both)
    served.listeners.look()
    assert served.certificate not in (second, third)
