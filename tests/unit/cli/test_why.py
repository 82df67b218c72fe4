"""`kbroker why` against an admin port of one page."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import pytest

from kbroker.cli.main import main

CAUSE = {
    "kind": "no-members", "what": "the group has\x1b no members", "next_step": "start one",
    "since_ms": 0, "evidence": ["member m left"],
}  # fmt: skip
ANSWER = {"broker": 1, "causes": [CAUSE], "seen": ["a"], "not_seen": ["b"]}


class Page(HTTPServer):
    status, body = 200, json.dumps(ANSWER).encode()
    path = ""


class Handler(BaseHTTPRequestHandler):
    server: Page

    def do_GET(self) -> None:
        self.server.path = self.path
        self.send_response(self.server.status)
        self.end_headers()
        self.wfile.write(self.server.body)

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def page() -> Iterator[Page]:
    with Page(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def ask(page: Page, *words: str) -> int:
    return main(["why", *words, "--admin", f"http://127.0.0.1:{page.server_port}"])


def test_causes_for_people(page: Page, capsys: pytest.CaptureFixture[str]) -> None:
    assert ask(page, "consumer", "a&b/c", "--principal", "User:x", "--client-id", "c") == 1
    assert page.path == "/why?consumer=a%26b%2Fc&principal=User%3Ax&client-id=c"
    assert capsys.readouterr().out.splitlines() == [
        "1. the group has\\x1b no members",
        "   since 1970-01-01 00:00:00 UTC",
        "   member m left",
        "   -> start one",
        "seen: a",
        "not seen from broker 1: b",
    ]


def test_nothing_is_wrong(page: Page, capsys: pytest.CaptureFixture[str]) -> None:
    page.body = json.dumps(ANSWER | {"causes": [], "not_seen": []}).encode()
    assert ask(page, "slow") == 0
    assert page.path == "/why?slow="
    assert capsys.readouterr().out == "nothing is wrong\nseen: a\n"


def test_the_document(page: Page, capsys: pytest.CaptureFixture[str]) -> None:
    assert ask(page, "produce", "orders", "--batch-bytes", "7", "-o", "json") == 1
    assert page.path == "/why?produce=orders&batch-bytes=7"
    assert json.loads(capsys.readouterr().out) == ANSWER


@pytest.mark.parametrize(
    ("status", "body", "text"),
    [
        (400, b"write partition=TOPIC/0\n\x1b[2J", "answers 400: write partition=TOPIC/0"),
        (200, b"<html>", "answers no JSON"),
        (200, b"[]", "answers no JSON"),
        (200, b'{"causes": [7]}', "answers no JSON"),
    ],
)
def test_no_answer(
    page: Page, status: int, body: bytes, text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    page.status, page.body = status, body
    assert ask(page, "slow") == 1
    out, err = capsys.readouterr()
    assert out == "" and text in err and err.strip().isprintable()


def test_no_broker(page: Page, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["why", "slow", "--admin", "http://127.0.0.1:1"]) == 1
    assert "Connection refused" in capsys.readouterr().err
    assert main(["why", "slow", "--admin", "127.0.0.1:1"]) == 2
