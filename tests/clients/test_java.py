"""Apache Kafka 4.3.0's own command-line tools and Java clients, unchanged, against the broker.

They run in one JVM (agents/tools.py); the jars come from tests/support/jars.py.
DumpLogSegments runs on the broker's files without the broker: what it reads is what an Apache Kafka
pointed at the directory would read.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.clients.adapters import CODECS, Admin, Confluent, Record
from tests.clients.agents.tools import Tool, Tools
from tests.clients.conftest import Server
from tests.support import batches, corpus, requirements

pytestmark = [pytest.mark.client, pytest.mark.java]


@pytest.fixture
def tool(tools: Tools, bootstrap: str) -> Tool:
    return Tool(tools, bootstrap)


def text_lines(size_bytes: int) -> list[str]:
    """Lines that mean the same to the tools' text readers as they do here."""
    decoded = (line.decode(errors="replace") for line in corpus.lines(size_bytes))
    return [line for line in decoded if line.isprintable()]


@pytest.mark.parametrize("codec", CODECS)
def test_console_producer_to_console_consumer(
    tool: Tool, codec: str, topic: str, batches_of: Callable[..., list[batches.Batch]]
) -> None:
    lines = text_lines(200_000)
    text = "".join(f"{line}\n" for line in lines)
    tool.run("ConsoleProducer", "--topic", topic, "--compression-codec", codec,
             stdin=text.encode())  # fmt: skip
    read = tool.run("consumer.ConsoleConsumer", "--topic", topic, "--partition", "0",
                    "--offset", "earliest", "--max-messages", str(len(lines)))  # fmt: skip
    assert read == text
    found = batches_of(topic)
    packed = [batch for batch in found if batch.record_count >= corpus.RECORDS_THAT_PACK]
    assert {batch.codec for batch in packed} == {codec}
    assert all(batch.producer_id >= 0 for batch in found)  # idempotent by default


def test_console_tools_with_keys_headers_and_an_offset(tool: Tool, topic: str) -> None:
    tool.run(
        "ConsoleProducer", "--topic", topic, "--command-property", "acks=1",
        "--command-property", "enable.idempotence=false",
        "--reader-property", "parse.key=true", "--reader-property", "parse.headers=true",
        stdin=b"h1:a,h2:b\tk0\tzero\nh1:c\tk1\tone\nh1:d\tk2\ttwo\n",
    )  # fmt: skip
    properties = [
        part
        for name in ("key", "offset", "partition", "headers")
        for part in ("--formatter-property", f"print.{name}=true")
    ]
    read = tool.run("consumer.ConsoleConsumer", "--topic", topic, "--partition", "0",
                    "--offset", "1", "--max-messages", "2", *properties)  # fmt: skip
    assert read.splitlines() == [
        "Partition:0\tOffset:1\th1:c\tk1\tone",
        "Partition:0\tOffset:2\th1:d\tk2\ttwo",
    ]


def test_a_topic_lives_by_kafka_topics(tool: Tool, admin: Admin) -> None:
    name = f"java-topic-{time.time_ns()}"
    created = tool.run("TopicCommand", "--create", "--topic", name, "--partitions", "3",
                       "--config", "retention.ms=60000")  # fmt: skip
    assert created.strip() == f"Created topic {name}."
    assert name in tool.run("TopicCommand", "--list").split()
    described = tool.run("TopicCommand", "--describe", "--topic", name).splitlines()
    summary = described[0]
    assert "PartitionCount: 3\tReplicationFactor: 1\t" in summary
    assert "retention.ms=60000" in summary
    assert re.search(r"TopicId: [A-Za-z0-9_-]{22}\t", summary)
    (node,) = admin.cluster().nodes
    for number, line in enumerate(described[1:]):
        wanted = f"Partition: {number}\tLeader: {node.id}\tReplicas: {node.id}\tIsr: {node.id}"
        assert wanted in line
    again = tool.attempt("TopicCommand", "--bootstrap-server", tool.bootstrap, "--create",
                         "--topic", name)  # fmt: skip
    assert again.returncode == 1
    assert f"Topic '{name}' already exists" in again.stdout.decode()
    tool.run("TopicCommand", "--delete", "--topic", name)
    gone = tool.attempt("TopicCommand", "--bootstrap-server", tool.bootstrap, "--describe",
                        "--topic", name)  # fmt: skip
    assert gone.returncode == 1
    assert f"Topic '{name}' does not exist as expected" in gone.stdout.decode()


