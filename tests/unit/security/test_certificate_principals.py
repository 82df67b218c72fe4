"""A client's certificate becomes a principal, or its connection ends."""

from __future__ import annotations

import logging
from unittest.mock import Mock

import pytest

from kbroker.log_lines import LogLines
from kbroker.security import certificate_principals
from kbroker.security.certificate_principals import CertificatePrincipals
from kbroker.security.principal_rules import PrincipalRules
from kbroker.security.session import Principal

ALICE = bytes.fromhex("3010310e300c06035504030c05616c696365")


def peer(body: bytes = ALICE, listener: str = "SSL", *, names_peer: bool = True) -> Mock:
    return Mock(names_peer=names_peer, body=body, listener=listener, peer_host="10.0.0.1")


@pytest.fixture
def principals() -> CertificatePrincipals:
    return CertificatePrincipals(
        {"SSL": PrincipalRules("DEFAULT"), "OUT": PrincipalRules("RULE:CN=(b.*)/$1/")}
    )


def test_the_channel_is_opened_as_the_principal_s(principals: CertificatePrincipals) -> None:
    request = peer()
    principals.identify(request)
    request.open_channel.assert_called_once_with(None, Principal("User", "CN=alice"))
    again = peer()
    principals.identify(again)
    (_, first), (_, second) = request.open_channel.call_args[0], again.open_channel.call_args[0]
    assert first is second


@pytest.mark.parametrize(
    ("request_", "why"),
    [(peer(listener="OUT"), "no rule fits its name"), (peer(b"\x31\0"), "no value of type 0x30")],
)
def test_a_client_that_is_no_user_is_refused(
    principals: CertificatePrincipals,
    request_: Mock,
    why: str,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # A cause has a line in a second, and another test may have had it.
    lines = LogLines(certificate_principals.logger, lambda: 0)
    monkeypatch.setattr(certificate_principals, "lines", lines)
    caplog.set_level(logging.INFO)
    principals.identify(request_)
    request_.refuse.assert_called_once_with()
    request_.open_channel.assert_not_called()
    assert f"is no user's, from 10.0.0.1: {why}" in caplog.text


def test_other_requests_are_passed_on(principals: CertificatePrincipals) -> None:
    dispatch = Mock()
    before = principals.before(dispatch)
    request, other = peer(), peer(names_peer=False)
    before(request)
    dispatch.assert_not_called()
    request.open_channel.assert_called_once()
    before(other)
    dispatch.assert_called_once_with(other)
