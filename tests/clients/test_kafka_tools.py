"""`kbroker kafka-topics` and others beside Apache Kafka's tools, at one broker.

Each case is run by both, with topics of its own; lines on standard output and exit statuses are to
be equal, and our line on standard error is to be one of theirs.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import pytest
from confluent_kafka import Producer

from kbroker.testing import Broker
from tests.clients.agents.pair import Ended, Pair
from tests.clients.agents.tools import Tools
from tests.clients.conftest import Server
from tests.support.reading import records

pytestmark = [pytest.mark.client, pytest.mark.java]

TOPICS = "TopicCommand"
TIMEOUT_S = 60


@pytest.fixture
def topics(tools: Tools, bootstrap: str) -> Pair:
    return Pair(tools, bootstrap, TOPICS, "kafka-topics")


def test_a_topic_from_its_creation_to_its_end(topics: Pair) -> None:
    created = topics.both("--create", "--topic", "TOPIC", "--partitions", "3")
    assert created.status == 0 and "Created topic" in created.output
    described = topics.both("--describe", "--topic", "TOPIC")
    assert "PartitionCount: 3\tReplicationFactor: 1\tConfigs: " in described.output
    topics.both("--alter", "--topic", "TOPIC", "--partitions", "5")
    assert topics.both("--describe", "--topic", "TOPIC").output.count("\n") == 6
    assert topics.both("--list", "--topic", "TOPIC").output.count("\n") == 1
    topics.both("--delete", "--topic", "TOPIC")
    gone = topics.both("--describe", "--topic", "TOPIC")
    assert gone.status == 1 and "does not exist as expected" in gone.trouble


def test_settings_in_the_order_of_the_original(topics: Pair) -> None:
    settings = (
        "cleanup.policy=compact,delete", "retention.ms=1000", "segment.bytes=2000000",
        "min.insync.replicas=1", "max.message.bytes=5000", "compression.type=lz4",
        "message.timestamp.type = LogAppendTime", "unclean.leader.election.enable=true",
    )  # fmt: skip
    words = [word for each in settings for word in ("--config", each)]
    topics.both("--create", "--topic", "TOPIC", *words)
    described = topics.both("--describe", "--topic", "TOPIC")
    assert described.output.count("=") >= len(settings)
    topics.both("--describe", "--topic", "TOPIC", "--topics-with-overrides")


def test_brokers_of_each_partition(topics: Pair) -> None:
    topics.both("--create", "--topic", "TOPIC", "--replica-assignment", "1,1")
    topics.both("--describe", "--topic", "TOPIC")
    topics.both(
        "--alter", "--topic", "TOPIC", "--partitions", "4", "--replica-assignment", "1,1,1,1"
    )
    assert topics.both("--describe", "--topic", "TOPIC").output.count("\n") == 5


def test_if_it_exists_and_if_not(topics: Pair) -> None:
    topics.both("--create", "--topic", "TOPIC")
    again = topics.both("--create", "--topic", "TOPIC")
    assert again.status == 1 and "already exists" in again.output
    assert topics.both("--create", "--topic", "TOPIC", "--if-not-exists").output == ""
    for action in (["--delete"], ["--describe"], ["--alter", "--partitions", "2"]):
        assert topics.both(*action, "--topic", "no-TOPIC").status == 1
        assert topics.both(*action, "--topic", "no-TOPIC", "--if-exists").status == 0


@pytest.mark.parametrize(
    "report",
    ["--under-replicated-partitions", "--unavailable-partitions", "--under-min-isr-partitions",
     "--at-min-isr-partitions"],
)  # fmt: skip
def test_reports(topics: Pair, report: str) -> None:
    topics.both(
        "--create", "--topic", "TOPIC", "--partitions", "2", "--config", "min.insync.replicas=2"
    )
    topics.both("--describe", "--topic", "TOPIC", report)
    topics.both("--describe", "--topic", "TOPIC", report, "--exclude-internal")


def test_a_pattern_and_pages(topics: Pair) -> None:
    for suffix in ("-a", "-b"):
        topics.both("--create", "--topic", f"TOPIC{suffix}", "--partitions", "3")
    listed = topics.both("--list", "--topic", "TOPIC-[ab] , none")
    assert listed.output.count("\n") == 2
    topics.both("--describe", "--topic", "TOPIC-b", "--partition-size-limit-per-response", "1")
    topics.both("--delete", "--topic", "'TOPIC-.*'")
    assert topics.both("--list", "--topic", "TOPIC.*").output == "\n"


def test_values_after_an_equals_sign(topics: Pair) -> None:
    topics.both("--create", "--topic=TOPIC", "--partitions=2")
    assert "PartitionCount: 2" in topics.both("--describe", "--topic=TOPIC").output


@pytest.mark.parametrize(
    "arguments",
    [
        ("--create", "--topic", "TOPIC", "--config", "retention.ms"),
        ("--create", "--topic", "TOPIC", "--partitions", "0"),
        ("--create", "--topic", "TOPIC", "--replication-factor", "0"),
        ("--create", "--topic", "TOPIC", "--replication-factor", "3"),
        ("--create", "--topic", "TOPIC/bad"),
        ("--create", "--topic", "TOPIC", "--replica-assignment", "1:1"),
        ("--create", "--topic", "TOPIC", "--replica-assignment", "9"),
        ("--describe", "--topic-id", "AAAAAAAAAAAAAAAAAAAAAQ"),
    ],
)
def test_requests_that_are_refused(topics: Pair, arguments: tuple[str, ...]) -> None:
    assert topics.both(*arguments).status == 1


def test_a_topic_by_its_id(topics: Pair) -> None:
    topics.both("--create", "--topic", "TOPIC.with_both")
    described = topics.both("--describe", "--topic", "TOPIC.with_both")
    topic_id = re.search(r"TopicId: (\S+)", described.output)
    assert topic_id is not None
    topics.both("--describe", "--topic-id", topic_id[1])


@pytest.mark.parametrize(
    "arguments",
    [
        ("--create", "--list"),
        ("--create",),
        ("--alter", "--topic", "TOPIC"),
        ("--list", "--partitions", "3"),
        ("--create", "--topic", "TOPIC", "--replica-assignment", "1", "--partitions", "1"),
        ("--describe", "--if-not-exists"),
        ("--desc",),
        ("--list", "--no-such"),
        ("--list", "--topic", "a", "--topic", "b"),
        ("--list", "word", "--topic"),
    ],
)
def test_wrong_usage(topics: Pair, arguments: tuple[str, ...]) -> None:
    assert topics.both(*arguments).status == 1


class Limited(NamedTuple):
    """Both tools as a user with few rights, and the arguments of each call."""

    pair: Pair
    login: tuple[str, str]

    def both(self, *arguments: str, stdin: bytes = b"") -> Ended:
        return self.pair.both(*self.login, *arguments, stdin=stdin)


@pytest.fixture(scope="module")
def limited(tools: Tools, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Limited]:
    """She may describe `seen` and `named`, the settings of `seen`, and not the cluster."""
    acls = ["eve Describe topic:seen", "eve DescribeConfigs topic:seen", "eve Describe topic:named"]
    topics = {"seen": 1, "named": 2, "hidden": 1}
    with Broker(topics=topics, users={"eve": "secret"}, acls=acls) as broker:
        file = tmp_path_factory.mktemp("login") / "client.properties"
        lines = [f"{name}={value}\n" for name, value in broker.java_settings("eve").items()]
        file.write_text("".join(lines))
        file.chmod(0o600)
        pair = Pair(tools, broker.bootstrap, TOPICS, "kafka-topics")
        yield Limited(pair, ("--command-config", str(file)))


@pytest.mark.parametrize(
    ("arguments", "status", "part"),
    [
        (["--list"], 0, "named\nseen\n"),
        (["--list", "--topic", "hidden"], 0, "\n"),
        (["--describe", "--topic", "seen"], 0, "Topic: seen"),
        (["--describe", "--topic", "seen|hidden"], 0, "Topic: seen"),
        (["--describe", "--topic", "hidden"], 1, "Topic 'hidden' does not exist as expected"),
        (["--describe", "--topic", "hidden", "--if-exists"], 0, ""),
        (["--describe", "--topic", "named"], 1, "Topic authorization failed."),
        (["--describe", "--topic", "named", "--topics-with-overrides"], 1, "authorization failed."),
        (["--create", "--topic", "new"], 1, "Authorization failed."),
        (["--alter", "--topic", "named", "--partitions", "3"], 1, "Topic authorization failed."),
        (["--delete", "--topic", "named"], 1, "Authorization failed."),
    ],
)
def test_a_user_with_few_rights(
    limited: Limited, arguments: list[str], status: int, part: str
) -> None:
    ended = limited.both(*arguments)
    assert ended.status == status and part in ended.output


def test_without_a_broker_to_ask(topics: Pair) -> None:
    assert topics.both("--list", bootstrap=False).status == 1


@pytest.fixture
def producers(tools: Tools, bootstrap: str) -> Pair:
    return Pair(tools, bootstrap, "ConsoleProducer", "kafka-console-producer")


def written(producers: Pair, bootstrap: str, text: str, *arguments: str) -> Sequence[object]:
    """The records of these lines, by both; AssertionError: they differ."""
    ended = producers.both("--topic", "TOPIC", *arguments, stdin=text.encode())
    assert ended.status == 0, ended.trouble
    theirs, ours = (
        [(each.key, each.value, each.headers) for each in records(bootstrap, name)]
        for name in producers.names()
    )
    assert ours == theirs
    return ours


KEYS = ("--reader-property", "parse.key=true")
HEADERS = ("--reader-property", "parse.headers=true")
NULLS = ("--reader-property", "key.separator=:", "--reader-property", "null.marker=NULL")


@pytest.mark.parametrize(
    ("text", "arguments", "count"),
    [
        ("one\ntwo\r\n\nlast", (), 4),
        ("k\tv\nk2\tv\t2\n\t\n", KEYS, 3),
        ("k:v\nk2:NULL\nNULL:v\n", (*KEYS, *NULLS), 3),
        ("h:1,i:2\tk\tv\n", (*KEYS, *HEADERS), 1),
        ("h:1\tv\nno\n", (*HEADERS, "--reader-property", "ignore.error=true"), 2),
        ("a\n" * 20, ("--compression-codec", "gzip", "--request-required-acks", "all"), 20),
        ("a\n", ("--property", "parse.key=false", "--batch-size", "5", "--timeout", "3"), 1),
    ],
)  # fmt: skip
def test_lines_become_records(
    producers: Pair, bootstrap: str, text: str, arguments: tuple[str, ...], count: int
) -> None:
    assert len(written(producers, bootstrap, text, *arguments)) == count


def test_files_and_older_names(producers: Pair, bootstrap: str, tmp_path: Path) -> None:
    """The one of the options is stronger than that of a file."""
    login, reading = tmp_path / "login.properties", tmp_path / "reading.properties"
    login.write_text("acks=1\ncompression.type=lz4\nlinger.ms=5\n")
    reading.write_text("parse.key=true\nkey.separator=:\n")
    read = ("--reader-config", str(reading))
    for arguments in (
        ("--producer.config", str(login), *read),
        ("--command-config", str(login), *read, "--reader-property", "key.separator=;"),
        ("--producer-property", "acks=all", *read, "--compression-codec", "snappy"),
        ("--command-property", "acks=0", "--property", "parse.key=true", "--sync"),
    ):
        written(producers, bootstrap, "k:v;w\tx\n", *arguments)


@pytest.mark.parametrize(
    "arguments",
    [
        ("--producer.config", "/none", "--command-config", "/none"),
        ("--producer-property", "acks=1", "--command-property", "acks=1"),
        ("--property", "parse.key=true", "--reader-property", "parse.key=true"),
    ],
)
def test_an_option_under_both_of_its_names(producers: Pair, arguments: tuple[str, ...]) -> None:
    ended = producers.both("--topic", "TOPIC", *arguments)
    assert ended.status == 1 and "cannot be specified together" in ended.trouble


def test_lines_without_a_separator(producers: Pair) -> None:
    ended = producers.both("--topic", "TOPIC", *KEYS, stdin=b"no key\n")
    assert ended.status == 1


def test_a_producer_without_a_topic(producers: Pair) -> None:
    assert producers.both().status == 1


@pytest.fixture(scope="module")
def consumers(tools: Tools, server: Server) -> Pair:
    """Their topics have the same records: with a key, headers and none, nulls, and no records of an
    aborted transaction."""
    bootstrap = server.bootstrap
    pair = Pair(tools, bootstrap, "consumer.ConsoleConsumer", "kafka-console-consumer")
    for name in pair.names():
        client = Producer({"bootstrap.servers": bootstrap, "transactional.id": name})
        client.init_transactions(TIMEOUT_S)
        client.begin_transaction()
        client.produce(name, b"v1", b"k1", headers=[("h", b"1"), ("n", None)], timestamp=1000)
        client.produce(name, None, None, timestamp=2000)
        client.commit_transaction(TIMEOUT_S)
        client.begin_transaction()
        client.produce(name, b"aborted", b"", timestamp=3000)
        client.flush(TIMEOUT_S)
        client.abort_transaction(TIMEOUT_S)
        client.begin_transaction()
        client.produce(name, "fünf".encode(), b"", timestamp=4000)
        client.commit_transaction(TIMEOUT_S)
    return pair


ALL = ("--from-beginning", "--max-messages", "4")


def formatted(*properties: str) -> tuple[str, ...]:
    return tuple(word for each in properties for word in ("--formatter-property", each))


@pytest.mark.parametrize(
    ("arguments", "count"),
    [
        (ALL, 4),
        (("--from-beginning", "--isolation-level", "read_committed", "--max-messages", "3"), 3),
        ((*ALL, *formatted("print.key=true", "print.timestamp=true", "print.headers=true")), 4),
        ((*ALL, *formatted("print.partition=true", "print.offset=true", "print.epoch=true")), 4),
        ((*ALL, *formatted("print.key=true", "key.separator=|", "null.literal=NIL")), 4),
        ((*ALL, *formatted("print.headers=true", "headers.separator=;", "print.delivery=true")), 4),
        ((*ALL, *formatted("print.value=false", "unknown=1")), 0),
        (("--partition", "0", "--offset", "1", "--max-messages", "2"), 2),
        (("--partition", "0", "--offset", "EARLIEST", "--max-messages", "1"), 1),
        ((*ALL, "--property", "print.key=true", "--skip-message-on-error"), 5),
        ((*ALL, "--consumer-property", "isolation.level=read_uncommitted"), 5),
        (("--command-property", "auto.offset.reset=earliest", "--max-messages", "1"), 1),
    ],
)
def test_records_become_lines(consumers: Pair, arguments: tuple[str, ...], count: int) -> None:
    ended = consumers.both("--topic", "TOPIC", *arguments)
    assert ended.status == 0 and ended.output.count("\n") == count, ended


def test_a_group_goes_on(consumers: Pair) -> None:
    member = ("--topic", "TOPIC", "--group", "of-TOPIC", "--from-beginning", "--max-messages")
    assert consumers.both(*member, "1").output == "v1\n"
    assert consumers.both(*member, "2").output == "null\naborted\n"


def test_an_end_without_records(consumers: Pair) -> None:
    ended = consumers.both("--topic", "TOPIC", "--timeout-ms", "1000", "--from-beginning")
    assert ended.status == 0 and ended.output.count("\n") == 4


@pytest.mark.parametrize(
    "arguments",
    [
        (),
        ("--topic", "TOPIC", "--offset", "1"),
        ("--topic", "TOPIC", "--partition", "0", "--offset", "-5"),
        ("--topic", "TOPIC", "--partition", "0", "--offset", "x"),
        ("--topic", "TOPIC", "--partition", "0", "--group", "g"),
        ("--topic", "TOPIC", "--partition", "0", "--offset", "1", "--from-beginning"),
        ("--topic", "TOPIC", "--command-config", "/none", "--consumer.config", "/none"),
        ("--topic", "TOPIC", "--command-property", "a=b", "--consumer-property", "a=b"),
        ("--topic", "TOPIC", "--property", "a=b", "--formatter-property", "a=b"),
    ],
)
def test_wrong_usage_of_a_consumer(consumers: Pair, arguments: tuple[str, ...]) -> None:
    assert consumers.both(*arguments).status == 1
