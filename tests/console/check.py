"""Every page of the console in a browser: `make console-check`, by hand; screenshots in
build/console.

A broker with topics, hostile records and a group, and Chromium without a window. Each page is
opened light and dark, 1280 and 390 px wide, and once without JavaScript. A page fails where
something is logged by the browser (a violation of the policy, an exception; not the status of a
page that is an error), where it asks another host for something, where it is wider than the window,
and where axe-core finds a violation. `--axe FILE` names axe.min.js (npm install axe-core); without
it that is left out. `--topics N` has so many topics and prints the time of their page.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from confluent_kafka import Consumer

import kbroker.testing
from kbroker.console.routes import ROUTES, Kind
from tests.clients.adapters import Confluent, Record
from tests.support.browser import Browser
from tests.support.source_tree import ROOT
from tests.unit.console.hostile import TEXTS

WIDTHS: Final = (1280, 390)
SCHEMES: Final = ("light", "dark")
TOPIC: Final = "orders"
STATUS: Final = "Failed to load resource: the server responded with a status of 4"
AXE: Final = """
axe.run(document, {resultTypes: ["violations"]}).then((found) => found.violations.map(
  (each) => each.id + ": " + each.nodes.slice(0, 3).map((node) => node.target.join(" ")).join()))
"""


def pages(broker: kbroker.testing.Broker) -> Iterator[tuple[str, str]]:
    """A name for its pictures, and the path, of each page."""
    values = {"topic": TOPIC, "group": "shop", "broker": str(broker.node_id)}
    for route in ROUTES:
        if route.kind in (Kind.PAGE, Kind.WRITE):
            yield route.module.rpartition(".")[2], "/ui/" + route.pattern.format(**values)
    yield "search", f"/ui/topics/{TOPIC}/messages?key=hostile&rows=20"
    yield "may", "/ui/security?may_principal=User:anna&may_operation=Read&may_type=topic&may_name=x"
    yield "why-topic", f"/ui/why?produce={TOPIC}"
    yield "login", "/ui/login"
    yield "error", "/ui/none"


def fill(broker: kbroker.testing.Broker, topics: int) -> Consumer:
    """A member of a group, to be kept while the pages are looked at."""
    client = Confluent(broker.bootstrap)
    for number, text in enumerate(TEXTS):
        key = f"hostile {number}".encode()
        value = text.encode(errors="replace")
        client.produce(TOPIC, [Record(value, key=key)])
    document = json.dumps({"order": 17, "items": [{"sku": "A-1", "count": 2}] * 40}, indent=1)
    client.produce(TOPIC, [Record(document.encode(), key=b"document")])
    settings = {"group.id": "shop", "auto.offset.reset": "earliest"}
    member = Consumer({"bootstrap.servers": broker.bootstrap, **settings})
    member.subscribe([TOPIC])
    member.consume(10, timeout=30)
    member.commit(asynchronous=False)
    names = [f"t-{number:05}" for number in range(topics)]
    for start in range(0, topics, 500):
        broker.create_topics(dict.fromkeys(names[start : start + 500], 1))
    return member


def troubles(browser: Browser, base: str, width: int, axe: str) -> list[str]:
    found = [f"asks {each}" for each in browser.requests if not each.startswith((base, "data:"))]
    found += [f"logs {each}" for each in browser.console if not each.startswith(STATUS)]
    wide = browser.value("document.documentElement.scrollWidth")
    if wide > width:
        found.append(f"is {wide} px wide")
    if axe:
        browser.value(axe)
        answer = browser.call(
            "Runtime.evaluate", expression=AXE, awaitPromise=True, returnByValue=True
        )
        found += [f"axe: {each}" for each in answer["result"].get("value", ["did not run"])]
    return found


def look(browser: Browser, base: str, some: Sequence[tuple[str, str]], to: Path, axe: str) -> int:
    failed = 0
    for name, path in some:
        for scheme in SCHEMES:
            for width in WIDTHS:
                browser.go(base + path, scheme=scheme, width=width)
                picture = browser.screenshot(to / f"{name}-{scheme}-{width}.png", whole=True)
                for each in troubles(browser, base, width, axe):
                    failed += 1
                    print(f"{picture.name}: {each}")
        browser.call("Emulation.setScriptExecutionDisabled", value=True)
        browser.go(base + path, scheme="light")
        browser.screenshot(to / f"{name}-without-script.png")
        browser.call("Emulation.setScriptExecutionDisabled", value=False)
    return failed


def seconds_of(url: str) -> float:
    began = time.monotonic()
    with urllib.request.urlopen(url, timeout=60) as answer:
        answer.read()
    return time.monotonic() - began


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--axe", type=Path)
    parser.add_argument("--topics", type=int, default=0)
    parser.add_argument("--only", default="")
    asked: Any = parser.parse_args()
    axe = asked.axe.read_text() if asked.axe else ""
    to = ROOT / "build" / "console"
    to.mkdir(parents=True, exist_ok=True)
    overrides = {"admin.console.write": "true"}
    with (
        tempfile.TemporaryDirectory() as directory,
        kbroker.testing.Broker(topics={TOPIC: 3}, overrides=overrides) as broker,
        Browser.start(Path(directory)) as browser,
    ):
        member = fill(broker, asked.topics)
        some = [each for each in pages(broker) if asked.only in each[0]]
        failed = look(browser, broker.admin, some, to, axe)
        for path in ("/ui/topics", "/ui/topics?format=json"):
            took = min(seconds_of(broker.admin + path) for _ in range(5))
            print(f"{path}: {1000 * took:.0f} ms")
        member.close()
    print(f"{failed} troubles; pictures are in {to}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
