"""Who may ask the console, from where, and by which page."""

from __future__ import annotations

import pytest

from kbroker.admin.console_guard import HEADERS, Visit, messages_of, refusal_of
from kbroker.config import BrokerConfig

HERE = "127.0.0.1"


def config(*settings: str) -> BrokerConfig:
    return BrokerConfig.load(None, {}, list(settings))


def visit(
    method: str = "GET", local: str = HERE, peer: str = HERE, host: str = "localhost:9644",
    version: str = "1.1", **headers: str,
) -> Visit:  # fmt: skip
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return Visit(method, {"host": host, **named} if host else named, local, peer, version)


def status(asked: Visit, *settings: str) -> int:
    refusal = refusal_of(asked, config(*settings))
    return 200 if refusal is None else refusal.status


@pytest.mark.parametrize(
    ("host", "wanted"),
    [
        ("localhost:9644", 200),
        ("127.0.0.1:9644", 200),
        ("[::1]:9644", 200),
        ("10.0.0.7", 200),
        ("evil.example", 421),
        ("evil.example:9644", 421),
        ("localhost.evil.example", 421),
        ("127.0.0.1.evil.example", 421),
        ("[::1]evil.example", 421),
        ("", 421),
    ],
)
def test_only_a_name_of_this_machine_is_answered(host: str, wanted: int) -> None:
    for local in (HERE, "::1", "10.0.0.7"):
        assert status(visit(host=host, local=local), "admin.console.enable=true") == wanted


def test_names_can_be_added() -> None:
    hosts = "admin.console.hosts=kafka.example,Console.Example"
    for host in ("kafka.example", "KAFKA.example:9644", "console.example."):
        assert status(visit(host=host), hosts) == 200
    assert status(visit(host="other.example"), hosts) == 421


@pytest.mark.parametrize(
    ("asked", "auto", "true"),
    [
        (visit(), 200, 200),
        (visit(local="10.0.0.7", peer="10.0.0.8", host="10.0.0.7"), 403, 200),
        (visit(local="10.0.0.7", peer="10.0.0.7", host="10.0.0.7"), 403, 200),
        (visit(x_forwarded_for="10.0.0.8"), 403, 200),
        (visit(forwarded="for=10.0.0.8"), 403, 200),
        (visit(via="1.1 proxy"), 403, 200),
        (visit(version="1.0"), 403, 200),  # nginx, as it comes
    ],
)
def test_others_than_visitors_of_this_machine(asked: Visit, auto: int, true: int) -> None:
    assert status(asked) == auto
    assert status(asked, "admin.console.enable=true") == true
    assert status(asked, "admin.console.enable=false") == 404


def test_a_named_host_opens_the_console_to_others() -> None:
    asked = visit(local="10.0.0.7", peer="10.0.0.8", host="kafka.example")
    assert status(asked, "admin.console.hosts=kafka.example") == 200
    assert not asked.is_local(config("admin.console.hosts=kafka.example"))


@pytest.mark.parametrize(
    ("headers", "wanted"),
    [
        ({}, 200),  # no browser
        ({"sec_fetch_site": "same-origin"}, 200),
        ({"sec_fetch_site": "none"}, 200),
        ({"sec_fetch_site": "same-site"}, 403),  # another port of this machine
        ({"sec_fetch_site": "cross-site"}, 403),
        ({"sec_fetch_site": "cross-site", "origin": "http://localhost:9644"}, 403),
        ({"origin": "http://localhost:9644"}, 200),
        ({"origin": "https://LOCALHOST:9644"}, 200),
        ({"origin": "http://localhost:3000"}, 403),
        ({"origin": "http://evil.example"}, 403),
        ({"origin": "null"}, 403),
        ({"origin": "http://[x"}, 403),
    ],
)
def test_a_change_is_sent_by_the_console_itself(headers: dict[str, str], wanted: int) -> None:
    assert status(visit("POST", **headers)) == wanted
    assert status(visit("DELETE", **headers)) == wanted


@pytest.mark.parametrize(
    ("headers", "wanted"),
    [
        ({"sec_fetch_site": "cross-site", "sec_fetch_mode": "navigate",
          "sec_fetch_dest": "document"}, 200),  # a link that a person follows
        ({"sec_fetch_site": "cross-site", "sec_fetch_mode": "navigate",
          "sec_fetch_dest": "iframe"}, 403),
        ({"sec_fetch_site": "cross-site", "sec_fetch_mode": "no-cors",
          "sec_fetch_dest": "image"}, 403),
        ({"sec_fetch_site": "same-site", "sec_fetch_mode": "cors",
          "sec_fetch_dest": "empty"}, 403),
        ({"sec_fetch_site": "same-origin", "sec_fetch_mode": "cors",
          "sec_fetch_dest": "empty"}, 200),
        ({"sec_fetch_site": "none", "sec_fetch_mode": "navigate",
          "sec_fetch_dest": "document"}, 200),
    ],
)  # fmt: skip
def test_pages_of_other_sites_make_no_work_here(headers: dict[str, str], wanted: int) -> None:
    assert status(visit(**headers)) == wanted


def test_a_body_comes_with_a_form_alone() -> None:
    assert status(visit(content_length="5")) == 413
    assert status(visit(transfer_encoding="chunked")) == 413
    assert status(visit(content_length="0")) == 200
    assert status(visit("POST", content_length="5")) == 200


def test_messages() -> None:
    assert messages_of(config(), is_local=True) == "on"
    assert messages_of(config(), is_local=False) == "off"
    for said in ("on", "keys", "off"):
        settings = config(f"admin.console.messages={said}")
        assert [messages_of(settings, is_local=each) for each in (True, False)] == [said, said]


def test_the_policy_lets_nothing_in() -> None:
    policy = dict(HEADERS)["Content-Security-Policy"]
    rules = dict(each.strip().split(" ", 1) for each in policy.split(";"))
    assert rules["default-src"] == rules["frame-ancestors"] == rules["base-uri"] == "'none'"
    assert rules["script-src"] == rules["style-src"] == rules["form-action"] == "'self'"
    assert "unsafe" not in policy and "http" not in policy and "*" not in policy


def test_browsers_name_the_console_as_the_origin_of_its_own_forms() -> None:
    """With no-referrer they send `Origin: null`, which is refused where they send no
    Sec-Fetch-Site: over http at another address than a loopback one (Fetch, 3.2)."""
    assert dict(HEADERS)["Referrer-Policy"] == "same-origin"
    assert status(visit("POST", origin="null")) == 403
