"""`kbroker kafka-get-offsets` and others beside Apache Kafka's tools, at one broker.

As test_kafka_tools.py.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from kbroker.testing import Broker
from tests.clients.agents.pair import Ended, Pair
from tests.clients.agents.tools import Tools

pytestmark = [pytest.mark.client, pytest.mark.java]

TIMEOUT_S = 60


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    """Not that of all tests: what a tool prints of every topic or group is to stay as it is."""
    with Broker(topics={"orders": 3, "two": 2}) as started:
        producer = Producer({"bootstrap.servers": started.bootstrap})
        for number in range(7):
            producer.produce("orders", b"v", partition=number % 2, timestamp=1000 * (1 + number))
        producer.flush(TIMEOUT_S)
        yield started


class Limited(NamedTuple):
    """Both tools as a user with few rights, and the arguments of each call."""

    tools: Tools
    bootstrap: str
    login: tuple[str, str]

    def both(self, tool: tuple[str, str], *arguments: str) -> Ended:
        return Pair(self.tools, self.bootstrap, *tool, within=True).both(*self.login, *arguments)


@pytest.fixture(scope="module")
def limited(tools: Tools, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Limited]:
    """She may describe `seen` and `named`, the settings of `seen`, and not the cluster."""
    acls = ["eve Describe topic:seen", "eve DescribeConfigs topic:seen", "eve Describe topic:named",
            "eve Describe group:g1"]  # fmt: skip
    topics = {"seen": 1, "named": 2, "hidden": 1}
    with Broker(topics=topics, users={"eve": "secret"}, acls=acls) as broker:
        file = tmp_path_factory.mktemp("login") / "client.properties"
        lines = [f"{name}={value}\n" for name, value in broker.java_settings("eve").items()]
        file.write_text("".join(lines))
        file.chmod(0o600)
        yield Limited(tools, broker.bootstrap, ("--command-config", str(file)))


# --- kafka-get-offsets ----------------------------------------------------------------------------

OFFSETS = ("GetOffsetShell", "kafka-get-offsets")


@pytest.fixture
def offsets(tools: Tools, broker: Broker) -> Pair:
    return Pair(tools, broker.bootstrap, *OFFSETS, within=True)


@pytest.mark.parametrize(
    ("arguments", "count"),
    [
        ((), 5),
        (("--topic", "orders"), 3),
        (("--topic", "'nope, or.*'"), 3),
        (("--topic", "orders", "--partitions", "0,2,9", "word"), 2),
        (("--topic-partitions", "orders:0-2,two"), 4),
        (("--topic-partitions", "orders:2-,two:-1,:0,or.*"), 4),
        (("--topic-partitions", "or(ders|x):1"), 1),
        (("--exclude-internal-topics",), 5),
        (("--time", "latest"), 5),
        (("--time=earliest", "--topic", "orders"), 3),
        (("--time", "max-timestamp"), 2),
        (("--time", "-3", "--topic", "two"), 0),
        (("--time", "earliest-local"), 5),
        (("--time", "latest-tiered"), 0),
        (("--time", "earliest-pending-upload"), 0),
        (("--time", "3001", "--topic", "orders"), 2),
        (("--time", "-9"), 0),
    ],
)
def test_offsets(offsets: Pair, arguments: tuple[str, ...], count: int) -> None:
    ended = offsets.both(*arguments)
    assert ended.status == 0 and ended.output.count("\n") == count


@pytest.mark.parametrize(
    "arguments",
    [
        ("--time", "LATEST"),
        ("--time", "9" * 20),
        ("--time",),
        ("--topic", "nope"),
        ("--topic", ""),
        ("--topic", "("),
        ("--topic", "a", "--topic", "orders"),
        ("--topic", "a", "--topic-partitions", "a"),
        ("--partitions", "1, 2"),
        ("--partitions", "9" * 11),
        ("--topic-partitions", "orders:a"),
        ("--topic-partitions", "orders:" + "9" * 11),
        ("--topic-partitions", "nope"),
        ("--broker-list", "x"),
    ],
)
def test_offsets_that_cannot_be_asked_for(offsets: Pair, arguments: tuple[str, ...]) -> None:
    assert offsets.both(*arguments).status == 1


def test_offsets_of_no_broker(offsets: Pair) -> None:
    assert offsets.both("--topic", "orders", bootstrap=False).status == 1


def test_offsets_for_a_user_with_few_rights(limited: Limited) -> None:
    assert limited.both(OFFSETS).output == "named:0:0\nnamed:1:0\nseen:0:0\n"
    assert limited.both(OFFSETS, "--topic", "hidden").status == 1


# --- kafka-configs --------------------------------------------------------------------------------

CONFIGS = ("kafka.admin.ConfigCommand", "kafka-configs")


@pytest.fixture
def configs(tools: Tools, broker: Broker) -> Pair:
    return Pair(tools, broker.bootstrap, *CONFIGS, within=True)


def test_settings_of_topics(configs: Pair, tmp_path: Path) -> None:
    file = tmp_path / "add.properties"
    file.write_text("retention.ms=7\nretention.bytes = 8\n")
    printed = configs.each(
        f"""
        --alter --topic two --add-config "retention.ms = 5, cleanup.policy=[compact,delete],,"
        --describe --topic two
        --alter --entity-type topics --entity-name two --add-config-file {file}
        --describe --entity-type topics
        --describe --entity-type topics --entity-name two --all
        --alter --topic two --delete-config cleanup.policy,,segment.ms --add-config retention.ms=6
        --describe --topic two
        --alter --topic two --delete-config "retention.ms, retention.bytes"
        --alter --topic two --delete-config ""
        --describe --topic no-such
        """,
        status=0,
    )
    assert "  cleanup.policy=compact,delete sensitive=false synonyms={DYNAMIC_TOPIC" in printed
    assert printed.count("Completed updating config for topic two.") == 5


def test_settings_of_brokers_and_loggers(configs: Pair) -> None:
    printed = configs.each(
        """
        --alter --broker 1 --add-config log.cleaner.threads=2
        --alter --broker-defaults --add-config message.max.bytes=2000000
        --describe --entity-type brokers
        --describe --broker 1 --all
        --describe --entity-type brokers --entity-default --all
        --alter --entity-type brokers --entity-default --delete-config message.max.bytes
        --alter --broker 01 --delete-config log.cleaner.threads
        --describe --broker 01
        --describe --broker 9
        --alter --broker-logger 1 --add-config kbroker.log=DEBUG
        --describe --broker-logger 1
        --alter --broker-logger 1 --delete-config kbroker.log
        """,
        status=0,
    )
    assert "Default configs for brokers in the cluster are:\n  message.max.bytes=" in printed


def test_settings_of_groups_and_of_metrics(configs: Pair) -> None:
    printed = configs.each(
        """
        --alter --group g --add-config consumer.session.timeout.ms=46000
        --describe --group g
        --describe --entity-type groups
        --describe --group other
        --describe --group other --all
        --alter --entity-type groups --entity-name g --delete-config consumer.session.timeout.ms
        --alter --client-metrics m1 --add-config interval.ms=1000,metrics=[a.,b.]
        --alter --client-metrics m2 --add-config interval.ms=1000
        --describe --entity-type client-metrics
        --describe --client-metrics m1
        --describe --client-metrics m3
        --describe --client-metrics m3 --all
        """,
        status=0,
    )
    assert "The group 'other' doesn't exist and doesn't have dynamic config." in printed


def test_quotas_and_passwords(configs: Pair) -> None:
    quotas = "request_percentage=12.5,producer_byte_rate=12345678,controller_mutation_rate=0.0005"
    users = "\n".join(
        f"--alter --user {name} --add-config consumer_byte_rate=1e3,{quotas}"
        for name in ("ann", "bob", "cy", "ä ö")
    )
    printed = configs.each(
        f"""
        {users}
        --alter --user-defaults --add-config request_percentage=50
        --alter --user ann --client web --add-config producer_byte_rate=5
        --alter --user ann --client-defaults --add-config producer_byte_rate=6
        --alter --entity-type users --entity-default --entity-type clients --entity-name w
 --add-config producer_byte_rate=7
        --alter --client web --add-config producer_byte_rate=8
        --alter --client-defaults --add-config producer_byte_rate=9
        --alter --ip 10.0.0.1 --add-config connection_creation_rate=10
        --alter --ip-defaults --add-config connection_creation_rate=100000
        --alter --user ann --add-config SCRAM-SHA-256=[iterations=8192,password=a,=b]c]
        --alter --user ann --add-config SCRAM-SHA-512=[password=x]
        --describe --entity-type users
        --describe --entity-type clients
        --describe --entity-type ips
        --describe --entity-type users --entity-type clients
        --describe --entity-type users --entity-name ann --entity-type clients
        --describe --user ann --client web
        --describe --user ann --client-defaults
        --describe --user ann --all
        --describe --user none
        --describe --user ''
        --describe --user-defaults
        --describe --ip 10.0.0.1
        """.replace("\n --", " --"),
        status=0,
    )
    assert "Quota configs for user-principal 'ann', the default client-id are" in printed
    assert "SCRAM-SHA-256=iterations=8192, SCRAM-SHA-512=iterations=4096" in printed
    for word in ("--user ann --delete-config SCRAM-SHA-512", "--user bob --delete-config request_"
                 "percentage,producer_byte_rate", "--ip-defaults --delete-config connection_crea"
                 "tion_rate"):  # fmt: skip
        first = configs.both("--alter", *word.split(), alone=True)
        assert first.status == 0, first
        assert configs.each(f"--alter {word}", status=1) == ""


def test_settings_that_are_refused(configs: Pair) -> None:
    configs.each(
        """
        --alter --topic orders --add-config nope=1
        --alter --topic orders --add-config retention.ms=x
        --alter --topic orders --add-config retention.ms
        --alter --topic orders --add-config "a b=1"
        --alter --topic orders --add-config retention.ms=5 --delete-config retention.ms
        --alter --topic nope --add-config retention.ms=5
        --alter --broker 1 --add-config node.id=2
        --alter --broker-logger 1 --add-config no.such=DEBUG
        --alter --client c --add-config foo=1,SCRAM-SHA-256=5
        --alter --client c --delete-config foo
        --alter --client c --add-config producer_byte_rate=0x10
        --alter --client c --add-config producer_byte_rate=7.5
        --alter --user u --add-config foo=1,bar=2
        --alter --user u --delete-config foo
        --alter --user u --add-config SCRAM-SHA-512=[password=x],producer_byte_rate=1000
        --alter --user u --add-config SCRAM-SHA-256=[iterations=10,password=secret]
        --alter --user-defaults --add-config SCRAM-SHA-256=[password=x]
        --alter --user u --add-config SCRAM-SHA-256=[password=x],SCRAM-SHA-512=[password=x]
        --alter --ip 1.2.3.4 --add-config foo=1,bar=2
        --alter --ip no.such.host.invalid --add-config connection_creation_rate=1
        --describe --topic nope --all
        """,
        status=1,
    )


def test_wrong_usage_of_configs(configs: Pair) -> None:
    configs.each(
        """
        --describe --alter --topic orders
        --describe --topic a/b
        --describe --topic a --topic b
        --describe --topic
        --describe --broker x
        --describe --entity-type foo
        --describe --entity-name x
        --describe --entity-type topics --topic x
        --describe --entity-type topics --entity-type users
        --describe --entity-type topics --entity-default
        --describe --entity-type broker-loggers
        --describe --entity-type users --entity-name a --entity-default
        --describe --user u --entity-type clients
        --describe --topic x --add-config a=b
        --alter --topic orders
        --alter --entity-type topics --add-config a=b
        --alter --entity-type users --add-config a=b
        --alter --entity-type users --entity-type clients --entity-name u --add-config a=b
        --alter --topic orders --add-config a=b --add-config-file /none
        --bootstrap-controller localhost:1 --describe --topic x
        """,
        status=1,
    )
    assert configs.both("--describe", "--topic", "orders", bootstrap=False).status == 1


@pytest.mark.parametrize(
    ("words", "status", "part"),
    [
        ("--describe --topic seen", 0, "Dynamic configs for topic seen are:"),
        ("--describe --topic hidden", 0, "The topic 'hidden' doesn't exist"),
        ("--describe --entity-type topics", 1, "Dynamic configs for topic named are:\n"),
        ("--describe --broker 1", 1, "Dynamic configs for broker 1 are:\n"),
        ("--describe --user u", 1, ""),
        ("--describe --group g1", 1, "Dynamic configs for group g1 are:\n"),
        ("--describe --entity-type groups", 0, ""),
        ("--alter --topic seen --add-config retention.ms=6", 1, ""),
        ("--alter --user u --add-config SCRAM-SHA-256=[password=x]", 1, ""),
        ("--alter --broker-logger 1 --add-config kbroker.log=DEBUG", 1, ""),
    ],
)
def test_configs_for_a_user_with_few_rights(
    limited: Limited, words: str, status: int, part: str
) -> None:
    ended = limited.both(CONFIGS, *words.split())
    assert ended.status == status and part in ended.output


# --- kafka-consumer-groups ------------------------------------------------------------------------

GROUPS = ("consumer.group.ConsumerGroupCommand", "kafka-consumer-groups")
COMMITTED = {("orders", 0): 2, ("orders", 2): 0, ("two", 1): 0, ("alpha", 0): 0}


def committing(bootstrap: str, group: str) -> None:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group})
    offsets = [TopicPartition(*where, offset) for where, offset in COMMITTED.items()]
    consumer.commit(offsets=offsets, asynchronous=False)
    consumer.close()


@pytest.fixture(scope="module")
def group_broker() -> Iterator[Broker]:
    """With groups that have members: a classic one, a consumer group and a static member; and with
    groups that have offsets alone."""
    joining = [
        ("live", {"client.id": "one"}, ["orders", "two"]),
        ("live", {"client.id": "a-rather-long-client-identifier"}, ["orders"]),
        ("live-static", {"group.instance.id": "instance-1"}, ["two", "alpha"]),
        ("live-consumers-of-a-long-name", {"group.protocol": "consumer"}, ["orders", "alpha"]),
        ("waiting", {}, ["no.such.topic"]),
    ]
    with Broker(topics={"orders": 3, "two": 2, "alpha": 1}) as started, ExitStack() as stack:
        producer = Producer({"bootstrap.servers": started.bootstrap})
        for number in range(5):
            producer.produce("orders", b"v", partition=0, timestamp=1000 * (1 + number))
        producer.flush(TIMEOUT_S)
        members = []
        for group, settings, topics in joining:
            consumer = Consumer(
                {"bootstrap.servers": started.bootstrap, "group.id": group, **settings}
            )
            stack.callback(consumer.close)
            consumer.subscribe(topics)
            members.append(consumer)
        for group in ("a1", "b7", "kept"):
            committing(started.bootstrap, group)
        deadline = time.monotonic() + TIMEOUT_S
        while not all(each.assignment() for each in members[:-1]) or not all(
            started.group(each).state == "Stable" for each in ("live", "live-static")
        ):
            assert time.monotonic() < deadline
            for each in members:
                each.poll(0.05)
        yield started


@pytest.fixture
def groups(tools: Tools, group_broker: Broker) -> Pair:
    for group in ("a1", "b7"):
        committing(group_broker.bootstrap, group)
    return Pair(tools, group_broker.bootstrap, *GROUPS, within=True)


def test_groups_and_their_members(groups: Pair) -> None:
    printed = groups.each(
        """
        --list
        --list --state
        --list --type --state
        --list --state empty,STABLE --type classic
        --list --state=Dead
        --list --type Consumer
        --describe --all-groups
        --describe --all-groups --members
        --describe --all-groups --members --verbose
        --describe --all-groups --state
        --describe --all-groups --state --verbose
        --describe --group live --group a1 --offsets --verbose
        --describe --group no-such
        --describe --group kept --group no-such --members
        """,
        status=0,
    )
    assert "GROUP-INSTANCE-ID" in printed and "TARGET-ASSIGNMENT-EPOCH" in printed
    assert "a-rather-long-client-identifier" in printed


def test_groups_and_offsets_are_deleted(groups: Pair, group_broker: Broker) -> None:
    groups.each(
        """
        --delete-offsets --group kept --topic two:1 --topic orders
        --delete-offsets --group kept --topic no-such --topic orders:0,7
        --delete-offsets --group live --topic orders
        --delete-offsets --group no-such --topic orders
        --delete --group no-such --group live --group live-static
        """,
        status=0,
    )
    for words in ("--delete --group a1 --group b7", "--delete --group a1 --group b7 --group live"):
        ours = groups.both(*words.split(), alone=True)
        for group in ("a1", "b7"):
            committing(group_broker.bootstrap, group)
        assert groups.theirs(*words.split()).output == ours.output
        for group in ("a1", "b7"):
            committing(group_broker.bootstrap, group)


def test_offsets_are_reset(groups: Pair, tmp_path: Path) -> None:
    old, new = tmp_path / "old.csv", tmp_path / "new.csv"
    old.write_text('"orders",0,3\ntwo,1,0\norders,1,99\n')
    new.write_text("a1,orders,0,3\nb7,two,0,0\nother,two,0,0\n")
    scenarios = f"""
        --topic orders --to-earliest
        --topic orders --topic two:1 --to-latest --execute
        --topic orders:0,2 --to-offset 4 --dry-run
        --topic orders:0,2 --to-offset -4 --dry-run
        --all-topics --to-current --dry-run
        --all-topics --shift-by -1 --dry-run
        --all-topics --shift-by 100 --dry-run
        --topic orders --to-datetime 1970-01-01T00:00:03.001 --execute
        --topic orders --to-datetime 1970-01-01T01:00:03.001+01:00 --dry-run
        --topic orders --by-duration P20000D --dry-run
        --topic orders --by-duration PT1.5S --dry-run
        --topic orders --topic two --to-earliest --dry-run --export
        --from-file {old} --execute
        --from-file {old} --export --dry-run
        --from-file {new} --dry-run
        """.strip().splitlines()
    for line in scenarios:
        groups.each(f"--reset-offsets --group a1 {line}", status=0)
    printed = groups.each(
        f"""
        --describe --group a1
        --reset-offsets --group a1 --group b7 --all-topics --to-earliest --export --dry-run
        --reset-offsets --group a1 --group b7 --from-file {new} --dry-run
        --reset-offsets --group a1 --group b7 --from-file {old} --dry-run
        --reset-offsets --all-groups --topic two --to-earliest --dry-run
        --reset-offsets --group no-such --topic two --to-earliest --dry-run
        --reset-offsets --group no-such --all-topics --to-earliest --dry-run
        --reset-offsets --group live --group a1 --topic orders --to-earliest --execute
        """,
        status=0,
    )
    assert "Assignments can only be reset if the group 'live' is inactive" in printed


def test_resets_that_fail(groups: Pair) -> None:
    for line in """
        --topic no-such --to-earliest
        --topic orders:7,8 --to-earliest
        --topic orders --to-offset x
        --topic orders --to-datetime bad
        --topic orders --to-datetime 2026-11-30T00:00
        --topic orders --to-datetime 2026-13-30T00:00:00.000
        --topic orders --by-duration 1h
        --from-file /none
        --all-topics --to-earliest --bootstrap-server two
        """.strip().splitlines():
        groups.each(f"--reset-offsets --group a1 --dry-run {line}", status=0)
    groups.each("--reset-offsets --group a1 --dry-run --topic two --shift-by 1", status=1)


def test_wrong_usage_of_groups(groups: Pair) -> None:
    groups.each(
        """
        --list --group x
        --list --topic x
        --list --verbose
        --list --state foo
        --list --type share
        --describe
        --describe --group
        --describe --group a1 --all-groups
        --describe --group a1 --members --offsets
        --describe --group a1 --state Stable
        --describe --group a1 --topic x
        --describe --group a1 --type
        --delete
        --delete --group a1 --topic x
        --delete-offsets --group a1
        --reset-offsets --topic orders --to-earliest --dry-run
        --reset-offsets --group a1 --topic orders --to-earliest --to-latest --dry-run
        --reset-offsets --group a1 --topic orders --to-earliest --dry-run --execute
        --reset-offsets --group a1 --topic orders:x --to-earliest --dry-run
        --no-such
        """,
        status=1,
    )
    assert groups.both("--list", bootstrap=False).status == 1
    assert groups.both("--validate-regex", "a|b[c-d]", bootstrap=False).status == 0


@pytest.mark.parametrize(
    ("words", "part"),
    [
        ("--list", ""),
        ("--describe --all-groups", ""),
        ("--describe --group g1", "Group g1 not found."),
        ("--describe --group g2", "FindCoordinator request for groupId"),
        ("--delete --group g1 --group g2", "Group authorization failed."),
        ("--delete-offsets --group g1 --topic seen --topic hidden", "Group authorization failed."),
        ("--delete-offsets --group g2 --topic seen", "FindCoordinator request for groupId"),
        ("--reset-offsets --group g1 --topic seen --to-earliest --dry-run", "seen            0"),
        ("--reset-offsets --group g1 --topic seen --to-earliest --execute", "[seen-0]"),
        ("--reset-offsets --group g1 --topic hidden --to-earliest --dry-run", "Topic author"),
        ("--reset-offsets --group g2 --topic seen --to-earliest --dry-run", "FindCoordinator"),
    ],
)
def test_groups_for_a_user_with_few_rights(limited: Limited, words: str, part: str) -> None:
    ended = limited.both(GROUPS, *words.split())
    assert ended.status == 0 and part in ended.output


# --- kafka-delete-records -------------------------------------------------------------------------

RECORDS = ("DeleteRecordsCommand", "kafka-delete-records")


def test_records_are_deleted(tools: Tools, group_broker: Broker, tmp_path: Path) -> None:
    pair = Pair(tools, group_broker.bootstrap, *RECORDS, within=True)
    file = tmp_path / "offsets.json"

    def both(text: str) -> Ended:
        file.write_text(text)
        return pair.both("--offset-json-file", str(file))

    one = '{"topic": "orders", "partition": 0, "offset": %s}'
    assert "orders-0\tlow_watermark: 2" in both(f'{{"partitions": [{one % 2}]}}').output
    assert "OffsetOutOfRange" in both(f'{{"partitions": [{one % 99}], "version": 1}}').output
    both('{"partitions": []}')
    for text in (
        "x", "[1]", "{}", '{"partitions": 5}', '{"partitions": [5]}',
        '{"version": 2}', '{"version": "1"}', f'{{"partitions": [{one % 1}, {one % 2}]}}',
        f'{{"partitions": [{one % 0.5}]}}', '{"partitions": [{"topic": "a", "partition": 0}]}',
        '{"partitions": [{"topic": 5, "partition": 0, "offset": 1}]}',
    ):  # fmt: skip
        assert both(text).status == 1, text
    assert "low_watermark: 5" in both(f'{{"partitions": [{one % -1}]}}').output
    assert pair.both("--offset-json-file", "/none").status == 1
    assert pair.both("--offset-json-file", "a", "--offset-json-file", "b").status == 1
    assert pair.both("--offset-json-file", str(file), bootstrap=False).status == 1
    file.write_text('{"partitions": [{"topic": "none", "partition": 0, "offset": 0}]}')
    ours = pair.both("--offset-json-file", str(file), alone=True)
    assert ours.status == 0 and "none-0\terror: org.apache.kafka.common.errors.Unkn" in ours.output


@pytest.mark.parametrize("topic", ["seen", "hidden"])
def test_records_for_a_user_with_few_rights(limited: Limited, tmp_path: Path, topic: str) -> None:
    file = tmp_path / "offsets.json"
    file.write_text(f'{{"partitions": [{{"topic": "{topic}", "partition": 0, "offset": 0}}]}}')
    ended = limited.both(RECORDS, "--offset-json-file", str(file))
    assert ended.status == 0 and "TopicAuthorizationException" in ended.output


# --- kafka-acls -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "words",
    ["--list", "--add --allow-principal User:x --topic a", "--remove --topic a --force"],
)
def test_acls_for_a_user_with_few_rights(limited: Limited, words: str) -> None:
    """The original prints a stack trace after the line."""
    pair = Pair(limited.tools, limited.bootstrap, "AclCommand", "kafka-acls", within=True)
    arguments = (*limited.login, *words.split())
    ours, theirs = pair.both(*arguments, alone=True), pair.theirs(*arguments)
    assert ours.status == theirs.status == 1
    assert ours.output == theirs.output.partition("\n")[0] + "\n"
