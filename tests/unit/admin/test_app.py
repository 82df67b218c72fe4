"""The pages, called as an ASGI server calls them; the worker is a plain function call."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

from kbroker.admin.app import make_app
from kbroker.limits import ADMIN_JOBS_MAX, ADMIN_NAMES_MAX
from kbroker.metrics.model import Figures
from kbroker.observe.readiness import RUNNING, STOPPING, Readiness
from kbroker.observe.why.facts import About, Question

METRICS = {"connections": [(("PLAINTEXT", "0"), 3)], "request_queue_size": [((), 2)]}


class Answer(NamedTuple):
    status: int
    headers: dict[str, str]
    text: str


class FakeBroker:
    metric_dialects = ("canonical",)

    def __init__(self) -> None:
        self.readiness = Readiness(["/tmp"])
        self.readiness.phase = RUNNING
        self.scrapes = 0
        self.asked: list[Question] = []
        self.observation = self

    def why(self, question: Question) -> dict[str, Any]:
        self.asked.append(question)
        return {"causes": []}

    def figures(self) -> Figures:
        self.scrapes += 1
        return Figures(0, METRICS)


async def at_once(work: Callable[[], Any]) -> Any:
    return work()


async def request(
    app: Any,
    path: str,
    method: str = "GET",
    server: str = "127.0.0.1",
    version: str = "1.1",
    **headers: str,
) -> Answer:
    path, _, query = path.partition("?")
    sent: list[dict[str, Any]] = []
    raw = [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()]
    scope = {"type": "http", "method": method, "path": path, "query_string": query.encode(),
             "headers": raw, "root_path": "", "server": (server, 9644),
             "http_version": version}  # fmt: skip

    async def receive() -> dict[str, Any]:
        raise AssertionError("a body is not read")

    async def send(message: dict[str, Any]) -> None:
        sent.append(message)

    await app(scope, receive, send)
    body = b"".join(message.get("body", b"") for message in sent)
    answered = {key.decode().lower(): value.decode() for key, value in sent[0]["headers"]}
    return Answer(sent[0]["status"], answered, body.decode())


def get(broker: FakeBroker, path: str, method: str = "GET", **how: str) -> Answer:
    return asyncio.run(request(make_app(broker, at_once), path, method, **how))


def test_health() -> None:
    assert get(FakeBroker(), "/healthz").status == 200


@pytest.mark.parametrize("server", ["127.0.0.1", "::1", "::ffff:127.0.0.1"])
@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("localhost:9644", 200),
        ("127.0.0.1:9644", 200),
        ("[::1]:9644", 200),
        ("broker.localhost", 200),
        ("10.0.0.7", 200),
        (socket.gethostname(), 200),
        ("", 200),
        ("page.example:9644", 421),
        ("localhost.page.example", 421),
        ("127.0.0.1.page.example", 421),
        ("[::1].page.example", 421),
    ],
)
def test_a_loopback_address_answers_no_page_of_another_host(
    server: str, host: str, status: int
) -> None:
    answer = get(FakeBroker(), "/healthz", server=server, host=host)
    assert answer.status == status


def test_elsewhere_any_name_may_be_asked_for() -> None:
    assert get(FakeBroker(), "/healthz", server="10.0.0.7", host="broker-1.example").status == 200


def test_readiness_says_why_not() -> None:
    broker = FakeBroker()
    assert get(broker, "/readyz")[::2] == (200, "ok\n")
    broker.readiness.phase = STOPPING
    answer = get(broker, "/readyz")
    assert answer[::2] == (503, "[-] kafka-requests: stopping\nnot ready\n")
    assert answer.headers["cache-control"] == "no-store"
    assert "[+] log-dir /tmp: online\n" in get(broker, "/readyz?verbose").text
    assert get(broker, "/healthz").status == 200


def test_the_index_names_every_page() -> None:
    text = get(FakeBroker(), "/").text
    assert all(f'href="{path}"' in text for path in ("/metrics", "/healthz", "/readyz", "/why"))


def test_why() -> None:
    broker = FakeBroker()
    answer = get(broker, "/why?partition=a%2Fb/3")
    assert (answer.status, answer.text) == (200, '{"causes":[]}')
    assert answer.headers["content-type"] == "application/json"
    assert answer.headers["cache-control"] == "no-store"
    assert broker.asked == [Question(About.PARTITION, "a/b", 3)]


def test_only_the_broker_s_machine_may_ask_why() -> None:
    broker = FakeBroker()
    for server in ("10.0.0.7", "2001:db8::1"):
        assert get(broker, "/why?slow", server=server, host="broker-1.example").status == 403
    assert get(broker, "/why?slow", server="::1", host="localhost").status == 200


@pytest.mark.parametrize(
    "field", ["X-Forwarded-For", "x_forwarded_host", "Forwarded", "Via", "X-Real-IP"]
)
def test_a_proxy_on_the_machine_does_not_make_its_clients_local(field: str) -> None:
    broker = FakeBroker()
    answer = get(broker, "/why?slow", host="localhost", **{field.lower(): "192.0.2.7"})
    assert (answer.status, answer.text.count("\n")) == (403, 1) and "proxy" in answer.text
    assert broker.asked == []
    assert get(broker, "/why?slow", host="localhost", x_forward="1").status == 200
    # Pages for any client are for those of a proxy, too.
    assert get(broker, "/healthz", host="localhost", **{field.lower(): "192.0.2.7"}).status == 200


def test_the_version_of_http_that_proxies_speak_is_not_of_this_machine() -> None:
    """nginx forwards so, and does not name its client."""
    broker = FakeBroker()
    answer = get(broker, "/why?slow", host="localhost", version="1.0")
    assert answer.status == 403 and "HTTP/1.1" in answer.text and broker.asked == []
    assert get(broker, "/healthz", host="localhost", version="1.0").status == 200


def test_no_question_is_refused_in_one_line() -> None:
    broker = FakeBroker()
    for query in ("", "?consumer", "?slow&b=%0a%1b[2J", "?produce=a&principal=%1b"):
        answer = get(broker, f"/why{query}")
        assert answer.status == 400 and answer.text.strip().isprintable()
    broker.readiness.phase = STOPPING
    assert get(broker, "/why?slow").status == 503
    assert broker.asked == []


def test_one_question_at_a_time() -> None:
    async def ask() -> list[int]:
        going = asyncio.Event()

        async def run(work: Callable[[], Any]) -> Any:
            await going.wait()
            return work()

        app = make_app(FakeBroker(), run)
        first = asyncio.create_task(request(app, "/why?slow"))
        await asyncio.sleep(0)
        second = await request(app, "/why?slow")
        going.set()
        return [second.status, (await first).status, (await request(app, "/why?slow")).status]

    assert asyncio.run(ask()) == [503, 200, 200]


def test_metrics() -> None:
    answer = get(FakeBroker(), "/metrics")
    assert answer.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    assert "\nkafka_network_RequestChannel_RequestQueueSize 2\n" in answer.text
    as_openmetrics = get(FakeBroker(), "/metrics", accept="application/openmetrics-text")
    assert as_openmetrics.text.endswith("# EOF\n")


def test_names_filter_by_the_end_of_the_canonical_name() -> None:
    broker = FakeBroker()
    for query in ("name=QueueSize", "name[]=QueueSize", "name=QueueSize&name=Nothing"):
        text = get(broker, f"/metrics?{query}").text
        assert "RequestQueueSize" in text and "connection" not in text
    assert get(broker, "/metrics?name=queuesize").text == ""
    many = "&".join(f"name={number}" for number in range(ADMIN_NAMES_MAX + 1))
    assert get(broker, f"/metrics?{many}").status == 400


def test_no_metrics_while_it_stops() -> None:
    broker = FakeBroker()
    broker.readiness.phase = STOPPING
    assert get(broker, "/metrics")[::2] == (503, "stopping\n")
    assert broker.scrapes == 0


def test_only_reading() -> None:
    assert get(FakeBroker(), "/metrics", "POST").status == 405
    assert get(FakeBroker(), "/nothing").status == 404
    assert get(FakeBroker(), "/metrics", content_length="0").status == 200
    assert get(FakeBroker(), "/metrics", content_length="1").status == 413
    assert get(FakeBroker(), "/metrics", transfer_encoding="chunked").status == 413


def test_equal_scrapes_share_an_answer_and_too_many_are_refused() -> None:
    broker = FakeBroker()
    go = threading.Event()

    async def slow(work: Callable[[], Any]) -> Any:
        while not go.is_set():
            await asyncio.sleep(0)
        return work()

    async def scrape_all() -> list[Answer]:
        app = make_app(broker, slow)
        paths = [f"/metrics?name={n}" for n in range(ADMIN_JOBS_MAX) for _ in range(3)]
        tasks = [asyncio.ensure_future(request(app, path)) for path in paths]
        tasks.append(asyncio.ensure_future(request(app, "/metrics?name=more")))
        while not tasks[-1].done():
            await asyncio.sleep(0)
        go.set()
        return await asyncio.gather(*tasks)

    *answers, refused = asyncio.run(scrape_all())
    assert {answer.status for answer in answers} == {200}
    assert broker.scrapes == ADMIN_JOBS_MAX
    assert refused.status == 503 and refused.headers["retry-after"] == "1"
