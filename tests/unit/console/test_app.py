"""From a request to an answer: pages, errors, bounds, streams and logins."""

from __future__ import annotations

import asyncio
import json
import logging
import threading
from collections.abc import Coroutine, Iterator, Sequence
from typing import Any

import pytest

from kbroker.admin.console_guard import HEADERS
from kbroker.console import app
from kbroker.console.asked import Asked, Refused
from kbroker.console.page import Cell, Column, Notice, Page, Table, Tone, Unit
from kbroker.console.routes import Kind
from kbroker.console.worker import Job
from kbroker.errors import ErrorCode, KafkaError, UserError
from kbroker.limits import (
    CONSOLE_BODY_BYTES_MAX,
    CONSOLE_JOBS_MAX,
    CONSOLE_STREAMS_MAX,
    CONSOLE_STREAMS_PER_VISITOR_MAX,
)
from tests.unit.console.asgi import PASSWORD, Answer, FakeClients, Harness

TIMEOUT_S = 20


@pytest.fixture
def console(monkeypatch: pytest.MonkeyPatch) -> Harness:
    monkeypatch.setattr(FakeClients, "needs_login", False)
    made = Harness(monkeypatch)
    made.page("topics", topics)
    return made


def topics(asked: Asked) -> Page:
    columns = [Column("n", "Name"), Column("b", "Size", Unit.BYTES)]
    rows = [[Cell(asked.query.get("name", "orders"), "/ui/topics/orders"), Cell(2048)]]
    table = Table("topics", "Topics", columns, rows)
    return Page("Topics", [Notice(Tone.GOOD, f"{asked.client}"), table], refresh_s=5)


def test_a_page(console: Harness) -> None:
    answer = console.get("/ui/topics?name=a%3Cb%26c")
    assert answer.status == 200 and answer.header("content-type") == "text/html; charset=utf-8"
    assert "a&lt;b&amp;c</a>" in answer.text and "2.0 KB" in answer.text
    assert 'href="/ui/topics?name=a%3Cb%26c&amp;format=json"' in answer.text


def test_the_same_as_json(console: Harness) -> None:
    answer = console.get("/ui/topics?format=json&name=x")
    assert answer.header("content-type") == "application/json"
    assert json.loads(answer.body)["sections"][1]["rows"] == [{"n": "x", "b": 2048}]


def test_every_answer_has_the_headers(console: Harness) -> None:
    def fails(asked: Asked) -> Page:
        raise ValueError("inside")

    console.page("fails", fails)
    paths = (
        "/ui/topics",
        "/ui/none",
        "/ui/fails",
        "/ui/login",
        "/ui/topics?format=json",
        "/ui/logout",
    )
    calls = [console.ask(each) for each in paths]
    calls.append(console.ask("/ui/topics", headers={"host": "evil.example"}))
    calls.append(console.ask("/ui/topics", "POST", headers={"origin": "http://evil.example"}))
    calls.append(console.ask("/ui/topics", "PUT"))
    answers = console.run(*calls)
    assert [each.status for each in answers] == [200, 404, 500, 200, 200, 405, 421, 403, 405]
    for answer in answers:
        for name, value in HEADERS:
            assert answer.header(name.lower()) == value
        assert "inside" not in answer.text  # a fault of ours is for the log


def test_style_and_script_are_of_the_page_and_may_be_kept(console: Harness) -> None:
    page = console.get("/ui/topics").text
    for kind in ("css", "js"):
        path = page.split(f'.{kind}"')[0].rpartition('"')[2] + f".{kind}"
        answer = console.get(path)
        assert answer.status == 200 and "immutable" in answer.header("cache-control")
        assert b"http://" not in answer.body and b"https://" not in answer.body
        assert len(answer.body) < 15 * 1024
    assert console.get("/ui/static/../app.py").status == 404


