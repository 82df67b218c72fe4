"""The console of a real broker: each page, what a start has of it, and who sees what."""

from __future__ import annotations

import json
import urllib.error
import urllib.parse
import urllib.request
from typing import NamedTuple

import pytest

import kbroker.testing
from kbroker.console.routes import ROUTES, Kind
from kbroker.testing.inspection import wait_until
from kbroker.testing.plain import PlainBroker as Broker
from tests.clients.adapters import Confluent, Record
from tests.unit.console.hostile import TEXTS

pytestmark = pytest.mark.client

HOSTILE = "<script>alert(1)</script>\u202e\x1b[2J"
PAGES = [each for each in ROUTES if each.kind is Kind.PAGE]


class Answer(NamedTuple):
    status: int
    text: str
    cookie: str
    policy: str


class _Stays(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: object) -> None:
        """An answer that leads elsewhere is the answer."""


_OPEN = urllib.request.build_opener(_Stays)


def ask(broker: Broker, path: str, cookie: str = "", **form: str) -> Answer:
    body = urllib.parse.urlencode(form).encode() if form else None
    headers = {"Cookie": cookie} if cookie else {}
    request = urllib.request.Request(broker.admin + path, body, headers)
    try:
        with _OPEN.open(request, timeout=60) as found:
            text = found.read().decode()
    except urllib.error.HTTPError as error:
        found, text = error, error.read().decode()
    given = (found.headers["Set-Cookie"] or "").partition(";")[0]
    return Answer(found.status, text, given, found.headers["Content-Security-Policy"] or "")


def test_every_page_is_there_for_people_and_as_json(broker: Broker) -> None:
    assert f"console: {broker.admin}/ui" in broker.log_text()
    Confluent(broker.bootstrap).produce("orders", [Record(HOSTILE.encode(), key=TEXTS[0].encode())])
    for route in PAGES:
        path = "/ui/" + route.pattern.format(topic="orders", group="shop", broker=broker.node_id)
        page, document = ask(broker, path), ask(broker, f"{path}?format=json")
        assert page.status in (200, 404), (path, page.text)
        assert "<h1>" in page.text and page.policy.startswith("default-src 'none'")
        assert "<script>alert" not in page.text and "\u202e" not in page.text
        if page.status == 200:
            sections = json.loads(document.text)["sections"]
            assert sections or "<form" in page.text  # a page of forms has nothing else yet
    assert ask(broker, "/healthz").text == "ok\n"


def test_a_visitor_sees_no_more_than_its_user() -> None:
    """With the broker's own audit lines, and nothing of the broker's own rights."""
    users = {"alice": "pw-a", "bob": "pw-b"}
    with kbroker.testing.Broker(users=users, acls=["bob Describe cluster"]) as broker:
        away = ask(broker, "/ui/brokers")
        assert away.status == 303
        assert ask(broker, "/ui/brokers?format=json").status == 401
        wrong = ask(broker, "/ui/login", user="alice", password="pw-b")
        assert wrong.status == 401 and not wrong.cookie
        cookie = ask(broker, "/ui/login", user="alice", password="pw-a").cookie
        brokers = json.loads(ask(broker, "/ui/brokers?format=json", cookie).text)
        assert brokers["sections"]
        assert "you may not see this" in ask(broker, "/ui/security", cookie).text
        assert ask(broker, "/ui/security").status == 303
        wait_until(lambda: "Failed authentication" in broker.log_text(), "the line of the refusal")
        assert "pw-" not in broker.log_text()
