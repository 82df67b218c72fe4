"""`kbroker topic` through the real entry point, against the fake broker."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator

import pytest

from kbroker.cli.main import main
from kbroker.errors import ErrorCode
from kbroker.types import ApiKey
from tests.unit.peer.fake_broker import FakeBroker

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def broker() -> Iterator[FakeBroker]:
    with FakeBroker() as fake:
        yield fake


@pytest.fixture
def run(broker: FakeBroker, capsys: pytest.CaptureFixture[str]) -> Run:
    def kbroker(*words: str) -> tuple[int, str, str]:
        status = main([*words, "-b", broker.bootstrap])
        captured = capsys.readouterr()
        return status, captured.out, captured.err

    return kbroker


def test_create(run: Run, broker: FakeBroker) -> None:
    words = ["topic", "create", "a", "b", "-p", "3", "-r", "1", "-c", "retention.ms=60000"]
    assert run(*words) == (0, "a: created\nb: created\n", "")
    assert len(broker.topics["b"].partitions) == 3
    assert broker.topics["a"].configs == {"retention.ms": "60000"}


def test_create_without_numbers_leaves_them_to_the_broker(run: Run, broker: FakeBroker) -> None:
    assert run("topic", "create", "a")[0] == 0
    (topic,) = broker.seen(ApiKey.CREATE_TOPICS)[0].topics
    assert (topic.num_partitions, topic.replication_factor) == (-1, -1)


def test_create_as_a_dry_run(run: Run, broker: FakeBroker) -> None:
    assert run("topic", "create", "a", "--dry-run") == (0, "a: would be created\n", "")
    assert not broker.topics


def test_one_topic_that_fails_does_not_stop_the_others(run: Run, broker: FakeBroker) -> None:
    broker.add_topic("a")
    broker.add_topic("b")
    status, out, err = run("topic", "create", "a", "b", "c")
    assert (status, out) == (1, "c: created\n")
    assert err.splitlines() == [
        f"error: TOPIC_ALREADY_EXISTS (36): {name}: there already" for name in ("a", "b")
    ]
    status, out, err = run("topic", "create", "a", "d", "-o", "json")
    assert status == 1
    assert [entry["error"] for entry in json.loads(out)] == ["TOPIC_ALREADY_EXISTS", "NONE"]


@pytest.mark.parametrize("text", ["retention.ms", "=5", ""])
def test_a_config_that_is_no_pair(run: Run, text: str) -> None:
    status, _, err = run("topic", "create", "a", "-c", text)
    assert status == 2 and err.count("\n") == 1 and "KEY=VALUE" in err


def test_add_partitions(run: Run, broker: FakeBroker) -> None:
    topic = broker.add_topic("a", 2)
    words = ["topic", "add-partitions", "a", "3"]
    assert run(*words, "--dry-run") == (0, "a: would have 5 partitions\n", "")
    assert len(topic.partitions) == 2
    assert run(*words) == (0, "a: has 5 partitions\n", "")
    assert len(topic.partitions) == 5
    assert json.loads(run(*words, "-o", "json")[1])[0]["error"] == "NONE"
    assert len(topic.partitions) == 8


def test_add_partitions_that_cannot_be(run: Run, broker: FakeBroker) -> None:
    status, out, err = run("topic", "add-partitions", "none", "3")
    assert (status, out) == (1, "") and "UNKNOWN_TOPIC_OR_PARTITION" in err
    broker.add_topic("a", 2)
    broker.script(ApiKey.CREATE_PARTITIONS, ErrorCode.INVALID_PARTITIONS)
    status, out, err = run("topic", "add-partitions", "a", "1")
    assert (status, out) == (1, "") and "INVALID_PARTITIONS" in err
    for count in ("0", "-1", "x"):
        assert run("topic", "add-partitions", "a", count)[0] == 2


def test_trim_prefix(run: Run, broker: FakeBroker) -> None:
    topic = broker.add_topic("a", 3)
    for partition in topic.partitions.values():
        partition.end = 9
    assert run("topic", "trim-prefix", "a", "-p", "1", "--before", "4") == (
        0,
        "a-1: begins at 4\n",
        "",
    )
    assert run("topic", "trim-prefix", "a", "--before", "2")[1].splitlines() == [
        "a-0: begins at 2",
        "a-1: begins at 4",
        "a-2: begins at 2",
    ]
    words = ["topic", "trim-prefix", "a", "-p", "2", "-p", "0", "--before", "end", "-o", "json"]
    assert json.loads(run(*words)[1]) == [
        {"partition": index, "error": "NONE", "log_start_offset": 9} for index in (0, 2)
    ]


def test_trim_prefix_that_cannot_be(run: Run, broker: FakeBroker) -> None:
    topic = broker.add_topic("a", 3)
    topic.partitions[1].end = 9
    status, out, err = run("topic", "trim-prefix", "a", "--before", "5")
    assert (status, out) == (1, "a-1: begins at 5\n")
    assert [line.split(": ")[-1] for line in err.splitlines()] == ["a-0", "a-2"]
    assert err.count("OFFSET_OUT_OF_RANGE") == 2
    status, out, err = run("topic", "trim-prefix", "a", "-p", "3", "--before", "5")
    assert (status, out) == (1, "") and "a-3" in err
    assert run("topic", "trim-prefix", "none", "--before", "5")[0] == 1
    for before in ("-1", "x", "", "1.5"):
        status, _, err = run("topic", "trim-prefix", "a", f"--before={before}")
        assert status == 2 and "is no offset" in err
    assert run("topic", "trim-prefix", "a")[0] == 2


def test_list(run: Run, broker: FakeBroker) -> None:
    assert run("topic", "list") == (0, "", "")
    assert run("topic", "list", "-o", "json") == (0, "[]\n", "")
    broker.add_topic("b-long-name", 12)
    broker.add_topic("a")
    broker.add_topic("__hidden", internal=True)
    assert run("topic", "list")[1].splitlines() == [
        "NAME         PARTITIONS  REPLICAS",
        "a            1           1",
        "b-long-name  12          1",
    ]
    listed = json.loads(run("topic", "list", "--internal", "-o", "json")[1])
    assert [entry["name"] for entry in listed] == ["__hidden", "a", "b-long-name"]
    assert listed[2] == {"name": "b-long-name", "partitions": 12, "replication_factor": 1}


def test_describe(run: Run, broker: FakeBroker) -> None:
    topic = broker.add_topic("a", 2, configs={"retention.ms": "60000"})
    topic.partitions[1].end = 50
    topic.partitions[1].start = 10
    status, out, _ = run("topic", "describe", "a")
    assert status == 0
    lines = out.splitlines()
    assert lines[0].startswith("a  id ") and "2 partitions" in lines[0]
    assert lines[1] == "  retention.ms=60000", "defaults are not repeated"
    assert [line.split() for line in lines[3:]] == [
        ["0", "7", "3", "7", "7", "0", "0"],
        ["1", "7", "3", "7", "7", "10", "50"],
    ]
    (described,) = json.loads(run("topic", "describe", "a", "-o", "json")[1])
    assert described["configs"] == {"retention.ms": "60000"}
    assert described["partitions"][1]["log_end_offset"] == 50
    assert len(described["topic_id"]) == 22


def test_describing_an_unknown_topic(run: Run) -> None:
    status, out, err = run("topic", "describe", "nope")
    assert (status, out) == (1, "")
    assert err == "error: UNKNOWN_TOPIC_OR_PARTITION (3): topic 'nope'\n"


def test_delete(run: Run, broker: FakeBroker) -> None:
    broker.add_topic("a")
    status, out, err = run("topic", "delete", "a", "zz")
    assert (status, out) == (1, "a: deleted\n")
    assert err.startswith("error: UNKNOWN_TOPIC_OR_PARTITION (3): zz")
    assert not broker.topics


def test_a_refusal_of_the_whole_request(run: Run, broker: FakeBroker) -> None:
    broker.script(ApiKey.CREATE_TOPICS, ErrorCode.POLICY_VIOLATION)
    status, _, err = run("topic", "create", "a")
    assert status == 1 and err.startswith("error: POLICY_VIOLATION (44)")


def test_the_bootstrap_variable(
    broker: FakeBroker, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    broker.add_topic("a")
    monkeypatch.setenv("KBROKER_BOOTSTRAP", broker.bootstrap)
    assert main(["topic", "list"]) == 0
    assert "a " in capsys.readouterr().out


def test_no_broker_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["topic", "list", "-b", "127.0.0.1:1"]) == 1
    err = capsys.readouterr().err
    assert err.count("\n") == 1 and "127.0.0.1:1" in err and "is the broker running?" in err
    assert main(["topic", "list", "-b", "127.0.0.1:x"]) == 1
    assert "host:port" in capsys.readouterr().err
