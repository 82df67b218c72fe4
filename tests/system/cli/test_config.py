"""`kbroker config` for topics, brokers, loggers and groups of a running broker."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from tests.system.cli.conftest import Document, MakeTopic, Run

KEY = "message.max.bytes"
GROUP_KEY = "consumer.session.timeout.ms"
SECONDS_MAX = 30


@pytest.fixture
def unset(run: Run) -> Iterator[None]:
    """Whatever a test has set for all brokers or for the first one is taken back."""
    yield
    for which in ("1", "all"):
        assert run("config", "unset", "--broker", which, KEY)[0] == 0


def value(document: Document, *of: str, key: str = KEY) -> tuple[str, str]:
    (described,) = document("config", "get", *of, key)
    (entry,) = described["configs"]
    return entry["value"], entry["source"]


def becomes(document: Document, wanted: tuple[str, str], *of: str, key: str = KEY) -> bool:
    """Apache Kafka answers a change before every broker has it."""
    deadline = time.monotonic() + SECONDS_MAX
    while value(document, *of, key=key) != wanted and time.monotonic() < deadline:
        time.sleep(0.05)
    return value(document, *of, key=key) == wanted


def test_a_topic(run: Run, document: Document, make_topic: MakeTopic) -> None:
    topic = make_topic()
    assert run("config", "set", "-t", topic, "retention.ms=5") == (0, f"{topic}: changed\n", "")
    assert becomes(document, ("5", "topic"), "-t", topic, key="retention.ms")
    (explained,) = document("config", "explain", "retention.ms", "-t", topic)
    assert (explained["value"], explained["source"], explained["type"]) == ("5", "topic", "long")
    assert explained["help"] and not explained["read_only"]
    out = run("config", "explain", "retention.ms", "-t", topic)[1]
    assert "  value     5, from: topic\n" in out and "  change    at run time\n" in out
    assert run("config", "unset", "-t", topic, "retention.ms")[0] == 0
    default = document("config", "explain", "retention.ms", "-t", make_topic())[0]
    wanted = (default["value"], default["source"])
    assert becomes(document, wanted, "-t", topic, key="retention.ms")


@pytest.mark.usefixtures("unset")
def test_brokers(run: Run, document: Document) -> None:
    before = value(document, "--broker", "1")
    words = ["config", "set", "--broker", "all", f"{KEY}=2000000"]
    assert run(*words, "--dry-run") == (0, "all brokers: would be changed\n", "")
    assert value(document, "--broker", "1") == before
    assert run(*words) == (0, "all brokers: changed\n", "")
    assert becomes(document, ("2000000", "all brokers, at run time"), "--broker", "1")
    assert becomes(document, ("2000000", "all brokers, at run time"), "--broker", "all")
    assert run("config", "set", "--broker", "1", f"{KEY}=2100000")[1] == "broker 1: changed\n"
    assert becomes(document, ("2100000", "broker, at run time"), "--broker", "1")
    (explained,) = document("config", "explain", KEY, "--broker", "1")
    assert [synonym["value"] for synonym in explained["synonyms"]][:2] == ["2100000", "2000000"]
    out = run("config", "explain", KEY, "--broker", "1")[1]
    assert "  fallback  message.max.bytes=2000000" in out
    assert run("config", "unset", "--broker", "1", KEY)[0] == 0
    assert becomes(document, ("2000000", "all brokers, at run time"), "--broker", "1")


def test_a_key_that_is_read_at_the_start(run: Run) -> None:
    status, out, err = run("config", "set", "--broker", "1", "node.id=7")
    assert (status, out, err.count("\n")) == (1, "", 1)
    assert err.startswith("error: INVALID_REQUEST (42): broker 1: ")


def test_loggers(run: Run, document: Document) -> None:
    (described,) = document("config", "get", "--logger", "1")
    name, before = described["configs"][0]["key"], described["configs"][0]["value"]
    assert run("config", "set", "--logger", "1", f"{name}=WARN")[1] == (
        "loggers of broker 1: changed\n"
    )
    assert becomes(document, ("WARN", "logger"), "--logger", "1", key=name)
    assert run("config", "set", "--logger", "1", f"{name}={before}")[0] == 0
    status, _, err = run("config", "set", "--logger", "1", "no.such.logger=WARN")
    assert status == 1 and "INVALID_CONFIG (40)" in err


def test_groups(run: Run, document: Document, name: str) -> None:
    assert value(document, "-g", name, key=GROUP_KEY)[1] != "group"
    assert run("config", "set", "-g", name, f"{GROUP_KEY}=46000")[1] == f"group {name}: changed\n"
    assert becomes(document, ("46000", "group"), "-g", name, key=GROUP_KEY)
    before = document("config", "explain", GROUP_KEY, "-g", "another")[0]
    assert run("config", "unset", "-g", name, GROUP_KEY)[0] == 0
    assert becomes(document, (before["value"], before["source"]), "-g", name, key=GROUP_KEY)


@pytest.mark.parametrize(
    ("words", "status", "line"),
    [
        (["get"], 2, "nothing is named -> give one of -t, --broker, --logger, -g"),
        (["get", "-t", "x", "-g", "y"], 2, "-t and -g exclude each other"),
        (["get", "--broker", "x"], 2, "'x' is no broker"),
        (["get", "--logger", "all"], 2, "'all' is no broker"),
        (["get", "--broker", "99"], 1, "there is no broker 99 -> there are: 1"),
        (["get", "--broker", "1", "nope"], 2, "there is no broker key nope"),
        (["explain", "nope", "--broker", "1"], 2, "there is no broker key nope"),
        (["get", "-t", "no-such-topic"], 1, "UNKNOWN_TOPIC_OR_PARTITION (3)"),
        (["explain", "node.id", "--broker", "1", "--config", "f"], 2, "has its own file"),
        (["set", "--broker", "1", "novalue"], 2, "is no KEY=VALUE"),
        (["set", "-t", "no-such-topic", "retention.ms=5"], 1, "UNKNOWN_TOPIC_OR_PARTITION (3)"),
    ],
)
@pytest.mark.timeout(20)  # none of them is tried again until the client's time is over
def test_values_that_cannot_be(run: Run, words: list[str], status: int, line: str) -> None:
    got, out, err = run("config", *words)
    assert (got, out, err.count("\n")) == (status, "", 1), err
    assert line in err
