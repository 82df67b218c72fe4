"""`kbroker config get|set|unset` and `kbroker logdirs` through the real entry point."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator

import pytest

from kbroker.cli.main import main
from kbroker.types import ApiKey
from tests.unit.peer.fake_broker import FakeBroker

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def broker() -> Iterator[FakeBroker]:
    with FakeBroker() as fake:
        fake.add_topic("a")
        fake.add_topic("b")
        yield fake


@pytest.fixture
def run(broker: FakeBroker, capsys: pytest.CaptureFixture[str]) -> Run:
    def kbroker(*words: str) -> tuple[int, str, str]:
        status = main([*words, "-b", broker.bootstrap])
        captured = capsys.readouterr()
        return status, captured.out, captured.err

    return kbroker


def test_set_and_unset(run: Run, broker: FakeBroker) -> None:
    words = ["config", "set", "-t", "a", "-t", "b", "retention.ms=5", "cleanup.policy=compact"]
    assert run(*words) == (0, "a: changed\nb: changed\n", "")
    for topic in ("a", "b"):
        assert broker.topics[topic].configs == {"retention.ms": "5", "cleanup.policy": "compact"}
    assert run("config", "unset", "-t", "a", "retention.ms") == (0, "a: changed\n", "")
    assert broker.topics["a"].configs == {"cleanup.policy": "compact"}


def test_a_dry_run_changes_nothing(run: Run, broker: FakeBroker) -> None:
    words = ["config", "set", "-t", "a", "retention.ms=5", "--dry-run"]
    assert run(*words) == (0, "a: would be changed\n", "")
    assert broker.topics["a"].configs == {}
    (request,) = broker.seen(ApiKey.INCREMENTAL_ALTER_CONFIGS)
    assert request.validate_only


def test_a_topic_that_is_refused_does_not_stop_the_others(run: Run) -> None:
    status, out, err = run("config", "set", "-t", "none", "-t", "a", "retention.ms=5")
    assert (status, out) == (1, "a: changed\n")
    assert err == "error: UNKNOWN_TOPIC_OR_PARTITION (3): none: not there\n"
    status, out, err = run("config", "unset", "-t", "none", "x", "-o", "json")
    assert (status, err) == (1, "")
    assert [each["error"] for each in json.loads(out)] == ["UNKNOWN_TOPIC_OR_PARTITION"]


def test_get(run: Run) -> None:
    run("config", "set", "-t", "a", "retention.ms=5")
    assert run("config", "get", "-t", "a") == (
        0,
        "TOPIC  KEY           VALUE  FROM\na      retention.ms  5      topic\n",
        "",
    )
    assert run("config", "get", "-t", "b") == (0, "", "")
    (document,) = json.loads(run("config", "get", "-t", "b", "--all", "-o", "json")[1])
    assert document == {
        "topic": "b",
        "configs": [{"key": "segment.bytes", "value": "1073741824", "source": "default"}],
    }
    assert "segment.bytes" in run("config", "get", "-t", "a", "segment.bytes")[1]
    status, _, err = run("config", "get", "-t", "a", "nope")
    assert (status, "no topic key nope" in err) == (2, True)


@pytest.mark.parametrize(
    "words", [["set", "a=b"], ["set", "-t", "a"], ["set", "-t", "a", "retention.ms"], ["unset"]]
)
def test_wrong_words(run: Run, words: list[str]) -> None:
    assert run("config", *words)[0] == 2


def test_logdirs(run: Run) -> None:
    status, out, err = run("logdirs")
    assert (status, err) == (0, "")
    assert [line.split() for line in out.splitlines()] == [
        ["BROKER", "PARTITIONS", "BYTES", "FREE", "VOLUME", "DIRECTORY"],
        ["7", "2", "2000", "60000", "100000", "/data"],
    ]
    _, out, _ = run("logdirs", "a")
    assert out.splitlines()[1].split() == ["a", "0", "7", "1000", "0", "/data"]
    (document,) = json.loads(run("logdirs", "b", "-o", "json")[1])
    assert document["partitions"] == [
        {"topic": "b", "partition": 0, "size_bytes": 1000, "offset_lag": 0, "future": False}
    ]
    assert (document["broker"], document["error"], document["usable_bytes"]) == (7, "NONE", 60000)