@pytest.mark.parametrize(
    ("error", "status", "text"),
    [
        (Refused("offset is no number", "give one"), 400, "offset is no number"),
        (KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED), 403, "you may not see this"),
        (KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION), 404, "there is no such thing"),
        (KafkaError(ErrorCode.REQUEST_TIMED_OUT), 503, "a broker could not answer"),
        (KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, "<b>"), 502, "&lt;b&gt;"),
        (UserError("no broker", "start one"), 503, "start one"),
    ],
)
def test_errors_are_pages(console: Harness, error: Exception, status: int, text: str) -> None:
    def fails(asked: Asked) -> Page:
        raise error

    console.page("fails", fails)
    page, document = console.run(console.ask("/ui/fails"), console.ask("/ui/fails?format=json"))
    assert page.status == document.status == status
    assert text in page.text
    assert set(json.loads(document.body)) == {"error", "next_step"}


def test_a_fault_of_ours_is_in_the_log(console: Harness, caplog: pytest.LogCaptureFixture) -> None:
    def fails(asked: Asked) -> Page:
        raise ZeroDivisionError("x")

    console.page("fails", fails)
    with caplog.at_level(logging.ERROR):
        assert console.get("/ui/fails").status == 500
    assert "a page of the console failed: ZeroDivisionError" in caplog.text


def test_too_many_pages_at_once(console: Harness) -> None:
    begun, go = threading.Event(), threading.Event()

    def held(asked: Asked) -> Page:
        begun.set()
        go.wait(TIMEOUT_S)
        return Page("Held", [])

    console.page("held", held)

    async def crowd() -> list[Answer]:
        first = asyncio.ensure_future(console.ask("/ui/held"))
        await asyncio.to_thread(begun.wait, TIMEOUT_S)
        rest = [asyncio.ensure_future(console.ask("/ui/topics")) for _ in range(CONSOLE_JOBS_MAX)]
        await asyncio.sleep(0)
        refused = await console.ask("/ui/topics")
        go.set()
        return [refused, await first, *await asyncio.gather(*rest)]

    refused, *others = console.run(crowd())[0]
    assert refused.status == 503 and "too many pages" in refused.text
    assert [each.status for each in others] == [200] * (1 + CONSOLE_JOBS_MAX)


def test_a_visitor_that_goes_away_ends_the_page(console: Harness) -> None:
    begun, ended = threading.Event(), threading.Event()

    def long(asked: Asked) -> Page:
        begun.set()
        try:
            while True:
                asked.pause()
        finally:
            ended.set()

    console.page("long", long)

    async def leave() -> tuple[Answer, bool]:
        gone = asyncio.Event()
        asking = asyncio.ensure_future(console.ask("/ui/long", gone=gone))
        await asyncio.to_thread(begun.wait, TIMEOUT_S)
        gone.set()
        return await asking, await asyncio.to_thread(ended.wait, TIMEOUT_S)

    answer, given_up = console.run(leave())[0]
    assert answer.status == 0 and given_up


# --- what changes something -----------------------------------------------------------------------


def write(asked: Asked) -> Page:
    return Page(
        "Write", [Notice(Tone.PLAIN, f"{asked.sent} {dict(asked.query)} {asked.may_write}")]
    )


def test_nothing_is_written_unless_it_is_allowed(console: Harness) -> None:
    console.page("write", write, Kind.WRITE)
    answers = console.run(console.ask("/ui/write"), console.ask("/ui/write", "POST", body=b"a=1"))
    assert [each.status for each in answers] == [403, 403]
    assert "admin.console.write" in answers[0].text


def test_a_form_is_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    console = Harness(monkeypatch, "admin.console.write=true")
    console.page("write", write, Kind.WRITE)
    console.page("topics", topics)
    many = b"&".join(b"a=1" for _ in range(300))
    get, post, long, kind, fields, elsewhere = console.run(
        console.ask("/ui/write?a=2"),
        console.ask("/ui/write?a=2", "POST", body=b"name=x%20y&name=z&empty="),
        console.ask("/ui/write", "POST", body=b"a=" + b"x" * CONSOLE_BODY_BYTES_MAX),
        console.ask("/ui/write", "POST", body=b"{}", headers={"content-type": "application/json"}),
        console.ask("/ui/write", "POST", body=many),
        console.ask("/ui/topics", "POST", body=b"a=1"),
    )
    assert "False {&#39;a&#39;: &#39;2&#39;} True" in get.text
    assert "True {&#39;name&#39;: &#39;x y&#39;, &#39;empty&#39;: &#39;&#39;} True" in post.text
    statuses = [each.status for each in (long, kind, fields, elsewhere)]
    assert statuses == [413, 415, 400, 405]


