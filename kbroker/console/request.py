"""A request to the console, and an answer to it, as ASGI has them.

Read and bounded here: the address, the first value of each name in it, cookies, a form. Raises
`Refused` for a value out of bounds. ASGI 3 with the HTTP scope.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping, MutableMapping, Sequence
from typing import Any, Final, NamedTuple
from urllib.parse import parse_qsl

from kbroker.console.asked import Refused
from kbroker.console.network import is_https, network_of
from kbroker.limits import CONSOLE_BODY_BYTES_MAX, CONSOLE_FIELDS_MAX

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

FORM: Final = "application/x-www-form-urlencoded"
HTML: Final = "text/html; charset=utf-8"
JSON: Final = "application/json"
Headers = Sequence[tuple[str, str]]


class Gone(Exception):
    """The visitor has gone."""


class Request(NamedTuple):
    """`path` as it was sent. `network`: where the visitor comes from (network.py). `is_local`: from
    this machine. `prolong`: of an answer that is a stream, has the connection last for as long
    again as one request may take."""

    method: str
    path: str
    query: Mapping[str, str]
    headers: Mapping[str, str]
    network: str
    port: int
    is_secure: bool
    is_local: bool
    prolong: Callable[[], None]

    @property
    def wants_json(self) -> bool:
        return self.query.get("format") == "json"

    @property
    def address(self) -> str:
        """Path and query, as it was sent."""
        return self.headers.get(":address", self.path)

    def cookie(self, name: str) -> str:
        for pair in self.headers.get("cookie", "").split(";"):
            key, equals, value = pair.strip().partition("=")
            if equals and key == name:
                return value
        return ""


def request_of(scope: Scope, *, is_local: bool) -> Request:
    """Refused: there are too many values."""
    headers: dict[str, str] = {}
    for name, value in scope["headers"]:
        headers.setdefault(name.decode("latin-1").lower(), value.decode("latin-1"))
    query = scope.get("query_string", b"").decode("latin-1")
    path = (scope.get("raw_path") or scope["path"].encode()).decode("latin-1").partition("?")[0]
    headers[":address"] = f"{path}?{query}" if query else path
    peer = (scope.get("client") or ("",))[0]
    return Request(
        scope["method"], path, first_values(query), headers,
        network=network_of(peer, scope["headers"]),
        port=(scope.get("server") or ("", 0))[1] or 0,
        is_secure=is_https(scope.get("scheme", ""), peer, scope["headers"]), is_local=is_local,
        prolong=(scope.get("extensions") or {}).get("kbroker.prolong", {}).get("call", _nothing),
    )  # fmt: skip


def first_values(text: str) -> dict[str, str]:
    try:
        pairs = parse_qsl(
            text, keep_blank_values=True, errors="replace", max_num_fields=CONSOLE_FIELDS_MAX
        )
    except ValueError:
        raise Refused(f"more than {CONSOLE_FIELDS_MAX} values") from None
    values: dict[str, str] = {}
    for name, value in pairs:
        values.setdefault(name, value)
    return values


async def form_of(request: Request, receive: Receive) -> dict[str, str]:
    """What a form sent. Refused; Gone."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != FORM:
        raise Refused("this is not what a form sends", f"send {FORM}", 415)
    too_long = Refused(f"a form has {CONSOLE_BODY_BYTES_MAX} bytes at most", status=413)
    length = request.headers.get("content-length", "0")
    if length.isascii() and length.isdecimal() and int(length) > CONSOLE_BODY_BYTES_MAX:
        raise too_long
    body = bytearray()
    while True:
        message = await receive()
        if message["type"] != "http.request":
            raise Gone
        body += message.get("body", b"")
        if len(body) > CONSOLE_BODY_BYTES_MAX:
            raise too_long
        if not message.get("more_body", False):
            return first_values(body.decode(errors="replace"))


class Answer(NamedTuple):
    status: int
    body: bytes
    content_type: str = HTML
    headers: Headers = ()

    async def send(self, send: Send) -> None:
        headers = [*self.headers, ("content-type", self.content_type)]
        await begin(send, self.status, [*headers, ("content-length", str(len(self.body)))])
        await send({"type": "http.response.body", "body": self.body})


async def begin(send: Send, status: int, headers: Headers) -> None:
    raw = [(name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in headers]
    await send({"type": "http.response.start", "status": status, "headers": raw})


def see(path: str, headers: Headers = ()) -> Answer:
    """Another address, to be asked for by GET."""
    return Answer(303, b"", "text/plain; charset=utf-8", [("location", path), *headers])


def json_error(status: int, what: str, next_step: str = "") -> Answer:
    document = {"error": what, "next_step": next_step}
    return Answer(status, json.dumps(document).encode() + b"\n", JSON)


def _nothing() -> None:
    """Where a server has no such bound."""
