"""Who has logged in, for how long, and how often an address may try."""

from __future__ import annotations

import asyncio

import pytest

from kbroker.clock import ManualClock
from kbroker.console.login import COOKIE, Logins
from kbroker.console.network import network_of
from kbroker.console.request import Answer, Request, request_of
from kbroker.console.sessions import Sessions, Tries
from kbroker.limits import (
    CONSOLE_LOGIN_PERIOD_MS,
    CONSOLE_LOGINS_MAX,
    CONSOLE_LOGINS_OF_ALL_MAX,
    CONSOLE_LOGINS_OF_SITE_MAX,
    CONSOLE_NETWORKS_MAX,
    CONSOLE_SESSION_IDLE_MS,
    CONSOLE_SESSIONS_MAX,
    CONSOLE_SESSIONS_PER_USER_MAX,
)
from kbroker.security.client_login import ClientLogin


def begin(sessions: Sessions, name: str) -> str:
    return sessions.begin(name, ClientLogin("PLAIN", name, "secret"), "127.0.0.1:9092")


def test_a_session_lasts_while_it_is_used() -> None:
    clock = ManualClock()
    sessions = Sessions(clock)
    session_id = begin(sessions, "anna")
    for _ in range(3):
        clock.advance(ms=CONSOLE_SESSION_IDLE_MS - 1)
        found = sessions.find(session_id)
        assert found is not None and found.name == "anna"
    clock.advance(ms=CONSOLE_SESSION_IDLE_MS)
    assert sessions.find(session_id) is None
    assert found is not None and found.ended and len(sessions) == 0


def test_an_id_is_not_guessed_and_not_kept() -> None:
    sessions = Sessions(ManualClock())
    ids = {begin(sessions, f"u{n}") for n in range(50)}
    assert len(ids) == 50 and all(len(each) >= 43 for each in ids)
    assert all(sessions.find(each[:-1]) is None for each in ids)
    assert sessions.find("") is None and sessions.find("\ud800") is None
    assert not any(each.encode() in key for key in sessions._sessions for each in ids)


def test_of_too_many_sessions_the_one_that_was_idle_for_longest_ends() -> None:
    clock = ManualClock()
    sessions = Sessions(clock)
    ids = []
    for number in range(CONSOLE_SESSIONS_MAX):
        clock.advance(ms=1)
        ids.append(begin(sessions, f"u{number}"))
    assert sessions.find(ids[0]) is not None  # used: now the second is the oldest
    begin(sessions, "one more")
    assert len(sessions) == CONSOLE_SESSIONS_MAX
    assert sessions.find(ids[1]) is None and sessions.find(ids[0]) is not None


def test_one_user_does_not_end_the_sessions_of_others() -> None:
    sessions = Sessions(ManualClock())
    other = begin(sessions, "other")
    mine = [begin(sessions, "me") for _ in range(3 * CONSOLE_SESSIONS_MAX)]
    assert sessions.find(other) is not None
    assert len(sessions) == 1 + CONSOLE_SESSIONS_PER_USER_MAX
    assert sessions.find(mine[-1]) is not None and sessions.find(mine[0]) is None


def test_logging_out() -> None:
    sessions = Sessions(ManualClock())
    session_id = begin(sessions, "anna")
    session = sessions.find(session_id)
    assert session is not None
    sessions.end(session)
    sessions.end(session)
    assert session.ended and sessions.find(session_id) is None


def test_an_address_may_try_five_times_a_minute() -> None:
    clock = ManualClock()
    tries = Tries(clock)
    assert [tries.wait_s("10.0.0.1") for _ in range(CONSOLE_LOGINS_MAX)] == [0] * CONSOLE_LOGINS_MAX
    assert tries.wait_s("10.0.0.1") == CONSOLE_LOGIN_PERIOD_MS // 1_000
    assert tries.wait_s("10.0.0.2") == 0
    clock.advance(ms=CONSOLE_LOGIN_PERIOD_MS - 1)
    assert tries.wait_s("10.0.0.1") == 1
    clock.advance(ms=1)
    assert tries.wait_s("10.0.0.1") == 0


