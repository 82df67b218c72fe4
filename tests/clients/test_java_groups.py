"""Apache Kafka 4.3.0's own tools that work with groups, unchanged; test_java.py has the others."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.clients.adapters import Confluent, Record
from tests.clients.agents.driver import Agent, Partition, eventually
from tests.clients.agents.groups import Groups
from tests.clients.agents.programs import LIBRARIES
from tests.clients.agents.tools import Tool, Tools
from tests.clients.conftest import Server
from tests.support import requirements

pytestmark = [pytest.mark.client, pytest.mark.java, pytest.mark.timeout(240)]

GROUP_COMMAND = "consumer.group.ConsumerGroupCommand"
NOON_MS = 1_700_000_000_000  # 2023-11-14T22:13:20Z
CONFLUENT = LIBRARIES[0]

MakeTopic = Callable[..., str]


@pytest.fixture
def tool(tools: Tools, bootstrap: str) -> Tool:
    return Tool(tools, bootstrap)


class Orders:
    """A topic of 20 records a second apart, and a group that has committed 10 of them."""

    def __init__(self, topic: str, group: str) -> None:
        self.topic, self.group = topic, group
        self.at: Partition = (topic, 0)


@pytest.fixture
def orders(
    make_topic: MakeTopic, bootstrap: str, running: Callable[..., Agent], groups: Groups
) -> Orders:
    made = Orders(make_topic(retention_ms=-1), "")
    made.group = f"group-of-{made.topic}"
    records = [Record(b"%d" % n, timestamp_ms=NOON_MS + 1000 * n) for n in range(20)]
    client = Confluent(bootstrap)
    client.produce(made.topic, records[:10])
    agent = running(CONFLUENT)
    agent.join(made.group, made.group, [made.topic], "range")
    count = 0

    def all_came() -> bool:
        nonlocal count
        count += len(agent.take(made.group))
        return count == 10

    eventually(all_came, "ten records come")
    agent.commit(made.group)
    client.produce(made.topic, records[10:])
    return made


def rows(printed: str) -> list[dict[str, str]]:
    """The tool's table: its header's names, and a dictionary a line."""
    lines = [line.split() for line in printed.splitlines() if line.strip()]
    while lines and lines[0][0] != "GROUP":  # warnings come first
        lines.pop(0)
    return [dict(zip(lines[0], line, strict=False)) for line in lines[1:]]


def test_describe_list_delete(
    tool: Tool, orders: Orders, running: Callable[..., Agent], groups: Groups
) -> None:
    group, topic = orders.group, orders.topic
    assert group in tool.run(GROUP_COMMAND, "--list").split()
    stable = {
        row["GROUP"]: row["STATE"] for row in rows(tool.run(GROUP_COMMAND, "--list", "--state"))
    }
    assert stable[group] == "Stable"
    (found,) = rows(tool.run(GROUP_COMMAND, "--describe", "--group", group))
    assert found["GROUP"] == group and found["TOPIC"] == topic and found["PARTITION"] == "0"
    assert (found["CURRENT-OFFSET"], found["LOG-END-OFFSET"], found["LAG"]) == ("10", "20", "10")
    assert found["CONSUMER-ID"].startswith("rdkafka-") and found["HOST"] == "/127.0.0.1"
    (member,) = rows(
        tool.run(GROUP_COMMAND, "--describe", "--group", group, "--members", "--verbose")
    )
    assert member["#PARTITIONS"] == "1" and f"{topic}:0" in " ".join(member.values())
    (state,) = rows(tool.run(GROUP_COMMAND, "--describe", "--group", group, "--state"))
    assert "Stable" in state.values() and "range" in state.values()

    in_use = tool.attempt(GROUP_COMMAND, "--bootstrap-server", tool.bootstrap, "--delete",
                          "--group", group)  # fmt: skip
    assert b"GroupNotEmptyException" in in_use.stdout + in_use.stderr
    running(CONFLUENT).leave(group)
    (state,) = rows(tool.run(GROUP_COMMAND, "--describe", "--group", group, "--state"))
    assert "Empty" in state.values()
    output = tool.run(GROUP_COMMAND, "--delete-offsets", "--group", group, "--topic", topic)
    assert "Request succeed" in output
    assert groups.committed(group) == {}
    assert "was successful" in tool.run(GROUP_COMMAND, "--delete", "--group", group)
    assert group not in tool.run(GROUP_COMMAND, "--list").split()
    gone = tool.attempt(GROUP_COMMAND, "--bootstrap-server", tool.bootstrap, "--describe",
                        "--group", group)  # fmt: skip
    assert b"GroupIdNotFoundException" in gone.stdout + gone.stderr


RESETS = {
    "to-earliest": (("--to-earliest",), 0),
    "to-latest": (("--to-latest",), 20),
    "to-offset": (("--to-offset", "7"), 7),
    "to-offset beyond": (("--to-offset", "99"), 20),
    "to-current": (("--to-current",), 10),
    "shift back": (("--shift-by", "-4"), 6),
    "shift forward": (("--shift-by", "3"), 13),
    "shift beyond": (("--shift-by", "-99"), 0),
    "to-datetime": (("--to-datetime", "2023-11-14T22:13:25.000"), 5),
    "by-duration": (("--by-duration", "PT1H"), 20),
}


def test_every_way_to_reset(
    tool: Tool, orders: Orders, running: Callable[..., Agent], groups: Groups, tmp_path: Path
) -> None:
    group, topic = orders.group, orders.topic
    reset = (GROUP_COMMAND, "--reset-offsets", "--group", group, "--topic", topic)

    active = tool.run(*reset, "--to-earliest", "--execute")
    assert "inactive" in active and groups.committed(group) == {orders.at: 10}
    running(CONFLUENT).leave(group)

    for name, (how, wanted) in RESETS.items():
        (dry,) = rows(tool.run(*reset, *how, "--dry-run"))
        assert int(dry["NEW-OFFSET"]) == wanted, name
        assert groups.committed(group) == {orders.at: 10}, name
        tool.run(*reset, *how, "--execute")
        assert groups.committed(group) == {orders.at: wanted}, name
        tool.run(*reset, "--to-offset", "10", "--execute")
    plan = tmp_path / "plan.csv"
    plan.write_text(tool.run(*reset, "--to-offset", "3", "--dry-run", "--export"))
    assert plan.read_text().strip() == f'"{topic}",0,3'
    tool.run(GROUP_COMMAND, "--reset-offsets", "--group", group, "--from-file", str(plan),
             "--execute")  # fmt: skip
    assert groups.committed(group) == {orders.at: 3}


def test_console_consumer_in_a_group(tool: Tool, make_topic: MakeTopic, groups: Groups) -> None:
    topic = make_topic(partitions=2)
    tool.run("ConsoleProducer", "--topic", topic, stdin=b"one\ntwo\nthree\n")

    def consume(count: int) -> set[str]:
        return set(
            tool.run("consumer.ConsoleConsumer", "--topic", topic, "--group", f"console-{topic}",
                     "--from-beginning", "--max-messages", str(count)).split()
        )  # fmt: skip

    assert consume(3) == {"one", "two", "three"}
    assert sum(groups.committed(f"console-{topic}").values()) == 3
    tool.run("ConsoleProducer", "--topic", topic, stdin=b"four\n")
    assert consume(1) == {"four"}


def test_verifiable_producer_and_consumer(tool: Tool, topic: str) -> None:
    sent = [
        json.loads(line)
        for line in tool.run("VerifiableProducer", "--topic", topic, "--max-messages", "500",
                             "--throughput", "-1").splitlines()
    ]  # fmt: skip
    assert sum(line["name"] == "producer_send_success" for line in sent) == 500
    (summary,) = (line for line in sent if line["name"] == "tool_data")
    assert (summary["sent"], summary["acked"]) == (500, 500)
    read = [
        json.loads(line)
        for line in tool.run("VerifiableConsumer", "--topic", topic, "--group-id",
                             f"verify-{topic}", "--max-messages", "500",
                             "--reset-policy", "earliest").splitlines()
        if line.startswith("{")
    ]  # fmt: skip
    assert sum(line["count"] for line in read if line["name"] == "records_consumed") == 500
    (committed, *_) = reversed([line for line in read if line["name"] == "offsets_committed"])
    assert committed["success"] and committed["offsets"][0]["offset"] == 500


def test_consumer_performance_and_latency(tool: Tool, topic: str, bootstrap: str) -> None:
    Confluent(bootstrap).produce(topic, [Record(b"x" * 100)] * 5000)
    # Its own patience of 10 s has the join in it.
    output = tool.run("ConsumerPerformance", "--topic", topic, "--num-records", "5000",
                    "--group", f"perf-{topic}", "--timeout", "60000")  # fmt: skip
    header, figures = (line.split(", ") for line in output.strip().splitlines()[-2:])
    assert dict(zip(header, figures, strict=True))["data.consumed.in.nMsg"] == "5000"
    output = tool.run("EndToEndLatency", "--topic", topic, "--num-records", "50",
                    "--producer-acks", "all", "--record-size", "100")  # fmt: skip
    assert re.search(r"Percentiles: 50th = \d+, 99th = \d+, 99.9th = \d+", output)


def test_apache_kafka_reads_the_groups_files(
    tool: Tool, server: Server, orders: Orders, running: Callable[..., Agent]
) -> None:
    """Offsets and group metadata, decoded by its own DumpLogSegments."""
    if server.data_dir is None:
        requirements.skip_missing("the broker's data directory", "name it: KBROKER_TEST_DATA_DIR")
    running(CONFLUENT).leave(orders.group)
    found = ""
    for log in server.data_dir.glob("__consumer_offsets-*/*.log"):
        if log.stat().st_size:
            ran = tool.attempt("DumpLogSegments", "--offsets-decoder", "--files", str(log))
            assert ran.returncode == 0, ran.stderr.decode()
            found += ran.stdout.decode()
    ours = [line for line in found.splitlines() if f'"{orders.group}"' in line]
    commits = [line for line in ours if f'"topic":"{orders.topic}"' in line]
    assert commits and '"offset":10' in commits[-1]
    assert any('"protocol":"range"' in line and '"members":[{' in line for line in ours)
    assert '"members":[]' in ours[-1]  # it was left


def test_the_consumer_protocol(
    tool: Tool, make_topic: MakeTopic, bootstrap: str, groups: Groups
) -> None:
    """A console consumer with group.protocol=consumer, and the tools with its group."""
    topic = make_topic(partitions=2, retention_ms=-1)
    group = f"group-of-{topic}"
    Confluent(bootstrap).produce(topic, [Record(b"%d" % n) for n in range(10)])
    read = tool.run(
        "consumer.ConsoleConsumer", "--topic", topic, "--group", group, "--from-beginning",
        "--command-property", "group.protocol=consumer", "--max-messages", "10",
    )  # fmt: skip
    assert sorted(read.split()) == sorted(str(n) for n in range(10))
    (state,) = rows(tool.run(GROUP_COMMAND, "--describe", "--group", group, "--state"))
    assert state["STATE"] == "Empty"
    listed = rows(tool.run(GROUP_COMMAND, "--list", "--type", "consumer"))
    assert {"GROUP": group, "TYPE": "Consumer"} in listed
    assert sum(offset for offset in groups.committed(group).values()) == 10
    assert "was successful" in tool.run(GROUP_COMMAND, "--delete", "--group", group)
    assert group not in tool.run(GROUP_COMMAND, "--list").split()
