"""Certificates that are made here, as OpenSSL and Python's ssl judge them."""

from __future__ import annotations

import socket
import ssl
import threading
from datetime import UTC, datetime
from pathlib import Path

import pytest

from kbroker.clock import SystemClock
from kbroker.security.new_certificates import Issued, issue, new_authority
from tests.support.certificates import openssl

NOW_MS = SystemClock().wall_ms()


@pytest.fixture(scope="module")
def authority() -> Issued:
    return new_authority("an authority", days=10, now_ms=NOW_MS)


def handshake(authority: Issued, store: Path, name: str) -> str:
    """The version that both sides speak; ssl.SSLError: the client does not accept it."""
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(store)
    client = ssl.create_default_context(cadata=authority.certificate.decode())
    client.verify_flags |= ssl.VERIFY_X509_STRICT
    here, there = socket.socketpair()

    def serve() -> None:
        try:
            server.wrap_socket(there, server_side=True).close()
        except (ssl.SSLError, OSError):
            there.close()

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        with client.wrap_socket(here, server_hostname=name) as wrapped:
            return wrapped.version() or ""
    finally:
        here.close()
        thread.join()


@pytest.mark.parametrize("name", ["localhost", "127.0.0.1", "::1", "kafka.example.com"])
def test_a_client_that_is_strict_accepts_its_names(
    authority: Issued, tmp_path: Path, name: str
) -> None:
    hosts = ("localhost", "127.0.0.1", "::1", "kafka.example.com")
    store = tmp_path / "store.pem"
    store.write_bytes(issue(authority, "b", hosts=hosts, days=2, now_ms=NOW_MS).key_store)
    assert handshake(authority, store, name) == "TLSv1.3"
    with pytest.raises(ssl.SSLError, match=r"mismatch|not valid for"):
        handshake(authority, store, "other.example.com")


def test_another_authority_is_not_accepted(authority: Issued, tmp_path: Path) -> None:
    other = new_authority("an authority", days=10, now_ms=NOW_MS)
    store = tmp_path / "store.pem"
    made = issue(other, "b", hosts=("localhost",), days=2, now_ms=NOW_MS)
    store.write_bytes(made.key_store)
    with pytest.raises(ssl.SSLError):
        handshake(authority, store, "localhost")


def test_openssl_reads_a_certificate(authority: Issued, tmp_path: Path) -> None:
    ca, store = tmp_path / "ca.pem", tmp_path / "store.pem"
    ca.write_bytes(authority.certificate)
    made = issue(authority, "a broker", hosts=("localhost",), days=2, now_ms=NOW_MS)
    store.write_bytes(made.key_store)
    assert b"OK" in openssl("verify", "-x509_strict", "-CAfile", ca, store)
    text = openssl("x509", "-in", store, "-noout", "-text").decode()
    assert "Issuer: CN = an authority" in text and "Subject: CN = a broker" in text
    assert "TLS Web Server Authentication, TLS Web Client Authentication" in text
    assert b"CA:TRUE, pathlen:0" in openssl("x509", "-in", ca, "-noout", "-text")
    assert b"Key is valid" in openssl("pkey", "-in", store, "-check", "-noout")


def test_serials_and_keys_differ(authority: Issued) -> None:
    one, other = (issue(authority, "b", hosts=(), days=2, now_ms=NOW_MS) for _ in range(2))
    assert one.certificate != other.certificate and one.key_pem != other.key_pem


def test_a_time_after_2049(tmp_path: Path) -> None:
    ca = tmp_path / "ca.pem"
    now_ms = round(datetime(2049, 12, 31, tzinfo=UTC).timestamp() * 1000)
    ca.write_bytes(new_authority("a", days=3650, now_ms=now_ms).certificate)
    text = openssl("x509", "-in", ca, "-noout", "-dates").decode()
    assert "notBefore=Dec 30 00:00:00 2049 GMT" in text and "2059 GMT" in text


@pytest.mark.parametrize("host", ["", "a b", "a\nb", "b\u00fccher", "a/b"])
def test_names_that_no_host_has(authority: Issued, host: str) -> None:
    with pytest.raises(ValueError, match="host name"):
        issue(authority, "b", hosts=(host,), days=2, now_ms=NOW_MS)