def test_all_networks_have_one_bound_together() -> None:
    clock = ManualClock()
    tries = Tries(clock)
    waits = [tries.wait_s(f"10.0.{n >> 8}.{n & 255}") for n in range(2 * CONSOLE_LOGINS_OF_ALL_MAX)]
    assert waits[:CONSOLE_LOGINS_OF_ALL_MAX] == [0] * CONSOLE_LOGINS_OF_ALL_MAX
    assert set(waits[CONSOLE_LOGINS_OF_ALL_MAX:]) == {CONSOLE_LOGIN_PERIOD_MS // 1_000}
    clock.advance(ms=CONSOLE_LOGIN_PERIOD_MS)
    assert [tries.wait_s(f"10.1.0.{n}") for n in range(9)] == [0] * 9
    kept = CONSOLE_LOGINS_OF_ALL_MAX + CONSOLE_NETWORKS_MAX
    for number in range(2 * kept):
        clock.advance(ms=CONSOLE_LOGIN_PERIOD_MS)
        tries.wait_s(str(number))
    assert len(tries._networks) <= kept and len(tries._sites) <= kept


def test_strangers_do_not_keep_out_known_visitors() -> None:
    tries = Tries(ManualClock())
    assert tries.wait_s("192.0.2.1") == 0
    tries.succeeded("192.0.2.1")
    for number in range(2 * CONSOLE_LOGINS_OF_ALL_MAX):
        tries.wait_s(f"10.0.{number >> 8}.{number & 255}")
    assert tries.wait_s("192.0.2.2") > 0
    assert [tries.wait_s("192.0.2.1") for _ in range(CONSOLE_LOGINS_MAX)].count(0) == (
        CONSOLE_LOGINS_MAX - 1
    )
    assert tries.wait_s("127.0.0.1", is_local=True) == 0


def test_many_networks_of_one_site_have_a_bound_together() -> None:
    tries = Tries(ManualClock())
    waits = [tries.wait_s(f"2001:db8:0:{n:x}::/64") for n in range(2 * CONSOLE_LOGINS_OF_SITE_MAX)]
    assert waits.count(0) == CONSOLE_LOGINS_OF_SITE_MAX
    assert tries.wait_s("2001:db8:1::/64") == 0
    waits = [tries.wait_s(f"127.0.0.{n}", is_local=True) for n in range(1, 200)]
    assert waits.count(0) == CONSOLE_LOGINS_OF_SITE_MAX


def test_networks_that_are_remembered_have_a_bound() -> None:
    tries = Tries(ManualClock())
    for number in range(3 * CONSOLE_NETWORKS_MAX):
        tries.succeeded(str(number))
    assert len(tries._welcome) == CONSOLE_NETWORKS_MAX


@pytest.mark.parametrize(
    ("peer", "headers", "network"),
    [
        ("10.0.0.1", {}, "10.0.0.1"),
        ("10.0.0.1", {"X-Forwarded-For": "192.0.2.1"}, "10.0.0.1"),  # anyone may say so
        ("::ffff:10.0.0.1", {}, "10.0.0.1"),
        ("2001:db8::1:2:3:4", {}, "2001:db8::/64"),
        ("2001:db8:0:1::5%a", {}, "2001:db8:0:1::/64"),
        ("127.0.0.1", {}, "127.0.0.1"),
        ("127.0.0.1", {"X-Forwarded-For": "192.0.2.9, 192.0.2.1"}, "192.0.2.1"),
        ("127.0.0.1", {"x-forwarded-for": "192.0.2.9:4711"}, "192.0.2.9"),
        ("127.0.0.1", {"X-Forwarded-For": "unknown"}, "127.0.0.1"),
        ("127.0.0.1", {"X-Forwarded-For": "\xff,"}, "127.0.0.1"),
        ("::1", {"Forwarded": "for=192.0.2.9, by=_a;For=192.0.2.1"}, "192.0.2.1"),
        ("::1", {"Forwarded": 'for="[2001:db8::7]:80";proto=https'}, "2001:db8::/64"),
        ("::1", {"Forwarded": "for=_hidden"}, "::/64"),
        ("", {}, ""),
    ],
)
def test_the_network_of_a_visitor(peer: str, headers: dict[str, str], network: str) -> None:
    sent = [(name.encode(), value.encode("latin-1")) for name, value in headers.items()]
    assert network_of(peer, sent) == network


def test_a_proxy_that_adds_a_line_of_its_own_has_the_last_word() -> None:
    sent = [(b"x-forwarded-for", b"192.0.2.9"), (b"X-Forwarded-For", b"192.0.2.1")]
    assert network_of("127.0.0.1", sent) == "192.0.2.1"


@pytest.mark.parametrize(
    ("scheme", "peer", "headers", "is_secure"),
    [
        ("http", "127.0.0.1", {}, False),
        ("https", "10.0.0.1", {}, True),
        ("http", "127.0.0.1", {"X-Forwarded-Proto": "https"}, True),
        ("http", "127.0.0.1", {"X-Forwarded-Proto": "https, http"}, False),  # the nearest proxy's
        ("http", "127.0.0.1", {"X-Forwarded-Proto": "http"}, False),
        ("http", "::1", {"X-Forwarded-Proto": "HTTPS"}, True),
        ("http", "10.0.0.1", {"X-Forwarded-Proto": "https"}, False),  # anyone may say so
        ("https", "127.0.0.1", {"X-Forwarded-Proto": "http"}, True),
        ("http", "::1", {"Forwarded": "for=192.0.2.9;Proto=https"}, True),
        ("http", "::1", {"Forwarded": "for=192.0.2.9;proto=http"}, False),
        ("http", "", {"X-Forwarded-Proto": "https"}, False),
    ],
)
def test_whether_a_visitor_speaks_tls(
    scheme: str, peer: str, headers: dict[str, str], is_secure: bool
) -> None:
    sent = [(name.encode(), value.encode()) for name, value in headers.items()]
    scope = {
        "method": "GET",
        "path": "/ui/",
        "scheme": scheme,
        "client": (peer, 1),
        "headers": sent,
    }
    assert request_of(scope, is_local=False).is_secure == is_secure


def asked_with(cookie: str = "") -> Request:
    return Request(
        "GET", "/ui/", {}, {"cookie": cookie}, "127.0.0.1", 9644, False, True, lambda: None
    )  # fmt: skip


def test_clients_are_closed_of_a_session_that_ended_by_whatever() -> None:
    clock, closed = ManualClock(), []

    async def through() -> None:
        logins = Logins(clock, lambda: closed.append(len(logins._sessions)))

        def begin() -> Answer:
            login = ClientLogin("PLAIN", "anna", "secret")
            return logins.begin(asked_with(), {}, "127.0.0.1:9092", login)

        for _ in range(CONSOLE_SESSIONS_PER_USER_MAX):
            answer = begin()
        assert closed == []
        begin()  # the oldest of the user ends
        assert closed == [CONSOLE_SESSIONS_PER_USER_MAX]
        cookie = dict(answer.headers)["set-cookie"].partition(";")[0]
        assert cookie.startswith(COOKIE)
        clock.advance(ms=CONSOLE_SESSION_IDLE_MS)
        assert logins.session_of(asked_with(cookie)) is None  # all of them end
        assert closed[1:] == [0]
        logins._look()
        assert closed[1:] == [0], "once for those that have ended"

    asyncio.run(through())