def test_a_change_is_said_to_be_done_however_late(monkeypatch: pytest.MonkeyPatch) -> None:
    console = Harness(monkeypatch, "admin.console.write=true")
    changed = threading.Event()
    monkeypatch.setattr(Job, "is_late", property(lambda job: changed.is_set()))

    def long(asked: Asked) -> Page:
        changed.set()
        rows = [[Cell(number)] for number in range(500)]
        return Page("Done", [Table("t", "It is done", [Column("n", "N")], rows)])

    console.page("long", long, Kind.WRITE)
    form, document, read = console.run(
        console.ask("/ui/long", "POST", body=b"a=1"),
        _after(changed, console.ask("/ui/long?format=json", "POST", body=b"a=1")),
        _after(changed, console.ask("/ui/long")),
    )
    assert (form.status, document.status, read.status) == (200, 200, 503)
    assert "It is done" in form.text


async def _after(changed: threading.Event, asking: Any) -> Any:
    """With time again until the page is made."""
    changed.clear()
    return await asking


def test_a_form_that_has_waited_for_long_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """There might not be time for its answer."""
    console = Harness(monkeypatch, "admin.console.write=true")
    monkeypatch.setattr(Job, "is_half_over", property(lambda job: True))
    console.page("write", write, Kind.WRITE)
    sent, read = console.run(
        console.ask("/ui/write", "POST", body=b"a=1"), console.ask("/ui/write")
    )
    assert (sent.status, read.status) == (503, 200) and "nothing was changed" in sent.text


# --- streams --------------------------------------------------------------------------------------


def test_a_tail_is_rows_and_notices_to_its_end(
    console: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "kbroker.console.app._units_of", lambda route, asked: [Unit.TEXT, Unit.BYTES]
    )

    def tail(asked: Asked) -> Iterator[Any]:
        yield [Cell("<b>", "/ui/topics/x"), Cell(2048)]
        yield [Cell("x", "//evil.example"), Cell(None)]
        yield Notice(Tone.QUIET, "3 were left out")
        yield None
        asked.pause()
        raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)

    console.page("tail", tail, Kind.TAIL)  # type: ignore[arg-type]
    answer = console.get("/ui/tail")
    assert answer.header("content-type") == "text/event-stream"
    rows, notice, end = [each.split("\n") for each in answer.text.strip().split("\n\n")]
    assert rows[0] == "event: rows"
    first, second = json.loads(rows[1].removeprefix("data: "))
    assert first[0] == {"text": "<b>", "path": "/ui/topics/x", "style": "", "exact": "",
                        "block": False, "long": False, "head": True}  # fmt: skip
    assert first[1]["text"] == "2.0 KB" and second[0]["path"] == ""
    assert notice == ["event: notice", 'data: "3 were left out"']
    assert end[0] == "event: end" and "NOT_LEADER_OR_FOLLOWER" in end[1]


def endless(asked: Asked) -> Iterator[Any]:
    while True:
        asked.pause()
        yield None


@pytest.fixture
def open_console(console: Harness, monkeypatch: pytest.MonkeyPatch) -> Harness:
    """For visitors of other machines, too."""
    return Harness(monkeypatch, "admin.console.enable=true")


