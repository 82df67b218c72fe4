"""`kbroker group`: the offsets that each mode of a reset must give, members, what is refused."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest

from kbroker.peer.client import Client
from kbroker.peer.groups import Groups
from kbroker.types import TopicPartition
from tests.system.cli.conftest import Document, MakeTopic, Run

SECONDS_MAX = 60


def commit(client: Client, group: str, topic: str, *offsets: int) -> None:
    errors = Groups(client).commit(
        group, {TopicPartition(topic, index): offset for index, offset in enumerate(offsets)}
    )
    assert set(errors.values()) == {0}


def committed(client: Client, group: str) -> list[int]:
    offsets = Groups(client).offsets(group)
    return [offsets[where].offset for where in sorted(offsets)]


def test_list_describe_delete(
    run: Run, document: Document, client: Client, make_topic: MakeTopic, name: str
) -> None:
    topic = make_topic(2, records=5)
    commit(client, name, topic, 3)
    listed = {each["group"]: each for each in document("group", "list")}
    assert listed[name]["state"] == "Empty"
    assert name in run("group", "list", "--state", "empty")[1]
    assert name not in run("group", "list", "--state", "Stable")[1]
    (described,) = document("group", "describe", name)
    assert (described["group"], described["state"], described["lag"]) == (name, "Empty", 2)
    assert described["coordinator"] == listed[name]["coordinator"]
    (row,) = described["partitions"]
    assert (row["committed"], row["end"], row["lag"], row["member_id"]) == (3, 5, 2, None)
    out = run("group", "describe", name)[1].splitlines()
    assert out[0] == f"{name}  Empty, 0 members, coordinator {listed[name]['coordinator']}, lag 2"
    assert out[2].split() == [topic, "0", "3", "5", "2", "-", "-", "-"]

    status, out_text, err = run("group", "delete", name)
    assert (status, out_text) == (0, f"{name}: would be deleted\n")
    assert "--execute" in err
    assert committed(client, name) == [3]
    assert run("group", "delete", name, "--execute") == (0, f"{name}: deleted\n", "")
    assert committed(client, name) == []
    for words in (["describe", name], ["delete", name], ["delete", name, "--execute"]):
        status, out_text, err = run("group", *words)
        assert (status, out_text) == (1, "") and err.count("\n") == 1
        assert "GROUP_ID_NOT_FOUND (69)" in err


@pytest.mark.parametrize(
    ("mode", "after"),
    [
        (["--to-earliest"], [2, 2]),
        (["--to-latest"], [10, 10]),
        (["--to-current"], [5, 10]),
        (["--to-offset", "7"], [7, 7]),
        (["--to-offset", "99"], [10, 10]),
        (["--to-offset", "0"], [2, 2]),
        (["--to-datetime", "1970-01-01T00:00:01.004"], [4, 4]),
        (["--to-datetime", "1970-01-01T01:00:01.004+01:00"], [4, 4]),
        (["--to-datetime", "1008"], [8, 8]),
        (["--to-datetime", "2030-01-01T00:00:00"], [10, 10]),
        (["--by-duration", "P1D"], [10, 10]),
        (["--by-duration", "P99999D"], [2, 2]),
        (["--shift-by", "2"], [7]),
        (["--shift-by", "-2"], [3]),
        (["--shift-by", "-9"], [2]),
        (["--shift-by", "99"], [10]),
    ],
)
def test_every_way_to_reset(
    run: Run, client: Client, make_topic: MakeTopic, name: str, mode: list[str], after: list[int]
) -> None:
    """Two partitions of records 2 to 9, written at 1002 ms and so on; 5 is committed for one."""
    topic = make_topic(2, records=10)
    assert run("topic", "trim-prefix", topic, "--before", "2")[0] == 0
    commit(client, name, topic, 5)
    status, out, err = run("group", "reset", name, "-t", topic, *mode)
    assert status == 0 and "dry run" in err
    assert [int(line.split()[3]) for line in out.splitlines()[1:]] == after
    assert committed(client, name) == [5], "a dry run changes nothing"
    status, again, err = run("group", "reset", name, "-t", topic, *mode, "--execute")
    assert (status, again, "dry run" in err) == (0, out, False)
    assert committed(client, name) == after


def test_export_and_from_file(
    run: Run, document: Document, client: Client, make_topic: MakeTopic, name: str, tmp_path: Path
) -> None:
    topic = make_topic(3, records=10)
    commit(client, name, topic, 1, 2, 3)
    status, lines, err = run("group", "reset", name, "--all-topics", "--to-current", "--export")
    assert (status, err) == (0, "")
    assert lines == f"{topic},0,1\n{topic},1,2\n{topic},2,3\n"
    file = tmp_path / "offsets.csv"
    file.write_text(f"\n{topic},2,9\n{name},{topic},0,4\nother,{topic},1,7\n")
    assert document("group", "reset", name, "--from-file", str(file), "--execute") == [
        {"topic": topic, "partition": 0, "before": 1, "after": 4, "executed": True,
         "error": "NONE"},
        {"topic": topic, "partition": 2, "before": 3, "after": 9, "executed": True,
         "error": "NONE"},
    ]  # fmt: skip
    assert committed(client, name) == [4, 2, 9]


def test_some_partitions_and_delete_offsets(
    run: Run, client: Client, make_topic: MakeTopic, name: str
) -> None:
    topic = make_topic(3, records=10)
    commit(client, name, topic, 1, 2, 3)
    words = ["group", "reset", name, "-t", f"{topic}:0,2", "--to-offset", "6", "--execute"]
    assert run(*words)[0] == 0
    assert committed(client, name) == [6, 2, 6]
    words = ["group", "delete-offsets", name, "-t", f"{topic}:1"]
    assert run(*words)[:2] == (0, f"{topic}-1: would be forgotten\n")
    assert committed(client, name) == [6, 2, 6]
    assert run(*words, "--execute") == (0, f"{topic}-1: forgotten\n", "")
    assert committed(client, name) == [6, 6]


@pytest.mark.parametrize(
    ("words", "status", "line"),
    [
        (["-t", "{topic}"], 2, "no new position"),
        (["-t", "{topic}", "--to-earliest", "--to-latest"], 2, "2 new positions"),
        (["--to-earliest"], 2, "no topics"),
        (["-t", "{topic}", "--all-topics", "--to-latest"], 2, "named in two ways"),
        (["-t", "{topic}:x", "--to-latest"], 2, "names no partitions"),
        (["-t", "{topic}", "--to-datetime", "soon"], 2, "'soon' is no moment"),
        (["-t", "{topic}", "--by-duration", "long"], 2, "'long' is no span"),
        (["-t", "{topic}", "--to-offset", "-1"], 2, "Invalid value for '--to-offset'"),
        (["-t", "{topic}:7", "--to-latest"], 1, "has partitions 0-0, not 7"),
        (["-t", "no-such-topic", "--to-latest"], 1, "UNKNOWN_TOPIC_OR_PARTITION (3)"),
        (["--all-topics", "--to-latest"], 1, "has committed nothing"),
        (["--from-file", "/no/such/file"], 1, "cannot read /no/such/file: No such file"),
    ],
)
def test_resets_that_cannot_be(
    run: Run, make_topic: MakeTopic, name: str, words: list[str], status: int, line: str
) -> None:
    topic = make_topic()
    got, out, err = run("group", "reset", name, *[word.format(topic=topic) for word in words])
    assert (got, out, err.count("\n")) == (status, "", 1), err
    assert line in err


@contextmanager
def consumer(bootstrap: str, *words: str) -> Iterator[subprocess.Popen[bytes]]:
    """`kbroker consume` as a process; interrupted at the end."""
    process = subprocess.Popen(
        [sys.executable, "-m", "kbroker", "consume", *words, "-b", bootstrap],
        stdout=subprocess.PIPE,
    )
    try:
        yield process
    finally:
        process.terminate()
        process.communicate(timeout=SECONDS_MAX)


def states(document: Document, name: str) -> Any:
    return {each["group"]: each["state"] for each in document("group", "list")}.get(name)


def wait_until(condition: Any) -> None:
    """Polls a condition that other processes bring about."""
    deadline = time.monotonic() + SECONDS_MAX
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.1)


def test_consume_as_a_member_goes_on_where_it_stopped(
    run: Run, document: Document, client: Client, make_topic: MakeTopic, name: str, bootstrap: str
) -> None:
    topic = make_topic(2, records=5)
    words = [topic, "-G", name, "-f", "%p:%s "]
    assert sorted(run("consume", *words, "-e")[1].split()) == [
        f"{partition}:{number}" for partition in (0, 1) for number in range(5)
    ]
    assert committed(client, name) == [5, 5]
    assert states(document, name) == "Empty", "it has left"
    assert run("consume", *words, "-e") == (0, "", "")
    run("group", "reset", name, "-t", topic, "--to-earliest", "--execute")
    status, out, _ = run("consume", *words, "-c", "3")
    assert (status, len(out.split())) == (0, 3)
    assert sum(committed(client, name)) == 3, "what was not printed is not committed"
    assert len(run("consume", *words, "-e")[1].split()) == 7


def test_a_group_of_the_consumer_protocol(
    run: Run, document: Document, client: Client, make_topic: MakeTopic, name: str, bootstrap: str
) -> None:
    topic = make_topic(2, records=3)
    member = confluent_kafka.Consumer(
        {
            "bootstrap.servers": bootstrap, "group.id": name, "group.protocol": "consumer",
            "auto.offset.reset": "earliest", "enable.auto.commit": False,
        }
    )  # fmt: skip
    member.subscribe([topic])
    try:
        read: list[Any] = []
        wait_until(lambda: bool(read.extend(member.consume(6, 0.2)) or len(read) >= 6))
        member.commit(asynchronous=False)
        (described,) = document("group", "describe", name)
        assert (described["state"], described["protocol_type"]) == ("Stable", "consumer")
        (one,) = described["members"]
        assert one["partitions"] == [f"{topic}-0", f"{topic}-1"]
        assert {row["member_id"] for row in described["partitions"]} == {one["member_id"]}
        for words in (["delete", name], ["delete", name, "--execute"]):
            status, out, err = run("group", *words)
            assert (status, out) == (1, "") and "NON_EMPTY_GROUP (68)" in err
        for more in ([], ["--execute"]):
            status, _, err = run("group", "delete-offsets", name, "-t", topic, *more)
            assert status == 1 and "GROUP_SUBSCRIBED_TO_TOPIC (86)" in err
    finally:
        member.close()
    wait_until(lambda: states(document, name) == "Empty")
    (described,) = document("group", "describe", name)
    assert (described["state"], described["members"], described["lag"]) == ("Empty", [], 0)
    words = ["group", "delete-offsets", name, "-t", f"{topic}:1"]
    assert run(*words)[:2] == (0, f"{topic}-1: would be forgotten\n")
    assert run("group", "delete", name)[:2] == (0, f"{name}: would be deleted\n")
    assert run("group", "delete", name, "--execute") == (0, f"{name}: deleted\n", "")


def test_two_members_share_and_take_over(
    run: Run, document: Document, client: Client, make_topic: MakeTopic, name: str, bootstrap: str
) -> None:
    topic = make_topic(4, records=3)

    def shares() -> list[int]:
        (described,) = document("group", "describe", name)
        return sorted(len(member["partitions"]) for member in described["members"])

    with consumer(bootstrap, topic, "-G", name, "--from-beginning") as first:
        wait_until(lambda: states(document, name) == "Stable" and shares() == [4])
        with consumer(bootstrap, topic, "-G", name, "--instance-id", "two") as second:
            wait_until(lambda: states(document, name) == "Stable" and shares() == [2, 2])
            (described,) = document("group", "describe", name)
            assert described["protocol"] == "range"
            assert {member["instance_id"] for member in described["members"]} == {None, "two"}
            out = run("group", "describe", "-m", name)[1]
            assert f"{topic}-0 {topic}-1" in out and f"{topic}-2 {topic}-3" in out
            for words in (["delete", name], ["delete", name, "--execute"]):
                status, out, err = run("group", *words)
                assert (status, out) == (1, "") and "NON_EMPTY_GROUP (68)" in err
            status, _, err = run("group", "delete-offsets", name, "-t", topic, "--execute")
            assert status == 1 and "GROUP_SUBSCRIBED_TO_TOPIC (86)" in err
            status, _, err = run("group", "reset", name, "-t", topic, "--to-latest")
            assert (status, err.count("\n")) == (1, 1) and "stop its consumers first" in err
            assert first.poll() is None and second.poll() is None
        # A static member that goes away keeps its place; the first one keeps its own half.
        wait_until(lambda: states(document, name) == "Stable" and shares() == [2, 2])
    assert first.returncode == 130