def test_kafka_topics_adds_partitions(tool: Tool, topic: str, bootstrap: str) -> None:
    tool.run("TopicCommand", "--alter", "--topic", topic, "--partitions", "4")
    described = tool.run("TopicCommand", "--describe", "--topic", topic).splitlines()
    assert "PartitionCount: 4\t" in described[0] and len(described) == 5
    again = tool.attempt("TopicCommand", "--bootstrap-server", tool.bootstrap, "--alter",
                         "--topic", topic, "--partitions", "2")  # fmt: skip
    assert again.returncode == 1
    assert b"InvalidPartitionsException" in again.stdout + again.stderr
    (delivery,) = Confluent(bootstrap).produce(topic, [Record(b"x")], partition=3)
    assert (delivery.error, delivery.offset) == (0, 0)


def test_kafka_delete_records(tool: Tool, topic: str, bootstrap: str, tmp_path: Path) -> None:
    client = Confluent(bootstrap)
    client.produce(topic, [Record(b"%d" % number) for number in range(20)])
    wanted = tmp_path / "offsets.json"
    for offset, start in ((7, 7), (-1, 20)):
        partition = {"topic": topic, "partition": 0, "offset": offset}
        wanted.write_text(json.dumps({"partitions": [partition], "version": 1}))
        tool_output = tool.run("DeleteRecordsCommand", "--offset-json-file", str(wanted))
        assert f"partition: {topic}-0\tlow_watermark: {start}" in tool_output
        with client.consumer() as consumer:
            assert consumer.offsets(topic, 0) == (start, 20)
    wanted.write_text(
        json.dumps({"partitions": [{"topic": topic, "partition": 0, "offset": 21}], "version": 1})
    )
    tool_output = tool.run("DeleteRecordsCommand", "--offset-json-file", str(wanted))
    assert "OffsetOutOfRangeException" in tool_output


def test_kafka_configs(tool: Tool, topic: str) -> None:
    command = "kafka.admin.ConfigCommand"
    entity = ("--entity-type", "topics", "--entity-name", topic)

    def described(*arguments: str) -> str:
        return tool.run(command, *entity, "--describe", *arguments)

    settings = "retention.ms=60000,cleanup.policy=[compact,delete],max.message.bytes=2000"
    altered = tool.run(command, *entity, "--alter", "--add-config", settings)
    assert altered.strip() == f"Completed updating config for topic {topic}."
    tool_output = described()
    assert (
        "retention.ms=60000 sensitive=false synonyms={DYNAMIC_TOPIC_CONFIG:retention.ms=60000}"
        in (tool_output)
    )
    assert "cleanup.policy=compact,delete" in tool_output
    tool.run(command, *entity, "--alter", "--delete-config", "retention.ms")
    assert "retention.ms" not in described()
    everything = described("--all")
    assert "segment.bytes=1073741824" in everything and everything.count("sensitive=") >= 33
    for bad, word in (("nope=1", "Unknown"), ("retention.ms=x", "retention.ms")):
        refused = tool.attempt(
            command, "--bootstrap-server", tool.bootstrap, *entity, "--alter", "--add-config", bad
        )
        assert refused.returncode == 1
        output = (refused.stdout + refused.stderr).decode()
        assert "InvalidConfigurationException" in output and word.lower() in output.lower()
    broker = tool.run(command, "--entity-type", "brokers", "--all", "--describe",
                      "--entity-name", "1")  # fmt: skip
    assert "num.io.threads=8" in broker


def test_kafka_log_dirs(tool: Tool, topic: str, bootstrap: str, server: Server) -> None:
    Confluent(bootstrap).produce(topic, [Record(b"x" * 1000)])
    tool_output = tool.run("LogDirsCommand", "--describe", "--topic-list", topic)
    (line,) = [line for line in tool_output.splitlines() if line.startswith("{")]
    (broker,) = json.loads(line)["brokers"]
    (directory,) = broker["logDirs"]
    (partition,) = directory["partitions"]
    assert directory["error"] is None
    assert server.data_dir is None or directory["logDir"] == str(server.data_dir)
    assert (partition["partition"], partition["offsetLag"]) == (f"{topic}-0", 0)
    assert partition["size"] > 1000 and not partition["isFuture"]