def refused_beside(console: Harness, held: Sequence[int], asks: Sequence[int]) -> list[bool]:
    """Whether visitors, who come from networks of these numbers, get no tail beside `held`."""
    console.page("tail", endless, Kind.TAIL)  # type: ignore[arg-type]

    def tail(number: int, **how: Any) -> Coroutine[Any, Any, Answer]:
        return console.ask("/ui/tail", headers={"x-forwarded-for": f"10.0.0.{number}"}, **how)

    async def crowd() -> list[Answer]:
        gone = asyncio.Event()
        begun = asyncio.Semaphore(0)
        streams = [
            asyncio.ensure_future(tail(each, gone=gone, took=lambda piece: begun.release()))
            for each in held
        ]
        for _ in held:
            await begun.acquire()
        left = asyncio.Event()
        left.set()
        answers = [await tail(each, gone=left) for each in asks]
        gone.set()
        assert all(each.status == 200 for each in await asyncio.gather(*streams))
        return [*answers, await tail(asks[0], gone=left)]

    *beside, after = console.run(crowd())[0]
    assert after.status != 503, "they end with their visitors"
    return [each.status == 503 for each in beside]


def test_streams_are_bounded_and_end_with_their_visitors(open_console: Harness) -> None:
    assert refused_beside(open_console, range(CONSOLE_STREAMS_MAX), [9]) == [True]


def test_a_visitor_leaves_streams_to_others(open_console: Harness) -> None:
    held = [1] * CONSOLE_STREAMS_PER_VISITOR_MAX
    assert refused_beside(open_console, held, [1, 2]) == [True, False]


def test_a_stream_lets_the_server_read_once_however_long_it_is(console: Harness) -> None:
    """What comes after a request is kept by the server, each time as much as one read brings."""
    console.page("long", lambda asked: iter([b"{}\n"] * 30), Kind.DOWNLOAD)  # type: ignore
    assert console.get("/ui/long").body == b"{}\n" * 30
    assert console.receives <= 2


