"""The clients of visitors: which broker is asked again whether a visitor may come in, and when."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from kbroker.clock import ManualClock
from kbroker.console.sessions import Session
from kbroker.console.visitor import Clients
from kbroker.errors import ErrorCode, KafkaError
from kbroker.limits import CONSOLE_LOGIN_AGAIN_MS
from kbroker.peer import links
from kbroker.security.client_login import ClientLogin

ADDRESS = "127.0.0.1:9092"


class FakeLink:
    was_late = False

    def __init__(self) -> None:
        self.usable = True

    def close(self) -> None:
        self.usable = False


class Broker:
    """Takes logins until its user is deleted; connections that there are stay."""

    def __init__(self) -> None:
        self.logins: list[ClientLogin | None] = []
        self.deleted = False

    def open_link(self, *words: Any) -> FakeLink:
        login = words[-1]
        if self.deleted and login is not None:
            raise KafkaError(ErrorCode.SASL_AUTHENTICATION_FAILED, "no such user")
        self.logins.append(login)
        return FakeLink()


@pytest.fixture
def broker(monkeypatch: pytest.MonkeyPatch) -> Broker:
    made = Broker()
    monkeypatch.setattr(links, "open_link", made.open_link)
    return made


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def clients(clock: ManualClock) -> Clients:
    entry: Any = SimpleNamespace(node_id=1, config={})
    return Clients(entry, clock)


def ask(clients: Clients, session: Session) -> None:
    client = clients.of(session, is_local=True)
    client.cluster.link(client.cluster.any_broker())


def session_of(login: ClientLogin | None) -> Session:
    return Session("anna", login, ADDRESS, 0)


def test_a_user_that_is_deleted_is_let_in_for_a_minute_at_most(
    broker: Broker, clients: Clients, clock: ManualClock
) -> None:
    session = session_of(ClientLogin("PLAIN", "anna", "secret"))
    ask(clients, session)
    broker.deleted = True
    clock.advance(ms=CONSOLE_LOGIN_AGAIN_MS - 1)
    ask(clients, session)
    assert len(broker.logins) == 1
    clock.advance(ms=1)
    with pytest.raises(KafkaError, match="no such user") as refused:
        ask(clients, session)
    assert refused.value.code is ErrorCode.SASL_AUTHENTICATION_FAILED


def test_a_stream_is_not_let_in_for_longer(
    broker: Broker, clients: Clients, clock: ManualClock
) -> None:
    """It has had its client since its first piece."""
    session = session_of(ClientLogin("PLAIN", "anna", "secret"))
    client = clients.of(session, is_local=True)
    client.cluster.link(client.cluster.any_broker())
    broker.deleted = True
    clock.advance(ms=CONSOLE_LOGIN_AGAIN_MS)
    clients.sweep()
    with pytest.raises(KafkaError, match="no such user"):
        client.cluster.link(client.cluster.any_broker())


def test_a_visitor_without_a_name_keeps_its_connections(
    broker: Broker, clients: Clients, clock: ManualClock
) -> None:
    session = session_of(None)
    ask(clients, session)
    clock.advance(ms=2 * CONSOLE_LOGIN_AGAIN_MS)
    clients.sweep()
    ask(clients, session)
    assert broker.logins == [None]