def test_get_offsets(tool: Tool, make_topic: Callable[..., str], bootstrap: str) -> None:
    topic = make_topic(partitions=2)
    stamps = [0, 500, 300]
    client = Confluent(bootstrap)
    for stamp in stamps:
        client.produce(topic, [Record(b"x", timestamp_ms=1_700_000_000_000 + stamp)], partition=1)

    def offsets(*arguments: str) -> list[str]:
        return tool.run("GetOffsetShell", "--topic", topic, *arguments).split()

    assert offsets() == [f"{topic}:0:0", f"{topic}:1:3"]
    assert offsets("--time", "earliest") == [f"{topic}:0:0", f"{topic}:1:0"]
    assert offsets("--time", "max-timestamp") == [f"{topic}:1:1"]
    assert offsets("--time", "1700000000001", "--partitions", "1") == [f"{topic}:1:1"]


# The APIs that the request path must speak, with versions; the whole list is the registry's affair.
API_RANGES = {
    "Produce": (0, 13),
    "Fetch": (4, 18),
    "ListOffsets": (1, 11),
    "Metadata": (0, 13),
    "ApiVersions": (0, 4),
    "CreateTopics": (2, 7),
    "DeleteTopics": (1, 6),
    "InitProducerId": (0, 5),
    "FindCoordinator": (0, 6),
    "DescribeCluster": (0, 2),
    "DescribeConfigs": (1, 4),
}


def test_broker_api_versions(tool: Tool) -> None:
    printed = tool.run("BrokerApiVersionsCommand")
    assert printed.startswith(f"{tool.bootstrap} (id: ")
    listed = {
        name: (int(low), int(high))
        for name, low, high in re.findall(r"^\t(\w+)\(\d+\): (\d+) to (\d+) \[", printed, re.M)
    }
    assert {name: listed.get(name) for name in API_RANGES} == API_RANGES


def test_producer_performance(tool: Tool, topic: str, bootstrap: str) -> None:
    ran = tool.attempt(
        "ProducerPerformance", "--topic", topic, "--num-records", "20000", "--record-size", "200",
        "--throughput", "-1", "--command-property", f"bootstrap.servers={bootstrap}",
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr.decode()
    assert b"20000 records sent, " in ran.stdout
    with Confluent(bootstrap).consumer() as consumer:
        assert consumer.offsets(topic, 0) == (0, 20_000)


# Anything else that the tool prints of an index is a complaint about it.
INDEX_ENTRY = re.compile(r"offset: \d+ position: \d+|timestamp: -?\d+ offset: \d+|")


def test_apache_kafka_reads_the_files(
    tool: Tool, server: Server, make_topic: Callable[..., str]
) -> None:
    """Log and both indexes, over several segments, as its own DumpLogSegments understands them."""
    if server.data_dir is None:
        requirements.skip_missing("the broker's data directory", "name it: KBROKER_TEST_DATA_DIR")
    topic = make_topic(segment_bytes=1_048_576, index_interval_bytes=4096)
    client = Confluent(server.bootstrap)
    for codec in CODECS:
        count = 1000 if codec == "none" else 200
        records = [Record(b"%d" % n + b"." * 2000, timestamp_ms=n + 1) for n in range(count)]
        client.produce(topic, records, codec=codec, idempotent=True)
    segments = batches.segment_files(server.data_dir, topic)
    assert len(segments) > 1
    for segment in segments:
        dumped = dump(tool, segment)
        offsets = [int(found) for found in re.findall(r"^\| offset: (\d+) ", dumped, re.M)]
        first = int(segment.stem)
        assert offsets == list(range(first, first + len(offsets)))
        assert dumped.count("isvalid: true") == dumped.count("isvalid:") > 0
        for suffix in (".index", ".timeindex"):
            index = segment.with_suffix(suffix)
            if index.exists():
                entries = dump(tool, index).splitlines()[1:]
                assert [e for e in entries if not INDEX_ENTRY.fullmatch(e)] == [], index


def dump(tool: Tool, file: Path) -> str:
    ran = tool.attempt("DumpLogSegments", "--deep-iteration", "--files", str(file))
    assert ran.returncode == 0, (ran.stdout + ran.stderr).decode(errors="replace")
    return ran.stdout.decode()