def test_a_stream_is_prolonged_while_a_step_takes_long(
    console: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(app, "_PROLONG_S", 0.001)
    prolonged = threading.Semaphore(0)

    def waits(asked: Asked) -> bool:
        return all(prolonged.acquire(timeout=30) for _ in range(3))

    def download(asked: Asked) -> Iterator[bytes]:
        yield b"whole" if waits(asked) else b"not prolonged"

    console.page("download", download, Kind.DOWNLOAD)  # type: ignore[arg-type]
    answer = console.get("/ui/download", prolong=prolonged.release)
    assert answer.body == b"whole"


def test_a_page_is_not_prolonged(console: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(app, "_PROLONG_S", 0.0)
    prolonged: list[None] = []
    answer = console.get("/ui/topics", prolong=lambda: prolonged.append(None))
    assert answer.status == 200 and not prolonged


def test_a_download_is_a_file(console: Harness) -> None:
    def download(asked: Asked) -> Iterator[bytes]:
        yield b'{"a": 1}\n'
        yield b'{"a": 2}\n'

    def broken(asked: Asked) -> Iterator[bytes]:
        yield b'{"a": 1}\n'
        raise UserError("the broker has gone")

    def refused(asked: Asked) -> Iterator[bytes]:
        raise Refused("messages are off", status=403)
        yield b""

    for make in (download, broken, refused):
        console.page(make.__name__, make, Kind.DOWNLOAD)  # type: ignore[arg-type]
    whole, early, none = console.run(
        *(console.ask(f"/ui/{n}") for n in ("download", "broken", "refused"))
    )
    assert whole.body == b'{"a": 1}\n{"a": 2}\n'
    assert whole.header("content-disposition").startswith("attachment")
    assert whole.header("content-type") == "application/x-ndjson"
    assert json.loads(early.body.splitlines()[-1]) == {"ended_early": "the broker has gone"}
    assert none.status == 403


# --- logins ---------------------------------------------------------------------------------------


@pytest.fixture
def closed(console: Harness, monkeypatch: pytest.MonkeyPatch) -> Harness:
    """The brokers authenticate."""
    monkeypatch.setattr(FakeClients, "needs_login", True)
    return console


def login(closed: Harness, password: str = PASSWORD, more: bytes = b"", **how: Any) -> Any:
    body = b"user=anna&password=" + password.encode() + more
    return closed.ask("/ui/login", "POST", body=body, **how)


def test_a_visitor_has_to_log_in_and_comes_back(closed: Harness) -> None:
    async def through() -> None:
        away = await closed.ask("/ui/topics?name=x")
        assert (away.status, away.header("location")) == (
            303, "/ui/login?next=%2Fui%2Ftopics%3Fname%3Dx",
        )  # fmt: skip
        assert (await closed.ask("/ui/topics?format=json")).status == 401
        form = await closed.ask(away.header("location"))
        assert form.status == 200 and 'type="password"' in form.text
        back = await login(closed, more=b"&next=%2Fui%2Ftopics%3Fname%3Dx")
        assert (back.status, back.header("location")) == (303, "/ui/topics?name=x")
        words = back.header("set-cookie").split("; ")
        assert words[1:] == ["Path=/ui", "HttpOnly", "SameSite=Strict"]
        cookie = words[0]
        assert cookie.startswith("kbroker_console_9644=")
        page = await closed.ask("/ui/topics", cookie=f"a=b; {cookie}")
        assert page.status == 200 and "client of anna" in page.text and "Log out" in page.text
        out = await closed.ask("/ui/logout", "POST", cookie=cookie)
        assert out.status == 303 and "Max-Age=0" in out.header("set-cookie")
        assert (await closed.ask("/ui/topics", cookie=cookie)).status == 303

    closed.run(through())


@pytest.mark.parametrize(
    "path",
    ["//evil.example/ui/", "https://evil.example/ui/", "/ui/../x\\", "/metrics", "/ui/login", "",
     "javascript:alert(1)", "/ui/%0d%0aSet-Cookie:x\r\n", "/ui/" + "x" * 5_000],
)  # fmt: skip
def test_after_a_login_the_way_goes_to_the_console_alone(closed: Harness, path: str) -> None:
    answer = closed.run(login(closed, more=b"&next=" + path.replace("%", "%25").encode()))[0]
    assert answer.status == 303 and answer.header("location") == "/ui/"


def test_a_wrong_password_and_too_many(closed: Harness) -> None:
    answers = closed.run(*(login(closed, "wrong") for _ in range(6)), login(closed))
    assert [each.status for each in answers] == [401] * 5 + [429] * 2
    assert all(not each.header("set-cookie") for each in answers)
    assert all("wrong" not in each.text for each in answers)  # the form does not repeat it


def test_a_login_from_another_page_is_refused(closed: Harness) -> None:
    answer = closed.run(login(closed, headers={"sec-fetch-site": "cross-site"}))[0]
    assert answer.status == 403


def test_a_login_that_the_brokers_take_no_more_is_over(closed: Harness) -> None:
    def fails(asked: Asked) -> Page:
        raise KafkaError(ErrorCode.SASL_AUTHENTICATION_FAILED)

    closed.page("fails", fails)

    async def through() -> None:
        cookie = (await login(closed)).header("set-cookie").partition(";")[0]
        assert (await closed.ask("/ui/topics", cookie=cookie)).status == 200
        assert (await closed.ask("/ui/fails", cookie=cookie)).status == 303
        assert (await closed.ask("/ui/topics", cookie=cookie)).status == 303

    closed.run(through())


# --- before the console is there ------------------------------------------------------------------


def test_without_its_library_the_page_names_the_package_to_install(
    console: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    def lacks() -> Any:
        raise ModuleNotFoundError("No module named 'jinja2'", name="jinja2")

    monkeypatch.setattr(console.mount, "_make", lacks)
    answer = console.get("/ui/")
    assert (
        answer.status == 503 and "pip install" in answer.text and "kbroker[console]" in answer.text
    )
    assert answer.header("content-security-policy")


def test_an_import_that_fails_is_in_the_log_and_the_next_visit_tries_again(
    console: Harness, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    make, tries = console.mount._make, [OSError("no descriptors")]

    def fails_once() -> Any:
        if tries:
            raise tries.pop()
        return make()

    monkeypatch.setattr(console.mount, "_make", fails_once)
    first, second = console.run(console.ask("/ui/topics"), console.ask("/ui/topics"))
    assert (first.status, second.status) == (503, 200)
    assert first.header("content-security-policy") and "descriptors" not in first.text
    assert "importing the console failed: OSError: no descriptors" in caplog.text
